//! What a handler says itself, and how much of it a caller is told: a stream that the caller's deadline covers, trailers over
//! HTTP/1, problems behind a head that looks fine, fields that are not the handler's to give. Contract S1, X3, R8.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::convert::Infallible;
use std::future::{Future, IntoFuture};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::Request as AxumRequest;
use axum::routing::any;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use oneclock::clock;
use oneclock_core::ingress::Limits;
use oneclock_core::{Policy, Reason, Tick, Trust};
use oneclock_http::{BoundedBody, BoxError, IngressLayer, Problem, Route, Upload, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tower::{ServiceBuilder, ServiceExt as _};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// One message of gRPC or Connect, with these flags.
fn message(flags: u8, payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(flags);
    bytes.put_u32(u32::try_from(payload.len()).unwrap());
    bytes.put_slice(payload);
    bytes.freeze()
}

fn fields(of: &[(&'static str, &'static str)]) -> HeaderMap {
    of.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
}

fn frames(of: Vec<Frame<Bytes>>) -> AxumBody {
    AxumBody::new(StreamBody::new(stream::iter(of.into_iter().map(Ok::<_, Infallible>))))
}

/// These, and then nothing more, and no end.
fn stalling(of: Vec<Bytes>) -> AxumBody {
    let pieces = stream::iter(of.into_iter().map(|data| Ok::<_, Infallible>(Frame::data(data))));
    AxumBody::new(StreamBody::new(pieces.chain(stream::pending())))
}

fn answer(content_type: &'static str, body: AxumBody) -> Response<AxumBody> {
    Response::builder().header("content-type", content_type).body(body).unwrap()
}

/// Trailers and nothing else, in a body that knows its end.
struct Only(Option<HeaderMap>);

impl Body for Only {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}

/// Asks a service under this layer.
async fn ask<F>(
    layer: IngressLayer,
    asking: &[(&'static str, &'static str)],
    handler: impl FnOnce() -> F + Clone,
) -> Response<BoundedBody<AxumBody>>
where
    F: Future<Output = Response<AxumBody>>,
{
    let service = ServiceBuilder::new().layer(layer).service_fn(|_: Request<Upload<Full<Bytes>>>| {
        let answer = handler.clone()();
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut request =
        Request::post("/shop.Pricing/Price").version(http::Version::HTTP_2).body(Full::default()).unwrap();
    request.headers_mut().extend(fields(asking));
    service.oneshot(request).await.unwrap()
}

fn layer(trust: Trust) -> IngressLayer {
    IngressLayer::new(Policy::named("pricing").when_absent(ms(1_000)).build().unwrap()).trust(trust)
}

/// What came before the end, how it ended, and when.
struct Read {
    data: Bytes,
    end: Result<HeaderMap, BoxError>,
    at: Tick,
}

async fn read(response: Response<BoundedBody<AxumBody>>) -> Read {
    let (mut body, mut data, mut trailers) = (response.into_body(), BytesMut::new(), HeaderMap::new());
    let end = loop {
        match body.frame().await {
            None => break Ok(trailers),
            Some(Err(error)) => break Err(error),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => data.extend(piece),
                Err(frame) => trailers = frame.into_trailers().unwrap(),
            },
        }
    };
    Read { data: data.freeze(), end, at: clock::now() }
}

// === Streams ===

fn streaming(trust: Trust, change: impl Fn(Limits) -> Limits + Send + Sync + 'static) -> IngressLayer {
    let policy = Policy::named("ticker").route("/shop.Pricing", move |limits| {
        change(limits).streaming(Duration::from_secs(30), Duration::from_secs(60))
    });
    let layer = IngressLayer::new(policy.build().unwrap()).trust(trust);
    layer.route_by(|_, uri| Some(Route::Method(uri.path())))
}

/// A bound of ours that is shorter covers only the establishment; what the caller said covers the stream all the same.
#[tokio::test(start_paused = true)]
async fn s1_what_the_caller_said_covers_a_declared_stream_whichever_bound_was_shorter() {
    let absent = |limits: Limits| limits.when_absent(ms(100));
    let ceiling = |limits: Limits| limits.when_absent(ms(100)).ceiling(ms(100));
    let roomy = |limits: Limits| limits;
    for (what, layer) in [
        ("when absent", streaming(Trust::Outside, absent)),
        ("the ceiling", streaming(Trust::Inside, ceiling)),
        ("the platform", streaming(Trust::Inside, roomy).platform(|| Some(ms(100)))),
        ("the caller", streaming(Trust::Inside, roomy)),
    ] {
        for (content_type, field, timeout) in [
            ("application/grpc", "grpc-timeout", "400m"),
            ("application/grpc-web+proto", "grpc-timeout", "400m"),
            ("application/connect+json", "connect-timeout-ms", "400"),
        ] {
            let began = clock::now();
            let asking = [("content-type", content_type), (field, timeout)];
            let answered = ask(layer.clone(), &asking, || async move {
                tokio::time::sleep(ms(50)).await;
                answer(content_type, stalling(vec![message(0, b"one")]))
            });
            let read = read(answered.await).await;
            assert_eq!(read.at.since(began), ms(400), "{what} {content_type}");
            let trailers = read.end.expect("an end in words");
            let said = if content_type == "application/grpc" {
                trailers["grpc-status"] == "4"
            } else {
                let text = String::from_utf8_lossy(&read.data).into_owned();
                text.contains("grpc-status: 4") || text.contains("deadline_exceeded")
            };
            assert!(said, "{what} {content_type}");
        }
    }
}

/// The person on call learns that it was none of the stream's own limits.
#[tokio::test(start_paused = true)]
async fn s1_the_end_of_such_a_stream_names_the_callers_deadline() {
    let asking = [("content-type", "application/grpc"), ("grpc-timeout", "400m")];
    let layer = streaming(Trust::Inside, |limits| limits);
    let answered = ask(layer, &asking, || async { answer("application/grpc", stalling(vec![message(0, b"one")])) });
    let trailers = read(answered.await).await.end.unwrap();
    let text = trailers["grpc-message"].to_str().unwrap();
    assert!(text.contains("the caller's deadline") && !text.contains("total limit"), "{text}");
}

/// Its idle limit is ours, whatever made the other one: a caller that is told `deadline` would look for its own mistake.
#[tokio::test(start_paused = true)]
async fn s2_the_idle_limit_of_a_stream_is_never_told_as_the_callers_deadline() {
    let policy =
        Policy::named("ticker").route("/shop.Pricing", |limits| limits.streaming(ms(100), Duration::from_secs(60)));
    for timeout in [None, Some(("grpc-timeout", "5S"))] {
        let layer = IngressLayer::new(policy.clone().build().unwrap()).trust(Trust::Inside);
        let layer = layer.route_by(|_, uri| Some(Route::Method(uri.path())));
        let asking: Vec<_> = std::iter::once(("content-type", "application/grpc")).chain(timeout).collect();
        let began = clock::now();
        let answered = ask(layer, &asking, || async { answer("application/grpc", stalling(vec![message(0, b"one")])) });
        let read = read(answered.await).await;
        assert_eq!(read.at.since(began), ms(100));
        let trailers = read.end.unwrap();
        assert_eq!(trailers["oneclock-reason"], "cap", "{timeout:?}");
        let text = trailers["grpc-message"].to_str().unwrap();
        assert!(text.contains("the idle limit") && text.contains("bound: cap"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn s2_what_a_caller_of_http_said_covers_the_establishment_of_a_declared_stream() {
    let began = clock::now();
    let answered = ask(streaming(Trust::Inside, |limits| limits), &[("x-remaining-ms", "400")], || async {
        answer("text/event-stream", stalling(vec![Bytes::from_static(b"data: 1\n\n")]))
    });
    let read = read(answered.await).await;
    read.end.expect_err("cut off");
    assert_eq!(read.at.since(began), Duration::from_secs(30), "its idle limit");
}

// === Trailers over HTTP/1 ===

/// A service of gRPC, for any path: it ends by itself at `/whole`, elsewhere never.
async fn serving(own_loop: bool) -> SocketAddr {
    let handler = |request: AxumRequest| async move {
        let one = message(0, b"one");
        if request.uri().path() == "/whole" {
            let trailers = fields(&[("grpc-status", "0"), ("grpc-message", "all of it")]);
            return answer("application/grpc", frames(vec![Frame::data(one), Frame::trailers(trailers)]));
        }
        answer("application/grpc", stalling(vec![one]))
    };
    let layer = layer(Trust::Inside);
    let open = tower::layer::layer_fn(|inner| {
        tower::service_fn(move |request: Request<Upload<AxumBody>>| {
            tower::ServiceExt::<AxumRequest>::oneshot(Clone::clone(&inner), request.map(AxumBody::new))
        })
    });
    let app = Router::new().fallback(any(handler));
    let app = Router::new().fallback_service(ServiceBuilder::new().layer(layer).layer(open).service(app));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    if own_loop {
        tokio::spawn(serve(listener, app).into_future());
    } else {
        tokio::spawn(axum::serve(listener, app).into_future());
    }
    addr
}

/// Everything that came until the connection was closed.
async fn raw(addr: SocketAddr, path: &str, te: &str) -> String {
    let mut socket = TcpStream::connect(addr).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: pricing\r\nconnection: close\r\ncontent-type: application/grpc\r\n{te}\
         grpc-timeout: 400m\r\ncontent-length: 0\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut came = Vec::new();
    // Or reset, where it was cut off.
    let _ = tokio::time::timeout(Duration::from_secs(10), socket.read_to_end(&mut came)).await.expect("an end");
    String::from_utf8_lossy(&came).into_owned()
}

/// HTTP/1 has only those trailers that the head names: without their names the stream would end in order and say nothing.
#[tokio::test]
async fn x3_over_http1_a_grpc_call_ends_with_its_status() {
    for own_loop in [true, false] {
        let addr = serving(own_loop).await;
        for (path, status) in [("/whole", "0"), ("/stalls", "4")] {
            let came = raw(addr, path, "te: trailers\r\n").await;
            let (_, trailers) = came.split_once("\r\n0\r\n").expect("a last chunk");
            assert!(trailers.contains(&format!("grpc-status: {status}\r\n")), "own loop {own_loop} {path}: {came}");
            assert_eq!(trailers.contains("oneclock-reason: deadline"), path == "/stalls", "{came}");
        }
        // Who does not take them gets no last chunk that would look like the end.
        let came = raw(addr, "/stalls", "").await;
        assert!(came.contains("one") && !came.contains("\r\n0\r\n"), "own loop {own_loop}: {came}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_grpc_over_http1_names_its_trailers_and_keeps_what_the_handler_named() {
    for (version, te, content_type, want) in [
        (http::Version::HTTP_11, "trailers", "application/grpc", 2),
        (http::Version::HTTP_11, "", "application/grpc", 1),
        (http::Version::HTTP_2, "trailers", "application/grpc", 1),
        (http::Version::HTTP_11, "trailers", "text/plain", 1),
    ] {
        let service = ServiceBuilder::new().layer(layer(Trust::Inside)).service_fn(
            move |_: Request<Upload<Full<Bytes>>>| async move {
                let mut answer = answer(content_type, stalling(vec![message(0, b"one")]));
                answer.headers_mut().insert("trailer", HeaderValue::from_static("x-checksum"));
                Ok::<_, Infallible>(answer)
            },
        );
        let request = Request::post("/shop.Pricing/Price").version(version).header("te", te);
        let request = request.header("content-type", "application/grpc").body(Full::default()).unwrap();
        let answer = service.oneshot(request).await.unwrap();
        let named: Vec<_> = answer.headers().get_all("trailer").iter().collect();
        assert_eq!(
            (named.len(), named[0]),
            (want, &HeaderValue::from_static("x-checksum")),
            "{version:?} {content_type}"
        );
    }
}

// === Problems ===

fn unavailable() -> Problem {
    Problem::new(Reason::Shed)
}

/// A service of gRPC that was asked by somebody who does not say so.
#[tokio::test(start_paused = true)]
async fn a_status_of_grpcs_stays_one_whatever_the_request_called_itself() {
    for asking in [&[][..], &[("content-type", "application/json")], &[("content-type", "application/octet-stream")]] {
        for trust in [Trust::Inside, Trust::Outside] {
            let answer = ask(layer(trust), asking, || async {
                let mut answer = unavailable().to_grpc_response(Trust::Outside).map(AxumBody::from);
                answer.extensions_mut().insert(unavailable().detail("busy"));
                answer
            });
            let answer = answer.await;
            assert_eq!((answer.status().as_u16(), &answer.headers()["grpc-status"]), (200, &"14".parse().unwrap()));
            assert_eq!(answer.headers()["content-type"], "application/grpc", "{asking:?}");
            assert_eq!(answer.headers()["grpc-message"], "busy", "written anew");
            assert_eq!(read(answer).await.data, Bytes::new());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_problem_never_leaves_with_the_status_of_a_success() {
    for (status, want) in [(200, 503), (204, 503), (302, 503), (429, 429), (500, 500)] {
        let answer = ask(layer(Trust::Inside), &[], || async move {
            let mut answer = Response::builder().status(status).body(AxumBody::empty()).unwrap();
            answer.extensions_mut().insert(unavailable());
            answer
        });
        let answer = answer.await;
        assert_eq!(answer.status(), want, "the handler answered {status}");
        let body = read(answer).await.data;
        let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(document["status"], want);
    }
}

// === What is not the handler's to give ===

/// A reason in trailers, copied from an answer below: with pieces before it, alone, too late, and of a stream.
#[tokio::test(start_paused = true)]
async fn r8_a_reason_in_trailers_of_plain_http_is_not_passed_on() {
    let said = [("oneclock-reason", "expired_before_start"), ("x-checksum", "7")];
    let alone = move || AxumBody::new(Only(Some(fields(&said))));
    let after_pieces = move || {
        let piece = || Frame::data(Bytes::from_static(b"piece"));
        frames(vec![piece(), piece(), Frame::trailers(fields(&said))])
    };
    let bodies: [(&str, u64, &(dyn Fn() -> AxumBody + Sync)); 3] =
        [("alone", 0, &alone), ("too late", 1_000, &alone), ("after pieces", 0, &after_pieces)];
    for trust in [Trust::Outside, Trust::Inside] {
        let declared = streaming(trust, |limits| limits.when_absent(ms(1_000)));
        for (layer, is) in [(layer(trust), "unary"), (declared, "a stream")] {
            for (what, takes, body) in bodies {
                let answered = ask(layer.clone(), &[], || async move {
                    tokio::time::sleep(ms(takes)).await;
                    answer("text/plain", body())
                });
                let answered = answered.await;
                assert_eq!(answered.status(), 200, "{is}: {what}");
                let trailers = read(answered).await.end.unwrap();
                assert_eq!(trailers, fields(&[("x-checksum", "7")]), "{trust:?}, {is}: {what}");
            }
        }
    }
}

/// A stream that has said how it ended, and does not end: it is cut off, and nothing is said a second time.
#[tokio::test(start_paused = true)]
async fn x3_after_a_last_message_there_is_no_second_one() {
    for (content_type, last, is_last) in [
        ("application/connect+json", message(0b10, b"{}"), true),
        ("application/connect+proto", message(0b11, b"squeezed"), true),
        ("application/grpc-web+proto", message(0x80, b"grpc-status:0\r\n"), true),
        // The flags of another protocol say nothing here.
        ("application/connect+json", message(0x01, b"squeezed"), false),
        ("application/grpc-web+proto", message(0b10, b"?"), false),
        ("application/grpc", message(0x80, b"?"), false),
    ] {
        let said = vec![message(0, b"one"), last.slice(..3), last.slice(3..)];
        let before = said.concat();
        let asking = [("content-type", content_type)];
        let answered = ask(layer(Trust::Inside), &asking, || async move { answer(content_type, stalling(said)) });
        let read = read(answered.await).await;
        assert_eq!(read.end.is_err(), is_last, "{content_type}");
        assert_eq!(
            read.data == before,
            is_last || content_type == "application/grpc",
            "{content_type}: {:?}",
            read.data
        );
    }
}
