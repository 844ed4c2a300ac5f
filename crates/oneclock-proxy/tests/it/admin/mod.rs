//! The admin pages over real sockets: what they say.

mod changes;
mod probes;

use std::net::SocketAddr;

use http::StatusCode;
use oneclock_core::ingress::Coverage;
use oneclock_proxy::config::Config;
use oneclock_proxy::{Proxy, Running, StartFailed};
use oneclock_test::caller::{Caller, How};
use oneclock_test::{Baseline, Protocol, peer};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::certificates::Ca;
use crate::common::{AMPLE, address, config, config_with, loopback, ms, start, whole_h1, whole_h2};

/// An answer of the admin pages.
#[derive(Debug)]
struct Said {
    status: u16,
    head: String,
    body: String,
}

impl Said {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }
}

fn admin(proxy: &Running) -> SocketAddr {
    proxy.admin_address().expect("admin pages")
}

fn with_admin(mut config: Config) -> Config {
    config.admin = Some(loopback());
    config
}

async fn ask(proxy: &Running, line: &str) -> Said {
    let address = admin(proxy);
    ask_with(address, line, &format!("host: {address}\r\n"), "").await
}

async fn patch(proxy: &Running, body: &str) -> Said {
    let address = admin(proxy);
    ask_with(address, "PATCH /policy", &format!("host: {address}\r\n"), body).await
}

async fn ask_with(address: SocketAddr, line: &str, fields: &str, body: &str) -> Said {
    let mut socket = TcpStream::connect(address).await.expect("a connection");
    let length = body.len();
    let request = format!("{line} HTTP/1.1\r\n{fields}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    socket.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    tokio::time::timeout(AMPLE, socket.read_to_string(&mut answer)).await.expect("in time").expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Said { status, head: head.to_owned(), body: body.to_owned() }
}

/// Asks again until the answer is as wanted.
async fn until(proxy: &Running, line: &str, wanted: impl Fn(&Said) -> bool) -> Said {
    let asked = async {
        loop {
            let said = ask(proxy, line).await;
            if wanted(&said) {
                return said;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(AMPLE, asked).await.unwrap_or_else(|_| panic!("{line} never said it"))
}

async fn ready(proxy: &Running) -> Value {
    until(proxy, "GET /ready", |said| said.status == 200).await.json()
}

#[tokio::test]
async fn every_page_answers_and_what_is_none_is_told_which_there_are() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let proxy = start(with_admin(config(upstream.addr(), Protocol::Http1))).await;
    assert_eq!(ask(&proxy, "GET /live").await.json()["live"], true);
    let said = ready(&proxy).await;
    let listener = &said["listeners"][0];
    assert_eq!((&listener["name"], &listener["shown"]), (&"http".into(), &"kept".into()), "{said}");
    assert!(
        listener["said"].as_str().is_some_and(|said| said.contains("refused: ") && said.contains("x-remaining-ms"))
    );

    let metrics = ask(&proxy, "GET /metrics").await;
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{metrics:?}");
    let held = ask(&proxy, "GET /config").await.json();
    let hash = held["hash"].as_str().expect("a hash");
    for line in [
        "oneclock_ready 1\n",
        "oneclock_places{admission=\"all\"} ",
        "oneclock_breaker_open{destination=\"app\"} 0\n",
        "oneclock_proxy_build_info{version=\"",
        &format!("oneclock_proxy_config_info{{hash=\"{hash}\"}} 1\n"),
        "oneclock_proxy_config_last_reload_successful 1\n",
        "oneclock_proxy_live_operations 0\n",
        "oneclock_proxy_draining 0\n",
    ] {
        assert!(metrics.body.contains(line), "{line} is not in {}", metrics.body);
    }
    assert_eq!((&held["config"]["routes"][0]["name"], &held["overrides"]), (&"all".into(), &Value::Array(vec![])));
    assert_eq!(ask(&proxy, "GET /live-operations").await.json()["live"], 0);
    assert_eq!(ask(&proxy, "GET /ledgers").await.json()["seen"], 0);

    let pages = ask(&proxy, "GET /").await.json()["pages"].clone();
    let none = ask(&proxy, "GET /stats").await;
    assert_eq!((none.status, &none.json()["pages"]), (404, &pages));
    for (line, allow) in [("POST /config", "GET, HEAD"), ("GET /drain", "POST"), ("PUT /policy", "PATCH")] {
        let said = ask(&proxy, line).await;
        assert!(said.status == 405 && said.head.contains(&format!("allow: {allow}")), "{said:?}");
    }
    let head = ask(&proxy, "HEAD /live").await;
    assert!(head.status == 200 && head.body.is_empty() && !head.head.contains("content-length: 0"), "{head:?}");
    let http2 = Caller::h2(admin(&proxy)).connect().await.expect("a connection");
    let (status, ..) = whole_h2(http2.get("/live").send().await.expect("sent").answer().await);
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn two_proxies_in_one_process_do_not_mix_and_a_probe_is_counted_by_none() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let one = start(with_admin(config(upstream.addr(), Protocol::Http1))).await;
    let two = start(with_admin(config(upstream.addr(), Protocol::Http1))).await;
    ready(&one).await;
    ready(&two).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let call = Caller::h1(address(&one)).get("/orders/7?secret=s").header("x-remaining-ms", "150");
    let call = call.header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"));
    let (status, ..) = whole_h1(call.answer().await.expect("sent"));
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    let ledgers = until(&one, "GET /ledgers", |said| said.json()["seen"] == 1).await;
    let ended = &ledgers.json()["operations"][0];
    assert_eq!(
        (&ended["operation"], &ended["cause"], &ended["route"]),
        (&"all".into(), &"deadline".into(), &"all".into())
    );
    let which = (&ended["method"], &ended["path"], &ended["trace_id"]);
    assert_eq!(which, (&"GET".into(), &"/orders/7".into(), &trace.into()), "{ended}");
    assert!(!ledgers.body.contains("secret"), "{}", ledgers.body);
    assert_eq!(ask(&two, "GET /ledgers").await.json()["seen"], 0);
    let counted = |metrics: Said| metrics.body.contains("oneclock_operations_total{operation=\"all\"");
    assert!(counted(ask(&one, "GET /metrics").await) && !counted(ask(&two, "GET /metrics").await));

    let refusals = "oneclock_answered_total{operation=\"all\",route=\"all\",reason=\"expired_before_start\"}";
    let metrics = ask(&one, "GET /metrics").await.body;
    assert!(!metrics.contains(refusals), "{metrics}");
    let spent =
        Caller::h1(address(&one)).get("/").header("x-remaining-ms", "0").header("user-agent", "oneclock-readiness");
    whole_h1(spent.answer().await.expect("sent"));
    let metrics = ask(&one, "GET /metrics").await.body;
    assert!(metrics.contains(&format!("{refusals} 1\n")), "what a caller sent counts: {metrics}");
}

#[tokio::test]
async fn what_is_under_way_is_shown_without_its_query_and_with_what_it_has_left() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let proxy = start(with_admin(config(upstream.addr(), Protocol::Http1))).await;
    let call = Caller::h1(address(&proxy)).get("/orders/7?card=4111").header("x-remaining-ms", "9000");
    let call = call.send(How::Close).await.expect("sent");
    upstream.await_request().await.expect("a request");
    let said = ask(&proxy, "GET /live-operations").await;
    let live = said.json();
    assert_eq!((&live["live"], &live["not_shown"]), (&1.into(), &0.into()), "{live}");
    let one = &live["operations"][0];
    let want = [("kind", "call"), ("listener", "http"), ("route", "all"), ("method", "GET"), ("path", "/orders/7")];
    for (key, value) in want {
        assert_eq!(one[key], value, "{one}");
    }
    assert!(one["left_ms"].as_u64().is_some_and(|left| left <= 9_000), "{one}");
    assert!(!said.body.contains("4111"), "{said:?}");
    call.leave().await.expect("left");
    until(&proxy, "GET /live-operations", |said| said.json()["live"] == 0).await;
}

#[tokio::test]
async fn a_stream_is_one_behind_its_call() {
    let upstream = peer::trickle(Protocol::Http1, ms(50)).expect("a port");
    let streaming = config_with(upstream.addr(), Protocol::Http1, |route| {
        route.kind = Coverage::Streaming { idle: AMPLE, total: ms(3_600_000) };
    });
    let proxy = start(with_admin(streaming)).await;
    let call = Caller::h1(address(&proxy)).get("/events").header("x-remaining-ms", "5000");
    let call = call.send(How::AfterHead).await.expect("sent");
    let said = until(&proxy, "GET /live-operations", |said| said.json()["operations"][0]["kind"] == "stream").await;
    let left = said.json()["operations"][0]["left_ms"].clone();
    assert!(left.as_u64().is_some_and(|left| left > 5_000), "what the stream has, not its call: {left}");
    drop(call);
    until(&proxy, "GET /live-operations", |said| said.json()["live"] == 0).await;
}

#[tokio::test]
async fn a_websocket_is_a_tunnel_from_its_upgrade_on() {
    let upstream = TcpListener::bind(loopback()).await.expect("a port");
    let proxy = start(with_admin(config(upstream.local_addr().expect("an address"), Protocol::Http1))).await;
    let mut caller = TcpStream::connect(address(&proxy)).await.expect("a connection");
    let asks = "GET /chat?token=s HTTP/1.1\r\nhost: shop\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    caller.write_all(asks.as_bytes()).await.expect("sent");
    let (mut socket, _) = upstream.accept().await.expect("a connection");
    let mut head = [0; 4096];
    let asked = socket.read(&mut head).await.expect("a head");
    assert!(asked > 0);
    let switches = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    socket.write_all(switches.as_bytes()).await.expect("written");
    let said = until(&proxy, "GET /live-operations", |said| said.json()["operations"][0]["kind"] == "tunnel").await;
    assert_eq!(said.json()["operations"][0]["path"], "/chat");
    drop((caller, socket));
    until(&proxy, "GET /live-operations", |said| said.json()["live"] == 0).await;
}

#[tokio::test]
async fn a_broken_upstream_takes_no_proxy_out_of_service() {
    let upstream = peer::refuse().expect("a port");
    let proxy = start(with_admin(config(upstream.addr(), Protocol::Http1))).await;
    ready(&proxy).await;
    let (status, ..) = whole_h1(Caller::h1(address(&proxy)).get("/").answer().await.expect("sent"));
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert_eq!(ask(&proxy, "GET /ready").await.status, 200);
}

#[tokio::test]
async fn a_listener_with_tls_is_looked_at_through_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let roots = |ca: &Ca, name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, ca.pem()).expect("written");
        path.display().to_string()
    };
    let (fleet, others) = (Ca::named("fleet"), Ca::named("others"));
    let (certificate, key) = fleet.signs("localhost").write(folder.path(), "proxy");
    let (certificate, key) = (certificate.display(), key.display());
    for (more, says) in [
        (String::new(), "refused: "),
        (format!(", clientCa: {}", roots(&fleet, "fleet.pem")), "refused: "),
        (format!(", clientCa: {}", roots(&others, "others.pem")), "turned away"),
    ] {
        let text = format!(
            "listeners: [{{ name: http, address: 127.0.0.1:0, tls: {{ certificate: {certificate}, key: {key}{more} }} }}]\n\
             upstreams: {{ app: {{ url: 'http://127.0.0.1:1' }} }}\nroutes: [{{ upstream: app }}]\nadmin: 127.0.0.1:0\n"
        );
        let proxy = start(Config::parse(&text).expect("a configuration")).await;
        let said = ready(&proxy).await;
        assert!(said["listeners"][0]["said"].as_str().is_some_and(|said| said.contains(says)), "{said}");
        proxy.shutdown().await;
    }
}

#[tokio::test]
async fn an_address_that_is_taken_says_how_to_go_on() {
    let taken = TcpListener::bind(loopback()).await.expect("a port");
    let mut file = config(([127, 0, 0, 1], 3000).into(), Protocol::Http1);
    file.admin = Some(taken.local_addr().expect("an address"));
    Proxy::check(&file).expect("it could be run elsewhere");
    let refused = Proxy::start(file).await.expect_err("it is taken");
    assert!(matches!(&refused, StartFailed::Admin { address, .. } if Some(*address) == taken.local_addr().ok()));
    let said = refused.to_string();
    assert!(said.contains("another address for admin") && said.contains("admin: none"), "{said}");
}

#[tokio::test]
async fn nothing_of_the_pages_is_left_behind() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let before = Baseline::take();
    let proxy = start(with_admin(config(upstream.addr(), Protocol::Http1))).await;
    ready(&proxy).await;
    let kept = TcpStream::connect(admin(&proxy)).await.expect("a connection");
    ask(&proxy, "GET /metrics").await;
    proxy.shutdown().await;
    drop(kept);
    before.assert_back().await;
    let proxy = start(with_admin(config(upstream.addr(), Protocol::Http1))).await;
    ready(&proxy).await;
    drop(proxy);
    before.assert_back().await;
}
