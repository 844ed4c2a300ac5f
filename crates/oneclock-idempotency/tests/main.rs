//! All I/O is in memory, so time is paused: a lease of minutes lapses at once, and nothing here waits for real. Only
//! `grpc::calls` are over sockets, which wait for events.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

#[path = "main/support.rs"]
mod support;

#[path = "main/answers.rs"]
mod answers;
#[cfg(feature = "axum")]
#[path = "main/axum.rs"]
mod axum;
#[path = "main/build.rs"]
mod build;
#[path = "main/duplicates.rs"]
mod duplicates;
#[path = "main/failures.rs"]
mod failures;
#[cfg(feature = "tonic")]
#[path = "main/grpc/mod.rs"]
mod grpc;
#[path = "main/ingress.rs"]
mod ingress;
#[path = "main/leaving.rs"]
mod leaving;
#[path = "main/reconcile.rs"]
mod reconcile;
#[path = "main/store.rs"]
mod store;
#[path = "main/waiting.rs"]
mod waiting;
