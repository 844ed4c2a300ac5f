//! How long work of one sort takes, from its start to its answer, downstream calls included.
//!
//! Decides what counts as a sample, how long it counts, and what quantile is told. Work that was cut off counts with the time
//! that it had taken by then, if that is as long as such work is known to take: leaving that out would make the estimate lower the
//! worse things are, and guessing what it would have taken would starve whatever is costly. Cut off earlier it says nothing, and
//! callers that leave at once would teach that the work is quick. `&self` over atomics, no lock, no clock.
//!
//! The lower of two quantiles counts, of the last thousand samples and of the last two hundred. Work that has become slow is
//! believed when both say so; once it is fast again, the recent one says so first, and nobody is refused for what is over.
//!
//! A quantile is evidence, not proof: of what starts with exactly that much left, one in ten still misses (at 0.9). So an
//! estimate orders and refuses; it never shortens a deadline.

mod histogram;

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::Tick;
use histogram::{Histogram, Summary};

/// With fewer samples nothing is known, and the estimate is zero: everything may start.
const LEAST: u32 = 20;
/// How many windows there are; the latest two are what is recent.
const WINDOWS: usize = 8;
/// A window is full after this many samples.
const SAMPLES: u32 = 128;
/// A window is over after this time.
const WINDOW: Duration = Duration::from_millis(2_500);
/// After this many samples, or this time, the quantile is made anew. That costs a few microseconds, so not for every request.
const FRESH: u32 = 256;
/// While nothing is known, that is done sooner.
const FIRST: u32 = 64;
const FRESH_FOR: Duration = Duration::from_millis(100);

/// Work that was cut off before it had taken this part of what is needed says nothing. A bucket's grain less than all.
const SAYS_NOTHING: f64 = 0.85;

/// The quantile that work must have left to be started, unless something else is said. Lower ones start work that misses;
/// higher ones refuse work that would have been done.
pub const DEFAULT_QUANTILE: f64 = 0.9;

/// How work was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sample {
    /// It was done: it takes this long.
    Whole,
    /// It was cut off: it takes at least this long.
    CutOff,
}

/// The time that work of one sort needs, over the last 20 seconds or 1024 samples, whichever is less.
///
/// ```
/// # use oneclock_core::{Tick, estimate::*}; use std::time::Duration;
/// # fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// let estimate = Estimate::new(DEFAULT_QUANTILE);
/// assert_eq!(estimate.needed(), Duration::ZERO, "nothing is known yet");
/// for n in 0..100 {
///     estimate.record(ms(if n % 5 == 0 { 50 } else { 10 }), Sample::Whole, Tick::default() + ms(n * 10));
/// }
/// assert!((ms(45)..ms(55)).contains(&estimate.needed()));
/// ```
pub struct Estimate {
    quantile: f64,
    windows: [Histogram; WINDOWS],
    all: Histogram,     // what is in the windows, together
    current: AtomicU32, // counts on; its window is the rest by their number
    since: AtomicU64,   // when the current window began
    fresh: AtomicU32,   // samples since the quantiles were made
    fresh_at: AtomicU64,
    needed: AtomicU64,
    cut_off: AtomicU32, // of a thousand
}

// === Estimate ===

impl Estimate {
    /// Nothing is known yet. `quantile` is what [`needed`](Self::needed) tells; below 0.01 and above 0.999 it is these.
    pub fn new(quantile: f64) -> Self {
        Self {
            quantile: if quantile.is_nan() { DEFAULT_QUANTILE } else { quantile.clamp(0.01, 0.999) },
            windows: std::array::from_fn(|_| Histogram::new()),
            all: Histogram::new(),
            current: AtomicU32::new(0),
            since: AtomicU64::new(0),
            fresh: AtomicU32::new(0),
            fresh_at: AtomicU64::new(0),
            needed: AtomicU64::new(0),
            cut_off: AtomicU32::new(0),
        }
    }

    /// Work that took `took` is over. Waiting for its turn is no part of that.
    pub fn record(&self, took: Duration, sample: Sample, now: Tick) {
        if sample == Sample::CutOff && took < self.needed_at(now).mul_f64(SAYS_NOTHING) {
            return;
        }
        let begun = self.since.load(Ordering::Acquire);
        let current = self.current.load(Ordering::Acquire);
        self.all.add(took, sample); // first: what a window takes out of it on leaving is there
        let count = self.windows[current as usize % WINDOWS].add(took, sample);
        if count >= SAMPLES || now.since(Tick::from_nanos(begun)) >= WINDOW {
            self.turn(current, begun, now);
        }
        let fresh = self.fresh.fetch_add(1, Ordering::Relaxed) + 1;
        let made_at = self.fresh_at.load(Ordering::Relaxed);
        let due = if self.needed.load(Ordering::Relaxed) == 0 { FIRST } else { FRESH };
        if fresh >= due || now.since(Tick::from_nanos(made_at)) >= FRESH_FOR {
            let mine =
                self.fresh_at.compare_exchange(made_at, now.as_nanos().max(1), Ordering::Relaxed, Ordering::Relaxed);
            if mine.is_ok() {
                self.fresh.store(0, Ordering::Relaxed);
                self.make();
            }
        }
    }

    /// What such work needs at `now`: [`needed`](Self::needed), or zero if nothing came for so long that all of it is old.
    pub fn needed_at(&self, now: Tick) -> Duration {
        let made_at = Tick::from_nanos(self.fresh_at.load(Ordering::Relaxed));
        if now.since(made_at) >= WINDOW * 8 { Duration::ZERO } else { self.needed() }
    }

    /// What such work needed when it was last seen, at the quantile that this estimate was made for; zero while too little is
    /// known.
    pub fn needed(&self) -> Duration {
        Duration::from_nanos(self.needed.load(Ordering::Relaxed))
    }

    /// The share of the samples that were cut off, from 0 to 1. Above 0.1 the quantile is a lower bound, no more.
    pub fn cut_off(&self) -> f64 {
        f64::from(self.cut_off.load(Ordering::Relaxed)) / 1_000.0
    }

    /// The next window becomes the current one, empty. Of several who notice, one does it. It is emptied, and its beginning
    /// told, before it is the current one: else whoever adds to it meanwhile finds it full, or old, and turns on to one that is
    /// emptied for that.
    fn turn(&self, current: u32, begun: u64, now: Tick) {
        if self.since.compare_exchange(begun, now.as_nanos(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            let next = current.wrapping_add(1);
            self.windows[next as usize % WINDOWS].leave(&self.all);
            if now.since(Tick::from_nanos(begun)) >= 4 * WINDOW {
                self.windows.iter().for_each(|window| window.leave(&self.all)); // nothing came for long: what is in them is old
            }
            let _ = self.current.compare_exchange(current, next, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn make(&self) {
        let current = self.current.load(Ordering::Acquire);
        let recent = [current, current.wrapping_sub(1)].map(|window| &self.windows[window as usize % WINDOWS]);
        let all = Summary::of([&self.all], self.quantile).filter(|summary| summary.count >= LEAST);
        let recent = Summary::of(recent, self.quantile).filter(|summary| summary.count >= LEAST);
        let all = all.unwrap_or_default();
        let needed = recent.map_or(all.quantile, |recent| recent.quantile.min(all.quantile));
        self.needed.store(nanos(needed), Ordering::Relaxed);
        self.cut_off.store(all.cut_off * 1_000 / all.count.max(1), Ordering::Relaxed);
    }
}

impl Default for Estimate {
    fn default() -> Self {
        Self::new(DEFAULT_QUANTILE)
    }
}

impl fmt::Debug for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Estimate");
        debug.field("needed", &self.needed()).field("cut_off", &self.cut_off());
        debug.finish_non_exhaustive()
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Tick {
        Tick::default() + Duration::from_millis(ms)
    }

    const MS: Duration = Duration::from_millis(1);

    fn fed(samples: impl IntoIterator<Item = (Duration, Sample)>) -> Estimate {
        let estimate = Estimate::default();
        for (n, (took, sample)) in samples.into_iter().enumerate() {
            estimate.record(took, sample, at(n as u64 * 10));
        }
        estimate
    }

    #[test]
    fn too_little_is_nothing() {
        assert_eq!(fed((0..19).map(|_| (MS, Sample::Whole))).needed(), Duration::ZERO);
        assert_ne!(fed((0..30).map(|_| (MS, Sample::Whole))).needed(), Duration::ZERO);
    }

    #[test]
    fn what_was_cut_off_counts_with_what_it_had_taken() {
        // Half are done in 10 ms, half were cut off at 100 ms. Without those, the estimate would say 10 ms.
        let estimate =
            fed((0..200).map(|n| if n % 2 == 0 { (10 * MS, Sample::Whole) } else { (100 * MS, Sample::CutOff) }));
        assert!(estimate.needed() > 90 * MS, "{estimate:?}");
        assert!((0.4..0.6).contains(&estimate.cut_off()), "{estimate:?}");
        let survivors = fed((0..200).filter(|n| n % 2 == 0).map(|_| (10 * MS, Sample::Whole)));
        assert!(survivors.needed() < 12 * MS, "the naive way: {survivors:?}");
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let estimate = fed((0..500).map(|_| (100 * MS, Sample::Whole))); // five seconds
        for n in 0..2_500 {
            estimate.record(10 * MS, Sample::Whole, at(5_000 + n * 10)); // 25 more
        }
        assert!(estimate.needed() < 12 * MS, "{estimate:?}");
    }

    /// Two hundred samples, which a window of a thousand would have as one in five.
    #[test]
    fn what_is_fast_again_is_believed_soon_and_what_is_slow_after_a_tenth() {
        let estimate = fed((0..1_000).map(|_| (100 * MS, Sample::CutOff)));
        (0..2 * u64::from(SAMPLES)).for_each(|n| estimate.record(10 * MS, Sample::Whole, at(10_000 + n)));
        assert!(estimate.needed() < 12 * MS, "{estimate:?}");
        (0..1_000).for_each(|n| estimate.record(10 * MS, Sample::Whole, at(11_000 + n)));
        (0..300).for_each(|n| estimate.record(100 * MS, Sample::CutOff, at(12_000 + n)));
        assert!(estimate.needed() > 90 * MS, "{estimate:?}");
    }

    /// A window that is full is kept until the next one is: of several who notice, one turns.
    #[test]
    fn many_threads_turn_the_windows_once() {
        let (estimate, over) = (&Estimate::default(), std::sync::atomic::AtomicBool::new(false));
        let clock = &AtomicU64::new(8);
        let known = || Summary::of([&estimate.all], 0.9).map_or(0, |summary| summary.count);
        (0..8 * SAMPLES).for_each(|_| estimate.record(MS, Sample::Whole, at(1)));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let now = || at(clock.fetch_add(1, Ordering::Relaxed) / 8);
                    scope.spawn(move || (0..100_000).for_each(|_| estimate.record(MS, Sample::Whole, now())))
                })
                .collect();
            let least = scope.spawn(|| {
                let mut least = u32::MAX;
                while !over.load(Ordering::Relaxed) {
                    least = least.min(known());
                }
                least
            });
            threads.into_iter().for_each(|thread| thread.join().expect("it records"));
            over.store(true, Ordering::Relaxed);
            let least = least.join().expect("it looks");
            assert!(least > 4 * SAMPLES, "only {least} were known");
        });
    }

    #[test]
    fn many_threads_lose_little() {
        let estimate = Estimate::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5_000).for_each(|n| estimate.record(10 * MS, Sample::Whole, at(n))));
            }
        });
        assert!((9 * MS..11 * MS).contains(&estimate.needed()), "{estimate:?}");
    }
}
