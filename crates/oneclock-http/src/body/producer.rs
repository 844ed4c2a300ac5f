//! What is left of a body, and who may take it away: polled in place, or held where a watcher reaches it.
//!
//! Decides how a body is taken apart: one frame is looked at with the head, large ones go out in pieces.

use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::{BoxError, Owner};

/// The most that is handed over at once, so that flow control is asked in between, and a peer that takes nothing holds
/// no more than this past the deadline.
const CHUNK: usize = 64 * 1024;

/// What is left of a body.
pub(super) struct Producer<B> {
    pub(super) seen: Option<Seen>, // looked at, or the rest of a large frame
    pub(super) rest: Option<B>,
    pub(super) with_the_head: bool, // `seen` was looked at together with the head: it is delivered whatever the clock says
}

/// A frame or a failure, kept small: a body is moved several times before it is polled.
pub(super) enum Seen {
    Data(Bytes),
    Trailers(Box<HeaderMap>),
    Failed(BoxError),
}

pub(super) struct Slot<B>(pub(super) Mutex<Watched<B>>);

pub(super) struct Watched<B> {
    pub(super) producer: Producer<B>,
    pub(super) waker: Option<Waker>,
    pub(super) taken: bool, // it was taken away: what looks like its end is none
}

// === Producer ===

impl<B> Producer<B> {
    pub(super) fn is_over(&self) -> bool {
        self.seen.is_none() && self.rest.is_none()
    }
}

impl<B> Producer<B>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    pub(super) fn new(body: B) -> Self {
        Self { seen: None, rest: Some(body), with_the_head: false }
    }

    pub(super) fn look(&mut self, cx: &mut Context<'_>) {
        if self.rest.as_ref().is_some_and(Body::is_end_stream) {
            self.rest = None;
        } else if let Poll::Ready(frame) = self.poll_rest(cx) {
            self.seen = frame;
        }
        self.with_the_head = self.is_small_and_whole();
    }

    pub(super) fn is_small_and_whole(&self) -> bool {
        self.rest.is_none()
            && match &self.seen {
                Some(Seen::Data(data)) => data.len() <= CHUNK,
                Some(Seen::Failed(_)) => false,
                Some(Seen::Trailers(_)) | None => true,
            }
    }

    /// The next piece, at most [`CHUNK`] long.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let seen = match self.seen.take() {
            Some(seen) => Some(seen),
            None => ready!(self.poll_rest(cx)),
        };
        Poll::Ready(seen.map(|seen| match seen {
            Seen::Data(mut data) if data.len() > CHUNK => {
                let piece = data.split_to(CHUNK);
                self.seen = Some(Seen::Data(data));
                Ok(Frame::data(piece))
            }
            Seen::Data(data) => Ok(Frame::data(data)),
            Seen::Trailers(trailers) => Ok(Frame::trailers(*trailers)),
            Seen::Failed(error) => Err(error),
        }))
    }

    /// The same, in the scope of the operation whose body it is.
    pub(super) fn poll_within(
        &mut self,
        owner: Option<&Owner>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match owner {
            Some(Owner::Response { driver, .. }) if self.seen.is_none() => {
                driver.operation().sync_scope(|| self.poll(cx))
            }
            _ => self.poll(cx),
        }
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Seen>> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *rest).poll_frame(cx));
        // Nothing comes behind trailers, and whoever takes them need not ask again.
        if rest.is_end_stream() || !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
            self.rest = None;
        }
        Poll::Ready(frame.and_then(|frame| match frame.map(Frame::into_data) {
            Ok(Ok(mut data)) => Some(Seen::Data(data.copy_to_bytes(data.remaining()))),
            // Neither data nor trailers: a kind of frame that HTTP does not have yet.
            Ok(Err(frame)) => frame.into_trailers().ok().map(|trailers| Seen::Trailers(Box::new(trailers))),
            Err(error) => Some(Seen::Failed(error.into())),
        }))
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        if matches!(self.seen, Some(Seen::Failed(_))) {
            return SizeHint::default(); // nobody knows how long it would have been
        }
        let mut hint = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let seen = match &self.seen {
            Some(Seen::Data(data)) => data.len() as u64,
            Some(Seen::Trailers(_) | Seen::Failed(_)) | None => 0,
        };
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(seen));
        }
        hint.set_lower(hint.lower().saturating_add(seen));
        hint
    }
}

// === Slot ===

impl<B> Slot<B> {
    pub(super) fn lock(&self) -> MutexGuard<'_, Watched<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what produces the body, and wakes whoever waits for it: there will be no more.
    pub(super) fn take_away(&self) {
        let (seen, rest, waker) = {
            let mut watched = self.lock();
            watched.taken = true;
            let producer = &mut watched.producer;
            (producer.seen.take(), producer.rest.take(), watched.waker.take())
        };
        drop((seen, rest)); // outside the lock: what is dropped here is not ours
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
