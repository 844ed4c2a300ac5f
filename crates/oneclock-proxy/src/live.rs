//! The requests that are under way, and when the last of them will be over.
//!
//! Decides how long a drain takes: as long as the longest of them may still live, and no longer (contract X10). Others have
//! to guess; here every request has a deadline.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock_core::{Deadline, Tick};

/// What is under way. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    next: u64,
    entries: BTreeMap<u64, Option<Deadline>>, // none: nobody has decided yet
}

/// One request; over when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Entry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: u64,
    live: Live,
}

// === Live ===

impl Live {
    /// A request has arrived.
    pub(crate) fn enter(&self) -> Entry {
        let id = {
            let mut known = self.lock();
            known.next += 1;
            let id = known.next;
            known.entries.insert(id, None);
            id
        };
        Entry(Arc::new(Inner { id, live: self.clone() }))
    }

    /// How long what is under way may still take, at most `cap`. One of which nobody knows takes all of that.
    pub(crate) fn longest(&self, cap: Duration, now: Tick) -> Duration {
        let known = self.lock();
        let left = known.entries.values().map(|deadline| deadline.map_or(cap, |deadline| deadline.remaining(now)));
        left.max().unwrap_or_default().min(cap)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === Entry ===

impl Entry {
    /// It is over by then.
    pub(crate) fn until(&self, deadline: Deadline) {
        if let Some(known) = self.0.live.lock().entries.get_mut(&self.0.id) {
            *known = Some(deadline);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.live.lock().entries.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_drain_takes_as_long_as_the_longest_of_what_lives() {
        let (live, now) = (Live::default(), Tick::from_nanos(0));
        assert_eq!(live.longest(ms(5_000), now), Duration::ZERO, "nothing lives");
        let (short, long) = (live.enter(), live.enter());
        assert_eq!(live.longest(ms(5_000), now), ms(5_000), "nobody knows yet");
        short.until(Deadline::after(now, ms(300)));
        long.until(Deadline::after(now, ms(800)));
        assert_eq!(live.longest(ms(5_000), now), ms(800));
        assert_eq!(live.longest(ms(500), now), ms(500), "capped");
        assert_eq!(live.longest(ms(5_000), now + ms(600)), ms(200));
        let held = long.clone();
        drop(long);
        assert_eq!(live.longest(ms(5_000), now), ms(800), "its body is still on its way");
        drop(held);
        assert_eq!(live.longest(ms(5_000), now), ms(300));
    }
}
