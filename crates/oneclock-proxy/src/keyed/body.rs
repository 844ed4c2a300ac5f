//! The body of a request on its way to the upstream: as it comes in, or read already by whoever had to compare it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use oneclock_http::{BoxError, Upload};
use pin_project_lite::pin_project;

pin_project! {
    /// See the head of this file.
    #[must_use = "bodies do nothing unless polled"]
    #[derive(Debug)]
    #[project = SentProjection]
    pub(crate) enum Sent {
        Upload { #[pin] body: Upload<Incoming> },
        Read { #[pin] body: Full<Bytes> },
    }
}

impl From<Upload<Incoming>> for Sent {
    fn from(body: Upload<Incoming>) -> Self {
        Self::Upload { body }
    }
}

impl From<Bytes> for Sent {
    fn from(bytes: Bytes) -> Self {
        Self::Read { body: Full::from(bytes) }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project() {
            SentProjection::Upload { body } => body.poll_frame(cx),
            SentProjection::Read { body } => body.poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Upload { body } => body.is_end_stream(),
            Self::Read { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Upload { body } => body.size_hint(),
            Self::Read { body } => body.size_hint(),
        }
    }
}
