//! The body of an answer on its way in.
//!
//! Decides that an answer is whole only where the far side said so (contract X3): over HTTP/2 its stream was ended, and not reset
//! with whatever code.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::upload::Lease;
use crate::body::BoxError;

/// The body of an answer as it comes from the connection. Dropped before its end, it cuts the exchange off: over HTTP/2
/// the stream is reset with CANCEL, over HTTP/1.1 the connection is closed.
#[must_use = "bodies do nothing unless polled"]
#[derive(Debug)]
pub struct Received {
    body: Arriving,
    _lease: Lease, // after the body: that is dropped first
}

/// The same for whoever holds its connection. Not part of the promise of this crate.
#[doc(hidden)]
#[must_use = "bodies do nothing unless polled"]
#[derive(Debug)]
pub struct Arriving {
    body: Incoming,
    http2: bool,
}

/// The far side reset its stream before the end of its answer, or left, and called that no error. hyper takes it for the end, as
/// it is behind a whole answer (RFC 9113 section 8.1); nothing says here that this one was whole (contract X3).
///
/// No error of h2 stands behind it: hyper would say its code to our own caller, who would take it for the end as well.
#[derive(Debug, thiserror::Error)]
#[error("the far side ended its answer in the middle, and called that no error (NO_ERROR)")]
pub(crate) struct EndedEarly;

impl Received {
    pub(super) fn new(body: Incoming, lease: Lease) -> Self {
        Self { body: Arriving::new(body, lease.stream.is_some()), _lease: lease }
    }
}

impl Arriving {
    /// `http2`: over HTTP/2.
    #[doc(hidden)]
    pub fn new(body: Incoming, http2: bool) -> Self {
        Self { body, http2 }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() && self.http2 && !self.body.is_end_stream() {
            return Poll::Ready(Some(Err(EndedEarly.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
