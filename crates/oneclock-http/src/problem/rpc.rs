//! A problem as remote procedure calls say it: gRPC's trailers, Connect's documents.
//!
//! Decides the form, by the caller's [`Protocol`] and by whether the head of the answer is out already. Before the head gRPC
//! gets trailers only, in a response that HTTP finds fine; behind it trailers, between two messages (contract X3, X5).
//! Connect's unary calls get a status of HTTP with a JSON document, its streams a last message.

use std::fmt::Write as _;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use oneclock_core::retry::Pushback;
use oneclock_core::{Reason, Trust};
use serde_json::{Map, Value, json};

use super::Problem;
use crate::grpc;
use crate::protocol::{Codec, END_OF_STREAM, Protocol, TRAILERS};

impl Problem {
    /// The response for a caller of this trust that speaks `protocol`.
    pub fn to_answer(&self, protocol: Protocol, trust: Trust) -> Response<Bytes> {
        let of_grpc = |content_type| self.trailers_only(content_type, trust);
        match protocol {
            Protocol::Http => self.to_response(trust),
            Protocol::Grpc => self.to_grpc_response(trust),
            Protocol::GrpcWeb => of_grpc(HeaderValue::from_static("application/grpc-web+proto")),
            Protocol::GrpcWebText => of_grpc(HeaderValue::from_static("application/grpc-web-text+proto")),
            Protocol::ConnectUnary => self.connect_unary(trust),
            Protocol::ConnectStream(codec) => self.connect_stream(codec, trust),
        }
    }

    /// The response for a gRPC caller: trailers only, in a response that HTTP finds fine (contract X3, X5). In the
    /// status details everybody finds the word of a problem document's `type`, and callers inside the trust boundary bound,
    /// stage and times.
    pub fn to_grpc_response(&self, trust: Trust) -> Response<Bytes> {
        self.trailers_only(HeaderValue::from_static("application/grpc"), trust)
    }

    /// What follows the messages of an answer whose head is out, if `protocol` can say it there.
    pub(crate) fn to_last_frame(&self, protocol: Protocol, trust: Trust) -> Option<Frame<Bytes>> {
        match protocol {
            Protocol::Grpc => {
                let mut trailers = HeaderMap::new();
                self.write_status(&mut trailers, trust);
                Some(Frame::trailers(trailers))
            }
            Protocol::GrpcWeb => {
                let mut trailers = HeaderMap::new();
                self.write_status(&mut trailers, trust);
                let mut text = BytesMut::new();
                for (name, value) in &trailers {
                    text.put_slice(name.as_str().as_bytes());
                    text.put_slice(b": ");
                    text.put_slice(value.as_bytes());
                    text.put_slice(b"\r\n");
                }
                message(TRAILERS, &text).map(Frame::data)
            }
            Protocol::ConnectStream(_) => self.end_of_stream(trust).map(Frame::data),
            Protocol::Http | Protocol::GrpcWebText | Protocol::ConnectUnary => None,
        }
    }

    // --- gRPC ---

    fn trailers_only(&self, content_type: HeaderValue, trust: Trust) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        self.write_extensions(&mut response);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        self.write_status(headers, trust);
        response
    }

    fn write_status(&self, headers: &mut HeaderMap, trust: Trust) {
        let message = self.message(trust);
        headers.insert(grpc::STATUS, HeaderValue::from(u16::from(self.grpc_status)));
        if let Ok(message) = HeaderValue::try_from(percent_encoded(message)) {
            headers.insert(grpc::MESSAGE, message);
        }
        if let Some(details) = self.status_details(self.grpc_status, message, trust)
            && let Ok(details) = HeaderValue::try_from(details)
        {
            headers.insert(grpc::DETAILS, details);
        }
        self.write_reason(headers);
        if self.reason == Some(Reason::Shed) || self.come_again != Pushback::Unsaid {
            // What does not fit is said as well: silence would be taken for leave to try at once.
            let wait = self.come_again_after().and_then(|wait| u32::try_from(wait.as_millis()).ok());
            headers.insert(grpc::PUSHBACK, wait.map_or(HeaderValue::from_static("-1"), HeaderValue::from));
        }
    }

    fn message(&self, trust: Trust) -> &str {
        match (trust, &self.insight, &self.detail) {
            (Trust::Inside, Some(insight), _) => insight,
            (_, _, Some(detail)) => detail,
            _ => &self.title,
        }
    }

    // --- Connect ---

    fn connect_unary(&self, trust: Trust) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(self.connect_error(trust).to_string()));
        let (_, status) = connect_code(self.connect_status());
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.write_extensions(&mut response);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.write_reason(headers);
        self.write_retry_after(headers);
        response
    }

    fn connect_stream(&self, codec: Codec, trust: Trust) -> Response<Bytes> {
        let mut response = Response::new(self.end_of_stream(trust).unwrap_or_default());
        self.write_extensions(&mut response);
        let headers = response.headers_mut();
        let content_type = match codec {
            Codec::Proto => "application/connect+proto",
            Codec::Json => "application/connect+json",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        self.write_reason(headers);
        response
    }

    /// The last message of a stream.
    fn end_of_stream(&self, trust: Trust) -> Option<Bytes> {
        let mut end = json!({ "error": self.connect_error(trust) });
        if let Some(reason) = self.reason {
            end["metadata"] = json!({ "oneclock-reason": [reason.as_str()] });
        }
        message(END_OF_STREAM, end.to_string().as_bytes())
    }

    fn connect_error(&self, trust: Trust) -> Value {
        let (code, _) = connect_code(self.connect_status());
        let mut error = Map::new();
        error.insert("code".into(), code.into());
        error.insert("message".into(), self.message(trust).into());
        let details: Vec<Value> = self
            .details(trust)
            .iter()
            .map(|detail| json!({ "type": detail.name(), "value": detail.base64() }))
            .collect();
        if !details.is_empty() {
            error.insert("details".into(), details.into());
        }
        Value::Object(error)
    }

    /// Connect numbers its codes as gRPC does, and calls a field that cannot be read the caller's mistake (contract P3).
    fn connect_status(&self) -> u8 {
        match self.reason {
            Some(Reason::Malformed) => 3,
            _ => self.grpc_status,
        }
    }
}

/// Connect's word for a status of gRPC's, and the status of HTTP that goes with it.
fn connect_code(grpc_status: u8) -> (&'static str, u16) {
    match grpc_status {
        1 => ("canceled", 499),
        3 => ("invalid_argument", 400),
        4 => ("deadline_exceeded", 504),
        5 => ("not_found", 404),
        6 => ("already_exists", 409),
        7 => ("permission_denied", 403),
        8 => ("resource_exhausted", 429),
        9 => ("failed_precondition", 400),
        10 => ("aborted", 409),
        11 => ("out_of_range", 400),
        12 => ("unimplemented", 501),
        13 => ("internal", 500),
        14 => ("unavailable", 503),
        15 => ("data_loss", 500),
        16 => ("unauthenticated", 401),
        _ => ("unknown", 500),
    }
}

/// gRPC's number for Connect's word for it; `None` for a word that Connect does not have.
///
/// ```
/// # use oneclock_http::grpc_status_of_connect;
/// assert_eq!(grpc_status_of_connect("aborted"), Some(10));
/// assert_eq!(grpc_status_of_connect("oops"), None);
/// ```
pub fn grpc_status_of_connect(code: &str) -> Option<u8> {
    (1..=16).find(|status| connect_code(*status).0 == code)
}

/// One message as gRPC frames it: no flags, its length, itself. `None` if it is longer than any can be (4 GiB).
///
/// ```
/// # use oneclock_http::grpc_message;
/// assert_eq!(grpc_message(b"\x08\x07").unwrap(), b"\0\0\0\0\x02\x08\x07"[..]);
/// ```
pub fn grpc_message(payload: &[u8]) -> Option<Bytes> {
    message(0, payload)
}

/// gRPC's status for one of HTTP's that a service chose itself. `google.rpc.Code` has one of HTTP's for each of gRPC's; this is
/// the way back. Where several of gRPC's have the same (400, 409, 500) it is the most usual, where none has it (412, 413, 422,
/// 502, other 5xx) the nearest, and UNKNOWN for the rest.
pub(super) const fn grpc_status_of(http_status: u16) -> u8 {
    match http_status {
        400 | 422 => 3,
        401 => 16,
        403 => 7,
        404 => 5,
        409 => 10,
        412 => 9,
        413 | 429 => 8,
        499 => 1,
        501 => 12,
        502 | 503 => 14,
        504 => 4,
        500..=599 => 13,
        _ => 2,
    }
}

/// One message with its prefix; `None` if it is longer than any can be.
fn message(flags: u8, payload: &[u8]) -> Option<Bytes> {
    let mut bytes = BytesMut::with_capacity(5 + payload.len());
    bytes.put_u8(flags);
    bytes.put_u32(u32::try_from(payload.len()).ok()?);
    bytes.put_slice(payload);
    Some(bytes.freeze())
}

/// gRPC's encoding of a message in a header.
fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn of(reason: Reason) -> Problem {
        Problem { insight: Some("order → pricing".into()), ..Problem::new(reason) }
    }

    #[test]
    fn v13_grpc_gets_a_status_in_a_response_that_http_finds_fine() {
        let response = of(Reason::Deadline).to_answer(Protocol::Grpc, Trust::Outside);
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["grpc-status"], "4");
        assert!(response.body().is_empty());
        let inside = of(Reason::Deadline).to_answer(Protocol::Grpc, Trust::Inside);
        let details = |response: &Response<Bytes>| response.headers()["grpc-status-details-bin"].clone();
        assert_ne!(details(&response), details(&inside), "the word, and nothing of our insides");
        assert_eq!(inside.headers()["grpc-message"], "order %E2%86%92 pricing");
    }

    #[test]
    fn connect_gets_its_own_form() {
        for (reason, status, code) in [
            (Reason::Deadline, 504, "deadline_exceeded"),
            (Reason::ExpiredBeforeStart, 504, "deadline_exceeded"),
            (Reason::RequestBody, 504, "deadline_exceeded"),
            (Reason::CallerGone, 499, "canceled"),
            (Reason::Malformed, 400, "invalid_argument"),
            (Reason::Shed, 503, "unavailable"),
        ] {
            let response = of(reason).to_answer(Protocol::ConnectUnary, Trust::Outside);
            assert_eq!(response.status(), status, "{reason:?}");
            assert_eq!(response.headers()["content-type"], "application/json");
            let error: Value = serde_json::from_slice(response.body()).expect("JSON");
            assert_eq!(error["code"], code, "{reason:?}");
            let details = error["details"].as_array().expect("details");
            assert_eq!((details.len(), &details[0]["type"]), (1, &json!("google.rpc.ErrorInfo")), "the word");
        }
        let inside = of(Reason::Deadline).to_answer(Protocol::ConnectUnary, Trust::Inside);
        let error: Value = serde_json::from_slice(inside.body()).expect("JSON");
        assert_eq!(error["details"][0]["type"], "google.rpc.ErrorInfo");
    }

    #[test]
    fn connect_streams_end_with_a_message() {
        let response = of(Reason::Deadline).to_answer(Protocol::ConnectStream(Codec::Json), Trust::Outside);
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &HeaderValue::from_static("application/connect+json"))
        );
        let (prefix, payload) = response.body().split_at(5);
        assert_eq!(prefix[0], 2);
        assert_eq!(u32::from_be_bytes(prefix[1..].try_into().expect("four")) as usize, payload.len());
        let end: Value = serde_json::from_slice(payload).expect("JSON");
        assert_eq!(end["error"]["code"], "deadline_exceeded");
        assert_eq!(end["metadata"]["oneclock-reason"][0], "deadline");
    }

    #[test]
    fn what_is_shed_is_told_when_to_come_again() {
        for (left, want) in [(2_500, "1000"), (500, "-1")] {
            let shed = Problem { remaining: Some(Duration::from_millis(left)), ..Problem::new(Reason::Shed) };
            let response = shed.to_grpc_response(Trust::Outside);
            assert_eq!(response.headers()["grpc-retry-pushback-ms"], want, "{left} ms left");
        }
        let other = Problem::new(Reason::Deadline).to_grpc_response(Trust::Outside);
        assert!(!other.headers().contains_key("grpc-retry-pushback-ms"));
    }

    #[test]
    fn what_would_be_said_again_is_not_to_be_repeated() {
        // By itself a shutdown says when to come again.
        let problem = Problem { remaining: Some(Duration::from_secs(9)), ..Problem::new(Reason::Shutdown) };
        for (problem, pushback, retry_after) in
            [(problem.clone(), None, Some("1")), (problem.never_again(), Some("-1"), None)]
        {
            let says = |response: Response<Bytes>, name| {
                response.headers().get(name).map(|value| value.to_str().expect("ASCII").to_owned())
            };
            assert_eq!(says(problem.to_grpc_response(Trust::Outside), "grpc-retry-pushback-ms").as_deref(), pushback);
            assert_eq!(says(problem.to_response(Trust::Outside), "retry-after").as_deref(), retry_after);
        }
    }
}
