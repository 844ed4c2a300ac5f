//! Which requests leave a line.
//!
//! Decides that a trace is kept at every hop or at none: of a request with a trace id its random bits decide, in the way of
//! OpenTelemetry's consistent sampling, so that hops with the same share keep the same requests, and one with a larger share
//! keeps those and more. Requests without one are taken in turn, and those of outsiders, who choose their trace ids: they would
//! choose what is kept. And that a flood of refusals is no flood of lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oneclock_core::Tick;

use crate::config::Share;

/// A trace id's last 56 bits are random (W3C Trace Context, level 2).
const RANDOM: u64 = 1 << 56;

/// The fraction of the golden ratio: multiples of it lie evenly, however many there are.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Takes a share of all requests.
#[derive(Debug)]
pub(super) struct Sampler {
    from: u64, // what has this number or a larger one is taken
    turns: AtomicU64,
}

/// So many a second, and how many there were beyond that.
#[derive(Debug)]
pub(super) struct Allowance {
    most: u32,
    used: AtomicU64,          // the second, and below it how many in it
    left_out: Arc<AtomicU64>, // one number, from one configuration to the next
}

// === Sampler ===

impl Sampler {
    pub(super) fn of(share: Share) -> Self {
        let left = u64::from(Share::ALL.millionths() - share.millionths());
        let from = u128::from(left) * u128::from(RANDOM) / u128::from(Share::ALL.millionths());
        Self { from: u64::try_from(from).unwrap_or(RANDOM), turns: AtomicU64::new(0) }
    }

    /// Whether the next request is taken, which is one of this trace if that is to decide.
    pub(super) fn takes(&self, trace: Option<u128>) -> bool {
        if self.from == 0 || self.from == RANDOM {
            return self.from == 0;
        }
        let number = match trace {
            Some(trace) => (trace % u128::from(RANDOM)) as u64,
            None => self.turns.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN) >> 8,
        };
        number >= self.from
    }
}

// === Allowance ===

impl Allowance {
    /// One that tells what `before` has not told yet, too.
    pub(super) fn after(before: Option<&Self>, most: u32) -> Self {
        let left_out = before.map(|before| Arc::clone(&before.left_out)).unwrap_or_default();
        Self { most, used: AtomicU64::new(0), left_out }
    }

    /// Whether one more is kept in the second of `at`. One that is not is counted.
    pub(super) fn takes(&self, at: Tick) -> bool {
        let second = at.as_nanos() / 1_000_000_000;
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            // A moment that comes after a later one counts in that.
            let (of, count) = if used >> 32 >= second { (used >> 32, used & 0xffff_ffff) } else { (second, 0) };
            (count < u64::from(self.most)).then_some(of << 32 | (count + 1))
        });
        if taken.is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    /// How many were not kept since this was asked last.
    pub(super) fn left_out(&self) -> u64 {
        match self.left_out.load(Ordering::Relaxed) {
            0 => 0, // nearly always, and then nothing is written to what all requests share
            _ => self.left_out.swap(0, Ordering::Relaxed),
        }
    }

    /// Who asked could not tell it.
    pub(super) fn give_back(&self, left_out: u64) {
        if left_out > 0 {
            self.left_out.fetch_add(left_out, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn share(millionths: u32) -> Share {
        Share::of_millionths(millionths).unwrap()
    }

    #[test]
    fn without_a_trace_exactly_the_share_is_taken_evenly() {
        for (millionths, want) in [(0, 0), (10_000, 10), (250_000, 250), (500_000, 500), (1_000_000, 1_000)] {
            let sampler = Sampler::of(share(millionths));
            let taken: Vec<usize> = (0..1_000).filter(|_| sampler.takes(None)).collect();
            assert!(taken.len().abs_diff(want) <= 1, "{} of 1000 at {millionths}", taken.len());
            if want > 1 {
                let gaps = taken.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
                assert!(gaps <= 3 * 1_000 / want, "a gap of {gaps} at {millionths}");
            }
        }
    }

    #[test]
    fn a_trace_is_kept_at_every_hop_or_at_none() {
        let (first, second, larger) =
            (Sampler::of(share(100_000)), Sampler::of(share(100_000)), Sampler::of(share(300_000)));
        let mut taken = 0;
        for nth in 0_u128..10_000 {
            let trace = Some((nth + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835));
            let takes = first.takes(trace);
            assert_eq!(second.takes(trace), takes);
            assert!(!takes || larger.takes(trace), "a larger share holds the smaller");
            taken += usize::from(takes);
        }
        assert!(taken.abs_diff(1_000) < 100, "{taken}");
    }

    #[test]
    fn only_the_random_bits_of_a_trace_count() {
        let half = Sampler::of(share(500_000));
        assert!(half.takes(Some(u128::from(RANDOM / 2))), "it is at the threshold");
        assert!(!half.takes(Some(u128::from(RANDOM / 2 - 1))));
        assert!(!half.takes(Some(0xffff_u128 << 112 | 1)), "what a clock or a host wrote there says nothing");
    }

    #[test]
    fn so_many_a_second_are_kept_and_the_others_counted() {
        let allowance = Allowance::after(None, 2);
        let at = |ms| Tick::from_nanos(0) + Duration::from_millis(ms);
        let kept = [0, 1, 2, 3, 999, 1_000, 1_001, 1_002].map(|ms| allowance.takes(at(ms)));
        assert_eq!(kept, [true, true, false, false, false, true, true, false]);
        assert_eq!((allowance.left_out(), allowance.left_out()), (4, 0));
        assert!(!allowance.takes(at(500)), "the second before is over");
        allowance.give_back(3);
        assert_eq!(allowance.left_out(), 4);
        assert!(!Allowance::after(None, 0).takes(at(0)));
        assert!(!allowance.takes(at(500)));
        assert_eq!(Allowance::after(Some(&allowance), 2).left_out(), 1, "what was not told yet");
    }
}
