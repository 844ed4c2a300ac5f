//! The probe in the Connect protocol, as far as the checks need it: unary calls and server streams, in both codecs, without
//! compression.
//!
//! Decides nothing of time: where a deadline ends a call, the layer above answers.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, StatusCode, header};
use prost::Message;
use serde_json::{Value, json};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use crate::message::{Ask, RpcStatus, Told};
use crate::probe::{ECHOED, Probe};

/// More than any request of the checks has.
const LARGEST: usize = 64 * 1024;
const END_OF_STREAM: u8 = 0b10;

/// What messages are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    Proto,
    Json,
}

/// Whether a request is Connect's and not gRPC's.
pub(crate) fn is_connect(headers: &HeaderMap) -> bool {
    codec_of(headers).is_some()
}

/// Answers a request of Connect's.
pub(crate) async fn answer(probe: Probe, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Some((codec, is_stream)) = codec_of(&head.headers) else {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    };
    let Ok(bytes) = axum::body::to_bytes(body, LARGEST).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let method = head.uri.path().rsplit('/').next().unwrap_or_default();
    match (method, is_stream) {
        ("Unary", false) => match unary(&probe, codec, &head.headers, &bytes).await {
            Ok(response) => response,
            Err(status) => refusal(&status),
        },
        ("ServerStream", true) => server_stream(&probe, codec, &head.headers, &bytes),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn unary(probe: &Probe, codec: Codec, headers: &HeaderMap, bytes: &[u8]) -> Result<Response, Status> {
    let ask = codec.read(bytes)?;
    let told = probe.answer(MetadataMap::from_headers(headers.clone()), ask).await?;
    let mut response = Response::new(Body::from(codec.write(&told)));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(codec.unary()));
    echo(headers, response.headers_mut());
    Ok(response)
}

fn server_stream(probe: &Probe, codec: Codec, headers: &HeaderMap, bytes: &[u8]) -> Response {
    let ask = bytes.get(5..).map_or_else(|| Err(Status::invalid_argument("no message")), |bytes| codec.read(bytes));
    let items = match ask {
        Ok(ask) => probe.items(MetadataMap::from_headers(headers.clone()), ask),
        Err(status) => Box::pin(stream::iter([Err(status)])),
    };
    // A failure is the last message; without one the last message is empty.
    let ends = stream::unfold(Some(items), move |items| async move {
        let mut items = items?;
        Some(match items.next().await {
            Some(Ok(told)) => (message(0, &codec.write(&told)), Some(items)),
            Some(Err(status)) => (end(json!({ "error": error(&status), "metadata": trailers(&status) })), None),
            None => (end(json!({})), None),
        })
    });
    let mut response = Response::new(Body::from_stream(ends.map(Ok::<_, Infallible>)));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(codec.stream()));
    echo(headers, response.headers_mut());
    response
}

fn end(document: Value) -> Bytes {
    message(END_OF_STREAM, document.to_string().as_bytes())
}

/// Flags, length, payload.
fn message(flags: u8, payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(flags);
    bytes.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    bytes.put_slice(payload);
    bytes.freeze()
}

/// A failed unary call.
fn refusal(status: &Status) -> Response {
    let http = match status.code() {
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = (http, axum::Json(error(status))).into_response();
    echo(&status.metadata().clone().into_headers(), response.headers_mut());
    response
}

fn error(status: &Status) -> Value {
    let name = format!("{:?}", status.code()); // `FailedPrecondition`
    let mut code = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !code.is_empty() {
            code.push('_');
        }
        code.push(letter.to_ascii_lowercase());
    }
    let code = if code == "cancelled" { "canceled".to_owned() } else { code };
    let details = RpcStatus::decode(status.details()).unwrap_or_default().details.into_iter().map(|detail| {
        let name = detail.type_url.rsplit('/').next().unwrap_or_default().to_owned();
        json!({ "type": name, "value": STANDARD_NO_PAD.encode(detail.value) })
    });
    json!({ "code": code, "message": status.message(), "details": details.collect::<Vec<_>>() })
}

/// The metadata of a failure, as the last message has it.
fn trailers(status: &Status) -> Value {
    let headers = status.metadata().clone().into_headers();
    let mut document = json!({});
    for name in headers.keys() {
        let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        document[name.as_str()] = values.collect::<Vec<_>>().into();
    }
    document
}

fn echo(from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from.iter().filter(|(name, _)| name.as_str().starts_with(ECHOED)) {
        to.append(name, value.clone());
    }
}

/// The codec, and whether it is a stream.
fn codec_of(headers: &HeaderMap) -> Option<(Codec, bool)> {
    match headers.get(header::CONTENT_TYPE)?.as_bytes() {
        b"application/proto" => Some((Codec::Proto, false)),
        b"application/json" => Some((Codec::Json, false)),
        b"application/connect+proto" => Some((Codec::Proto, true)),
        b"application/connect+json" => Some((Codec::Json, true)),
        _ => None,
    }
}

// === Codec ===

impl Codec {
    fn read(self, bytes: &[u8]) -> Result<Ask, Status> {
        let invalid = |error: &dyn std::fmt::Display| Status::invalid_argument(error.to_string());
        match self {
            Self::Proto => Ask::decode(bytes).map_err(|error| invalid(&error)),
            Self::Json => serde_json::from_slice(bytes).map_err(|error| invalid(&error)),
        }
    }

    fn write(self, told: &Told) -> Vec<u8> {
        match self {
            Self::Proto => told.encode_to_vec(),
            Self::Json => serde_json::to_vec(told).unwrap_or_default(),
        }
    }

    const fn unary(self) -> &'static str {
        match self {
            Self::Proto => "application/proto",
            Self::Json => "application/json",
        }
    }

    const fn stream(self) -> &'static str {
        match self {
            Self::Proto => "application/connect+proto",
            Self::Json => "application/connect+json",
        }
    }
}
