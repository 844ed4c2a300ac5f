//! One operation, one clock: every operation has one end-to-end time budget, and everything it does spends from it.
//!
//! This is the runtime: the current [`Operation`], its cancel tree, calls, fan-out, tasks, and what may outlive a
//! parent. It knows tokio and no HTTP; `oneclock-http`, `oneclock-axum` and `oneclock-reqwest` stand on it. Every rule is
//! decided in `oneclock-core`.
//!
//! ```
//! use oneclock::Operation;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let op = Operation::begin("nightly-reconcile", Duration::from_secs(300));
//! let done = op.run(async {
//!     let left = oneclock::remaining(); // known anywhere below
//!     assert!(left.is_some());
//! }).await;
//! assert!(done.is_ok());
//! # }
//! ```
//!
//! # Which operation pays
//! What makes a call takes the current operation. Beside it there is the same with `_in`, whose first argument is the
//! operation that pays: [`retry_in`], `Client::get_in`, `Pool::run_in`; for code on a task of its own, and where two
//! operations meet. What is called as a service of tower's, or through somebody else's client, takes it from the extensions
//! of the request, where none is current. (`_in` behind what an error is asked for means its source chain: [`reason_in`].)

pub mod admission;
mod call;
mod caps;
mod carried;
mod chain;
pub mod clock;
pub mod events;
mod fan_out;
mod finish;
mod grant;
mod health;
mod hedge;
mod on_end;
pub mod operation;
#[cfg(all(feature = "process", unix))]
mod process;
mod retry;
mod run;
mod scope;
mod shutdown;
mod spawn;
mod zombie;

use std::time::Duration;

pub use admission::{Admission, Place};
pub use call::Call;
pub use caps::{Caps, DEFAULT_CAP, WithoutOperation};
pub use carried::{Carried, TooLate};
pub use chain::{NotConnected, not_connected_in, reason_in, stopped_in};
pub use fan_out::{FanOut, Joined, Missing, Optional, PartFailed, Required};
pub use finish::Unfinished;
pub use grant::{Grant, NotBegun, Standing, Stopped, WhyNot};
pub use health::{Health, HealthBuilder, HeldBack, Watch};
pub use hedge::{hedge, hedge_in};
pub use on_end::OnEnd;
// The words that errors and policies are told in, so that a service needs this crate alone for them.
pub use oneclock_core::{Bound, BoundBy, Cause, Effect, Ending, Name, Outcome, Reason, Stage};
pub use operation::{Driver, Operation, Polling, live_operations};
#[cfg(all(feature = "process", unix))]
pub use process::ProcessFailed;
pub use retry::{AttemptFailed, Driven, GaveUp, HasOutcome, Known, Retries, RetriesBuilder, retry, retry_in};
pub use run::{EndOf, Ended, Run};
pub use scope::{Awaiting, Scoped};
pub use shutdown::Shutdown;
pub use spawn::{Spawned, TaskFailed, running_unguarded};
pub use zombie::{MayRunOn, Zombies, zombies};

/// What the current operation has left; `None` outside of any.
///
/// ```
/// assert_eq!(oneclock::remaining(), None);
/// ```
pub fn remaining() -> Option<Duration> {
    scope::current(Operation::remaining)
}

/// The guide's examples, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/durations.md")]
struct Guide;
