//! The socket to the server, and the one that a cancel goes through.
//!
//! Decides when a cancel is done with: when the server has closed its socket, which it does after the signal was sent and
//! not before (contract D3).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// A socket to a server: what TLS connectors for [`build_with`](crate::PoolBuilder::build_with) run over.
#[derive(Debug)]
pub struct Socket {
    kind: Kind,
    purpose: Purpose,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Session,
    /// Its shutdown is over only when the server has closed its side.
    Cancel,
}

// === Socket ===

impl Socket {
    pub(crate) fn tcp(stream: TcpStream) -> Self {
        Self { kind: Kind::Tcp(stream), purpose: Purpose::Session }
    }

    #[cfg(unix)]
    pub(crate) fn unix(stream: UnixStream) -> Self {
        Self { kind: Kind::Unix(stream), purpose: Purpose::Session }
    }

    /// The same, for a cancel.
    pub(crate) fn for_cancel(self) -> Self {
        Self { purpose: Purpose::Cancel, ..self }
    }

    /// Reads to the end of what the server sends, which is nothing, or a rest of its TLS.
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut scratch = [0; 64];
            let mut read = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut *self).poll_read(cx, &mut read)) {
                Ok(()) if read.filled().is_empty() => return Poll::Ready(Ok(())),
                Ok(()) => {}
                // It closed while some of ours (the end of TLS) was unread: closed all the same.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(unix)]
            Kind::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            #[cfg(unix)]
            Kind::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            #[cfg(unix)]
            Kind::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.kind {
            Kind::Tcp(stream) => stream.is_write_vectored(),
            #[cfg(unix)]
            Kind::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(unix)]
            Kind::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.purpose == Purpose::Cancel {
            // The server's side first: ours, closed early, would say that nobody is interested in the cancel any more.
            ready!(self.poll_closed(cx))?;
        }
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(unix)]
            Kind::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
