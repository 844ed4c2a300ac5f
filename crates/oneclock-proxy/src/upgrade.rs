//! WebSockets: a request that asks for an upgrade over HTTP/1.1, and the bytes both ways once it is granted.
//!
//! Decides that the operation ends at the upgrade (contract S2): what follows has two clocks of its own, and a task that the
//! shutdown waits for and ends. Only `websocket` is passed on. An upgrade to another protocol (`h2c`) is of one hop, and is
//! the business of nobody behind it: such a request is an ordinary one. So is one with another method than GET (RFC 6455
//! section 4.1), which may have a body and an effect: fields of a hop change nothing about those.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use oneclock::{Shutdown, clock};
use oneclock_core::{Deadline, Tick};
use oneclock_http::hop;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};

use crate::live::Entry;
use crate::own::Lease;

/// How long an upgraded connection may live, and how long nothing may move on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TunnelLimits {
    /// The longest time without a byte either way.
    pub(crate) idle: Duration,
    /// The longest life, from the upgrade.
    pub(crate) total: Duration,
}

const WEBSOCKET: &[u8] = b"websocket";

/// Counts what goes by.
struct Watched<Io> {
    io: Io,
    last: Arc<AtomicU64>, // nanoseconds of a tick
}

// === TunnelLimits ===

impl Default for TunnelLimits {
    /// Five minutes without a byte, which is when most proxies give up; an hour in all.
    fn default() -> Self {
        Self { idle: Duration::from_secs(300), total: Duration::from_secs(3_600) }
    }
}

/// Whether this asks for a WebSocket. Asked before the fields of its hop are gone.
pub(crate) fn is_asked<B>(request: &Request<B>) -> bool {
    let asks = |name: &HeaderName, word: &[u8]| {
        let mut tokens = hop::tokens(request.headers(), name);
        tokens.any(|token| token.eq_ignore_ascii_case(word))
    };
    (request.method(), request.version()) == (&Method::GET, Version::HTTP_11)
        && asks(&header::CONNECTION, b"upgrade")
        && asks(&header::UPGRADE, WEBSOCKET)
}

/// Says to the next hop that an upgrade is wanted, or to the one before that it is granted.
pub(crate) fn say(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// Whether the far side switched to what was asked for.
pub(crate) fn is_websocket(protocol: &HeaderValue) -> bool {
    protocol.as_bytes().eq_ignore_ascii_case(WEBSOCKET)
}

/// Copies both ways, in a task of the shutdown's, until a side closes, a limit is reached or the grace is over.
pub(crate) fn tunnel(
    caller: OnUpgrade,
    upstream: OnUpgrade,
    limits: TunnelLimits,
    shutdown: &Shutdown,
    held: (Lease, Option<Entry>),
) {
    let over = shutdown.clone();
    shutdown.spawn(async move {
        let _held = held;
        let end = Deadline::after(clock::now(), limits.total);
        tokio::select! {
            biased;
            copied = copy(caller, upstream, limits.idle) => match copied {
                Ok(()) => {}
                Err(error) => tracing::debug!(%error, "an upgraded connection ended"),
            },
            () = over.grace_over() => tracing::debug!("an upgraded connection ended by the shutdown"),
            () = tokio::time::sleep_until(clock::instant(end)) => {
                tracing::debug!(limit = ?limits.total, "an upgraded connection ended (limit: total)");
            }
        }
    });
}

async fn copy(caller: OnUpgrade, upstream: OnUpgrade, idle: Duration) -> io::Result<()> {
    let last = Arc::new(AtomicU64::new(clock::now().as_nanos()));
    let copied = async {
        let caller = caller.await.map_err(io::Error::other)?;
        let upstream = upstream.await.map_err(io::Error::other)?;
        let mut caller = Watched { io: TokioIo::new(caller), last: Arc::clone(&last) };
        let mut upstream = Watched { io: TokioIo::new(upstream), last: Arc::clone(&last) };
        copy_bidirectional(&mut caller, &mut upstream).await
    };
    tokio::select! {
        biased;
        copied = copied => copied.map(drop),
        () = quiet(&last, idle) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("quiet for {idle:?} (limit: idle)"))),
    }
}

/// Returns once nothing has gone by for `idle`.
async fn quiet(last: &AtomicU64, idle: Duration) {
    loop {
        let due = Deadline::after(Tick::from_nanos(last.load(Ordering::Relaxed)), idle);
        if due.is_past(clock::now()) {
            return;
        }
        tokio::time::sleep_until(clock::instant(due)).await;
    }
}

// === Watched ===

impl<Io> Watched<Io> {
    fn went_by(&self) {
        self.last.store(clock::now().as_nanos(), Ordering::Relaxed);
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Watched<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.went_by();
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Watched<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.went_by(); // a peer that takes slowly what came long ago is not quiet
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn asks(fields: &[(&str, &str)], version: Version, want: bool) {
        let mut request = Request::get("/").version(version);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        assert_eq!(is_asked(&request.body(()).expect("a request")), want, "{fields:?}");
    }

    #[test]
    fn only_a_websocket_over_http1_is_an_upgrade() {
        asks(&[("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")], Version::HTTP_11, true);
        asks(&[("connection", "keep-alive"), ("upgrade", "websocket")], Version::HTTP_11, false);
        asks(&[("connection", "upgrade, http2-settings"), ("upgrade", "h2c")], Version::HTTP_11, false);
        asks(&[("connection", "upgrade"), ("upgrade", "websocket")], Version::HTTP_10, false);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_quiet_ends_and_what_moves_goes_on() {
        let last = AtomicU64::new(clock::now().as_nanos());
        let began = clock::now();
        let idle = Duration::from_secs(3);
        let moves = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            last.store(clock::now().as_nanos(), Ordering::Relaxed);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = quiet(&last, idle) => {}
            () = moves => {}
        }
        assert_eq!(clock::now().since(began), Duration::from_secs(5));
    }
}
