//! Whether a process grows: what it holds, sampled, and the line through the samples.
//!
//! Decides what flat is: what the line rises from the end of the warm-up to the last sample is at most [`GROWTH`]. An
//! allocator's own ups and downs are within that; at a thousand requests a second a leak of ten bytes for each is not.

use std::time::Duration;

use serde_json::{Value, json};

/// The part of a run in which buffers, pools and series come to be.
const WARM_UP: f64 = 0.25;
/// How much may be added after it, in bytes.
const GROWTH: f64 = 4.0 * 1024.0 * 1024.0;

/// What the process holds at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    pub(super) at: Duration,
    /// Resident, in bytes.
    pub(super) resident: u64,
    pub(super) descriptors: usize,
}

/// The line through the samples after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Line {
    /// Bytes a minute.
    pub(super) slope: f64,
    /// Over all of it, in bytes.
    pub(super) rises: f64,
    pub(super) samples: usize,
}

impl Line {
    /// `None` with too few samples to draw one.
    pub(super) fn through(samples: &[Held]) -> Option<Self> {
        let all = samples.last()?.at.as_secs_f64();
        let points = samples.iter().map(|held| (held.at.as_secs_f64(), held.resident as f64));
        let points: Vec<(f64, f64)> = points.filter(|(at, _)| *at >= all * WARM_UP).collect();
        if points.len() < 3 {
            return None;
        }
        let many = points.len() as f64;
        let (mean_at, mean) =
            points.iter().fold((0.0, 0.0), |(at, held), point| (at + point.0 / many, held + point.1 / many));
        let (mut together, mut apart) = (0.0, 0.0);
        for (at, held) in &points {
            together += (at - mean_at) * (held - mean);
            apart += (at - mean_at).powi(2);
        }
        let slope = together / apart;
        Some(Self { slope: slope * 60.0, rises: slope * all * (1.0 - WARM_UP), samples: points.len() })
    }

    pub(super) fn finding(self) -> Option<String> {
        let mib = |bytes: f64| bytes / 1024.0 / 1024.0;
        (self.rises > GROWTH).then(|| {
            format!("memory rises by {:.1} MiB after the warm-up, at most {:.0} may be", mib(self.rises), mib(GROWTH))
        })
    }
}

pub(super) fn json(samples: &[Held]) -> Value {
    let sample = |held: &Held| json!({ "at_s": held.at.as_secs_f64(), "resident": held.resident, "descriptors": held.descriptors });
    samples.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(bytes: impl Fn(u64) -> u64) -> Vec<Held> {
        let at = |step: u64| Held { at: Duration::from_secs(5 * step), resident: bytes(step), descriptors: 0 };
        (0..=120).map(at).collect()
    }

    #[test]
    fn a_warm_up_and_ups_and_downs_are_flat_and_a_small_leak_is_not() {
        const MIB: u64 = 1 << 20;
        let warm = held(|step| if step < 20 { step * MIB } else { 20 * MIB + (step % 2) * MIB });
        let line = Line::through(&warm).unwrap();
        assert!(line.finding().is_none(), "{line:?}");
        let leaks = held(|step| 20 * MIB + step * 5 * 1_000 * 10); // ten bytes for each of a thousand a second
        let line = Line::through(&leaks).unwrap();
        assert!(line.finding().is_some(), "{line:?}");
        assert_eq!(line.slope.round(), 600_000.0);
        assert_eq!(Line::through(&leaks[..2]), None);
    }
}
