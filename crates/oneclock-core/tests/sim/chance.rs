//! Where the numbers come from: one small generator, so that a seed says everything, and the shapes of service times.

use std::f64::consts::TAU;
use std::time::Duration;

/// A generator of 64 bits (splitmix64): a few lines, no dependency, the same figures for the same seed.
pub(crate) struct Chance(u64);

/// How long one piece of work takes. All means are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Service {
    /// Logarithm of it is normal: mean, and standard deviation over mean.
    LogNormal(f64, f64),
    Exponential(f64),
    /// Nine in ten take the first, one in ten takes the second.
    Bimodal(f64, f64),
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly from (0, 1]: never zero, since its logarithm is taken.
    fn part(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn below(&mut self, many: usize) -> usize {
        (self.bits() % many as u64) as usize
    }

    /// The time until the next arrival of a Poisson process with that many in a second.
    pub(crate) fn gap(&mut self, per_second: f64) -> u64 {
        (-self.part().ln() / per_second * 1e9) as u64
    }

    /// What one piece of work takes, in nanoseconds; at least one.
    pub(crate) fn takes(&mut self, service: Service) -> u64 {
        let millis = match service {
            Service::LogNormal(mean, cv) => {
                let variance = (1.0 + cv * cv).ln();
                let normal = (-2.0 * self.part().ln()).sqrt() * (TAU * self.part()).cos();
                (mean.ln() - variance / 2.0 + variance.sqrt() * normal).exp()
            }
            Service::Exponential(mean) => -self.part().ln() * mean,
            Service::Bimodal(usual, rare) => [usual, rare][usize::from(self.part() <= 0.1)],
        };
        ((millis * 1e6) as u64).max(1)
    }
}

impl Service {
    pub(crate) fn mean(self) -> Duration {
        let millis = match self {
            Self::LogNormal(mean, _) | Self::Exponential(mean) => mean,
            Self::Bimodal(usual, rare) => 0.9 * usual + 0.1 * rare,
        };
        Duration::from_secs_f64(millis / 1e3)
    }
}
