//! A request body on its way to the handler.
//!
//! Decides that it is not read past the end of the operation, and remembers whether the handler waits for it, which is the
//! one case for a 408 (contract section 5).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use oneclock::Operation;
use pin_project_lite::pin_project;

use crate::body::{BodyCutOff, BoxError};

pin_project! {
    /// A request body on its way to the handler. Not read past the end of the operation, and remembers whether the
    /// handler is waiting for it, which is the one case for a 408 (contract section 5).
    #[must_use = "bodies do nothing unless polled"]
    #[derive(Debug)]
    pub struct Upload<B> {
        #[pin]
        body: B,
        operation: Option<Operation>, // none: there is no body
        waited_for: Option<Arc<AtomicU8>>,
        end: Option<UploadEnd>,
    }

    impl<B> PinnedDrop for Upload<B> {
        fn drop(this: Pin<&mut Self>) {
            // Given up, and not because it was cut off: the handler waits for it no longer.
            if let Some(waited_for) = &this.waited_for {
                let _ = waited_for.compare_exchange(Waits::YES, Waits::NO, Ordering::Relaxed, Ordering::Relaxed);
            }
            if let Some(end) = &this.end {
                end.is_let_go();
            }
        }
    }
}

/// Whether a handler waits for its upload.
pub(crate) struct Waits;

impl Waits {
    const NO: u8 = 0;
    const YES: u8 = 1;
    /// It did when the upload was cut off.
    const CUT_OFF: u8 = 2;

    pub(crate) fn now(waited_for: Option<&Arc<AtomicU8>>) -> bool {
        waited_for.is_some_and(|waits| waits.load(Ordering::Relaxed) != Self::NO)
    }
}

/// The uploads of a connection that carries one request at a time: how many have begun, which of them was read to its end, and
/// which of them somebody may still read.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    begun: AtomicU64,
    read: AtomicU64, // the latest one
    held: AtomicU64, // zero: none
}

/// One of them, which says when it was read to its end: then nothing of it is left on the connection.
#[derive(Clone, Debug)]
pub(crate) struct UploadEnd {
    uploads: Arc<Uploads>,
    number: u64,
}

// === Upload ===

impl<B: Body> Upload<B> {
    pub(crate) fn new(body: B, operation: &Operation, end: Option<UploadEnd>) -> (Self, Option<Arc<AtomicU8>>) {
        if body.is_end_stream() {
            return (Self { body, operation: None, waited_for: None, end: None }, None);
        }
        let waited_for = Arc::new(AtomicU8::new(Waits::NO));
        if let Some(end) = &end {
            end.is_held();
        }
        let upload = Self { body, operation: Some(operation.clone()), waited_for: Some(Arc::clone(&waited_for)), end };
        (upload, Some(waited_for))
    }
}

/// A body that is there already, for a layer that had to read it: nothing of it is waited for.
impl<B: From<Bytes>> From<Bytes> for Upload<B> {
    fn from(bytes: Bytes) -> Self {
        Self { body: bytes.into(), operation: None, waited_for: None, end: None }
    }
}

// === Uploads ===

impl Uploads {
    pub(crate) fn begins(self: &Arc<Self>) -> UploadEnd {
        UploadEnd { uploads: Arc::clone(self), number: self.begun.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    /// Nothing is left of those that have begun, whoever read them.
    pub(crate) fn are_behind(&self) {
        self.read.store(self.begun.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Whether the last one that began was read to its end; or there was none.
    pub(crate) fn are_read(&self) -> bool {
        self.read.load(Ordering::Acquire) == self.begun.load(Ordering::Relaxed)
    }
}

impl UploadEnd {
    /// Whether all of it was read.
    pub(crate) fn is_read(&self) -> bool {
        self.uploads.read.load(Ordering::Acquire) >= self.number
    }

    /// Whether somebody may still read it.
    pub(crate) fn may_be_read(&self) -> bool {
        self.uploads.held.load(Ordering::Acquire) == self.number
    }

    fn is_held(&self) {
        self.uploads.held.store(self.number, Ordering::Release);
    }

    /// The next one on its connection may be held already.
    fn is_let_go(&self) {
        let _ = self.uploads.held.compare_exchange(self.number, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn was_read(self) {
        self.uploads.read.fetch_max(self.number, Ordering::Release);
        self.is_let_go();
    }
}

impl<B> Body for Upload<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        if let Some(operation) = this.operation
            && let Some(ending) = operation.ending()
        {
            let cut = BodyCutOff::of_upload(operation, ending);
            *this.operation = None;
            if let Some(waited_for) = this.waited_for {
                let (yes, cut_off) = (Waits::YES, Waits::CUT_OFF);
                let _ = waited_for.compare_exchange(yes, cut_off, Ordering::Relaxed, Ordering::Relaxed);
            }
            return Poll::Ready(Some(Err(Box::new(cut))));
        }
        let polled = this.body.as_mut().poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)));
        let is_read = match &polled {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => this.body.is_end_stream(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        if is_read && let Some(end) = this.end.take() {
            end.was_read();
        }
        if let Some(waited_for) = this.waited_for {
            waited_for.store(if polled.is_pending() { Waits::YES } else { Waits::NO }, Ordering::Relaxed);
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
