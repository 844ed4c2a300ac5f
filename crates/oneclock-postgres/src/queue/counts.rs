//! How fast a queue is drained.
//!
//! Decides that nothing is counted in a row that others wait for: each process counts in memory what left the queue, by slots of
//! ten seconds of the server's clock, and adds that to rows of its own every few seconds. What came is not counted at all: it is
//! still there, with the moment when it came, or it is among those that left. So a publisher writes its job and nothing else, and
//! what is rolled back never counts. A process that dies takes the count of its last seconds with it.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oneclock::clock;
use oneclock_core::Tick;

use crate::error::PgError;
use crate::session::Session;

/// So many seconds since 1970 are a slot.
pub(super) const SLOT: i64 = 10;

/// Which ten seconds.
pub(super) type Slot = i64;

/// How many slots are kept: an hour.
const KEPT: Slot = 360;

/// How long a count waits for others.
const WAIT: Duration = Duration::from_secs(2);

/// What this process has counted and not written yet.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    slots: BTreeMap<Slot, Tally>,
    since: Option<Tick>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Left in this slot.
    gone: i64,
    /// Came in this slot, and left at some time.
    came: i64,
}

/// Counts on their way into the table. Dropped before they are there, they are pending again.
struct Flushing<'a> {
    counts: &'a Counts,
    slots: BTreeMap<Slot, Tally>,
}

/// The slot of a moment.
pub(super) fn slot(at: SystemTime) -> Slot {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Slot::try_from(since.as_secs()).unwrap_or(Slot::MAX) / SLOT
}

// === Counts ===

impl Counts {
    /// Counts jobs that left the main lane: the slot in which each came, and the one in which it went.
    pub(super) fn add(&self, left: &[(Slot, Slot)]) {
        if left.is_empty() {
            return;
        }
        let mut pending = self.pending();
        pending.since.get_or_insert_with(clock::now);
        for (came, gone) in left {
            pending.slots.entry(*gone).or_default().gone += 1;
            if gone - came < KEPT {
                pending.slots.entry(*came).or_default().came += 1; // an older one is in nobody's window
            }
        }
    }

    /// Whether they have waited long enough.
    pub(super) fn are_due(&self) -> bool {
        self.pending().since.is_some_and(|since| clock::now().since(since) >= WAIT)
    }

    /// Adds them to the rows of `process`. Rows that are older than an hour become one, which has all that ever left.
    pub(super) async fn flush(&self, session: &mut Session, queue: &str, process: &str) -> Result<(), PgError> {
        let slots = {
            let mut pending = self.pending();
            pending.since = None;
            mem::take(&mut pending.slots)
        };
        let Some(newest) = slots.keys().next_back().copied() else { return Ok(()) };
        let mut flushing = Flushing { counts: self, slots };
        let columns = flushing.slots.iter().map(|(slot, tally)| (*slot, (tally.gone, tally.came)));
        let (slots, tallies): (Vec<Slot>, Vec<(i64, i64)>) = columns.unzip();
        let (gone, came): (Vec<i64>, Vec<i64>) = tallies.into_iter().unzip();
        let sql = "WITH old AS (
                       DELETE FROM oneclock_queue_drained AS d USING (
                           SELECT slot, process FROM oneclock_queue_drained
                           WHERE queue = $1::text AND slot >= 0 AND slot < $6::bigint FOR UPDATE SKIP LOCKED
                       ) AS o WHERE d.queue = $1::text AND d.slot = o.slot AND d.process = o.process RETURNING d.gone
                   ),
                   ever AS (
                       INSERT INTO oneclock_queue_drained AS d (queue, slot, process, gone, came)
                       SELECT $1::text, -1, '', sum(gone), 0 FROM old HAVING count(*) > 0
                       ON CONFLICT (queue, slot, process) DO UPDATE SET gone = d.gone + excluded.gone
                   )
                   INSERT INTO oneclock_queue_drained AS d (queue, slot, process, gone, came)
                   SELECT $1::text, n.slot, $2::text, n.gone, n.came
                   FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS n (slot, gone, came)
                   ON CONFLICT (queue, slot, process) DO UPDATE
                   SET gone = d.gone + excluded.gone, came = d.came + excluded.came";
        let oldest = newest - KEPT;
        session.execute(sql, &[&queue, &process, &slots, &gone, &came, &oldest]).await?;
        flushing.slots.clear();
        Ok(())
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        if self.slots.is_empty() {
            return;
        }
        // It may have been written all the same: then it counts twice, which an hour later is forgotten.
        let mut pending = self.counts.pending();
        pending.since.get_or_insert_with(clock::now);
        for (slot, tally) in mem::take(&mut self.slots) {
            let known = pending.slots.entry(slot).or_default();
            known.gone += tally.gone;
            known.came += tally.came;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_written_is_counted_again() {
        let counts = Counts::default();
        counts.add(&[(3, 5), (5, 5), (4, 400)]);
        let slots = mem::take(&mut counts.pending().slots);
        drop(Flushing { counts: &counts, slots });
        let pending = counts.pending();
        let of = |slot: Slot| pending.slots.get(&slot).map(|tally| (tally.gone, tally.came));
        assert_eq!((of(5), of(3), of(400)), (Some((2, 1)), Some((0, 1)), Some((1, 0))));
        assert_eq!(of(4), None, "it came more than an hour ago");
    }

    #[test]
    fn counts_wait_for_others() {
        let counts = Counts::default();
        counts.add(&[]);
        assert!(counts.pending().since.is_none());
        counts.add(&[(1, 1)]);
        assert!(!counts.are_due() && counts.pending().since.is_some());
    }
}
