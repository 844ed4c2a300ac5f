//! The body of a request on its way out.
//!
//! Decides when an upload is over, which is where stage `send` becomes `wait`, and that an upload nobody answers any more
//! stops: once the answer is over or was given up, the rest of the upload is of no use to anybody.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use super::pool::Stream;
use crate::body::BoxError;
use crate::end_upload::Cut;

/// The body of a request on its way out.
pub(super) struct Sending {
    body: UnsyncBoxBody<Bytes, BoxError>,
    progress: Arc<Progress>,
}

/// How far an upload is, for those who wait for it and those who give it up.
#[derive(Default)]
pub(super) struct Progress {
    over: AtomicBool,
    waiter: AtomicWaker,
    cut: Cut,
}

/// What an answer holds until its body is dropped.
pub(super) struct Lease {
    pub(super) progress: Arc<Progress>,
    pub(super) stream: Option<Stream>, // over HTTP/1.1 the connection's own task waits for the end
}

// === Sending ===

impl Sending {
    pub(super) fn new<B>(body: B) -> (Self, Arc<Progress>)
    where
        B: Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let progress = Arc::new(Progress::default());
        let body = body
            .map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
            .map_err(Into::into)
            .boxed_unsync();
        if body.is_end_stream() {
            progress.over.store(true, Ordering::Release);
        }
        (Self { body, progress: Arc::clone(&progress) }, progress)
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(cancelled) = this.progress.cut.poll(cx) {
            return Poll::Ready(Some(Err(cancelled)));
        }
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None)) || (polled.is_ready() && this.body.is_end_stream()) {
            this.progress.finish();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.progress.finish();
    }
}

// === Progress ===

impl Progress {
    /// Waits until nothing of the upload is left to be taken.
    pub(super) async fn over(&self) {
        poll_fn(|cx| {
            self.waiter.register(cx.waker());
            if self.is_over() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn finish(&self) {
        self.over.store(true, Ordering::Release);
        self.waiter.wake();
    }
}

// === Lease ===

impl Drop for Lease {
    fn drop(&mut self) {
        if self.progress.is_over() {
            return;
        }
        self.progress.cut.now();
        // An upload that is stuck in flow control is not polled and cannot notice. Its connection takes no new calls,
        // and goes when the calls that are on it are over, which their deadlines bound.
        if let Some(stream) = &self.stream {
            stream.retire();
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("upload_is_over", &self.progress.is_over()).finish_non_exhaustive()
    }
}
