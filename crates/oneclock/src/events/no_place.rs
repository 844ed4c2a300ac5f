//! Why an operation that waited for its turn never started.
//!
//! Decides how that reads from what its event has anyhow: where and why it ended, and what its caller was told.

use oneclock_core::admission::Why;
use oneclock_core::{Cause, Importance, Reason, Stage};

use super::OperationEnded;

impl OperationEnded<'_> {
    /// Why a request that waited for its turn never started; `None` for everything else. Those that were refused as they arrived
    /// are in [`Refusal::admission`](super::Refusal::admission).
    ///
    /// Who had to make room counts by how much its caller needed it: [`Why::Full`] if it was required, else [`Why::Optional`].
    /// One whose time ran out while it waited is [`Why::Expired`], also where it had its place, or needed none, and the service
    /// below was not ready.
    pub fn not_admitted(&self) -> Option<Why> {
        let ending = self.ending.filter(|ending| ending.stage == Stage::Queue)?;
        match (ending.cause, self.answered?) {
            (Cause::Deadline, Reason::ExpiredBeforeStart) => Some(Why::Expired),
            (Cause::Shed, Reason::InsufficientBudget) => Some(Why::Doomed),
            (Cause::Shed, Reason::Shed) if self.importance == Importance::Optional => Some(Why::Optional),
            (Cause::Shed, Reason::Shed) => Some(Why::Full),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oneclock_core::{Bound, BoundBy, Deadline, Ending, Ledger, Tick};

    use super::*;
    use crate::events::Slot;
    use crate::operation::Kind;

    #[track_caller]
    fn reads(cause: Cause, stage: Stage, answered: Reason, importance: Importance, want: Option<Why>) {
        let (ledger, slot, at) = (Ledger::new(Tick::default()), Slot::default(), Tick::default());
        let ended = OperationEnded {
            operation: &"order".into(),
            kind: Kind::Request,
            parent: None,
            route: None,
            deadline: Deadline::at(at),
            bound: Bound { by: BoundBy::Caller, limit: Duration::ZERO },
            ending: Some(Ending { cause, bound: BoundBy::Caller, stage, at }),
            answered: Some(answered),
            importance,
            elapsed: Duration::ZERO,
            ledger: &ledger,
            goes_on: false,
            slot: &slot,
            nearest_slot: &slot,
        };
        assert_eq!(ended.not_admitted(), want, "{ended:?}");
    }

    #[test]
    fn only_what_never_left_the_queue_was_not_admitted() {
        use Importance::{Optional, Required};
        reads(Cause::Deadline, Stage::Queue, Reason::ExpiredBeforeStart, Required, Some(Why::Expired));
        reads(Cause::Shed, Stage::Queue, Reason::InsufficientBudget, Required, Some(Why::Doomed));
        reads(Cause::Shed, Stage::Queue, Reason::InsufficientBudget, Optional, Some(Why::Doomed));
        reads(Cause::Shed, Stage::Queue, Reason::Shed, Required, Some(Why::Full));
        reads(Cause::Shed, Stage::Queue, Reason::Shed, Optional, Some(Why::Optional));
        // A handler that sheds itself, one that had begun, and a shutdown.
        reads(Cause::Shed, Stage::Work, Reason::Shed, Required, None);
        reads(Cause::Deadline, Stage::Queue, Reason::Deadline, Required, None);
        reads(Cause::Shutdown, Stage::Queue, Reason::Shutdown, Required, None);
    }
}
