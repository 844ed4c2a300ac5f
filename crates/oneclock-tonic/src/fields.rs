//! The fields of a gRPC answer that this crate looks at, and the timeout that a caller in this process put on its request.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use oneclock_core::wire::{Convention, Read, Reader, Wall, names as wire};

pub(crate) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static(wire::GRPC_RETRY_PUSHBACK_MS);
pub(crate) const RETRIED: HeaderName = HeaderName::from_static(wire::ONECLOCK_RETRIED);

/// `grpc-timeout`, as it is read. A constant would be copied where it is used, and a reader borrows it.
static TIMEOUT: Convention = Convention::GRPC_TIMEOUT;

/// Takes the timeout that the application gave this one call, which can only shorten it. One that cannot be read was not
/// meant by anybody (`Request::set_timeout` writes none): it counts for nothing, and is not sent on.
pub(crate) fn take_timeout(headers: &mut HeaderMap) -> Option<Duration> {
    let mut reader = Reader::new(Wall::default());
    for value in headers.get_all(wire::GRPC_TIMEOUT) {
        reader.field(&TIMEOUT, value.as_bytes());
    }
    let read = reader.finish().read;
    headers.remove(wire::GRPC_TIMEOUT);
    match read {
        Read::Valid(timeout) => Some(timeout),
        Read::Expired => Some(Duration::ZERO),
        Read::Absent | Read::Malformed(_) => None,
    }
}
