//! What the servers did, whatever became of it. Work that was broken off counts as far as it went.
//!
//! Work is counted in the time that the request asked for, so that a late timer is nobody's waste.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::clock;
use crate::tag::{TIERS, Tag};

/// Of all tiers of one origin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<Mutex<Done>>);

/// What was done for all requests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) requests: HashMap<u32, Of>,
    /// Pieces of work that came to their end after the caller had left.
    pub(crate) for_nobody: u64,
}

/// What was done for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Of {
    pub(crate) worked_us: u64,
    /// How often each tier was asked.
    pub(crate) asked: [u32; TIERS],
}

/// A piece of work under way: counted when it is done, or as far as it got when it is dropped.
#[derive(Debug)]
pub(crate) struct Working {
    meter: Meter,
    tag: Tag,
    work_us: u32,
    began: Instant,
    done: bool,
}

impl Meter {
    /// A tier below the first one is asked.
    pub(crate) fn asked(&self, tier: usize, id: u32) {
        self.of(id, |of| of.asked.iter_mut().skip(tier).take(1).for_each(|asked| *asked += 1));
    }

    /// A slot begins to work on the request.
    pub(crate) fn begin(&self, tag: Tag, tier: usize) -> Working {
        let work_us = tag.work_us.get(tier).copied().unwrap_or_default();
        Working { meter: self.clone(), tag, work_us, began: clock::now(), done: false }
    }

    /// All of it, up to now.
    pub(crate) fn done(&self) -> Done {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn of<T>(&self, id: u32, change: impl FnOnce(&mut Of) -> T) -> T {
        change(self.0.lock().unwrap_or_else(PoisonError::into_inner).requests.entry(id).or_default())
    }
}

impl Working {
    /// How long it takes.
    pub(crate) fn takes(&self) -> std::time::Duration {
        std::time::Duration::from_micros(self.work_us.into())
    }

    /// It came to its end.
    pub(crate) fn end(mut self) {
        self.done = true;
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let whole = u64::from(self.work_us);
        let worked = if self.done { whole } else { clock::us(clock::now() - self.began).min(whole) };
        self.meter.of(self.tag.id, |of| of.worked_us += worked);
        if self.done && clock::wall_us() > self.tag.until_us {
            self.meter.0.lock().unwrap_or_else(PoisonError::into_inner).for_nobody += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_off_work_counts_as_far_as_it_went() {
        let meter = Meter::default();
        let tag = Tag { id: 1, until_us: u64::MAX, work_us: [600_000_000, 0, 0] };
        drop(meter.begin(tag, 0)); // at once
        let broken_off = meter.done().requests[&1].worked_us;
        assert!(broken_off < 300_000_000, "{broken_off}");
        meter.begin(tag, 0).end();
        assert_eq!(meter.done().requests[&1].worked_us, broken_off + 600_000_000);
        assert_eq!(meter.done().for_nobody, 0);
        meter.begin(Tag { until_us: 1, ..tag }, 0).end();
        assert_eq!(meter.done().for_nobody, 1);
    }
}
