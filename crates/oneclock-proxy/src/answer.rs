//! The body of an answer on its way to the caller.
//!
//! Decides nothing: what the upstream sends is handed on as it comes, and what is under way counts until all of it is handed
//! over.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use oneclock_http::{BoundedBody, BoxError, Received};
use pin_project_lite::pin_project;

use crate::access::Note;
use crate::live::Entry;
use crate::own::OwnBody;

pin_project! {
    /// The body of an answer that was forwarded.
    #[must_use = "bodies do nothing unless polled"]
    pub(crate) struct Forwarded {
        #[pin]
        source: Source,
        entry: Option<Entry>,
        note: Note,
    }
}

pin_project! {
    #[project = SourceProjection]
    enum Source {
        Nothing,
        Call { #[pin] body: BoundedBody<Received> },
        OwnCall { #[pin] body: BoundedBody<OwnBody> },
        Stream { #[pin] body: OwnBody },
        Once { #[pin] body: oneclock_idempotency::Body },
    }
}

impl Forwarded {
    /// No body, or one that a layer above writes.
    pub(crate) fn nothing() -> Self {
        Self { source: Source::Nothing, entry: None, note: Note::default() }
    }

    /// The answer to a call, which ends at its deadline.
    pub(crate) fn call(body: BoundedBody<Received>, entry: Option<Entry>) -> Self {
        Self { source: Source::Call { body }, entry, note: Note::default() }
    }

    /// The same, on a connection of its own.
    pub(crate) fn own_call(body: BoundedBody<OwnBody>, entry: Option<Entry>) -> Self {
        Self { source: Source::OwnCall { body }, entry, note: Note::default() }
    }

    /// What a layer of keys answers: what was kept, a refusal, or what it let pass.
    pub(crate) fn once(body: oneclock_idempotency::Body, entry: Option<Entry>) -> Self {
        Self { source: Source::Once { body }, entry, note: Note::default() }
    }

    /// What goes on behind its call.
    pub(crate) fn stream(body: OwnBody, entry: Option<Entry>) -> Self {
        Self { source: Source::Stream { body }, entry, note: Note::default() }
    }

    /// The same, of which the access log is told.
    pub(crate) fn noted(self, note: Note) -> Self {
        Self { note, ..self }
    }
}

impl Body for Forwarded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        let polled = match this.source.project() {
            SourceProjection::Nothing => Poll::Ready(None),
            SourceProjection::Call { body } => body.poll_frame(cx),
            SourceProjection::OwnCall { body } => body.poll_frame(cx),
            SourceProjection::Stream { body } => body.poll_frame(cx),
            SourceProjection::Once { body } => body.poll_frame(cx),
        };
        match &polled {
            Poll::Ready(Some(Ok(frame))) => this.note.passes(frame),
            Poll::Ready(Some(Err(error))) => this.note.breaks_off(&**error),
            Poll::Ready(None) => *this.entry = None,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Nothing => true,
            Source::Call { body } => body.is_end_stream(),
            Source::OwnCall { body } => body.is_end_stream(),
            Source::Stream { body } => body.is_end_stream(),
            Source::Once { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Nothing => SizeHint::with_exact(0),
            Source::Call { body } => body.size_hint(),
            Source::OwnCall { body } => body.size_hint(),
            Source::Stream { body } => body.size_hint(),
            Source::Once { body } => body.size_hint(),
        }
    }
}

impl fmt::Debug for Forwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarded").finish_non_exhaustive()
    }
}
