//! Retries over real sockets: what each attempt is told and sends, what keeps a call from being repeated, and that hops do
//! not multiply. Contract E4, R1 to R9, V1; invariants I9, I10.

#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of a test are a test")]

use std::convert::Infallible;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::any;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::client::legacy::Client as Legacy;
use hyper_util::rt::TokioExecutor;
use oneclock::events::{Called, Counting, Event, Observer};
use oneclock::{Operation, clock};
use oneclock_core::retry::{RetryPolicy, RetryPolicyBuilder, Stop};
use oneclock_core::{Effect, Outcome, Policy, Stage, Trust};
use oneclock_http::{
    AnswerGivenUp, CallError, Client, ClientBuilder, Destination, EgressLayer, IngressLayer, Problem, Replay,
    RetryLayer, collect, serve, successful,
};
use oneclock_test::{Protocol, peer};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tower::{Layer, ServiceBuilder, ServiceExt};

const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// More than any exchange on the loopback interface needs.
const AMPLE: Duration = Duration::from_secs(20);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A service that answers by a script, the last line for ever, and keeps what it was asked.
#[derive(Clone)]
struct Scripted {
    lines: Arc<Vec<Line>>,
    asked: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
}

type Line = (u16, &'static [(&'static str, &'static str)]);

/// A listener that goes with its handle.
struct Server {
    addr: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl Scripted {
    fn new(lines: &[Line]) -> Self {
        Self { lines: Arc::new(lines.to_vec()), asked: Arc::default() }
    }

    fn statuses(statuses: &[u16]) -> Self {
        Self::new(&statuses.iter().map(|status| (*status, &[][..])).collect::<Vec<_>>())
    }

    async fn open(&self) -> Server {
        let app = Router::new().fallback(any(answer)).with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        Server { addr, _serving: AbortOnDropHandle::new(serving) }
    }

    fn asked(&self) -> Vec<(HeaderMap, Bytes)> {
        self.asked.lock().expect("no panic").clone()
    }

    /// The values of one field in each request.
    fn told(&self, field: &str) -> Vec<Option<String>> {
        let value = |head: &HeaderMap| head.get(field).map(|value| value.to_str().expect("text").to_owned());
        self.asked().iter().map(|(head, _)| value(head)).collect()
    }
}

async fn answer(State(scripted): State<Scripted>, request: axum::extract::Request) -> impl IntoResponse {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let mut asked = scripted.asked.lock().expect("no panic");
    let (status, fields) = scripted.lines[asked.len().min(scripted.lines.len() - 1)];
    asked.push((head.headers, body));
    let response = fields
        .iter()
        .fold(Response::builder().status(status), |response, (name, value)| response.header(*name, *value));
    response.body(axum::body::Body::empty()).expect("a response")
}

fn no_wait() -> RetryPolicyBuilder {
    RetryPolicy::new().backoff(ms(0), ms(0))
}

fn builder(protocol: Protocol, addr: SocketAddr, policy: RetryPolicyBuilder) -> ClientBuilder {
    let policy = policy.build().expect("a policy");
    let builder = Client::builder("inventory", format!("http://{addr}")).retry(policy).trust(Trust::Inside);
    match protocol {
        Protocol::Http1 => builder,
        Protocol::Http2 => builder.http2_only(),
    }
}

fn client(protocol: Protocol, addr: SocketAddr, policy: RetryPolicyBuilder) -> Client {
    builder(protocol, addr, policy).build().expect("a client")
}

fn request(method: Method, body: &'static str) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::from(body));
    *request.method_mut() = method;
    request
}

fn op(budget: Duration) -> Operation {
    Operation::begin("order", budget)
}

fn given_up<B>(answer: &Response<B>) -> AnswerGivenUp {
    *answer.extensions().get::<AnswerGivenUp>().expect("it was given up")
}

// === What is tried again ===

#[tokio::test]
async fn r7_reads_are_tried_again_and_the_answer_that_came_is_delivered() {
    for protocol in BOTH {
        let scripted = Scripted::statuses(&[503, 502, 200]);
        let server = scripted.open().await;
        let inventory = client(protocol, server.addr, no_wait());
        let answer = inventory.request_in(&op(AMPLE), request(Method::GET, "")).await.expect("an answer");
        assert_eq!((answer.status().as_u16(), scripted.asked().len()), (200, 3), "{protocol:?}");
        assert!(answer.extensions().get::<AnswerGivenUp>().is_none());
    }
}

#[tokio::test]
async fn the_last_real_answer_is_returned_with_why_there_is_no_other() {
    let scripted = Scripted::statuses(&[503]);
    let server = scripted.open().await;
    let inventory = client(Protocol::Http1, server.addr, no_wait());
    let answer = inventory.request_in(&op(AMPLE), request(Method::GET, "")).await.expect("an answer");
    assert_eq!(answer.status(), 503);
    assert_eq!(given_up(&answer).why, Stop::AllMade { attempts: 3 });
    assert_eq!(scripted.asked().len(), 3);
}

#[tokio::test]
async fn i10_what_must_not_be_done_twice_is_not_repeated_without_a_key_that_is_enforced() {
    let keyed = |mut request: Request<Full<Bytes>>| {
        request.headers_mut().insert("idempotency-key", "tap-7".parse().expect("a value"));
        request
    };
    let declared = |mut request: Request<Full<Bytes>>, effect: Effect| {
        request.extensions_mut().insert(effect);
        request
    };
    let post = || request(Method::POST, "7 EUR");
    let cases = [
        (post(), no_wait(), 1),
        (post(), no_wait().enforces_keys(), 1),
        (keyed(post()), no_wait(), 1),
        (keyed(post()), no_wait().enforces_keys(), 3),
        (declared(post(), Effect::ReadOnly), no_wait(), 3),
        (request(Method::PUT, "12"), no_wait(), 1),
        (request(Method::PUT, "12"), no_wait().idempotent_methods(), 3),
        (request(Method::DELETE, ""), no_wait().idempotent_methods(), 3),
        (request(Method::HEAD, ""), no_wait(), 3),
    ];
    for (request, policy, attempts) in cases {
        let scripted = Scripted::statuses(&[503]);
        let server = scripted.open().await;
        let (method, key) = (request.method().clone(), request.headers().get("idempotency-key").cloned());
        let answer = client(Protocol::Http1, server.addr, policy).request_in(&op(AMPLE), request).await;
        assert_eq!(answer.expect("an answer").status(), 503);
        let asked = scripted.asked();
        assert_eq!(asked.len(), attempts, "{method} {key:?}");
        let first = &asked[0];
        for (head, body) in &asked {
            assert_eq!((head.get("idempotency-key"), body), (key.as_ref(), &first.1), "the same key and the same body");
        }
    }
}

/// Somebody else's client in a loop repeats what it must not: the same check fails there.
#[tokio::test]
async fn the_naive_way_of_a_loop_around_post_repeats_a_charge() {
    let scripted = Scripted::statuses(&[503]);
    let server = scripted.open().await;
    let client = Legacy::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    for _ in 0..3 {
        let charge = Request::post(format!("http://{}/", server.addr)).body(Full::from("7 EUR")).expect("a request");
        if client.request(charge).await.is_ok_and(|answer| answer.status().is_success()) {
            break;
        }
    }
    assert_eq!(scripted.asked().len(), 3);
}

#[tokio::test]
async fn r8_what_was_refused_is_repeated_whatever_it_does() {
    for protocol in BOTH {
        let scripted = Scripted::statuses(&[429, 429, 200]);
        let server = scripted.open().await;
        let inventory = client(protocol, server.addr, no_wait());
        let answer = inventory.request_in(&op(AMPLE), request(Method::POST, "7 EUR")).await.expect("an answer");
        assert_eq!(answer.status(), 200);
        let bodies: Vec<_> = scripted.asked().into_iter().map(|(_, body)| body).collect();
        assert_eq!(bodies, ["7 EUR"; 3]);
    }
}

#[tokio::test]
async fn r7_what_was_never_sent_is_repeated_whatever_it_does() {
    let refuses = peer::refuse().expect("a peer");
    let counting = Arc::new(Counting::default());
    let op = op(AMPLE).observed_by(counting.clone());
    let inventory = client(Protocol::Http1, refuses.addr(), no_wait());
    let error = inventory.request_in(&op, request(Method::POST, "7 EUR")).await.map(drop).expect_err("nobody is there");
    assert_eq!(error.outcome(), Outcome::NotSent);
    let text = error.to_string();
    let want = "order → inventory failed, outcome: not sent; gave up after 3 attempts: all 3 attempts were made";
    assert_eq!(text, want);
    assert_eq!((counting.count("called not_sent"), counting.count("retried")), (3, 2));
    assert_eq!(counting.count("gave up all_made"), 1);
}

#[tokio::test]
async fn a_request_for_somebody_else_is_refused_once() {
    let counting = Arc::new(Counting::default());
    let op = op(AMPLE).observed_by(counting.clone());
    let inventory = client(Protocol::Http1, ([127, 0, 0, 1], 1).into(), no_wait());
    let elsewhere = Request::get("http://pricing/").body(Full::<Bytes>::default()).expect("a request");
    let error = inventory.request_in(&op, elsewhere).await.map(drop).expect_err("refused");
    assert!(matches!(error, CallError::Failed(_)), "{error}");
    assert_eq!(counting.sum("called"), 1);
}

// === Time ===

/// Contract V1 over sockets: 1 s each, within 2.5 s. What each attempt is told is the rest of one budget.
#[tokio::test]
async fn v1_e4_each_attempt_is_told_what_is_left_then() {
    for protocol in BOTH {
        let stalls = peer::stall(protocol).expect("a peer");
        let inventory = client(protocol, stalls.addr(), no_wait().per_try(ms(1_000)));
        let op = op(ms(2_500));
        let error = inventory.request_in(&op, request(Method::GET, "")).await.map(drop).expect_err("no answer");
        let over = clock::now().since(op.deadline().tick());
        assert!(over < ms(2_000), "{over:?} late");
        assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Wait });
        let mut told = Vec::new();
        for n in 1..=stalls.requests() {
            let seen = stalls.await_requests(n).await.expect("seen");
            told.push(seen.headers["x-remaining-ms"].to_str().expect("text").parse::<u64>().expect("a number"));
        }
        assert!(told.len() <= 3 && told.iter().all(|told| *told <= 1_000), "{protocol:?}: {told:?}");
        if let [_, _, third] = told[..] {
            assert!(third <= 500, "{told:?}");
        }
    }
}

#[tokio::test]
async fn r2_a_wait_that_does_not_fit_ends_it_at_once() {
    let date = &[("retry-after", "Fri, 31 Dec 2999 23:59:59 GMT")][..];
    for line in [
        (503, &[("retry-after", "60")][..]),
        (503, date),
        (503, &[("grpc-retry-pushback-ms", "60000")][..]),
        (429, &[("retry-after", "60"), ("retry-after", "1")][..]),
    ] {
        let scripted = Scripted::new(&[line]);
        let server = scripted.open().await;
        let inventory = client(Protocol::Http1, server.addr, no_wait());
        let began = clock::now();
        let answer = inventory.request_in(&op(AMPLE), request(Method::GET, "")).await.expect("an answer");
        assert_eq!(scripted.asked().len(), 1, "{line:?}");
        assert!(matches!(given_up(&answer).why, Stop::PushedBack { .. }), "{line:?}: {:?}", given_up(&answer));
        assert!(clock::now().since(began) < ms(10_000));
    }
}

#[tokio::test]
async fn r2_a_wait_that_fits_is_obeyed_and_what_cannot_be_read_forbids() {
    let scripted = Scripted::new(&[(503, &[("retry-after", "1")]), (200, &[])]);
    let server = scripted.open().await;
    let inventory = client(Protocol::Http1, server.addr, no_wait());
    let (op, began) = (op(AMPLE), clock::now());
    let answer = inventory.request_in(&op, request(Method::GET, "")).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert!(clock::now().since(began) >= ms(1_000));
    let waited = op.ledger().entries().iter().any(|entry| entry.stage == Stage::Backoff);
    assert!(waited, "{}", op.ledger());

    for line in [(503, &[("retry-after", "a while")]), (503, &[("grpc-retry-pushback-ms", "-1")])] {
        let scripted = Scripted::new(&[(line.0, &line.1[..])]);
        let server = scripted.open().await;
        let inventory = client(Protocol::Http1, server.addr, no_wait());
        let answer = inventory.request_in(&self::op(AMPLE), request(Method::GET, "")).await.expect("an answer");
        assert_eq!((given_up(&answer).attempts, given_up(&answer).why), (1, Stop::ToldNotTo));
    }
}

#[tokio::test]
async fn a_caller_who_leaves_stops_it() {
    let stalls = peer::stall(Protocol::Http2).expect("a peer");
    let inventory = client(Protocol::Http2, stalls.addr(), no_wait().per_try(ms(300)));
    let op = op(AMPLE);
    {
        let calling = inventory.request_in(&op, request(Method::GET, ""));
        tokio::select! {
            _ = calling => panic!("it stalls"),
            seen = stalls.await_requests(2) => drop(seen.expect("a second attempt")),
        }
    }
    stalls.callers_left(2).await.expect("both attempts were cut off");
    tokio::time::sleep(ms(400)).await; // longer than an attempt would have taken
    assert_eq!(stalls.requests(), 2);
    assert!(op.ledger().entries().iter().all(|entry| entry.ended.is_some()));
}

// === What can be sent again ===

#[tokio::test]
async fn r6_more_than_is_kept_is_sent_once() {
    for protocol in BOTH {
        let scripted = Scripted::statuses(&[429]);
        let server = scripted.open().await;
        let inventory = client(protocol, server.addr, no_wait().replay(4));
        for (body, attempts) in [("1234", 3), ("12345", 1)] {
            let before = scripted.asked().len();
            let answer = inventory.request_in(&op(AMPLE), request(Method::POST, body)).await.expect("an answer");
            assert_eq!(scripted.asked().len() - before, attempts, "{protocol:?} {body}");
            if attempts == 1 {
                assert_eq!(given_up(&answer).why, Stop::NotReplayable);
            }
            assert!(scripted.asked()[before..].iter().all(|(_, sent)| sent == body));
        }
    }
}

#[tokio::test]
async fn r6_a_streamed_body_is_replayed_piece_by_piece() {
    for protocol in BOTH {
        let scripted = Scripted::statuses(&[429, 200]);
        let server = scripted.open().await;
        let pieces = ["7", " ", "EUR"].map(|piece| Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(piece))));
        let upload = StreamBody::new(futures_util::stream::iter(pieces));
        let request = Request::post("/charges").body(upload).expect("a request");
        let answer = client(protocol, server.addr, no_wait()).request_in(&op(AMPLE), request).await.expect("an answer");
        assert_eq!(answer.status(), 200);
        assert!(scripted.asked().iter().all(|(_, body)| body == "7 EUR"), "{protocol:?}");
    }
}

#[tokio::test]
async fn r6_nothing_is_repeated_once_the_head_was_handed_on() {
    for protocol in BOTH {
        let stalls = peer::stall_mid_body(protocol).expect("a peer");
        let inventory = client(protocol, stalls.addr(), no_wait().per_try(ms(500)));
        let answer = inventory.request_in(&op(AMPLE), request(Method::GET, "")).await.expect("a head");
        collect(answer.into_body(), 1024).await.expect_err("the limit of the attempt covers the body");
        assert_eq!(stalls.requests(), 1, "{protocol:?}");
    }
}

// === Marks ===

#[tokio::test]
async fn r9_retries_are_marked_for_those_inside_and_stale_marks_are_gone() {
    for (trust, grpc, count, previous) in [
        (Trust::Inside, false, [None, Some("2"), Some("3")], [None; 3]),
        (Trust::Outside, false, [None; 3], [None; 3]),
        (Trust::Inside, true, [None; 3], [None, Some("1"), Some("2")]),
        (Trust::Outside, true, [None; 3], [None, Some("1"), Some("2")]),
    ] {
        let scripted = Scripted::statuses(&[503]);
        let server = scripted.open().await;
        let inventory = builder(Protocol::Http2, server.addr, no_wait()).trust(trust).build().expect("a client");
        let mut request = request(Method::GET, "");
        request.headers_mut().insert("x-envoy-attempt-count", "7".parse().expect("a value"));
        request.headers_mut().insert("grpc-previous-rpc-attempts", "6".parse().expect("a value"));
        if grpc {
            request.headers_mut().insert("content-type", "application/grpc".parse().expect("a value"));
        }
        inventory.request_in(&op(AMPLE), request).await.expect("an answer");
        let strings = |want: [Option<&str>; 3]| want.map(|value| value.map(str::to_owned)).to_vec();
        assert_eq!(scripted.told("x-envoy-attempt-count"), strings(count), "{trust:?} {grpc}");
        assert_eq!(scripted.told("grpc-previous-rpc-attempts"), strings(previous), "{trust:?} {grpc}");
    }
}

/// How a hop tries again.
#[derive(Clone, Copy, PartialEq)]
enum Again {
    /// By a policy, three attempts.
    Policy,
    /// In a loop around its call, three times.
    Loop,
    Never,
}

/// A hop: calls `next`, and answers as it was answered.
async fn hop(name: &'static str, next: SocketAddr, again: Again, inside: Trust) -> Server {
    let builder = Client::builder("next", format!("http://{next}")).trust(inside);
    let policy = no_wait().build().expect("a policy");
    let builder = match again {
        Again::Policy => builder.retry(policy),
        Again::Loop => builder.unthrottled(), // it would hold some of them back
        Again::Never => builder,
    };
    let client = builder.build().expect("a client");
    let handler = any(move || {
        let client = client.clone();
        async move {
            let mut answer = ask(&client).await;
            for _ in 0..if again == Again::Loop { 2 } else { 0 } {
                answer = if answer.is_err() { ask(&client).await } else { answer };
            }
            match answer {
                Ok(status) => status.into_response(),
                Err(problem) => {
                    let mut response = http::StatusCode::from_u16(problem.status()).expect("a status").into_response();
                    response.extensions_mut().insert(problem);
                    response
                }
            }
        }
    });
    let policy = Policy::named(name).when_absent(AMPLE).ceiling(AMPLE).build().expect("a policy");
    let app = Router::new().route("/", handler).layer(IngressLayer::new(policy));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let serving = serve(listener, app).trust(inside).into_future();
    let serving = tokio::spawn(async move { serving.await.expect("it serves") });
    Server { addr, _serving: AbortOnDropHandle::new(serving) }
}

async fn ask(client: &Client) -> Result<http::StatusCode, Problem> {
    Ok(successful(client.get("/").await?)?.status())
}

/// Three hops, each with three attempts, over a service that fails: how often that is asked.
async fn asked_through_three_hops(again: Again) -> (usize, Option<AnswerGivenUp>) {
    let scripted = Scripted::statuses(&[503]);
    let server = scripted.open().await;
    let c = hop("c", server.addr, again, Trust::Inside).await;
    let b = hop("b", c.addr, again, Trust::Inside).await;
    let attempts = if again == Again::Loop { (1, 3) } else { (3, 1) };
    let a = client(Protocol::Http1, b.addr, no_wait().attempts(attempts.0));
    let mut answer = a.request_in(&op(AMPLE), request(Method::GET, "")).await.expect("an answer");
    for _ in 1..attempts.1 {
        answer = a.request_in(&op(AMPLE), request(Method::GET, "")).await.expect("an answer");
    }
    assert_eq!(answer.status(), 502);
    (scripted.asked().len(), answer.extensions().get().copied())
}

#[tokio::test]
async fn r9_three_hops_that_retry_do_not_multiply() {
    let (asked, given_up) = asked_through_three_hops(Again::Policy).await;
    assert_eq!(asked, 3);
    let given_up = given_up.expect("given up");
    assert_eq!((given_up.attempts, given_up.why), (1, Stop::HopBelow { attempts: 3 }));
}

/// Where each hop has a loop of its own and none knows of the others, they multiply: 3 × 3 × 3.
#[tokio::test]
async fn the_naive_way_of_three_attempts_in_three_hops_makes_27() {
    let (asked, _) = asked_through_three_hops(Again::Loop).await;
    assert_eq!(asked, 27);
}

#[tokio::test]
async fn r9_a_hop_without_a_policy_passes_on_that_one_below_gave_up() {
    let scripted = Scripted::statuses(&[503]);
    let server = scripted.open().await;
    let c = hop("c", server.addr, Again::Policy, Trust::Inside).await;
    let b = hop("b", c.addr, Again::Never, Trust::Inside).await;
    let a = client(Protocol::Http1, b.addr, no_wait());
    let answer = a.request_in(&op(AMPLE), request(Method::GET, "")).await.expect("an answer");
    assert_eq!((scripted.asked().len(), given_up(&answer).why), (3, Stop::HopBelow { attempts: 3 }));
}

#[tokio::test]
async fn r9_what_serves_a_retry_retries_nothing_and_its_calls_are_marked() {
    for (field, value, want) in [
        ("x-envoy-attempt-count", "2", "2"),
        ("grpc-previous-rpc-attempts", "1", "2"),
        ("x-envoy-attempt-count", "no", "2"),
    ] {
        let scripted = Scripted::statuses(&[503]);
        let server = scripted.open().await;
        let b = hop("b", server.addr, Again::Policy, Trust::Inside).await;
        let plain = Legacy::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let get = Request::get(format!("http://{}/", b.addr)).header(field, value).body(Full::default());
        let answer = plain.request(get.expect("a request")).await.expect("an answer");
        assert_eq!(answer.headers().get("oneclock-retried"), None, "whoever retries may go on");
        assert_eq!(scripted.told("x-envoy-attempt-count"), [Some(want.to_owned())], "{field}: {value}");
    }
}

#[tokio::test]
async fn c3_outsiders_have_no_say_in_retries_and_are_told_nothing_of_them() {
    let scripted = Scripted::statuses(&[503]);
    let server = scripted.open().await;
    let b = hop("b", server.addr, Again::Policy, Trust::Outside).await;
    let plain = Legacy::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let get = Request::get(format!("http://{}/", b.addr)).header("x-envoy-attempt-count", "2").body(Full::default());
    let answer = plain.request(get.expect("a request")).await.expect("an answer");
    assert_eq!(answer.headers().get("oneclock-retried"), None);
    assert_eq!(scripted.told("x-envoy-attempt-count"), vec![None; 3]);
}

#[tokio::test]
async fn r9_a_grpc_caller_is_told_in_its_own_words() {
    let refuses = peer::refuse().expect("a peer");
    let b = hop("b", refuses.addr(), Again::Policy, Trust::Inside).await;
    let plain = Legacy::builder(TokioExecutor::new()).http2_only(true).build_http::<Full<Bytes>>();
    let call = Request::get(format!("http://{}/", b.addr)).header("content-type", "application/grpc");
    let answer = plain.request(call.body(Full::default()).expect("a request")).await.expect("an answer");
    let field = |name: &str| answer.headers().get(name).map(|value| value.to_str().expect("text").to_owned());
    assert_eq!((field("grpc-status").as_deref(), field("grpc-retry-pushback-ms").as_deref()), (Some("14"), Some("-1")));
}

#[tokio::test]
async fn r9_retries_can_be_switched_off_at_run_time() {
    let scripted = Scripted::statuses(&[503]);
    let server = scripted.open().await;
    let inventory = client(Protocol::Http1, server.addr, no_wait());
    let retries = inventory.destination().retries().expect("a policy");
    for (on, attempts) in [(false, 1), (true, 3)] {
        if on {
            retries.switch_on()
        } else {
            retries.switch_off()
        }
        let before = scripted.asked().len();
        inventory.request_in(&op(AMPLE), request(Method::GET, "")).await.expect("an answer");
        assert_eq!(scripted.asked().len() - before, attempts);
    }
}

// === Accounts ===

#[derive(Default)]
struct Calls(Mutex<Vec<Called>>);

impl Observer for Calls {
    fn on(&self, event: &Event<'_>) {
        if let Event::Called(called) = event {
            self.0.lock().expect("no panic").push((*called).clone());
        }
    }
}

#[tokio::test]
async fn each_attempt_is_a_call_of_its_own() {
    let calls = Arc::new(Calls::default());
    let scripted = Scripted::statuses(&[503, 503, 200]);
    let server = scripted.open().await;
    let op = op(AMPLE).observed_by(calls.clone());
    let inventory = client(Protocol::Http1, server.addr, no_wait());
    inventory.request_in(&op, request(Method::GET, "")).await.expect("an answer");
    let calls = calls.0.lock().expect("no panic").clone();
    let seen: Vec<_> = calls.iter().map(|called| (called.attempt, called.outcome.as_str())).collect();
    assert_eq!(seen, [(1, "unknown"), (2, "unknown"), (3, "applied")]);
    let ledger = op.ledger();
    let direct = ledger.entries().iter().filter(|entry| entry.part_of.is_none() && entry.name == "inventory");
    assert_eq!(direct.count(), 3);
}

// === The layer ===

#[tokio::test]
async fn the_layer_retries_through_somebody_elses_client() {
    for http2 in [false, true] {
        let scripted = Scripted::statuses(&[429, 503, 200]);
        let server = scripted.open().await;
        let policy = no_wait().build().expect("a policy");
        let inventory = Destination::named("inventory").retry(policy).trust(Trust::Inside).enforces_keys();
        let inventory = inventory.build().expect("a destination");
        let legacy = Legacy::builder(TokioExecutor::new()).http2_only(http2).build_http::<Replay>();
        let client = RetryLayer::new(inventory.clone()).layer(EgressLayer::new(inventory).layer(legacy));
        let op = op(AMPLE);
        let charge = Request::post(format!("http://{}/charges", server.addr)).header("idempotency-key", "tap-7");
        let charge = charge.body(Full::<Bytes>::from("7 EUR")).expect("a request");
        let answer = op.scope(client.oneshot(charge)).await.expect("an answer");
        assert_eq!(answer.status(), 200);
        assert!(scripted.asked().iter().all(|(_, body)| body == "7 EUR"));
        assert_eq!(scripted.told("x-envoy-attempt-count"), [None, Some("2".to_owned()), Some("3".to_owned())]);
    }
}

#[tokio::test]
async fn a_layer_around_a_client_that_retries_itself_does_not_multiply() {
    let scripted = Scripted::statuses(&[503]);
    let server = scripted.open().await;
    let inventory = client(Protocol::Http1, server.addr, no_wait());
    let layered = RetryLayer::new(inventory.destination().clone()).layer(inventory.clone());
    let op = op(AMPLE);
    op.scope(layered.oneshot(request(Method::GET, ""))).await.expect("an answer");
    assert_eq!(scripted.asked().len(), 3);

    // Nor does a function around it.
    let around = oneclock::Retries::to("inventory", no_wait().effect(Effect::ReadOnly).build().expect("a policy"));
    let around = around.build().expect("limits that fit");
    let result = op.scope(oneclock::retry(&around, |_| async {
        let answer = inventory.get("/").await?;
        if answer.status().is_success() {
            return Ok(());
        }
        let failed = std::io::Error::other(answer.status().to_string());
        Err(Failed(failed))
    }));
    result.await.expect_err("it fails");
    assert_eq!(scripted.asked().len(), 6);
}

#[derive(Debug)]
struct Failed(std::io::Error);

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Self(std::io::Error::other(error))
    }
}

impl oneclock::HasOutcome for Failed {
    fn outcome(&self) -> Outcome {
        let _ = &self.0;
        Outcome::Unknown { stage: Stage::Wait }
    }
}

#[tokio::test(start_paused = true)]
async fn v1_in_memory_attempts_see_100_100_and_at_most_50() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let policy = no_wait().per_try(ms(100)).build().expect("a policy");
    let inventory = Destination::named("inventory").retry(policy).build().expect("a destination");
    let seen = told.clone();
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(inventory.clone()))
        .layer(EgressLayer::new(inventory))
        .service_fn(move |request: Request<Replay>| {
            let left = request.headers()["x-remaining-ms"].to_str().expect("text").to_owned();
            seen.lock().expect("no panic").push(left);
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
        });
    let op = op(ms(250));
    let began = clock::now();
    let error = op.scope(client.oneshot(request(Method::GET, ""))).await.map(drop).expect_err("no answer");
    assert_eq!(clock::now().since(began).as_millis(), 250);
    let told = told.lock().expect("no panic").clone();
    assert_eq!(told[..2], ["100", "100"]);
    assert!(told.len() == 3 && told[2].parse::<u64>().expect("a number") <= 50, "{told:?}");
    assert!(error.stopped().is_some(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_the_service_below_is_cut_off_with_the_attempt() {
    let calls = Arc::new(AtomicU32::new(0));
    let policy = no_wait().per_try(ms(100)).build().expect("a policy");
    let inventory = Destination::named("inventory").retry(policy).build().expect("a destination");
    let count = calls.clone();
    let slow = tower::service_fn(move |_: Request<Replay>| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(inventory.clone()))
        .layer(tower::limit::ConcurrencyLimitLayer::new(1))
        .layer(EgressLayer::new(inventory))
        .service(slow);
    let (first, second) = (op(ms(5_000)), op(ms(150)));
    let hogging = first.scope(client.clone().oneshot(request(Method::POST, "")));
    let waiting = second.scope(client.oneshot(request(Method::POST, "")));
    let began = clock::now();
    let (_, waited) = tokio::join!(hogging, async {
        let error = waiting.await.map(drop);
        (error, clock::now().since(began))
    });
    let (error, took) = waited;
    assert!(took <= ms(150), "{took:?}");
    drop(error);
    assert!(calls.load(Ordering::Relaxed) >= 1);
}

// === gRPC: the status comes last ===

/// The head of an answer whose status is still to come says nothing: nothing to repeat, nothing to be glad about. In an outage
/// that is told in trailers the naive way, by the 200 in the head, earns a token with every failure.
#[tokio::test(start_paused = true)]
async fn r9_a_status_in_the_trailers_earns_a_token_only_if_it_says_that_all_went_well() {
    for (content_type, status, earned) in [
        ("application/grpc", Some("0"), 1),
        ("application/grpc", Some("14"), 0),
        ("application/grpc", None, 0),
        ("Application/gRPC+proto", Some("14"), 0),
        ("application/grpc-web+proto", None, 0), // its trailers are in its body
        ("application/json", None, 1),
    ] {
        for message in [true, false] {
            let calls = Arc::new(AtomicU32::new(0));
            let policy = no_wait().effect(Effect::ReadOnly).build().expect("a policy");
            let pricing =
                Destination::named("pricing").retry(policy).trust(Trust::Inside).build().expect("limits that fit");
            let tokens = pricing.retries().expect("a policy").tokens().tenths();
            let count = calls.clone();
            let client = ServiceBuilder::new()
                .layer(RetryLayer::new(pricing.clone()))
                .layer(EgressLayer::new(pricing.clone()))
                .service_fn(move |_: Request<Replay>| {
                    count.fetch_add(1, Ordering::Relaxed);
                    let trailers = status.map(|status| {
                        HeaderMap::from_iter([(
                            "grpc-status".parse().expect("a name"),
                            status.parse().expect("a value"),
                        )])
                    });
                    let message = message.then(|| http_body::Frame::data(Bytes::from_static(b"\0\0\0\0\x03one")));
                    let frames = message.into_iter().chain(trailers.map(http_body::Frame::trailers));
                    let body = StreamBody::new(futures_util::stream::iter(
                        frames.map(Ok::<_, Infallible>).collect::<Vec<_>>(),
                    ));
                    let answer = Response::builder().header("content-type", content_type).body(body);
                    std::future::ready(Ok::<_, Infallible>(answer.expect("an answer")))
                });
            let op = op(AMPLE);
            let answer = op.scope(client.oneshot(request(Method::POST, ""))).await.expect("an answer");
            assert!(answer.extensions().get::<AnswerGivenUp>().is_none(), "nobody gave up: {content_type} {status:?}");
            answer.into_body().collect().await.expect("all of it");
            let now = pricing.retries().expect("a policy").tokens().tenths();
            assert_eq!(
                (now - tokens, calls.load(Ordering::Relaxed)),
                (earned, 1),
                "{content_type} {status:?} {message}"
            );
        }
    }
}

// === What a request carries of its call ===

/// A service in this process that passes on what its request carried would make its own calls the same attempt, under the same
/// limit.
#[tokio::test(start_paused = true)]
async fn what_is_said_of_one_call_does_not_reach_the_service_below_it() {
    let policy = no_wait().build().expect("a policy");
    let pricing = Destination::named("pricing").retry(policy).build().expect("limits that fit");
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(pricing.clone()))
        .layer(EgressLayer::new(pricing))
        .service_fn(|request: Request<Replay>| {
            let carried = request.extensions();
            let attempt = carried.get::<oneclock_core::retry::Attempt>().is_some();
            let cap = carried.get::<oneclock_http::CallCap>().is_some();
            std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(format!("{attempt} {cap}")))))
        });
    let mut asked = request(Method::GET, "");
    asked.extensions_mut().insert(oneclock_http::CallCap(ms(100)));
    let answer = op(AMPLE).scope(client.oneshot(asked)).await.expect("an answer");
    assert_eq!(answer.into_body().collect().await.expect("a body").to_bytes(), "false false");
}
