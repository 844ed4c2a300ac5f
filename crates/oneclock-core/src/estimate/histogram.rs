//! A log-linear histogram of durations over atomic words: eight buckets for each doubling, so a value is off by at most 6 %.
//!
//! Decides the grain and the ends: below 8 µs one bucket for each microsecond, above 4.7 hours one for all.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Sample;

const BUCKETS: usize = 256;
const PER_DOUBLING: u64 = 8;

/// How often each duration was seen.
pub(super) struct Histogram {
    buckets: [AtomicU32; BUCKETS],
    count: AtomicU32,
    cut_off: AtomicU32,
}

/// What several windows say together.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) count: u32,
    pub(super) cut_off: u32,
    pub(super) quantile: Duration,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { buckets: [const { AtomicU32::new(0) }; BUCKETS], count: AtomicU32::new(0), cut_off: AtomicU32::new(0) }
    }

    /// Adds one, and returns how many there are.
    pub(super) fn add(&self, took: Duration, sample: Sample) -> u32 {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.buckets[index(micros)].fetch_add(1, Ordering::Relaxed);
        if sample == Sample::CutOff {
            self.cut_off.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Becomes empty, and takes what was in it out of `all`: each exactly once, whoever adds meanwhile.
    pub(super) fn leave(&self, all: &Self) {
        for (mine, all) in self.words().zip(all.words()) {
            let left = mine.swap(0, Ordering::Relaxed);
            if left > 0 {
                all.fetch_sub(left, Ordering::Relaxed);
            }
        }
    }

    fn words(&self) -> impl Iterator<Item = &AtomicU32> {
        self.buckets.iter().chain([&self.count, &self.cut_off])
    }
}

impl Summary {
    /// `None` if there is nothing.
    pub(super) fn of<const N: usize>(windows: [&Histogram; N], quantile: f64) -> Option<Self> {
        // The buckets are counted, and not the counters asked: those may be ahead while others add.
        let mut buckets = [0_u32; BUCKETS];
        for window in windows {
            buckets.iter_mut().zip(&window.buckets).for_each(|(sum, bucket)| *sum = sum.saturating_add(load(bucket)));
        }
        let count = buckets.iter().copied().fold(0, u32::saturating_add);
        if count == 0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and a count of 32 bits")]
        let rank = (f64::from(count) * quantile).ceil().max(1.0) as u32;
        let mut seen = 0_u32;
        let found = buckets.iter().position(|in_bucket| {
            seen = seen.saturating_add(*in_bucket);
            seen >= rank
        });
        let cut_off = windows.iter().fold(0, |sum: u32, window| sum.saturating_add(load(&window.cut_off)));
        Some(Self { count, cut_off: cut_off.min(count), quantile: value(found.unwrap_or(BUCKETS - 1)) })
    }
}

fn load(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

fn index(micros: u64) -> usize {
    if micros < PER_DOUBLING {
        return usize::try_from(micros).unwrap_or(0);
    }
    let shift = u64::from(micros.ilog2()) - 3;
    usize::try_from(shift * PER_DOUBLING + (micros >> shift)).map_or(BUCKETS - 1, |index| index.min(BUCKETS - 1))
}

/// The middle of a bucket.
fn value(index: usize) -> Duration {
    let index = index as u64;
    if index < PER_DOUBLING {
        return Duration::from_micros(index);
    }
    let shift = index / PER_DOUBLING - 1;
    let lowest = (PER_DOUBLING + index % PER_DOUBLING) << shift;
    Duration::from_micros(lowest + (1 << shift) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_comes_back_within_seven_percent(micros in 0_u64..(1 << 34)) {
            let back = u64::try_from(value(index(micros)).as_micros()).expect("small");
            prop_assert!(back.abs_diff(micros) <= micros / 14, "{} became {}", micros, back);
        }

        #[test]
        fn larger_values_are_in_later_buckets(one: u64, other: u64) {

            prop_assert!(one > other || index(one) <= index(other));
        }
    }
}
