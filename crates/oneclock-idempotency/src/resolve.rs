//! What a person does with a store: find records, and settle one of which nobody else can find out.
//!
//! Decides that only what is unknown is settled by hand, under the fence that was looked at: a run in progress will say
//! itself what became of it, and what is settled stays so.

use std::time::Duration;

use oneclock_core::Name;
use oneclock_core::idempotency::{Fence, Key, Record, Scope, State};
use oneclock_core::wire::Wall;

use crate::Answer;
use crate::store::{Settle, Settled, Store, StoreError, Which};

/// Which records to [`find`]: all that agree with every part that is given.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// All, or only the unknown ones.
    pub which: Which,
    /// Of this key.
    pub key: Option<Key>,
    /// Of this principal.
    pub principal: Option<String>,
    /// Of this method.
    pub method: Option<Name>,
    /// Of this route.
    pub route: Option<Name>,
}

/// What is known now of a run that nobody knew about.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Resolution {
    /// It was done. Later requests with the key get this answer.
    Completed(Answer),
    /// Nothing happened, **and cannot happen any more**. The next request with the key runs.
    Failed,
}

/// A record that was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved {
    /// As it stood.
    pub before: Record,
    /// How it stands now.
    pub after: State,
}

/// It was not resolved. Nothing was written, unless the store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotResolved {
    /// There is no such record.
    #[error("there is no such record")]
    Absent,
    /// A run is under way, and will say itself what became of it.
    #[error("a run is under way under a lease of {lease_left:?} more: it will say itself what became of it")]
    InProgress {
        /// What is left of its lease, as the record says it; by this machine's clock.
        lease_left: Duration,
    },
    /// It is queued: nobody has begun, so there is nothing to find out.
    #[error("it is queued, and nobody has begun: there is nothing to find out")]
    Queued,
    /// It is settled.
    #[error("it is {} already, and stays so", .0.as_str())]
    Settled(State),
    /// It is at another run than the one that was looked at.
    #[error("it is at run {current} by now, and not at run {expected}: look again")]
    Fenced {
        /// The run that was looked at.
        expected: Fence,
        /// The last one.
        current: Fence,
    },
    /// The store failed.
    #[error("the store did not take it")]
    Store(#[from] StoreError),
}

/// How many records are asked for at a time.
const PAGE: usize = 500;

/// The records that are wanted, in the order of their scopes, at most `limit`.
///
/// Goes through the store page by page, so that without `Which::Unknown` it takes a while where there are millions; to look
/// at one whose scope is known, [`Store::read`] is enough.
///
/// # Errors
/// [`StoreError`].
///
/// # Cancel safety
/// Reads only.
pub async fn find<St: Store>(store: &St, wanted: &Wanted, limit: usize) -> Result<Vec<(Scope, Record)>, StoreError> {
    let mut found = Vec::new();
    let mut after: Option<Scope> = None;
    while found.len() < limit {
        let page = store.list(wanted.which, after.as_ref(), PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map(|(scope, _)| scope.clone());
        found.extend(page.into_iter().filter(|(scope, _)| wanted.is(scope)));
        if is_last {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// Settles a record that is unknown, also one whose lease has lapsed, in a compare-and-set on its fence (contract M3, M5).
///
/// With `expected` it must be at that run, which is what somebody looked at before deciding; without, at whichever it is.
///
/// ```
/// # use oneclock_idempotency::*; use oneclock_core::idempotency::*; use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = MemoryStore::new();
/// # let scope = Scope { principal: "shop-7".into(), method: "POST".into(), route: "/charges".into(), key: Key::new("tap-7")? };
/// # let claim = Claim { fingerprint: Fingerprint([7; 32]), owner: Owner(1), made: None, lease: Duration::from_secs(30),
/// #     retention: Duration::from_secs(3600), takeover: Takeover::Never };
/// store.claim(&scope, &claim).await?;
/// let error = resolve(&store, &scope, None, Resolution::Failed).await.unwrap_err();
/// assert!(matches!(error, NotResolved::InProgress { .. }), "its run may still say so itself");
///
/// store.settle(&scope, Fence(1), Settle::Doubt(Doubt::CutOff)).await?;
/// let resolved = resolve(&store, &scope, Some(Fence(1)), Resolution::Failed).await?;
/// assert_eq!(resolved.after, State::FailedRetryable);
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`NotResolved`].
///
/// # Cancel safety
/// Dropped, it may have been resolved.
pub async fn resolve<St: Store>(
    store: &St,
    scope: &Scope,
    expected: Option<Fence>,
    resolution: Resolution,
) -> Result<Resolved, NotResolved> {
    let Some(kept) = store.read(scope).await? else { return Err(NotResolved::Absent) };
    let before = kept.record;
    if let Some(expected) = expected
        && expected != before.fence
    {
        return Err(NotResolved::Fenced { expected, current: before.fence });
    }
    match before.state {
        State::Unknown(_) => {}
        State::InProgress { lease_until } => {
            let now: Wall = oneclock::clock::wall();
            return Err(NotResolved::InProgress { lease_left: lease_until.since(now) });
        }
        State::Queued => return Err(NotResolved::Queued),
        settled => return Err(NotResolved::Settled(settled)),
    }
    let (settle, after) = match resolution {
        Resolution::Completed(answer) => (Settle::Complete(answer), State::Completed),
        Resolution::Failed => (Settle::Release, State::FailedRetryable),
    };
    match store.settle(scope, before.fence, settle).await? {
        Settled::Done | Settled::Already => Ok(Resolved { before, after }),
        Settled::Fenced { current } => Err(NotResolved::Fenced { expected: before.fence, current }),
        Settled::Otherwise(state) => Err(NotResolved::Settled(state)),
        Settled::Absent => Err(NotResolved::Absent),
    }
}

// === Wanted ===

impl Wanted {
    /// All of these.
    pub fn every(which: Which) -> Self {
        Self { which, key: None, principal: None, method: None, route: None }
    }

    fn is(&self, scope: &Scope) -> bool {
        self.key.as_ref().is_none_or(|key| *key == scope.key)
            && self.principal.as_ref().is_none_or(|principal| **principal == *scope.principal)
            && self.method.as_ref().is_none_or(|method| *method == scope.method)
            && self.route.as_ref().is_none_or(|route| *route == scope.route)
    }
}
