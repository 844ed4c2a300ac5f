//! Keeps the refusals of the checks out of what is counted: on a quiet service they would be most of it.

use std::fmt;
use std::future::Future;

use oneclock::events::{CallBegan, Event, Fields, Observer, Slot};

tokio::task_local! {
    static PROBING: ();
}

/// Runs what is sent by a check.
pub(super) fn probing<F: Future>(work: F) -> impl Future<Output = F::Output> {
    PROBING.scope((), work)
}

/// Tells an observer all that happens, but for what the checks of readiness have refused: every 30 s a request for each field
/// that a layer reads.
///
/// What a stack hands to a task of its own in front of the layer (a `Buffer`) is told all the same.
///
/// ```
/// use oneclock_telemetry::{Logs, readiness::WithoutProbes};
/// # fn main() -> Result<(), oneclock::events::AlreadyObserved> {
/// oneclock::events::observe_globally(std::sync::Arc::new(WithoutProbes::new(Logs::new())))?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct WithoutProbes<O>(O);

impl<O: Observer> WithoutProbes<O> {
    /// Tells `observer` the rest.
    pub const fn new(observer: O) -> Self {
        Self(observer)
    }
}

impl<O: Observer> Observer for WithoutProbes<O> {
    fn on(&self, event: &Event<'_>) {
        let of_a_check = matches!(event, Event::Refused(_)) && PROBING.try_with(|()| ()).is_ok();
        if !of_a_check {
            self.0.on(event);
        }
    }

    fn begun(&self, call: &CallBegan<'_>) -> Slot {
        self.0.begun(call)
    }

    fn carry(&self, slot: &Slot, fields: &mut dyn Fields) {
        self.0.carry(slot, fields);
    }
}

impl<O> fmt::Debug for WithoutProbes<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithoutProbes").finish_non_exhaustive()
    }
}
