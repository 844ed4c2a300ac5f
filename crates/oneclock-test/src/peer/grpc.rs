//! The fixtures over gRPC: HTTP/2 with messages in frames, and a status in the trailers. A method is any path.

use std::io;
use std::time::Duration;

use super::{Peer, Script, Speaks, StreamResetAt};
use crate::Reason;

/// Reads the request, and never answers.
///
/// # Errors
/// When no port can be bound.
///
/// # Panics
/// Outside a tokio runtime; so do the other fixtures.
pub fn stall() -> io::Result<Peer> {
    Peer::serve(Speaks::Grpc, Script::Stall)
}

/// Sends the head of an answer, and then nothing.
///
/// # Errors
/// When no port can be bound.
pub fn stall_after_head() -> io::Result<Peer> {
    Peer::serve(Speaks::Grpc, Script::StallAfterHead)
}

/// Sends the head of an answer and the message `first`, and then nothing: neither another message nor a status.
///
/// # Errors
/// When no port can be bound.
pub fn stall_mid_body() -> io::Result<Peer> {
    Peer::serve(Speaks::Grpc, Script::StallMidBody)
}

/// Sends the head of an answer, then one message after every `message_every`, without end.
///
/// # Errors
/// When no port can be bound.
pub fn trickle(message_every: Duration) -> io::Result<Peer> {
    Peer::serve(Speaks::Grpc, Script::Trickle(message_every))
}

/// Answers with the message `late` and status 0 after `delay`.
///
/// # Errors
/// When no port can be bound.
pub fn slow(delay: Duration) -> io::Result<Peer> {
    Peer::serve(Speaks::Grpc, Script::Slow(delay))
}

/// Answers at once, with what it received: the document of [`echo_headers`](super::echo_headers) as one message.
///
/// # Errors
/// When no port can be bound.
pub fn echo_headers() -> io::Result<Peer> {
    Peer::serve(Speaks::Grpc, Script::Echo)
}

/// Reads the head of the request and nothing after it: an upload blocks at the flow-control window. See
/// [`stops_reading`](super::stops_reading).
///
/// # Errors
/// When no port can be bound.
pub fn stops_reading() -> io::Result<Peer> {
    Peer::serve(Speaks::Grpc, Script::StopsReading)
}

/// Resets the stream with `reason` and keeps the connection. In the middle of the body: behind the message `first`.
///
/// # Errors
/// When no port can be bound.
pub fn reset_stream(at: StreamResetAt, reason: Reason) -> io::Result<Peer> {
    Peer::serve(Speaks::Grpc, Script::ResetStream(at, reason))
}
