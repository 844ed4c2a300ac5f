//! What of a peer's status details may go on with its status.
//!
//! Decides: nothing of what a layer like ours says of its own request (`ErrorInfo` of our domain, and what comes with it), and
//! not when to come again (`RetryInfo`), since both are about the one call that they answered. The rest is the
//! application's. The bytes are a peer's: what cannot be read is kept out of tonic's way, which takes it for granted that
//! they are base64.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use prost::Message;
use tonic::metadata::{BinaryMetadataValue, MetadataMap};

use crate::fields::DETAILS;

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// As much of `google.rpc.ErrorInfo` as tells whose it is.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "2")]
    domain: String,
}

const DOMAIN: &str = "oneclock";

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

/// What may go on of a `google.rpc.Status`. What cannot be read stays as it is: nobody else can read it either.
fn kept(bytes: &[u8]) -> Kept {
    let as_it_is = || Kept { rest: bytes.to_vec(), ours: false };
    let Ok(mut status) = RpcStatus::decode(bytes) else { return as_it_is() };
    if status.details.iter().any(Any::is_ours) {
        return Kept { rest: Vec::new(), ours: true };
    }
    let before = status.details.len();
    status.details.retain(|any| !any.is("google.rpc.RetryInfo"));
    if status.details.len() == before { as_it_is() } else { Kept { rest: status.encode_to_vec(), ours: false } }
}

impl Any {
    fn is(&self, name: &str) -> bool {
        self.type_url.rsplit('/').next() == Some(name)
    }

    fn is_ours(&self) -> bool {
        self.is("google.rpc.ErrorInfo") && ErrorInfo::decode(&*self.value).is_ok_and(|info| info.domain == DOMAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(kind: &str, value: impl Into<Vec<u8>>) -> Any {
        Any { type_url: format!("type.googleapis.com/{kind}"), value: value.into() }
    }

    fn info(domain: &str) -> Any {
        any("google.rpc.ErrorInfo", ErrorInfo { domain: domain.into() }.encode_to_vec())
    }

    fn status(details: &[Any]) -> Vec<u8> {
        RpcStatus { code: 14, message: "no".into(), details: details.to_vec() }.encode_to_vec()
    }

    #[test]
    fn what_is_about_the_one_call_goes_and_the_rest_stays() {
        let theirs = [any("google.rpc.BadRequest", "cart"), info("shop.example")];
        let again = any("google.rpc.RetryInfo", "\u{8}\u{1}");
        let of_the_application = kept(&status(&[theirs[0].clone(), again.clone(), theirs[1].clone()]));
        assert_eq!((of_the_application.rest, of_the_application.ours), (status(&theirs), false));
        let ours = info("oneclock");
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
