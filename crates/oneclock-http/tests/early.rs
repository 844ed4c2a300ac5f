//! Answers over HTTP/1.1 that come before their upload was read: the caller is told that its connection ends, or it does not end
//! (RFC 9112 section 9.6). Untold it would send its next request into a connection of which the rest is thrown away.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests: to panic is how a test fails

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use oneclock_core::{Policy, Trust};
use oneclock_http::{BoxError, IngressLayer, Upload, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tower::Layer as _;

const PATIENCE: Duration = Duration::from_secs(20);
const AMPLE: Duration = Duration::from_secs(10);

type Said = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// By its path: answers without reading the upload, or behind it, or with it, or not at all.
async fn answer(request: Request<Upload<Incoming>>) -> Result<Said, Infallible> {
    let (head, mut body) = request.into_parts();
    let said = match head.uri.path() {
        "/read" => Full::from(body.collect().await.map(|whole| whole.to_bytes()).unwrap_or_default()),
        "/begins" => {
            let _ = body.frame().await; // and no more
            Full::default()
        }
        "/with" => return Ok(Response::new(body.boxed_unsync())),
        "/waits" => {
            let _ = body.collect().await;
            std::future::pending().await
        }
        _ => Full::default(),
    };
    Ok(Response::new(said.map_err(|never| match never {}).boxed_unsync()))
}

async fn server() -> (SocketAddr, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let policy = Policy::named("shop").when_absent(AMPLE).build().expect("a policy");
    let service = IngressLayer::new(policy).layer(tower::service_fn(answer));
    let serving = tokio::spawn(async move {
        serve(listener, service).trust(Trust::Inside).await.expect("it serves");
    });
    (addr, AbortOnDropHandle::new(serving))
}

/// The head of the next answer, in lower case, and how long its body is.
async fn next(socket: &mut TcpStream) -> (String, usize) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, socket.read_u8()).await.expect("an answer").expect("an answer"));
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let length = length.unwrap_or_else(|| panic!("no length: {head}"));
    (head, length)
}

/// Says `asks` and then, once it is answered, `then`. Whether it is told that its connection ends; whatever it is told is so.
#[track_caller]
fn ends(asks: &'static str, then: &'static str) -> impl Future<Output = bool> {
    let place = std::panic::Location::caller();
    async move {
        let (addr, _serving) = server().await;
        let mut socket = TcpStream::connect(addr).await.expect("a connection");
        socket.write_all(asks.as_bytes()).await.expect("sent");
        let (head, length) = next(&mut socket).await;
        let told = head.contains("\r\nconnection: close\r\n");
        let again = [then, "GET /read HTTP/1.1\r\nhost: a\r\n\r\n"].concat();
        socket.write_all(again.as_bytes()).await.expect("it lingers");
        if told {
            let end = timeout(PATIENCE, socket.read_to_end(&mut Vec::new())).await.expect("it closes");
            assert_eq!(end.expect("in order"), length, "{place}: {head}");
        } else {
            socket.read_exact(&mut vec![0; length]).await.expect("its body");
            assert!(next(&mut socket).await.0.starts_with("http/1.1 200"), "{place}: it goes on");
        }
        told
    }
}

#[tokio::test]
async fn an_upload_that_is_there_costs_no_connection() {
    assert!(!ends("POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc", "").await);
    assert!(!ends("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc", "").await);
    // Refused at the door.
    assert!(!ends("POST / HTTP/1.1\r\nhost: a\r\nx-remaining-ms: 0\r\ncontent-length: 3\r\n\r\nabc", "").await);
}

#[tokio::test]
async fn whoever_is_answered_in_the_middle_of_an_upload_is_told_that_its_connection_ends() {
    assert!(ends("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\na", "bc").await);
    assert!(ends("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n", "0\r\n\r\n").await);
    assert!(ends("POST /begins HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\na", "bc").await);
    assert!(ends("POST / HTTP/1.1\r\nhost: a\r\nx-remaining-ms: 0\r\ncontent-length: 3\r\n\r\n", "abc").await);
    // At its deadline: 408, since it waited for the upload.
    assert!(ends("POST /waits HTTP/1.1\r\nhost: a\r\nx-remaining-ms: 50\r\ncontent-length: 3\r\n\r\na", "bc").await);
}

/// Nobody knows whether the rest of it will be read.
#[tokio::test]
async fn an_answer_beside_its_upload_is_the_last_one() {
    assert!(ends("POST /with HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\na", "bc").await);
}
