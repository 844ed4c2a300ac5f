//! Whether a dead letter may be put back.
//!
//! Decides that a redrive makes nothing fresh again (contract Q1): the expiry is copied, what has expired would only come back,
//! and work that must be completed needs somebody who answers for it.

use std::time::Duration;

use super::{Policy, Stamp, Why, Zone};
use crate::wire::Wall;

/// A dead letter is not put back. It stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NotRedriven {
    /// It has expired, or may have: its consumer would only put it here again.
    #[error("it has expired, or may have, and its policy is {0}: put back it would only come here again")]
    Expired(Policy),
    /// Nobody answers for it.
    #[error("it must be completed and nobody answers for it: name an owner")]
    OwnerMissing,
    /// When it expires cannot be understood.
    #[error("when it expires cannot be understood: put back it would only come here again")]
    Unreadable,
    /// Whether it was done is not known.
    #[error("it may have been done: find out first, then say that it was not")]
    OutcomeUnknown,
    /// It is as large as its broker takes.
    #[error("it is as large as the broker takes: there is no room for what is written on one that was put back")]
    TooLarge,
}

/// The stamp under which a dead letter is put back at `now`: the same, with one redrive more, and with `owner` if it has none.
///
/// `because` is why it is a dead letter. One of which nobody knows what it did is put back only if whoever asks is `sure` that it
/// did nothing, or if its work stands under a key.
///
/// # Errors
/// [`NotRedriven`].
///
/// ```
/// # use oneclock_core::{expiry::*, wire::Wall}; use std::time::Duration;
/// let now = Wall::from_nanos(1_700_000_000_000_000_000);
/// let stamp = Stamp { expires: Expires::At(now + Duration::from_secs(60)), ..Stamp::default() };
/// let again = redrive(&stamp, Some(Why::AttemptsExhausted), None, false, now, ASSUMED)?;
/// assert_eq!((again.expires, again.redrives), (stamp.expires, 1));
/// let late = redrive(&stamp, Some(Why::AttemptsExhausted), None, false, now + Duration::from_secs(61), ASSUMED);
/// assert!(late.is_err());
/// # Ok::<(), NotRedriven>(())
/// ```
pub fn redrive(
    stamp: &Stamp,
    because: Option<Why>,
    owner: Option<&str>,
    sure: bool,
    now: Wall,
    ours: Duration,
) -> Result<Stamp, NotRedriven> {
    let owner = stamp.owner.clone().or_else(|| owner.map(Into::into));
    match (stamp.policy, stamp.zone(now, ours)) {
        (Policy::MustComplete, _) if owner.is_none() => return Err(NotRedriven::OwnerMissing),
        (Policy::MustComplete, _) | (_, Zone::Live) => {}
        (_, Zone::Uncertain) if stamp.expires.at().is_none() => return Err(NotRedriven::Unreadable),
        (policy, Zone::Uncertain | Zone::Expired) => return Err(NotRedriven::Expired(policy)),
    }
    if because == Some(Why::OutcomeUnknown) && !sure {
        return Err(NotRedriven::OutcomeUnknown);
    }
    Ok(Stamp { owner, redrives: stamp.redrives.saturating_add(1), ..stamp.clone() })
}

// === NotRedriven ===

impl NotRedriven {
    /// The word for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired(_) => "expired",
            Self::OwnerMissing => "owner_missing",
            Self::Unreadable => "expiry_unreadable",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::TooLarge => "too_large",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ASSUMED, Expires};
    use super::*;

    #[test]
    fn q1_twice_redriven_the_expiry_is_the_same() {
        let now = Wall::from_nanos(1_700_000_000_000_000_000);
        let stamp =
            Stamp { expires: Expires::At(now + Duration::from_secs(60)), owner: Some("a".into()), ..Stamp::default() };
        let once = redrive(&stamp, None, Some("b"), false, now, ASSUMED).unwrap();
        let twice = redrive(&once, None, Some("b"), false, now, ASSUMED).unwrap();
        assert_eq!(twice, Stamp { redrives: 2, ..stamp });
    }

    #[test]
    fn what_must_be_completed_needs_an_owner_and_comes_back_however_late() {
        let now = Wall::from_nanos(1_700_000_000_000_000_000);
        let stamp = Stamp { expires: Expires::At(now), policy: Policy::MustComplete, ..Stamp::default() };
        let late = now + Duration::from_secs(86_400);
        assert_eq!(redrive(&stamp, None, None, true, late, ASSUMED), Err(NotRedriven::OwnerMissing));
        assert_eq!(
            redrive(&stamp, None, Some("payments"), false, late, ASSUMED).unwrap().owner.as_deref(),
            Some("payments")
        );
    }

    #[test]
    fn an_unknown_outcome_is_not_put_back_by_itself() {
        let stamp = Stamp::default();
        let back = |sure| redrive(&stamp, Some(Why::OutcomeUnknown), None, sure, Wall::from_nanos(1), ASSUMED);
        assert_eq!(back(false), Err(NotRedriven::OutcomeUnknown));
        assert!(back(true).is_ok());
    }
}
