//! Servers that misbehave, one idea per fixture, on real sockets of the loopback interface.
//!
//! Each function here starts one server and returns its [`Peer`]: where it listens, what it has seen, and its life.
//! Dropped means stopped: the listener and all connections close at the next turn of the runtime.
//!
//! | fixture | what it does | HTTP/1.1 | HTTP/2 |
//! |---|---|---|---|
//! | [`stall`] | reads the request, never answers | yes | yes |
//! | [`stall_after_head`] | sends the head of its answer, then nothing | yes | yes |
//! | [`stall_mid_body`] | sends the head and a first piece of the body, then nothing | yes | yes |
//! | [`trickle`] | sends the head, then one byte after another, without end | yes | yes |
//! | [`slow`] | answers properly, late | yes | yes |
//! | [`echo_headers`] | answers at once, with what it received | yes | yes |
//! | [`stops_reading`] | reads the head, not the body | yes | yes |
//! | [`reset`] | resets the connection (TCP RST) | yes | |
//! | [`reset_stream`] | resets the stream (RST_STREAM) | | yes |
//! | [`half_close`] | sends half its answer, then closes its sending side | yes | |
//! | [`refuse`] | refuses connections | any | any |
//! | [`connect_hangs`] | leaves the handshake unanswered | any | any |
//! | [`accepts_never`] | completes the handshake, reads nothing | any | any |
//!
//! Those that say something over HTTP/2 say it in gRPC's words in [`grpc`].
//!
//! # Example
//! ```
//! use oneclock_test::{Protocol, peer::{self, Leaving}};
//! # use tokio::{io::AsyncWriteExt, net::TcpStream};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let peer = peer::stall(Protocol::Http1)?;
//! let mut socket = TcpStream::connect(peer.addr()).await?;
//! socket.write_all(b"GET /stock HTTP/1.1\r\nhost: inventory\r\nx-remaining-ms: 300\r\n\r\n").await?;
//!
//! let request = peer.await_request().await?;
//! assert_eq!(request.headers["x-remaining-ms"], "300");
//! drop(socket); // what our code should do at its deadline
//! assert_eq!(peer.caller_left().await?.how, Leaving::Closed);
//! # Ok(()) }
//! ```

pub mod grpc;
mod h1;
mod h2;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ::h2::Reason;
use http::{HeaderMap, Method};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Protocol;
use crate::bound::{NotSeen, Owned, Tally, now};

/// A server that misbehaves. Dropped means stopped.
///
/// Each fixture is a function of [this module](self), and says there what it does.
#[derive(Debug)]
pub struct Peer {
    addr: SocketAddr,
    seen: Arc<Seen>,
    _held: Held,
}

/// The head of a request, as it came over the wire.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// When the head had been read, on tokio's clock.
    pub at: Instant,
    /// The request's method.
    pub method: Method,
    /// The request's target, as its request line has it; over HTTP/2 the path and query.
    pub target: String,
    /// Every header field, in its order.
    pub headers: HeaderMap,
}

/// A caller that left before it had its whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// How the peer noticed.
    pub how: Leaving,
    /// When the peer noticed, on tokio's clock.
    pub at: Instant,
}

/// How a caller left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leaving {
    /// The connection was closed, or its sending side was (FIN; the two look the same from here).
    Closed,
    /// The connection was reset (RST), or could no longer be written to.
    Reset,
    /// The HTTP/2 stream was reset with this code.
    StreamReset(Reason),
}

/// The moment at which [`reset`] resets the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetAt {
    /// As soon as the connection stands: before the request is read.
    Accepted,
    /// When the head of the request has been read: before anything is answered.
    RequestRead,
    /// In the middle of the body of the answer: 5 of 10 bytes are sent.
    MidBody,
}

/// The moment at which [`reset_stream`] resets the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamResetAt {
    /// Before the head of the answer.
    BeforeHead,
    /// After the head of the answer has been written, without any of its body.
    AfterHead,
    /// In the middle of the body: 5 bytes are written.
    MidBody,
}

#[derive(Clone, Copy, Debug)]
enum Script {
    Stall,
    StallAfterHead,
    StallMidBody,
    Trickle(Duration),
    Slow(Duration),
    Echo,
    StopsReading,
    HalfClose,
    Reset(ResetAt),
    ResetStream(StreamResetAt, Reason),
}

/// What a peer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Http1,
    Http2,
    Grpc,
}

#[derive(Debug)]
struct Seen {
    connections: Tally<Instant>,
    requests: Tally<Arrived>,
    left: Tally<Left>,
    reads_on: watch::Sender<bool>,
}

/// What lives as long as the handle.
#[derive(Debug, Default)]
struct Held {
    _serving: Option<Owned<()>>,
    _bound: Option<Socket>,
    _fillers: Vec<TcpStream>,
}

// === The fixtures ===

/// Reads the request (head and body), and never answers.
///
/// # Errors
/// When no port can be bound.
///
/// # Panics
/// Outside a tokio runtime; so do the other fixtures.
pub fn stall(protocol: Protocol) -> io::Result<Peer> {
    Peer::serve(protocol, Script::Stall)
}

/// Sends the head of an answer with `content-length: 1024`, and then nothing.
///
/// # Errors
/// When no port can be bound.
pub fn stall_after_head(protocol: Protocol) -> io::Result<Peer> {
    Peer::serve(protocol, Script::StallAfterHead)
}

/// Sends the head of an answer without a known length (chunked on HTTP/1.1) and its first 5 bytes, and then nothing.
///
/// # Errors
/// When no port can be bound.
pub fn stall_mid_body(protocol: Protocol) -> io::Result<Peer> {
    Peer::serve(protocol, Script::StallMidBody)
}

/// Sends the head of an answer, then one byte after every `byte_every`, without end: always some progress, so an idle
/// timeout never fires.
///
/// # Errors
/// When no port can be bound.
pub fn trickle(protocol: Protocol, byte_every: Duration) -> io::Result<Peer> {
    Peer::serve(protocol, Script::Trickle(byte_every))
}

/// Reads the whole request, and answers 200 with the body `late` after `delay`. Keeps the connection for more.
///
/// # Errors
/// When no port can be bound.
pub fn slow(protocol: Protocol, delay: Duration) -> io::Result<Peer> {
    Peer::serve(protocol, Script::Slow(delay))
}

/// Reads the whole request, and answers at once with a JSON document of what it received:
/// `{"method":"GET","target":"/stock?id=7","headers":{"x-remaining-ms":["280"]}}`. Keeps the connection for more.
///
/// # Errors
/// When no port can be bound.
pub fn echo_headers(protocol: Protocol) -> io::Result<Peer> {
    Peer::serve(protocol, Script::Echo)
}

/// Reads the head of the request and nothing after it, so that a large upload blocks; never answers.
///
/// On HTTP/1.1 the kernels on both sides still take some MB: an upload that is to block for certain is 16 MiB or more.
/// On HTTP/2 it blocks at the flow-control window, 65 535 bytes. A caller that leaves with its upload blocked cannot be
/// noticed on HTTP/1.1, because its FIN queues behind the bytes that nobody reads: let the peer [read
/// on](Peer::read_on) first.
///
/// # Errors
/// When no port can be bound.
pub fn stops_reading(protocol: Protocol) -> io::Result<Peer> {
    Peer::serve(protocol, Script::StopsReading)
}

/// Resets the TCP connection (HTTP/1.1): a real RST, by `SO_LINGER` of zero.
///
/// # Errors
/// When no port can be bound.
pub fn reset(at: ResetAt) -> io::Result<Peer> {
    Peer::serve(Protocol::Http1, Script::Reset(at))
}

/// Resets the stream with `reason` and keeps the connection (HTTP/2).
///
/// # Errors
/// When no port can be bound.
pub fn reset_stream(at: StreamResetAt, reason: Reason) -> io::Result<Peer> {
    Peer::serve(Protocol::Http2, Script::ResetStream(at, reason))
}

/// Sends `content-length: 10` and 5 bytes, closes its sending side (FIN), and goes on reading (HTTP/1.1).
///
/// # Errors
/// When no port can be bound.
pub fn half_close() -> io::Result<Peer> {
    Peer::serve(Protocol::Http1, Script::HalfClose)
}

/// A port that refuses connections. It is bound, so nobody else can begin to listen on it meanwhile.
///
/// # Errors
/// When no port can be bound.
pub fn refuse() -> io::Result<Peer> {
    let (socket, addr) = bound()?;
    Ok(Peer::silent(addr, socket, Vec::new()))
}

/// Completes the handshake (the kernel does) and never accepts: callers connect, and nobody reads what they send.
///
/// # Errors
/// When no port can be bound.
pub fn accepts_never() -> io::Result<Peer> {
    let (socket, addr) = bound()?;
    socket.listen(128)?;
    Ok(Peer::silent(addr, socket, Vec::new()))
}

/// Leaves the handshake unanswered: its queue of connections is full and never taken from, so the kernel drops each SYN,
/// and connecting hangs (for minutes, by default).
///
/// # Errors
/// When no port can be bound, or when the queue cannot be filled (a kernel that refuses instead of dropping).
///
/// # Cancel safety
/// Dropping the future closes everything it opened.
pub async fn connect_hangs() -> io::Result<Peer> {
    let (socket, addr) = bound()?;
    socket.listen(0)?;
    let mut fillers = Vec::new();
    // Linux takes one connection with a queue length of zero; others round up.
    while fillers.len() < 64 {
        // On the loopback interface a handshake takes microseconds: one that takes this long was dropped.
        match tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(addr)).await {
            Ok(filler) => fillers.push(filler?),
            Err(_elapsed) => return Ok(Peer::silent(addr, socket, fillers)),
        }
    }
    Err(io::Error::other("the queue of connections did not fill up"))
}

fn bound() -> io::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    let addr = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok((socket, addr))
}

// === Peer ===

impl Peer {
    /// Where it listens (or refuses to).
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The same as a URL without a path: `http://127.0.0.1:40213`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// How many connections it has accepted. Always 0 for the fixtures that accept none.
    pub fn connections(&self) -> usize {
        self.seen.connections.count()
    }

    /// How many request heads it has read.
    pub fn requests(&self) -> usize {
        self.seen.requests.count()
    }

    /// How many callers left before they had their whole answer.
    pub fn left(&self) -> usize {
        self.seen.left.count()
    }

    /// Waits for the first request, and returns its head. Returns at once if it is already there.
    ///
    /// # Errors
    /// [`NotSeen`], with the counts, after [`PATIENCE`](crate::PATIENCE).
    ///
    /// # Cancel safety
    /// Reads only; dropping the future changes nothing.
    pub async fn await_request(&self) -> Result<Arrived, NotSeen> {
        self.await_requests(1).await
    }

    /// Waits for the `n`th request (counted from 1), and returns its head.
    ///
    /// # Errors
    /// [`NotSeen`], with the counts, after [`PATIENCE`](crate::PATIENCE).
    ///
    /// # Cancel safety
    /// Reads only; dropping the future changes nothing.
    pub async fn await_requests(&self, n: usize) -> Result<Arrived, NotSeen> {
        self.seen.requests.nth(n, "request", || self.to_string()).await
    }

    /// Waits until a caller has left before it had its whole answer: closed or reset its connection or its stream.
    /// Closing an idle connection after the answer is not leaving.
    ///
    /// # Errors
    /// [`NotSeen`], with the counts, after [`PATIENCE`](crate::PATIENCE).
    ///
    /// # Cancel safety
    /// Reads only; dropping the future changes nothing.
    pub async fn caller_left(&self) -> Result<Left, NotSeen> {
        self.callers_left(1).await
    }

    /// Waits until `n` callers have left like that, and returns how and when the `n`th did.
    ///
    /// # Errors
    /// [`NotSeen`], with the counts, after [`PATIENCE`](crate::PATIENCE).
    ///
    /// # Cancel safety
    /// Reads only; dropping the future changes nothing.
    pub async fn callers_left(&self, n: usize) -> Result<Left, NotSeen> {
        self.seen.left.nth(n, "caller leaving", || self.to_string()).await
    }

    /// Lets a peer that [stopped reading](stops_reading) read on, for good. Means nothing to the others.
    pub fn read_on(&self) {
        self.seen.reads_on.send_replace(true);
    }

    fn serve(speaks: impl Into<Speaks>, script: Script) -> io::Result<Self> {
        let speaks = speaks.into();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        if matches!((speaks, script), (Speaks::Http1, Script::StopsReading)) {
            // Accepted sockets inherit it. The smaller it is, the sooner an upload that nobody reads blocks.
            SockRef::from(&listener).set_recv_buffer_size(4096)?;
        }
        let addr = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let seen: Arc<Seen> = Arc::default();
        let task = Owned::spawn(accept(listener, speaks, script, Arc::clone(&seen)));
        Ok(Self { addr, seen, _held: Held { _serving: Some(task), ..Held::default() } })
    }

    /// A peer that never sees a request.
    fn silent(addr: SocketAddr, socket: Socket, fillers: Vec<TcpStream>) -> Self {
        let held = Held { _bound: Some(socket), _fillers: fillers, ..Held::default() };
        Self { addr, seen: Arc::default(), _held: held }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = &self.seen;
        write!(f, "connections {}, requests {}, callers left {}", seen.connections, seen.requests, seen.left)
    }
}

/// Owns the connections: when this is dropped, so are they.
async fn accept(listener: TcpListener, speaks: Speaks, script: Script, seen: Arc<Seen>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    seen.connections.add(now());
                    let seen = Arc::clone(&seen);
                    connections.spawn(async move {
                        // A caller that speaks no HTTP, or leaves between requests, ends its connection and no more.
                        let _ = match speaks {
                            Speaks::Http1 => h1::serve(socket, script, &seen).await,
                            Speaks::Http2 | Speaks::Grpc => {
                                h2::serve(socket, script, speaks, &seen).await.map_err(io::Error::other)
                            }
                        };
                    });
                }
                // Out of descriptors, most likely: wait for some to be given back, rather than spin.
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            },
        }
    }
}

impl From<Protocol> for Speaks {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http1 => Self::Http1,
            Protocol::Http2 => Self::Http2,
        }
    }
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            connections: Tally::default(),
            requests: Tally::default(),
            left: Tally::default(),
            reads_on: watch::Sender::new(false),
        }
    }
}

impl Seen {
    fn leaving(&self, how: Leaving) {
        self.left.add(Left { how, at: now() });
    }

    /// Waits until the peer is told to read on.
    async fn reading(&self) {
        // The sender is in `self`, so this cannot end by its being gone.
        let _ = self.reads_on.subscribe().wait_for(|on| *on).await;
    }
}

impl Arrived {
    fn new(method: Method, target: String, headers: HeaderMap) -> Self {
        Self { at: now(), method, target, headers }
    }

    /// What [`echo_headers`] answers.
    fn to_json(&self) -> String {
        let mut headers = serde_json::Map::new();
        for name in self.headers.keys() {
            let values: Vec<_> =
                self.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
            headers.insert(name.to_string(), serde_json::json!(values));
        }
        serde_json::json!({ "method": self.method.as_str(), "target": self.target, "headers": headers }).to_string()
    }
}

/// How a caller left whose connection gave this error.
fn leaving_by(error: io::ErrorKind) -> Leaving {
    match error {
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Leaving::Reset,
        // What h2 says of a connection that just ended; a write to a closed connection gives it too.
        _ => Leaving::Closed,
    }
}
