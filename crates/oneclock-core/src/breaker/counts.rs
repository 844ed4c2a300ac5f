//! How many calls there were within the window, and how many of them failed.
//!
//! Decides how it is kept: a ring of ten words, each the counts of a tenth of the window. A word says itself which tenth it
//! counts, and of which turn of being closed: what failed before it opened is of no account when it has closed again.

use std::time::Duration;

use crate::Tick;
use crate::word::Word;

const TENTHS: u64 = 10;
const COUNT_BITS: u32 = 18;
const MOST: u64 = (1 << COUNT_BITS) - 1;
const NUMBER_BITS: u32 = 15;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

pub(super) struct Counts<W> {
    span: u64,
    slots: [W; TENTHS as usize], // turn, number, calls, failures
}

impl<W: Word> Counts<W> {
    pub(super) fn new(window: Duration) -> Self {
        let span = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX) / TENTHS;
        Self { span: span.max(1), slots: std::array::from_fn(|_| W::holding(0)) }
    }

    /// How many calls there were in this turn, and how many of them failed.
    pub(super) fn sums(&self, turn: u64, now: Tick) -> (u64, u64) {
        let current = now.as_nanos() / self.span;
        let (mut calls, mut failures) = (0, 0);
        for back in 0..TENTHS {
            let Some(number) = current.checked_sub(back) else { break };
            let word = self.slots[(number % TENTHS) as usize].read();
            if word >> (2 * COUNT_BITS) == head(turn, number) {
                calls += word >> COUNT_BITS & MOST;
                failures += word & MOST;
            }
        }
        (calls, failures)
    }

    /// Counts one call of this turn.
    pub(super) fn add(&self, turn: u64, failed: bool, now: Tick) {
        let number = now.as_nanos() / self.span;
        let slot = &self.slots[(number % TENTHS) as usize];
        let head = head(turn, number);
        let mut before = slot.read();
        loop {
            let (mut calls, mut failures) = (0, 0);
            if before >> (2 * COUNT_BITS) == head {
                (calls, failures) = (before >> COUNT_BITS & MOST, before & MOST);
            }
            if calls == MOST {
                (calls, failures) = (calls / 2, failures / 2); // the share stays
            }
            let after = head << (2 * COUNT_BITS) | (calls + 1) << COUNT_BITS | (failures + u64::from(failed));
            match slot.swap_if(before, after) {
                Ok(()) => return,
                Err(instead) => before = instead,
            }
        }
    }
}

const fn head(turn: u64, number: u64) -> u64 {
    (turn & 0x1FFF) << NUMBER_BITS | number & NUMBER
}
