//! Whether this process should be sent work: its layers refuse a spent budget, and its self-tests passed.
//!
//! Decides what is looked at, and when; what the results mean is `oneclock_core::readiness`'s decision. A probe is answered from
//! what is kept, whatever the checks are doing, and nothing is looked at because somebody asks.
//!
//! ```
//! use axum::{Router, body::Body, http::Request, routing::get};
//! use oneclock::Shutdown;
//! use oneclock_axum::{Policy, PolicyExt as _};
//! use oneclock_telemetry::Readiness;
//! use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!
//! let policy = Policy::named("order").when_absent(Duration::from_millis(800)).build()?;
//! let app: Router = Router::new().route("/orders/{id}", get(|| async { "done" })).layer(policy.layer());
//!
//! let shutdown = Shutdown::new();
//! let readiness = Readiness::builder()
//!     .stack(app.clone(), Request::get("/orders/0").body(Body::empty())?)   // what callers meet, layers and all
//!     .self_test("cache", || async { Ok::<_, std::io::Error>("connected") })
//!     .start(&shutdown)?;
//! let admin: Router = Router::new()
//!     .route_service("/readyz", readiness.readyz())
//!     .route_service("/status", readiness.status());
//! assert!(readiness.ready().await);
//! shutdown.signal();
//! assert_eq!(readiness.now().to_string(), "not ready: shutting down");
//! # drop(admin); Ok(()) }
//! ```

mod answer;
mod builder;
mod failure;
mod quiet;
mod run;
mod stack;
mod state;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oneclock_core::Name;
use oneclock_core::readiness::HeldBack;
use oneclock_core::time::Legible;

pub use answer::{Readyz, Status};
pub use builder::{NotReadiness, ReadinessBuilder};
pub use failure::Failure;
pub use oneclock_core::readiness::{Marks, NotMarks};
pub use quiet::{WithoutProbes, as_probe};

use state::Shared;

/// What is known of this process's readiness. Cheap to clone; made by [`Readiness::builder`].
#[derive(Clone)]
pub struct Readiness(Arc<Shared>);

/// The answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// Whether to send work here.
    pub ready: bool,
    /// For how long it has been so.
    pub lasts: Duration,
    /// Since when, by the wall clock: milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Why not. Empty exactly if it is ready.
    pub why: Vec<WhyNot>,
}

/// One reason for which a process is not ready. Printed, it is a sentence without anything that a dependency said; that stands
/// in [`Readiness::status`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyNot {
    /// Its shutdown was signalled.
    ShuttingDown,
    /// It is not shown that the layers refuse a spent budget.
    Stack {
        /// Which: method and path.
        name: Name,
        /// Why it does not count as shown.
        held: HeldBack,
    },
    /// A self-test.
    SelfTest {
        /// Which.
        name: Name,
        /// Why it does not count as passed.
        held: HeldBack,
    },
    /// Too much of it runs for nobody.
    Zombies {
        /// How much did at the latest look.
        zombies: usize,
        /// The places that it can take up.
        capacity: usize,
    },
    /// Nobody has looked at the zombies for so long: what runs the checks has died or stalled.
    Stalled {
        /// For how long.
        silent: Duration,
    },
}

impl Readiness {
    /// Begins to say what is looked at.
    pub fn builder() -> ReadinessBuilder {
        ReadinessBuilder::new()
    }

    /// Whether to send work here, by what is kept. It waits for nothing and runs nothing: a probe may ask as often as it likes.
    pub fn now(&self) -> Verdict {
        self.0.verdict()
    }

    /// Waits until it is ready: for whoever says so elsewhere, to a service manager or a registry. False if the shutdown was
    /// signalled first.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn ready(&self) -> bool {
        self.0.until_ready().await
    }

    /// The service for `GET /readyz`: 200 if ready, else 503, with a small JSON document, or a line of text for whoever accepts
    /// only that. For any HTTP stack of tower's; in axum: `.route_service("/readyz", readiness.readyz())`.
    ///
    /// Its reasons name checks and nothing that a dependency said. Put it on the listener of operators, outside of the layer
    /// that keeps budgets: it spends none.
    pub fn readyz(&self) -> Readyz {
        Readyz::new(self.clone())
    }

    /// The service for `GET /status`: always 200, each check with its latest result and its error, and the zombies. For
    /// operators only: errors may name hosts.
    pub fn status(&self) -> Status {
        Status::new(self.clone())
    }

    /// What [`status`](Self::status) answers.
    pub fn to_json(&self) -> serde_json::Value {
        self.0.to_json()
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readiness").field(&self.now()).finish()
    }
}

/// `ready`, or `not ready:` and why.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ready {
            return f.write_str("ready");
        }
        f.write_str("not ready")?;
        for (n, why) in self.why.iter().enumerate() {
            write!(f, "{}{why}", if n == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShuttingDown => f.write_str("shutting down"),
            Self::Stack { name, held } => write!(f, "stack {name}: {held}"),
            Self::SelfTest { name, held } => write!(f, "self-test {name}: {held}"),
            Self::Zombies { zombies, capacity } => {
                write!(f, "zombies: {zombies} take up what {capacity} can, and nobody waits for them")
            }
            Self::Stalled { silent } => {
                write!(f, "nothing was looked at for {}: it has died or stalled", Legible(*silent))
            }
        }
    }
}
