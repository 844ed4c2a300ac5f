//! What of a peer's status details may go on with its status.
//!
//! Decides: nothing of what a layer like ours says of its own request (`ErrorInfo` of our domain, and what comes with it), and
//! not when to come again (`RetryInfo`), since both are about the one call that they answered. The rest is the
//! application's. The bytes are a peer's: what cannot be read is kept out of tonic's way, which takes it for granted that
//! they are base64.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tonic::metadata::{BinaryMetadataValue, MetadataMap};

use crate::fields::DETAILS;

const RETRY_INFO: &[u8] = b"google.rpc.RetryInfo";
const ERROR_INFO: &[u8] = b"google.rpc.ErrorInfo";
const DOMAIN: &[u8] = b"oneclock";

/// Details as they were sent.
#[derive(Debug, Default)]
pub(crate) struct Details {
    pub(crate) bytes: Bytes,
    pub(crate) ours: bool, // written by a layer like ours: the status is none of the application's
}

/// Leaves of the details in these headers what may go on.
pub(crate) fn take(headers: &mut HeaderMap) -> Details {
    let Some(value) = headers.get(DETAILS) else { return Details::default() };
    let Some(bytes) = decoded(value) else {
        headers.remove(DETAILS);
        return Details::default();
    };
    let Kept { rest, ours } = kept(&bytes);
    if rest.len() != bytes.len() {
        headers.remove(DETAILS);
        if !rest.is_empty()
            && let Some(value) = encoded(&rest)
        {
            headers.insert(DETAILS, value);
        }
    }
    Details { bytes, ours }
}

fn decoded(value: &HeaderValue) -> Option<Bytes> {
    let headers = HeaderMap::from_iter([(DETAILS, value.clone())]);
    MetadataMap::from_headers(headers).get_bin(DETAILS.as_str())?.to_bytes().ok()
}

fn encoded(details: &[u8]) -> Option<HeaderValue> {
    let mut metadata = MetadataMap::new();
    metadata.insert_bin("grpc-status-details-bin", BinaryMetadataValue::from_bytes(details));
    metadata.into_headers().remove(DETAILS)
}

struct Kept {
    rest: Vec<u8>,
    ours: bool,
}

/// What may go on of a `google.rpc.Status`, whose details are field 3. From where it cannot be read it stays as it is: nobody
/// else can read it either.
fn kept(status: &[u8]) -> Kept {
    let mut kept = Vec::with_capacity(status.len());
    let mut next = status;
    while !next.is_empty() {
        let Some((field, len)) = field(next) else {
            kept.extend_from_slice(next);
            break;
        };
        let (this, rest) = next.split_at(len);
        if field == 3 && contains(this, ERROR_INFO) && contains(this, DOMAIN) {
            return Kept { rest: Vec::new(), ours: true };
        }
        if field != 3 || !contains(this, RETRY_INFO) {
            kept.extend_from_slice(this);
        }
        next = rest;
    }
    Kept { rest: kept, ours: false }
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// The number of the protobuf field that `bytes` begin with, and the length of all of it.
fn field(bytes: &[u8]) -> Option<(u64, usize)> {
    let (key, at) = varint(bytes)?;
    let after = bytes.get(at..)?;
    let len = match key & 7 {
        0 => varint(after)?.1,
        1 => 8,
        2 => {
            let (len, at) = varint(after)?;
            at.checked_add(usize::try_from(len).ok()?)?
        }
        5 => 4,
        _ => return None,
    };
    let len = at.checked_add(len)?;
    (len <= bytes.len()).then_some((key >> 3, len))
}

fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7F) << (7 * at).min(63);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(kind: &str, value: &str) -> Vec<u8> {
        let kind = format!("type.googleapis.com/{kind}");
        let mut any = vec![0x0A, u8::try_from(kind.len()).unwrap()];
        any.extend(kind.as_bytes());
        any.extend([0x12, u8::try_from(value.len()).unwrap()]);
        any.extend(value.as_bytes());
        let mut field = vec![0x1A, u8::try_from(any.len()).unwrap()];
        field.extend(any);
        field
    }

    fn status(details: &[Vec<u8>]) -> Vec<u8> {
        let mut status = vec![0x08, 14, 0x12, 2, b'n', b'o'];
        status.extend(details.concat());
        status
    }

    #[test]
    fn what_is_about_the_one_call_goes_and_the_rest_stays() {
        let theirs = [any("google.rpc.BadRequest", "cart"), any("google.rpc.ErrorInfo", "shop.example")];
        let again = any("google.rpc.RetryInfo", "\u{8}\u{1}");
        let of_the_application = kept(&status(&[theirs[0].clone(), again.clone(), theirs[1].clone()]));
        assert_eq!((of_the_application.rest, of_the_application.ours), (status(&theirs), false));
        let ours = any("google.rpc.ErrorInfo", "SHED oneclock");
        let of_ours = kept(&status(&[ours, again, any("google.rpc.DebugInfo", "the ledger")]));
        assert_eq!((of_ours.rest, of_ours.ours), (Vec::new(), true));
    }

    #[test]
    fn a_peer_may_send_anything() {
        let whole = status(&[any("google.rpc.RetryInfo", "x")]);
        for len in 0..whole.len() {
            kept(&whole[..len]); // no panic
        }
        for bytes in [&[0xFF; 12][..], &[0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], &[0x1B]] {
            assert_eq!(kept(bytes).rest, bytes);
        }
    }

    #[test]
    fn details_that_are_no_base64_never_reach_tonic() {
        let mut headers = HeaderMap::from_iter([(DETAILS, HeaderValue::from_static("no base64!"))]);
        assert!(take(&mut headers).bytes.is_empty());
        assert!(headers.is_empty());
        let naive = HeaderMap::from_iter([
            (crate::fields::STATUS, HeaderValue::from_static("4")),
            (DETAILS, HeaderValue::from_static("no base64!")),
        ]);
        std::panic::catch_unwind(|| tonic::Status::from_header_map(&naive)).expect_err("tonic took it");
    }
}
