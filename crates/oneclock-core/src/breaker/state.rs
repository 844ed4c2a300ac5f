//! The state of a breaker in one word.
//!
//! Decides its layout: the phase, a moment in milliseconds (until when it is open or waits for its probe, or since when it is
//! closed), which turn it is, how often it has opened in a row, how many probes went well. One word, so that whoever changes
//! it has changed all of it.

use crate::Tick;

/// The most probes that can be counted.
pub(super) const MOST_PROBES: u8 = 15;
/// The most times in a row that are told apart.
pub(super) const MOST_AGAIN: u8 = 15;

const AT_BITS: u32 = 40; // 34 years of milliseconds
const TURN_BITS: u32 = 13;
const AT: u64 = (1 << AT_BITS) - 1;
const TURN: u64 = (1 << TURN_BITS) - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Closed,
    Open,
    Probing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) at: u64,
    pub(super) turn: u64,
    pub(super) again: u8,
    pub(super) probed: u8,
    pub(super) has_opened: bool,
}

/// A moment as a state keeps it.
pub(super) fn at(now: Tick) -> u64 {
    (now.as_nanos() / 1_000_000).min(AT)
}

impl State {
    pub(super) const fn of(word: u64) -> Self {
        Self {
            phase: match word & 3 {
                0 => Phase::Closed,
                1 => Phase::Open,
                _ => Phase::Probing,
            },
            has_opened: word >> 2 & 1 == 1,
            again: (word >> 3 & 0xF) as u8,
            probed: (word >> 7 & 0xF) as u8,
            turn: word >> 11 & TURN,
            at: word >> (11 + TURN_BITS) & AT,
        }
    }

    pub(super) const fn word(self) -> u64 {
        let phase = match self.phase {
            Phase::Closed => 0,
            Phase::Open => 1,
            Phase::Probing => 2,
        };
        phase
            | (self.has_opened as u64) << 2
            | (self.again as u64) << 3
            | (self.probed as u64) << 7
            | (self.turn & TURN) << 11
            | (self.at & AT) << (11 + TURN_BITS)
    }

    /// What began before is of no account from here on.
    pub(super) const fn next_turn(self) -> Self {
        Self { turn: (self.turn + 1) & TURN, ..self }
    }
}

impl Default for State {
    fn default() -> Self {
        Self { phase: Phase::Closed, at: 0, turn: 0, again: 0, probed: 0, has_opened: false }
    }
}
