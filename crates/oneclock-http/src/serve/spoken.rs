//! What is spoken on a connection: HTTP/2 if it begins with its preface, else HTTP/1.
//!
//! Decides this from the bytes themselves and gives them back to hyper together with those that follow. hyper-util's own
//! choice hands over the first 24 bytes alone: hyper has to read once more into a buffer that is twice as large by then, and
//! keeps it for as long as the connection is open.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tower_service::Service;

use super::limits::ServeLimits;
use super::link::Speaks;
use super::listener::Listener;
use super::service::Stamping;
use super::streams::Spawner;
use super::wire::Wire;
use crate::body::BoxError;

/// Streams that the peer opened and reset before we saw them, and streams that we reset for its mistakes: beyond this
/// many an HTTP/2 connection is ended with ENHANCE_YOUR_CALM (rapid reset, CVE-2023-44487; MadeYouReset, CVE-2025-8671).
const RESETS: usize = 20;
const MISTAKES: usize = 256;

/// The smallest buffer that hyper accepts for HTTP/1, in bytes.
const LEAST_BUFFER: usize = 8192;

/// How many fields hyper takes over HTTP/1 when it is told nothing: room that it need not fill for each request.
const HYPERS_FIELDS: usize = 100;

type Http1<L, S> = http1::UpgradeableConnection<TokioIo<Wire<L>>, Stamping<S>>;
type Http2<L, S> = http2::Connection<TokioIo<Wire<L>>, Stamping<S>, Spawner>;

/// One connection as it is spoken on.
pub(super) struct Spoken<L: Listener, S, B>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<BoxError>,
{
    state: State<L, S, B>,
    limits: Arc<ServeLimits>,
    half_close: bool,
    spawner: Spawner,
}

enum State<L: Listener, S, B>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<BoxError>,
{
    NotKnown(Box<(Wire<L>, Stamping<S>)>),
    Http1(Pin<Box<Http1<L, S>>>),
    Http2(Pin<Box<Http2<L, S>>>),
    Over,
}

impl<L, S, B> Spoken<L, S, B>
where
    L: Listener,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    pub(super) fn new(
        wire: Wire<L>,
        stamping: Stamping<S>,
        limits: &Arc<ServeLimits>,
        half_close: bool,
        spawner: Spawner,
    ) -> Self {
        let state = State::NotKnown(Box::new((wire, stamping)));
        Self { state, limits: Arc::clone(limits), half_close, spawner }
    }

    /// Finishes what it has begun and takes nothing more. Where nothing was said yet, nothing has begun.
    pub(super) fn graceful_shutdown(&mut self) {
        match &mut self.state {
            State::NotKnown(_) => self.state = State::Over,
            State::Http1(connection) => connection.as_mut().graceful_shutdown(),
            State::Http2(connection) => connection.as_mut().graceful_shutdown(),
            State::Over => {}
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        loop {
            let speaks = match &mut self.state {
                State::NotKnown(not_known) => ready!(not_known.0.poll_look(cx))?,
                State::Http1(connection) => return connection.as_mut().poll(cx).map_err(Into::into),
                State::Http2(connection) => return connection.as_mut().poll(cx).map_err(Into::into),
                State::Over => return Poll::Ready(Ok(())),
            };
            let State::NotKnown(not_known) = std::mem::replace(&mut self.state, State::Over) else { continue };
            let (wire, stamping) = *not_known;
            let io = TokioIo::new(wire);
            self.state = match speaks {
                Speaks::Http2 => State::Http2(Box::pin(self.http2().serve_connection(io, stamping))),
                Speaks::Http1 | Speaks::NotKnown => {
                    State::Http1(Box::pin(self.http1().serve_connection(io, stamping).with_upgrades()))
                }
            };
        }
    }

    fn http1(&self) -> http1::Builder {
        let limits = &self.limits;
        let head = usize::try_from(limits.max_header_list).unwrap_or(usize::MAX);
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            // Hyper's own timer also bounds how long a connection may be idle. Ours tells the two apart.
            .header_read_timeout(None)
            .half_close(self.half_close)
            .max_buf_size(head.max(LEAST_BUFFER));
        if limits.max_headers != HYPERS_FIELDS {
            http.max_headers(limits.max_headers);
        }
        http
    }

    fn http2(&self) -> http2::Builder<Spawner> {
        let limits = &self.limits;
        let mut http = http2::Builder::new(self.spawner.clone());
        http.timer(TokioTimer::new())
            .keep_alive_interval(limits.write_progress)
            .keep_alive_timeout(limits.write_progress)
            .max_concurrent_streams(limits.max_concurrent_streams)
            .max_header_list_size(limits.max_header_list)
            .max_send_buf_size(limits.max_send_buffer)
            .max_pending_accept_reset_streams(RESETS)
            .max_local_error_reset_streams(MISTAKES);
        http
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::Full;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::serve::serve;

    /// What comes back for bytes that are sent one by one.
    async fn said_to(bytes: &[u8], until: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let address = listener.local_addr().expect("an address");
        let service = tower::service_fn(async |_: Request<Incoming>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        });
        let server = tokio::spawn(serve(listener, service).into_future());
        let mut socket = TcpStream::connect(address).await.expect("a connection");
        socket.set_nodelay(true).expect("a socket");
        for byte in bytes {
            socket.write_all(&[*byte]).await.expect("it reads");
            tokio::task::yield_now().await;
        }
        let mut said = Vec::new();
        while !until(&said) {
            assert!(socket.read_buf(&mut said).await.expect("it answers") > 0, "closed after {said:?}");
        }
        server.abort();
        said
    }

    #[tokio::test]
    async fn what_is_spoken_is_seen_however_it_is_cut() {
        // Both begin like the preface.
        for method in ["POST", "PRI"] {
            let head = format!("{method} / HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n\r\n");
            let said = said_to(head.as_bytes(), |said| said.ends_with(b"\r\n\r\n")).await;
            assert!(said.starts_with(b"HTTP/1.1 200"), "{method}: {}", String::from_utf8_lossy(&said));
        }
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0]; // a frame of nothing
        let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings].concat();
        let said = said_to(&preface, |said| said.len() >= 9).await;
        assert_eq!(said.get(3), Some(&4), "its own settings come first: {said:?}");
    }
}
