//! What the engine keeps of everybody, and what it has still to do.

use std::cmp::Ordering;

use oneclock_core::retry::Tokens;

use crate::control::Id;
use crate::world::SECOND;

/// What somebody wants from the first tier, with all its attempts.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) stream: usize,
    pub(crate) at: u64,
    pub(crate) deadline: u64,
    pub(crate) leaves: u64,
    pub(crate) ended: Option<u64>,
    pub(crate) ok: bool,
    /// Slots' time that was spent for it, at all tiers.
    pub(crate) spent: u64,
    pub(crate) call: Call,
}

/// One attempt at one tier.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) root: usize,
    pub(crate) tier: usize,
    pub(crate) replica: usize,
    pub(crate) by: By,
    pub(crate) phase: Phase,
    pub(crate) started: u64,
    pub(crate) call: Call,
}

/// A call to the next tier: its attempts, and the one that is waited for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    pub(crate) tries: u32,
    pub(crate) current: Option<Id>,
    pub(crate) last: usize, // the replica that was asked last
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Root(usize),
    Job(Id),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Waits,
    Runs,
    Calls,
    Over,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Arrives(usize),
    Tries(By),
    Served(Id),
    Look(Id),
    TryOver(Id),
    Leaves(usize),
}

/// In the heap by its moment, then by its number.
pub(crate) struct Due(pub(crate) u128, pub(crate) Event);

/// One way from a caller to a tier: what was asked, and what was sent.
#[derive(Default)]
pub(crate) struct Hop {
    pub(crate) calls: Vec<u64>,    // by second
    pub(crate) attempts: Vec<u64>, // by second
    pub(crate) tokens: Tokens,
}

// === Hop ===

impl Hop {
    pub(crate) fn sent(&mut self, now: u64, first: bool) {
        let second = (now / SECOND) as usize;
        if self.attempts.len() <= second {
            self.attempts.resize(second + 1, 0);
            self.calls.resize(second + 1, 0);
        }
        self.attempts[second] += 1;
        self.calls[second] += u64::from(first);
    }
}

// === Due ===

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}
