//! The HTTP/1.1 caller, raw: what it sends is what the test wrote, valid or not.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use socket2::SockRef;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::bound::{Owned, PATIENCE, now};
use crate::wire::{self, Rest};

/// What [`How::TricklesUpload`] announces as its length, in bytes: it never gets there.
const TRICKLE_ANNOUNCED: usize = 1 << 20;
/// After this long without progress an upload is taken for blocked.
const BLOCKED_AFTER: Duration = Duration::from_millis(100);
/// A body longer than this, in bytes, is not read to its end.
const BODY_LIMIT: usize = 256 << 20;

/// How an HTTP/1.1 caller leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum How {
    /// Closes the connection: FIN. (The kernel makes it a RST if part of an answer has arrived and was not read.)
    Close,
    /// Resets the connection: RST.
    Reset,
    /// Closes its sending side and keeps reading, as `nc -N` does. [`Gone::answer`] reads what still comes.
    HalfClose,
    /// Closes when it has read the head of the answer.
    AfterHead,
    /// Closes when it has read the head and half the body; of a body without a length, the first bytes of it.
    HalfRead,
    /// Announces an upload of so many bytes and sends as many of them as are taken, then closes. A server that does not
    /// read the body cannot see the FIN behind it.
    WithUnreadUpload(usize),
    /// Sends a second request right behind the first, then closes. The server holds bytes that it did not read yet.
    Pipelined,
    /// Keeps the connection open and reads nothing; its receive buffer is as small as the kernel allows.
    /// [`Gone::answer`] reads on.
    StopsReading,
    /// Announces an upload of 1 MiB and sends a byte after every such span, until it closes.
    TricklesUpload(Duration),
}

/// An HTTP/1.1 caller with the one request it will send. Made by [`Caller::h1`](super::Caller::h1).
///
/// # Example
/// ```
/// use oneclock_test::caller::{Caller, H1Outcome};
/// use oneclock_test::{Protocol, peer};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let service = peer::echo_headers(Protocol::Http1)?;
/// match Caller::h1(service.addr()).get("/stock").answer().await? {
///     H1Outcome::Complete { status, .. } => assert_eq!(status, 200),
///     other => panic!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a caller does nothing until it sends"]
pub struct H1Caller {
    addr: SocketAddr,
    method: Method,
    target: String,
    fields: Vec<u8>,
    body: Bytes,
}

/// A request that is out, and whose caller has not left yet. Dropping it closes the connection.
#[derive(Debug)]
#[must_use = "dropping it closes the connection"]
pub struct Sent {
    socket: Shared,
    method: Method,
    how: How,
    buffer: BytesMut,
    uploaded: Arc<AtomicUsize>,
    upload: Option<Owned<()>>,
}

/// A caller that has left.
#[derive(Debug)]
pub struct Gone {
    /// When it left, on tokio's clock.
    pub at: Instant,
    /// How many bytes of the body of the answer it had read.
    pub bytes_read: usize,
    keeps: Option<Sent>,
}

/// What an HTTP/1.1 caller got.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum H1Outcome {
    /// A whole answer: its length is satisfied, its final chunk was seen, or it has neither and the connection was
    /// closed in good order.
    Complete {
        /// The status.
        status: StatusCode,
        /// The header fields.
        headers: HeaderMap,
        /// The whole body.
        body: Bytes,
    },
    /// An answer whose body is visibly not whole.
    Truncated {
        /// The status.
        status: StatusCode,
        /// How many bytes of the body came.
        bytes_read: usize,
        /// How it ended.
        end: H1End,
    },
    /// The connection ended before the head of an answer.
    NoAnswer(H1End),
    /// The connection is open and the answer not whole when the caller's patience ran out, or after 256 MiB.
    Unfinished {
        /// The status, if there was a head.
        status: Option<StatusCode>,
        /// How many bytes of the body came.
        bytes_read: usize,
        /// How long the caller waited.
        waited: Duration,
    },
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum H1End {
    /// The other side closed it in good order (FIN).
    Closed,
    /// It failed; [`io::ErrorKind::ConnectionReset`] is a RST, [`io::ErrorKind::InvalidData`] not HTTP.
    Failed(io::ErrorKind),
}

// === H1Caller ===

impl H1Caller {
    pub(super) fn new(addr: SocketAddr) -> Self {
        let fields = format!("host: {addr}\r\n").into_bytes();
        Self { addr, method: Method::GET, target: "/".into(), fields, body: Bytes::new() }
    }

    /// Sends `GET target`.
    pub fn get(self, target: impl Into<String>) -> Self {
        self.method(Method::GET, target)
    }

    /// Sends `POST target` with this body.
    pub fn post(mut self, target: impl Into<String>, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.method(Method::POST, target)
    }

    /// Sends any method.
    pub fn method(mut self, method: Method, target: impl Into<String>) -> Self {
        self.method = method;
        self.target = target.into();
        self
    }

    /// Adds a header field, byte for byte as given: what is invalid here is invalid on the wire.
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        for part in [name.as_ref(), b": ", value.as_ref(), b"\r\n"] {
            self.fields.extend_from_slice(part);
        }
        self
    }

    /// Connects and sends what this way of leaving sends before it leaves.
    ///
    /// # Errors
    /// When the connection cannot be made or is lost while sending.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection, with whatever was sent until then.
    pub async fn send(self, how: How) -> io::Result<Sent> {
        let socket = TcpSocket::new_v4()?;
        if how == How::StopsReading {
            // Before connecting, since the window that is announced in the handshake follows from it.
            socket.set_recv_buffer_size(1)?;
        }
        let socket = Shared(Arc::new(socket.connect(self.addr).await?));
        socket.0.set_nodelay(true)?;

        let head = |length: usize| {
            let length = if length > 0 { format!("content-length: {length}\r\n") } else { String::new() };
            let line = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
            [line.as_bytes(), &self.fields, length.as_bytes(), b"\r\n"].concat()
        };
        let mut first = match how {
            How::WithUnreadUpload(length) => head(length),
            How::TricklesUpload(_) => head(TRICKLE_ANNOUNCED),
            _ => [&head(self.body.len())[..], &self.body].concat(),
        };
        if how == How::Pipelined {
            first.extend_from_within(..);
        }
        let uploaded = Arc::new(AtomicUsize::new(0));
        write_all(&socket.0, &first, &AtomicUsize::new(0)).await?;
        let upload = match how {
            How::WithUnreadUpload(length) => Some(upload(&socket, &uploaded, length).await),
            How::TricklesUpload(every) => Some(trickle(&socket, &uploaded, every)),
            _ => None,
        };
        Ok(Sent { socket, method: self.method, how, buffer: BytesMut::new(), uploaded, upload })
    }

    /// Sends and leaves at once. The server may not even have begun: where that matters use [`send`](Self::send), wait
    /// for the server's side, and then [`leave`](Sent::leave).
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`Sent::leave`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn leave(self, how: How) -> io::Result<Gone> {
        self.send(how).await?.leave().await
    }

    /// Sends, stays, and reads the whole answer.
    ///
    /// # Errors
    /// When the connection cannot be made or is lost while sending.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn answer(self) -> io::Result<H1Outcome> {
        Ok(self.send(How::Close).await?.answer().await)
    }
}

// === Sent ===

impl Sent {
    /// How many bytes of an upload have been taken from this caller (by the kernel, at least).
    pub fn uploaded(&self) -> usize {
        self.uploaded.load(Ordering::Relaxed)
    }

    /// Leaves. When this returns, the connection is closed (or half closed, or abandoned), as [`How`] says.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when the part of the answer that is to be read first does not come within
    /// [`PATIENCE`](crate::PATIENCE); else when the connection is lost before it could be left.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn leave(mut self) -> io::Result<Gone> {
        let mut bytes_read = 0;
        match self.how {
            How::AfterHead | How::HalfRead => {
                let reading = tokio::time::timeout(PATIENCE, self.read_part());
                bytes_read = reading.await.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
            }
            How::HalfClose => SockRef::from(&*self.socket.0).shutdown(std::net::Shutdown::Write)?,
            How::Reset => self.socket.0.set_zero_linger()?,
            How::StopsReading | How::Close | How::WithUnreadUpload(_) | How::Pipelined | How::TricklesUpload(_) => {}
        }
        let keeps = if matches!(self.how, How::HalfClose | How::StopsReading) {
            Some(self)
        } else {
            if let Some(upload) = self.upload.take() {
                upload.end().await; // it holds the socket as well
            }
            drop(self);
            None
        };
        Ok(Gone { at: now(), bytes_read, keeps })
    }

    /// Does not leave after all: reads the whole answer, for at most [`PATIENCE`](crate::PATIENCE). An upload goes on
    /// meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn answer(self) -> H1Outcome {
        self.answer_within(PATIENCE).await
    }

    /// The same with a patience of the test's own; what is not whole by then is [`H1Outcome::Unfinished`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn answer_within(mut self, patience: Duration) -> H1Outcome {
        let mut status = None;
        let mut body = BytesMut::new();
        match tokio::time::timeout(patience, self.read_all(&mut status, &mut body)).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) | Err(_) => H1Outcome::Unfinished { status, bytes_read: body.len(), waited: patience },
        }
    }

    /// `None` once the body is longer than anybody wants to read.
    async fn read_all(&mut self, seen: &mut Option<StatusCode>, body: &mut BytesMut) -> Option<H1Outcome> {
        let head = match wire::response_head(&mut self.socket, &mut self.buffer).await {
            Ok(head) => head,
            Err(error) => return Some(H1Outcome::NoAnswer(end(error.kind()))),
        };
        let status = head.status;
        *seen = Some(status);
        let truncated = |body: &BytesMut, end| Some(H1Outcome::Truncated { status, bytes_read: body.len(), end });
        let mut rest = match Rest::of_response(&head, &self.method) {
            Ok(rest) => rest,
            Err(error) => return truncated(body, end(error.kind())),
        };
        loop {
            match rest.take(&mut self.buffer) {
                Ok(Some(bytes)) => body.extend_from_slice(&bytes),
                Ok(None) if rest == Rest::Nothing => break,
                Ok(None) if body.len() > BODY_LIMIT => return None,
                Ok(None) => match wire::more(&mut self.socket, &mut self.buffer).await {
                    Ok(0) if rest == Rest::UntilClose => break,
                    Ok(0) => return truncated(body, H1End::Closed),
                    Ok(_) => {}
                    Err(error) => return truncated(body, end(error.kind())),
                },
                Err(error) => return truncated(body, end(error.kind())),
            }
        }
        Some(H1Outcome::Complete { status, headers: head.headers, body: body.split().freeze() })
    }

    /// Reads as much as this way of leaving reads; returns how much of the body that was.
    async fn read_part(&mut self) -> io::Result<usize> {
        let head = wire::response_head(&mut self.socket, &mut self.buffer).await?;
        if self.how == How::AfterHead {
            return Ok(0);
        }
        let mut rest = Rest::of_response(&head, &self.method)?;
        let half = match rest {
            Rest::Length(length) => usize::try_from(length / 2).unwrap_or(usize::MAX),
            _ => 1,
        };
        let mut read = 0;
        while read < half {
            match rest.take(&mut self.buffer)? {
                Some(bytes) => read += bytes.len(),
                None if rest == Rest::Nothing => break,
                None => {
                    if wire::more(&mut self.socket, &mut self.buffer).await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
        Ok(read)
    }
}

impl Gone {
    /// Reads what still comes, where leaving left something to read from: after [`How::HalfClose`] and
    /// [`How::StopsReading`]. `None` after the others.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn answer(self) -> Option<H1Outcome> {
        let sent = self.keeps?;
        // With the small buffer the rest would take for ever. If the kernel does not give more, it only takes longer.
        let _ = SockRef::from(&*sent.socket.0).set_recv_buffer_size(1 << 20);
        Some(sent.answer().await)
    }
}

fn end(error: io::ErrorKind) -> H1End {
    if error == io::ErrorKind::UnexpectedEof { H1End::Closed } else { H1End::Failed(error) }
}

// === Uploads ===

static PIECE: [u8; 16 * 1024] = [b'x'; 16 * 1024];

/// Sends `length` bytes from a task of its own; returns when all are sent, or when nobody takes them any more.
async fn upload(socket: &Shared, uploaded: &Arc<AtomicUsize>, length: usize) -> Owned<()> {
    let (task_socket, task_uploaded) = (Arc::clone(&socket.0), Arc::clone(uploaded));
    let (done, mut is_done) = tokio::sync::oneshot::channel::<()>();
    let task = Owned::spawn(async move {
        let mut left = length;
        while left > 0 {
            let part = &PIECE[..left.min(PIECE.len())];
            if write_all(&task_socket, part, &task_uploaded).await.is_err() {
                return; // The reader of the answer tells how the connection ended.
            }
            left -= part.len();
        }
        drop(done);
    });
    let mut before = 0;
    while tokio::time::timeout(BLOCKED_AFTER, &mut is_done).await.is_err() {
        let now = uploaded.load(Ordering::Relaxed);
        if now == before {
            break;
        }
        before = now;
    }
    task
}

fn trickle(socket: &Shared, uploaded: &Arc<AtomicUsize>, every: Duration) -> Owned<()> {
    let (socket, uploaded) = (Arc::clone(&socket.0), Arc::clone(uploaded));
    Owned::spawn(async move {
        for _ in 1..TRICKLE_ANNOUNCED {
            tokio::time::sleep(every).await;
            if write_all(&socket, b"x", &uploaded).await.is_err() {
                return;
            }
        }
    })
}

async fn write_all(socket: &TcpStream, mut bytes: &[u8], written: &AtomicUsize) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.writable().await?;
        match socket.try_write(bytes) {
            Ok(length) => {
                bytes = &bytes[length..];
                written.fetch_add(length, Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

// === Shared ===

/// The socket, read here while an upload writes to it. Not split: dropping a write half would send a FIN of its own.
#[derive(Debug)]
struct Shared(Arc<TcpStream>);

impl AsyncRead for Shared {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(length) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
