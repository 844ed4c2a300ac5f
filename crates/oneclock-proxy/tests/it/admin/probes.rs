//! What probes are answered with where they may come over a network, and that it is nothing else.

use std::net::SocketAddr;

use oneclock_proxy::config::Config;
use oneclock_proxy::{Proxy, Running, StartFailed};
use oneclock_test::{Baseline, Protocol, peer};
use tokio::net::{TcpListener, TcpStream};

use super::{Said, ask, ask_with, ready, with_admin};
use crate::common::{AMPLE, config, loopback, start};

fn probes(proxy: &Running) -> SocketAddr {
    proxy.probes_address().expect("an address for probes")
}

fn with_probes(mut config: Config) -> Config {
    config.probes = Some(loopback());
    config
}

/// As a kubelet asks, and whoever else reaches it.
async fn probe(address: SocketAddr, line: &str) -> Said {
    ask_with(address, line, "host: shop.example:9903\r\n", "").await
}

async fn is_ready(address: SocketAddr) -> Said {
    let asked = async {
        loop {
            let said = probe(address, "GET /ready").await;
            if said.status == 200 {
                return said;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(AMPLE, asked).await.expect("it is ready")
}

#[tokio::test]
async fn probes_are_answered_under_any_name_and_nothing_else_is() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let proxy = start(with_probes(with_admin(config(upstream.addr(), Protocol::Http1)))).await;
    ready(&proxy).await;
    let front = probes(&proxy);
    assert_eq!(probe(front, "GET /live").await.json()["live"], true);
    assert_eq!(is_ready(front).await.json(), serde_json::json!({ "ready": true, "why": [] }));
    for page in ["/", "/metrics", "/config", "/live-operations", "/ledgers", "/drain", "/policy", "/ready/", "/live?x"]
    {
        let said = probe(front, &format!("GET {page}")).await;
        assert_eq!(said.status == 200, page == "/live?x", "{page}: {said:?}");
    }
    for line in ["POST /drain", "PATCH /policy"] {
        assert_eq!(probe(front, line).await.status, 404, "{line}");
    }
    let changes = probe(front, "POST /ready").await;
    assert!(changes.status == 405 && changes.head.contains("allow: GET, HEAD"), "{changes:?}");
    let head = probe(front, "HEAD /live").await;
    assert!(head.status == 200 && head.body.is_empty() && !head.head.contains("content-length: 0"), "{head:?}");
    assert!(ask(&proxy, "GET /metrics").await.body.contains("oneclock_proxy_draining 0\n"), "nothing happened");
}

#[tokio::test]
async fn a_drain_is_told_to_probes_and_they_go_with_the_proxy() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let before = Baseline::take();
    let mut file = with_probes(config(upstream.addr(), Protocol::Http1));
    file.admin = None; // they need no pages
    let proxy = start(file).await;
    assert_eq!(proxy.admin_address(), None);
    let front = probes(&proxy);
    is_ready(front).await;
    proxy.shutdown().await;
    assert!(TcpStream::connect(front).await.is_err());
    before.assert_back().await;

    let proxy = start(with_probes(with_admin(config(upstream.addr(), Protocol::Http1)))).await;
    is_ready(probes(&proxy)).await;
    assert_eq!(ask(&proxy, "POST /drain").await.status, 202);
    let said = probe(probes(&proxy), "GET /ready").await;
    assert_eq!((said.status, said.json()), (503, serde_json::json!({ "ready": false, "why": ["shutting down"] })));
}

#[tokio::test]
async fn an_address_for_probes_that_is_taken_says_how_to_go_on() {
    let taken = TcpListener::bind(loopback()).await.expect("a port");
    let mut file = config(([127, 0, 0, 1], 3000).into(), Protocol::Http1);
    file.probes = taken.local_addr().ok();
    let refused = Proxy::start(file).await.expect_err("it is taken");
    assert!(matches!(&refused, StartFailed::Probes { address, .. } if Some(*address) == taken.local_addr().ok()));
    assert!(refused.to_string().contains("another address for admin.probes"), "{refused}");
}
