//! The socket as hyper sees it: watched for progress, for heads, and for a polite end.
//!
//! Decides when a peer that takes no byte is given up (contract X8), how the rest of an upload is thrown away (contract
//! X9), and that an answer which breaks off never looks complete (contract X3). Its timers exist only while a write is pending or the end is being waited for.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

use super::limits::ServeLimits;
use super::link::{Link, Speaks};
use super::listener::Listener;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long an HTTP/2 peer gets to take our GOAWAY and close, once the server shuts down. Its uploads were reset one by
/// one, so that nothing else is waited for.
const LAST_WORDS: Duration = Duration::from_millis(100);

pub(super) struct Wire<L: Listener> {
    io: L::Io,
    link: Arc<Link>,
    limits: Arc<ServeLimits>,
    preface: usize, // how much of it was seen
    ahead: Vec<u8>, // what was read and is not yet given to hyper
    stalled: Option<Pin<Box<Sleep>>>,
    end: Option<End>,
    _place: OwnedSemaphorePermit, // here, so that an upgraded connection keeps its place
}

/// Our side is shut; the peer's rest is read and thrown away.
struct End {
    until: Pin<Box<Sleep>>,
    bytes: u64,
    shut: bool,
}

impl<L: Listener> Wire<L> {
    pub(super) fn new(io: L::Io, place: OwnedSemaphorePermit, link: Arc<Link>, limits: Arc<ServeLimits>) -> Self {
        Self { io, link, limits, preface: 0, ahead: Vec::new(), stalled: None, end: None, _place: place }
    }

    /// Reads until there is something, and it is known what is spoken; no more than that takes. What it reads comes first at
    /// the next read.
    pub(super) fn poll_look(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Speaks>> {
        while self.ahead.is_empty() || self.link.speaks() == Speaks::NotKnown {
            let mut room = [0; PREFACE.len()];
            let Some(room) = room.get_mut(self.ahead.len()..) else { break };
            let mut room = ReadBuf::new(room);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut room))?;
            let new = room.filled();
            if new.is_empty() {
                break; // it said all that it will
            }
            self.link.received();
            self.ahead.extend_from_slice(new);
            self.look(new);
        }
        Poll::Ready(Ok(self.link.speaks()))
    }

    /// Hyper has let go of it and had read these bytes already.
    pub(super) fn given_back(&mut self, read: &[u8]) {
        self.ahead = read.to_vec();
    }

    /// Looks for the preface.
    fn look(&mut self, bytes: &[u8]) {
        if self.link.speaks() != Speaks::NotKnown {
            return;
        }
        for byte in bytes {
            if PREFACE.get(self.preface) != Some(byte) {
                return self.link.set_speaks(Speaks::Http1);
            }
            self.preface += 1;
            if self.preface == PREFACE.len() {
                return self.link.set_speaks(Speaks::Http2);
            }
        }
    }

    fn progress<T>(&mut self, write: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if write.is_ready() {
            if self.stalled.take().is_some() {
                self.link.stalled.set(false);
            }
            return write;
        }
        let limit = self.limits.write_progress;
        let link = &self.link;
        let stalled = self.stalled.get_or_insert_with(|| {
            link.stalled.set(true);
            Box::pin(sleep(limit))
        });
        ready!(stalled.as_mut().poll(cx));
        self.link.cut_off.set(true);
        let why = format!("the peer took no byte for {limit:?} (limit: write_progress)");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }

    /// Whether it is dropped in the middle of an HTTP/1 answer, without anybody having decided so: a body panicked, or the
    /// server was dropped. A close would do for chunks and for a known length, but an answer that ends with its connection
    /// would look complete (contract X3). Hyper drops the socket before the body, so what the link says is still true; a
    /// body that was handed over as a whole may not have left, which a pending write tells.
    fn breaks_off(&self) -> bool {
        self.link.speaks() == Speaks::Http1
            && (self.link.answering.is_set() || self.stalled.is_some() || std::thread::panicking())
    }

    fn begin_end(&self) -> End {
        let linger = match self.link.speaks() {
            Speaks::Http2 if self.link.shutdown.is_signalled() => self.limits.linger.min(LAST_WORDS),
            Speaks::NotKnown | Speaks::Http1 | Speaks::Http2 => self.limits.linger,
        };
        self.link.lingering.set(true);
        End { until: Box::pin(sleep(linger)), bytes: self.limits.linger_bytes, shut: false }
    }
}

impl<L: Listener> AsyncRead for Wire<L> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        if this.ahead.is_empty() {
            ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        } else {
            let fits = this.ahead.len().min(buf.remaining());
            let rest = this.ahead.split_off(fits);
            buf.put_slice(&std::mem::replace(&mut this.ahead, rest));
            // With what follows: together it is what one read would have brought.
            if buf.remaining() > 0
                && let Poll::Ready(more) = Pin::new(&mut this.io).poll_read(cx, buf)
            {
                more?;
            }
        }
        let new = buf.filled().get(before..).unwrap_or_default();
        if !new.is_empty() {
            this.link.received();
            this.look(new);
        }
        Poll::Ready(Ok(()))
    }
}

impl<L: Listener> AsyncWrite for Wire<L> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let write = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.progress(write, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let write = Pin::new(&mut this.io).poll_write_vectored(cx, bytes);
        this.progress(write, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let flush = Pin::new(&mut this.io).poll_flush(cx);
        this.progress(flush, cx)
    }

    /// Shuts our side, then reads on until the peer has closed too, or the bounds are reached. Closed at once with
    /// unread bytes before it, a socket is reset, and the peer loses the answer that it has not read yet.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.end.is_none() {
            this.end = Some(this.begin_end());
        }
        let Some(end) = &mut this.end else { return Poll::Ready(Ok(())) };
        if !end.shut {
            match Pin::new(&mut this.io).poll_shutdown(cx) {
                Poll::Ready(Ok(())) => end.shut = true,
                Poll::Ready(Err(_)) => return Poll::Ready(Ok(())), // the peer is gone already
                Poll::Pending => {
                    ready!(end.until.as_mut().poll(cx));
                    return Poll::Ready(Ok(()));
                }
            }
        }
        if !this.link.may_be_sending.is_set() {
            return Poll::Ready(Ok(()));
        }
        let mut rest = [0; 8 * 1024];
        loop {
            let mut rest = ReadBuf::new(&mut rest);
            match Pin::new(&mut this.io).poll_read(cx, &mut rest) {
                Poll::Ready(Ok(())) if !rest.filled().is_empty() => {
                    end.bytes = end.bytes.saturating_sub(rest.filled().len() as u64);
                    if end.bytes == 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    ready!(end.until.as_mut().poll(cx));
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl<L: Listener> Drop for Wire<L> {
    fn drop(&mut self) {
        if self.link.cut_off.is_set() || self.breaks_off() {
            L::reset(&self.io);
        }
    }
}
