//! What the queues of one queue are called.

use lapin::types::ShortString;

use super::Trouble;
use crate::Lane;

/// The queues behind one queue: its lanes, and where what comes again later waits.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    main: ShortString,
    late: ShortString,
    dead: ShortString,
    main_wait: ShortString,
    late_wait: ShortString,
}

impl Queues {
    pub(super) fn of(queue: &str) -> Result<Self, Trouble> {
        let named = |suffix: &str| ShortString::try_new(format!("{queue}{suffix}")).map_err(|_| Trouble::NameTooLong);
        if queue.is_empty() {
            return Err(Trouble::NoName);
        }
        Ok(Self {
            main: named("")?,
            late: named(".late")?,
            dead: named(".dead")?,
            main_wait: named(".wait")?,
            late_wait: named(".late.wait")?,
        })
    }

    pub(super) const fn lane(&self, lane: Lane) -> &ShortString {
        match lane {
            Lane::Main => &self.main,
            Lane::Late => &self.late,
            Lane::Dead => &self.dead,
        }
    }

    /// Where what comes again in this lane waits. What is dead waits for nothing.
    pub(super) const fn wait(&self, lane: Lane) -> &ShortString {
        match lane {
            Lane::Main => &self.main_wait,
            Lane::Late => &self.late_wait,
            Lane::Dead => &self.dead,
        }
    }
}
