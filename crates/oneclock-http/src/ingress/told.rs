//! What observers are told of a request: its head when it arrives, and that of its answer.
//!
//! Decides when: as soon as it is known that there will be an operation or a refusal, before anything waits; and for an answer,
//! with the head that leaves, before its operation is over. Nothing of it is done where nobody listens.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use oneclock::events::{self, AnswerHead, Event, Head, Observer, Refusal, RequestBegan, Slot};
use oneclock::{Driver, Operation};
use oneclock_core::ingress::Accepted;
use oneclock_core::{Name, Tick};

use crate::protocol::Protocol;

/// Fields, lent for a look.
pub(crate) struct Lent<'h>(pub(crate) &'h HeaderMap);

/// What observers ask of every request, to be looked up without being parsed again.
static ASKED: [HeaderName; 3] = [
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-request-id"),
];

impl Head for Lent<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let value = match ASKED.iter().find(|asked| asked.as_str() == name) {
            Some(asked) => self.0.get(asked),
            None => self.0.get(name),
        };
        value?.to_str().ok()
    }

    fn all(&self, name: &str) -> Vec<&[u8]> {
        let values = match ASKED.iter().find(|asked| asked.as_str() == name) {
            Some(asked) => self.0.get_all(asked),
            None => self.0.get_all(name),
        };
        values.iter().map(HeaderValue::as_bytes).collect()
    }
}

/// A request is accepted. What an observer keeps beside it goes along in its extensions: a layer of ours further in asks for no
/// second one, and layers of observers find it there.
pub(super) fn accepted<B>(
    request: &mut Request<B>,
    operation: &Operation,
    accepted: &Accepted<'_>,
    protocol: Protocol,
) {
    if request.extensions().get::<Slot>().is_some() {
        return; // an outer layer's: this is the same request
    }
    let fields = Lent(request.headers());
    let (name, method, path) = (operation.name(), request.method().as_str(), request.uri().path());
    let began = RequestBegan::new(name, operation.began(), method, path, &fields)
        .on_route(operation.route())
        .attempt(operation.attempt())
        .spoken_in(protocol.over(request.version()))
        .told_by(accepted.source)
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
    (arrived, attempt, protocol, source): (Tick, u32, Protocol, Option<&Name>),
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
            let began = began.spoken_in(protocol.over(request.version())).attempt(attempt);
            events::request_began(observer, &began.told_by(source).on_route(refusal.route.as_ref()))
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
