//! The numbers of the story, and the load that tells it.
//!
//! Told at full size and run at a twentieth, so that it takes seconds: every span below is divided by the scale.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// One story: what becomes slow, and how patient each layer is.
#[derive(Clone, Debug)]
pub struct Story {
    /// Its name on the command line.
    pub name: &'static str,
    /// How many times faster than told it runs.
    pub scale: u32,
    /// How long the user waits for one try of the app; with one budget, for the tap as a whole.
    pub patience: Duration,
    /// How often the app tries, with independent timeouts.
    pub tries: u32,
    /// The gateway's own limit.
    pub gateway: Duration,
    /// The limit of the services behind it.
    pub services: Duration,
    /// How long pricing works while all is well.
    pub well: Duration,
    /// How long it works while it is slow.
    pub slow: Duration,
    /// One tap in this many asks for a price that is slow while the trouble lasts.
    pub one_in: u32,
    /// When it becomes slow, from the start of the load.
    pub slow_from: Duration,
    /// When it is well again.
    pub slow_until: Duration,
    /// How long the load lasts.
    pub lasts: Duration,
    /// The mean time between two taps.
    pub between_taps: Duration,
    /// How many prices can be worked out at the same time.
    pub workers: usize,
}

/// One tap of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tap {
    /// When, from the start of the load.
    pub at: Duration,
    /// Whether its price is one of those that become slow.
    pub slow_article: bool,
}

impl Story {
    /// For one article in three, pricing slows from 200 ms to 12 s. The app waits 8 s and tries three times; the gateway
    /// allows 29 s, the services 30 s; nobody limits the call to pricing. Each looks reasonable alone.
    pub fn slow_pricing() -> Self {
        let scale = 20;
        let told = |millis: u64| Duration::from_millis(millis) / scale;
        Self {
            name: "slow-pricing",
            scale,
            patience: told(8_000),
            tries: 3,
            gateway: told(29_000),
            services: told(30_000),
            well: told(200),
            slow: told(12_000),
            one_in: 3,
            slow_from: told(15_000),
            slow_until: told(75_000),
            lasts: told(100_000),
            between_taps: told(1_000),
            workers: 8,
        }
    }

    /// The taps of the load; the same for the same seed.
    pub fn taps(&self, seed: u64) -> Vec<Tap> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut at = Duration::ZERO;
        let mut taps = Vec::new();
        while at < self.lasts {
            taps.push(Tap { at, slow_article: rng.random_ratio(1, self.one_in) });
            // Between half and one and a half of the mean: uneven as people are, and never a burst that is a story of
            // its own.
            at += self.between_taps.mul_f64(rng.random_range(0.5..1.5));
        }
        taps
    }

    /// How long a price takes at this moment of the load.
    pub fn price_takes(&self, at: Duration, slow_article: bool) -> Duration {
        if slow_article && (self.slow_from..self.slow_until).contains(&at) { self.slow } else { self.well }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_taps_and_another_gives_others() {
        let story = Story::slow_pricing();
        assert_eq!(story.taps(7), story.taps(7));
        assert_ne!(story.taps(7), story.taps(8));
        assert!(story.taps(7).len() > 50);
    }
}
