//! The series of one metric: how many there may be, and what becomes of one more.
//!
//! Decides the bound on what a scrape can grow to. Words come from the enums of the library, of which there are few; names of
//! operations, routes and dependencies are as many as code makes up. So a metric takes so many names, each with all of its
//! words, and then one [`OVERFLOW`] in place of every further name: at most (names + 1) × words. What is counted stays
//! right in sum, and the log says once for each metric that it begins.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::{Equivalent, HashMap, HashSet};
use metrics::{Counter, Histogram, Key, Label, Recorder};

use super::sink::{METADATA, Sink};
use crate::names::{Metric, OVERFLOW, UNBOUNDED};

/// The values of one series' labels, in the order of [`Metric::labels`]: names first, then words.
#[derive(Clone, Copy)]
pub(super) struct Labels<'a> {
    names: [&'a str; 2],
    words: [&'static str; 3],
}

/// The same, kept.
#[derive(Clone)]
struct Kept {
    names: [Arc<str>; 2],
    words: [&'static str; 3],
}

/// All series of one metric. Looking one up takes no lock and allocates nothing; adding one copies the table, which happens
/// as often as there are series.
pub(super) struct Family<H> {
    metric: &'static Metric,
    /// Of its labels, how many are names.
    names: usize,
    /// So many names get series of their own; one number for all metrics.
    limit: Arc<AtomicUsize>,
    table: ArcSwap<Table<H>>,
    adding: Mutex<()>,
}

/// What one metric has so far.
#[derive(Clone)]
struct Table<H> {
    series: HashMap<Kept, H>,
    /// The names that have series of their own, without their words.
    known: HashSet<Kept>,
}

/// What is written to: a metric of the facade.
pub(super) trait Handle: Clone {
    fn register(recorder: &dyn Recorder, key: &Key) -> Self;
}

/// A counter of seconds. The facade's counters are whole numbers, so the fraction waits here for the rest of its second.
#[derive(Clone)]
pub(super) struct Seconds {
    counter: Counter,
    micros: Arc<AtomicU64>,
}

// === Labels ===

impl<'a> Labels<'a> {
    pub(super) fn of<const N: usize, const W: usize>(names: [&'a str; N], words: [&'static str; W]) -> Self {
        const { assert!(N <= 2 && W <= 3) };
        let mut labels = Self { names: [""; 2], words: [""; 3] };
        labels.names[..N].copy_from_slice(&names);
        labels.words[..W].copy_from_slice(&words);
        labels
    }

    fn overflown(self, names: usize) -> Self {
        let mut labels = self;
        labels.names[..names].fill(OVERFLOW);
        labels
    }

    fn without_words(self) -> Self {
        Self { names: self.names, words: [""; 3] }
    }
}

impl PartialEq for Labels<'_> {
    fn eq(&self, other: &Self) -> bool {
        let all = |a: &[&str], b: &[&str]| a.iter().zip(b).all(|(a, b)| is_same(a, b));
        all(&self.names, &other.names) && all(&self.words, &other.words)
    }
}

impl Eq for Labels<'_> {}

impl Hash for Labels<'_> {
    fn hash<S: Hasher>(&self, state: &mut S) {
        for name in self.names {
            if !name.is_empty() {
                name.hash(state);
            }
        }
        // Words are few and of our own making: their lengths and ends tell nearly all of them apart, and `==` the rest.
        let end = |byte: Option<&u8>| u64::from(byte.copied().unwrap_or_default());
        let brief = |word: &str| {
            let bytes = word.as_bytes();
            (bytes.len() as u64) << 16 | end(bytes.first()) << 8 | end(bytes.last())
        };
        state.write_u64(self.words.iter().fold(0, |all, word| all.rotate_left(21) ^ brief(word)));
    }
}

/// As `==`, which asks libc's `memcmp` also about nothing: that can take 80 ns, since nothing's address is one that faults.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && (a.is_empty() || std::ptr::eq(a, b) || a == b)
}

impl Kept {
    fn of(labels: Labels<'_>) -> Self {
        Self { names: labels.names.map(Arc::from), words: labels.words }
    }

    fn is_overflow(&self, names: usize) -> bool {
        self.names[..names].iter().all(|name| **name == *OVERFLOW)
    }

    fn labels(&self) -> Labels<'_> {
        Labels { names: [&self.names[0], &self.names[1]], words: self.words }
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.labels() == other.labels()
    }
}

impl Eq for Kept {}

impl Hash for Kept {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.labels().hash(state); // as `Labels` hash, which ask for it
    }
}

impl Equivalent<Kept> for Labels<'_> {
    fn equivalent(&self, kept: &Kept) -> bool {
        *self == kept.labels()
    }
}

// === Family ===

impl<H> Default for Table<H> {
    fn default() -> Self {
        Self { series: HashMap::default(), known: HashSet::default() }
    }
}

impl<H: Handle> Family<H> {
    pub(super) fn new(metric: &'static Metric, limit: &Arc<AtomicUsize>) -> Self {
        let names = metric.labels.iter().filter(|label| UNBOUNDED.contains(label)).count();
        Self { metric, names, limit: Arc::clone(limit), table: ArcSwap::default(), adding: Mutex::default() }
    }

    /// Writes to the series with these labels, or to the one that stands for all names that are too many.
    pub(super) fn write(&self, sink: &Sink, labels: Labels<'_>, write: impl Fn(&H)) {
        let table = self.table.load();
        if let Some(handle) = table.series.get(&labels) {
            return write(handle);
        }
        if self.is_one_too_many(&table, labels)
            && let Some(handle) = table.series.get(&labels.overflown(self.names))
        {
            return write(handle);
        }
        let (handle, overflows) = self.add(sink, labels);
        if overflows {
            self.warn(); // out of the lock: whoever is told may count something itself
        }
        write(&handle);
    }

    fn is_one_too_many(&self, table: &Table<H>, labels: Labels<'_>) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        self.names > 0 && table.known.len() >= limit && !table.known.contains(&labels.without_words())
    }

    /// The series, and whether it is the first one of the overflow.
    #[cold]
    fn add(&self, sink: &Sink, labels: Labels<'_>) -> (H, bool) {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table.load();
        let overflows = self.is_one_too_many(&table, labels);
        let labels = if overflows { labels.overflown(self.names) } else { labels };
        if let Some(handle) = table.series.get(&labels) {
            return (handle.clone(), false); // added meanwhile
        }
        let key = self.key(labels);
        let handle = sink.with(|recorder| H::register(recorder, &key));
        let mut more = Table::clone(&table);
        if !overflows {
            more.known.insert(Kept::of(labels.without_words()));
        }
        let first = overflows && !more.series.keys().any(|kept| kept.is_overflow(self.names));
        more.series.insert(Kept::of(labels), handle.clone());
        self.table.store(Arc::new(more));
        (handle, first)
    }

    fn warn(&self) {
        tracing::warn!(
            metric = self.metric.name,
            limit = self.limit.load(Ordering::Relaxed),
            "this metric has as many names as it may; further ones are counted as `overflow`. If they are meant, raise the \
             limit with `MetricsBuilder::names`; if not, look for names that are made of data (said once)"
        );
    }

    fn key(&self, labels: Labels<'_>) -> Key {
        let names = labels.names[..self.names].iter().map(|name| (*name).to_owned().into());
        let values = names.chain(labels.words.iter().map(|word| metrics::SharedString::const_str(word)));
        let labels: Vec<Label> =
            self.metric.labels.iter().zip(values).map(|(label, value)| Label::new(*label, value)).collect();
        Key::from_parts(self.metric.name, labels)
    }
}

impl Handle for Counter {
    fn register(recorder: &dyn Recorder, key: &Key) -> Self {
        recorder.register_counter(key, &METADATA)
    }
}

impl Handle for Histogram {
    fn register(recorder: &dyn Recorder, key: &Key) -> Self {
        recorder.register_histogram(key, &METADATA)
    }
}

impl Handle for Seconds {
    fn register(recorder: &dyn Recorder, key: &Key) -> Self {
        Self { counter: recorder.register_counter(key, &METADATA), micros: Arc::default() }
    }
}

// === Seconds ===

impl Seconds {
    /// Adds a span; the counter shows the whole seconds of the sum.
    pub(super) fn add(&self, span: Duration) {
        const SECOND: u64 = 1_000_000;
        let span = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let before = self.micros.fetch_add(span, Ordering::Relaxed);
        self.counter.increment(before.saturating_add(span) / SECOND - before / SECOND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::METRICS;

    #[test]
    fn names_come_before_words_and_both_fit() {
        for metric in METRICS {
            let names = metric.labels.iter().take_while(|label| UNBOUNDED.contains(label)).count();
            assert!(metric.labels[names..].iter().all(|label| !UNBOUNDED.contains(label)), "{}", metric.name);
            assert!(names <= 2 && metric.labels.len() - names <= 3, "{}", metric.name);
        }
    }
}
