//! A broker's own time to live.
//!
//! Decides whether one is set and how long (contract Q2): as garbage collection only, long after the contract's own end, never
//! for work that must be completed, never what the broker would refuse. It says nothing about the contract: it is relative,
//! brokers strip it from dead letters, a redrive resets it, and what it removes nobody counts.

use std::time::Duration;

use super::{Expires, Policy, Stamp};
use crate::wire::Wall;

/// What a broker takes as a time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeTtl {
    /// It counts in these.
    pub unit: Duration,
    /// The least that it takes.
    pub least: Duration,
    /// The most that it takes.
    pub most: Duration,
    /// Whether what it removes goes where somebody can look at it. Where it does not, only what may be discarded gets one.
    pub dead_letters: bool,
}

/// The time to live of work that is published at `now`, so that it is gone `slack` after its expiry. `None`: it gets none.
///
/// ```
/// # use oneclock_core::{expiry::*, wire::Wall}; use std::time::Duration;
/// # const fn secs(n: u64) -> Duration { Duration::from_secs(n) }
/// let nats = NativeTtl { unit: secs(1), least: secs(1), most: secs(1 << 30), dead_letters: false };
/// let now = Wall::from_nanos(1_000_000_000_000);
/// let stamp = |policy| Stamp { expires: Expires::At(now + Duration::from_millis(1_500)), policy, ..Stamp::default() };
/// assert_eq!(native_ttl(&stamp(Policy::Discard), now, secs(60), nats), Some(secs(62)));
/// assert_eq!(native_ttl(&stamp(Policy::DeadLetter), now, secs(60), nats), None);
/// assert_eq!(native_ttl(&stamp(Policy::MustComplete), now, secs(60), nats), None);
/// ```
pub fn native_ttl(stamp: &Stamp, now: Wall, slack: Duration, broker: NativeTtl) -> Option<Duration> {
    let may = match stamp.policy {
        Policy::Discard => true,
        Policy::DeadLetter => broker.dead_letters,
        Policy::MustComplete => false,
    };
    let Expires::At(at) = stamp.expires else { return None };
    if !may || broker.unit.is_zero() {
        return None;
    }
    let span = at.since(now).saturating_add(slack).saturating_add(stamp.uncertainty);
    let units = span.as_nanos().div_ceil(broker.unit.as_nanos()); // up: it never comes before the contract's own end
    let rounded = u32::try_from(units).ok().and_then(|units| broker.unit.checked_mul(units))?;
    (broker.least..=broker.most).contains(&rounded).then_some(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn q2_it_is_whole_in_bounds_and_never_before_the_end(
            left in 0_u64..10_000_000, slack in 0_u64..100_000, policy in 0_usize..3, unit in 1_u64..2_000, dead_letters: bool,
        ) {
            let ms = Duration::from_millis;
            let now = Wall::from_nanos(1_000_000_000_000_000_000);
            let broker = NativeTtl { unit: ms(unit), least: ms(1_000), most: ms(5_000_000), dead_letters };
            let stamp = Stamp { expires: Expires::At(now + ms(left)), policy: Policy::ALL[policy], ..Stamp::default() };
            if let Some(ttl) = native_ttl(&stamp, now, ms(slack), broker) {
                prop_assert!(stamp.policy != Policy::MustComplete && (dead_letters || stamp.policy == Policy::Discard));
                prop_assert!(ttl >= broker.least && ttl <= broker.most);
                prop_assert_eq!(ttl.as_nanos() % broker.unit.as_nanos(), 0);
                prop_assert!(ttl >= ms(left + slack));
            }
        }
    }
}
