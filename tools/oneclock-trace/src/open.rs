//! Traces that may still get spans. Decides when one is complete: when its document says so, at the end of the input, or
//! when it is the one that got none for longest and a bound is reached. Memory is bounded by [`Limits`].

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use serde::Serialize;

use crate::span::Span;

/// What is held at one time, at most. What goes beyond is dropped, and counted in [`Dropped`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Traces that wait for more spans.
    pub open_traces: usize,
    /// Spans of one trace.
    pub spans_per_trace: usize,
    /// Spans of all open traces together.
    pub open_spans: usize,
    /// Names (of services and operations, hops, pairs of processes) that are counted one by one.
    pub names: usize,
    /// Problems that are told one by one.
    pub problems: usize,
}

/// What was left out, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Spans beyond [`Limits::spans_per_trace`].
    pub spans_beyond_trace: u64,
    /// Spans that came after their trace was taken to be complete.
    pub late_spans: u64,
    /// Traces that were taken to be complete because a bound was reached. Their spans until then are counted.
    pub closed_early: u64,
}

/// How much was held at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// Traces.
    pub open_traces: usize,
    /// Spans.
    pub open_spans: usize,
}

/// A trace as it was collected.
pub(crate) struct Collected {
    pub(crate) id: Arc<str>,
    pub(crate) spans: Vec<Span>,
    pub(crate) dropped: u64,
}

pub(crate) struct Open {
    limits: Limits,
    traces: HashMap<Arc<str>, (u64, Collected)>,
    by_age: BTreeMap<u64, Arc<str>>,
    now: u64, // counts spans: the clock of `by_age`
    spans: usize,
    early: Early,
    pub(crate) dropped: Dropped,
    pub(crate) peak: Peak,
}

/// The traces that were closed early, by hash, so that a late span is known as such. As many as may be remembered.
#[derive(Default)]
struct Early {
    hasher: RandomState,
    known: HashSet<u64>,
    order: VecDeque<u64>,
}

const EARLY_REMEMBERED: usize = 1 << 17;

// === Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self { open_traces: 5_000, spans_per_trace: 10_000, open_spans: 200_000, names: 2_000, problems: 20 }
    }
}

// === Open ===

impl Open {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            traces: HashMap::new(),
            by_age: BTreeMap::new(),
            now: 0,
            spans: 0,
            early: Early::default(),
            dropped: Dropped::default(),
            peak: Peak::default(),
        }
    }

    /// Takes a span in. Returns a trace that had to be closed for it.
    pub(crate) fn take(&mut self, trace: &str, span: Span) -> Option<Collected> {
        self.now += 1;
        if !self.traces.contains_key(trace) && self.early.knows(trace) {
            self.dropped.late_spans += 1;
            return None;
        }
        let id: Arc<str> = trace.into();
        let (touched, collected) = match self.traces.entry(Arc::clone(&id)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert((self.now, Collected { id: Arc::clone(&id), spans: Vec::new(), dropped: 0 }))
            }
        };
        self.by_age.remove(touched);
        *touched = self.now;
        self.by_age.insert(self.now, id);
        if collected.spans.len() < self.limits.spans_per_trace {
            collected.spans.push(span);
            self.spans += 1;
        } else {
            collected.dropped += 1;
            self.dropped.spans_beyond_trace += 1;
        }
        let full = self.traces.len() > self.limits.open_traces || self.spans > self.limits.open_spans;
        let closed = if full { self.close_oldest() } else { None };
        self.peak.open_traces = self.peak.open_traces.max(self.traces.len());
        self.peak.open_spans = self.peak.open_spans.max(self.spans);
        closed
    }

    /// This one is complete.
    pub(crate) fn close(&mut self, trace: &str) -> Option<Collected> {
        let (touched, collected) = self.traces.remove(trace)?;
        self.by_age.remove(&touched);
        self.spans -= collected.spans.len();
        Some(collected)
    }

    /// At the end: any that is left, the oldest first.
    pub(crate) fn next(&mut self) -> Option<Collected> {
        let oldest = self.by_age.values().next().cloned()?;
        self.close(&oldest)
    }

    fn close_oldest(&mut self) -> Option<Collected> {
        let collected = self.next()?;
        self.early.remember(&collected.id);
        self.dropped.closed_early += 1;
        Some(collected)
    }
}

// === Early ===

impl Early {
    fn knows(&self, trace: &str) -> bool {
        !self.known.is_empty() && self.known.contains(&self.hasher.hash_one(trace))
    }

    fn remember(&mut self, trace: &str) {
        let hash = self.hasher.hash_one(trace);
        if self.known.insert(hash) {
            self.order.push_back(hash);
        }
        if self.order.len() > EARLY_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}
