//! Where connections come from: TCP and Unix sockets, and whatever else gives something to read and write.
//!
//! Decides how a socket tells that its peer left while bytes of it are still unread (contract N3), and how it is cut off
//! so that nothing truncated looks complete.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Extensions;
use oneclock_core::Trust;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Gives connections to [`serve`](crate::serve). For sockets of your own (in memory, simulated) two items are enough; for
/// what wraps a socket of ours, hand the others on: `<TcpListener as Listener>::peer_left(io.get_ref(), …)`.
///
/// ```
/// # use std::{io, net::SocketAddr}; use tokio::io::DuplexStream; use tokio::sync::mpsc;
/// struct InMemory(mpsc::Receiver<DuplexStream>);
///
/// impl oneclock_http::Listener for InMemory {
///     type Io = DuplexStream;
///
///     async fn accept(&mut self) -> io::Result<(DuplexStream, Option<SocketAddr>)> {
///         // "Broken pipe" is for good: there will be no more.
///         self.0.recv().await.map(|io| (io, None)).ok_or(io::ErrorKind::BrokenPipe.into())
///     }
/// }
/// ```
pub trait Listener: Send + 'static {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection and where its peer is.
    ///
    /// # Errors
    /// Any; `serve` tries again after a pause. Only [`io::ErrorKind::BrokenPipe`] (and the platform's "no such
    /// descriptor") means that there will be no more.
    ///
    /// # Cancel safety
    /// Must be cancel-safe: `serve` drops the future whenever something else happens, and asks again.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, Option<SocketAddr>)>> + Send;

    /// Agrees with the peer on what has to be agreed before its first head: a TLS handshake. Nothing, unless implemented.
    ///
    /// It runs in the connection's own task, while further ones are accepted, within
    /// [`ServeLimits::handshake`](crate::ServeLimits::handshake).
    ///
    /// # Errors
    /// Any; the connection is dropped.
    ///
    /// # Cancel safety
    /// Dropped only with its connection.
    fn handshake(io: &mut Self::Io) -> impl Future<Output = io::Result<()>> + Send {
        let _ = io;
        std::future::ready(Ok(()))
    }

    /// What is known of the peer after the [handshake](Self::handshake). Nothing, unless implemented.
    fn introduce(io: &Self::Io) -> Introduction {
        let _ = io;
        Introduction::default()
    }

    /// Returns once the peer has left, whatever lies unread before that. With `half_close` only a reset is leaving.
    /// Never, unless implemented: what is written to it or read from it tells, later.
    ///
    /// TCP and Unix sockets have it on Linux. What stands behind an upload that fills our receive buffer is still in the
    /// peer's kernel, and nothing shows it: there the deadline ends the work (contract N3).
    ///
    /// # Cancel safety
    /// Must only wait: it is dropped with its connection.
    fn peer_left(io: &Self::Io, half_close: bool) -> impl Future<Output = ()> + Send + use<Self> + 'static {
        let _ = (io, half_close);
        std::future::pending()
    }

    /// Called before a connection is dropped in the middle of an answer: the peer must see that it was cut off, and what
    /// was not yet taken need not be kept. Nothing, unless implemented. (TCP sends a RST; Unix sockets have none.)
    fn reset(io: &Self::Io) {
        let _ = io;
    }
}

/// What a [`Listener`] knows of one peer, for every request of its connection.
///
/// ```
/// # use {oneclock_core::Trust, oneclock_http::Introduction};
/// # #[derive(Clone)] struct Uid(u32);
/// // A Unix socket whose peers are told apart by their user.
/// fn of(uid: Uid) -> Introduction {
///     let mut introduction = Introduction::default();
///     introduction.trust = Some(if uid.0 == 0 { Trust::Inside } else { Trust::Outside });
///     introduction.extensions.insert(uid);
///     introduction
/// }
/// # of(Uid(7));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Introduction {
    /// How far it is trusted: because it proved who it is, not because it says so (contract C2). Without it, as the
    /// listener's peers are: [`Serve::trust`](crate::Serve::trust).
    pub trust: Option<Trust>,
    /// Put into the extensions of each request.
    pub extensions: Extensions,
}

/// A socket that can be watched while it is read and written.
#[derive(Debug)]
pub struct Watched<S>(Arc<S>);

// === Listener for TcpListener ===

impl Listener for TcpListener {
    type Io = Watched<TcpStream>;

    async fn accept(&mut self) -> io::Result<(Self::Io, Option<SocketAddr>)> {
        accept(self).await
    }

    fn peer_left(io: &Self::Io, half_close: bool) -> impl Future<Output = ()> + Send + use<> + 'static {
        let stream = Arc::clone(&io.0);
        async move {
            // An error means that the runtime shuts down; then nobody asks any more.
            match leaving(half_close) {
                Some(interest) if stream.ready(interest).await.is_ok() => {}
                Some(_) | None => std::future::pending().await,
            }
        }
    }

    fn reset(io: &Self::Io) {
        let _ = SockRef::from(&*io.0).set_linger(Some(Duration::ZERO));
    }
}

/// One socket for several servers, which take the connections that they ask for: one after the other, for a server that is
/// exchanged while its socket stays, so that nobody is refused in between.
impl Listener for Arc<TcpListener> {
    type Io = Watched<TcpStream>;

    async fn accept(&mut self) -> io::Result<(Self::Io, Option<SocketAddr>)> {
        accept(self).await
    }

    fn peer_left(io: &Self::Io, half_close: bool) -> impl Future<Output = ()> + Send + use<> + 'static {
        <TcpListener as Listener>::peer_left(io, half_close)
    }

    fn reset(io: &Self::Io) {
        <TcpListener as Listener>::reset(io);
    }
}

async fn accept(listener: &TcpListener) -> io::Result<(Watched<TcpStream>, Option<SocketAddr>)> {
    let (stream, peer) = listener.accept().await?;
    // A small answer must not wait for the peer's acknowledgement of the one before. Failing, it is only slower.
    let _ = stream.set_nodelay(true);
    Ok((Watched(Arc::new(stream)), Some(peer)))
}

#[cfg(unix)]
impl Listener for tokio::net::UnixListener {
    type Io = Watched<tokio::net::UnixStream>;

    async fn accept(&mut self) -> io::Result<(Self::Io, Option<SocketAddr>)> {
        let (stream, _) = tokio::net::UnixListener::accept(self).await?;
        Ok((Watched(Arc::new(stream)), None))
    }

    fn peer_left(io: &Self::Io, half_close: bool) -> impl Future<Output = ()> + Send + use<> + 'static {
        let stream = Arc::clone(&io.0);
        async move {
            // An error means that the runtime shuts down; then nobody asks any more.
            match leaving(half_close) {
                Some(interest) if stream.ready(interest).await.is_ok() => {}
                Some(_) | None => std::future::pending().await,
            }
        }
    }
}

/// What tokio is to watch for.
///
/// A closed read side is sticky in tokio, and the mask of "priority" has it without the readable bytes, which would make
/// the wait return at once. So it waits quietly however much lies unread.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn leaving(half_close: bool) -> Option<Interest> {
    Some(if half_close { Interest::ERROR } else { Interest::PRIORITY })
}

/// Elsewhere there is no such mask: hyper notices what it reads.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn leaving(_half_close: bool) -> Option<Interest> {
    None
}

/// Whether the system tells of what is new on a socket, and not of what lies there still.
const EDGES: bool = cfg!(any(target_os = "linux", target_os = "android"));

// === Watched ===

macro_rules! watched {
    ($stream:ty) => {
        impl AsyncRead for Watched<$stream> {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                loop {
                    ready!(self.0.poll_read_ready(cx))?;
                    let (room, mut drained) = (buf.remaining(), false);
                    let read = self.0.try_io(Interest::READABLE, || {
                        let read = self.0.try_read_buf(buf)?;
                        // Less than there was room for: nothing is left, as tokio's own reads take it. Told that it would have
                        // to wait, tokio does not let us ask the socket again before there is more.
                        drained = EDGES && read > 0 && read < room;
                        if drained { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
                    });
                    match read {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock && !drained => {}
                        Err(_) if drained => return Poll::Ready(Ok(())),
                        read => return Poll::Ready(read),
                    }
                }
            }
        }

        impl AsyncWrite for Watched<$stream> {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                loop {
                    ready!(self.0.poll_write_ready(cx))?;
                    match self.0.try_write(bytes) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        written => return Poll::Ready(written),
                    }
                }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                loop {
                    ready!(self.0.poll_write_ready(cx))?;
                    match self.0.try_write_vectored(bytes) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        written => return Poll::Ready(written),
                    }
                }
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(SockRef::from(&*self.0).shutdown(std::net::Shutdown::Write))
            }
        }
    };
}

watched!(TcpStream);
#[cfg(unix)]
watched!(tokio::net::UnixStream);
