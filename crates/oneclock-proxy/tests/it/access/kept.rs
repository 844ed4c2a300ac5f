//! Which requests leave a line.

use oneclock_core::Trust;
use oneclock_test::caller::Caller;
use oneclock_test::{Protocol, peer};
use serde_json::{Value, json};

use super::{Logged, says, share};
use crate::common::{BOTH, address, config, whole_h1};

#[tokio::test]
async fn a_share_of_nothing_keeps_what_a_deadline_ended() {
    let (fast, stalled) =
        (peer::echo_headers(Protocol::Http1).expect("a port"), peer::stall(Protocol::Http1).expect("a port"));
    let mut file = config(fast.addr(), Protocol::Http1);
    let mut slow = config(stalled.addr(), Protocol::Http1);
    let upstream = slow.upstreams.remove("app").expect("an upstream");
    file.upstreams.insert("slow".into(), upstream);
    let mut route = slow.routes.remove(0);
    (route.name, route.upstream) = ("slow".into(), "slow".into());
    route.matches[0].path = oneclock_proxy::config::PathMatch::Exact("/slow".into());
    file.routes.push(route);
    let logged = Logged::with(file, |log| (log.sample, log.refusals) = (share(0), 0)).await;
    for path in ["/stock", "/slow", "/stock"] {
        let call = Caller::h1(logged.addr()).get(path).header("x-remaining-ms", "300");
        whole_h1(call.answer().await.expect("sent"));
    }
    let expired = Caller::h1(logged.addr()).get("/stock").header("x-remaining-ms", "0");
    whole_h1(expired.answer().await.expect("sent"));
    says(&logged.line().await, [("route", json!("slow")), ("outcome", json!("deadline"))]);
}

#[tokio::test]
async fn two_hops_keep_the_same_traces() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let second = Logged::with(config(upstream.addr(), Protocol::Http1), |log| log.sample = share(500_000)).await;
    let first = Logged::with(config(second.addr(), Protocol::Http1), |log| log.sample = share(500_000)).await;
    for nth in 1..=40_u64 {
        let random = nth.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let trace = format!("0af7651916cd43dd{random:016x}");
        let parent = format!("00-{trace}-b7ad6b7169203331-01");
        let call = Caller::h1(first.addr()).get("/stock").header("traceparent", parent);
        whole_h1(call.answer().await.expect("sent"));
    }
    let traces = |lines: Vec<Value>| lines.into_iter().map(|line| line["trace_id"].clone()).collect::<Vec<_>>();
    let (of_first, of_second) = (traces(first.lines().await), traces(second.lines().await));
    assert_eq!(of_first, of_second);
    assert!(of_first.len() > 5 && of_first.len() < 35, "{}", of_first.len());
}

/// All ones is above each threshold, and whoever may choose would choose that.
#[tokio::test]
async fn an_outsider_does_not_choose_what_is_kept() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    const REQUESTS: usize = 40;
    for (listener, route, kept) in [
        (Trust::Outside, None, REQUESTS / 4),
        (Trust::Inside, Some(Trust::Outside), REQUESTS / 4),
        (Trust::Inside, None, REQUESTS),
        (Trust::Outside, Some(Trust::Inside), REQUESTS),
    ] {
        let mut file = config(upstream.addr(), Protocol::Http1);
        (file.listeners[0].trust, file.routes[0].trust) = (listener, route);
        let logged = Logged::with(file, |log| log.sample = share(250_000)).await;
        for _ in 0..REQUESTS {
            let parent = format!("00-{:032x}-b7ad6b7169203331-01", u128::MAX);
            let call = Caller::h1(logged.addr()).get("/stock").header("traceparent", parent);
            whole_h1(call.answer().await.expect("sent"));
        }
        let lines = logged.lines().await;
        assert!(lines.len().abs_diff(kept) <= 1, "{} of {REQUESTS} for {listener:?}, {route:?}", lines.len());
    }
}

#[tokio::test]
async fn a_flood_of_refusals_is_no_flood_of_lines() {
    for protocol in BOTH {
        let upstream = peer::stall(protocol).expect("a port");
        let logged = Logged::with(config(upstream.addr(), protocol), |log| {
            (log.sample, log.refusals) = (share(0), 3);
        })
        .await;
        const REFUSED: u64 = 40;
        for _ in 0..REFUSED {
            let call = Caller::h1(logged.addr()).get("/stock").header("x-remaining-ms", "0");
            whole_h1(call.answer().await.expect("sent"));
        }
        let call = Caller::h1(logged.addr()).get("/stock").header("x-remaining-ms", "300");
        whole_h1(call.answer().await.expect("sent"));
        let lines = logged.lines().await;
        let refused = lines.iter().filter(|line| line["outcome"] == "expired_before_start").count() as u64;
        let left_out: u64 = lines.iter().filter_map(|line| line["left_out"].as_u64()).sum();
        assert_eq!(refused + left_out, REFUSED, "{lines:#?}");
        // Three for each second that it took, which is not for a test to say.
        assert!((3..REFUSED / 2).contains(&refused), "{refused} lines");
        says(lines.last().expect("a line"), [("outcome", json!("deadline"))]);
    }
}

/// Those of the proxy itself, with a spent budget, are no requests.
#[tokio::test]
async fn what_the_proxy_asks_itself_leaves_no_line() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let mut file = config(upstream.addr(), Protocol::Http1);
    file.admin = Some(crate::common::loopback());
    let logged = Logged::with(file, |_| {}).await;
    let admin = logged.proxy.admin_address().expect("admin pages");
    loop {
        let (status, ..) = whole_h1(Caller::h1(admin).get("/ready").answer().await.expect("sent"));
        if status == 200 {
            break; // it has asked itself
        }
        tokio::task::yield_now().await;
    }
    whole_h1(Caller::h1(address(&logged.proxy)).get("/stock").answer().await.expect("sent"));
    says(&logged.line().await, [("path", json!("/stock"))]);
}
