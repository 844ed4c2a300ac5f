//! Asked several times, made once; whoever leaves, and whoever is stopped.

use http::StatusCode;
use oneclock_test::caller::How;
use tokio::task::JoinSet;

use super::{Till, charge, file, is_replay, keyed, keyed_with, problem, told, unkeyed};
use crate::common::{address, config, start, text, whole_h1};

const AT_ONCE: usize = 20;

/// Without a store the key is passed on and means nothing: this is what it would be.
#[tokio::test]
async fn the_naive_way_charges_for_every_request() {
    let till = Till::closed().await;
    let proxy = start(config(till.addr, oneclock_test::Protocol::Http1)).await;
    let mut calls = JoinSet::new();
    for _ in 0..AT_ONCE {
        calls.spawn(told(charge(address(&proxy), "tap-7", "499")));
    }
    till.await_asked(AT_ONCE).await;
    till.let_all();
    assert!(calls.join_all().await.iter().all(|(status, ..)| *status == StatusCode::CREATED));
    assert_eq!(till.charges(), AT_ONCE);
}

/// Contract M10: they wait for the same run.
#[tokio::test]
async fn twenty_at_once_are_charged_once() {
    let ((_folder, store), till) = (file(), Till::closed().await);
    let proxy = start(keyed(till.addr, &store)).await;
    let mut calls = JoinSet::new();
    for _ in 0..AT_ONCE {
        calls.spawn(told(charge(address(&proxy), "tap-7", "499")));
    }
    till.await_asked(1).await;
    till.let_all();
    let answers = calls.join_all().await;
    for (status, _, body) in &answers {
        assert_eq!((*status, &**body), (StatusCode::CREATED, "receipt 1 for 499"));
    }
    assert_eq!(answers.iter().filter(|(_, headers, _)| is_replay(headers)).count(), AT_ONCE - 1);
    assert_eq!((till.asked(), till.charges()), (1, 1));
}

#[tokio::test]
async fn an_answer_is_given_again_after_a_restart() {
    let ((_folder, store), till) = (file(), Till::open().await);
    let key = "019ac8f2-4d57-4cc3-98c4-dc0c0c07398f";
    let proxy = start(keyed(till.addr, &store)).await;
    let (status, headers, first) = told(charge(address(&proxy), key, "499")).await;
    assert_eq!((status, is_replay(&headers)), (StatusCode::CREATED, false));
    proxy.shutdown().await;
    let proxy = start(keyed(till.addr, &store)).await;
    let (status, headers, again) = told(charge(address(&proxy), &format!("\"{key}\""), "499")).await;
    assert_eq!((status, is_replay(&headers)), (StatusCode::CREATED, true), "quoted, it is the same key (M8)");
    assert_eq!((again, till.charges()), (first, 1));
}

/// Contract M7.
#[tokio::test]
async fn another_request_with_the_same_key_is_refused() {
    let ((_folder, store), till) = (file(), Till::open().await);
    let proxy = start(keyed(till.addr, &store)).await;
    told(charge(address(&proxy), "tap-7", "499")).await;
    let (status, _, body) = told(charge(address(&proxy), "tap-7", "500")).await;
    assert_eq!((status, &*problem(&body)), (StatusCode::UNPROCESSABLE_ENTITY, "key_reused"));
    assert_eq!(till.charges(), 1);
    // What has no key passes, as often as it comes.
    for nth in 2..=3 {
        let (status, _, body) = told(unkeyed(address(&proxy), "5")).await;
        assert_eq!((status, body), (StatusCode::CREATED, format!("receipt {nth} for 5")));
    }
}

/// Contract M10, N4: leaving ends the wait, not the work.
#[tokio::test]
async fn a_caller_that_leaves_does_not_end_the_run() {
    let ((_folder, store), till) = (file(), Till::closed().await);
    let proxy = start(keyed(till.addr, &store)).await;
    let call = charge(address(&proxy), "tap-7", "499").send(How::Close).await.expect("sent");
    till.await_asked(1).await;
    call.leave().await.expect("left");
    // This one's time is over before the till opens: it is told so, and where to ask.
    let short = unkeyed_for(&proxy, 300).header("idempotency-key", "tap-7");
    let (status, headers, body) = told(short).await;
    assert_eq!((status, &*problem(&body)), (StatusCode::CONFLICT, "in_progress"));
    let link = text(&headers, "link").to_owned();
    assert!(headers.contains_key("retry-after") && link.contains("rel=\"monitor\""), "{headers:?}");
    let at = link.trim_start_matches('<').split('>').next().expect("an address").to_owned();
    let asked = || told(oneclock_test::caller::Caller::h1(address(&proxy)).get(at.clone()));
    assert!(asked().await.2.contains("\"state\":\"in_progress\""));
    till.let_all();
    let (status, headers, body) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, is_replay(&headers), &*body), (StatusCode::CREATED, true, "receipt 1 for 499"));
    assert!(asked().await.2.contains("\"state\":\"completed\""));
    assert_eq!((till.asked(), till.charges()), (1, 1));
}

fn unkeyed_for(proxy: &oneclock_proxy::Running, ms: u32) -> oneclock_test::caller::H1Caller {
    let caller = oneclock_test::caller::Caller::h1(address(proxy)).post("/charges", "499");
    caller.header("x-remaining-ms", ms.to_string())
}

/// The one that began it is told that the work goes on: its deadline is no refusal.
#[tokio::test]
async fn a_deadline_ends_the_wait_and_the_same_key_gets_the_answer() {
    let ((_folder, store), till) = (file(), Till::closed().await);
    let proxy = start(keyed(till.addr, &store)).await;
    let (status, headers, body) = told(unkeyed_for(&proxy, 300).header("idempotency-key", "tap-7")).await;
    assert_eq!((status, &*problem(&body)), (StatusCode::GATEWAY_TIMEOUT, "deadline"));
    assert!(text(&headers, "link").contains("/operations/"));
    till.let_all();
    let (status, headers, _) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, is_replay(&headers), till.asked()), (StatusCode::CREATED, true, 1));
}

/// Contract X10: a run is waited for, whoever has left and however short the grace.
#[tokio::test]
async fn a_shutdown_waits_for_runs() {
    let ((_folder, store), till) = (file(), Till::closed().await);
    let mut config = keyed(till.addr, &store);
    config.shutdown_grace = std::time::Duration::ZERO;
    let proxy = start(config).await;
    let call = charge(address(&proxy), "tap-7", "499").send(How::Close).await.expect("sent");
    till.await_asked(1).await;
    call.leave().await.expect("left");
    let stopping = tokio::spawn(proxy.shutdown());
    tokio::task::yield_now().await;
    till.let_all();
    stopping.await.expect("it stops");
    let proxy = start(keyed(till.addr, &store)).await;
    let (status, headers, body) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, is_replay(&headers), &*body), (StatusCode::CREATED, true, "receipt 1 for 499"));
}

#[tokio::test]
async fn further_headers_are_given_again_where_they_are_named() {
    let ((_folder, store), till) = (file(), Till::open().await);
    let named = http::HeaderName::from_static("x-order-id");
    let proxy = start(keyed_with(till.addr, &store, |once| once.replays = vec![named])).await;
    for is_again in [false, true] {
        let (_, headers, _) = told(charge(address(&proxy), "tap-7", "499")).await;
        assert_eq!((text(&headers, "x-order-id"), is_replay(&headers)), ("1", is_again));
        assert_eq!(headers.contains_key("x-served-by"), !is_again, "of the first exchange");
    }
}

/// What is above the bound is given once, and known to have been given.
#[tokio::test]
async fn what_is_too_large_to_be_kept_is_given_once_and_what_is_too_large_to_be_told_apart_is_refused() {
    let ((_folder, store), till) = (file(), Till::open().await);
    let proxy = start(keyed_with(till.addr, &store, |once| (once.max_answer, once.max_request) = (10, 5))).await;
    let (status, _, body) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, &*body), (StatusCode::CREATED, "receipt 1 for 499"));
    let (status, _, body) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, &*problem(&body)), (StatusCode::CONFLICT, "answer_not_kept"));
    let (status, ..) = told(charge(address(&proxy), "tap-8", "499 000")).await;
    assert_eq!((status, till.asked()), (StatusCode::PAYLOAD_TOO_LARGE, 1));
}

/// Contract R7: the key that reaches the upstream is the one that came in, and what is left is that of the run.
#[tokio::test]
async fn the_upstream_gets_the_key_and_the_time_of_the_run() {
    let (_folder, store) = file();
    let echo = oneclock_test::peer::echo_headers(oneclock_test::Protocol::Http1).expect("a port");
    let proxy = start(keyed_with(echo.addr(), &store, |once| once.execution = crate::common::AMPLE * 3)).await;
    let call = charge(address(&proxy), "tap-7", "499").answer().await.expect("sent");
    let (status, ..) = whole_h1(call);
    let seen = echo.await_request().await.expect("a request").headers;
    assert_eq!((status, text(&seen, "idempotency-key")), (StatusCode::OK, "tap-7"));
    let left = crate::common::told(&seen);
    assert!((9_001..=30_000).contains(&left), "more than the caller has, at most execution: {left}");
}
