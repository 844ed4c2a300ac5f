//! The runtime, topic by topic. Time is paused except where threads or processes take part.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

#[path = "main/support.rs"]
mod support;

#[path = "main/admission.rs"]
mod admission;
#[path = "main/awaited.rs"]
mod awaited;
#[path = "main/blocking.rs"]
mod blocking;
#[path = "main/call.rs"]
mod call;
#[path = "main/carried.rs"]
mod carried;
#[path = "main/clock.rs"]
mod clock;
#[path = "main/counts.rs"]
mod counts;
#[path = "main/events.rs"]
mod events;
#[path = "main/fan_out.rs"]
mod fan_out;
#[path = "main/finish.rs"]
mod finish;
#[path = "main/grant.rs"]
mod grant;
#[path = "main/health.rs"]
mod health;
#[path = "main/hedge.rs"]
mod hedge;
#[path = "main/on_end.rs"]
mod on_end;
#[path = "main/operation.rs"]
mod operation;
#[cfg(all(feature = "process", unix))]
#[path = "main/process.rs"]
mod process;
#[path = "main/retry.rs"]
mod retry;
#[path = "main/run.rs"]
mod run;
#[path = "main/shutdown.rs"]
mod shutdown;
#[path = "main/slots.rs"]
mod slots;
#[path = "main/spawn.rs"]
mod spawn;
#[path = "main/storm.rs"]
mod storm;
