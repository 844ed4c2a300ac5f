//! gRPC and Connect from peers that say anything: whatever arrives, the handler's answer or one of ours comes back, in time
//! and in the caller's own form; whatever a far side answers, a call has an outcome.
//!
//! Time is paused, and runs only when everything waits.

use std::convert::Infallible;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use oneclock::Operation;
use oneclock_core::{Outcome, Policy, Trust};
use oneclock_http::{Destination, EgressLayer, IngressLayer, Upload};
use tower::{Layer as _, ServiceExt as _};

const LIMIT: Duration = Duration::from_millis(300);
const CONTENT: [&str; 9] = [
    "application/grpc",
    "application/grpc+proto",
    "application/grpc-web",
    "application/grpc-web-text",
    "application/connect+proto",
    "application/connect+json",
    "application/proto",
    "application/json",
    "text/plain",
];
const FIELDS: [&str; 12] = [
    "content-type",
    "grpc-timeout",
    "connect-timeout-ms",
    "connect-protocol-version",
    "x-remaining-ms",
    "grpc-status",
    "grpc-message",
    "grpc-status-details-bin",
    "oneclock-reason",
    "grpc-retry-pushback-ms",
    "oneclock-retried",
    "retry-after",
];

/// A request with any fields, to a handler that answers with any pieces, and perhaps never ends.
pub fn request(bytes: &[u8]) {
    let Ok((request, pieces, trust)) = arrives(&mut Unstructured::new(bytes)) else { return };
    let content = request.headers().get("content-type").cloned();
    let grpc = content
        .as_ref()
        .is_some_and(|content| matches!(content.as_bytes(), b"application/grpc" | b"application/grpc+proto"));
    in_paused_time(async move {
        let Ok(policy) = Policy::named("fuzz").when_absent(LIMIT).ceiling(LIMIT).build() else { return };
        let service =
            IngressLayer::new(policy).trust(trust).layer(tower::service_fn(move |_: Request<Upload<Full<Bytes>>>| {
                let (pieces, content) = (pieces.clone(), content.clone());
                async move {
                    let mut answer = Response::new(StreamBody::new(Box::pin(slowly(pieces))));
                    if let Some(content) = content {
                        answer.headers_mut().insert("content-type", content);
                    }
                    Ok::<_, Infallible>(answer)
                }
            }));
        let began = tokio::time::Instant::now();
        let Ok(answer) = service.oneshot(request).await;
        let status = answer.status();
        assert!(!grpc || status == 200, "gRPC is answered with status 200 in any case: {status}");
        let whole = answer.into_body().collect().await;
        assert!(began.elapsed() <= LIMIT + Duration::from_millis(2), "in time");
        drop(whole);
    });
}

/// An answer with any fields, head and trailers, to a call of ours.
pub fn answer(bytes: &[u8]) {
    let mut bytes = Unstructured::new(bytes);
    let Ok((head, pieces, trust)) = arrives(&mut bytes) else { return };
    in_paused_time(async move {
        let Ok(destination) = Destination::named("far").cap(LIMIT).trust(trust).build() else { return };
        let head = head.headers().clone();
        let client = EgressLayer::new(destination).layer(tower::service_fn(move |_: Request<()>| {
            let (head, pieces) = (head.clone(), pieces.clone());
            async move {
                let mut answer = Response::new(StreamBody::new(Box::pin(slowly(pieces))));
                *answer.headers_mut() = head;
                Ok::<_, Infallible>(answer)
            }
        }));
        let op = Operation::begin("fuzz", Duration::from_secs(1));
        let began = tokio::time::Instant::now();
        match op.run(client.oneshot(Request::new(()))).await {
            Ok(Ok(answer)) => drop(answer.into_body().collect().await),
            Ok(Err(error)) => assert!(!matches!(error.outcome(), Outcome::NotSent), "it was sent: {error}"),
            Err(_) => {}
        }
        assert!(began.elapsed() <= LIMIT + Duration::from_millis(2), "in time");
    });
}

/// The same through tonic's client: whatever the far side answers is a message or a status, and nothing panics.
pub fn status(bytes: &[u8]) {
    let Ok((head, pieces, trust)) = arrives(&mut Unstructured::new(bytes)) else { return };
    in_paused_time(async move {
        let Ok(destination) = oneclock_tonic::destination("far").cap(LIMIT).trust(trust).build() else { return };
        let head = head.headers().clone();
        let channel = tower::service_fn(move |_: Request<tonic::body::Body>| {
            let (head, pieces) = (head.clone(), pieces.clone());
            async move {
                let mut answer = Response::new(StreamBody::new(Box::pin(slowly(pieces))));
                *answer.headers_mut() = head;
                Ok::<_, Infallible>(answer)
            }
        });
        let service = oneclock_tonic::ClientLayer::new(destination).layer(channel);
        let op = Operation::begin("fuzz", Duration::from_secs(1));
        let began = tokio::time::Instant::now();
        let path = http::uri::PathAndQuery::from_static("/fuzz.Far/Call");
        let mut client = tonic::client::Grpc::new(service);
        let call = client.server_streaming(tonic::Request::new(Bytes::new()), path, Raw);
        match op.run(call).await {
            Ok(Ok(answer)) => {
                let mut messages = answer.into_inner();
                while let Ok(Some(_)) = messages.message().await {}
            }
            Ok(Err(status)) => {
                let outcome = oneclock_tonic::outcome(&status);
                assert!(outcome != Some(Outcome::NotSent), "it was sent: {status}");
            }
            Err(_) => {}
        }
        assert!(began.elapsed() <= LIMIT + Duration::from_millis(2), "in time");
    });
}

/// Messages as they are.
#[derive(Clone, Copy, Debug)]
struct Raw;

impl tonic::codec::Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl tonic::codec::Encoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;

    fn encode(
        &mut self,
        item: Bytes,
        into: &mut tonic::codec::EncodeBuf<'_>,
    ) -> std::result::Result<(), tonic::Status> {
        into.put(item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;

    fn decode(&mut self, from: &mut tonic::codec::DecodeBuf<'_>) -> std::result::Result<Option<Bytes>, tonic::Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

type Arrives = (Request<Full<Bytes>>, Vec<Piece>, Trust);

#[derive(Clone, Debug)]
enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
    Waits(u16),
    Forever,
}

fn arrives(bytes: &mut Unstructured<'_>) -> Result<Arrives> {
    let mut request = Request::new(Full::default());
    *request.method_mut() = if bytes.ratio(1, 5)? { http::Method::GET } else { http::Method::POST };
    *request.headers_mut() = fields(bytes)?;
    let mut pieces = Vec::new();
    while pieces.len() < 8 && bytes.arbitrary()? {
        pieces.push(match bytes.int_in_range(0..=3)? {
            0 => Piece::Data(Bytes::copy_from_slice(bytes.arbitrary::<&[u8]>()?)),
            1 => Piece::Trailers(fields(bytes)?),
            2 => Piece::Waits(bytes.int_in_range(0..=400)?),
            _ => Piece::Forever,
        });
    }
    Ok((request, pieces, if bytes.arbitrary()? { Trust::Inside } else { Trust::Outside }))
}

fn fields(bytes: &mut Unstructured<'_>) -> Result<HeaderMap> {
    let mut fields = HeaderMap::new();
    while fields.len() < 12 && bytes.arbitrary()? {
        let name = HeaderName::from_static(bytes.choose(&FIELDS)?);
        let value = if name == "content-type" {
            Ok(HeaderValue::from_static(bytes.choose(&CONTENT)?))
        } else {
            HeaderValue::from_bytes(bytes.arbitrary::<&[u8]>()?)
        };
        if let Ok(value) = value {
            fields.append(name, value);
        }
    }
    Ok(fields)
}

fn slowly(pieces: Vec<Piece>) -> impl futures_util::Stream<Item = std::result::Result<Frame<Bytes>, Infallible>> {
    futures_util::stream::unfold(pieces.into_iter(), |mut pieces| async move {
        loop {
            match pieces.next()? {
                Piece::Data(data) => return Some((Ok(Frame::data(data)), pieces)),
                Piece::Trailers(trailers) => return Some((Ok(Frame::trailers(trailers)), pieces)),
                Piece::Waits(millis) => tokio::time::sleep(Duration::from_millis(millis.into())).await,
                Piece::Forever => std::future::pending().await,
            }
        }
    })
}

fn in_paused_time(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    if let Ok(runtime) = runtime {
        runtime.block_on(work);
    }
}
