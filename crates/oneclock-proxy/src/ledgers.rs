//! What is told of a request that ran out of time, beside where its time went: which one it was.
//!
//! Decides that it is the method, the path without its query, which may hold secrets, and the trace, as for what is under way. It
//! is kept while the request is, since nobody knows before its end how that will be.

use http::Method;
use oneclock::events::{Event, Observer, RequestBegan, Slot};
use oneclock_telemetry::Ring;
use oneclock_telemetry::trace::trace_in;

use crate::shortened::shortened;

/// Of a path this much is kept, in bytes: it is for the eye.
pub(crate) const PATH: usize = 200;

/// Remembers of each request which one it is. An observer.
#[derive(Debug)]
pub(crate) struct Heads;

/// One request.
#[derive(Debug)]
struct Head {
    method: Method,
    path: Box<str>,
    trace: Option<u128>,
}

/// The last ones that a deadline ended, each with its head.
pub(crate) fn ring() -> Ring {
    Ring::new().telling(|slot| {
        let Some(Head { method, path, trace }) = slot.get() else { return Vec::new() };
        let trace = trace.map(|trace| ("trace_id", format!("{trace:032x}").into()));
        [("method", method.as_str().into()), ("path", (**path).into())].into_iter().chain(trace).collect()
    })
}

impl Observer for Heads {
    fn on(&self, _: &Event<'_>) {}

    fn request_began(&self, request: &RequestBegan<'_>) -> Slot {
        if request.budget.is_none() {
            return Slot::default(); // it is refused, and over
        }
        Slot::of(Head {
            method: Method::from_bytes(request.method.as_bytes()).unwrap_or_default(),
            path: shortened(request.path, PATH),
            trace: trace_in(request.fields).and_then(|trace| u128::from_str_radix(trace, 16).ok()),
        })
    }
}
