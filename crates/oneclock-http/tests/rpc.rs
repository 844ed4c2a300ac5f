//! gRPC and Connect at the ingress: in whose words a caller is told, before the head and behind it, and what of an answer
//! below is not passed on as ours. Contract P3, X2, X3, X5, S1, V4, V13.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::convert::Infallible;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::Request as AxumRequest;
use axum::response::IntoResponse;
use axum::routing::any;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use oneclock::{Operation, Stopped};
use oneclock_core::{BoundBy, Outcome, Policy, Reason as Told, Trust};
use oneclock_http::{CallError, Destination, EgressLayer, IngressLayer, Route, Upload, serve};
use oneclock_test::caller::{Caller, H1Outcome, H2Outcome};
use oneclock_test::{Ended, Probe, ProbeGuard, Reason};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::Sleep;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// One message of gRPC or Connect.
fn message(payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(payload.len()).unwrap());
    bytes.put_slice(payload);
    bytes.freeze()
}

/// Gives its pieces, one every 50 ms, then never anything.
struct Pieces {
    left: Vec<Bytes>,
    next: Pin<Box<Sleep>>,
    _guard: ProbeGuard,
}

impl Pieces {
    fn new(mut pieces: Vec<Bytes>, probe: &Probe) -> Self {
        pieces.reverse();
        Self { left: pieces, next: Box::pin(tokio::time::sleep(ms(0))), _guard: probe.enter() }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::task::ready!(self.next.as_mut().poll(cx));
        let Some(piece) = self.left.pop() else { return Poll::Pending };
        self.next = Box::pin(tokio::time::sleep(ms(50)));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

/// A service that answers `/pieces` with these in this content type, and never answers elsewhere.
async fn serving(probe: &Probe, content_type: &'static str, pieces: Vec<Bytes>, own_loop: bool) -> SocketAddr {
    let of_pieces = {
        let probe = probe.clone();
        move |_: AxumRequest| async move {
            let body = AxumBody::new(Pieces::new(pieces.clone(), &probe));
            ([("content-type", content_type)], body).into_response()
        }
    };
    let hang = {
        let probe = probe.clone();
        move |_: AxumRequest| async move { probe.never().await }
    };
    let policy = Policy::named("pricing").when_absent(ms(2_000)).build().unwrap();
    let layer = IngressLayer::new(policy).trust(Trust::Inside);
    let app = Router::new().route("/pieces", any(of_pieces)).fallback(hang);
    let app = app.layer(tower::layer::layer_fn(move |inner| layer.layer(OpenBody(inner))));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    if own_loop {
        tokio::spawn(serve(listener, app).into_future());
    } else {
        tokio::spawn(axum::serve(listener, app).into_future());
    }
    addr
}

/// Hands axum its own body.
#[derive(Clone)]
struct OpenBody<S>(S);

impl<S: tower::Service<AxumRequest>, B> tower::Service<Request<Upload<B>>> for OpenBody<S>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<oneclock_http::BoxError>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Upload<B>>) -> S::Future {
        self.0.call(request.map(AxumBody::new))
    }
}

async fn grpc(addr: SocketAddr, path: &str, timeout: &str) -> H2Outcome {
    let caller = Caller::h2(addr).connect().await.unwrap();
    let request =
        caller.post(path, message(b"cart")).header("content-type", "application/grpc").header("te", "trailers");
    request.header("grpc-timeout", timeout).send().await.unwrap().answer().await
}

#[track_caller]
fn status_of(fields: &HeaderMap) -> (&str, &str) {
    let text = |name| fields.get(name).map_or("-", |value: &HeaderValue| value.to_str().unwrap());
    (text("grpc-status"), text("oneclock-reason"))
}

// === Before the head ===

#[tokio::test]
async fn v13_x5_before_the_head_grpc_gets_trailers_only() {
    let probe = Probe::new();
    let addr = serving(&probe, "application/grpc", vec![], true).await;
    for (timeout, want, runs) in [
        ("400m", ("4", "deadline"), true),
        ("0S", ("4", "expired_before_start"), false),
        ("1.5S", ("13", "malformed_deadline"), false),
        ("+5S", ("13", "malformed_deadline"), false),
    ] {
        let before = probe.started_count();
        let H2Outcome::Complete { status, headers, body, trailers } = grpc(addr, "/shop.Pricing/Price", timeout).await
        else {
            panic!("{timeout}: no whole answer")
        };
        assert_eq!((status.as_u16(), status_of(&headers), body.len(), trailers), (200, want, 0, None), "{timeout}");
        assert_eq!(headers["content-type"], "application/grpc");
        assert!(headers.contains_key("grpc-status-details-bin"), "a trusted caller learns more");
        assert_eq!(probe.started_count() > before, runs, "{timeout}");
    }
}

#[tokio::test]
async fn p3_connect_gets_its_own_documents() {
    let probe = Probe::new();
    let addr = serving(&probe, "application/json", vec![], true).await;
    for (content_type, timeout, want) in [
        ("application/json", "400", (504, "deadline_exceeded")),
        ("application/proto", "400", (504, "deadline_exceeded")),
        ("application/json", "0", (504, "deadline_exceeded")),
        ("application/json", "1.5", (400, "invalid_argument")),
        ("application/proto", "12345678901", (400, "invalid_argument")),
    ] {
        let call = Caller::h1(addr).post("/shop.Pricing/Price", "{}").header("content-type", content_type);
        let call = call.header("connect-protocol-version", "1").header("connect-timeout-ms", timeout);
        let H1Outcome::Complete { status, headers, body } = call.answer().await.unwrap() else { panic!("{timeout}") };
        let error: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status.as_u16(), error["code"].as_str().unwrap()), want, "{content_type} {timeout}: {error}");
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(error["details"][0]["type"], "google.rpc.ErrorInfo", "{error}");
    }
}

#[tokio::test]
async fn a_service_that_speaks_plain_json_is_not_told_in_connects_words() {
    let probe = Probe::new();
    let addr = serving(&probe, "application/json", vec![], true).await;
    let call = Caller::h1(addr).post("/orders", "{}").header("content-type", "application/json");
    let H1Outcome::Complete { headers, .. } = call.header("x-remaining-ms", "300").answer().await.unwrap() else {
        panic!("an answer")
    };
    assert_eq!(headers["content-type"], "application/problem+json");
}

// === Behind the head ===

#[tokio::test]
async fn v4_between_two_messages_a_grpc_stream_ends_with_trailers() {
    let items = vec![message(b"one"), message(b"two")];
    for own_loop in [true, false] {
        let probe = Probe::new();
        let addr = serving(&probe, "application/grpc", items.clone(), own_loop).await;
        let H2Outcome::Complete { status, headers, body, trailers } = grpc(addr, "/pieces", "400m").await else {
            panic!("own loop {own_loop}: the stream ends in order")
        };
        assert_eq!((status.as_u16(), status_of(&headers).0), (200, "-"));
        assert_eq!(body, items.concat(), "all that was made in time");
        let trailers = trailers.expect("trailers");
        assert_eq!(status_of(&trailers), ("4", "deadline"), "own loop {own_loop}");
        let text = trailers["grpc-message"].to_str().unwrap();
        assert!(text.contains("pricing") && text.contains("400"), "{text}");
        assert_eq!(probe.ended(1).await.unwrap().how, Ended::Dropped);
    }
}

#[tokio::test]
async fn x3_in_the_middle_of_a_message_the_stream_is_reset() {
    let whole = message(b"a long message");
    for own_loop in [true, false] {
        let probe = Probe::new();
        let addr = serving(&probe, "application/grpc", vec![whole.slice(..9)], own_loop).await;
        match grpc(addr, "/pieces", "400m").await {
            H2Outcome::Reset { reason, bytes_read, .. } => assert_eq!((reason, bytes_read), (Reason::CANCEL, 9)),
            other => panic!("own loop {own_loop}: {other:?}"),
        }
    }
}

/// Over HTTP/1 trailers are lost on the way, and a last chunk without them would look like the end.
#[tokio::test]
async fn x3_grpc_over_http1_is_cut_off_visibly() {
    let probe = Probe::new();
    let addr = serving(&probe, "application/grpc", vec![message(b"one")], true).await;
    let call = Caller::h1(addr).post("/pieces", message(b"")).header("content-type", "application/grpc");
    let answer = call.header("grpc-timeout", "400m").answer().await.unwrap();
    assert!(matches!(answer, H1Outcome::Truncated { .. }), "{answer:?}");
}

/// A far side that is late says in its trailers that it gave up: the head alone looked like an answer.
#[tokio::test(start_paused = true)]
async fn x2_late_trailers_without_a_message_are_our_deadline_too() {
    let destination = Destination::named("pricing").trust(Trust::Inside).cap(ms(300)).build().unwrap();
    let client = ServiceBuilder::new()
        .layer(EgressLayer::new(destination))
        .service_fn(|_: Request<()>| async { Ok::<_, Infallible>(says(false, "1", "called_off", ms(300)).await) });
    let op = Operation::begin("order", ms(5_000));
    let error = op.run(client.oneshot(Request::new(()))).await.unwrap().expect_err("late");
    assert!(matches!(error.stopped(), Some(Stopped::Ended(_))), "{error}");
}

#[tokio::test]
async fn x3_connect_streams_end_with_their_last_message() {
    let items = vec![message(br#"{"n":1}"#), message(br#"{"n":2}"#)];
    let probe = Probe::new();
    let addr = serving(&probe, "application/connect+json", items.clone(), true).await;
    let call = Caller::h1(addr).post("/pieces", message(b"{}")).header("content-type", "application/connect+json");
    let answer = call.header("connect-timeout-ms", "400").answer().await.unwrap();
    let H1Outcome::Complete { status, body, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(status, 200);
    let (before, last) = body.split_at(items.concat().len());
    assert_eq!(before, items.concat());
    assert_eq!(last[0], 2, "the flag of the last message");
    let end: Value = serde_json::from_slice(&last[5..]).unwrap();
    assert_eq!(end["error"]["code"], "deadline_exceeded", "{end}");
    assert_eq!(end["metadata"]["oneclock-reason"][0], "deadline");

    // A stream that is not at a boundary is cut off, visibly.
    let cut = serving(&probe, "application/connect+json", vec![items[0].slice(..7)], true).await;
    let call = Caller::h1(cut).post("/pieces", message(b"{}")).header("content-type", "application/connect+json");
    let answer = call.header("connect-timeout-ms", "400").answer().await.unwrap();
    assert!(matches!(answer, H1Outcome::Truncated { .. }), "{answer:?}");
}

#[tokio::test]
async fn grpc_web_that_nobody_translated_ends_with_its_trailers_in_the_body() {
    let probe = Probe::new();
    let addr = serving(&probe, "application/grpc-web+proto", vec![message(b"one")], true).await;
    let call = Caller::h1(addr).post("/pieces", message(b"")).header("content-type", "application/grpc-web+proto");
    let answer = call.header("grpc-timeout", "400m").answer().await.unwrap();
    let H1Outcome::Complete { body, .. } = answer else { panic!("{answer:?}") };
    let last = &body[message(b"one").len()..];
    assert_eq!(last[0], 0x80);
    let text = std::str::from_utf8(&last[5..]).unwrap();
    assert!(text.contains("grpc-status: 4\r\n") && text.contains("oneclock-reason: deadline\r\n"), "{text}");
}

// === What is not ours to say ===

/// A handler that passes the error of a call on, as tonic's `?` does: status, message and all that came with them.
#[tokio::test(start_paused = true)]
async fn a_part_never_speaks_for_the_whole_in_trailers_either() {
    let policy = Policy::named("order").when_absent(ms(1_000)).build().unwrap();
    let service = ServiceBuilder::new().layer(IngressLayer::new(policy).trust(Trust::Inside)).service_fn(
        |_: Request<Upload<Full<Bytes>>>| async {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("4"));
            trailers.insert("oneclock-reason", HeaderValue::from_static("expired_before_start"));
            let body = http_body_util::StreamBody::new(futures_util::stream::iter([
                Ok::<_, Infallible>(Frame::data(message(b"one"))),
                Ok(Frame::trailers(trailers)),
            ]));
            Ok::<_, Infallible>(Response::builder().header("content-type", "application/grpc").body(body).unwrap())
        },
    );
    let request = Request::post("/shop.Order/Place").header("content-type", "application/grpc").body(Full::default());
    let answer = service.oneshot(request.unwrap()).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(status_of(answer.trailers().unwrap()), ("4", "-"));
}

/// Its own call was cut off by the same deadline, and the library says so in other words.
#[tokio::test(start_paused = true)]
async fn x2_an_error_that_a_handler_reports_at_the_deadline_is_the_deadline() {
    let policy = Policy::named("order").build().unwrap();
    for in_head in [true, false] {
        let layer = IngressLayer::new(policy.clone()).trust(Trust::Inside);
        let service =
            ServiceBuilder::new().layer(layer).service_fn(move |_: Request<Upload<Full<Bytes>>>| async move {
                Ok::<_, Infallible>(says(in_head, "1", "called_off", ms(300)).await)
            });
        for (left, want) in [("300m", ("4", "deadline")), ("301m", ("1", "-"))] {
            let request = Request::post("/shop.Order/Place").header("content-type", "application/grpc");
            let request = request.header("grpc-timeout", left).body(Full::default()).unwrap();
            let (head, body) = service.clone().oneshot(request).await.unwrap().into_parts();
            let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
            let fields = if head.headers.contains_key("grpc-status") { &head.headers } else { &trailers };
            assert_eq!(status_of(fields), want, "{left}, in head {in_head}");
        }
    }
}

// === Streams ===

/// The budget of a caller of gRPC covers the stream, on a route that is declared streaming as well (contract S1).
#[tokio::test]
async fn s1_what_the_caller_said_covers_a_declared_stream() {
    let probe = Probe::new();
    let of_pieces = {
        let probe = probe.clone();
        move |_: AxumRequest| async move {
            let body = AxumBody::new(Pieces::new(vec![message(b"one")], &probe));
            ([("content-type", "application/grpc")], body).into_response()
        }
    };
    let policy = Policy::named("ticker")
        .when_absent(ms(500))
        .route("/pieces", |limits| limits.streaming(Duration::from_secs(30), Duration::from_secs(60)))
        .build()
        .unwrap();
    let layer = IngressLayer::new(policy).trust(Trust::Inside).route_by(|_, uri| Some(Route::Method(uri.path())));
    let app = Router::new().route("/pieces", any(of_pieces));
    let app = app.layer(tower::layer::layer_fn(move |inner| layer.layer(OpenBody(inner))));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, app).into_future());
    let answer = grpc(addr, "/pieces", "400m").await;
    let H2Outcome::Complete { trailers: Some(trailers), .. } = answer else { panic!("{answer:?}") };
    assert_eq!(status_of(&trailers).0, "4");
}

// === The way out ===

/// A far side that says this in its head, or in its trailers, after so long.
async fn says(in_head: bool, status: &'static str, reason: &'static str, after: Duration) -> Response<AxumBody> {
    tokio::time::sleep(after).await;
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", HeaderValue::from_static(status));
    fields.insert("oneclock-reason", HeaderValue::from_static(reason));
    if in_head {
        let mut response = Response::new(AxumBody::empty());
        *response.headers_mut() = fields;
        return response;
    }
    Response::new(AxumBody::new(Only(Some(fields))))
}

/// Trailers and nothing else, in a body that knows its end: it is whole as soon as it is looked at.
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

#[tokio::test(start_paused = true)]
async fn x2_whatever_the_far_side_reports_after_our_deadline_is_our_deadline() {
    let destination = Destination::named("pricing").trust(Trust::Inside).build().unwrap();
    // Wakes together with our own timer, and is polled first.
    let client = ServiceBuilder::new()
        .layer(EgressLayer::new(destination))
        .service_fn(|_: Request<()>| async { Ok::<_, Infallible>(says(true, "1", "called_off", ms(300)).await) });
    let op = Operation::begin("order", ms(5_000));
    let mut request = Request::new(());
    request.extensions_mut().insert(oneclock_http::CallCap(ms(300)));
    let error = op.run(client.oneshot(request)).await.unwrap().expect_err("late");
    let Some(Stopped::Ended(ended)) = error.stopped() else { panic!("{error}") };
    assert_eq!((ended.reason(), ended.bound.by), (Told::Cap, BoundBy::Cap), "the cap of the call itself");
}

#[tokio::test(start_paused = true)]
async fn r8_the_status_in_the_trailers_decides_what_is_known() {
    use oneclock::events::{Event, Observer};
    #[derive(Default)]
    struct Outcomes(std::sync::Mutex<Vec<Outcome>>);
    impl Observer for Outcomes {
        fn on(&self, event: &Event<'_>) {
            if let Event::Called(call) = event {
                self.0.lock().unwrap().push(call.outcome);
            }
        }
    }
    for (trust, in_head, want) in [
        (Trust::Inside, true, Outcome::Rejected),
        (Trust::Inside, false, Outcome::Rejected),
        (Trust::Outside, false, Outcome::Unknown { stage: oneclock_core::Stage::Body }),
    ] {
        let seen = std::sync::Arc::new(Outcomes::default());
        let destination = Destination::named("pricing").trust(trust).build().unwrap();
        let client =
            ServiceBuilder::new().layer(EgressLayer::new(destination)).service_fn(move |_: Request<()>| async move {
                Ok::<_, Infallible>(says(in_head, "4", "expired_before_start", ms(1)).await)
            });
        let op = Operation::begin("order", ms(5_000)).observed_by(seen.clone());
        let answer = op.run(client.oneshot(Request::new(()))).await.unwrap();
        let answer = answer.map_err(|error: CallError| error.to_string()).unwrap();
        let trailers = answer.into_body().collect().await.unwrap().trailers().cloned().unwrap_or_default();
        let told = seen.0.lock().unwrap().clone();
        assert_eq!(told.len(), 1);
        assert!(
            matches!((told[0], want), (Outcome::Unknown { .. }, Outcome::Unknown { .. })) || told[0] == want,
            "{trust:?} in head {in_head}: {told:?}"
        );
        if trust == Trust::Outside {
            assert!(!trailers.contains_key("oneclock-reason"), "not theirs to give");
        }
    }
}
