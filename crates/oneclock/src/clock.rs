//! The one place where tokio's clock becomes a [`Tick`].
//!
//! Everything asks this clock, so that a test that pauses time pauses every decision with it. Contract K1: wall-clock
//! steps change nothing here.

use std::sync::OnceLock;
use std::time::Duration;

use oneclock_core::{Deadline, Tick, wire::Wall};
use tokio::time::Instant;

/// How far the anchor lies before the first question, so that a runtime with a paused clock, which may stand still a
/// little before another runtime asked first, still gets honest numbers.
const HEADROOM: Duration = Duration::from_secs(3600);

static ANCHOR: OnceLock<Instant> = OnceLock::new();

/// Now, on the monotonic clock that paused time pauses.
///
/// ```
/// let before = oneclock::clock::now();
/// assert!(oneclock::clock::now() >= before);
/// ```
#[allow(clippy::disallowed_methods)] // this is the function that the ban points to
pub fn now() -> Tick {
    tick(Instant::now())
}

/// The moment of a tokio instant.
pub fn tick(instant: Instant) -> Tick {
    Tick::default() + instant.saturating_duration_since(anchor())
}

/// The tokio instant at which a timer for `deadline` is due. A moment too far off for the platform is thirty years away.
pub fn instant(deadline: Deadline) -> Instant {
    let span = Duration::from_nanos(deadline.tick().as_nanos());
    let anchor = anchor();
    anchor.checked_add(span).unwrap_or_else(|| anchor + Duration::from_secs(86_400 * 365 * 30))
}

/// The wall clock, for absolute conventions and for nothing else (contract P10, K2).
#[allow(clippy::disallowed_methods)]
pub fn wall() -> Wall {
    std::time::SystemTime::now().into()
}

#[allow(clippy::disallowed_methods)]
fn anchor() -> Instant {
    *ANCHOR.get_or_init(|| {
        let first = Instant::now();
        first.checked_sub(HEADROOM).unwrap_or(first)
    })
}
