//! What observers are told of a request: its head when it arrives, and that of its answer.
//!
//! Decides when: as soon as it is known that there will be an operation or a refusal, before anything waits; and for an answer,
//! with the head that leaves, before its operation is over. Nothing of it is done where nobody listens.

use std::sync::Arc;

use http::{HeaderMap, Request, StatusCode};
use oneclock::events::{self, AnswerHead, Event, Head, Observer, Refusal, RequestBegan, Slot};
use oneclock::{Driver, Operation};
use oneclock_core::Tick;

/// Fields, lent for a look.
pub(crate) struct Lent<'h>(pub(crate) &'h HeaderMap);

impl Head for Lent<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }

    fn all(&self, name: &str) -> Vec<&[u8]> {
        self.0.get_all(name).iter().map(http::HeaderValue::as_bytes).collect()
    }
}

/// A request is accepted. What an observer keeps beside it goes along in its extensions: a layer of ours further in asks for no
/// second one, and layers of observers find it there.
pub(super) fn accepted<B>(request: &mut Request<B>, operation: &Operation) {
    if request.extensions().get::<Slot>().is_some() {
        return; // an outer layer's: this is the same request
    }
    let fields = Lent(request.headers());
    let (name, method, path) = (operation.name(), request.method().as_str(), request.uri().path());
    let began = RequestBegan::new(name, operation.began(), method, path, &fields)
        .on_route(operation.route())
        .attempt(operation.attempt())
        .accepted(operation.budget());
    let slot = operation.request_began(&began);
    if !slot.is_empty() {
        operation.keep(slot.clone());
        request.extensions_mut().insert(slot);
    }
}

/// A request is refused, and this is its answer.
pub(super) fn refused<B, A>(
    request: &Request<B>,
    (arrived, attempt): (Tick, u32),
    refusal: Refusal,
    answer: &http::Response<A>,
    observer: Option<&Arc<dyn Observer>>,
) {
    let slot = match request.extensions().get::<Slot>() {
        Some(_) => Slot::default(), // what is beside the outer layer's operation is the request's
        None => {
            let fields = Lent(request.headers());
            let (method, path) = (request.method().as_str(), request.uri().path());
            let began = RequestBegan::new(&refusal.operation, arrived, method, path, &fields);
            events::request_began(observer, &began.on_route(refusal.route.as_ref()).attempt(attempt))
        }
    };
    let head = Lent(answer.headers());
    events::answered(observer, &slot, &AnswerHead::new(answer.status().as_u16(), &head));
    events::send(observer, &Event::Refused(&refusal.keeping(slot)));
}

/// An answer leaves with this head. Before its driver goes.
pub(super) fn answered(driver: &Driver, status: StatusCode, headers: &HeaderMap) {
    let operation = driver.operation();
    if let Some(slot) = operation.slot() {
        operation.tell_answered(slot, &AnswerHead::new(status.as_u16(), &Lent(headers)));
    }
}
