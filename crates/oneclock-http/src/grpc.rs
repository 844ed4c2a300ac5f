//! How a gRPC call says how it ended: its fields, and how they are read.
//!
//! Decides what counts as a status, whose content is gRPC's, and whether the status of an answer is still to come. Everybody
//! who asks, asks here: the way in, the way out, and the crates for tonic and for idempotency keys. What a status means is
//! `oneclock_core::effect`'s decision.

use http::{HeaderMap, HeaderName};
use oneclock_core::wire::names as wire;

use crate::protocol::Protocol;

/// The status of a call: digits. In the trailers, or in the head where there is nothing else.
pub const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// What is said with it, percent-encoded.
pub const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The same for machines: a `google.rpc.Status`, in base64.
pub const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// When to come again: milliseconds, or a negative number for never.
pub const PUSHBACK: HeaderName = HeaderName::from_static(wire::GRPC_RETRY_PUSHBACK_MS);

/// The status of a mistake that is nobody's to mend.
pub(crate) const INTERNAL: u8 = 13;

/// What an answer may carry of the end of a call, and what an end in its place must not.
pub const OF_A_STATUS: [HeaderName; 4] = [STATUS, MESSAGE, DETAILS, PUSHBACK];

/// The status in these headers or trailers. One that cannot be read is none: it is digits and nothing else, and the parser of
/// the language takes a sign as well.
///
/// ```
/// # use http::HeaderMap; use oneclock_http::grpc;
/// let says = |value: &str| grpc::status(&HeaderMap::from_iter([(grpc::STATUS, value.parse().unwrap())]));
/// assert_eq!((says("0"), says("00"), says("14")), (Some(0), Some(0), Some(14)));
/// assert_eq!((says("+5"), says("256"), says(""), grpc::status(&HeaderMap::new())), (None, None, None, None));
/// ```
pub fn status(headers: &HeaderMap) -> Option<u8> {
    let status = headers.get(STATUS)?.to_str().ok()?;
    status.bytes().all(|digit| digit.is_ascii_digit()).then(|| status.parse().ok()).flatten()
}

/// Whether they say that the call failed. A status that cannot be read is not the one for what went well.
///
/// ```
/// # use http::HeaderMap; use oneclock_http::grpc;
/// let failed = |value: &str| grpc::is_failure(&HeaderMap::from_iter([(grpc::STATUS, value.parse().unwrap())]));
/// assert!(failed("14") && failed("?") && !failed("0") && !failed("00"));
/// assert!(!grpc::is_failure(&HeaderMap::new()), "nothing is said");
/// ```
pub fn is_failure(headers: &HeaderMap) -> bool {
    headers.contains_key(STATUS) && status(headers) != Some(0)
}

/// The status of a call whose stream was reset with this code of HTTP/2, by the table of gRPC's protocol. Codes that it does
/// not name are INTERNAL, as those that say nothing more.
///
/// ```
/// # use oneclock_http::grpc::status_of_reset;
/// const REFUSED_STREAM: u32 = 7; // RFC 9113, section 7
/// assert_eq!((status_of_reset(REFUSED_STREAM), status_of_reset(2)), (14, 13));
/// ```
pub fn status_of_reset(code: u32) -> u8 {
    match h2::Reason::from(code) {
        h2::Reason::REFUSED_STREAM => 14,
        h2::Reason::CANCEL => 1,
        h2::Reason::ENHANCE_YOUR_CALM => 8,
        h2::Reason::INADEQUATE_SECURITY => 7,
        _ => INTERNAL,
    }
}

/// Whether the content of this message is gRPC's, by its `content-type`. That of gRPC-Web is not: it has its trailers in its
/// body.
///
/// ```
/// # use http::{HeaderMap, header::CONTENT_TYPE}; use oneclock_http::grpc;
/// let speaks = |value: &str| grpc::is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, value.parse().unwrap())]));
/// assert!(speaks("application/grpc") && speaks("Application/gRPC+proto"));
/// assert!(!speaks("application/grpc-web+proto") && !speaks("application/json"));
/// ```
pub fn is_grpc(headers: &HeaderMap) -> bool {
    Protocol::of_content(headers) == Some(Protocol::Grpc)
}

/// Whether the status of an answer with this head is still to come: behind its messages, which for gRPC-Web is in its body.
pub(crate) fn is_told_later(head: &HeaderMap) -> bool {
    matches!(Protocol::of_content(head), Some(Protocol::Grpc | Protocol::GrpcWeb | Protocol::GrpcWebText))
        && status(head).is_none()
}
