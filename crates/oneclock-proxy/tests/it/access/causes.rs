//! What the person on call reads of what went wrong: which upstream, where, and why; also of what was never begun.

use http::StatusCode;
use oneclock_core::Trust;
use oneclock_proxy::config::{Idempotency, IdempotencyStore, Principal};
use oneclock_test::Protocol;
use oneclock_test::caller::Caller;
use oneclock_test::peer::{self, ResetAt};
use serde_json::json;

use super::{Logged, millis, says, share};
use crate::common::{BOTH, config, config_with, ms, text, whole_h1};

/// Its caller, who is a stranger, reads none of it; and no sample has it left out.
#[tokio::test]
async fn an_upstream_that_cannot_be_reached_or_breaks_off_is_told_with_its_cause_whoever_asked() {
    for protocol in BOTH {
        let refusing = peer::refuse().expect("a port");
        let mut file = config(refusing.addr(), protocol);
        file.listeners[0].trust = Trust::Outside;
        let logged = Logged::with(file, |log| log.sample = share(0)).await;
        let (status, _, body) = whole_h1(Caller::h1(logged.addr()).get("/stock").answer().await.expect("sent"));
        assert!(!String::from_utf8_lossy(&body).contains("refused"), "{body:?}");
        assert_eq!(status, StatusCode::BAD_GATEWAY);
        let line = logged.line().await;
        let failed = [("status", json!(502)), ("outcome", json!("call_failed")), ("stage", json!("connect"))];
        says(&line, failed);
        says(&line, [("upstream", json!("app")), ("upstream_outcome", json!("not_sent"))]);
        let cause = line["cause"].as_str().unwrap_or_else(|| panic!("no cause in {line:#}"));
        assert!(cause.contains("efused") && cause.contains("os error"), "{cause}");
    }
    let truncating = peer::reset(ResetAt::MidBody).expect("a port");
    let logged = Logged::with(config(truncating.addr(), Protocol::Http1), |log| log.sample = share(0)).await;
    let _broken = Caller::h1(logged.addr()).get("/stock").answer().await.expect("sent");
    let line = logged.line().await;
    says(&line, [("status", json!(200)), ("outcome", json!("call_failed")), ("stage", json!("body"))]);
    assert!(line["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{line:#}");
}

/// What a reserve leaves too little of: nothing was sent, and who asks again with more is welcome.
#[tokio::test]
async fn too_little_beside_the_reserve_is_told_as_that_and_not_as_a_deadline() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    for retried in [false, true] {
        let file = config_with(upstream.addr(), Protocol::Http1, |route| {
            route.reserve = ms(400);
            route.retry = retried.then(super::one_retry);
        });
        let logged = Logged::with(file, |_| {}).await;
        let call = Caller::h1(logged.addr()).get("/stock").header("x-remaining-ms", "300");
        let (status, headers, _) = whole_h1(call.answer().await.expect("sent"));
        assert_eq!((status, text(&headers, "oneclock-reason")), (StatusCode::GATEWAY_TIMEOUT, "insufficient_budget"));
        let line = logged.line().await;
        let outcome = json!("insufficient_budget");
        says(
            &line,
            [("status", json!(504)), ("outcome", outcome), ("stage", json!("arrival")), ("attempts", json!(0))],
        );
        says(&line, [("upstream_outcome", json!("not_sent")), ("bound", json!("caller"))]);
    }
    assert_eq!(upstream.requests(), 0);
}

#[tokio::test]
async fn what_was_refused_at_the_door_says_what_had_made_its_deadline_and_who_said_so() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let logged = Logged::before(upstream.addr(), Protocol::Http1).await;
    for (field, said) in [("x-remaining-ms", "0"), ("x-request-timeout-ms", "2")] {
        whole_h1(Caller::h1(logged.addr()).get("/stock").header(field, said).answer().await.expect("sent"));
    }
    let lines = logged.lines().await;
    let [expired, too_little] = &lines[..] else { panic!("two lines: {lines:#?}") };
    says(expired, [("bound", json!("caller")), ("source", json!("x-remaining-ms")), ("stage", json!("arrival"))]);
    let source = json!("x-request-timeout-ms");
    says(too_little, [("bound", json!("caller")), ("source", source), ("outcome", json!("insufficient_budget"))]);
}

/// It says what had made the deadline: not the field of a caller who asked for more than it got.
#[tokio::test]
async fn a_field_that_made_no_deadline_is_no_source() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    for (trust, bound) in [(Trust::Outside, "absent"), (Trust::Inside, "ceiling")] {
        let mut file = config_with(upstream.addr(), Protocol::Http1, |route| {
            (route.when_absent, route.ceiling) = (ms(5_000), ms(9_000));
        });
        file.listeners[0].trust = trust;
        let logged = Logged::with(file, |_| {}).await;
        let call = Caller::h1(logged.addr()).get("/stock").header("x-remaining-ms", "60000");
        whole_h1(call.answer().await.expect("sent"));
        let line = logged.line().await;
        says(&line, [("bound", json!(bound)), ("outcome", json!("ok"))]);
        assert_eq!(line.get("source"), None, "{line:#}");
    }
}

/// Contract M10: the run goes on, and what it had done by then is known.
#[tokio::test]
async fn a_run_that_outlives_its_caller_has_what_it_did_until_then() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let file = config_with(upstream.addr(), Protocol::Http1, |route| {
        let store = IdempotencyStore::Sqlite(folder.path().join("keys.db"));
        (route.when_absent, route.ceiling) = (ms(900), ms(900));
        let mut once = Idempotency::new(store, Principal::Everybody, route.ceiling);
        once.execution = ms(900);
        route.idempotency = Some(once);
    });
    let logged = Logged::with(file, |_| {}).await;
    let call = Caller::h1(logged.addr()).post("/charges", "499").header("idempotency-key", "tap-7");
    let (status, ..) = whole_h1(call.header("x-remaining-ms", "300").answer().await.expect("sent"));
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    let line = logged.line().await;
    says(&line, [("outcome", json!("deadline")), ("attempts", json!(1)), ("upstream", json!("app"))]);
    assert!(millis(&line, "upstream_ms") > 0.0 && line["budget_out_ms"][0].is_number(), "{line:#}");
}
