//! Who is told and asked: one observer of an operation's own, or that of the process.
//!
//! Decides that a panic of an observer stays with it.

use std::sync::{Arc, OnceLock};

use super::{AnswerHead, CallBegan, Event, RequestBegan, Slot, Target};

/// The fields that a call is about to send, as an [`Observer`] sees and sets them.
pub trait Fields {
    /// The value of a field that is there, if it is text. Of several, the first.
    fn get(&self, name: &str) -> Option<&str>;

    /// Sets a field, in place of those of this name.
    fn set(&mut self, name: &'static str, value: &str);

    /// Removes a field.
    fn remove(&mut self, name: &'static str);
}

/// Receives events. Called from guards: it must be quick. A panic of its own is logged, and the event is lost to it. Closures that take an [`Event`] are observers.
pub trait Observer: Send + Sync + 'static {
    /// One event.
    fn on(&self, event: &Event<'_>);

    /// A request arrived, and is accepted or refused. Asked once for each, by the outermost ingress layer, before any of its work
    /// begins. What this returns is kept beside its operation, and comes back in [`OperationEnded::slot`](super::OperationEnded::slot), also where a
    /// service below never became ready; beside one that is refused it comes back in [`Refusal::slot`](super::Refusal::slot) at once.
    fn request_began(&self, request: &RequestBegan<'_>) -> Slot {
        let _ = request;
        Slot::default()
    }

    /// A call begins. What this returns is kept beside the call, and comes back in [`Called::slot`](super::Called::slot).
    fn begun(&self, call: &CallBegan<'_>) -> Slot {
        let _ = call;
        Slot::default()
    }

    /// A call is about to be sent: sets the fields that carry what is in its slot to the far side, `traceparent` for
    /// example. What the application had put there itself stands in `fields`, and so do copies of what arrived.
    fn carry(&self, slot: &Slot, fields: &mut dyn Fields) {
        let _ = (slot, fields);
    }

    /// What the call with this slot asks, and of whom. Before it is sent, and only for calls over HTTP.
    fn addressed(&self, slot: &Slot, target: &Target<'_>) {
        let _ = (slot, target);
    }

    /// The head of an answer is known: as it leaves, where the slot is a request's, as it came, where it is a call's. For a call
    /// over gRPC this is asked a second time when the trailers come, as if they were the head of an answer of trailers only:
    /// status 200, with the fields `content-type: application/grpc` and `grpc-status`.
    fn answered(&self, slot: &Slot, answer: &AnswerHead<'_>) {
        let _ = (slot, answer);
    }
}

impl<F> Observer for F
where
    F: Fn(&Event<'_>) + Send + Sync + 'static,
{
    fn on(&self, event: &Event<'_>) {
        self(event);
    }
}

/// The process has a global observer already. That one stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process has a global observer already, which stays: call observe_globally once, when the process starts")]
#[non_exhaustive]
pub struct AlreadyObserved;

/// Sends the events of every operation that has no observer of its own to `observer`, for the life of the process.
///
/// ```
/// use oneclock::events::{Event, observe_globally};
///
/// # fn main() -> Result<(), oneclock::events::AlreadyObserved> {
/// observe_globally(std::sync::Arc::new(|event: &Event<'_>| eprintln!("{event}")))?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`AlreadyObserved`], if there is one already.
pub fn observe_globally(observer: Arc<dyn Observer>) -> Result<(), AlreadyObserved> {
    GLOBAL.set(observer).map_err(|_| AlreadyObserved)
}

/// That observer, for who puts another one beside it.
pub fn global_observer() -> Option<Arc<dyn Observer>> {
    GLOBAL.get().cloned()
}

static GLOBAL: OnceLock<Arc<dyn Observer>> = OnceLock::new();

/// Sends one event to an operation's observer, or to the global one. For layers and drivers.
pub fn send(observer: Option<&Arc<dyn Observer>>, event: &Event<'_>) {
    if let Some(observer) = observer.or_else(|| GLOBAL.get()) {
        caught(|| observer.on(event));
    }
}

/// Events are sent from destructors, also while a panic unwinds: an observer that panics there would take the process down.
fn caught<T: Default>(observe: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(observe)).unwrap_or_else(|_| {
        tracing::error!("an observer of events panicked; the event is lost to it");
        T::default()
    })
}

/// Asks an operation's observer, or the global one, what to keep beside a call that begins.
pub(crate) fn begun(observer: Option<&Arc<dyn Observer>>, call: &CallBegan<'_>) -> Slot {
    observer.or_else(|| GLOBAL.get()).map_or_else(Slot::default, |observer| caught(|| observer.begun(call)))
}

/// Asks it what to send with a call.
pub(crate) fn carry(observer: Option<&Arc<dyn Observer>>, slot: &Slot, fields: &mut dyn Fields) {
    if let Some(observer) = observer.or_else(|| GLOBAL.get()) {
        caught(|| observer.carry(slot, fields));
    }
}

/// Asks an observer, or the global one, what to keep beside a request that arrived. For layers.
pub fn request_began(observer: Option<&Arc<dyn Observer>>, request: &RequestBegan<'_>) -> Slot {
    observer.or_else(|| GLOBAL.get()).map_or_else(Slot::default, |observer| caught(|| observer.request_began(request)))
}

/// Tells it what a call asks.
pub(crate) fn addressed(observer: Option<&Arc<dyn Observer>>, slot: &Slot, target: &Target<'_>) {
    if let Some(observer) = observer.or_else(|| GLOBAL.get()) {
        caught(|| observer.addressed(slot, target));
    }
}

/// Tells it the head of an answer, if something is kept in `slot`. For layers.
pub fn answered(observer: Option<&Arc<dyn Observer>>, slot: &Slot, answer: &AnswerHead<'_>) {
    if let Some(observer) = observer.or_else(|| GLOBAL.get()).filter(|_| !slot.is_empty()) {
        caught(|| observer.answered(slot, answer));
    }
}

/// Whether anybody listens; events that are costly to make ask first. For layers and drivers.
pub fn is_observed(observer: Option<&Arc<dyn Observer>>) -> bool {
    observer.is_some() || GLOBAL.get().is_some()
}
