//! What a line says, for each way in which a request can end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Full};
use oneclock_core::admission::Mode;
use oneclock_proxy::config::{Concurrency, Config, Idempotency, IdempotencyStore, Principal};
use oneclock_test::caller::{Caller, How};
use oneclock_test::peer::{self, ResetAt};
use oneclock_test::{Protocol, Reason};
use serde_json::json;

use super::{Logged, millis, says};
use crate::common::{BOTH, Upstream, body, config, config_with, ms, told, whole_h1, whole_h2};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn a_request_that_was_answered_has_all_its_figures_and_no_secret() {
    for protocol in BOTH {
        let upstream = peer::echo_headers(protocol).expect("a port");
        let logged = Logged::before(upstream.addr(), protocol).await;
        let call = Caller::h1(logged.addr())
            .get("/stock/7?token=hidden")
            .header("x-remaining-ms", "1500")
            .header("authorization", "Bearer hidden")
            .header("traceparent", PARENT)
            .header("x-request-id", "7-1");
        let (_, _, body) = whole_h1(call.answer().await.expect("sent"));
        let told = told(&upstream.await_request().await.expect("a request").headers);
        let file = logged.file();
        let line = logged.line().await;
        says(
            &line,
            [
                ("listener", json!("http")),
                ("route", json!("all")),
                ("method", json!("GET")),
                ("path", json!("/stock/7")),
                ("protocol", json!("http/1.1")),
                ("status", json!(200)),
                ("outcome", json!("ok")),
                ("bound", json!("caller")),
                ("source", json!("x-remaining-ms")),
                ("budget_in_ms", json!(1500.0)),
                ("attempts", json!(1)),
                ("queue_ms", json!(0.0)),
                ("bytes", json!(body.len())),
                ("trace_id", json!("0af7651916cd43dd8448eb211c80319c")),
                ("request_id", json!("7-1")),
            ],
        );
        for absent in ["stage", "grpc_status", "why", "lost", "left_out", "stream_ms", "attempt_in", "backoff_ms"] {
            assert_eq!(line.get(absent), None, "{absent} in {line:#}");
        }
        let out = line["budget_out_ms"][0].as_f64().expect("what it had left");
        assert!(out < 1500.0 && out >= told as f64 - 1.0, "{told} was said of {out}");
        assert!(millis(&line, "connect_ms") > 0.0 && millis(&line, "upstream_ms") > 0.0, "{line:#}");
        let parts = ["queue_ms", "pool_ms", "connect_ms", "upstream_ms"].map(|part| millis(&line, part));
        assert!(parts.iter().sum::<f64>() <= millis(&line, "ms"), "{line:#}");
        let time = line["time"].as_str().expect("a time");
        assert!(time.len() == 24 && time.starts_with("20") && time.ends_with('Z'), "{time}");
        assert!(!file.exists(), "its folder is gone");
        assert!(!line.to_string().contains("hidden"), "{line:#}");
    }
}

#[tokio::test]
async fn a_large_answer_that_arrived_whole_is_ok() {
    const LENGTH: usize = 300_000;
    for (upstream_protocol, counted) in [(Protocol::Http1, true), (Protocol::Http1, false), (Protocol::Http2, false)] {
        let upstream = Upstream::of(move |_| async move {
            let whole = Full::from(Bytes::from(vec![b'x'; LENGTH]));
            let whole = if counted { body(whole) } else { body(whole.with_trailers(async { None })) };
            Response::new(whole)
        })
        .await;
        let logged = Logged::before(upstream.addr, upstream_protocol).await;
        assert_eq!(whole_h1(Caller::h1(logged.addr()).get("/stock").answer().await.expect("sent")).2.len(), LENGTH);
        let caller = Caller::h2(logged.addr()).connect().await.expect("a connection");
        let call = caller.get("/stock").send().await.expect("sent");
        assert_eq!(whole_h2(call.answer().await).2.len(), LENGTH);
        for line in logged.lines().await {
            says(&line, [("outcome", json!("ok")), ("bytes", json!(LENGTH)), ("status", json!(200))]);
        }
    }
}

#[tokio::test]
async fn one_that_was_expired_on_arrival_or_malformed() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let logged = Logged::before(upstream.addr(), Protocol::Http1).await;
    for said in ["0", "soon"] {
        let call = Caller::h1(logged.addr()).get("/stock").header("x-remaining-ms", said);
        whole_h1(call.answer().await.expect("sent"));
    }
    let lines = logged.lines().await;
    let [expired, malformed] = &lines[..] else { panic!("two lines: {lines:#?}") };
    says(
        expired,
        [
            ("status", json!(504)),
            ("outcome", json!("expired_before_start")),
            ("budget_in_ms", json!(0.0)),
            ("attempts", json!(0)),
            ("path", json!("/stock")),
        ],
    );
    let (outcome, field) = (json!("malformed_deadline"), json!("x-remaining-ms"));
    says(malformed, [("status", json!(400)), ("outcome", outcome), ("source", field)]);
}

#[tokio::test]
async fn a_deadline_says_where_it_was() {
    for protocol in BOTH {
        let upstream = peer::stall(protocol).expect("a port");
        let logged = Logged::before(upstream.addr(), protocol).await;
        let call = Caller::h1(logged.addr()).get("/stock").header("x-remaining-ms", "300");
        whole_h1(call.answer().await.expect("sent"));
        let line = logged.line().await;
        says(
            &line,
            [
                ("status", json!(504)),
                ("outcome", json!("deadline")),
                ("stage", json!("wait")),
                ("bound", json!("caller")),
                ("budget_in_ms", json!(300.0)),
                ("attempts", json!(1)),
            ],
        );
        assert!(millis(&line, "upstream_ms") > 100.0 && millis(&line, "ms") >= 299.0, "{line:#}");
    }
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let file = config_with(upstream.addr(), Protocol::Http1, |route| route.backend_request = Some(ms(200)));
    let logged = Logged::with(file, |_| {}).await;
    whole_h1(Caller::h1(logged.addr()).get("/stock").answer().await.expect("sent"));
    says(&logged.line().await, [("status", json!(504)), ("outcome", json!("cap")), ("stage", json!("wait"))]);
}

#[tokio::test]
async fn a_body_that_is_cut_off_says_so_behind_its_status() {
    let upstream = peer::stall_mid_body(Protocol::Http1).expect("a port");
    let logged = Logged::before(upstream.addr(), Protocol::Http1).await;
    let call = Caller::h1(logged.addr()).get("/stock").header("x-remaining-ms", "300");
    let _cut_off = call.answer().await.expect("sent");
    let line = logged.line().await;
    says(&line, [("status", json!(200)), ("outcome", json!("deadline")), ("stage", json!("body"))]);
    assert!(line["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{line:#}");
}

/// Contract N1.
#[tokio::test]
async fn a_caller_that_leaves_leaves_a_line() {
    for protocol in BOTH {
        let upstream = peer::stall(protocol).expect("a port");
        let logged = Logged::before(upstream.addr(), protocol).await;
        let call = Caller::h1(logged.addr()).get("/stock").send(How::Close).await.expect("sent");
        upstream.await_request().await.expect("a request");
        call.leave().await.expect("left");
        upstream.caller_left().await.expect("it is told");
        let caller = Caller::h2(logged.addr()).connect().await.expect("a connection");
        let call = caller.get("/stock").send().await.expect("sent");
        upstream.await_requests(2).await.expect("a request");
        call.reset(Reason::CANCEL);
        upstream.callers_left(2).await.expect("it is told");
        let lines = logged.lines().await;
        assert_eq!(lines.len(), 2, "{lines:#?}");
        for (line, protocol) in lines.iter().zip(["http/1.1", "h2"]) {
            let outcome = [("status", json!(499)), ("outcome", json!("caller_gone")), ("stage", json!("wait"))];
            says(line, outcome);
            says(line, [("protocol", json!(protocol)), ("attempts", json!(1)), ("bound", json!("absent"))]);
        }
    }
    let upstream = peer::stall_mid_body(Protocol::Http1).expect("a port");
    let logged = Logged::before(upstream.addr(), Protocol::Http1).await;
    let call = Caller::h1(logged.addr()).get("/stock").send(How::AfterHead).await.expect("sent");
    call.leave().await.expect("left");
    upstream.caller_left().await.expect("it is told");
    let outcome = [("status", json!(200)), ("outcome", json!("caller_gone")), ("stage", json!("body"))];
    says(&logged.line().await, outcome);
}

#[tokio::test]
async fn one_that_was_shed_says_why() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let file = config_with(upstream.addr(), Protocol::Http1, |route| {
        (route.concurrency, route.queue, route.mode) = (Concurrency::Fixed(1), 0, Mode::Enforce);
    });
    let logged = Logged::with(file, |_| {}).await;
    let busy = Caller::h1(logged.addr()).get("/stock").header("x-remaining-ms", "400").send(How::Close).await;
    upstream.await_request().await.expect("a request");
    whole_h1(Caller::h1(logged.addr()).get("/stock").answer().await.expect("sent"));
    whole_h1(busy.expect("sent").answer().await);
    let lines = logged.lines().await;
    let [shed, deadline] = &lines[..] else { panic!("two lines: {lines:#?}") };
    says(shed, [("status", json!(503)), ("outcome", json!("shed")), ("why", json!("full")), ("attempts", json!(0))]);
    says(deadline, [("outcome", json!("deadline"))]);
}

#[tokio::test]
async fn attempts_are_counted_and_each_says_what_it_had_left() {
    let asked = Arc::new(AtomicUsize::new(0));
    let upstream = Upstream::of(move |request| {
        let nth = asked.fetch_add(1, Ordering::SeqCst);
        async move {
            let _ = request.into_body().collect().await;
            let status = if nth == 1 { 200 } else { 503 };
            Response::builder().status(status).body(body(Full::<Bytes>::default())).expect("an answer")
        }
    })
    .await;
    let file = format!(
        "listeners: [{{ name: http, address: 127.0.0.1:0 }}]\nadmin: none\nupstreams: {{ app: {{ url: 'http://{}' }} }}\n\
         routes:\n- matches: [{{ path: {{ type: PathPrefix, value: / }} }}]\n  upstream: app\n  retry: {{ attempts: 2 }}\n",
        upstream.addr
    );
    let logged = Logged::with(Config::parse(&file).expect("a configuration"), |_| {}).await;
    whole_h1(Caller::h1(logged.addr()).get("/stock").answer().await.expect("sent"));
    let line = logged.line().await;
    says(&line, [("status", json!(200)), ("outcome", json!("ok")), ("attempts", json!(2)), ("bound", json!("absent"))]);
    let out: Vec<f64> = line["budget_out_ms"].as_array().expect("a list").iter().filter_map(|ms| ms.as_f64()).collect();
    assert!(out.len() == 2 && out[0] > out[1], "{line:#}");
    assert!(millis(&line, "backoff_ms") >= 0.0, "{line:#}");
}

/// Its call is made in a step of its own, which goes on where the caller leaves.
#[tokio::test]
async fn a_run_under_a_key_has_the_figures_of_its_call_and_a_replay_has_none() {
    let upstream = Upstream::of(|request| async {
        let _ = request.into_body().collect().await;
        Response::new(body(Full::from(Bytes::from_static(b"charged"))))
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = config_with(upstream.addr, Protocol::Http1, |route| {
        let store = IdempotencyStore::Sqlite(folder.path().join("keys.db"));
        route.idempotency = Some(Idempotency::new(store, Principal::Everybody, route.ceiling));
    });
    let logged = Logged::with(file, |_| {}).await;
    for _ in 0..2 {
        let call = Caller::h1(logged.addr()).post("/charges", "499").header("idempotency-key", "tap-7");
        whole_h1(call.answer().await.expect("sent"));
    }
    let lines = logged.lines().await;
    let [run, replay] = &lines[..] else { panic!("two lines: {lines:#?}") };
    says(run, [("outcome", json!("ok")), ("status", json!(200)), ("attempts", json!(1)), ("bytes", json!(7))]);
    assert!(millis(run, "upstream_ms") > 0.0 && run["budget_out_ms"][0].is_number(), "{run:#}");
    says(replay, [("outcome", json!("ok")), ("status", json!(200)), ("attempts", json!(0)), ("bytes", json!(7))]);
}

#[tokio::test]
async fn what_the_proxy_says_in_the_upstreams_place_is_not_ok() {
    let refusing = peer::refuse().expect("a port");
    let logged = Logged::before(refusing.addr(), Protocol::Http1).await;
    whole_h1(Caller::h1(logged.addr()).get("/stock").answer().await.expect("sent"));
    let failed = [("status", json!(502)), ("outcome", json!("call_failed")), ("stage", json!("connect"))];
    let line = logged.line().await;
    says(&line, failed);
    says(&line, [("upstream_outcome", json!("not_sent"))]);

    let truncating = peer::reset(ResetAt::MidBody).expect("a port");
    let logged = Logged::before(truncating.addr(), Protocol::Http1).await;
    let _broken = Caller::h1(logged.addr()).get("/stock").answer().await.expect("sent");
    let outcome = [("status", json!(200)), ("outcome", json!("call_failed")), ("stage", json!("body"))];
    says(&logged.line().await, outcome);

    let mut file = config(refusing.addr(), Protocol::Http1);
    file.routes[0].matches[0].path = oneclock_proxy::config::PathMatch::Exact("/stock".into());
    let logged = Logged::with(file, |_| {}).await;
    whole_h1(Caller::h1(logged.addr()).get("/elsewhere").answer().await.expect("sent"));
    let nowhere = [("status", json!(404)), ("outcome", json!("no_route")), ("route", json!("no_route"))];
    says(&logged.line().await, nowhere);

    let failing = Upstream::of(|_| async {
        Response::builder().status(500).body(body(Full::<Bytes>::default())).expect("an answer")
    })
    .await;
    let logged = Logged::before(failing.addr, Protocol::Http1).await;
    whole_h1(Caller::h1(logged.addr()).get("/stock").answer().await.expect("sent"));
    says(&logged.line().await, [("status", json!(500)), ("outcome", json!("ok"))]);
}
