//! [`Client`] over real sockets: what the far side is told, where a call is cut off, what is known of it then, and what
//! becomes of its connection. Contract E2, E4, X1, X2, R8, V3, V5, V6; invariants I2, I4, I6, I8.

#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of a test are a test")]

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc as std_mpsc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use oneclock::events::{Counting, Event, Fields, Observer, Slot};
use oneclock::{Operation, Stopped, WhyNot, clock};
use oneclock_core::{Cause, Outcome, Reason, Stage, Trust};
use oneclock_http::{
    Answer, BodyCutOff, BoundedBody, CallCap, CallError, Client, ClientBuilder, NotARequest, NotCollected, Received,
    WithoutOperation, collect, collect_json,
};
use oneclock_test::peer::{self, Leaving, Peer, ResetAt, StreamResetAt};
use oneclock_test::{Baseline, PATIENCE, Protocol};
use tokio::net::{TcpListener, TcpStream};
use tower::{Service, ServiceBuilder, ServiceExt};

const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// More than any exchange on the loopback interface needs.
const AMPLE: Duration = Duration::from_secs(5);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn builder(protocol: Protocol, addr: SocketAddr) -> ClientBuilder {
    let builder = Client::builder("inventory", format!("http://{addr}"));
    match protocol {
        Protocol::Http1 => builder,
        Protocol::Http2 => builder.http2_only(),
    }
}

fn client(protocol: Protocol, peer: &Peer) -> Client {
    builder(protocol, peer.addr()).build().expect("a client")
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).body(Empty::new()).expect("a request")
}

async fn whole(response: Response<BoundedBody<Received>>) -> Bytes {
    collect(response.into_body(), 64 * 1024).await.expect("a whole body")
}

/// What the far side was told, from what [`peer::echo_headers`] answers.
async fn told(response: Response<BoundedBody<Received>>) -> Duration {
    let json: serde_json::Value = collect_json(response.into_body(), 64 * 1024).await.expect("json");
    let field = &json["headers"]["x-remaining-ms"];
    assert_eq!(field.as_array().map(Vec::len), Some(1), "one field: {json}");
    ms(field[0].as_str().and_then(|ms| ms.parse().ok()).expect("a number"))
}

#[track_caller]
fn cut_off(error: &CallError, stage: Stage, outcome: Outcome) {
    let Some(Stopped::Ended(ended)) = error.stopped() else { panic!("not cut off: {error:?}") };
    assert_eq!(ended.ending.cause, Cause::Deadline, "{error}");
    assert_eq!(ended.stage(), stage, "{error}");
    assert_eq!(error.outcome(), outcome, "{error}");
}

/// How long `operation` has run over its deadline.
fn overrun(operation: &Operation) -> Duration {
    clock::now().since(operation.deadline().tick())
}

// === What the far side is told ===

/// Sets a field to how often it was asked.
#[derive(Default)]
struct Carrying(AtomicU32);

impl Observer for Carrying {
    fn on(&self, _: &Event<'_>) {}

    fn carry(&self, _: &Slot, fields: &mut dyn Fields) {
        let asked = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        fields.set("x-asked", &asked.to_string());
    }
}

/// An observer may count what it makes, an identifier of a span for example: one for each call that is sent.
#[tokio::test]
async fn what_an_observer_sends_with_a_call_is_asked_for_once_right_before_it_is_sent() {
    for protocol in BOTH {
        let peer = peer::echo_headers(protocol).expect("a peer");
        let inventory = client(protocol, &peer);
        for nth in ["1", "1"] {
            let op = Operation::begin("order", AMPLE).observed_by(Arc::new(Carrying::default()));
            inventory.request_in(&op, get("/")).await.expect("an answer");
            assert_eq!(peer.await_request().await.expect("seen").headers["x-asked"], nth, "{protocol:?}");
        }
    }
}

#[tokio::test]
async fn the_head_is_right_on_both_protocols() {
    for protocol in BOTH {
        let peer = peer::echo_headers(protocol).expect("a peer");
        let inventory = Client::builder("inventory", format!("{}/v1/", peer.url()));
        let inventory = if protocol == Protocol::Http2 { inventory.http2_only() } else { inventory };
        let inventory = inventory.cap(ms(800)).build().expect("a client");
        let op = Operation::begin("order", AMPLE);
        let request = Request::get("/stock?id=7")
            .header("connection", "x-hop")
            .header("x-hop", "1")
            .header("grpc-timeout", "99S") // a stale field of our own caller's (contract E7)
            .body(Empty::<Bytes>::new())
            .expect("a request");
        let response = inventory.request_in(&op, request).await.expect("an answer");
        assert_eq!(response.status(), 200);
        assert!(told(response).await <= ms(800));
        let seen = peer.await_request().await.expect("seen");
        assert_eq!(seen.target, "/v1/stock?id=7");
        for gone in ["connection", "x-hop", "grpc-timeout", "transfer-encoding"] {
            assert!(!seen.headers.contains_key(gone), "{protocol:?}: {gone}");
        }
        if protocol == Protocol::Http1 {
            assert_eq!(seen.headers["host"], peer.addr().to_string());
        }
    }
}

#[tokio::test]
async fn c1_a_call_can_have_a_limit_of_its_own_that_only_shortens() {
    let peer = peer::echo_headers(Protocol::Http2).expect("a peer");
    let inventory = Client::builder("inventory", peer.url()).http2_only().cap(ms(800)).build().expect("a client");
    let op = Operation::begin("order", AMPLE);
    for (own, most) in [(ms(200), ms(200)), (ms(5_000), ms(800))] {
        let mut request = Request::get("/stock").body(Empty::<Bytes>::new()).expect("a request");
        request.extensions_mut().insert(CallCap(own));
        let told = told(inventory.request_in(&op, request).await.expect("an answer")).await;
        assert!(told <= most && told > most / 4, "{own:?}: {told:?}");
    }
}

/// A listener whose queue is full, so that a connect takes until the kernel sends its SYN again, about a second.
/// From then on it answers with the field that it was told.
async fn slow_to_connect() -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    socket.listen(0).expect("listening");
    socket.set_nonblocking(true).expect("nonblocking");
    let addr = socket.local_addr().expect("an address").as_socket().expect("an address");
    let mut fillers = Vec::new();
    while let Ok(filler) = tokio::time::timeout(ms(100), TcpStream::connect(addr)).await {
        fillers.push(filler.expect("a filler"));
        assert!(fillers.len() < 64, "the queue does not fill up");
    }
    let listener = TcpListener::from_std(socket.into()).expect("a listener");
    let serving = tokio::spawn(async move {
        let _fillers = fillers; // idle, and answered like anybody if they were not
        tokio::time::sleep(ms(300)).await;
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (socket, _) = listener.accept().await.expect("a connection");
            let told = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async move {
                let told = request.headers()["x-remaining-ms"].to_str().unwrap_or_default().to_owned();
                Ok::<_, Infallible>(Response::new(told))
            });
            let io = hyper_util::rt::TokioIo::new(socket);
            connections.spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, told));
        }
    });
    (addr, serving)
}

async fn number<B: http_body::Body<Error: std::fmt::Debug>>(response: Response<B>) -> Duration {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    ms(std::str::from_utf8(&bytes).expect("text").parse().expect("a number"))
}

#[tokio::test]
async fn e4_the_far_side_is_told_what_a_slow_connect_has_left() {
    let (addr, serving) = slow_to_connect().await;
    let inventory = builder(Protocol::Http1, addr).build().expect("a client");
    let op = Operation::begin("order", AMPLE);
    let before = clock::now();
    let response = inventory.request_in(&op, get("/")).await.expect("an answer");
    let told = number(response).await;
    let spent_connecting = op
        .ledger()
        .entries()
        .iter()
        .filter(|entry| entry.stage == Stage::Connect)
        .filter_map(|entry| Some(entry.ended?.since(before)))
        .max()
        .expect("a connect in the ledger");
    assert!(spent_connecting >= ms(300), "the connect was to be slow: {spent_connecting:?}");
    // The stage is closed a moment after the field was written: by microseconds, and a naive client is wrong by all of it.
    assert!(told <= AMPLE - spent_connecting + ms(20), "told {told:?} after {spent_connecting:?} of {AMPLE:?}");
    serving.abort();
}

/// The naive way: the field is written when the request is made.
#[tokio::test]
async fn e4_a_client_that_writes_the_field_first_tells_too_much() {
    let (addr, serving) = slow_to_connect().await;
    let naive =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let op = Operation::begin("order", AMPLE);
    let request = Request::get(format!("http://{addr}/"))
        .header("x-remaining-ms", op.remaining().as_millis().to_string())
        .body(Empty::new())
        .expect("a request");
    let told = number(naive.request(request).await.expect("an answer")).await;
    assert!(told > op.remaining() + ms(250), "told {told:?}, had {:?}", op.remaining());
    serving.abort();
}

#[tokio::test]
async fn e4_a_wait_for_a_connection_is_not_told_as_left() {
    let peer = peer::slow(Protocol::Http1, ms(200)).expect("a peer");
    let inventory = builder(Protocol::Http1, peer.addr()).max_connections(1).build().expect("a client");
    let op = Operation::begin("order", AMPLE);
    let first = inventory.request_in(&op, get("/1"));
    let second = inventory.request_in(&op, get("/2"));
    let both = async {
        let (first, second) = tokio::join!(async { whole(first.await.expect("first")).await }, second);
        (first, whole(second.expect("second")).await)
    };
    assert_eq!(both.await, (Bytes::from("late"), Bytes::from("late")));
    let seen = peer.await_requests(2).await.expect("seen");
    let told: u64 = seen.headers["x-remaining-ms"].to_str().expect("text").parse().expect("a number");
    assert!(ms(told) <= AMPLE - ms(200), "told {told} ms");
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn v5_below_one_unit_no_call_is_made_and_nothing_is_opened() {
    for protocol in BOTH {
        let peer = peer::echo_headers(protocol).expect("a peer");
        let inventory = builder(protocol, peer.addr()).min_useful(Duration::ZERO).cap(Duration::from_micros(600));
        let inventory = inventory.build().expect("a client");
        let counting = Arc::new(Counting::default());
        let op = Operation::begin("order", AMPLE).observed_by(counting.clone());
        let error = inventory.request_in(&op, get("/")).await.expect_err("not made");
        let Some(Stopped::NotBegun(not_begun)) = error.stopped() else { panic!("{error:?}") };
        assert!(matches!(not_begun.why, WhyNot::BelowTheUnit { .. } | WhyNot::Refused(_)), "{error}");
        assert_eq!(error.outcome(), Outcome::NotSent);
        assert_eq!((peer.connections(), peer.requests()), (0, 0));
        assert_eq!(counting.sum("not called ") + counting.sum("called "), 1, "{counting:?}");
    }
}

#[tokio::test]
async fn a_request_for_somebody_else_is_not_sent() {
    let peer = peer::echo_headers(Protocol::Http1).expect("a peer");
    let inventory = client(Protocol::Http1, &peer);
    let op = Operation::begin("order", AMPLE);
    let error = inventory.request_in(&op, get("http://elsewhere/")).await.expect_err("refused");
    assert_eq!(error.outcome(), Outcome::NotSent);
    let CallError::Failed(failed) = error else { panic!("{error:?}") };
    assert!(failed.source.is::<NotARequest>());
    assert_eq!(peer.connections(), 0);
}

#[tokio::test]
async fn c6_without_an_operation_the_cap_holds() {
    let peer = peer::stall(Protocol::Http1).expect("a peer");
    let base = builder(Protocol::Http1, peer.addr()).cap(ms(200)).without_operation(WithoutOperation::Ignore);
    let error = base.build().expect("a client").get("/stock").await.expect_err("cut off");
    cut_off(&error, Stage::Wait, Outcome::Unknown { stage: Stage::Wait });
    let strict = builder(Protocol::Http1, peer.addr()).without_operation(WithoutOperation::Require);
    let error = strict.build().expect("a client").get("/stock").await.expect_err("refused");
    assert_eq!(error.reason(), Some(Reason::CalledOff));
    assert_eq!(peer.requests(), 1);
}

// === Where a call is cut off ===

#[tokio::test]
async fn v3_a_connect_that_hangs_ends_at_the_deadline_and_nothing_was_sent() {
    let peer = peer::connect_hangs().await.expect("a peer");
    let before = Baseline::take();
    for protocol in BOTH {
        let inventory = client(protocol, &peer);
        let op = Operation::begin("order", ms(200));
        let error = op.scope(inventory.get("/stock")).await.expect_err("no connection");
        cut_off(&error, Stage::Connect, Outcome::NotSent);
        assert!(op.is_ended() || op.remaining().is_zero());
        assert!(overrun(&op) < ms(500), "{protocol:?}: {:?} late", overrun(&op));
    }
    before.assert_back().await;
}

#[tokio::test]
async fn r8_a_refused_connection_is_not_sent() {
    let peer = peer::refuse().expect("a peer");
    for protocol in BOTH {
        let op = Operation::begin("order", AMPLE);
        let error = client(protocol, &peer).request_in(&op, get("/")).await.expect_err("refused");
        assert_eq!(error.outcome(), Outcome::NotSent, "{error}");
        assert!(error.stopped().is_none(), "there was time left: {error}");
    }
}

#[tokio::test]
async fn i4_waiting_for_a_connection_is_counted_and_cut() {
    for protocol in BOTH {
        let peer = peer::stall(protocol).expect("a peer");
        let inventory = builder(protocol, peer.addr()).max_connections(1).max_streams(1).build().expect("a client");
        let long = Operation::begin("long", AMPLE);
        let holder = tokio::spawn({
            let (inventory, long) = (inventory.clone(), long.clone());
            async move { inventory.request_in(&long, get("/1")).await.map(drop) }
        });
        peer.await_request().await.expect("the first is on its way");
        let op = Operation::begin("order", ms(200));
        let error = inventory.request_in(&op, get("/2")).await.expect_err("no turn");
        cut_off(&error, Stage::Pool, Outcome::NotSent);
        let Some(Stopped::Ended(ended)) = error.stopped() else { panic!("{error:?}") };
        let waited = ended.ledger.entries().iter().find(|entry| entry.stage == Stage::Pool).expect("an entry");
        assert!(waited.ended.unwrap_or(ended.ending.at).since(waited.began) >= ms(190), "{error}");
        assert_eq!(peer.requests(), 1, "the second was never sent");
        long.call_off();
        assert!(holder.await.expect("no panic").is_err());
        peer.caller_left().await.expect("the first was cut off as well");
    }
}

#[tokio::test]
async fn i6_a_call_that_waits_for_its_answer_ends_at_the_deadline_and_the_peer_is_told() {
    for protocol in BOTH {
        let peer = peer::stall(protocol).expect("a peer");
        let inventory = client(protocol, &peer);
        let op = Operation::begin("order", ms(200));
        let error = inventory.request_in(&op, get("/")).await.expect_err("no answer");
        cut_off(&error, Stage::Wait, Outcome::Unknown { stage: Stage::Wait });
        assert!(overrun(&op) < ms(500));
        left(protocol, &peer, 1).await;
    }
}

#[tokio::test]
async fn i6_a_call_that_is_dropped_is_cancelled() {
    for protocol in BOTH {
        let peer = peer::stall(protocol).expect("a peer");
        let inventory = client(protocol, &peer);
        let counting = Arc::new(Counting::default());
        let op = Operation::begin("order", AMPLE).observed_by(counting.clone());
        tokio::select! {
            answer = inventory.request_in(&op, get("/")) => panic!("{answer:?}"),
            request = peer.await_request() => { request.expect("on its way"); }
        }
        left(protocol, &peer, 1).await;
        assert_eq!(counting.count("called unknown"), 1, "counted from a guard (contract N1)");

        // The next call: over HTTP/2 on the same connection, over HTTP/1.1 never.
        tokio::select! {
            answer = inventory.request_in(&op, get("/")) => panic!("{answer:?}"),
            request = peer.await_requests(2) => { request.expect("on its way"); }
        }
        assert_eq!(peer.connections(), if protocol == Protocol::Http1 { 2 } else { 1 });
    }
}

#[tokio::test]
async fn an_upload_that_nobody_reads_is_cut_off_in_stage_send() {
    for protocol in BOTH {
        let peer = peer::stops_reading(protocol).expect("a peer");
        let before = Baseline::tasks_only();
        let inventory = client(protocol, &peer);
        let op = Operation::begin("order", ms(300));
        let upload = Request::post("/").body(Full::new(Bytes::from(vec![0; 32 << 20]))).expect("a request");
        let error = inventory.request_in(&op, upload).await.expect_err("no answer");
        // hyper takes a body of one piece at once: then the wait for the answer is where it stands.
        assert!(matches!(error.outcome(), Outcome::Unknown { stage: Stage::Send | Stage::Wait }), "{error}");
        assert!(error.stopped().is_some(), "{error:?}");
        peer.read_on();
        left(protocol, &peer, 1).await;
        drop((inventory, peer));
        before.assert_back().await;
    }
}

#[tokio::test]
async fn an_upload_that_its_own_maker_holds_up_is_cut_off_in_stage_send() {
    for protocol in BOTH {
        let peer = peer::stall(protocol).expect("a peer");
        let op = Operation::begin("order", ms(200));
        let first = futures_util::stream::once(async { Ok::<_, Infallible>(Frame::data(Bytes::from("a"))) });
        let body = StreamBody::new(futures_util::StreamExt::chain(first, futures_util::stream::pending()));
        let upload = Request::post("/").body(body).expect("a request");
        let error = client(protocol, &peer).request_in(&op, upload).await.expect_err("no answer");
        cut_off(&error, Stage::Send, Outcome::Unknown { stage: Stage::Send });
        left(protocol, &peer, 1).await;
    }
}

async fn left(protocol: Protocol, peer: &Peer, n: usize) {
    let left = peer.callers_left(n).await.expect("the peer notices");
    match protocol {
        Protocol::Http1 => assert!(matches!(left.how, Leaving::Closed | Leaving::Reset), "{left:?}"),
        Protocol::Http2 => assert_eq!(left.how, Leaving::StreamReset(oneclock_test::Reason::CANCEL)),
    }
}

// === The answer's body ===

#[tokio::test]
async fn x1_a_body_that_stalls_or_trickles_is_cut_off_at_the_deadline() {
    for protocol in BOTH {
        let peers = [
            peer::stall_after_head(protocol).expect("a peer"),
            peer::stall_mid_body(protocol).expect("a peer"),
            peer::trickle(protocol, ms(20)).expect("a peer"),
        ];
        for peer in peers {
            let before = Baseline::tasks_only();
            let inventory = client(protocol, &peer);
            let op = Operation::begin("order", ms(250));
            let response = inventory.request_in(&op, get("/")).await.expect("a head");
            let error = collect(response.into_body(), 64 * 1024).await.expect_err("no whole body");
            let NotCollected::CutOff(cut) = error else { panic!("{error:?}") };
            assert_eq!((cut.ending.cause, cut.ending.stage), (Cause::Deadline, Stage::Body));
            assert!(overrun(&op) < ms(500));
            left(protocol, &peer, 1).await;
            drop((inventory, peer));
            before.assert_back().await;
        }
    }
}

#[tokio::test]
async fn x8_a_body_that_nobody_reads_is_cut_off_at_the_deadline() {
    for protocol in BOTH {
        let peer = peer::trickle(protocol, ms(20)).expect("a peer");
        let op = Operation::begin("order", ms(250));
        let response = client(protocol, &peer).request_in(&op, get("/")).await.expect("a head");
        left(protocol, &peer, 1).await; // while `response` is held
        assert!(overrun(&op) < ms(500));
        assert!(collect(response.into_body(), 1024).await.is_err(), "it never looks complete");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_with_time_left_is_a_failure_not_a_deadline() {
    let peers = [
        (Protocol::Http1, peer::reset(ResetAt::MidBody).expect("a peer")),
        (Protocol::Http1, peer::half_close().expect("a peer")),
        (
            Protocol::Http2,
            peer::reset_stream(StreamResetAt::MidBody, oneclock_test::Reason::INTERNAL_ERROR).expect("a peer"),
        ),
        (
            Protocol::Http2, // hyper alone takes it for the end, as behind a whole answer
            peer::reset_stream(StreamResetAt::MidBody, oneclock_test::Reason::NO_ERROR).expect("a peer"),
        ),
    ];
    for (protocol, peer) in peers {
        let op = Operation::begin("order", AMPLE);
        let error = match client(protocol, &peer).request_in(&op, get("/")).await {
            Ok(response) => collect(response.into_body(), 1024).await.expect_err("broken off"),
            // A reset may be read together with the head.
            Err(CallError::Failed(failed)) => NotCollected::Failed(failed.source),
            Err(error) => panic!("{error:?}"),
        };
        let NotCollected::Failed(source) = error else { panic!("{error:?}") };
        assert!(!source.is::<BodyCutOff>());
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_not_collected() {
    let peer = peer::echo_headers(Protocol::Http1).expect("a peer");
    let op = Operation::begin("order", AMPLE);
    let response = client(Protocol::Http1, &peer).request_in(&op, get("/")).await.expect("an answer");
    assert!(matches!(collect(response.into_body(), 8).await, Err(NotCollected::TooLong { limit: 8 })));
}

// === What is known of the far side ===

/// Answers every request with `answer`, as it is.
async fn answers(answer: &'static str) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            while socket.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        }
    });
    (addr, serving)
}

#[tokio::test]
async fn r8_a_reason_counts_only_from_a_trusted_peer() {
    let (addr, serving) =
        answers("HTTP/1.1 503 Service Unavailable\r\noneclock-reason: shed\r\ncontent-length: 0\r\n\r\n").await;
    for (trust, outcome) in [(Trust::Inside, "called rejected"), (Trust::Outside, "called unknown")] {
        let inventory = builder(Protocol::Http1, addr).trust(trust).build().expect("a client");
        let counting = Arc::new(Counting::default());
        let op = Operation::begin("order", AMPLE).observed_by(counting.clone());
        let response = inventory.request_in(&op, get("/")).await.expect("an answer");
        assert_eq!(response.status(), 503);
        drop(response);
        assert_eq!(counting.count(outcome), 1, "{trust:?}");
    }
    serving.abort();
}

#[tokio::test]
async fn r8_a_refused_stream_is_rejected_and_another_reset_is_not() {
    for (code, rejected) in
        [(oneclock_test::Reason::REFUSED_STREAM, true), (oneclock_test::Reason::INTERNAL_ERROR, false)]
    {
        let peer = peer::reset_stream(StreamResetAt::BeforeHead, code).expect("a peer");
        let op = Operation::begin("order", AMPLE);
        let error = client(Protocol::Http2, &peer).request_in(&op, get("/")).await.expect_err("reset");
        assert!(error.stopped().is_none(), "{error}");
        let want = if rejected { Outcome::Rejected } else { Outcome::Unknown { stage: Stage::Wait } };
        assert_eq!(error.outcome(), want, "{code:?}");
    }
}

/// HTTP/2 by hand: after the preface, whatever comes, GOAWAY with `last` and the code 0.
async fn goes_away(last: u32) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut buffer = vec![0; 4096];
            socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("settings");
            // Until a HEADERS frame (type 1) with END_HEADERS came: its target is in there.
            let mut seen = 0;
            while !buffer[..seen].windows(5).any(|frame| frame[0] == 1 && frame[1..] == [5, 0, 0, 0]) {
                match socket.read(&mut buffer[seen..]).await {
                    Ok(0) | Err(_) => break,
                    Ok(read) => seen += read,
                }
            }
            let mut go_away = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
            go_away.extend(last.to_be_bytes());
            go_away.extend([0; 4]);
            let _ = socket.write_all(&go_away).await;
            let _ = socket.shutdown().await;
            while socket.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        }
    });
    (addr, serving)
}

#[tokio::test]
async fn r8_goaway_below_our_stream_is_rejected_and_at_it_is_not() {
    for (last, rejected) in [(0, true), (1, false)] {
        let (addr, serving) = goes_away(last).await;
        let op = Operation::begin("order", AMPLE);
        let inventory = builder(Protocol::Http2, addr).build().expect("a client");
        let error = inventory.request_in(&op, get("/")).await.expect_err("gone away");
        let want = if rejected { Outcome::Rejected } else { Outcome::Unknown { stage: Stage::Wait } };
        assert_eq!(error.outcome(), want, "last stream {last}: {error:?}");
        serving.abort();
    }
}

/// A peer in a thread of its own, so that a test can hold its runtime still: accepts, reads a request, resets after
/// `delay`.
fn resets_after(delay: Duration) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a connection");
        let mut buffer = [0; 4096];
        let _ = socket.read(&mut buffer);
        std::thread::sleep(delay);
        let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
    });
    (addr, thread)
}

#[tokio::test]
async fn x2_a_reset_that_is_seen_after_our_deadline_is_the_deadline() {
    let (addr, thread) = resets_after(ms(150));
    let op = Operation::begin("order", ms(200));
    let inventory = builder(Protocol::Http1, addr).build().expect("a client");
    let call = tokio::spawn({
        let op = op.clone();
        async move { inventory.request_in(&op, get("/")).await.map(drop) }
    });
    tokio::time::sleep(ms(50)).await; // it waits for its answer
    // Nothing runs here until both have happened: the reset, and then the deadline.
    thread.join().expect("the peer has reset");
    while !op.remaining().is_zero() {
        std::thread::yield_now();
    }
    let error = call.await.expect("no panic").expect_err("no answer");
    cut_off(&error, Stage::Wait, Outcome::Unknown { stage: Stage::Wait });
}

#[tokio::test]
async fn x2_a_reset_with_time_left_is_a_failure() {
    let peer = peer::reset(ResetAt::RequestRead).expect("a peer");
    let op = Operation::begin("order", AMPLE);
    let error = client(Protocol::Http1, &peer).request_in(&op, get("/")).await.expect_err("reset");
    assert!(error.stopped().is_none(), "{error}");
    assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Wait });
}

// === Connections ===

#[tokio::test]
async fn calls_one_after_another_share_a_connection_and_nothing_is_left_behind() {
    for protocol in BOTH {
        let peer = peer::echo_headers(protocol).expect("a peer");
        let before = Baseline::take();
        let inventory = client(protocol, &peer);
        let op = Operation::begin("order", AMPLE);
        for _ in 0..5 {
            whole(inventory.request_in(&op, get("/")).await.expect("an answer")).await;
            settled().await;
        }
        assert_eq!((peer.connections(), peer.requests()), (1, 5), "{protocol:?}");
        drop(inventory);
        before.assert_back().await;
    }
}

/// Lets the connection's task see that the answer is over.
async fn settled() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_with_an_unread_answer_is_not_used_again() {
    let peer = peer::stall_after_head(Protocol::Http1).expect("a peer");
    let inventory = client(Protocol::Http1, &peer);
    let op = Operation::begin("order", AMPLE);
    drop(inventory.request_in(&op, get("/")).await.expect("a head"));
    left(Protocol::Http1, &peer, 1).await;
    drop(inventory.request_in(&op, get("/")).await.expect("a head"));
    assert_eq!(peer.connections(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_connections_than_allowed() {
    let peer = peer::slow(Protocol::Http1, ms(30)).expect("a peer");
    let inventory = builder(Protocol::Http1, peer.addr()).max_connections(2).build().expect("a client");
    let op = Operation::begin("order", AMPLE);
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let (inventory, op) = (inventory.clone(), op.clone());
            tokio::spawn(async move { whole(inventory.request_in(&op, get("/")).await.expect("an answer")).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.expect("no panic"), "late");
    }
    assert_eq!(peer.connections(), 2, "two, and each used four times");
}

#[tokio::test]
async fn an_idle_connection_closes_after_its_time() {
    for protocol in BOTH {
        let peer = peer::echo_headers(protocol).expect("a peer");
        let before = Baseline::take();
        let inventory = builder(protocol, peer.addr()).idle_timeout(ms(50)).build().expect("a client");
        let op = Operation::begin("order", AMPLE);
        whole(inventory.request_in(&op, get("/")).await.expect("an answer")).await;
        before.assert_back().await; // while the client is held
        whole(inventory.request_in(&op, get("/")).await.expect("an answer")).await;
        assert_eq!(peer.connections(), 2);
    }
}

#[tokio::test]
async fn max_idle_of_zero_keeps_none() {
    let peer = peer::echo_headers(Protocol::Http1).expect("a peer");
    let before = Baseline::take();
    let inventory = builder(Protocol::Http1, peer.addr()).max_idle(0).build().expect("a client");
    let op = Operation::begin("order", AMPLE);
    whole(inventory.request_in(&op, get("/")).await.expect("an answer")).await;
    before.assert_back().await;
}

/// In a thread: answers the first request of each connection, then does `then` with the second.
fn answers_once(then: impl Fn(std::net::TcpStream) + Send + 'static) -> (SocketAddr, std_mpsc::Receiver<&'static str>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let (seen, saw) = std_mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((mut socket, _)) = listener.accept() {
            let mut buffer = [0; 4096];
            if !socket.read(&mut buffer).is_ok_and(|read| read > 0) {
                continue;
            }
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
            let _ = seen.send("answered");
            then(socket);
            let _ = seen.send("done");
        }
    });
    (addr, saw)
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_costs_one_more_try_when_nothing_was_sent() {
    let (close, told_to) = std_mpsc::channel();
    let (addr, saw) = answers_once(move |_socket| {
        let _ = told_to.recv_timeout(PATIENCE); // and closes, without a word
    });
    let inventory = builder(Protocol::Http1, addr).build().expect("a client");
    let op = Operation::begin("order", AMPLE);
    whole(inventory.request_in(&op, get("/")).await.expect("an answer")).await;
    assert_eq!(saw.recv_timeout(PATIENCE), Ok("answered"));
    settled().await; // it is kept
    close.send(()).expect("a peer");
    assert_eq!(saw.recv_timeout(PATIENCE), Ok("done"));
    std::thread::sleep(ms(20)); // the FIN is in the kernel, and nothing here has seen it
    tokio::task::yield_now().await; // now the runtime has, but the connection's task comes after this one
    let request = Request::post("/").body(Full::new(Bytes::from("once"))).expect("a request");
    whole(inventory.request_in(&op, request).await.expect("an answer on a fresh connection")).await;
    assert_eq!(saw.recv_timeout(PATIENCE), Ok("answered"));
    drop(close);
}

#[tokio::test]
async fn r8_a_request_that_may_have_been_read_is_not_sent_again() {
    // Reads the second request, then closes without a word.
    let (addr, saw) = answers_once(|mut socket| {
        let _ = socket.read(&mut [0; 4096]);
    });
    let inventory = builder(Protocol::Http1, addr).build().expect("a client");
    let op = Operation::begin("order", AMPLE);
    whole(inventory.request_in(&op, get("/")).await.expect("an answer")).await;
    assert_eq!(saw.recv_timeout(PATIENCE), Ok("answered"));
    settled().await;
    let request = Request::post("/").body(Full::new(Bytes::from("once"))).expect("a request");
    let error = inventory.request_in(&op, request).await.expect_err("closed");
    assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Wait }, "{error:?}");
    assert_eq!(saw.recv_timeout(PATIENCE), Ok("done"));
    assert!(saw.recv_timeout(ms(50)).is_err(), "no second connection");
}

/// HTTP/2: allows `streams` at once, answers after `delay` with the field it was told.
async fn few_streams(streams: u32, delay: Duration) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let mut settings = h2::server::Builder::new();
            settings.max_concurrent_streams(streams);
            let mut connection = settings.handshake::<_, Bytes>(socket).await.expect("a handshake");
            tokio::spawn(async move {
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let told = Bytes::copy_from_slice(request.headers()["x-remaining-ms"].as_bytes());
                    tokio::spawn(async move {
                        tokio::time::sleep(delay).await;
                        let mut stream = respond.send_response(Response::new(()), false).expect("a stream");
                        let _ = stream.send_data(told, true);
                    });
                }
            });
        }
    });
    (addr, serving)
}

#[tokio::test]
async fn e4_a_wait_for_a_stream_of_the_peers_is_not_told_as_left() {
    let (addr, serving) = few_streams(1, ms(200)).await;
    let inventory = builder(Protocol::Http2, addr).max_connections(1).build().expect("a client");
    let op = Operation::begin("order", AMPLE);
    number(inventory.request_in(&op, get("/")).await.expect("the peer's settings are known now")).await;
    let second = Operation::begin("second", AMPLE);
    let third = Operation::begin("third", AMPLE);
    let call = async |op: &Operation| number(inventory.request_in(op, get("/")).await.expect("an answer")).await;
    let (first, last) = tokio::join!(call(&second), call(&third));
    assert!(first > last && last <= AMPLE - ms(200), "told {first:?} and {last:?}");
    serving.abort();
}

/// A peer that allows few calls on one connection gets several: else a dozen long streams would block everybody else.
#[tokio::test]
async fn i4_calls_beyond_what_a_connection_of_the_peers_takes_get_another() {
    let (addr, serving) = few_streams(2, ms(200)).await;
    let inventory = builder(Protocol::Http2, addr).max_connections(3).build().expect("a client");
    let op = Operation::begin("order", AMPLE);
    number(inventory.request_in(&op, get("/")).await.expect("the peer's settings are known now")).await;
    let waves = AMPLE.saturating_sub(ms(200));
    let call = async |op: Operation| number(inventory.request_in(&op, get("/")).await.expect("an answer")).await;
    let told = futures_util::future::join_all((0..7).map(|_| call(Operation::begin("one", AMPLE)))).await;
    let at_once = told.iter().filter(|told| **told > waves).count();
    assert_eq!(at_once, 6, "three connections of two calls each, and one that waits: {told:?}");
    serving.abort();
}

/// An upload that uses its client while it is dropped, as an answer of the same client does that is passed on.
struct CallsBack(Client, Arc<AtomicBool>);

impl http_body::Body for CallsBack {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

impl Drop for CallsBack {
    fn drop(&mut self) {
        let mut call = std::pin::pin!(self.0.get("/"));
        let _ = call.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
        self.1.store(true, Ordering::SeqCst);
    }
}

/// In a thread of its own: what deadlocks cannot fail by itself.
#[test]
fn an_upload_that_uses_its_client_while_it_is_dropped_holds_nobody_up() {
    let (done, is_done) = std_mpsc::channel();
    let work = async move {
        let peer = peer::echo_headers(Protocol::Http2).expect("a peer");
        let inventory = client(Protocol::Http2, &peer);
        let op = Operation::begin("order", AMPLE);
        whole(inventory.request_in(&op, get("/")).await.expect("the connection is there")).await;
        let dropped = Arc::new(AtomicBool::new(false));
        let upload = CallsBack(inventory.clone(), Arc::clone(&dropped));
        let mut call = Box::pin(inventory.request_in(&op, Request::post("/").body(upload).expect("a request")));
        assert!(futures_util::poll!(call.as_mut()).is_pending());
        drop(call);
        assert!(!dropped.load(Ordering::SeqCst), "it waits for the connection, which will drop it");
        whole(inventory.request_in(&op, get("/")).await.expect("an answer")).await;
        assert!(dropped.load(Ordering::SeqCst));
        let _ = done.send("done");
    };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(work);
    });
    assert_eq!(is_done.recv_timeout(PATIENCE), Ok("done"));
}

/// HTTP/2: sends the head and a piece of the body at once, and never reads the upload.
async fn answers_early() -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.expect("a handshake");
                let mut held = Vec::new();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let mut stream = respond.send_response(Response::new(()), false).expect("a stream");
                    let _ = stream.send_data(Bytes::from("first"), false);
                    held.push((request, respond, stream));
                }
            });
        }
    });
    (addr, serving)
}

#[tokio::test]
async fn x8_an_upload_stuck_behind_an_early_answer_ends_with_that_answer() {
    let (addr, serving) = answers_early().await;
    let before = Baseline::tasks_only();
    let inventory = builder(Protocol::Http2, addr).build().expect("a client");
    let op = Operation::begin("order", ms(300));
    // In pieces: a body of one piece is taken at once, and then there is nothing left to be stuck.
    let piece = || Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0; 16 << 10])));
    let body = StreamBody::new(futures_util::stream::repeat_with(piece));
    let upload = Request::post("/").body(body).expect("a request");
    let response = inventory.request_in(&op, upload).await.expect("a head");
    let error = collect(response.into_body(), 1024).await.expect_err("no whole body");
    assert!(matches!(error, NotCollected::CutOff(_)), "{error:?}");
    before.assert_back().await; // while the client is held: the stuck upload is gone
    let next = Operation::begin("next", AMPLE);
    inventory.request_in(&next, get("/")).await.expect("the next call has a connection of its own");
    serving.abort();
}

// === As a service ===

#[tokio::test]
async fn i4_a_client_is_a_service_and_a_wait_before_it_is_not_told_as_left() {
    for protocol in BOTH {
        let peer = peer::slow(protocol, ms(200)).expect("a peer");
        let inventory = ServiceBuilder::new().concurrency_limit(1).service(client(protocol, &peer));
        let op = Operation::begin("order", AMPLE);
        let call = async || {
            let answer: Answer = op.scope(inventory.clone().oneshot(get("/"))).await.expect("an answer");
            whole(answer).await
        };
        let both = tokio::join!(call(), call());
        assert_eq!(both, (Bytes::from("late"), Bytes::from("late")));
        let seen = peer.await_requests(2).await.expect("seen");
        let told: u64 = seen.headers["x-remaining-ms"].to_str().expect("text").parse().expect("a number");
        assert!(ms(told) <= AMPLE - ms(200), "told {told} ms");
    }
}

#[tokio::test]
async fn i2_a_call_of_the_service_ends_at_the_deadline_of_the_operation_that_made_it() {
    let peer = peer::stall(Protocol::Http1).expect("a peer");
    let mut inventory = client(Protocol::Http1, &peer);
    let op = Operation::begin("order", ms(200));
    let call = op.sync_scope(|| inventory.call(get("/")));
    let error = call.await.expect_err("no answer"); // polled outside of the scope
    cut_off(&error, Stage::Wait, Outcome::Unknown { stage: Stage::Wait });
    assert!(overrun(&op) < ms(500));
}

// === Answers without a body ===

/// HEAD, 204, 304: the call is over with the head, and its connection is the next one's, though the answer is held.
#[tokio::test]
async fn x1_an_answer_without_a_body_is_over_with_its_head() {
    let app = axum::Router::new()
        .route("/200", axum::routing::get(|| async { "hello" }))
        .route("/204", axum::routing::get(|| async { http::StatusCode::NO_CONTENT }))
        .route("/304", axum::routing::get(|| async { http::StatusCode::NOT_MODIFIED }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let serving = tokio::spawn(oneclock_http::serve(listener, app).into_future());
    for protocol in BOTH {
        let inventory = builder(protocol, addr).max_connections(1).max_streams(1).build().expect("a client");
        let counting = Arc::new(Counting::default());
        let op = Operation::begin("order", AMPLE).observed_by(counting.clone());
        let mut held = Vec::new();
        for (method, path, status) in [("HEAD", "/200", 200), ("GET", "/204", 204), ("GET", "/304", 304)] {
            let request = Request::builder().method(method).uri(path).body(Empty::<Bytes>::new()).expect("a request");
            let answer = inventory.request_in(&op, request).await.expect("an answer");
            assert_eq!(answer.status(), status);
            held.push(answer);
            assert_eq!(counting.count("called applied"), held.len() as u64, "{protocol:?} {path} {counting:?}");
        }
        for answer in held {
            assert_eq!(whole(answer).await, "");
        }
    }
    serving.abort();
}

#[tokio::test]
async fn x1_an_answer_that_is_announced_before_it_comes_is_the_last_one() {
    let (addr, serving) = answers(concat!(
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ))
    .await;
    let inventory = builder(Protocol::Http1, addr).max_connections(1).build().expect("a client");
    let op = Operation::begin("order", AMPLE);
    for _ in 0..2 {
        let answer = inventory.request_in(&op, get("/")).await.expect("an answer");
        assert_eq!(answer.status(), 200);
        assert_eq!(whole(answer).await, "ok");
    }
    serving.abort();
}
