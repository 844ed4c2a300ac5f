//! What a raw caller was answered over gRPC, in the words that the tests ask in.
//!
//! The status is gRPC's and stays that. For callers inside, what a problem document says over HTTP is put together from the
//! status details, so that a test reads one document whichever way it came.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use oneclock_core::Reason;
use oneclock_test::grpc;
use prost::Message;
use serde_json::{Map, Value};

use crate::ways::{Answer, Code, Got};

const STATUS: &str = "grpc-status";

/// The answer that this is, whole on the wire.
pub(crate) fn of(status: StatusCode, head: HeaderMap, body: &[u8], trailers: Option<HeaderMap>) -> Got {
    let is_grpc = head.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let in_trailers = trailers.as_ref().is_some_and(|trailers| trailers.contains_key(STATUS));
    let messages = grpc::messages(body);
    // A status, in one place; and HTTP itself always finds all well (contract X5).
    if status != 200 || !is_grpc || head.contains_key(STATUS) == in_trailers {
        let body = Bytes::copy_from_slice(body);
        return Got::Whole(Answer { status: Code::NotGrpc(status.as_u16()), headers: head, body });
    }
    let Some(messages) = messages else { return Got::CutOff { status: Some(200), said: None } };
    let mut headers = head;
    for (name, value) in trailers.iter().flatten() {
        headers.append(name, value.clone());
    }
    let status = Code::Grpc(headers[STATUS].to_str().unwrap().parse().expect("a number"));
    if status == 200 {
        return Got::Whole(Answer { status, headers, body: messages.concat().into() });
    }
    let document = document(&headers).to_string();
    let answer = Answer { status, headers, body: document.into() };
    if messages.is_empty() {
        return Got::Whole(answer);
    }
    // Some of it came, and then the status that says that it is not all.
    Got::CutOff { status: Some(200), said: Some(answer) }
}

/// What these trailers say, as a problem document has it.
fn document(trailers: &HeaderMap) -> Value {
    // This panics over details that are no base64, as it may: they are ours.
    let status = tonic::Status::from_header_map(trailers).expect("a status");
    let reason = trailers.get("oneclock-reason").map(|reason| reason.to_str().unwrap().to_owned());
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| document.insert(name.to_owned(), value);
    put("title", status.message().into());

    let mut word = reason.clone();
    if !status.details().is_empty() {
        let details = Details::decode(status.details()).expect("a google.rpc.Status");
        assert_eq!((details.code, details.message.as_str()), (status.code().into(), status.message()));
        for detail in details.details {
            match detail.type_url.as_str() {
                "type.googleapis.com/google.rpc.ErrorInfo" => {
                    let info = ErrorInfo::decode(&*detail.value).expect("an ErrorInfo");
                    assert_eq!(info.domain, "oneclock");
                    let said = info.reason.to_ascii_lowercase();
                    assert!(reason.is_none() || reason.as_deref() == Some(&said), "{reason:?}, but {said}");
                    word = Some(said);
                    for (name, value) in info.metadata {
                        let number = serde_json::from_str(&value).ok().filter(Value::is_number);
                        put(&name, number.unwrap_or_else(|| value.into()));
                    }
                }
                "type.googleapis.com/google.rpc.DebugInfo" => {
                    let info = DebugInfo::decode(&*detail.value).expect("a DebugInfo");
                    put("ledger", serde_json::from_str(&info.detail).expect("a ledger"));
                }
                _ => {}
            }
        }
    }
    // Outsiders are told the word and its title, and no more.
    let title = word.as_deref().and_then(Reason::from_word).map(Reason::title);
    if !status.details().is_empty() && title != Some(status.message()) {
        put("insight", status.message().into());
    }
    // The status beside which HTTP would have had this word, if it is the one that belongs to it here.
    if let Some(reason) = word.as_deref().and_then(Reason::from_word) {
        assert_eq!(i32::from(status.code()), i32::from(reason.grpc_status()), "{reason}");
        put("status", reason.http_status().into());
    }
    if let Some(word) = word {
        put("type", format!("urn:oneclock:{word}").into());
    }
    document.into()
}

#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugInfo {
    #[prost(string, tag = "2")]
    detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn fields<const N: usize>(fields: [(&'static str, &'static str); N]) -> HeaderMap {
        let parsed = |(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value));
        HeaderMap::from_iter(fields.map(parsed))
    }

    const GRPC: (&str, &str) = ("content-type", "application/grpc");

    #[test]
    fn a_status_of_http_is_none_of_grpcs() {
        let in_both = (StatusCode::OK, fields([GRPC, (STATUS, "4")]), Some(fields([(STATUS, "4")])));
        let in_none = (StatusCode::OK, fields([GRPC]), None);
        let of_http = (StatusCode::GATEWAY_TIMEOUT, fields([GRPC, (STATUS, "4")]), None);
        for (status, head, trailers) in [in_both, in_none, of_http] {
            let Got::Whole(answer) = of(status, head, b"", trailers) else { panic!("whole") };
            assert!(answer.status != 504 && answer.status != 200, "{answer:?}");
        }
        let Got::Whole(answer) = of(StatusCode::OK, fields([GRPC, (STATUS, "4")]), b"", None) else { panic!("whole") };
        assert_eq!(answer.status, 504);
    }

    #[test]
    fn what_is_not_all_of_it_does_not_look_whole() {
        let trailers = |status| Some(fields([(STATUS, status)]));
        let message = grpc::framed("first");
        let got = of(StatusCode::OK, fields([GRPC]), &message, trailers("0"));
        assert!(matches!(&got, Got::Whole(answer) if answer.body == "first"), "{got:?}");
        let got = of(StatusCode::OK, fields([GRPC]), &message, trailers("4"));
        assert!(matches!(&got, Got::CutOff { said: Some(said), .. } if said.status == 504), "{got:?}");
        let got = of(StatusCode::OK, fields([GRPC]), &message[..7], trailers("0"));
        assert!(matches!(&got, Got::CutOff { said: None, .. }), "{got:?}");
    }
}
