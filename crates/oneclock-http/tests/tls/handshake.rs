//! Handshakes that take long, fail, or come in great numbers, as the accept loop meets them.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::Request;
use oneclock::clock;
use oneclock_http::Arrival;
use oneclock_test::Baseline;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::certificates;
use crate::common::{NOTICED, PATIENCE, Server, connect, connect_with, h2, hello, ms, now, until_closed};

/// The begin of a record with a ClientHello, which never comes.
const HALF_A_HELLO: &[u8] = &[22, 3, 1, 0, 200, 1, 0, 0];

async fn raw(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(server.addr).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    socket
}

#[tokio::test]
async fn hostile_a_handshake_that_is_never_finished_is_cut_and_nobody_waits_for_it() {
    let server = Server::limited(hello(), |serve| serve.handshake(ms(400)).header_read_timeout(PATIENCE)).await;
    let since = now();
    let mut slow = Vec::new();
    for begun in [&b""[..], HALF_A_HELLO] {
        for _ in 0..50 {
            slow.push(raw(&server, begun).await);
        }
    }
    server.lives().await;
    assert!(now() - since < ms(400), "it was served meanwhile: {:?}", now() - since);
    for mut socket in slow {
        let (bytes, _) = until_closed(&mut socket).await;
        assert!(bytes.is_empty());
    }
    assert!(now() - since > ms(300) && now() - since < ms(400) + NOTICED, "{:?}", now() - since);

    // A byte now and then does not help.
    let mut socket = raw(&server, &[22, 3, 1, 16, 0]).await;
    let since = now();
    while socket.write_all(b"x").await.is_ok() && now() - since < PATIENCE {
        tokio::time::sleep(ms(20)).await;
    }
    assert!(now() - since < ms(400) + NOTICED, "{:?}", now() - since);
    server.stop().await;
}

#[tokio::test]
async fn hostile_handshakes_take_no_more_than_their_places() {
    let server = Server::limited(hello(), |serve| serve.max_connections(20).handshake(ms(300))).await;
    let mut slow = Vec::new();
    for _ in 0..100 {
        slow.push(raw(&server, HALF_A_HELLO).await);
    }
    tokio::time::sleep(ms(100)).await;
    assert!(server.accepted() <= 21, "{}: those that have a place, and the next", server.accepted());
    // A good one gets its turn once those before it have been cut, twenty after each 300 ms.
    timeout(PATIENCE, server.lives()).await.expect("served");
    server.stop().await;
}

/// The naive way: shaking hands where connections are accepted, so that one peer holds up all others.
#[tokio::test]
async fn naive_a_handshake_before_the_next_accept_holds_everybody_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let config = certificates::server(certificates::loopback());
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let task = tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let _ = acceptor.accept(socket).await;
        }
    });
    let _silent = TcpStream::connect(addr).await.unwrap();
    assert!(timeout(ms(500), connect_with(addr, certificates::client())).await.is_err(), "nobody is served");
    task.abort();
}

#[tokio::test]
async fn two_hundred_at_once_are_served() {
    let server = Server::of(hello()).await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let addr = server.addr;
        callers.spawn(async move {
            let mut stream = connect(addr).await;
            stream.write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
            let (bytes, end) = until_closed(&mut stream).await;
            assert!(end.is_ok() && bytes.ends_with(b"hello"), "{end:?}");
        });
    }
    while let Some(called) = callers.join_next().await {
        called.unwrap();
    }
    assert_eq!(server.accepted(), 200);
    server.stop().await;
}

#[tokio::test]
async fn k1_the_budget_runs_from_the_head_and_not_from_the_handshake() {
    let app = Router::new().route(
        "/",
        get(|request: axum::extract::Request| async move {
            let arrival = request.extensions().get::<Arrival>().expect("stamped");
            clock::now().since(arrival.at).as_millis().to_string()
        }),
    );
    // The time of the head begins after the handshake, too.
    let server = Server::limited(app, |serve| serve.header_read_timeout(ms(1500))).await;
    let socket = TcpStream::connect(server.addr).await.unwrap();
    tokio::time::sleep(ms(800)).await;
    let mut stream = crate::common::secure(socket, certificates::client()).await.unwrap();
    tokio::time::sleep(ms(800)).await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let (bytes, _) = until_closed(&mut stream).await;
    let text = String::from_utf8(bytes).unwrap();
    let age: u64 = text.rsplit("\r\n").next().unwrap().parse().unwrap_or_else(|_| panic!("{text}"));
    assert!(Duration::from_millis(age) < ms(400), "{age}");
    server.stop().await;
}

#[tokio::test]
async fn hostile_what_is_no_handshake_is_told_so_and_the_server_lives_on() {
    let server = Server::of(hello()).await;
    // Plain HTTP: an alert (21), fatal (2), then the end. No answer.
    let mut socket = raw(&server, b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n").await;
    for _ in 0..10 {
        socket.write_all(&[b'x'; 4096]).await.expect("taken: it is not reset before it reads why");
        tokio::time::sleep(ms(20)).await;
    }
    socket.shutdown().await.unwrap();
    let (bytes, end) = until_closed(&mut socket).await;
    assert!(end.is_ok() && bytes.first() == Some(&21) && bytes.get(5) == Some(&2), "{end:?} {bytes:?}");

    let mut config = certificates::client();
    config.alpn_protocols = vec![b"smtp".to_vec()];
    let refused = connect_with(server.addr, config).await.expect_err("no protocol in common");
    assert!(refused.to_string().contains("NoApplicationProtocol"), "{refused}");

    let mut hung_up = raw(&server, HALF_A_HELLO).await;
    hung_up.shutdown().await.unwrap();
    let _ = until_closed(&mut hung_up).await;
    server.lives().await;
    server.stop().await;
}

#[tokio::test]
async fn both_protocols_are_offered_and_the_peer_chooses() {
    let server = Server::of(hello()).await;
    for (offered, chosen) in [(&["h2", "http/1.1"][..], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)] {
        let mut config = certificates::client();
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = connect_with(server.addr, config).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen.map(str::as_bytes));
    }
    let (mut send, _connection) = h2(server.addr).await;
    let request = Request::get("https://a/hello").body(()).unwrap();
    let (answer, _) = send.send_request(request, true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    server.stop().await;
}

#[tokio::test]
async fn x10_a_handshake_is_not_waited_for_when_the_server_stops() {
    let before = Baseline::tasks_only();
    let server = Server::limited(hello(), |serve| serve.handshake(PATIENCE)).await;
    let mut slow = raw(&server, HALF_A_HELLO).await;
    let mut idle = connect(server.addr).await;
    idle.write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        assert_ne!(idle.read_buf(&mut answer).await.unwrap(), 0);
    }
    let since = now();
    server.stop().await;
    assert!(now() - since < NOTICED, "{:?}", now() - since);
    assert!(until_closed(&mut slow).await.0.is_empty());
    assert_eq!(idle.read(&mut [0; 8]).await.expect("closed in order"), 0);
    before.assert_back().await;
}
