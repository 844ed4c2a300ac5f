//! What the far side answered, as tonic's client reads it.
//!
//! Decides what of it goes on: a status is made here and not by tonic, so that it keeps what is known of its call as its
//! source, and so that no field of it speaks for whoever passes it on (`Answered`).

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body, Frame, SizeHint};
use oneclock_core::Reason;
use oneclock_http::{AnswerGivenUp, BoundedBody, BoxError, names};
use tonic::{Code, Status};

use crate::fields::DETAILS;
use crate::status::{self, Answered};
use crate::{details, fields};

/// The body of an answer to a call through [`ClientLayer`](crate::ClientLayer): its messages and trailers, under the
/// deadline of the call. Its error is a [`Status`].
#[must_use = "bodies do nothing unless polled"]
pub struct ClientAnswer<A> {
    body: BoundedBody<A>,
    over: bool,
}

/// The answer whose head is there: its messages follow, or its status is in the head already ("trailers only").
pub(super) fn head<A>(response: Response<BoundedBody<A>>) -> Result<Response<ClientAnswer<A>>, Status> {
    let (mut head, body) = response.into_parts();
    let gave_up = head.extensions.get::<AnswerGivenUp>().copied();
    match failure(&mut head.headers, gave_up) {
        Some(status) => Err(status),
        None => Ok(Response::from_parts(head, ClientAnswer { body, over: false })),
    }
}

/// The status in these headers or trailers, if it is a failure. What says something of this one call is taken out of them.
fn failure(headers: &mut HeaderMap, gave_up: Option<AnswerGivenUp>) -> Option<Status> {
    // The destination has removed it already, unless its word counts.
    let reason = headers.remove(names::REASON);
    let code = fields::code(headers);
    fields::forget_the_call(headers, code.is_some_and(|code| code != Code::Ok));
    let code = code?;
    if code == Code::Ok {
        headers.remove(DETAILS); // there is nothing to be said of it, and tonic would panic at what is no base64
        return None;
    }
    let details = details::take(headers);
    let mut status = Status::from_header_map(headers)?;
    let reason = reason.and_then(|reason| Reason::from_word(reason.to_str().ok()?));
    let answered = Answered::new(code, status.message(), reason, gave_up, details);
    let part = answered.part(code);
    status.set_source(std::sync::Arc::new(answered));
    Some(match part {
        Some(part) => part.mark(status),
        None => status,
    })
}

// === ClientAnswer ===

impl<A> Body for ClientAnswer<A>
where
    A: Body + Unpin + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let frame = frame.map(|frame| match frame {
            Ok(mut frame) => match frame.trailers_mut().and_then(|trailers| failure(trailers, None)) {
                Some(status) => Err(status),
                None => Ok(frame),
            },
            Err(error) => Err(status::of_a_body(error)),
        });
        self.over = !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<A> fmt::Debug for ClientAnswer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAnswer").finish_non_exhaustive()
    }
}
