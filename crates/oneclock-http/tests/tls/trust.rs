//! Who the peer is: its certificate, and what we trust it for (contract C2).

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use oneclock::Operation;
use oneclock_core::{Outcome, Trust};
use oneclock_http::rustls::ClientConfig;
use oneclock_http::{Arrival, Client, TlsPeer, collect};
use tokio::io::AsyncWriteExt;

use crate::certificates;
use crate::common::{PATIENCE, Server, chain, connect_with, hello, until_closed};

fn tells() -> Router {
    hello().route(
        "/who",
        get(|request: Request| async move {
            let arrival = request.extensions().get::<Arrival>().expect("stamped");
            let peer = request.extensions().get::<TlsPeer>().expect("known");
            let alpn = String::from_utf8_lossy(peer.alpn().unwrap_or_default()).into_owned();
            let certificates = peer.certificates().len();
            format!("{:?} {certificates} {alpn} {:?}", arrival.trust, peer.server_name())
        }),
    )
}

async fn who(server: &Server, config: ClientConfig, http2: bool) -> String {
    let client = Client::builder("who", format!("https://{}", server.addr)).tls(config);
    let client = if http2 { client.http2_only() } else { client }.build().unwrap();
    let op = Operation::begin("test", PATIENCE);
    let request = http::Request::get("/who").body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let answer = client.request_in(&op, request).await.unwrap();
    String::from_utf8(collect(answer.into_body(), 4096).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn c2_a_peer_is_trusted_for_its_certificate() {
    let by_certificate = |peer: &TlsPeer| if peer.is_verified() { Trust::Inside } else { Trust::Outside };
    let config = certificates::server_that_asks(true);
    let server = Server::with(tells(), config, |listener| listener.trust(by_certificate), |serve| serve).await;
    for http2 in [false, true] {
        let one_of_ours = certificates::client_that_shows(certificates::of_somebody_else());
        assert_eq!(who(&server, one_of_ours, http2).await, "Inside 1 h2 None");
        assert_eq!(who(&server, certificates::client(), http2).await, "Outside 0 h2 None");
    }
    server.stop().await;
}

#[tokio::test]
async fn c2_without_a_rule_for_its_peers_the_listener_decides() {
    for trust in [Trust::Outside, Trust::Inside] {
        let config = certificates::server_that_asks(true);
        let server = Server::with(tells(), config, |listener| listener, |serve| serve.trust(trust)).await;
        for config in [certificates::client(), certificates::client_that_shows(certificates::loopback())] {
            assert!(who(&server, config, false).await.starts_with(&format!("{trust:?}")));
        }
        server.stop().await;
    }
}

/// A certificate that the verifier does not accept is no anonymity, even where that is allowed.
#[tokio::test]
async fn c2_a_certificate_of_somebody_unknown_is_refused() {
    let config = certificates::server_that_asks(true);
    let server = Server::with(tells(), config, |listener| listener, |serve| serve).await;
    for (shown, why) in [(certificates::of_another_ca(), "UnknownCA"), (certificates::expired(), "CertificateExpired")]
    {
        refused(&server, certificates::client_that_shows(shown), why).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn c2_a_peer_that_has_to_show_one_and_does_not_is_told_so() {
    let config = certificates::server_that_asks(false);
    let server = Server::with(tells(), config, |listener| listener, |serve| serve).await;
    refused(&server, certificates::client(), "CertificateRequired").await;
    assert!(
        who(&server, certificates::client_that_shows(certificates::loopback()), true).await.starts_with("Outside 1")
    );
    server.stop().await;
}

/// With TLS 1.3 a client is done before its certificate is looked at: it reads the alert where it expects an answer.
async fn refused(server: &Server, config: ClientConfig, why: &str) {
    let mut stream = connect_with(server.addr, config.clone()).await.unwrap();
    let _ = stream.write_all(b"GET /who HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let (bytes, end) = until_closed(&mut stream).await;
    let end = end.expect_err("an alert");
    assert!(bytes.is_empty() && end.to_string().contains(why), "{end}");

    let client = Client::builder("who", format!("https://{}", server.addr)).tls(config).build().unwrap();
    let op = Operation::begin("test", PATIENCE);
    let request = http::Request::get("/who").body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let error = client.request_in(&op, request).await.expect_err("refused");
    assert!(chain(&error).contains(why), "{}", chain(&error));
    assert!(matches!(error.outcome(), Outcome::Unknown { .. } | Outcome::NotSent), "{error}");
}
