//! What one peer may take: connections, time, bytes. Every one is finite, and every one has a default.

use std::time::Duration;

/// What peers may take of a server. Change what you need: `limits.idle = Duration::from_secs(300)`.
///
/// ```
/// let mut limits = oneclock_http::ServeLimits::default();
/// limits.max_connections = 500;
/// assert_eq!(limits.header_read_timeout.as_secs(), 10);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServeLimits {
    /// How many connections are served at once. Where every place is taken, whoever comes next waits for one, and the others
    /// behind it unaccepted in the listener's backlog, at no cost to us. Meanwhile connections that have had no request for
    /// a second, and heads and handshakes that have taken so long, lose their place, those that have waited longest first:
    /// peers that hold connections open do not lock the others out. An upgraded connection counts for as long as its handler
    /// keeps it. Default 10 000, at least 1.
    pub max_connections: usize,

    /// How many HTTP/1 connections keep their buffers while they have nothing to do. Where more are open, one that has
    /// nothing to do gives its own back, and takes others when the next request comes: it holds a third then, and that request
    /// takes a little more work. An upload that nobody reads to its end keeps them until the request behind it. Default 64.
    pub max_warm: usize,

    /// How long a peer may take to agree with us before its first head (TLS). Each handshake takes one of the places of
    /// `max_connections`, so that there are no more of them; the time of the head begins after it. Default 10 s.
    pub handshake: Duration,

    /// How long a request's head may take from its first byte, and the first byte of a connection from its acceptance.
    /// HTTP/2: the connection's preface; a head that stops halfway is ended by the ping below. Default 10 s.
    pub header_read_timeout: Duration,

    /// How long a connection may stay open with no request on it; then it is closed in order (GOAWAY on HTTP/2).
    /// Default 75 s, above the 60 s for which most proxies keep a connection, so that they close first.
    pub idle: Duration,

    /// The longest time in which a peer may take no byte while something is to be written to it. Then its connection is
    /// reset. HTTP/2 besides: a stream whose peer opens no window for the next 16 KiB for so long is reset with CANCEL,
    /// and a PING is sent after so long and has to be answered within the same again. Default 30 s.
    pub write_progress: Duration,

    /// How long the rest of an upload is read and thrown away when its answer was complete before it, so that the answer
    /// is not lost to a reset (contract X9). Default 5 s.
    pub linger: Duration,

    /// How many bytes of such a rest are read at most. Default 16 MiB.
    pub linger_bytes: u64,

    /// How many streams a peer may have open on one HTTP/2 connection. Default 100.
    pub max_concurrent_streams: u32,

    /// How large the head of a request may be, in bytes: answered with 431. HTTP/2 counts 32 more for each field
    /// (RFC 9113, 6.5.2). On HTTP/1 it is also the most that is buffered of a connection, each way, and at least 8192.
    /// Default 64 KiB.
    pub max_header_list: u32,

    /// How many fields the head of an HTTP/1 request may have: answered with 431. On HTTP/2 `max_header_list` bounds
    /// them. Default 100.
    pub max_headers: usize,

    /// How many bytes are buffered for one HTTP/2 stream while they cannot be sent. Default 64 KiB.
    pub max_send_buffer: usize,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_warm: 64,
            handshake: Duration::from_secs(10),
            header_read_timeout: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            write_progress: Duration::from_secs(30),
            linger: Duration::from_secs(5),
            linger_bytes: 16 * 1024 * 1024,
            max_concurrent_streams: 100,
            max_header_list: 64 * 1024,
            max_headers: 100,
            max_send_buffer: 64 * 1024,
        }
    }
}
