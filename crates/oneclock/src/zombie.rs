//! Work that runs now although nobody waits for it any more.
//!
//! Decides what counts as one (invariant I14): work under a [`MayRunOn`] guard whose operation is over, asked at the moment
//! somebody wants to know; nothing has to happen when an operation ends. What such work took is told by
//! [`Event::RanOn`](crate::events::Event::RanOn) once it is over.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::events::RanOn;
use crate::operation::Inner;
use crate::{Operation, clock};

/// Held by work that may go on after its operation has ended. For drivers: [`must_finish`](Operation::must_finish) and
/// [`spawn_blocking`](Operation::spawn_blocking) hold their own.
///
/// ```
/// # use oneclock::{MayRunOn, Operation, events::RanOn, zombies}; use std::time::Duration;
/// let op = Operation::begin("report", Duration::from_secs(1));
/// let running = MayRunOn::new(&op, RanOn::Statement);
/// assert_eq!(zombies().statements, 0); // somebody waits for it
/// op.call_off();
/// assert_eq!(zombies().statements, 1);
/// drop(running);
/// assert_eq!(zombies().statements, 0);
/// ```
#[must_use = "the work counts until this is dropped"]
#[derive(Debug)]
pub struct MayRunOn(u64);

/// How much work of this process runs now although its operation is over, by what keeps it going.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Zombies {
    /// Steps that must finish.
    pub must_finish: usize,
    /// Blocking closures that have not reached their next checkpoint.
    pub blocking: usize,
    /// Statements that their cancel has not ended yet.
    pub statements: usize,
}

/// How much work of this process runs now although its operation is over. For gauges and readiness: it looks at every guard
/// there is, so ask it some times a second, not for each request.
pub fn zombies() -> Zombies {
    let watched: Vec<_> = watched().values().map(|(operation, because)| (Weak::clone(operation), *because)).collect();
    let now = clock::now();
    let mut zombies = Zombies::default();
    for (operation, because) in watched {
        // Gone is over, too. Upgraded without the lock: the last one to go runs hooks.
        if let Some(inner) = operation.upgrade()
            && Operation(inner).over_since(now).is_none()
        {
            continue;
        }
        match because {
            RanOn::MustFinish => zombies.must_finish += 1,
            RanOn::Blocking => zombies.blocking += 1,
            RanOn::Statement => zombies.statements += 1,
        }
    }
    zombies
}

static NEXT: AtomicU64 = AtomicU64::new(0);
static WATCHED: Mutex<BTreeMap<u64, (Weak<Inner>, RanOn)>> = Mutex::new(BTreeMap::new());

fn watched() -> MutexGuard<'static, BTreeMap<u64, (Weak<Inner>, RanOn)>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

// === MayRunOn ===

impl MayRunOn {
    /// Work for `operation` is running, kept going by `because`.
    pub fn new(operation: &Operation, because: RanOn) -> Self {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        watched().insert(id, (Arc::downgrade(&operation.0), because));
        Self(id)
    }
}

impl Drop for MayRunOn {
    fn drop(&mut self) {
        watched().remove(&self.0);
    }
}

// === Zombies ===

impl Zombies {
    /// All of them.
    pub const fn total(self) -> usize {
        self.must_finish + self.blocking + self.statements
    }
}
