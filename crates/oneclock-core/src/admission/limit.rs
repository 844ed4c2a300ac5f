//! How many places there are.
//!
//! Decides nothing where that is known. Where it is not, it is found: places are held longer once there are more of them than
//! the resource behind can serve at once. The time that a place is held is compared with what it is at its best; the number
//! shrinks by that ratio, and grows by a square root while it is used. The best is not learnt while a queue stands: it would
//! drift up with the overload; but where hardly any place is left it is learnt all the same: then it is no doing of ours that
//! places are held so long. Nothing is pinned to measure. Work that was cut off counts where it had taken longer than at the best.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::Places;
use crate::Tick;
use crate::estimate::Sample;

/// How often the number is thought over, at most.
const SPAN: Duration = Duration::from_millis(100);
/// And with how many samples, at least.
const SAMPLES: u32 = 10;
/// A place may be held this much longer than at its best.
const TOLERANCE: f64 = 1.5;
/// How much of a change is made at once.
const STEP: f64 = 0.2;
/// How fast the best follows what is better; what is worse while not all places are taken; and what is worse while they are, so
/// that something that has become slow for good is believed after a minute.
const DOWN: f64 = 0.2;
const UP: f64 = 0.05;
const UP_IF_BUSY: f64 = 0.002;
/// With no more places than this (or the least) they do not hold one another up. What shrinks by half and grows by its root comes to
/// rest at four.
const FEW: f64 = 4.5;

pub(super) enum Limit {
    Fixed(u32),
    Found(Found),
}

pub(super) struct Found {
    least: u32,
    most: u32,
    places: AtomicU64, // an f64
    best: AtomicU64,   // an f64, microseconds
    count: AtomicU32,
    micros: AtomicU64,
    busiest: AtomicU32,
    since: AtomicU64,
}

impl Limit {
    pub(super) fn new(places: Places) -> Self {
        match places {
            Places::Known(places) => Self::Fixed(places.max(1)),
            Places::Found { least, most } => Self::Found(Found {
                least,
                most: most.max(least), // else refused by `Settings::check`
                places: AtomicU64::new(f64::from(least.saturating_mul(4).clamp(least, most.max(least))).to_bits()),
                best: AtomicU64::new(0_f64.to_bits()),
                count: AtomicU32::new(0),
                micros: AtomicU64::new(0),
                busiest: AtomicU32::new(0),
                since: AtomicU64::new(0),
            }),
        }
    }

    pub(super) fn now(&self) -> u32 {
        match self {
            Self::Fixed(places) => *places,
            Self::Found(found) => found.now(),
        }
    }
}

impl Found {
    fn now(&self) -> u32 {
        let places = f64::from_bits(self.places.load(Ordering::Relaxed));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two numbers of 32 bits")]
        let places = places as u32;
        places.clamp(self.least, self.most)
    }

    /// A place was held for so long, so many were, and whether somebody waits.
    pub(super) fn held(&self, held: Duration, sample: Sample, (busy, waiting): (u32, bool), now: Tick) {
        let micros = u64::try_from(held.as_micros()).unwrap_or(1 << 34);
        #[expect(clippy::cast_precision_loss, reason = "a time")]
        let is_short = (micros as f64) < f64::from_bits(self.best.load(Ordering::Relaxed));
        if sample == Sample::CutOff && is_short {
            return;
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.busiest.fetch_max(busy, Ordering::Relaxed);
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let since = self.since.load(Ordering::Relaxed);
        if count < SAMPLES.max(self.now()) || now.since(Tick::from_nanos(since)) < SPAN {
            return;
        }
        if self.since.compare_exchange(since, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let count = self.count.swap(0, Ordering::Relaxed).max(1);
            let micros = self.micros.swap(0, Ordering::Relaxed);
            let busiest = self.busiest.swap(0, Ordering::Relaxed);
            #[expect(clippy::cast_precision_loss, reason = "a mean of times")]
            let mean = micros as f64 / f64::from(count);
            self.think(mean.max(1.0), f64::from(busiest), waiting);
        }
    }

    fn think(&self, mean: f64, busiest: f64, waiting: bool) {
        let read = |word: &AtomicU64| f64::from_bits(word.load(Ordering::Relaxed));
        let (best, places) = (read(&self.best), read(&self.places));
        let best = match best {
            0.0 => mean,
            _ if mean < best => best + DOWN * (mean - best),
            _ if places <= f64::from(self.least).max(FEW) => best + UP * (mean - best),
            _ if waiting => best,
            _ if busiest < places.floor() => best + UP * (mean - best),
            _ => best + UP_IF_BUSY * (mean - best),
        };
        let shrinks = (TOLERANCE * best / mean).clamp(0.5, 1.0);
        let wanted = places * shrinks + places.sqrt();
        let wanted = if 2.0 * busiest < places { wanted.min(places) } else { wanted };
        let places = (places + STEP * (wanted - places)).clamp(f64::from(self.least), f64::from(self.most));
        self.best.store(best.to_bits(), Ordering::Relaxed);
        self.places.store(places.to_bits(), Ordering::Relaxed);
    }
}
