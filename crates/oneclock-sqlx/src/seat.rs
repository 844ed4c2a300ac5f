//! The seat of a borrowed connection: where it is, and what is known of the borrow as a whole.

use std::sync::Arc;
use std::task::Waker;

use oneclock::{Call, Ended};
use oneclock_core::{Outcome, Stage, Tick};

use crate::conn::Conn;
use crate::work::{Hand, Work};

pub(crate) struct Seat {
    pub(crate) place: Place,
    pub(crate) call: Option<Call>, // closed when the connection has gone back, or is lost
    pub(crate) depth: usize,       // as deep in transactions as somebody holds one
    pub(crate) rolls_back_to: Option<usize>, // a transaction was dropped, and its ROLLBACK is still to be sent
    pub(crate) began: Tick,        // the statement at work
    pub(crate) left: bool,         // the guard is gone
    pub(crate) unwanted: bool,     // what is at work was given up, and the guard was still there
    pub(crate) ended: Option<Ended>,
    pub(crate) told: Option<Outcome>, // of the work that the end took over
    pub(crate) tally: Tally,
    pub(crate) committing: Option<Arc<Hand>>,
    pub(crate) waker: Option<Waker>,
}

pub(crate) enum Place {
    Idle(Conn),
    AtWork(Work),
    /// With a reaper.
    Away,
    /// Back in the pool, or lost.
    Gone,
}

/// What is known of the borrow as a whole.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    applied: bool,
    last: Option<Outcome>,
    unknown: Option<Outcome>, // of a piece outside of a transaction: nothing that comes later tells more of it
    commit: Option<Outcome>,  // unknown, and may be found out
}

// === Seat ===

impl Seat {
    pub(crate) fn take(&mut self) -> Place {
        std::mem::replace(&mut self.place, Place::Gone)
    }

    pub(crate) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

// === Tally ===

impl Tally {
    /// Counts a piece of work. What happens in a transaction counts with its end; until then nothing of it stays.
    pub(crate) fn saw(&mut self, hand: &Hand, outcome: Outcome) {
        if hand.is_commit {
            self.ended(outcome);
        } else if hand.in_transaction {
            self.last = self.last.or(Some(Outcome::Rejected));
        } else if hand.is_statement || outcome != Outcome::Applied {
            self.count(outcome); // what only prepares or begins has done nothing yet
        }
    }

    /// A transaction came to its end, or it is found out how.
    pub(crate) fn ended(&mut self, outcome: Outcome) {
        self.commit = None;
        match outcome {
            Outcome::Unknown { .. } => self.commit = Some(outcome),
            _ => self.count(outcome),
        }
    }

    pub(crate) fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::NotSent if self.last.is_some() => {}
            Outcome::Applied => {
                self.applied = true;
                self.last = Some(outcome);
            }
            Outcome::Unknown { .. } => {
                self.unknown = Some(outcome);
                self.last = Some(outcome);
            }
            _ => self.last = Some(outcome),
        }
    }

    pub(crate) fn outcome(self) -> Outcome {
        match self.commit.or(self.unknown).or(self.last) {
            None => Outcome::NotSent,
            // A part of it was done, and only its caller knows what the rest would have been.
            Some(last) if self.applied && last != Outcome::Applied => Outcome::Unknown { stage: Stage::Work },
            Some(last) => last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d5_a_commit_of_which_nothing_is_known_is_not_told_as_rolled_back() {
        let unknown = Outcome::Unknown { stage: Stage::Wait };
        let mut tally = Tally::default();
        tally.ended(unknown);
        tally.count(Outcome::Rejected); // its transaction is dropped
        assert_eq!(tally.outcome(), unknown);
        tally.ended(Outcome::Applied); // found out
        assert_eq!(tally.outcome(), Outcome::Applied);
    }

    #[test]
    fn n1_what_is_unknown_of_a_part_is_unknown_of_the_whole() {
        for last in [Outcome::NotSent, Outcome::Rejected, Outcome::Failed, Outcome::Applied] {
            let mut tally = Tally::default();
            tally.count(Outcome::Unknown { stage: Stage::Wait });
            tally.count(last);
            assert!(matches!(tally.outcome(), Outcome::Unknown { .. }), "{last}");
        }
    }
}
