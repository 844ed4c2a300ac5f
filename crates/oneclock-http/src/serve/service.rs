//! The service as hyper calls it: each request is stamped on arrival, each answer counted until it is handed over.
//!
//! Decides that an answer breaks off only behind what was said of it before: its head reaches the caller. And that a caller over
//! HTTP/1 who is answered in the middle of its upload is told so (`connection: close`, RFC 9112 section 9.6): the rest of the
//! upload is read for a while and thrown away, and so would be the next request behind it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::flushes::Flushed;
use super::link::{InFlight, Link};
use super::streams::Pace;
use crate::body::BoxError;
use crate::upload::UploadEnd;

/// What an HTTP/2 stream hands over at once: the unit in which its peer's progress is judged, and h2's own frame size.
const PIECE: usize = 16 * 1024;

pub(super) struct Stamping<S> {
    pub(super) service: S,
    pub(super) link: Arc<Link>,
}

pin_project! {
    /// Waits for the service to be ready, where the wait is counted, then for its answer.
    #[project = ServedProjection]
    pub(super) struct Served<S: Service<Request<Incoming>>> {
        service: S,
        request: Option<Request<Incoming>>,
        #[pin]
        answer: Option<S::Future>,
        in_flight: Option<InFlight>,
        http2: bool,
        upload: Option<UploadEnd>, // over HTTP/1, until there is an answer
        early: Option<Box<S::Response>>, // an answer before the end of its upload
    }
}

pin_project! {
    /// The body of an answer on its way out.
    #[project = OutgoingProjection]
    pub(super) struct Outgoing<B> {
        #[pin]
        body: B,
        rest: Bytes, // of a frame that was larger than a piece
        pace: Option<Pace>, // HTTP/2 only: HTTP/1 has its connection to itself
        in_flight: Option<InFlight>,
        failing: Option<Box<Failing>>,
    }
}

/// Why a body failed, until that may be said.
struct Failing {
    error: BoxError,
    flushed: Flushed,
}

// === Stamping ===

impl<S, B> hyper::service::Service<Request<Incoming>> for Stamping<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
    B: Body<Data = Bytes>,
{
    type Response = Response<Outgoing<B>>;
    type Error = S::Error;
    type Future = Served<S>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let (arrival, in_flight) = self.link.arrived(!request.body().is_end_stream());
        let http2 = request.version() == Version::HTTP_2;
        let upload = arrival.upload.clone().filter(|_| !http2);
        request.extensions_mut().insert(arrival);
        self.link.introduce(request.extensions_mut());
        let (service, in_flight) = (self.service.clone(), Some(in_flight));
        Served { service, request: Some(request), answer: None, in_flight, http2, upload, early: None }
    }
}

// === Served ===

impl<S, B> Future for Served<S>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
{
    type Output = Result<Response<Outgoing<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if this.request.is_some() {
            ready!(this.service.poll_ready(cx))?;
            if let Some(request) = this.request.take() {
                this.answer.set(Some(this.service.call(request)));
            }
        }
        let response = if let Some(mut early) = this.early.take() {
            // Hyper has given the connection up by now, and says so itself; or all of the upload was there; or it goes on.
            if this.upload.take().is_some_and(|upload| upload.may_be_read()) {
                early.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            *early
        } else {
            let Some(answer) = this.answer.as_mut().as_pin_mut() else { return Poll::Pending };
            let response = ready!(answer.poll(cx))?;
            if this.upload.as_ref().is_some_and(|upload| !upload.is_read()) {
                // Before the head is written hyper looks for what is left of the upload, if nobody reads it any more.
                this.answer.set(None);
                *this.early = Some(Box::new(response));
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            response
        };
        let in_flight = this.in_flight.take();
        if let Some(in_flight) = &in_flight {
            in_flight.answers();
        }
        let pace = if *this.http2 { Pace::current() } else { None };
        Poll::Ready(Ok(response.map(|body| Outgoing { body, rest: Bytes::new(), pace, in_flight, failing: None })))
    }
}

// === Outgoing ===

impl<B: Body<Data = Bytes>> OutgoingProjection<'_, B> {
    /// The next piece, as large as is handed over at once.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(pace) = self.pace else { return self.body.as_mut().poll_frame(cx) };
        pace.asked();
        if self.rest.is_empty() {
            match ready!(self.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    Ok(data) => *self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        pace.handed();
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl<B> Body for Outgoing<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        if this.failing.is_none() {
            match (ready!(this.poll_piece(cx)), &this.in_flight) {
                (Some(Err(error)), Some(in_flight)) => {
                    *this.failing = Some(Box::new(Failing { error: error.into(), flushed: in_flight.flushed() }));
                }
                (polled, _) => return Poll::Ready(polled.map(|frame| frame.map_err(Into::into))),
            }
        }
        if let Some(failing) = this.failing {
            let _ = ready!(Pin::new(&mut failing.flushed).poll(cx)); // or the connection is gone
        }
        Poll::Ready(this.failing.take().map(|failing| Err(failing.error)))
    }

    fn is_end_stream(&self) -> bool {
        self.failing.is_none() && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

impl<B> fmt::Debug for Outgoing<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").finish_non_exhaustive()
    }
}
