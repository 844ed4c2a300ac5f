//! Durable work: until when it may begin to matter, and what becomes of it after that.
//!
//! Decides, for work that outlives the request that asked for it: in which [`Zone`] it is by a clock that is only known to
//! within an [uncertainty], what its contract says then ([`Policy`]), what a message says of itself ([`Reader`]),
//! what a consumer does with it when it arrives ([`judge`]), before each effect ([`Gate`]) and after its handler ([`end`]),
//! who may still acknowledge it ([`Lease`]), and what may be put back ([`redrive`]). Contract section 11, Q1 to Q6.
//!
//! An expiry is not a deadline: it is an absolute moment of the wall clock, it survives crashes, redelivery and redrives
//! unchanged, and nothing that arrives makes it later. Nothing here reads a clock.
//!
//! ```
//! use std::time::Duration;
//! use oneclock_core::expiry::*;
//! use oneclock_core::wire::Wall;
//!
//! let secs = |n: u64| Wall::from_nanos(n * 1_000_000_000);
//! let half = Duration::from_millis(500);
//! assert_eq!(zone(secs(1_000), secs(990), half), Zone::Live);
//! assert_eq!(zone(secs(1_000), secs(1_000), half), Zone::Uncertain); // nothing is discarded, nothing irreversible begins
//! assert_eq!(zone(secs(1_000), secs(1_001), half), Zone::Expired);
//! ```

mod accept;
mod end;
mod judge;
mod lease;
pub mod names;
mod native;
mod policy;
mod reader;
mod redrive;
mod stamp;

use std::fmt;
use std::time::Duration;

use crate::wire::Wall;

pub use accept::{NotAccepted, accept};
pub use end::{Attempts, End, Handled, end, may_run};
pub use judge::{Gate, Judged, Stop, Terms, Why, judge};
pub use lease::Lease;
pub use native::{NativeTtl, native_ttl};
pub use policy::Policy;
pub use reader::{Fault, Reader, Reading};
pub use redrive::{NotRedriven, redrive};
pub use stamp::{Expires, Stamp, Unreadable};

/// The uncertainty of a clock of which nothing is known (contract Q4).
pub const ASSUMED: Duration = Duration::from_millis(500);

/// No clock is believed to be better than this, whatever its kernel says: reading it and acting on it takes time too.
pub const LEAST: Duration = Duration::from_millis(10);

/// Above this a clock is a fault to be mended, not a property to be lived with.
pub const WORRYING: Duration = Duration::from_secs(5);

/// How an expiry stands by a clock that is only known to within an uncertainty (contract Q4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Zone {
    /// Certainly not expired.
    Live,
    /// Perhaps. Nothing is discarded, and nothing irreversible begins.
    Uncertain,
    /// Certainly expired.
    Expired,
}

/// In which zone `expires` is when the clock says `now` and may be wrong by `uncertainty` either way.
pub fn zone(expires: Wall, now: Wall, uncertainty: Duration) -> Zone {
    if now + uncertainty < expires {
        Zone::Live
    } else if expires + uncertainty < now {
        Zone::Expired
    } else {
        Zone::Uncertain
    }
}

/// By how much a clock may be wrong (contract Q4): what its kernel says where that is synchronised, else what is assumed; and
/// never less than what was measured against a clock that producers and consumers share, such as the broker's.
///
/// ```
/// # use oneclock_core::expiry::*; use std::time::Duration;
/// # const fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// assert_eq!(uncertainty(None, ASSUMED, None), ms(500));
/// assert_eq!(uncertainty(Some(ms(40)), ASSUMED, None), ms(40));
/// assert_eq!(uncertainty(Some(ms(1)), ASSUMED, None), LEAST);
/// assert_eq!(uncertainty(Some(ms(40)), ASSUMED, Some(ms(2_010))), ms(2_010)); // synchronised, and wrong all the same
/// ```
pub fn uncertainty(kernel: Option<Duration>, assumed: Duration, measured: Option<Duration>) -> Duration {
    kernel.unwrap_or(assumed).max(measured.unwrap_or_default()).max(LEAST)
}

/// What a reading of a shared clock proves of ours: it said `theirs` at some moment between `asked` and `answered` of ours, so
/// ours is off by at most this.
///
/// ```
/// # use oneclock_core::{expiry::measured, wire::Wall}; use std::time::Duration;
/// let ms = |n: u64| Wall::from_nanos(n * 1_000_000);
/// assert_eq!(measured(ms(1_000), ms(1_004), ms(1_002)), Duration::from_millis(2));
/// assert_eq!(measured(ms(3_000), ms(3_004), ms(1_002)), Duration::from_millis(2_002));
/// ```
pub fn measured(asked: Wall, answered: Wall, theirs: Wall) -> Duration {
    let ahead = answered.since(theirs); // if they answered at once
    let behind = theirs.since(asked); // if the answer took no time
    ahead.max(behind)
}

/// By how much a wall clock was stepped between two readings of it, when one that is never stepped (contract K2) says that `passed`
/// went by: what was [measured] before may be wrong by that much more.
///
/// ```
/// # use oneclock_core::{expiry::stepped, wire::Wall}; use std::time::Duration;
/// let s = |n: u64| Wall::from_nanos(n * 1_000_000_000);
/// let ten = Duration::from_secs(10);
/// assert_eq!(stepped(s(100), s(110), ten), Duration::ZERO);
/// assert_eq!(stepped(s(100), s(140), ten), Duration::from_secs(30)); // forwards
/// assert_eq!(stepped(s(100), s(80), ten), Duration::from_secs(30)); // backwards
/// ```
pub fn stepped(first: Wall, then: Wall, passed: Duration) -> Duration {
    let should = first + passed;
    then.since(should).max(should.since(then))
}

// === Zone ===

impl Zone {
    /// The word for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Uncertain => "uncertain",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever two clocks say that are each right to within their uncertainty: what one calls expired the other never
        /// calls live.
        #[test]
        fn q4_two_clocks_within_their_uncertainties_never_contradict_each_other(
            truth in 1_000_000_u64..2_000_000, expires in 1_000_000_u64..2_000_000,
            (a, ea) in (0_u64..50_000, 0_u64..50_000), (b, eb) in (0_u64..50_000, 0_u64..50_000),
        ) {
            let wall = |micros: u64| Wall::from_nanos(micros * 1_000);
            let micros = Duration::from_micros;
            let (a, b) = (a.min(ea), b.min(eb));
            let (mine, yours) = (wall(truth + a), wall(truth - b));
            let said = (zone(wall(expires), mine, micros(ea)), zone(wall(expires), yours, micros(eb)));
            let contradicts = matches!(said, (Zone::Expired, Zone::Live) | (Zone::Live, Zone::Expired));
            prop_assert!(!contradicts, "{said:?}");
        }

        #[test]
        fn time_passes_from_live_over_uncertain_to_expired(
            expires in 0_u64..5_000, now in 0_u64..5_000, later in 0_u64..5_000, off in 0_u64..2_000,
        ) {
            let order = |zone| match zone { Zone::Live => 0, Zone::Uncertain => 1, Zone::Expired => 2 };
            let at = |millis: u64| zone(Wall::from_nanos(expires * 1_000_000), Wall::from_nanos(millis * 1_000_000), Duration::from_millis(off));
            prop_assert!(order(at(now)) <= order(at(now + later)));
        }

        #[test]
        fn a_reading_of_a_shared_clock_bounds_what_ours_is_off_by(
            truth in 10_000_000_u64..20_000_000, off in -5_000_000_i64..5_000_000, there in 0_u64..100_000, back in 0_u64..100_000,
        ) {
            let ours = |micros: u64| Wall::from_nanos(micros.checked_add_signed(off).unwrap() * 1_000);
            let proved = measured(ours(truth), ours(truth + there + back), Wall::from_nanos((truth + there) * 1_000));
            prop_assert!(proved >= Duration::from_micros(off.unsigned_abs()), "{proved:?}");
        }
    }
}
