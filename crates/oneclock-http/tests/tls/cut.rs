//! The deadline reaches the socket: what is cut off does not look complete, and nobody holds anything past it.

use std::future::IntoFuture;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::routing::get;
use bytes::Bytes;
use http::Request;
use oneclock_http::{serve, tls};
use oneclock_test::{Baseline, Ended, Probe};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::certificates;
use crate::common::{
    NOTICED, PATIENCE, Server, connect, floods, h2, hang, hangs, hello, ms, now, until_closed, within,
};

/// With `/trickles`, whose body never ends, and `/whole`, whose body does, both without a length.
fn trickles(probe: &Probe) -> Router {
    let probe = probe.clone();
    let pieces = |guard, pieces| {
        AxumBody::from_stream(futures_util::stream::unfold((guard, pieces), |(guard, pieces)| async move {
            tokio::time::sleep(ms(20)).await;
            (pieces > 0).then(|| (Ok::<_, io::Error>(Bytes::from_static(b"part")), (guard, pieces - 1)))
        }))
    };
    let endless = probe.clone();
    hello()
        .route("/trickles", get(move || async move { pieces(endless.enter(), usize::MAX) }))
        .route("/whole", get(move || async move { pieces(probe.enter(), 3) }))
}

/// Of HTTP/1.0 an answer ends with its connection; of HTTP/1.1 with its last chunk, and `close` says when to look.
const VERSIONS: [&str; 2] = ["HTTP/1.0\r\n\r\n", "HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"];

#[tokio::test]
async fn x3_an_answer_that_is_cut_off_ends_without_close_notify() {
    let probe = Probe::new();
    let server = Server::of(trickles(&probe).layer(within(ms(400)))).await;
    for version in VERSIONS {
        let mut stream = connect(server.addr).await;
        let since = now();
        stream.write_all(format!("GET /trickles {version}").as_bytes()).await.unwrap();
        let (bytes, end) = until_closed(&mut stream).await;
        let kind = end.expect_err("cut off").kind();
        assert!([io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof].contains(&kind), "{version}: {kind}");
        assert!(!bytes.ends_with(b"0\r\n\r\n"), "{version}");
        assert!(now() - since < ms(400) + NOTICED, "{:?}", now() - since);

        let mut stream = connect(server.addr).await;
        stream.write_all(format!("GET /whole {version}").as_bytes()).await.unwrap();
        let (bytes, end) = until_closed(&mut stream).await;
        assert!(end.is_ok(), "{version}: a whole one ends with close_notify, {end:?}");
        assert!(String::from_utf8_lossy(&bytes).contains("part"), "{version}");
    }
    assert_eq!(probe.ended(1).await.unwrap().how, Ended::Dropped);
    server.stop().await;
}

/// A Unix socket has no reset, so TLS alone says that it was cut off.
#[cfg(unix)]
#[tokio::test]
async fn x3_where_a_socket_cannot_be_reset_tls_tells() {
    let dir = std::env::temp_dir().join(format!("oneclock-tls-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&dir);
    let listener = tokio::net::UnixListener::bind(&dir).unwrap();
    let probe = Probe::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = tls(listener, certificates::server(certificates::loopback()));
    let app = trickles(&probe).layer(within(ms(400)));
    let task = tokio::spawn(serve(listener, app).shutdown(stopped, ms(0)).into_future());
    let socket = tokio::net::UnixStream::connect(&dir).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(certificates::client()));
    let mut stream = connector.connect("127.0.0.1".try_into().unwrap(), socket).await.unwrap();
    stream.write_all(b"GET /trickles HTTP/1.0\r\n\r\n").await.unwrap();
    let (bytes, end) = until_closed(&mut stream).await;
    assert!(String::from_utf8_lossy(&bytes).contains("part"));
    assert_eq!(end.expect_err("cut off").kind(), io::ErrorKind::UnexpectedEof);
    drop(stop);
    timeout(PATIENCE, task).await.unwrap().unwrap().unwrap();
    let _ = std::fs::remove_file(&dir);
}

#[tokio::test]
async fn x3_an_answer_whose_body_panics_ends_without_close_notify() {
    let then = Arc::new(Semaphore::new(0));
    let waits = Arc::clone(&then);
    let app = hello().route(
        "/halves",
        get(move || async move {
            AxumBody::from_stream(futures_util::stream::unfold((true, waits), |(is_first, then)| async move {
                if !is_first {
                    drop(then.acquire().await);
                    panic!("on purpose");
                }
                Some((Ok::<_, io::Error>(Bytes::from_static(b"half")), (false, then)))
            }))
        }),
    );
    let server = Server::of(app).await;
    let mut stream = connect(server.addr).await;
    stream.write_all(b"GET /halves HTTP/1.0\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"half") {
        assert_ne!(timeout(PATIENCE, stream.read_buf(&mut bytes)).await.expect("it comes").unwrap(), 0);
    }
    then.add_permits(1);
    let (_, end) = until_closed(&mut stream).await;
    end.expect_err("not complete");
    server.lives().await;
    server.stop().await;
}

#[tokio::test]
async fn x3_x8_at_the_deadline_a_stream_that_nobody_reads_is_reset_with_cancel() {
    let probe = Probe::new();
    let server = Server::of(floods(&probe).layer(within(ms(400)))).await;
    let (mut send, _connection) = h2(server.addr).await;
    let since = now();
    let (answer, _) = send.send_request(Request::get("https://a/flood").body(()).unwrap(), true).unwrap();
    let mut body = answer.await.unwrap().into_body();
    let ended = probe.ended(1).await.unwrap();
    assert!(ended.at - since < ms(400) + NOTICED, "{:?}", ended.at - since);
    let error = loop {
        match timeout(PATIENCE, body.data()).await.expect("an end") {
            Some(Ok(piece)) => body.flow_control().release_capacity(piece.len()).unwrap(),
            Some(Err(error)) => break error,
            None => panic!("it looks complete"),
        }
    };
    assert_eq!(error.reason(), Some(h2::Reason::CANCEL), "{error}");
    // The connection goes on.
    let (answer, _) = send.send_request(Request::get("https://a/hello").body(()).unwrap(), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    server.stop().await;
}

#[tokio::test]
async fn x8_an_http1_peer_that_stops_reading_is_cut_off() {
    for (deadline, write_progress) in [(ms(400), PATIENCE), (PATIENCE, ms(400))] {
        let probe = Probe::new();
        let app = floods(&probe).layer(within(deadline));
        let server = Server::limited(app, |serve| serve.write_progress(write_progress)).await;
        let mut stream = connect(server.addr).await;
        stream.write_all(b"GET /flood HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        stream.flush().await.unwrap();
        let since = now();
        let ended = probe.ended(1).await.unwrap();
        // What the kernel buffers is taken first; it grows while it is filled.
        assert!(ended.at - since < ms(400) + ms(400) + NOTICED, "{:?}", ended.at - since);
        let (_, end) = until_closed(&mut stream).await;
        // Reset: what it did not take is not kept for it.
        assert_eq!(end.expect_err("not complete").kind(), io::ErrorKind::ConnectionReset);
        server.stop().await;
    }
}

#[tokio::test]
async fn x8_an_http2_peer_that_opens_no_window_is_cut_off() {
    let probe = Probe::new();
    let server = Server::limited(floods(&probe), |serve| serve.write_progress(ms(400))).await;
    let (mut send, _connection) = h2(server.addr).await;
    let (answer, _) = send.send_request(Request::get("https://a/flood").body(()).unwrap(), true).unwrap();
    let _unread = answer.await.unwrap();
    let since = now();
    assert!(probe.ended(1).await.unwrap().at - since < ms(400) + ms(400) + NOTICED);
    server.stop().await;
}

#[tokio::test]
async fn x8_a_peer_that_reads_slowly_is_not_cut() {
    let size = 256 * 1024;
    let app = hello().route("/large", get(move || async move { vec![b'x'; size] }));
    let server = Server::limited(app, |serve| serve.write_progress(ms(500))).await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let socket = socket.connect(server.addr).await.unwrap();
    let mut stream = crate::common::secure(socket, certificates::client()).await.unwrap();
    stream.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut read = 0;
    let mut buffer = vec![0; 16 * 1024];
    loop {
        tokio::time::sleep(ms(30)).await;
        match stream.read(&mut buffer).await.expect("not cut") {
            0 => break,
            n => read += n,
        }
    }
    assert!(read > size);
    server.stop().await;
}

#[tokio::test]
async fn x9_a_504_reaches_a_caller_that_is_still_uploading() {
    let probe = Probe::new();
    let server = Server::of(hangs(&probe).layer(within(ms(300)))).await;
    let mut stream = connect(server.addr).await;
    let (pieces, piece) = (20, vec![b'x'; 64 * 1024]);
    let head = format!("POST /hang HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", pieces * piece.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..pieces {
        stream.write_all(&piece).await.expect("the whole upload is taken");
        tokio::time::sleep(ms(40)).await;
    }
    stream.flush().await.unwrap();
    let mut answer = vec![0; 12];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("an answer").expect("it is read");
    assert_eq!(answer, b"HTTP/1.1 504");
    server.stop().await;
}

#[tokio::test]
async fn i14_after_all_that_nothing_is_alive_but_the_server_and_then_nothing() {
    let outside = Baseline::tasks_only();
    let probe = Probe::new();
    let app = floods(&probe).route("/hang", hang(&probe)).layer(within(ms(300)));
    let server = Server::limited(app, |serve| serve.write_progress(ms(300)).header_read_timeout(ms(300))).await;
    let serving = Baseline::tasks_only();
    let mut streams = Vec::new();
    for request in ["GET /hang", "GET /flood", "GET /he"] {
        let mut stream = connect(server.addr).await;
        let rest = if request.ends_with("he") { "" } else { " HTTP/1.1\r\nhost: a\r\n\r\n" };
        stream.write_all(format!("{request}{rest}").as_bytes()).await.unwrap();
        streams.push(stream);
    }
    streams.push(connect(server.addr).await);
    let (mut send, connection) = h2(server.addr).await;
    for path in ["hang", "flood"] {
        let request = Request::get(format!("https://a/{path}")).body(()).unwrap();
        let (answer, _) = send.send_request(request, true).unwrap();
        let _ = answer.await;
    }
    probe.ended(4).await.unwrap();
    drop(send);
    let _ = connection.await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(streams);
    serving.assert_back().await;
    server.stop().await;
    outside.assert_back().await;
    assert_eq!(probe.running(), 0);
}
