//! A store in memory: for tests, and for a single process that may forget.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oneclock::clock;
use oneclock_core::idempotency::{
    Claim, Claiming, Enqueue, Enqueued, Enqueueing, Fence, Record, Scope, State, Stepped, claim, enqueue,
};
use oneclock_core::wire::Wall;

use crate::Changes;
use crate::store::{Found, Kept, Settle, Settled, Store, StoreError, Which};

/// Keeps records in this process. **Not durable**: after a restart every key is a new one, and what was done is done again.
///
/// Right for tests, and where a duplicate after a crash does no harm. Cheap to clone; all clones are the same store.
///
/// It has no bound on how much it keeps: every key stays, with its answer, until its retention is over and somebody
/// [reaps](Store::reap) it, so it grows with the rate of keys times the retention.
#[derive(Clone)]
pub struct MemoryStore(Arc<Shared>);

struct Shared {
    records: Mutex<Records>,
    changes: Changes,
    clock: Box<dyn Fn() -> Wall + Send + Sync>,
}

#[derive(Default)]
struct Records {
    kept: BTreeMap<Scope, Kept>,
    floor: Fence,
}

// === MemoryStore ===

impl MemoryStore {
    /// An empty store on the wall clock.
    pub fn new() -> Self {
        Self::with_clock(clock::wall)
    }

    /// An empty store on a clock of one's own, for tests that let leases lapse.
    pub fn with_clock(clock: impl Fn() -> Wall + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { records: Mutex::default(), changes: Changes::default(), clock: Box::new(clock) }))
    }

    /// How many records it keeps.
    pub fn len(&self) -> usize {
        self.records().kept.len()
    }

    /// Whether it keeps none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Wall {
        (self.0.clock)()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    async fn claim(&self, scope: &Scope, asked: &Claim) -> Result<Found, StoreError> {
        let now = self.now(); // before the lock: whoever brings a clock may read the store in it
        let mut records = self.records();
        let found = records.kept.get(scope);
        let Claiming { write, claimed } = claim(found.map(|kept| &kept.record), records.floor, asked, now);
        let answer = match write {
            // Nothing that a claim writes is completed.
            Some(record) => {
                records.kept.insert(scope.clone(), Kept { record, answer: None });
                self.0.changes.changed(scope);
                None
            }
            None => found.and_then(|kept| kept.answer.clone()),
        };
        Ok(Found { claimed, answer })
    }

    async fn enqueue(&self, scope: &Scope, ask: &Enqueue) -> Result<Enqueued, StoreError> {
        let now = self.now();
        let mut records = self.records();
        let found = records.kept.get(scope).map(|kept| &kept.record);
        let Enqueueing { write, enqueued } = enqueue(found, records.floor, ask, now);
        if let Some(record) = write {
            records.kept.insert(scope.clone(), Kept { record, answer: None });
            self.0.changes.changed(scope);
        }
        Ok(enqueued)
    }

    async fn settle(&self, scope: &Scope, fence: Fence, settle: Settle) -> Result<Settled, StoreError> {
        let now = self.now();
        let mut records = self.records();
        let Some(kept) = records.kept.get_mut(scope) else { return Ok(Settled::Absent) };
        let stepped = kept.record.step(fence, settle.step(), now);
        if let Stepped::Done(record) = stepped {
            *kept = Kept { record, answer: settle.answer().cloned() };
            self.0.changes.changed(scope);
        }
        Ok(stepped.into())
    }

    async fn read(&self, scope: &Scope) -> Result<Option<Kept>, StoreError> {
        let now = self.now();
        let kept = self.records().kept.get(scope).cloned();
        Ok(kept.map(|kept| Kept { record: kept.record.at(now), ..kept }))
    }

    async fn list(
        &self,
        which: Which,
        after: Option<&Scope>,
        limit: usize,
    ) -> Result<Vec<(Scope, Record)>, StoreError> {
        let now = self.now();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let records = self.records();
        let all = records.kept.range((from, Bound::Unbounded)).map(|(scope, kept)| (scope, kept.record.at(now)));
        let asked = all.filter(|(_, record)| which == Which::All || matches!(record.state, State::Unknown(_)));
        Ok(asked.take(limit).map(|(scope, record)| (scope.clone(), record)).collect())
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        let now = self.now();
        let mut records = self.records();
        let old = records.kept.iter().filter(|(_, kept)| kept.record.may_be_reaped(now));
        let old: Vec<Scope> = old.take(limit).map(|(scope, _)| scope.clone()).collect();
        for scope in &old {
            if let Some(kept) = records.kept.remove(scope) {
                records.floor = records.floor.max(kept.record.fence);
            }
        }
        Ok(old.len())
    }

    fn changes(&self) -> Option<&Changes> {
        Some(&self.0.changes)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("records", &self.len()).finish_non_exhaustive()
    }
}

impl From<Stepped> for Settled {
    fn from(stepped: Stepped) -> Self {
        match stepped {
            Stepped::Done(_) => Self::Done,
            Stepped::Already => Self::Already,
            Stepped::Fenced { current } => Self::Fenced { current },
            Stepped::Settled(state) => Self::Otherwise(state),
        }
    }
}
