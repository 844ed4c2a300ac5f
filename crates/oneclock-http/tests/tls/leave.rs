//! A caller leaves: inside of TLS, or below it (contract N3).

use std::time::Duration;

use axum::Router;
use http::Request;
use oneclock_test::{Ended, Probe};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use crate::certificates;
use crate::common::{NOTICED, Server, connect, h2, hangs, ms, now, until_closed};

#[derive(Clone, Copy, Debug)]
enum Goodbye {
    /// `close_notify`, and the socket stays open.
    InsideOnly,
    /// FIN without `close_notify`.
    BelowOnly,
    /// As most callers do it.
    Both,
    Reset,
}

const GOODBYES: [Goodbye; 4] = [Goodbye::InsideOnly, Goodbye::BelowOnly, Goodbye::Both, Goodbye::Reset];

/// An upload that the kernel takes whole although nobody reads it.
const UNREAD: usize = 50_000;

/// A request for `/hang`, and what may stand before the goodbye.
fn requests() -> [(&'static str, Vec<u8>); 3] {
    let get = b"GET /hang HTTP/1.1\r\nhost: a\r\n\r\n".to_vec();
    let mut upload = format!("POST /hang HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", 2 * UNREAD).into_bytes();
    upload.extend([b'x'; UNREAD]);
    [("alone", get.clone()), ("unread upload", upload), ("pipelined", [get.clone(), get].concat())]
}

/// What is given back keeps the socket open.
async fn leave(mut stream: TlsStream<TcpStream>, how: Goodbye) -> (Instant, Option<TlsStream<TcpStream>>) {
    match how {
        Goodbye::InsideOnly => {
            stream.get_mut().1.send_close_notify();
            stream.flush().await.unwrap();
            (now(), Some(stream))
        }
        Goodbye::BelowOnly => {
            stream.get_mut().0.shutdown().await.unwrap();
            (now(), Some(stream))
        }
        Goodbye::Both => {
            stream.shutdown().await.unwrap();
            (now(), None)
        }
        Goodbye::Reset => {
            stream.get_ref().0.set_zero_linger().unwrap();
            drop(stream);
            (now(), None)
        }
    }
}

#[tokio::test]
async fn n3_the_handler_is_dropped_however_the_caller_says_goodbye() {
    let probe = Probe::new();
    let server = Server::of(hangs(&probe)).await;
    let mut n = 0;
    for how in GOODBYES {
        for (what, request) in requests() {
            n += 1;
            let mut stream = connect(server.addr).await;
            stream.write_all(&request).await.unwrap();
            stream.flush().await.unwrap();
            probe.started(n).await.unwrap();
            let (at, _open) = leave(stream, how).await;
            let ended = probe.ended(n).await.unwrap();
            assert_eq!(ended.how, Ended::Dropped);
            assert!(ended.at - at < NOTICED, "{how:?}, {what}: noticed after {:?}", ended.at - at);
        }
    }
    server.lives().await;
    server.stop().await;
}

#[tokio::test]
async fn n3_over_http2_too() {
    let probe = Probe::new();
    let server = Server::of(hangs(&probe)).await;
    let hang = || Request::post("https://a/hang").body(()).unwrap();

    let (mut send, _connection) = h2(server.addr).await;
    let (_answer, mut upload) = send.send_request(hang(), false).unwrap();
    probe.started(1).await.unwrap();
    upload.send_reset(h2::Reason::CANCEL);
    let at = now();
    assert!(probe.ended(1).await.unwrap().at - at < NOTICED);

    let (mut send, connection) = h2(server.addr).await;
    let _call = send.send_request(hang(), false).unwrap();
    probe.started(2).await.unwrap();
    connection.abort();
    let at = now();
    assert!(probe.ended(2).await.unwrap().at - at < NOTICED);
    server.stop().await;
}

/// What stands behind more than is read ahead is not seen inside of TLS. Below it, it is.
#[tokio::test]
async fn n3_behind_a_large_upload_the_end_of_the_socket_is_seen() {
    let probe = Probe::new();
    let server = Server::of(hangs(&probe)).await;
    let mut stream = connect(server.addr).await;
    stream.write_all(b"POST /hang HTTP/1.1\r\nhost: a\r\ncontent-length: 9999999\r\n\r\n").await.unwrap();
    stream.write_all(&[b'x'; 100_000]).await.unwrap();
    stream.flush().await.unwrap();
    probe.started(1).await.unwrap();
    let (at, _) = leave(stream, Goodbye::Reset).await;
    assert!(probe.ended(1).await.unwrap().at - at < NOTICED);
    server.stop().await;
}

#[tokio::test]
async fn n3_a_connection_with_unread_bytes_waits_quietly() {
    let probe = Probe::new();
    let server = Server::of(hangs(&probe)).await;
    let mut streams = Vec::new();
    for upload in [1000, UNREAD, 200_000] {
        let mut stream = connect(server.addr).await;
        stream.write_all(b"POST /hang HTTP/1.1\r\nhost: a\r\ncontent-length: 9999999\r\n\r\n").await.unwrap();
        stream.write_all(&vec![b'x'; upload]).await.unwrap();
        stream.flush().await.unwrap();
        streams.push(stream);
    }
    probe.started(3).await.unwrap();
    tokio::time::sleep(ms(100)).await;
    let before = server.reads();
    tokio::time::sleep(ms(500)).await;
    let after = server.reads();
    assert!(after - before < 10, "{before}, then {after} reads");
    assert_eq!(probe.running(), 3);
    drop(streams);
    server.stop().await;
}

#[tokio::test]
async fn n3_an_upload_that_is_read_late_is_whole() {
    let app = Router::new().route(
        "/late",
        axum::routing::post(|request: axum::extract::Request| async move {
            tokio::time::sleep(ms(200)).await;
            let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
            let in_order = body.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8);
            format!("{} {in_order}", body.len())
        }),
    );
    let server = Server::of(app).await;
    let length = 700_001;
    let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
    for half_close in [false, true] {
        let mut stream = connect(server.addr).await;
        let head = format!("POST /late HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        for piece in body.chunks(10_000) {
            stream.write_all(piece).await.unwrap();
            if half_close {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        stream.flush().await.unwrap();
        let (bytes, end) = until_closed(&mut stream).await;
        assert!(end.is_ok() && bytes.ends_with(format!("{length} true").as_bytes()), "{end:?} {bytes:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn n3_with_half_close_a_caller_that_says_so_inside_of_tls_gets_its_answer() {
    let probe = Probe::new();
    let app = hangs(&probe).route(
        "/slow",
        axum::routing::get(|| async {
            tokio::time::sleep(ms(200)).await;
            "slow"
        }),
    );
    let server = Server::limited(app, |serve| serve.half_close(true)).await;
    let mut stream = connect(server.addr).await;
    stream.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let (_, stream) = leave(stream, Goodbye::InsideOnly).await;
    let (bytes, end) = until_closed(&mut stream.unwrap()).await;
    assert!(end.is_ok() && bytes.ends_with(b"slow"), "{end:?} {bytes:?}");
    // A reset is still a leaving, with an upload unread as well.
    let mut stream = connect(server.addr).await;
    stream.write_all(&requests()[1].1).await.unwrap();
    stream.flush().await.unwrap();
    probe.started(1).await.unwrap();
    let (at, _) = leave(stream, Goodbye::Reset).await;
    assert!(probe.ended(1).await.unwrap().at - at < NOTICED);
    server.stop().await;
}

/// The naive way: hyper over tokio-rustls reads on only once what it has read is taken, so the goodbye is not seen.
#[tokio::test]
async fn naive_hyper_over_tokio_rustls_does_not_notice_behind_unread_bytes() {
    let probe = Probe::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(certificates::server(certificates::loopback())));
    let app = hangs(&probe);
    let task = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let (acceptor, app) = (acceptor.clone(), app.clone());
            connections.spawn(async move {
                let io = hyper_util::rt::TokioIo::new(acceptor.accept(socket).await.unwrap());
                let app = hyper_util::service::TowerToHyperService::new(app);
                let http = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
                let _ = http.serve_connection(io, app).await;
            });
        }
    });
    let mut open = Vec::new();
    let (mut n, goodbyes) = (0, [Goodbye::InsideOnly, Goodbye::BelowOnly]);
    for how in goodbyes {
        for (_, request) in requests().into_iter().skip(1) {
            n += 1;
            let mut stream = connect(addr).await;
            stream.write_all(&request).await.unwrap();
            stream.flush().await.unwrap();
            probe.started(n).await.unwrap();
            open.push(leave(stream, how).await.1);
        }
    }
    tokio::time::sleep(ms(500)).await;
    assert_eq!(probe.running(), n, "all of them work for nobody");
    task.abort();
}
