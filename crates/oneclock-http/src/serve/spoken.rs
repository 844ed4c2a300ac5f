//! What is spoken on a connection: HTTP/2 if it begins with its preface, else HTTP/1.
//!
//! Decides this from the bytes themselves and gives them back to hyper together with those that follow. hyper-util's own
//! choice hands over the first 24 bytes alone: hyper has to read once more into a buffer that is twice as large by then, and
//! keeps it for as long as the connection is open.
//!
//! Decides also when hyper lets go of an HTTP/1 connection that rests, with its buffers: where more are open than may keep
//! theirs ([`max_warm`](super::ServeLimits::max_warm)). The next byte begins anew. Of a thousand callers that keep their
//! connections, few ask at a time; those that ask again at once keep theirs until they have rested for a second.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1::{self, Parts};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tower_service::Service;

use super::connection::Terms;
use super::crowd::Warm;
use super::link::{Link, Speaks};
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
    link: Arc<Link>,
    terms: Arc<Terms>,
    spawner: Spawner,
}

enum State<L: Listener, S, B>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<BoxError>,
{
    /// Nothing was said yet, or it rests: for the next byte.
    Waits(Box<(Wire<L>, Stamping<S>)>),
    Http1(Box<Http1<L, S>>, Warm),
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
    pub(super) fn new(wire: Wire<L>, stamping: Stamping<S>, terms: &Arc<Terms>, spawner: Spawner) -> Self {
        let (link, terms) = (Arc::clone(&stamping.link), Arc::clone(terms));
        Self { state: State::Waits(Box::new((wire, stamping))), link, terms, spawner }
    }

    /// Finishes what it has begun and takes nothing more. Where nothing was said yet, nothing has begun.
    pub(super) fn graceful_shutdown(&mut self) {
        if matches!(self.state, State::Waits(_)) && self.link.speaks() != Speaks::NotKnown {
            self.begin(Speaks::Http1); // which says goodbye
        }
        match &mut self.state {
            State::Waits(_) => self.state = State::Over,
            State::Http1(connection, _) => Pin::new(&mut **connection).graceful_shutdown(),
            State::Http2(connection) => connection.as_mut().graceful_shutdown(),
            State::Over => {}
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        loop {
            match &mut self.state {
                State::Waits(waiting) => {
                    let speaks = ready!(waiting.0.poll_look(cx))?;
                    self.begin(speaks);
                }
                State::Http1(connection, warm) => {
                    let polled = Pin::new(&mut **connection).poll(cx).map_err(Into::into);
                    let rests = || warm.is_one_too_many() && self.link.rests() && !self.link.quick.is_set();
                    if polled.is_ready() || !rests() {
                        return polled;
                    }
                    self.rest();
                }
                State::Http2(connection) => return connection.as_mut().poll(cx).map_err(Into::into),
                State::Over => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Hyper takes what waits.
    fn begin(&mut self, speaks: Speaks) {
        let State::Waits(waiting) = std::mem::replace(&mut self.state, State::Over) else { return };
        let (wire, stamping) = *waiting;
        let io = TokioIo::new(wire);
        self.state = match speaks {
            Speaks::Http2 => State::Http2(Box::pin(self.http2().serve_connection(io, stamping))),
            Speaks::Http1 | Speaks::NotKnown => {
                let connection = self.http1().serve_connection(io, stamping).with_upgrades();
                State::Http1(Box::new(connection), Warm::new(&self.terms))
            }
        };
    }

    /// Hyper lets go of what rests.
    fn rest(&mut self) {
        let State::Http1(connection, _) = std::mem::replace(&mut self.state, State::Over) else { return };
        let Some(Parts { io, read_buf, service, .. }) = connection.into_parts() else { return }; // upgraded: it is over
        let mut wire = io.into_inner();
        wire.given_back(&read_buf);
        self.state = State::Waits(Box::new((wire, service)));
    }

    fn http1(&self) -> http1::Builder {
        let limits = &self.terms.limits;
        let head = usize::try_from(limits.max_header_list).unwrap_or(usize::MAX);
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            // Hyper's own timer also bounds how long a connection may be idle. Ours tells the two apart.
            .header_read_timeout(None)
            .half_close(self.terms.half_close)
            .max_buf_size(head.max(LEAST_BUFFER));
        if limits.max_headers != HYPERS_FIELDS {
            http.max_headers(limits.max_headers);
        }
        http
    }

    fn http2(&self) -> http2::Builder<Spawner> {
        let limits = &self.terms.limits;
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

    use http_body_util::{BodyExt as _, Full};
    use oneclock::Shutdown;
    use oneclock_core::{Policy, Trust};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Semaphore;
    use tower_layer::Layer as _;

    use super::*;
    use crate::serve::accept::Admitted;
    use crate::serve::crowd::{Crowd, RESTED};
    use crate::serve::limits::ServeLimits;
    use crate::serve::{connection, serve};
    use crate::{IngressLayer, Upload};

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
    /// A connection with a server that keeps this many warm. What is asked of `/unread` is answered before its upload is.
    async fn connected(max_warm: usize) -> (TcpStream, Arc<Terms>) {
        let policy = Policy::named("shop").build().expect("a policy");
        let service = IngressLayer::new(policy).layer(tower::service_fn(async |request: Request<Upload<Incoming>>| {
            let (head, body) = request.into_parts();
            let read = if head.uri.path() == "/unread" { 0 } else { body.collect().await?.to_bytes().len() };
            Ok::<_, BoxError>(Response::new(Full::<Bytes>::from(format!("<{} {read}>", head.uri.path()))))
        }));
        let mut listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let socket = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let (io, peer) = Listener::accept(&mut listener).await.expect("a connection");
        let limits = Arc::new(ServeLimits { max_warm, ..ServeLimits::default() });
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.expect("a place");
        let (trust, shutdown, crowd) = (Trust::Outside, Shutdown::new(), Crowd::default());
        let terms = Arc::new(Terms { limits, trust, half_close: false, shutdown, crowd });
        let admitted = Admitted { io, peer, place };
        tokio::spawn(connection::serve::<TcpListener, _, _>(admitted, service, Arc::clone(&terms)));
        (socket, terms)
    }

    /// What is sent, what comes back for it, whether the connection can rest then.
    type Step = (&'static str, &'static [&'static str], bool);

    async fn goes(steps: &[Step]) {
        for max_warm in [64, 0] {
            let (mut socket, terms) = connected(max_warm).await;
            let mut waited = true; // whether a second has gone by since the answer before
            for (sent, want, rests) in steps {
                let is_quick = want.len() > 1 || !waited;
                socket.write_all(sent.as_bytes()).await.expect("it reads");
                let mut said = Vec::new();
                while said.iter().filter(|byte| **byte == b'>').count() < want.len() {
                    assert!(socket.read_buf(&mut said).await.expect("it answers") > 0, "closed after {sent:?}");
                }
                let said = String::from_utf8(said).expect("text");
                let bodies: Vec<&str> =
                    said.split('<').skip(1).map(|part| part.split('>').next().unwrap_or("")).collect();
                assert_eq!(bodies, *want, "{sent:?}: {said}");
                if max_warm > 0 || !rests {
                    assert_eq!(terms.crowd.warm(), 1, "behind {sent:?}, at most {max_warm}");
                    waited = false;
                    continue;
                }
                // At once, or behind a second.
                let mut looks = 0;
                while terms.crowd.warm() > 0 {
                    looks += 1;
                    assert!(looks < 1_000, "behind {sent:?}");
                    tokio::time::sleep(RESTED / 100).await;
                }
                waited = looks > 0;
                assert_eq!(waited, is_quick, "behind {sent:?}");
            }
            terms.shutdown.signal();
            assert_eq!(socket.read(&mut [0]).await.expect("closed in order"), 0);
        }
    }

    #[tokio::test]
    async fn what_rests_holds_no_buffers_and_goes_on() {
        const GET: &str = "GET /a HTTP/1.1\r\nhost: shop\r\n\r\n";
        const TWO: &str = "GET /a HTTP/1.1\r\nhost: shop\r\n\r\nGET /b HTTP/1.1\r\nhost: shop\r\n\r\n";
        goes(&[(GET, &["/a 0"], true), (GET, &["/a 0"], true)]).await;
        goes(&[(TWO, &["/a 0", "/b 0"], true), (GET, &["/a 0"], true)]).await;
    }

    #[tokio::test]
    async fn what_has_begun_to_say_something_does_not_rest() {
        let begun = "GET /a HTTP/1.1\r\nhost: shop\r\n\r\nGET /b HTTP/1.1\r\n";
        goes(&[(begun, &["/a 0"], false), ("host: shop\r\n\r\n", &["/b 0"], true)]).await;
    }

    #[tokio::test]
    async fn an_upload_that_was_read_is_over_and_one_that_was_not_may_be_on_its_way() {
        const GET: &str = "GET /a HTTP/1.1\r\nhost: shop\r\n\r\n";
        let known = "POST /up HTTP/1.1\r\nhost: shop\r\ncontent-length: 3\r\n\r\nabc";
        let chunked = "POST /up HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        for upload in [known, chunked] {
            goes(&[(upload, &["/up 3"], true), (GET, &["/a 0"], true)]).await;
        }
        let unread = "POST /unread HTTP/1.1\r\nhost: shop\r\ncontent-length: 3\r\n\r\nabc";
        goes(&[(unread, &["/unread 0"], false), (GET, &["/a 0"], true)]).await;
    }

    /// Taken for a rest between two requests, it would let an upload speak for its caller.
    #[tokio::test]
    async fn the_rest_of_an_upload_is_no_request() {
        let (mut socket, _terms) = connected(0).await;
        let half = b"POST /unread HTTP/1.1\r\nhost: shop\r\ncontent-length: 31\r\n\r\nGET";
        socket.write_all(half).await.expect("it reads");
        let mut said = Vec::new();
        while !said.ends_with(b"</unread 0>") {
            assert!(socket.read_buf(&mut said).await.expect("it answers") > 0);
        }
        socket.write_all(b" /x HTTP/1.1\r\nhost: shop\r\n\r\n").await.expect("it lingers");
        socket.shutdown().await.expect("a socket");
        said.clear();
        socket.read_to_end(&mut said).await.expect("closed in order");
        assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
    }
}
