//! What the admin pages change: a stop, the retries and the mode of a route; and what they do not let anybody change.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use oneclock_core::Name;
use oneclock_core::admission::Mode;
use oneclock_proxy::config::{Concurrency, Config, Listener};
use oneclock_test::caller::{Caller, How};
use oneclock_test::{Protocol, peer};
use serde_json::Value;
use tokio::net::TcpStream;

use super::{admin, ask, ask_with, patch, ready, with_admin};
use crate::common::{AMPLE, Upstream, address, body, config, config_with, loopback, ms, start, whole_h1};

#[tokio::test]
async fn a_drain_is_answered_at_once_and_the_pages_stay_until_it_is_over() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let proxy = start(with_admin(config(upstream.addr(), Protocol::Http1))).await;
    ready(&proxy).await;
    let (pages, front) = (admin(&proxy), address(&proxy));
    let call = Caller::h1(front).get("/").header("x-remaining-ms", "1500").send(How::Close).await.expect("sent");
    upstream.await_request().await.expect("a request");
    let asked = proxy.asked_to_stop();
    let said = ask(&proxy, "POST /drain").await;
    assert_eq!((said.status, &said.json()["draining"], &said.json()["live"]), (202, &true.into(), &1.into()));
    assert!(said.json()["grace_ms"].as_u64().is_some_and(|grace| grace > 0 && grace <= 1_500), "{said:?}");
    tokio::time::timeout(AMPLE, asked).await.expect("its owner is told");
    let not_ready = ask(&proxy, "GET /ready").await;
    assert_eq!((not_ready.status, &not_ready.json()["why"]), (503, &serde_json::json!(["shutting down"])));
    assert_eq!(ask(&proxy, "POST /drain").await.status, 202, "a second time");

    let ended = tokio::spawn(proxy.shutdown());
    let host = format!("host: {pages}\r\n");
    assert_eq!(ask_with(pages, "GET /live", &host, "").await.status, 200, "while it drains");
    let (status, ..) = whole_h1(call.answer().await);
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    ended.await.expect("it ends");
    assert!(TcpStream::connect(pages).await.is_err() && TcpStream::connect(front).await.is_err());
}

/// An upstream that has nothing but failures, and how often it was asked.
async fn failing() -> (Upstream, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let upstream = Upstream::of(move |request| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            let _ = request.into_body().collect().await;
            Response::builder().status(503).body(body(Full::<Bytes>::default())).expect("an answer")
        }
    });
    (upstream.await, asked)
}

/// With so many attempts after the first.
fn retried(upstream: SocketAddr, attempts: u32) -> Config {
    let text = format!(
        "listeners: [{{ name: http, address: 127.0.0.1:0 }}]\nadmin: 127.0.0.1:0\n\
         upstreams: {{ app: {{ url: 'http://{upstream}' }} }}\n\
         routes: [{{ name: orders, upstream: app, retry: {{ attempts: {attempts}, backoff: 1ms }} }}]\n"
    );
    Config::parse(&text).expect("a configuration")
}

#[tokio::test]
async fn retries_are_switched_off_and_on_for_the_very_next_request() {
    let (upstream, asked) = failing().await;
    let file = retried(upstream.addr, 2);
    let mut proxy = start(file.clone()).await;
    let front = address(&proxy);
    let attempts = || async {
        let before = asked.load(Ordering::SeqCst);
        whole_h1(Caller::h1(front).get("/stock").answer().await.expect("sent"));
        asked.load(Ordering::SeqCst) - before
    };
    let off = r#"{"route": "orders", "retry": "off"}"#;
    let series = "oneclock_proxy_policy_override{route=\"orders\",policy=\"retry\",value=\"off\"} 1\n";
    assert_eq!(attempts().await, 3);
    let said = patch(&proxy, off).await;
    assert_eq!((said.status, &said.json()["retry"]["in_force"]), (200, &"off".into()), "{said:?}");
    assert_eq!(attempts().await, 1);
    assert!(ask(&proxy, "GET /metrics").await.body.contains(series));
    assert_eq!(ask(&proxy, "GET /config").await.json()["overrides"][0], said.json());

    proxy.reload(file.clone()).await.expect("it is taken");
    assert_eq!(attempts().await, 1, "a reload that says the same of the route leaves it");
    assert_eq!(patch(&proxy, r#"{"route": "orders", "retry": "on"}"#).await.status, 200);
    assert_eq!(attempts().await, 3);
    assert!(!ask(&proxy, "GET /metrics").await.body.contains(series));

    assert_eq!(patch(&proxy, off).await.status, 200);
    let mut other = file;
    other.routes[0].ceiling = ms(9_000);
    proxy.reload(other).await.expect("it is taken");
    assert_eq!(attempts().await, 3, "a reload that says something else of the route ends it");
}

/// Off and on is no way around what all retries may cost together (contract R9), nor is a reload in between.
#[tokio::test]
async fn retries_that_are_let_on_again_have_the_tokens_that_they_had() {
    let (upstream, asked) = failing().await;
    let file = retried(upstream.addr, 9);
    let mut proxy = start(file.clone()).await;
    let front = address(&proxy);
    let attempts = || async {
        let before = asked.load(Ordering::SeqCst);
        whole_h1(Caller::h1(front).get("/stock").answer().await.expect("sent"));
        asked.load(Ordering::SeqCst) - before
    };
    // Without a token there is one retry a second, so there may be a second attempt now and then, and no third.
    let used_up = async { while attempts().await > 2 {} };
    tokio::time::timeout(AMPLE, used_up).await.expect("ten tokens at first, and nothing that succeeds");
    for reloads in [false, true] {
        assert_eq!(patch(&proxy, r#"{"route": "orders", "retry": "off"}"#).await.status, 200);
        assert_eq!(attempts().await, 1);
        if reloads {
            proxy.reload(file.clone()).await.expect("it is taken");
            assert_eq!(attempts().await, 1);
        }
        assert_eq!(patch(&proxy, r#"{"route": "orders", "retry": "on"}"#).await.status, 200);
        let made = attempts().await;
        assert!(made <= 2, "{made} attempts, with no token left");
    }
}

#[tokio::test]
async fn a_mode_is_in_force_for_the_very_next_request() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let one_at_a_time = config_with(upstream.addr(), Protocol::Http1, |route| {
        route.concurrency = Concurrency::Fixed(1);
        route.queue = 0;
        route.mode = Mode::Enforce;
    });
    let proxy = start(with_admin(one_at_a_time.clone())).await;
    let call = |budget: &'static str| Caller::h1(address(&proxy)).get("/").header("x-remaining-ms", budget);
    let first = call("9000").send(How::Close).await.expect("sent");
    upstream.await_requests(1).await.expect("a request");
    let (status, ..) = whole_h1(call("9000").answer().await.expect("sent"));
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);

    let said = patch(&proxy, r#"{"route": "all", "mode": "shadow"}"#).await;
    assert_eq!(said.json()["mode"], serde_json::json!({ "configured": "enforce", "in_force": "shadow" }));
    let second = call("9000").send(How::Close).await.expect("sent");
    upstream.await_requests(2).await.expect("it is let through");
    let metrics = ask(&proxy, "GET /metrics").await.body;
    assert!(metrics.contains("oneclock_admission_mode{admission=\"all\",mode=\"shadow\"} 1\n"), "{metrics}");
    assert!(
        metrics.contains("oneclock_places_taken{admission=\"all\"} 2\n"),
        "the places stay the same ones: {metrics}"
    );

    assert_eq!(patch(&proxy, r#"{"route": "all", "mode": null}"#).await.json()["mode"]["in_force"], "enforce");
    let (status, ..) = whole_h1(call("9000").answer().await.expect("sent"));
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    drop((first, second));
}

#[tokio::test]
async fn a_change_that_says_nothing_changes_nothing() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let proxy = start(with_admin(config(upstream.addr(), Protocol::Http1))).await;
    for (body, status, says) in [
        (r#"{"route": "al", "retry": "off"}"#.to_owned(), 422, "did you mean `all`?"),
        (r#"{"route": "all", "retrys": "off"}"#.to_owned(), 422, "did you mean `retry`?"),
        (r#"{"route": "all", "retry": "on"}"#.to_owned(), 422, "nothing to switch on"),
        (r#"{"route": "all", "retry": "off"}"#.to_owned(), 422, "nothing to switch off"),
        ("{".to_owned(), 400, "no JSON"),
        (format!("\"{}\"", "x".repeat(10_000)), 413, "longer than 4096 bytes"),
    ] {
        let said = patch(&proxy, &body).await;
        assert_eq!(said.status, status, "{said:?}");
        assert!(said.json()["detail"].as_str().is_some_and(|detail| detail.contains(says)), "{said:?}");
    }
    assert_eq!(ask(&proxy, "GET /config").await.json()["overrides"], serde_json::json!([]));
}

#[tokio::test]
async fn names_of_others_and_pages_of_others_are_turned_away() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let proxy = start(with_admin(config(upstream.addr(), Protocol::Http1))).await;
    let pages = admin(&proxy);
    let rebound = ask_with(pages, "GET /config", "host: evil.example:9902\r\n", "").await;
    assert!(rebound.status == 403 && rebound.body.contains("evil.example"), "{rebound:?}");
    assert!(!rebound.body.contains("upstreams"), "{rebound:?}");
    let absolute = ask_with(pages, "GET http://evil.example/config", "host: localhost\r\n", "").await;
    assert_eq!(absolute.status, 403, "{absolute:?}");
    assert_eq!(ask_with(pages, "GET /config", "host: localhost:9902\r\n", "").await.status, 200);
    for field in ["origin: http://localhost:9902", "origin: null", "sec-fetch-site: cross-site"] {
        let fields = format!("host: localhost\r\n{field}\r\n");
        assert_eq!(ask_with(pages, "POST /drain", &fields, "").await.status, 403, "{field}");
        let change = ask_with(pages, "PATCH /policy", &fields, r#"{"route": "all", "retry": "off"}"#).await;
        assert_eq!(change.status, 403, "{field}");
    }
    let state = ask(&proxy, "GET /metrics").await.body;
    assert!(
        state.contains("oneclock_proxy_draining 0\n") && !state.contains("policy_override{"),
        "nothing happened: {state}"
    );
}

#[tokio::test]
async fn a_reload_that_is_refused_shows() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let mut proxy = start(with_admin(config(upstream.addr(), Protocol::Http1))).await;
    let hash = ask(&proxy, "GET /config").await.json()["hash"].clone();
    let mut moved = proxy.config();
    let mut probed = moved.clone();
    (moved.admin, probed.probes) = (None, Some(loopback()));
    for changed in [moved, probed] {
        let refused = proxy.reload(changed).await.expect_err("it stays where it is").to_string();
        assert!(refused.starts_with("admin is changed, "), "{refused}");
    }
    proxy.reload_refused("proxy.yaml:6:1: there is no key `rutes` here");
    let held = ask(&proxy, "GET /config").await.json();
    assert_eq!((&held["hash"], &held["last_reload"]["successful"]), (&hash, &false.into()), "{held}");
    assert_eq!(held["last_reload"]["refused"], "proxy.yaml:6:1: there is no key `rutes` here");
    let failed = "oneclock_proxy_config_last_reload_successful 0\n";
    assert!(ask(&proxy, "GET /metrics").await.body.contains(failed));
    let mut other = proxy.config();
    other.routes[0].ceiling = ms(9_000);
    proxy.reload(other).await.expect("it is taken");
    let held = ask(&proxy, "GET /config").await.json();
    assert!(held["hash"] != hash && held["last_reload"]["successful"] == true, "{held}");
    assert!(!ask(&proxy, "GET /metrics").await.body.contains(failed));

    let mut more = proxy.config();
    more.routes[0].name = Name::from("everything");
    more.listeners.push(Listener::new(Name::from("more"), loopback()));
    proxy.reload(more).await.expect("it is taken");
    let said = ask(&proxy, "GET /ready").await.json();
    let names: Vec<&Value> = said["listeners"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["http", "more"], "{said}");
    let metrics = ask(&proxy, "GET /metrics").await.body;
    let mode = |route| format!("oneclock_admission_mode{{admission=\"{route}\",mode=\"shadow\"}}");
    assert!(metrics.contains(&format!("{} 1\n", mode("everything"))), "{metrics}");
    assert!(metrics.contains(&format!("{} 0\n", mode("all"))), "a route that is gone has no places: {metrics}");
}
