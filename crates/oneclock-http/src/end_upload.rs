//! Uploads that end with their answer.
//!
//! Decides when the rest of an upload is of no use to anybody: once its answer is over, or was given up. Without that a client
//! over HTTP/2 goes on sending for nobody, and the far side works on, since nothing else tells it that its caller left
//! (invariant I6).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use futures_util::task::AtomicWaker;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::BoxError;

/// For clients of others, below an [`EgressLayer`](crate::EgressLayer): an upload that is still open when its answer is over or
/// dropped, or when its call is given up, breaks off, and the stream is reset with `CANCEL`.
/// [`Client`](crate::Client) and the layers for tonic do that by themselves.
///
/// An upload that is stuck because the far side takes nothing is not polled and cannot notice.
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use hyper_util::{client::legacy::Client, rt::TokioExecutor};
/// use oneclock_http::{Destination, EgressLayer, EndUploadLayer};
/// use tower::ServiceBuilder;
///
/// let pricing = Destination::named("pricing").build()?;
/// let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
/// let mut client = ServiceBuilder::new().layer(EgressLayer::new(pricing)).layer(EndUploadLayer).service(client);
/// # use tower::Service; let _ = |request: http::Request<Full<Bytes>>| client.call(request);
/// # Ok::<(), oneclock_core::Refused>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct EndUploadLayer;

/// The service of an [`EndUploadLayer`].
#[derive(Clone, Debug)]
pub struct EndUpload<S>(S);

/// What ends an upload from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut(Arc<State>);

#[derive(Debug, Default)]
struct State {
    cut: AtomicBool,
    sender: AtomicWaker,
}

/// Cuts when it is dropped.
#[derive(Debug)]
struct CutOnDrop(Cut);

pin_project! {
    /// The body of a request below an [`EndUploadLayer`]: it ends with its [`TiedAnswer`].
    #[derive(Debug)]
    #[must_use = "bodies do nothing unless polled"]
    pub struct TiedUpload<B> {
        #[pin]
        body: B,
        cut: Cut,
    }
}

pin_project! {
    /// The body of an answer through an [`EndUploadLayer`]: when it is over or dropped, its [`TiedUpload`] breaks off.
    #[derive(Debug)]
    #[must_use = "bodies do nothing unless polled"]
    pub struct TiedAnswer<A> {
        #[pin]
        body: A,
        cut: CutOnDrop,
    }
}

pin_project! {
    /// The future of [`EndUpload`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct EndUploadFuture<F> {
        #[pin]
        inner: F,
        cut: Option<CutOnDrop>,
    }
}

impl<S> Layer<S> for EndUploadLayer {
    type Service = EndUpload<S>;

    fn layer(&self, inner: S) -> EndUpload<S> {
        EndUpload(inner)
    }
}

impl<S, B, A> Service<Request<B>> for EndUpload<S>
where
    S: Service<Request<TiedUpload<B>>, Response = Response<A>>,
{
    type Response = Response<TiedAnswer<A>>;
    type Error = S::Error;
    type Future = EndUploadFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let cut = Cut::default();
        let ends = Some(CutOnDrop(cut.clone()));
        EndUploadFuture { inner: self.0.call(request.map(|body| TiedUpload { body, cut })), cut: ends }
    }
}

impl<F, A, E> Future for EndUploadFuture<F>
where
    F: Future<Output = Result<Response<A>, E>>,
{
    type Output = Result<Response<TiedAnswer<A>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.inner.poll(cx))?;
        let Some(cut) = this.cut.take() else { return Poll::Pending }; // polled after it was done
        Poll::Ready(Ok(answer.map(|body| TiedAnswer { body, cut })))
    }
}

// === Cut ===

impl Cut {
    /// Ends the upload: it breaks off the next time it is polled, which is soon.
    pub(crate) fn now(&self) {
        self.0.cut.store(true, Ordering::Release);
        self.0.sender.wake();
    }

    /// Whether the upload that is polled here was ended. If not, it is woken when it is.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<BoxError> {
        self.0.sender.register(cx.waker());
        if self.0.cut.load(Ordering::Acquire) {
            Poll::Ready(h2::Error::from(h2::Reason::CANCEL).into())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        self.0.now();
    }
}

// === The bodies ===

impl<B> Body for TiedUpload<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.project();
        if let Poll::Ready(cancelled) = this.cut.poll(cx) {
            return Poll::Ready(Some(Err(cancelled)));
        }
        this.body.poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<A: Body> Body for TiedAnswer<A> {
    type Data = A::Data;
    type Error = A::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<A::Data>, A::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
