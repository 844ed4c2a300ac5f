//! The HTTP/2 caller, on the `h2` crate.

use std::future::poll_fn;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use socket2::{SockRef, Socket};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::bound::{NotSeen, Owned, PATIENCE, now, patiently};

/// A body longer than this, in bytes, is not read to its end.
const BODY_LIMIT: usize = 256 << 20;

/// The settings of an HTTP/2 caller before it connects. Made by [`Caller::h2`](super::Caller::h2).
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it connects"]
pub struct H2Builder {
    addr: SocketAddr,
    settings: h2::client::Builder,
}

/// An HTTP/2 connection whose caller may leave. Dropping it closes the connection and ends its task.
///
/// # Example
/// ```
/// use oneclock_test::{Protocol, Reason, caller::Caller, peer::{self, Leaving}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let service = peer::stall(Protocol::Http2)?;
/// let caller = Caller::h2(service.addr()).connect().await?;
/// let call = caller.get("/order").header("x-remaining-ms", "800").send().await?;
/// service.await_request().await?;
/// call.reset(Reason::CANCEL);
/// assert_eq!(service.caller_left().await?.how, Leaving::StreamReset(Reason::CANCEL));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct H2Caller {
    addr: SocketAddr,
    send: SendRequest<Bytes>,
    connection: Owned<()>,
    // A second handle on the socket: for a RST, and to keep it open when nothing reads from it any more.
    socket: Socket,
}

/// A request before it is sent.
#[derive(Debug)]
#[must_use = "a request does nothing until it is sent"]
pub struct H2Request<'c> {
    caller: &'c H2Caller,
    method: Method,
    target: String,
    headers: HeaderMap,
    invalid: Option<&'static str>,
    body: Bytes,
    open: bool,
}

/// A request that is out.
///
/// Holding it without reading is a caller that stops reading: no flow control is released, and the server can send no
/// more than the [window](H2Builder::window). Dropping it resets the stream with CANCEL, as dropping a client's response
/// future does.
#[derive(Debug)]
#[must_use = "dropping it resets the stream"]
pub struct H2Call {
    stream: SendStream<Bytes>,
    reading: Reading,
}

/// The receiving side of a call: how far it has been read.
#[derive(Debug)]
struct Reading {
    response: Option<ResponseFuture>,
    head: Option<(StatusCode, HeaderMap)>,
    body: Option<RecvStream>,
    bytes_read: usize,
}

/// A connection that is open and from which nothing reads any more, not even HTTP/2 frames. Dropping it closes it.
#[derive(Debug)]
#[must_use = "dropping it closes the connection"]
pub struct Frozen {
    _socket: Socket,
    _send: SendRequest<Bytes>,
}

/// What an HTTP/2 caller got.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum H2Outcome {
    /// A whole answer: the stream was ended by the server.
    Complete {
        /// The status.
        status: StatusCode,
        /// The header fields.
        headers: HeaderMap,
        /// The whole body.
        body: Bytes,
        /// The trailer fields, if there were any.
        trailers: Option<HeaderMap>,
    },
    /// The server reset the stream.
    Reset {
        /// The code it gave.
        reason: Reason,
        /// The status, if there was a head before.
        status: Option<StatusCode>,
        /// How many bytes of the body came before.
        bytes_read: usize,
    },
    /// The connection ended before the answer did.
    ConnectionLost {
        /// The status, if there was a head before.
        status: Option<StatusCode>,
        /// How many bytes of the body came before.
        bytes_read: usize,
    },
    /// The stream is open and the answer not whole when the caller's patience ran out, or after 256 MiB.
    Unfinished {
        /// The status, if there was a head.
        status: Option<StatusCode>,
        /// How many bytes of the body came.
        bytes_read: usize,
        /// How long the caller waited.
        waited: Duration,
    },
}

// === H2Builder ===

impl H2Builder {
    pub(super) fn new(addr: SocketAddr) -> Self {
        Self { addr, settings: h2::client::Builder::new() }
    }

    /// The flow-control window of the connection and of each stream, in bytes: how much the server may send that is not
    /// read. 65 535 unless set.
    pub fn window(mut self, bytes: u32) -> Self {
        self.settings.initial_window_size(bytes).initial_connection_window_size(bytes);
        self
    }

    /// The longest frame that the server may send, in bytes; from 16 384 (unless set) to 16 777 215.
    ///
    /// # Panics
    /// Outside that range.
    pub fn max_frame(mut self, bytes: u32) -> Self {
        self.settings.max_frame_size(bytes);
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// When the connection cannot be made, or the server does not speak HTTP/2.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn connect(self) -> io::Result<H2Caller> {
        let stream = TcpStream::connect(self.addr).await?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream).try_clone()?;
        let (send, connection) = self.settings.handshake(stream).await.map_err(io::Error::other)?;
        let connection = Owned::spawn(async move {
            // How the connection ends is told by each call.
            let _ = connection.await;
        });
        Ok(H2Caller { addr: self.addr, send, connection, socket })
    }
}

// === H2Caller ===

impl H2Caller {
    /// A `GET target`.
    pub fn get(&self, target: impl Into<String>) -> H2Request<'_> {
        self.method(Method::GET, target)
    }

    /// A `POST target` with this body. What the server's window does not take waits here.
    pub fn post(&self, target: impl Into<String>, body: impl Into<Bytes>) -> H2Request<'_> {
        let mut request = self.method(Method::POST, target);
        request.body = body.into();
        request
    }

    /// A unary call of gRPC to `/package.Service/Method`, with this message. What it was answered is in
    /// [`H2Outcome::Complete`]: the status in the trailers, or in the head where there is nothing else;
    /// [`grpc::messages`](crate::grpc::messages) reads the body.
    ///
    /// ```
    /// use oneclock_test::caller::{Caller, H2Outcome};
    /// use oneclock_test::{grpc, peer};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let service = peer::grpc::slow(std::time::Duration::ZERO)?; // yours, in its place
    /// let caller = Caller::h2(service.addr()).connect().await?;
    /// let call = caller.grpc("/shop.Pricing/Price", "cart 7").header("grpc-timeout", "800m").send().await?;
    /// let H2Outcome::Complete { body, trailers, .. } = call.answer().await else { panic!("no answer") };
    /// assert_eq!(grpc::messages(&body).unwrap(), ["late"]);
    /// assert_eq!(trailers.unwrap()["grpc-status"], "0");
    /// # Ok(()) }
    /// ```
    pub fn grpc(&self, method: impl Into<String>, message: impl AsRef<[u8]>) -> H2Request<'_> {
        self.post(method, crate::grpc::framed(message))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
    }

    /// A request with any method.
    pub fn method(&self, method: Method, target: impl Into<String>) -> H2Request<'_> {
        H2Request {
            caller: self,
            method,
            target: target.into(),
            headers: HeaderMap::new(),
            invalid: None,
            body: Bytes::new(),
            open: false,
        }
    }

    /// Leaves: closes the connection with all its streams (FIN, without a GOAWAY). When this returns it is closed.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection as well.
    pub async fn leave(self) -> Instant {
        self.connection.end().await;
        // What has arrived and was not read would turn the FIN into a RST: read it off. The socket does not block.
        let mut waste = [0; 1024];
        while (&self.socket).read(&mut waste).is_ok_and(|length| length > 0) {}
        drop(self.socket);
        now()
    }

    /// Leaves: resets the connection with all its streams (RST). When this returns it is reset.
    ///
    /// # Errors
    /// When the kernel does not take `SO_LINGER`.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn reset(self) -> io::Result<Instant> {
        self.socket.set_linger(Some(Duration::ZERO))?;
        self.connection.end().await;
        drop(self.socket);
        Ok(now())
    }

    /// Stops reading the socket altogether and keeps it open. Its calls end with [`H2Outcome::ConnectionLost`] on this
    /// side; the server sees a connection that it can soon not write to.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn freeze(self) -> Frozen {
        self.connection.end().await;
        Frozen { _socket: self.socket, _send: self.send }
    }
}

// === H2Request ===

impl H2Request<'_> {
    /// Adds a header field. Unlike HTTP/1.1's, an invalid one cannot be sent: [`send`](Self::send) returns the error.
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        match (HeaderName::from_bytes(name.as_ref()), HeaderValue::from_bytes(value.as_ref())) {
            (Ok(name), Ok(value)) => {
                self.headers.append(name, value);
            }
            (Err(_), _) => self.invalid = Some("invalid header name"),
            (_, Err(_)) => self.invalid = Some("invalid header value"),
        }
        self
    }

    /// Leaves the body unfinished after what was given, for [`H2Call::upload`] and [`H2Call::answer_while_trickling`].
    pub fn unfinished(mut self) -> Self {
        self.open = true;
        self
    }

    /// Sends the request.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when it cannot be expressed in HTTP/2; else when the connection is lost, or takes
    /// no more streams within [`PATIENCE`](crate::PATIENCE).
    ///
    /// # Cancel safety
    /// Dropping the future sends nothing.
    pub async fn send(self) -> io::Result<H2Call> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        if let Some(why) = self.invalid {
            return Err(invalid(why.to_owned()));
        }
        let uri: Uri = format!("http://{}{}", self.caller.addr, self.target)
            .parse()
            .map_err(|error| invalid(format!("{error}")))?;
        let mut request = Request::new(());
        *request.method_mut() = self.method;
        *request.uri_mut() = uri;
        *request.version_mut() = http::Version::HTTP_2;
        *request.headers_mut() = self.headers;

        let ready = patiently(self.caller.send.clone().ready()).await.ok_or(io::ErrorKind::TimedOut)?;
        let mut send = ready.map_err(io::Error::other)?;
        let ends = self.body.is_empty() && !self.open;
        let (response, mut stream) = send.send_request(request, ends).map_err(io::Error::other)?;
        if !self.body.is_empty() {
            stream.send_data(self.body, !self.open).map_err(io::Error::other)?;
        }
        Ok(H2Call { stream, reading: Reading { response: Some(response), head: None, body: None, bytes_read: 0 } })
    }
}

// === H2Call ===

impl H2Call {
    /// Leaves: resets the stream with `reason`; the connection stays.
    pub fn reset(mut self, reason: Reason) -> Instant {
        self.stream.send_reset(reason);
        now()
    }

    /// Sends more of an [unfinished](H2Request::unfinished) body; what the server's window does not take waits here.
    ///
    /// # Errors
    /// When the body is finished, or the stream is over.
    pub fn upload(&mut self, data: impl Into<Bytes>, last: bool) -> io::Result<()> {
        self.stream.send_data(data.into(), last).map_err(io::Error::other)
    }

    /// Waits for the head of the answer, and reads nothing after it.
    ///
    /// # Errors
    /// How the call ended instead.
    ///
    /// # Cancel safety
    /// Nothing is lost: call it again.
    pub async fn head(&mut self) -> Result<(StatusCode, HeaderMap), H2Outcome> {
        match patiently(self.reading.read_head()).await {
            Some(head) => head,
            None => Err(self.reading.unfinished(PATIENCE)),
        }
    }

    /// Reads the next piece of the body, after the head. `None` at its end, which the server has marked.
    ///
    /// # Errors
    /// How the call ended instead.
    ///
    /// # Cancel safety
    /// Nothing is lost: call it again.
    pub async fn data(&mut self) -> Result<Option<Bytes>, H2Outcome> {
        match patiently(self.reading.read_data()).await {
            Some(data) => data,
            None => Err(self.reading.unfinished(PATIENCE)),
        }
    }

    /// Waits until the server resets the stream or the connection ends, without reading: the caller that stopped
    /// reading learns that it holds nothing any more.
    ///
    /// # Errors
    /// [`NotSeen`] after [`PATIENCE`](crate::PATIENCE).
    ///
    /// # Cancel safety
    /// Reads only; dropping the future changes nothing.
    pub async fn ended_by_server(&mut self) -> Result<H2Outcome, NotSeen> {
        match patiently(poll_fn(|cx| self.stream.poll_reset(cx))).await {
            Some(Ok(reason)) => Ok(self.reading.was_reset(reason)),
            Some(Err(error)) => Ok(self.reading.failed(&error)),
            None => Err(NotSeen {
                event: "stream reset",
                wanted: 1,
                seen: 0,
                waited: PATIENCE,
                picture: format!("{:?}", self.reading.unfinished(PATIENCE)),
            }),
        }
    }

    /// Reads the rest of the answer, for at most [`PATIENCE`](crate::PATIENCE).
    ///
    /// # Cancel safety
    /// Dropping the future resets the stream with CANCEL.
    pub async fn answer(self) -> H2Outcome {
        self.answer_within(PATIENCE).await
    }

    /// The same with a patience of the test's own; what is not whole by then is [`H2Outcome::Unfinished`].
    ///
    /// # Cancel safety
    /// Dropping the future resets the stream with CANCEL.
    pub async fn answer_within(mut self, patience: Duration) -> H2Outcome {
        match tokio::time::timeout(patience, self.reading.read_all()).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) | Err(_) => self.reading.unfinished(patience),
        }
    }

    /// Reads the rest of the answer, and sends a byte of an [unfinished](H2Request::unfinished) body after every
    /// `byte_every` meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future resets the stream with CANCEL.
    pub async fn answer_while_trickling(self, byte_every: Duration) -> H2Outcome {
        let Self { mut stream, mut reading } = self;
        let outcome = {
            let mut answer = pin!(reading.read_all());
            let trickled = async {
                loop {
                    match tokio::time::timeout(byte_every, &mut answer).await {
                        Ok(outcome) => return outcome,
                        // A server may take no more of the upload and yet be about to answer: only the answer decides.
                        Err(_elapsed) => drop(stream.send_data(Bytes::from_static(b"x"), false)),
                    }
                }
            };
            patiently(trickled).await.flatten()
        };
        outcome.unwrap_or_else(|| reading.unfinished(PATIENCE))
    }
}

// === Reading ===

impl Reading {
    async fn read_head(&mut self) -> Result<(StatusCode, HeaderMap), H2Outcome> {
        if let Some(response) = &mut self.response {
            let answered = response.await;
            self.response = None;
            match answered {
                Ok(answer) => {
                    let (head, body) = answer.into_parts();
                    self.head = Some((head.status, head.headers));
                    self.body = Some(body);
                }
                Err(error) => return Err(self.failed(&error)),
            }
        }
        self.head.clone().ok_or_else(|| self.lost())
    }

    async fn read_data(&mut self) -> Result<Option<Bytes>, H2Outcome> {
        self.read_head().await?;
        let Some(body) = &mut self.body else { return Err(self.lost()) };
        match body.data().await {
            Some(Ok(data)) => {
                self.bytes_read += data.len();
                let _ = body.flow_control().release_capacity(data.len());
                Ok(Some(data))
            }
            Some(Err(error)) => Err(self.failed(&error)),
            None => Ok(None),
        }
    }

    /// `None` once the body is longer than anybody wants to read.
    async fn read_all(&mut self) -> Option<H2Outcome> {
        let mut whole = BytesMut::new();
        let (status, headers) = match self.read_head().await {
            Ok(head) => head,
            Err(outcome) => return Some(outcome),
        };
        loop {
            match self.read_data().await {
                Ok(Some(data)) => whole.extend_from_slice(&data),
                Ok(None) => break,
                Err(outcome) => return Some(outcome),
            }
            if whole.len() > BODY_LIMIT {
                return None;
            }
        }
        let trailers = match &mut self.body {
            Some(body) => body.trailers().await,
            None => Ok(None),
        };
        Some(match trailers {
            Ok(trailers) => H2Outcome::Complete { status, headers, body: whole.freeze(), trailers },
            Err(error) => self.failed(&error),
        })
    }

    fn status(&self) -> Option<StatusCode> {
        self.head.as_ref().map(|(status, _)| *status)
    }

    fn failed(&self, error: &h2::Error) -> H2Outcome {
        match error.reason() {
            Some(reason) if error.is_reset() => self.was_reset(reason),
            _ => self.lost(),
        }
    }

    fn was_reset(&self, reason: Reason) -> H2Outcome {
        H2Outcome::Reset { reason, status: self.status(), bytes_read: self.bytes_read }
    }

    fn lost(&self) -> H2Outcome {
        H2Outcome::ConnectionLost { status: self.status(), bytes_read: self.bytes_read }
    }

    fn unfinished(&self, waited: Duration) -> H2Outcome {
        H2Outcome::Unfinished { status: self.status(), bytes_read: self.bytes_read, waited }
    }
}
