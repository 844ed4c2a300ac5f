//! [`Budget`] over real sockets: what the far side is told, where a request is cut off, and what is known of it then.
//! Contract E2, E4, X1, X2, R8; invariants I2, I3, I6, I8.

#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of a test are a test")]

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use oneclock::events::Counting;
use oneclock::{Operation, Stopped, clock};
use oneclock_core::{Cause, Outcome, Stage, Trust};
use oneclock_http::{CallError, Destination, WithoutOperation};
use oneclock_reqwest::{Budget, body_cut_off, call_error};
use oneclock_test::peer::{self, Leaving, Peer, ResetAt, StreamResetAt};
use oneclock_test::{Baseline, Protocol};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// More than any exchange on the loopback interface needs.
const AMPLE: Duration = Duration::from_secs(5);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn plain(protocol: Protocol) -> reqwest::Client {
    let builder = reqwest::Client::builder();
    let builder = match protocol {
        Protocol::Http1 => builder.http1_only(),
        Protocol::Http2 => builder.http2_prior_knowledge(),
    };
    builder.build().expect("a client")
}

fn client(protocol: Protocol) -> ClientWithMiddleware {
    with(protocol, Destination::named("inventory").build().expect("a destination"))
}

fn with(protocol: Protocol, inventory: Destination) -> ClientWithMiddleware {
    ClientBuilder::new(plain(protocol)).with(Budget::new(inventory)).build()
}

#[track_caller]
fn cut_off(error: &Error) -> &CallError {
    let call = call_error(error).expect("a call's error");
    let Some(Stopped::Ended(ended)) = call.stopped() else { panic!("not cut off: {error:?}") };
    assert_eq!(ended.ending.cause, Cause::Deadline, "{error}");
    assert_eq!(call.outcome(), Outcome::Unknown { stage: Stage::Wait }, "{error}");
    call
}

/// How long `operation` has run over its deadline.
fn overrun(operation: &Operation) -> Duration {
    clock::now().since(operation.deadline().tick())
}

async fn left(protocol: Protocol, peer: &Peer) {
    let left = peer.caller_left().await.expect("the peer notices");
    match protocol {
        Protocol::Http1 => assert!(matches!(left.how, Leaving::Closed | Leaving::Reset), "{left:?}"),
        Protocol::Http2 => assert_eq!(left.how, Leaving::StreamReset(oneclock_test::Reason::CANCEL)),
    }
}

#[tokio::test]
async fn e4_the_far_side_is_told_what_is_left_anew_for_each_attempt() {
    for protocol in BOTH {
        let peer = peer::echo_headers(protocol).expect("a peer");
        let client = client(protocol);
        let op = Operation::begin("order", AMPLE);
        let mut told = Vec::new();
        for attempt in 1..=2 {
            let request = client.get(peer.url()).header("grpc-timeout", "99S"); // stale: our own caller's (contract E7)
            let response = op.scope(request.send()).await.expect("an answer");
            assert_eq!(response.url().as_str(), format!("{}/", peer.url()));
            assert!(response.content_length().is_some_and(|length| length > 0));
            response.bytes().await.expect("a whole body");
            let seen = peer.await_requests(attempt).await.expect("seen");
            assert!(!seen.headers.contains_key("grpc-timeout"));
            let field = seen.headers["x-remaining-ms"].to_str().expect("text");
            told.push(ms(field.parse().expect("a number")));
            tokio::time::sleep(ms(20)).await;
        }
        assert!(told[0] <= AMPLE && told[1] <= told[0] - ms(20), "{told:?}");
    }
}

/// The naive way: without a timeout of its own, a call outlives the operation that it was made for.
#[tokio::test]
async fn i2_plain_reqwest_goes_on_past_the_deadline() {
    for protocol in BOTH {
        let peer = peer::stall(protocol).expect("a peer");
        let op = Operation::begin("order", ms(200));
        let call = op.scope(plain(protocol).get(peer.url()).send());
        assert!(tokio::time::timeout(ms(400), call).await.is_err(), "it was to hang");
        assert!(overrun(&op) >= ms(200));
    }
}

#[tokio::test]
async fn i2_with_a_budget_it_ends_at_the_deadline_and_the_peer_is_told() {
    for protocol in BOTH {
        let peer = peer::stall(protocol).expect("a peer");
        let before = Baseline::take();
        let client = client(protocol);
        let op = Operation::begin("order", ms(200));
        let error = op.scope(client.get(peer.url()).send()).await.expect_err("no answer");
        cut_off(&error);
        assert!(overrun(&op) < ms(500));
        left(protocol, &peer).await;
        drop(client);
        before.assert_back().await;
    }
}

#[tokio::test]
async fn an_operation_in_the_extensions_counts_where_none_is_current() {
    let peer = peer::stall(Protocol::Http1).expect("a peer");
    let ended_by = async |current: Option<&Operation>, carried: &Operation| {
        let send = client(Protocol::Http1).get(peer.url()).with_extension(carried.clone()).send();
        let sent = match current {
            Some(current) => current.scope(send).await,
            None => send.await,
        };
        let error = sent.expect_err("no answer");
        let CallError::Stopped(Stopped::Ended(ended)) = cut_off(&error) else { panic!("{error:?}") };
        ended.operation.to_string()
    };
    assert_eq!(ended_by(None, &Operation::begin("carried", ms(200))).await, "carried");
    let (current, carried) = (Operation::begin("current", ms(200)), Operation::begin("carried", AMPLE));
    assert_eq!(ended_by(Some(&current), &carried).await, "current");
}

#[tokio::test]
async fn i3_a_timeout_of_the_requests_own_can_shorten_and_never_extend() {
    let peer = peer::stall(Protocol::Http1).expect("a peer");
    let client = client(Protocol::Http1);
    let op = Operation::begin("order", ms(200));
    let longer = client.get(peer.url()).timeout(Duration::from_secs(30)).with_extension(op.clone());
    cut_off(&longer.send().await.expect_err("no answer"));
    assert!(overrun(&op) < ms(500));

    let op = Operation::begin("order", AMPLE);
    let shorter = client.get(peer.url()).timeout(ms(100)).with_extension(op.clone());
    let error = shorter.send().await.expect_err("no answer");
    let call = call_error(&error).expect("a call's error");
    assert!(call.stopped().is_none(), "there was time left: {call}");
    assert_eq!(call.outcome(), Outcome::Unknown { stage: Stage::Wait });
    let source = call.source().and_then(|source| source.downcast_ref::<Error>()).expect("reqwest's error");
    assert!(source.is_timeout());
}

#[tokio::test]
async fn v3_a_connect_that_hangs_ends_at_the_deadline_and_claims_nothing() {
    let peer = peer::connect_hangs().await.expect("a peer");
    let op = Operation::begin("order", ms(200));
    let error = op.scope(client(Protocol::Http1).get(peer.url()).send()).await.expect_err("no connection");
    cut_off(&error); // Unknown: reqwest did not say that it was still connecting
    assert!(overrun(&op) < ms(500));
}

#[tokio::test]
async fn r8_a_refused_connection_is_not_sent_where_redirects_are_off() {
    let peer = peer::refuse().expect("a peer");
    let op = Operation::begin("order", AMPLE);
    let budget = Budget::new(Destination::named("inventory").build().expect("a destination"));
    let plain = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    for (budget, outcome) in [
        (budget.clone().follows_no_redirects(), Outcome::NotSent),
        (budget, Outcome::Unknown { stage: Stage::Wait }), // not declared: no proof
    ] {
        let client = ClientBuilder::new(plain.clone()).with(budget).build();
        let error = op.scope(client.get(peer.url()).send()).await.expect_err("refused");
        let call = call_error(&error).expect("a call's error");
        assert!(call.stopped().is_none());
        assert_eq!(call.outcome(), outcome, "{error:?}");
    }
}

/// Answers every request with `answer`, as it is.
async fn answers(answer: String) -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let serving = tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            while socket.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        }
    });
    (url, serving)
}

#[tokio::test]
async fn r8_a_connect_that_failed_after_a_redirect_proves_nothing() {
    let nobody = peer::refuse().expect("a peer");
    let (url, serving) =
        answers(format!("HTTP/1.1 303 See Other\r\nlocation: {}/\r\ncontent-length: 0\r\n\r\n", nobody.url())).await;
    let op = Operation::begin("order", AMPLE);
    let error = op.scope(client(Protocol::Http1).post(url).body("once").send()).await.expect_err("refused");
    let call = call_error(&error).expect("a call's error");
    assert_eq!(call.outcome(), Outcome::Unknown { stage: Stage::Wait }, "the first hop had the request: {error:?}");
    serving.abort();
}

#[tokio::test]
async fn r8_a_reason_counts_only_from_a_trusted_peer() {
    let answer = "HTTP/1.1 503 Service Unavailable\r\noneclock-reason: shed\r\ncontent-length: 0\r\n\r\n";
    let (url, serving) = answers(answer.to_owned()).await;
    for (trust, outcome) in [(Trust::Inside, "called rejected"), (Trust::Outside, "called unknown")] {
        let inventory = Destination::named("inventory").trust(trust).build().expect("a destination");
        let counting = Arc::new(Counting::default());
        let op = Operation::begin("order", AMPLE).observed_by(counting.clone());
        let response = op.scope(with(Protocol::Http1, inventory).get(&url).send()).await.expect("an answer");
        assert_eq!(response.status(), 503);
        drop(response);
        assert_eq!(counting.count(outcome), 1, "{trust:?}");
    }
    serving.abort();
}

#[tokio::test]
async fn r8_a_reset_is_unknown_and_a_refused_stream_is_rejected() {
    let op = Operation::begin("order", AMPLE);
    let peer = peer::reset(ResetAt::RequestRead).expect("a peer");
    let error = op.scope(client(Protocol::Http1).get(peer.url()).send()).await.expect_err("reset");
    assert_eq!(call_error(&error).map(CallError::outcome), Some(Outcome::Unknown { stage: Stage::Wait }));

    let peer = peer::reset_stream(StreamResetAt::BeforeHead, oneclock_test::Reason::REFUSED_STREAM).expect("a peer");
    let budget = Budget::new(Destination::named("inventory").build().expect("a destination"));
    for (budget, outcome) in [
        (budget.clone().follows_no_redirects(), Outcome::Rejected),
        (budget, Outcome::Unknown { stage: Stage::Wait }), // it may have been a later hop
    ] {
        let client = ClientBuilder::new(plain(Protocol::Http2)).with(budget).build();
        let error = op.scope(client.get(peer.url()).send()).await.expect_err("reset");
        assert_eq!(call_error(&error).map(CallError::outcome), Some(outcome), "{error:?}");
    }
}

/// Answers `first` to a POST and `then` to a GET, as they are.
async fn redirects(first: &'static str, then: &'static str) -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/orders", listener.local_addr().expect("an address"));
    let serving = tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = socket.read(&mut buffer).await {
                    let answer = if buffer[..read].starts_with(b"POST") { first } else { then };
                    let _ = socket.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    (url, serving)
}

/// The first hop did its work. What the second says of itself is no word about that.
#[tokio::test]
async fn r8_a_refusal_by_the_second_hop_is_not_taken_for_the_firsts() {
    const SEE_OTHER: &str = "HTTP/1.1 303 See Other\r\nlocation: /orders/7\r\ncontent-length: 0\r\n\r\n";
    const SEE_ITSELF: &str = "HTTP/1.1 303 See Other\r\nlocation: /orders\r\ncontent-length: 0\r\n\r\n";
    const TOO_MANY: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
    const SHED: &str = "HTTP/1.1 503 Service Unavailable\r\noneclock-reason: shed\r\ncontent-length: 0\r\n\r\n";
    const GONE: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    for (first, then, status, outcome) in [
        (SEE_OTHER, TOO_MANY, 429, "called unknown"),
        (SEE_OTHER, SHED, 503, "called unknown"),
        (SEE_ITSELF, TOO_MANY, 429, "called unknown"),
        (SEE_OTHER, GONE, 404, "called failed"),
        (SEE_OTHER, OK, 200, "called applied"),
    ] {
        let (url, serving) = redirects(first, then).await;
        let inventory = Destination::named("inventory").trust(Trust::Inside).build().expect("a destination");
        let counting = Arc::new(Counting::default());
        let op = Operation::begin("order", AMPLE).observed_by(counting.clone());
        let response =
            op.scope(with(Protocol::Http1, inventory).post(url).body("once").send()).await.expect("an answer");
        assert_eq!(response.status(), status, "it says what came");
        drop(response);
        assert_eq!((counting.count(outcome), counting.sum("called ")), (1, 1), "{first}{then}{counting:?}");
        serving.abort();
    }
}

#[tokio::test]
async fn r8_a_refusal_counts_where_no_redirect_can_have_come_before_it() {
    const TOO_MANY: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
    let (url, serving) = redirects(TOO_MANY, TOO_MANY).await;
    let counting = Arc::new(Counting::default());
    let op = Operation::begin("order", AMPLE).observed_by(counting.clone());
    let read = client(Protocol::Http1).get(format!("{url}#part"));
    assert_eq!(op.scope(read.send()).await.expect("an answer").status(), 429);
    let budget = Budget::new(Destination::named("inventory").build().expect("a destination")).follows_no_redirects();
    let plain = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let write = ClientBuilder::new(plain).with(budget).build().post(url).body("once");
    assert_eq!(op.scope(write.send()).await.expect("an answer").status(), 429);
    assert_eq!(counting.count("called rejected"), 2, "{counting:?}");
    serving.abort();
}

#[tokio::test]
async fn x1_a_body_that_stalls_or_trickles_is_cut_off_at_the_deadline() {
    for protocol in BOTH {
        let peers = [
            peer::stall_after_head(protocol).expect("a peer"),
            peer::stall_mid_body(protocol).expect("a peer"),
            peer::trickle(protocol, ms(20)).expect("a peer"),
        ];
        for peer in peers {
            let op = Operation::begin("order", ms(250));
            let response = op.scope(client(protocol).get(peer.url()).send()).await.expect("a head");
            let error = response.bytes().await.expect_err("no whole body");
            let cut = body_cut_off(&error).expect("cut off by our own clock");
            assert_eq!((cut.ending.cause, cut.ending.stage), (Cause::Deadline, Stage::Body));
            assert!(overrun(&op) < ms(500));
            left(protocol, &peer).await;
        }
    }
}

#[tokio::test]
async fn x8_a_body_that_nobody_reads_is_cut_off_at_the_deadline() {
    for protocol in BOTH {
        let peer = peer::trickle(protocol, ms(20)).expect("a peer");
        let op = Operation::begin("order", ms(250));
        let response = op.scope(client(protocol).get(peer.url()).send()).await.expect("a head");
        left(protocol, &peer).await; // while `response` is held
        assert!(overrun(&op) < ms(500));
        assert!(response.bytes().await.is_err(), "it never looks complete");
    }
}

#[tokio::test]
async fn i6_a_request_that_is_dropped_is_cancelled_and_counted() {
    for protocol in BOTH {
        let peer = peer::stall(protocol).expect("a peer");
        let counting = Arc::new(Counting::default());
        let op = Operation::begin("order", AMPLE).observed_by(counting.clone());
        tokio::select! {
            answer = op.scope(client(protocol).get(peer.url()).send()) => panic!("{answer:?}"),
            request = peer.await_request() => { request.expect("on its way"); }
        }
        left(protocol, &peer).await;
        assert_eq!(counting.count("called unknown"), 1);
    }
}

#[tokio::test]
async fn e2_below_one_unit_no_request_is_made() {
    let peer = peer::echo_headers(Protocol::Http1).expect("a peer");
    let inventory = Destination::named("inventory").min_useful(Duration::ZERO).cap(Duration::from_micros(600));
    let client = with(Protocol::Http1, inventory.build().expect("a destination"));
    let op = Operation::begin("order", AMPLE);
    let error = op.scope(client.get(peer.url()).send()).await.expect_err("not made");
    let call = call_error(&error).expect("a call's error");
    assert!(matches!(call.stopped(), Some(Stopped::NotBegun(_))), "{error:?}");
    assert_eq!((call.outcome(), peer.connections()), (Outcome::NotSent, 0));
}

#[tokio::test]
async fn c6_without_an_operation_the_cap_holds() {
    let peer = peer::stall(Protocol::Http1).expect("a peer");
    let inventory = Destination::named("inventory").cap(ms(200)).without_operation(WithoutOperation::Ignore);
    let client = with(Protocol::Http1, inventory.build().expect("a destination"));
    cut_off(&client.get(peer.url()).send().await.expect_err("no answer"));
}
