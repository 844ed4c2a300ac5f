//! For how long a delivery is ours.
//!
//! Decides when a heartbeat is due (a third of the lease, so that two may be lost), from when its answer counts (from when it
//! was asked, since the broker may have answered late), and whether an acknowledgement may still be said: a worker that slept
//! past its lease finds that somebody else has the work, and says nothing. On the monotonic clock, which steps of the wall
//! clock do not touch.

use std::time::Duration;

use crate::Tick;

/// A delivery is ours until its lease is over.
///
/// ```
/// # use oneclock_core::{Tick, expiry::Lease}; use std::time::Duration;
/// let (start, secs) = (Tick::from_nanos(0), Duration::from_secs);
/// let mut lease = Lease::new(secs(30), start);
/// assert_eq!(lease.heartbeat_at(), start + secs(10));
/// lease.renewed(start + secs(10));
/// assert!(lease.holds(start + secs(39)));
/// assert!(!lease.holds(start + secs(40)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    length: Duration,
    from: Tick,
    lost: bool,
}

impl Lease {
    /// A lease of this length on what was asked for at `asked`.
    pub const fn new(length: Duration, asked: Tick) -> Self {
        Self { length, from: asked, lost: false }
    }

    /// When it is to be renewed.
    pub fn heartbeat_at(&self) -> Tick {
        self.from + self.length / 3
    }

    /// When it is over unless it is renewed.
    pub fn until(&self) -> Tick {
        self.from + self.length
    }

    /// It was renewed, by what was asked for at `asked`.
    pub fn renewed(&mut self, asked: Tick) {
        self.from = self.from.max(asked);
    }

    /// The broker says that it is somebody else's. It never comes back.
    pub const fn lost(&mut self) {
        self.lost = true;
    }

    /// Whether it is ours at `now`.
    pub fn holds(&self, now: Tick) -> bool {
        !self.lost && now < self.until()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_came_late_does_not_lengthen_it() {
        let (start, secs) = (Tick::from_nanos(1), Duration::from_secs);
        let mut lease = Lease::new(secs(30), start);
        lease.renewed(start + secs(10)); // however long its answer took
        assert_eq!(lease.until(), start + secs(40));
        lease.renewed(start + secs(5)); // an older one that was overtaken
        assert_eq!(lease.until(), start + secs(40));
    }

    #[test]
    fn what_is_lost_stays_lost() {
        let start = Tick::from_nanos(1);
        let mut lease = Lease::new(Duration::from_secs(30), start);
        lease.lost();
        lease.renewed(start + Duration::from_secs(1));
        assert!(!lease.holds(start + Duration::from_secs(2)));
    }
}
