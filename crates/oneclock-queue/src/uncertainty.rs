//! By how much this process's wall clock may be wrong.
//!
//! Decides where the figure comes from: the kernel where its clock is synchronised, else what is assumed; and what readings of
//! the broker's clock have proven, which is the one clock that producers and consumers share (contract Q4).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use oneclock::clock;
use oneclock_core::Tick;
use oneclock_core::expiry::{ASSUMED, WORRYING, measured, stepped, uncertainty};
use oneclock_core::wire::Wall;

use crate::broker::Broker;

/// By how much this process's wall clock may be wrong. Cheap to clone; all clones share what was measured.
///
/// ```
/// use oneclock_queue::Uncertainty;
/// use std::time::Duration;
///
/// let assumed = Uncertainty::assumed(Duration::from_secs(2)); // where clocks are known to be bad
/// assert!(assumed.get() >= Duration::from_secs(2));
/// ```
#[derive(Clone, Debug)]
pub struct Uncertainty(Arc<Known>);

#[derive(Debug)]
struct Known {
    assumed: Duration,
    asks_kernel: bool,
    proven: Mutex<Option<Proven>>,
    kernel_at: AtomicU64,   // when the kernel was asked last, in nanoseconds; u64::MAX: never
    kernel_says: AtomicU64, // what it said then, with what may come to that until it is asked again; u64::MAX: nothing
}

/// What a reading of the broker's clock has proven of ours.
#[derive(Clone, Copy, Debug)]
struct Proven {
    by: Duration,
    wall: Wall,
    at: Instant, // no clock of tokio's: a paused one passes without the wall clock
}

const NEVER: u64 = u64::MAX;

/// What the kernel said holds for so long: asking is a system call, and work comes faster than clocks go wrong.
const ASKS_EVERY: Duration = Duration::from_secs(1);
/// By so much the kernel's figure grows in that time while nobody keeps the clock: 500 parts per million.
const GROWS: Duration = Duration::from_micros(500);

impl Uncertainty {
    /// What the kernel says where its clock is synchronised, else [`ASSUMED`].
    pub fn of_this_machine() -> Self {
        Self::of(ASSUMED, true)
    }

    /// At least this, whatever the kernel says.
    pub fn assumed(at_least: Duration) -> Self {
        Self::of(at_least, false)
    }

    fn of(assumed: Duration, asks_kernel: bool) -> Self {
        let never = || AtomicU64::new(NEVER);
        let (proven, kernel_at, kernel_says) = (Mutex::default(), never(), never());
        Self(Arc::new(Known { assumed, asks_kernel, proven, kernel_at, kernel_says }))
    }

    /// The figure now.
    pub fn get(&self) -> Duration {
        let kernel = if self.0.asks_kernel { self.0.kernel(clock::now(), kernel_error) } else { None };
        let proven = *self.0.proven.lock().unwrap_or_else(PoisonError::into_inner);
        uncertainty(kernel, self.0.assumed, proven.map(|proven| proven.by_now(clock::wall(), steady())))
    }

    /// Asks the broker's clock, within `within`, and keeps what that proves of ours. Returns the figure afterwards. A broker
    /// that has no clock, or does not answer, changes nothing.
    ///
    /// # Cancel safety
    /// Dropped, nothing was learnt.
    pub async fn measure<B: Broker>(&self, broker: &B, within: Duration) -> Duration {
        let asked = clock::wall();
        if let Ok(Ok(Some(theirs))) = tokio::time::timeout(within, broker.clock()).await {
            let (wall, at) = (clock::wall(), steady());
            let proven = Proven { by: measured(asked, wall, theirs), wall, at };
            *self.0.proven.lock().unwrap_or_else(PoisonError::into_inner) = Some(proven);
        }
        let now = self.get();
        if now > WORRYING {
            tracing::warn!(
                queue = %broker.name(), uncertainty = ?now,
                "this machine's clock is not known to better than that: work may wait that long around its expiry; synchronise it"
            );
        }
        now
    }
}

// === Proven ===

impl Proven {
    /// The same now: a clock that was stepped since may be wrong by that much more.
    fn by_now(&self, wall: Wall, at: Instant) -> Duration {
        self.by + stepped(self.wall, wall, at.saturating_duration_since(self.at))
    }
}

// === Known ===

impl Known {
    /// What the kernel says, or said a moment ago.
    fn kernel(&self, now: Tick, ask: impl FnOnce() -> Option<Duration>) -> Option<Duration> {
        let at = self.kernel_at.load(Ordering::Acquire);
        if at != NEVER && now.since(Tick::from_nanos(at)) < ASKS_EVERY {
            return known(self.kernel_says.load(Ordering::Relaxed));
        }
        let says = ask().map(|error| error + GROWS);
        self.kernel_says.store(says.map_or(NEVER, nanos), Ordering::Relaxed);
        self.kernel_at.store(now.as_nanos(), Ordering::Release);
        says
    }
}

#[allow(clippy::disallowed_methods, reason = "measured against the wall clock, which no test pauses")]
fn steady() -> Instant {
    Instant::now()
}

fn known(stored: u64) -> Option<Duration> {
    (stored != NEVER).then(|| Duration::from_nanos(stored))
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(NEVER - 1)
}

/// What the kernel says where something keeps its clock synchronised.
fn kernel_error() -> Option<Duration> {
    oneclock_kernel_clock::max_error().ok().filter(|error| *error < oneclock_kernel_clock::LOST)
}

impl Default for Uncertainty {
    fn default() -> Self {
        Self::of_this_machine()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_stepped_is_not_as_good_as_it_was_proven() {
        let (wall, at) = (Wall::from_nanos(1_000_000_000_000), steady());
        let proven = Proven { by: Duration::from_millis(3), wall, at };
        let minute = Duration::from_secs(60);
        let slewed = wall + minute + Duration::from_millis(2);
        assert_eq!(proven.by_now(slewed, at + minute), Duration::from_millis(5));
        assert_eq!(proven.by_now(wall, at + minute), Duration::from_millis(60_003), "set back by a minute");
    }

    #[test]
    fn the_kernel_is_asked_once_a_second_and_what_it_said_covers_that_time() {
        let Uncertainty(known) = Uncertainty::of_this_machine();
        let ms = |ms: u64| Tick::from_nanos(ms * 1_000_000);
        let says = |micros| move || Some(Duration::from_micros(micros));
        assert_eq!(known.kernel(ms(0), says(1_000)), Some(Duration::from_micros(1_500)));
        assert_eq!(known.kernel(ms(999), || panic!("it was asked a moment ago")), Some(Duration::from_micros(1_500)));
        assert_eq!(known.kernel(ms(1_000), || None), None, "nobody keeps the clock any more");
        assert_eq!(known.kernel(ms(1_500), || panic!("it was asked a moment ago")), None);
        assert_eq!(known.kernel(ms(2_000), says(2_000)), Some(Duration::from_micros(2_500)));
    }
}
