//! The body of a request that may be sent more than once: what has been sent is kept, up to a limit.
//!
//! Decides what contract R6 says of requests: one of which more was sent than is kept is not sent again. Nothing is read
//! ahead: a body streams as it would without this. An attempt that was given up may still be polled by its connection while
//! the next one has begun; it gets nothing any more, and what it had just taken goes to the next one.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use crate::body::BoxError;

/// The body of one attempt at a request that may be sent more than once. Made by [`RetryLayer`](crate::RetryLayer).
#[must_use = "bodies do nothing unless polled"]
pub struct Replay {
    kept: Kept,
    generation: u32,
    at: usize, // which of the kept pieces is next
    sent: u64,
}

/// What all attempts at one request share.
#[derive(Clone)]
pub(super) struct Kept(Arc<Shared>);

struct Shared {
    limit: usize,
    hint: SizeHint, // of the whole
    state: Mutex<State>,
}

struct State {
    generation: u32,
    pieces: Vec<Piece>,
    size: usize,
    rest: Option<UnsyncBoxBody<Bytes, BoxError>>, // none: it is over, or somebody is polling it
    over: bool,
    lost: bool, // more was sent than is kept, or it failed: it cannot be sent again
    waiting: Option<Waker>,
}

#[derive(Clone)]
enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
}

// === Kept ===

impl Kept {
    /// Keeps at most `limit` bytes of `body`.
    pub(super) fn new<B>(body: B, limit: usize) -> Self
    where
        B: Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let hint = body.size_hint();
        let over = body.is_end_stream();
        let body = body
            .map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
            .map_err(Into::into)
            .boxed_unsync();
        let state = State {
            generation: 0,
            pieces: Vec::new(),
            size: 0,
            rest: (!over).then_some(body),
            over,
            lost: usize::try_from(hint.lower()).map_or(true, |lower| lower > limit),
            waiting: None,
        };
        Self(Arc::new(Shared { limit, hint, state: Mutex::new(state) }))
    }

    /// The body of the next attempt. The ones before get nothing any more.
    pub(super) fn body(&self) -> Replay {
        let mut state = self.lock();
        state.generation += 1;
        Replay { kept: self.clone(), generation: state.generation, at: 0, sent: 0 }
    }

    /// Whether all that was sent of it is still there.
    pub(super) fn is_whole(&self) -> bool {
        !self.lock().lost
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === State ===

impl State {
    /// Whether an attempt gets nothing any more: it was given up, or what was sent before it is not there.
    fn cannot_send_to(&self, generation: u32) -> bool {
        self.generation != generation || (self.lost && generation > 1)
    }

    /// Keeps a piece, if all before it are kept and it fits.
    fn keep(&mut self, piece: Piece, limit: usize) {
        let size = if let Piece::Data(data) = &piece { data.len() } else { 0 };
        self.size = self.size.saturating_add(size);
        if self.size > limit {
            self.lost = true;
        }
        if self.lost {
            self.pieces = Vec::new();
        } else {
            self.pieces.push(piece);
        }
    }
}

// === Replay ===

impl Body for Replay {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let mut rest = {
            let mut state = this.kept.lock();
            if state.cannot_send_to(this.generation) {
                return Poll::Ready(Some(Err(h2::Error::from(h2::Reason::CANCEL).into())));
            }
            if let Some(piece) = state.pieces.get(this.at).cloned() {
                drop(state);
                this.at += 1;
                return Poll::Ready(Some(Ok(this.counted(piece))));
            }
            if state.over {
                return Poll::Ready(None);
            }
            match state.rest.take() {
                Some(rest) => rest,
                None => {
                    state.waiting = Some(cx.waker().clone()); // an attempt before this one is polling it right now
                    return Poll::Pending;
                }
            }
        };
        // Code of others: not under the lock.
        let polled = Pin::new(&mut rest).poll_frame(cx);
        let over = matches!(polled, Poll::Ready(None)) || (polled.is_ready() && rest.is_end_stream());
        let mut rest = Some(rest);
        let waiting = {
            let mut state = this.kept.lock();
            match &polled {
                Poll::Ready(Some(Ok(frame))) => {
                    state.keep(Piece::of(frame), this.kept.0.limit);
                    this.at = state.pieces.len();
                }
                Poll::Ready(Some(Err(_))) => state.lost = true,
                Poll::Ready(None) | Poll::Pending => {}
            }
            state.over |= over;
            if !over {
                state.rest = rest.take();
            }
            state.waiting.take()
        };
        drop(rest);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            this.sent += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let state = self.kept.lock();
        // One that cannot be sent is not at its end: it is cut off, and must not look complete (contract X3).
        state.over && self.at >= state.pieces.len() && !state.cannot_send_to(self.generation)
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        let whole = &self.kept.0.hint;
        hint.set_lower(whole.lower().saturating_sub(self.sent));
        // Nor does one that cannot be sent say that nothing is left of it.
        if self.kept.lock().cannot_send_to(self.generation) {
            return hint;
        }
        if let Some(upper) = whole.upper() {
            hint.set_upper(upper.saturating_sub(self.sent).max(hint.lower()));
        }
        hint
    }
}

impl Replay {
    fn counted(&mut self, piece: Piece) -> Frame<Bytes> {
        match piece {
            Piece::Data(data) => {
                self.sent += data.len() as u64;
                Frame::data(data)
            }
            Piece::Trailers(trailers) => Frame::trailers(trailers),
        }
    }
}

impl Piece {
    fn of(frame: &Frame<Bytes>) -> Self {
        match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => Self::Data(data.clone()),
            (None, Some(trailers)) => Self::Trailers(trailers.clone()),
            (None, None) => Self::Data(Bytes::new()), // no other kind exists
        }
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("sent", &self.sent).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{Full, StreamBody};
    use std::task::Context;

    fn poll(body: &mut Replay) -> Poll<Option<Result<Bytes, ()>>> {
        let polled = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
        polled.map(|frame| frame.map(|frame| frame.map_err(drop).map(|frame| frame.into_data().unwrap_or_default())))
    }

    fn pieces(pieces: &[&'static str]) -> impl Body<Data = Bytes, Error = std::convert::Infallible> + Send + use<> {
        let frames: Vec<_> = pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))).collect();
        StreamBody::new(futures_util::stream::iter(frames))
    }

    fn is(piece: &'static str) -> Poll<Option<Result<Bytes, ()>>> {
        Poll::Ready(Some(Ok(Bytes::from_static(piece.as_bytes()))))
    }

    #[test]
    fn r6_what_was_sent_is_sent_again_and_the_rest_after_it() {
        let kept = Kept::new(pieces(&["a", "bc", "d"]), 4);
        let mut first = kept.body();
        assert_eq!((poll(&mut first), poll(&mut first)), (is("a"), is("bc")));
        assert!(kept.is_whole());
        let mut second = kept.body();
        assert_eq!(poll(&mut first), Poll::Ready(Some(Err(()))), "given up: it gets nothing any more");
        for piece in ["a", "bc", "d"] {
            assert_eq!(poll(&mut second), is(piece));
        }
        assert_eq!(poll(&mut second), Poll::Ready(None));
        let mut third = kept.body();
        assert_eq!((poll(&mut third), third.is_end_stream()), (is("a"), false));
    }

    /// One that lets another thread in while it is polled.
    struct LetsIn<F>(Option<F>);

    impl<F: FnOnce() + Unpin> Body for LetsIn<F> {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            let Some(other_thread) = self.0.take() else { return Poll::Ready(None) };
            other_thread();
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"0123456789")))))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_none()
        }
    }

    #[test]
    fn x3_a_second_attempt_that_lost_its_body_does_not_look_complete() {
        let second = Arc::new(Mutex::new(None));
        let kept = Arc::new(Mutex::new(None::<Kept>));
        let begins = {
            let (second, kept) = (Arc::clone(&second), Arc::clone(&kept));
            move || *second.lock().unwrap() = kept.lock().unwrap().as_ref().map(Kept::body)
        };
        let body = Kept::new(LetsIn(Some(begins)), 4);
        *kept.lock().unwrap() = Some(body.clone());
        let mut first = body.body();
        assert!(body.is_whole(), "so the second attempt may begin");
        assert_eq!(poll(&mut first), is("0123456789"), "more than is kept, taken while the second began");
        assert!(!first.is_end_stream(), "given up, and not complete");
        let mut second = second.lock().unwrap().take().expect("begun");
        assert!(!second.is_end_stream());
        assert_ne!(second.size_hint().exact(), Some(0));
        assert_eq!(poll(&mut second), Poll::Ready(Some(Err(()))));
    }

    #[test]
    fn r6_more_than_is_kept_is_not_sent_again() {
        let kept = Kept::new(pieces(&["a", "bcde"]), 4);
        let mut first = kept.body();
        assert_eq!((poll(&mut first), poll(&mut first)), (is("a"), is("bcde")), "the first attempt streams on");
        assert_eq!(poll(&mut first), Poll::Ready(None));
        assert!(!kept.is_whole());
        assert!(!Kept::new(Full::new(Bytes::from_static(b"abcde")), 4).is_whole(), "known before it begins");
        assert!(Kept::new(Full::new(Bytes::from_static(b"abcd")), 4).is_whole());
    }

    #[test]
    fn every_attempt_says_the_same_length() {
        let kept = Kept::new(Full::new(Bytes::from_static(b"abcd")), 64);
        let mut first = kept.body();
        assert_eq!(first.size_hint().exact(), Some(4));
        assert_eq!(poll(&mut first), is("abcd"));
        assert_eq!((first.size_hint().exact(), first.is_end_stream()), (Some(0), true));
        assert_eq!(kept.body().size_hint().exact(), Some(4));
        assert!(Kept::new(http_body_util::Empty::<Bytes>::new(), 0).body().is_end_stream());
    }

    #[test]
    fn a_body_that_fails_is_not_sent_again() {
        let failing = StreamBody::new(futures_util::stream::iter([Err::<Frame<Bytes>, _>(std::io::Error::other("x"))]));
        let kept = Kept::new(failing, 64);
        assert_eq!(poll(&mut kept.body()), Poll::Ready(Some(Err(()))));
        assert!(!kept.is_whole());
    }
}
