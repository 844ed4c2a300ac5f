//! Every decision of oneclock, pure: small state machines and codecs that take `now` as an argument.
//!
//! No clock, no I/O, no async, no randomness. The library, the sidecar and the simulator drive the same types, so a rule
//! is written once. Invariant: no type here has a "no limit" value; that is spelled only in configuration, and dies
//! there.
//!
//! | module | decides |
//! |---|---|
//! | [`time`] | moments and deadlines: arithmetic that saturates and never extends |
//! | [`wire`] | reading and writing a deadline in every convention |
//! | [`ingress`] | what an arriving request may spend |
//! | [`grant`] | what one child call may spend |
//! | [`ending`] | why work ended early, the first cause, and what the caller is told |
//! | [`effect`] | what is known of the far side, and whether a call may be repeated |
//! | [`expiry`] | durable work: until when it may begin to matter, and what becomes of it after that |
//! | [`idempotency`] | at most one run for a key: the record's state machine, the key, what a repeat is told |
//! | [`retry`] | whether, when and how often a failed call is tried again |
//! | [`importance`] | who is shed first |
//! | [`estimate`] | how long work of one sort takes |
//! | [`admission`] | who may start, who waits for a turn, who is refused before anything is spent on it |
//! | [`queue`] | who of those that wait is next |
//! | [`throttle`] | how many calls are made to a destination that refuses some |
//! | [`breaker`] | whether a destination is called at all after too many of its calls failed |
//! | [`ledger`] | where the budget went |
//! | [`readiness`] | whether a process should be sent work, and what proves that a spent budget is refused |
//! | [`statement`] | one statement on a database server: its bound there, its cancel, what is known after its end |

pub mod admission;
pub mod breaker;
pub mod effect;
pub mod ending;
pub mod estimate;
pub mod expiry;
pub mod grant;
pub mod idempotency;
pub mod importance;
pub mod ingress;
pub mod ledger;
pub mod name;
pub mod queue;
pub mod readiness;
pub mod retry;
pub mod statement;
pub mod throttle;
pub mod time;
pub mod wire;
mod word;

pub use effect::{Effect, Outcome};
pub use ending::{Bound, BoundBy, Cause, Ending, Progress, Reason, Stage};
pub use grant::{Ask, Budget, Refused};
pub use importance::Importance;
pub use ingress::{OnMalformed, Policy, Trust};
pub use ledger::Ledger;
pub use name::Name;
pub use time::{Deadline, Tick};
