//! gRPC on the wire, as far as a test needs it: how messages are framed.
//!
//! Callers: [`H2Caller::grpc`](crate::caller::H2Caller::grpc). Peers: [`peer::grpc`](crate::peer::grpc).

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A message behind its prefix: a byte that says it is not compressed, and its length in four.
///
/// ```
/// assert_eq!(oneclock_test::grpc::framed("hi"), &b"\0\0\0\0\x02hi"[..]);
/// ```
///
/// Nothing is longer than 4 GiB in gRPC: what is has a prefix that is wrong.
pub fn framed(message: impl AsRef<[u8]>) -> Bytes {
    let message = message.as_ref();
    let mut bytes = BytesMut::with_capacity(5 + message.len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    bytes.put_slice(message);
    bytes.freeze()
}

/// The messages of a body. `None` if it ends within one, or if one is compressed.
///
/// ```
/// use oneclock_test::grpc::{framed, messages};
/// let body = [framed("one"), framed("")].concat();
/// assert_eq!(messages(&body).unwrap(), ["one", ""]);
/// assert_eq!(messages(&body[..6]), None);
/// ```
pub fn messages(mut body: &[u8]) -> Option<Vec<Bytes>> {
    let mut messages = Vec::new();
    while !body.is_empty() {
        let (prefix, rest) = body.split_at_checked(5)?;
        let [0, length @ ..] = prefix else { return None };
        let length = usize::try_from(u32::from_be_bytes(length.try_into().ok()?)).ok()?;
        let message = rest.get(..length)?;
        messages.push(Bytes::copy_from_slice(message));
        body = rest;
        body.advance(length);
    }
    Some(messages)
}
