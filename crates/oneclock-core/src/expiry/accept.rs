//! Whether work may be put into a queue as it is stamped.
//!
//! Decides what is refused before it is published (contract Q3, Q6): a live deadline that was copied onto durable work, work that
//! has expired before anybody could do it, and work that must be completed without anybody who answers for it.

use std::time::Duration;

use super::{Expires, Policy, Stamp, Unreadable, Zone};
use crate::ending::ABOUT_NOW;
use crate::time::Legible;
use crate::wire::Wall;

/// Work was not accepted. Nothing was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAccepted {
    /// It would expire no later than the caller stops waiting.
    #[error(
        "the work would expire in {}, no later than its caller stops waiting ({} from now): a caller's deadline is no expiry; \
         say how long the work itself is of use, or do it within the request",
        Legible(*.lifetime), Legible(*.live)
    )]
    LiveDeadline {
        /// How long it would live.
        lifetime: Duration,
        /// What its caller has left.
        live: Duration,
    },
    /// It has expired, or may have.
    #[error("the work has expired, or may have by a clock that is off by up to {}: nothing was published", Legible(*.uncertainty))]
    Expired {
        /// By how much our clock and its producer's may be wrong together.
        uncertainty: Duration,
    },
    /// It has to be completed, and nobody answers for it.
    #[error("work that must be completed needs an owner: whoever is told when it is late")]
    OwnerMissing,
    /// When it expires cannot be understood.
    #[error("when the work expires cannot be understood: {0}")]
    Unreadable(Unreadable),
}

/// Whether work may be published at `now`. `live` is what the operation that asks for it has left, if there is one.
///
/// # Errors
/// [`NotAccepted`].
///
/// ```
/// # use oneclock_core::{expiry::*, wire::Wall}; use std::time::Duration;
/// # const fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// let now = Wall::from_nanos(1_700_000_000_000_000_000);
/// let stamp = |life| Stamp { expires: Expires::At(now + life), ..Stamp::default() };
/// assert!(accept(&stamp(ms(86_400_000)), now, ASSUMED, Some(ms(800))).is_ok());
/// assert!(matches!(accept(&stamp(ms(800)), now, ASSUMED, Some(ms(800))), Err(NotAccepted::LiveDeadline { .. })));
/// ```
pub fn accept(stamp: &Stamp, now: Wall, ours: Duration, live: Option<Duration>) -> Result<(), NotAccepted> {
    if stamp.policy == Policy::MustComplete && stamp.owner.is_none() {
        return Err(NotAccepted::OwnerMissing);
    }
    let at = match stamp.expires {
        Expires::Never => return Ok(()),
        Expires::Unreadable(why) => return Err(NotAccepted::Unreadable(why)),
        Expires::At(at) => at,
    };
    let lifetime = at.since(now);
    if let Some(live) = live.filter(|live| lifetime <= *live + ABOUT_NOW) {
        return Err(NotAccepted::LiveDeadline { lifetime, live });
    }
    match (stamp.policy, stamp.zone(now, ours)) {
        (Policy::MustComplete, _) | (_, Zone::Live) => Ok(()),
        (_, Zone::Uncertain | Zone::Expired) => Err(NotAccepted::Expired { uncertainty: stamp.uncertainty(ours) }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ASSUMED;
    use super::*;

    #[test]
    fn q3_what_would_be_dead_on_arrival_is_not_published() {
        let now = Wall::from_nanos(1_700_000_000_000_000_000);
        let stamp = |millis, policy| Stamp {
            expires: Expires::At(now + Duration::from_millis(millis)),
            policy,
            ..Stamp::default()
        };
        assert!(matches!(accept(&stamp(400, Policy::Discard), now, ASSUMED, None), Err(NotAccepted::Expired { .. })));
        assert_eq!(accept(&stamp(400, Policy::MustComplete), now, ASSUMED, None), Err(NotAccepted::OwnerMissing));
        let owned = Stamp { owner: Some("payments".into()), ..stamp(400, Policy::MustComplete) };
        assert_eq!(accept(&owned, now, ASSUMED, None), Ok(()));
        assert_eq!(accept(&Stamp::default(), now, ASSUMED, Some(Duration::from_secs(1))), Ok(()), "what never expires");
    }

    #[test]
    fn the_refusal_says_what_to_do() {
        let error =
            NotAccepted::LiveDeadline { lifetime: Duration::from_millis(800), live: Duration::from_millis(800) };
        assert_eq!(
            error.to_string(),
            "the work would expire in 800ms, no later than its caller stops waiting (800ms from now): a caller's deadline is no \
             expiry; say how long the work itself is of use, or do it within the request"
        );
    }
}
