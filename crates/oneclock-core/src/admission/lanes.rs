//! That no sort of work, and no sort of budget, is starved in silence by an estimate.
//!
//! Decides by counting, for each lane (a sort of work with about so much left), how many asked and how many were admitted while
//! places were scarce. A lane that gets less than three quarters of what all together get is short: what an estimate says
//! against it does not count until it has caught up. (Three quarters of the starts, so that half of the answers remain of
//! work of which one in four misses.)

use std::time::Duration;

const LANES: usize = 64;
/// After this many all counts are halved.
const MOST: u32 = 1_024;
/// With fewer, a lane's share means nothing.
const LEAST: u32 = 4;

pub(super) struct Lanes {
    lanes: [Lane; LANES],
    all: Lane,
}

#[derive(Clone, Copy, Default)]
struct Lane {
    asked: u32,
    admitted: u32,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self { lanes: [Lane::default(); LANES], all: Lane::default() }
    }

    /// The lane of work of sort `class` with this much left: budgets within a factor of two are of one lane.
    pub(super) fn of(class: u32, remaining: Duration) -> usize {
        let millis = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX);
        let octave = (millis + 1).ilog2();
        let mixed = u64::from(class * 64 + octave).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 58) as usize
    }

    pub(super) fn arrived(&mut self, lane: usize) {
        self.lanes[lane].asked += 1;
        self.all.asked += 1;
        if self.all.asked >= MOST {
            self.lanes.iter_mut().for_each(Lane::halve);
            let sum = |of: fn(&Lane) -> u32| self.lanes.iter().map(of).sum();
            self.all = Lane { asked: sum(|lane| lane.asked), admitted: sum(|lane| lane.admitted) };
        }
    }

    pub(super) fn admitted(&mut self, lane: usize) {
        self.lanes[lane].admitted += 1;
        self.all.admitted += 1;
    }

    /// Whether a lane gets too little: admitted / asked < 3/4 of that of all.
    pub(super) fn is_short(&self, lane: usize) -> bool {
        let Lane { asked, admitted } = self.lanes[lane];
        let product = |of: u32, by: u32| u64::from(of) * u64::from(by);
        asked >= LEAST && 4 * product(admitted, self.all.asked) < 3 * product(asked, self.all.admitted)
    }
}

impl Lane {
    fn halve(&mut self) {
        self.asked /= 2;
        self.admitted /= 2;
    }
}
