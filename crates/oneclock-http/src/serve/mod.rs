//! The accept loop: HTTP/1.1 and HTTP/2 on one listener, with an end for everything that hyper alone leaves open.
//!
//! Decides nothing about deadlines; the [ingress layer](crate::IngressLayer) does. It gives that layer what only an accept
//! loop has, and carries out what only an accept loop can:
//!
//! 1. [`Arrival`](crate::Arrival): when the head was read, and how far the peer is trusted (contract K1, C2).
//! 2. The end of an operation reaches the socket, even if the peer takes no byte: the stream is reset with CANCEL, the
//!    HTTP/1 connection without a final chunk ([`Exchange`](crate::Exchange), contract X3, X8).
//! 3. The peer's leaving drops the handler, even with an upload unread or a second request behind it (contract N3).
//! 4. A complete answer reaches a peer that is still uploading (contract X9).
//! 5. Shutting down stops admitting, ends live work at the end of the grace, waits for what must finish (contract X10).
//! 6. Every resource that a peer can take is bounded: [`ServeLimits`].
//!
//! ```text
//! accept.rs      accepts while there are places, drains at the end
//! crowd.rs       who has to go when every place is taken
//! connection.rs  one connection: hyper, the peer's leaving, the shutdown, one timer
//! spoken.rs      what is spoken on it
//! flushes.rs     when what an answer handed over is on its way
//! wire.rs        its socket: write progress, the first byte of a head, the polite end
//! streams.rs     its HTTP/2 tasks
//! service.rs     its requests and answers
//! link.rs        what those parts know of each other
//! listener.rs    where connections come from
//! tls.rs         a listener around another one, with the feature `tls`
//! ```

mod accept;
mod connection;
mod crowd;
mod flushes;
mod limits;
mod link;
mod listener;
mod service;
mod spoken;
mod streams;
#[cfg(feature = "tls")]
mod tls;
mod wire;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use oneclock::Shutdown;
use oneclock_core::Trust;
use tower_service::Service;

pub use limits::ServeLimits;
pub use listener::{Introduction, Listener, Watched};
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsIo, TlsPeer, tls};

use self::accept::Stop;
use self::connection::Terms;
use self::crowd::Crowd;
use crate::body::BoxError;

/// A server, served by awaiting it. Made by [`serve`].
#[must_use = "a server does nothing unless awaited"]
pub struct Serve<L, S> {
    listener: L,
    service: S,
    trust: Trust,
    limits: ServeLimits,
    half_close: bool,
    shutdown: Shutdown,
    stop: Option<Stop>,
}

/// Serves HTTP/1.1 and HTTP/2 (with prior knowledge) on `listener` with `service`, an `axum::Router` for example.
///
/// Awaited, it returns `Ok` once it was [shut down](Serve::shutdown) and everything that it spawned is gone.
///
/// A connection that was upgraded (101 or CONNECT) belongs to the handler that took it, and so does its end: its operation
/// is over with the upgrade (contract S2), a shutdown neither closes it nor waits for it, and it keeps its place among
/// [`ServeLimits::max_connections`] until the handler lets go of it. To have it waited for, share a
/// [shutdown](Serve::with_shutdown), give the work on it to [`Shutdown::spawn`], and let it end at
/// [`Shutdown::grace_over`].
///
/// # Errors
/// Only when the listener is broken for good. Errors of single connections, and a lack of descriptors or memory, end
/// nothing: accepting goes on, after a pause if need be.
///
/// # Cancel safety
/// Dropped, it ends at once: no more is accepted, connections and their handlers are dropped, without a grace.
///
/// # Differences from `axum::serve`
/// Every wait has a bound: for a head, for progress of a peer that should read, for the end of a shutdown. A caller that
/// leaves is noticed behind unread bytes. An answer before the end of an upload is not lost.
///
/// # Example
/// ```
/// use oneclock_http::serve;
/// use oneclock_core::Trust;
/// use std::time::Duration;
/// use tokio::net::TcpListener;
/// # async fn ctrl_c() {}
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// let app = axum::Router::new().route("/", axum::routing::get(|| async { "hello" }));
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// serve(listener, app).trust(Trust::Inside).shutdown(ctrl_c(), Duration::from_secs(5)).await?;
/// # Ok(()) }
/// ```
pub fn serve<L, S, B>(listener: L, service: S) -> Serve<L, S>
where
    L: Listener,
    // What awaiting it needs, so that a service which cannot be served is told so here.
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Serve {
        listener,
        service,
        trust: Trust::default(),
        limits: ServeLimits::default(),
        half_close: false,
        shutdown: Shutdown::new(),
        stop: None,
    }
}

// === Serve ===

impl<L, S> Serve<L, S> {
    /// Whether the peers of this listener belong to us (contract C2). Default: [`Trust::Outside`]. A listener that knows who
    /// a peer is may decide otherwise for it: [`Introduction::trust`].
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// What peers may take. Default: [`ServeLimits::default`].
    pub fn limits(mut self, limits: ServeLimits) -> Self {
        self.limits = limits;
        self
    }

    /// [`ServeLimits::max_connections`].
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.limits.max_connections = connections;
        self
    }

    /// [`ServeLimits::handshake`].
    pub fn handshake(mut self, limit: Duration) -> Self {
        self.limits.handshake = limit;
        self
    }

    /// [`ServeLimits::header_read_timeout`].
    pub fn header_read_timeout(mut self, timeout: Duration) -> Self {
        self.limits.header_read_timeout = timeout;
        self
    }

    /// [`ServeLimits::idle`].
    pub fn idle(mut self, idle: Duration) -> Self {
        self.limits.idle = idle;
        self
    }

    /// [`ServeLimits::write_progress`].
    pub fn write_progress(mut self, limit: Duration) -> Self {
        self.limits.write_progress = limit;
        self
    }

    /// [`ServeLimits::linger`] and [`ServeLimits::linger_bytes`].
    pub fn linger(mut self, time: Duration, bytes: u64) -> Self {
        self.limits.linger = time;
        self.limits.linger_bytes = bytes;
        self
    }

    /// [`ServeLimits::max_concurrent_streams`].
    pub fn max_concurrent_streams(mut self, streams: u32) -> Self {
        self.limits.max_concurrent_streams = streams;
        self
    }

    /// [`ServeLimits::max_header_list`], in bytes.
    pub fn max_header_list(mut self, bytes: u32) -> Self {
        self.limits.max_header_list = bytes;
        self
    }

    /// Whether an HTTP/1 peer that has shut its sending side (`nc -N`) still waits for an answer. By default it does not:
    /// that is how most callers leave, and it ends the operation.
    pub fn half_close(mut self, still_waits: bool) -> Self {
        self.half_close = still_waits;
        self
    }

    /// Shuts down when `signal` is done, whatever its output: stops accepting and closes idle connections, lets live work
    /// go on for `grace`, then ends it (contract X10).
    ///
    /// The whole is over at most half a second after the grace, plus the bounds of steps that must finish. Jobs that belong
    /// to no request ([`Operation::begin`](oneclock::Operation::begin)) are not among what is ended and waited for, unless
    /// the server [shares](Self::with_shutdown) the shutdown of the [process](Shutdown::process).
    pub fn shutdown(mut self, signal: impl Future + Send + 'static, grace: Duration) -> Self {
        let signal = Box::pin(async move {
            signal.await;
        });
        self.stop = Some(Stop { signal, grace });
        self
    }

    /// Shares `shutdown` with others, several servers of one process for example. Once it is signalled by any of them,
    /// this server stops. Whoever calls [`Shutdown::drain`] waits for this server's connections too, and its grace counts
    /// here, unless [`shutdown`](Self::shutdown) gives a shorter one, which then ends the work of all who share it.
    /// Default: one of its own.
    ///
    /// Where the process ends with its server, share the [process's](Shutdown::process): then jobs outside of requests are
    /// ended, and waited for, as well.
    ///
    /// ```
    /// # use {oneclock::Shutdown, oneclock_http::serve, std::time::Duration, tokio::net::TcpListener};
    /// # async fn sigterm() {}
    /// # async fn f(listener: TcpListener, app: axum::Router) -> std::io::Result<()> {
    /// serve(listener, app).with_shutdown(Shutdown::process()).shutdown(sigterm(), Duration::from_secs(5)).await
    /// # }
    /// ```
    pub fn with_shutdown(mut self, shutdown: &Shutdown) -> Self {
        self.shutdown = shutdown.clone();
        self
    }
}

impl<L, S, B> IntoFuture for Serve<L, S>
where
    L: Listener,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Output = io::Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { listener, service, trust, limits, half_close, shutdown, stop } = self;
        let terms = Arc::new(Terms { limits: Arc::new(limits), trust, half_close, shutdown, crowd: Crowd::default() });
        Box::pin(accept::run(listener, service, terms, stop))
    }
}

impl<L, S> fmt::Debug for Serve<L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("trust", &self.trust)
            .field("limits", &self.limits)
            .field("half_close", &self.half_close)
            .finish_non_exhaustive()
    }
}

/// What could not be served is refused by `serve` itself, not by the `.await` after it:
/// ```compile_fail,E0277
/// # use {http::{Request, Response}, http_body_util::Empty, hyper::body::Incoming, std::convert::Infallible};
/// # use bytes::Bytes; use tokio::net::TcpListener;
/// fn f(listener: TcpListener) {
///     let not_send = std::rc::Rc::new(());
///     let service = tower::service_fn(move |_: Request<Incoming>| {
///         let _ = not_send.clone();
///         async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) }
///     });
///     let _ = oneclock_http::serve(listener, service);
/// }
/// ```
/// The same with what can be sent:
/// ```
/// # use {http::{Request, Response}, http_body_util::Empty, hyper::body::Incoming, std::convert::Infallible};
/// # use bytes::Bytes; use tokio::net::TcpListener;
/// fn f(listener: TcpListener) {
///     let send = std::sync::Arc::new(());
///     let service = tower::service_fn(move |_: Request<Incoming>| {
///         let _ = send.clone();
///         async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) }
///     });
///     let _ = oneclock_http::serve(listener, service);
/// }
/// ```
#[cfg(doctest)]
struct NotServed;
