//! Keeps the refusals of the checks out of what is counted: on a quiet service they would be most of it.

use std::fmt;
use std::future::Future;

use oneclock::events::{AnswerHead, CallBegan, Event, Fields, Observer, RequestBegan, Slot, Target};

tokio::task_local! {
    static PROBING: ();
}

/// Runs what is sent by a check.
pub(super) fn probing<F: Future>(work: F) -> impl Future<Output = F::Output> {
    PROBING.scope((), work)
}

/// Does `work` as a part of a check: what is refused meanwhile is no news to [`WithoutProbes`]. For the far side of a check that
/// goes through a socket, which knows by itself that it is one: [`ReadinessBuilder::proof`](super::ReadinessBuilder::proof). Never
/// decide that by something that any caller can send.
pub fn as_probe<R>(work: impl FnOnce() -> R) -> R {
    PROBING.sync_scope((), work)
}

fn is_probing() -> bool {
    PROBING.try_with(|()| ()).is_ok()
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
        let of_a_check = matches!(event, Event::Refused(_)) && is_probing();
        if !of_a_check {
            self.0.on(event);
        }
    }

    fn request_began(&self, request: &RequestBegan<'_>) -> Slot {
        let of_a_check = request.budget.is_none() && is_probing();
        if of_a_check { Slot::default() } else { self.0.request_began(request) }
    }

    fn begun(&self, call: &CallBegan<'_>) -> Slot {
        self.0.begun(call)
    }

    fn carry(&self, slot: &Slot, fields: &mut dyn Fields) {
        self.0.carry(slot, fields);
    }

    fn addressed(&self, slot: &Slot, target: &Target<'_>) {
        self.0.addressed(slot, target);
    }

    fn answered(&self, slot: &Slot, answer: &AnswerHead<'_>) {
        self.0.answered(slot, answer);
    }
}

impl<O> fmt::Debug for WithoutProbes<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithoutProbes").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::Request;
    use http_body_util::Empty;
    use oneclock_core::Policy;
    use oneclock_http::IngressLayer;
    use tower_layer::Layer;
    use tower_service::Service;

    use super::*;

    /// Keeps what it hears, and its word beside each request.
    #[derive(Clone, Default)]
    struct Hears(Arc<Mutex<Vec<String>>>);

    impl Hears {
        fn hear(&self, what: String) {
            self.0.lock().unwrap().push(what);
        }
    }

    impl Observer for Hears {
        fn on(&self, event: &Event<'_>) {
            if let Event::Refused(refusal) = event {
                self.hear(format!("refused, beside {:?}", refusal.slot.get::<u8>()));
            }
        }

        fn request_began(&self, request: &RequestBegan<'_>) -> Slot {
            self.hear(format!("began {}", request.path));
            Slot::of(7_u8)
        }

        fn answered(&self, slot: &Slot, answer: &AnswerHead<'_>) {
            self.hear(format!("answered {}, beside {:?}", answer.status, slot.get::<u8>()));
        }
    }

    #[test]
    fn a_request_from_elsewhere_is_told_in_full_and_a_probe_not_at_all() {
        let hears = Hears::default();
        let policy = Policy::named("order").build().unwrap();
        let layer = IngressLayer::new(policy).observed_by(Arc::new(WithoutProbes::new(hears.clone())));
        let mut service = layer.layer(tower::service_fn(|_: Request<_>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(Empty::<bytes::Bytes>::new()))
        }));
        let spent =
            || Request::get("/orders/7").header("x-remaining-ms", "0").body(Empty::<bytes::Bytes>::new()).unwrap();
        drop(as_probe(|| service.call(spent())));
        assert_eq!(*hears.0.lock().unwrap(), Vec::<String>::new());
        drop(service.call(spent()));
        assert_eq!(
            *hears.0.lock().unwrap(),
            ["began /orders/7", "answered 504, beside Some(7)", "refused, beside Some(7)"]
        );
    }
}
