//! Bodies without progress, or with too little of it, or with no end: none of that moves the deadline, and what is cut
//! off never looks whole (contract X3, X8). And an answer that comes before the end of the upload arrives (X9).

use std::convert::Infallible;
use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::{Request, State};
use axum::routing::any;
use bytes::Bytes;
use http::StatusCode;
use oneclock_axum::{Op, Problem};
use oneclock_core::Cause;
use oneclock_http::Client;
use oneclock_test::caller::{Caller, H1Outcome, H2Outcome, How};
use oneclock_test::peer::{self, Leaving, Peer};
use oneclock_test::{Ended, PATIENCE, Probe, Protocol, Reason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tower_http::timeout::TimeoutLayer;

use crate::service::{Flood, Service};
use crate::{NOTICED, ms, now};

const BUDGET: Duration = Duration::from_millis(400);

// === Responses ===

/// A body of `first`, then a byte after every `byte_every`, without end.
fn trickle(probe: Probe, first: usize, byte_every: Duration) -> AxumBody {
    let first = Some(Bytes::from(vec![b'x'; first])).filter(|first| !first.is_empty());
    AxumBody::from_stream(futures_util::stream::unfold((probe.enter(), first), move |(guard, mut first)| async move {
        let piece = match first.take() {
            Some(first) => first,
            None => {
                tokio::time::sleep(byte_every).await;
                Bytes::from_static(b".")
            }
        };
        Some((Ok::<_, Infallible>(piece), (guard, first)))
    }))
}

fn responses(probe: &Probe) -> Router {
    let (stalls, trickles, floods) = (probe.clone(), probe.clone(), probe.clone());
    Router::new()
        .route("/stalls", any(move || async move { trickle(stalls, 0, PATIENCE) }))
        .route("/stalls-later", {
            let probe = probe.clone();
            any(move || async move { trickle(probe, 100, PATIENCE) })
        })
        .route("/trickles", any(move || async move { trickle(trickles, 0, Duration::from_secs(1)) }))
        .route("/floods", any(move || async move { AxumBody::new(Flood::new(1_000, floods.enter())) }))
        .route("/floods-in-large-frames", {
            let probe = probe.clone();
            any(move || async move { AxumBody::new(Flood::new(8 << 20, probe.enter())) })
        })
}

/// Cut off at the deadline, visibly, over both protocols; a caller that reads all the time.
async fn is_cut_off(target: &str, budget: Duration, at_least: usize) {
    let probe = Probe::new();
    let service = Service::of(responses(&probe), budget).await;

    let since = now();
    match Caller::h1(service.addr).get(target).answer().await.unwrap() {
        H1Outcome::Truncated { status, bytes_read, .. } => {
            assert_eq!(status, 200);
            assert!(bytes_read >= at_least, "{bytes_read}");
        }
        // Nothing but a head may go with the reset that shows that there is more.
        H1Outcome::NoAnswer(_) if at_least == 0 => {}
        other => panic!("{target}: {other:?}"),
    }
    was_in_time(&probe, 1, since, budget).await;

    let caller = Caller::h2(service.addr).connect().await.unwrap();
    let since = now();
    match caller.get(target).send().await.unwrap().answer().await {
        H2Outcome::Reset { reason, status, bytes_read } => {
            assert_eq!((reason, status), (Reason::CANCEL, Some(StatusCode::OK)));
            assert!(bytes_read >= at_least, "{bytes_read}");
        }
        other => panic!("{target}: {other:?}"),
    }
    was_in_time(&probe, 2, since, budget).await;
    drop(caller);
    let told = service.stop().await;
    let deadline = ("order".to_owned(), Some(Cause::Deadline));
    assert_eq!(told.endings(), [deadline.clone(), deadline]);
}

async fn was_in_time(probe: &Probe, nth: usize, since: tokio::time::Instant, budget: Duration) {
    let end = probe.ended(nth).await.unwrap();
    assert_eq!(end.how, Ended::Dropped);
    let after = end.at - since;
    assert!(after >= budget - ms(50) && after <= budget + NOTICED, "ended {after:?} after, of {budget:?}");
}

#[tokio::test]
async fn v14_a_response_that_stalls_after_its_head() {
    is_cut_off("/stalls", BUDGET, 0).await;
}

#[tokio::test]
async fn v14_a_response_that_stalls_in_its_body() {
    is_cut_off("/stalls-later", BUDGET, 0).await;
}

#[tokio::test]
async fn x3_a_response_that_trickles_a_byte_a_second() {
    is_cut_off("/trickles", ms(2_300), 1).await;
}

#[tokio::test]
async fn x3_a_producer_that_is_always_ready() {
    is_cut_off("/floods", BUDGET, 1).await;
}

#[tokio::test]
async fn x3_a_producer_that_is_always_ready_with_large_frames() {
    is_cut_off("/floods-in-large-frames", ms(100), 1).await; // in which it can give hundreds of megabytes
}

/// The body of a call, passed on: it stalls or trickles below us, and the peer sees us leave.
#[tokio::test]
async fn x3_the_body_of_a_call_that_is_passed_on() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let peers = [
            peer::stall_after_head(protocol).unwrap(),
            peer::stall_mid_body(protocol).unwrap(),
            peer::trickle(protocol, ms(50)).unwrap(),
        ];
        for peer in peers {
            let client = client(protocol, &peer);
            let app = Router::new().route("/pass-on", any(pass_on)).with_state(client);
            let service = Service::of(app, BUDGET).await;
            let since = now();
            match Caller::h1(service.addr).get("/pass-on").answer().await.unwrap() {
                H1Outcome::Truncated { .. } | H1Outcome::NoAnswer(_) => {}
                other => panic!("{protocol:?}: {other:?}"),
            }
            let left = peer.caller_left().await.unwrap();
            assert!(left.at - since <= BUDGET + NOTICED, "{:?}", left.at - since);
            match (protocol, left.how) {
                (Protocol::Http1, _) => {}
                (Protocol::Http2, how) => assert_eq!(how, Leaving::StreamReset(Reason::CANCEL)),
            }
            let told = service.stop().await;
            assert_eq!(told.endings(), [("order".to_owned(), Some(Cause::Deadline))]);
        }
    }
}

fn client(protocol: Protocol, peer: &Peer) -> Client {
    let client = Client::builder("inventory", peer.url());
    let client = if protocol == Protocol::Http2 { client.http2_only() } else { client };
    client.build().unwrap()
}

async fn pass_on(State(client): State<Client>) -> Result<AxumBody, Problem> {
    Ok(AxumBody::new(client.get("/stock").await?.into_body()))
}

// === Uploads ===

/// `/read` reads all of its request's body; `/ignore` never looks at it.
fn uploads(probe: &Probe) -> Router {
    let (reads, ignores) = (probe.clone(), probe.clone());
    let read = move |Op(_op): Op, request: Request| async move {
        let guard = reads.enter();
        let length = axum::body::to_bytes(request.into_body(), usize::MAX).await.map_or(0, |bytes| bytes.len());
        guard.finish();
        length.to_string()
    };
    let ignore = move |_unread: Request| async move { ignores.never().await };
    Router::new().route("/read", any(read)).route("/ignore", any(ignore))
}

#[track_caller]
fn h1_got(outcome: &H1Outcome, want: u16) {
    assert!(matches!(outcome, H1Outcome::Complete { status, .. } if *status == want), "{want} wanted: {outcome:?}");
}

#[track_caller]
fn h2_got(outcome: &H2Outcome, want: u16) {
    assert!(matches!(outcome, H2Outcome::Complete { status, .. } if *status == want), "{want} wanted: {outcome:?}");
}

/// The handler waits for a body that does not come: that is the caller's doing (contract section 5).
#[tokio::test]
async fn x9_an_upload_that_trickles_is_answered_with_408_when_the_handler_waits_for_it() {
    let probe = Probe::new();
    let service = Service::of(uploads(&probe), BUDGET).await;
    let since = now();
    let sent = Caller::h1(service.addr).post("/read", "").send(How::TricklesUpload(ms(20))).await.unwrap();
    h1_got(&sent.answer().await, 408);
    let caller = Caller::h2(service.addr).connect().await.unwrap();
    let call = caller.post("/read", "begun").unfinished().send().await.unwrap();
    h2_got(&call.answer_while_trickling(ms(20)).await, 408);
    assert!(now() - since <= 2 * (BUDGET + NOTICED), "{:?}", now() - since);
    assert_eq!(probe.running(), 0);
    drop(caller);
    let told = service.stop().await;
    assert!(told.endings().iter().all(|(_, cause)| *cause == Some(Cause::Deadline)), "{:?}", told.endings());
}

#[tokio::test]
async fn x9_a_504_reaches_a_caller_that_uploads_little_by_little() {
    let probe = Probe::new();
    let service = Service::of(uploads(&probe), BUDGET).await;
    let sent = Caller::h1(service.addr).post("/ignore", "").send(How::TricklesUpload(ms(20))).await.unwrap();
    h1_got(&sent.answer().await, 504);
    let caller = Caller::h2(service.addr).connect().await.unwrap();
    let call = caller.post("/ignore", "begun").unfinished().send().await.unwrap();
    h2_got(&call.answer_while_trickling(ms(20)).await, 504);
    assert_eq!(probe.running(), 0);
    drop(caller);
    service.stop().await;
}

/// Sends all of its upload before it reads a word, as many clients do, and gives up when it cannot send.
async fn uploads_then_reads(addr: SocketAddr, target: &str, length: usize) -> io::Result<String> {
    let mut socket = TcpStream::connect(addr).await?;
    socket
        .write_all(format!("POST {target} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n").as_bytes())
        .await?;
    let piece = vec![b'x'; 64 * 1024];
    let mut left = length;
    while left > 0 {
        let n = left.min(piece.len());
        socket.write_all(&piece[..n]).await?;
        left -= n;
    }
    let mut answer = Vec::new();
    // The connection is kept where all of the upload was taken: the problem document tells its own end.
    while !answer.ends_with(b"}") {
        if socket.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test]
async fn x9_a_504_reaches_a_caller_that_uploads_8_mib_before_it_reads() {
    let probe = Probe::new();
    let service = Service::of(uploads(&probe), BUDGET).await;
    for length in [10, 50_000, 8 << 20] {
        let answer = timeout(PATIENCE, uploads_then_reads(service.addr, "/ignore", length)).await.expect("an end");
        let answer = answer.unwrap_or_else(|error| panic!("{length} bytes: {error}"));
        assert!(answer.starts_with("HTTP/1.1 504"), "{length} bytes: {answer}");
        let sent = Caller::h1(service.addr).post("/ignore", "").send(How::WithUnreadUpload(length)).await.unwrap();
        h1_got(&sent.answer().await, 504);
    }
    let caller = Caller::h2(service.addr).connect().await.unwrap();
    for length in [10, 50_000, 8 << 20] {
        let call = caller.post("/ignore", vec![b'x'; length]).send().await.unwrap();
        h2_got(&call.answer().await, 504);
    }
    assert_eq!(probe.running(), 0);
    drop(caller);
    service.stop().await;
}

// === The naive way ===

/// tower-http's `TimeoutLayer` under `axum::serve`: the head is bounded, what follows it is not.
#[tokio::test]
async fn naive_a_timeout_layer_leaves_the_body_unbounded() {
    let probe = Probe::new();
    let (trickles, stalls, hangs) = (probe.clone(), probe.clone(), probe.clone());
    let app = Router::new()
        .route("/trickles", any(move || async move { trickle(trickles, 0, ms(50)) }))
        .route("/stalls", any(move || async move { trickle(stalls, 100, PATIENCE) }))
        .route("/hangs", any(move || async move { hangs.never().await }))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, ms(200)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = tokio::spawn(axum::serve(listener, app).into_future());

    h1_got(&Caller::h1(addr).get("/hangs").answer().await.unwrap(), 504);
    assert_eq!(probe.running(), 0, "the head is bounded");
    let mut readers = Vec::new();
    for target in ["/trickles", "/stalls"] {
        let sent = Caller::h1(addr).get(target).send(How::Close).await.unwrap();
        readers.push(tokio::spawn(sent.answer_within(ms(1_000))));
    }
    tokio::time::sleep(ms(800)).await;
    assert_eq!(probe.running(), 2, "four times the limit, and both bodies go on");
    for reader in readers {
        let outcome = reader.await.unwrap();
        assert!(matches!(outcome, H1Outcome::Unfinished { status: Some(_), .. }), "{outcome:?}");
    }
    server.abort();
}
