//! What is said of an upstream that fails, to whoever reads the log of the process.
//!
//! Decides that it is said whoever asked, also where there is no access log, and that an upstream which is away is no flood:
//! once a second for each upstream, with how many failures before that were not told.

use std::sync::atomic::{AtomicU64, Ordering};

use oneclock::{Operation, clock};
use oneclock_core::Tick;
use oneclock_http::CallError;

use crate::control::said;

/// The failures of one upstream.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    next: AtomicU64, // the second from which on one is told, counted as ticks are
    untold: AtomicU64,
}

impl Failures {
    /// A call failed while there was time.
    pub(crate) fn failed(&self, error: &CallError) {
        let Some(untold) = self.tells(clock::now()) else { return };
        // The call is over; where it was is in the ledger of what made it.
        let ledger = Operation::current().map(|operation| operation.ledger());
        let stage = ledger.as_ref().and_then(|ledger| ledger.entries().last()).map(|entry| entry.stage.as_str());
        let untold = Some(untold).filter(|untold| *untold > 0);
        tracing::warn!(stage, untold, "{}", said(error));
    }

    /// How many were not told before one that is told now; `None` if it is not.
    fn tells(&self, now: Tick) -> Option<u64> {
        let second = now.as_nanos() / 1_000_000_000;
        if self.next.fetch_max(second + 1, Ordering::Relaxed) > second {
            self.untold.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.untold.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_a_second_is_told_with_how_many_were_not() {
        let failures = Failures::default();
        let at = |ms| Tick::from_nanos(0) + Duration::from_millis(ms);
        let told = [0, 1, 999, 1_000, 1_500, 900, 7_000].map(|ms| failures.tells(at(ms)));
        assert_eq!(told, [Some(0), None, None, Some(2), None, None, Some(2)]);
    }
}
