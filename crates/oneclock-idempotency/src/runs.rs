//! The runs of this process: who begins one, who joins it, and what all who wait are told.
//!
//! Decides that there is one run for a scope at a time in this process, and that its place is left whichever way it ends
//! (contract N1). Between processes the store decides.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock_core::Name;
use oneclock_core::idempotency::{Claimed, Doubt, Fingerprint, Scope};
use tokio::sync::watch;

use crate::Answer;
use crate::store::Found;

/// What a run came to, for all who wait for it.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// Its answer, kept: a replay for everybody but the one whose request ran.
    Kept(Arc<Answer>),
    /// An answer that nothing is kept for: nothing happened.
    Nothing(Arc<Answer>),
    /// It is not known what it did.
    Unknown(Doubt),
    /// Somebody else is at it, in another process or before a restart of this one.
    Elsewhere { lease_left: Duration },
    /// The key belongs to another request.
    OtherFingerprint,
    /// The key is older than records are kept.
    KeyTooOld,
    /// The key is from the future.
    KeyFromTheFuture,
    /// The store did not take the claim: nothing ran.
    StoreUnreachable,
    /// It ended before it could say anything: whoever still wants it may try itself.
    Gone,
}

/// The runs of this process, by what they are for.
#[derive(Debug, Default)]
pub(crate) struct Runs(Arc<Mutex<HashMap<Scope, Running>>>);

#[derive(Debug)]
struct Running {
    fingerprint: Fingerprint,
    claimed: Arc<AtomicBool>,
    told: watch::Receiver<Option<Told>>,
}

/// How a request stands to the runs of this process.
pub(crate) enum Joined {
    /// It waits for one.
    Waits(watch::Receiver<Option<Told>>),
    /// One with this key is at another request.
    OtherFingerprint,
    /// One with this key asks the store for another request. Whose the key is is not known yet.
    AnotherAsks,
    /// It begins one.
    Begins(Place, watch::Receiver<Option<Told>>),
}

/// A run's place among the runs. Leaves it when dropped, and tells whoever waits, whichever way it went.
#[derive(Debug)]
pub(crate) struct Place {
    runs: Arc<Mutex<HashMap<Scope, Running>>>,
    pub(crate) scope: Scope,
    pub(crate) called: Name, // in events: of a bounded set, which scopes are not
    told: watch::Sender<Option<Told>>,
    claimed: Arc<AtomicBool>,
}

// === Runs ===

impl Runs {
    /// Joins the run for `scope`, or begins one.
    pub(crate) fn join(&self, scope: &Scope, called: &Name, fingerprint: Fingerprint) -> Joined {
        match lock(&self.0).entry(scope.clone()) {
            Entry::Occupied(running) if running.get().fingerprint != fingerprint => {
                if running.get().claimed.load(Ordering::Acquire) {
                    Joined::OtherFingerprint
                } else {
                    Joined::AnotherAsks
                }
            }
            Entry::Occupied(running) => Joined::Waits(running.get().told.clone()),
            Entry::Vacant(vacant) => {
                let (sender, told) = watch::channel(None);
                let claimed = Arc::new(AtomicBool::new(false));
                vacant.insert(Running { fingerprint, claimed: Arc::clone(&claimed), told: told.clone() });
                let (scope, called) = (scope.clone(), called.clone());
                Joined::Begins(Place { runs: Arc::clone(&self.0), scope, called, told: sender, claimed }, told)
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

fn lock(runs: &Mutex<HashMap<Scope, Running>>) -> MutexGuard<'_, HashMap<Scope, Running>> {
    runs.lock().unwrap_or_else(PoisonError::into_inner)
}

// === Place ===

impl Place {
    pub(crate) fn tell(&self, told: Told) {
        self.told.send_replace(Some(told));
    }

    /// The store has given it the key.
    pub(crate) fn claimed(&self) {
        self.claimed.store(true, Ordering::Release);
    }

    /// Whether it has, for whoever waits for it.
    pub(crate) fn is_claimed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.claimed)
    }

    /// Whether nobody waits: the registry holds one receiver itself.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.told.receiver_count() <= 1
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.runs).remove(&self.scope);
        self.told.send_if_modified(|told| {
            let gone = told.is_none();
            told.get_or_insert(Told::Gone);
            gone
        });
    }
}

// === Told ===

impl From<Found> for Told {
    fn from(Found { claimed, answer }: Found) -> Self {
        match claimed {
            Claimed::Completed => match answer {
                Some(answer) => Self::Kept(Arc::new(answer)),
                None => Self::Unknown(Doubt::Failed), // a store that lost it
            },
            Claimed::InProgress { lease_left } => Self::Elsewhere { lease_left },
            Claimed::Unknown { doubt } => Self::Unknown(doubt),
            Claimed::OtherFingerprint => Self::OtherFingerprint,
            Claimed::KeyTooOld => Self::KeyTooOld,
            Claimed::KeyFromTheFuture => Self::KeyFromTheFuture,
            // Handled where it is claimed; and what this version does not know is not run.
            _ => Self::StoreUnreachable,
        }
    }
}
