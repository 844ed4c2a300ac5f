//! At most one run for a key: the record's state machine, the key, and what a request is told that finds a record.
//!
//! ```text
//! absent ── enqueue ──▶ queued ── claim, next fence ──▶ in_progress
//! absent ── claim ──▶ in_progress ── complete ──▶ completed
//!                      │       │ └── release, set aside ──▶ failed_retryable ── claim, enqueue; next fence ──▶ …
//!                      │       └── doubt, or its lease lapses ──▶ unknown
//!                      │                                          │ complete, release: the truth arrives later
//!                      └───────────────── claim, next fence, only where declared safe ◀──┘
//! ```
//!
//! What is queued was accepted, and nobody has begun: whoever claims first runs it, and it may end without a run (complete,
//! set aside, doubt).
//!
//! Decides every step as a compare-and-set on (state, fence), contract M1 to M10. A store keeps a [`Record`] for each
//! [`Scope`], asks [`claim`] or [`Record::step`] with its own clock, and writes what they say in the same transaction. Here
//! is no clock, no hash and no store: the bytes of a [`Fingerprint`] are worked out outside.
//!
//! ```
//! use oneclock_core::idempotency::*;
//! use oneclock_core::wire::Wall;
//! use std::time::Duration;
//!
//! let now = Wall::from_nanos(1_000_000_000);
//! let ask = Claim {
//!     fingerprint: Fingerprint([7; 32]),
//!     owner: Owner(1),
//!     made: None,
//!     lease: Duration::from_secs(30),
//!     retention: Duration::from_secs(86_400),
//!     takeover: Takeover::Never,
//! };
//! let first = claim(None, Fence::NONE, &ask, now);
//! let Claimed::Run { fence, .. } = first.claimed else { panic!() };
//! let record = first.write.unwrap(); // the store makes it durable, and only then does the work begin
//!
//! // Another asks meanwhile, and after the lease, when nobody has said what became of it:
//! let other = Claim { owner: Owner(2), ..ask };
//! assert!(matches!(claim(Some(&record), Fence::NONE, &other, now).claimed, Claimed::InProgress { .. }));
//! let late = now + Duration::from_secs(31);
//! assert!(matches!(claim(Some(&record), Fence::NONE, &other, late).claimed, Claimed::Unknown { .. }));
//!
//! // The truth may still arrive:
//! assert!(matches!(record.step(fence, Step::Complete, late), Stepped::Done(done) if done.state == State::Completed));
//! ```

mod enqueue;
mod handle;
mod key;
#[cfg(test)]
mod model;
mod prefer;
#[cfg(test)]
#[expect(unreachable_pub, reason = "the fuzz crate includes the file as a public module of its own")]
mod properties;
mod record;
mod rules;

use std::fmt;
use std::sync::Arc;

use crate::Name;

pub use enqueue::{Enqueue, Enqueued, Enqueueing, enqueue};
pub use handle::Handle;
pub use key::{FIELD, Key, NotAKey};
pub use prefer::prefers_to_wait;
pub use record::{Claim, Claimed, Claiming, Doubt, Record, State, Step, Stepped, Takeover, claim};
pub use rules::{Horizons, Refusal, RetentionTooShort, Verdict, retry_after, verdict, wait};

/// Whose key, for what: two requests mean the same operation only if all four agree (contract M8).
///
/// Without the principal one customer's answer is replayed to another; without the route one key does two things.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// Who asks: an account or a tenant, never a credential, since it is stored and listed.
    pub principal: Arc<str>,
    /// The method.
    pub method: Name,
    /// The matched route, not the path.
    pub route: Name,
    /// The key.
    pub key: Key,
}

/// SHA-256 over what the request asks for: method, path and query, content type, body (contract M8). Kept in every state.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// The number of a run under one key. It only grows, so that who comes back late can be told from who works now.
///
/// What a run changes elsewhere may carry it too, so that the far side refuses lower ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(pub u64);

/// Who claims: a random number for each run. A claim whose answer was lost is asked again under the same one, and is the
/// same claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(pub u128);

// === Scope ===

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} of {}", self.method, self.route, self.key, self.principal)
    }
}

// === Fingerprint ===

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.0[..6] {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("…")
    }
}

// === Fence ===

impl Fence {
    /// Lower than that of any run.
    pub const NONE: Self = Self(0);

    /// The next run's.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
