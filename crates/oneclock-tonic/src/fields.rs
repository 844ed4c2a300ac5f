//! The fields of a gRPC answer that this crate looks at, and the timeout that a caller in this process put on its request.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use oneclock_core::wire::server_timing::SERVER_TIMING;
use oneclock_core::wire::{Convention, Read, Reader, Wall, names as wire};
use oneclock_http::grpc;
use tonic::Code;

pub(crate) use oneclock_http::grpc::{DETAILS, MESSAGE, PUSHBACK, STATUS};

pub(crate) const RETRIED: HeaderName = HeaderName::from_static(wire::ONECLOCK_RETRIED);

/// `grpc-timeout`, as it is read. A constant would be copied where it is used, and a reader borrows it.
static TIMEOUT: Convention = Convention::GRPC_TIMEOUT;

/// The code in these headers or trailers, written so that tonic, which takes no zeros before it, reads the same.
pub(crate) fn code(headers: &mut HeaderMap) -> Option<Code> {
    let written = headers.get(STATUS)?;
    let Some(status) = grpc::status(headers) else { return Some(Code::Unknown) };
    if written.len() > 1 && written.as_bytes().starts_with(b"0") {
        headers.insert(STATUS, HeaderValue::from(u16::from(status)));
    }
    Some(Code::from_i32(status.into()))
}

/// Removes what an answer said of its one call. Where the time went is left on an answer that is no failure: the entries of
/// others in that field are the application's to read.
pub(crate) fn forget_the_call(headers: &mut HeaderMap, failed: bool) {
    for name in wire::OF_ONE_CALL {
        if failed || name != SERVER_TIMING {
            headers.remove(name);
        }
    }
}

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
