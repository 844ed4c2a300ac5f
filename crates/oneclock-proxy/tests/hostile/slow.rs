//! Heads and bodies that come a byte at a time, on many connections at once.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use oneclock_http::serve;
use oneclock_test::{Protocol, peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::frames::{HEADERS, block, frame, get, hello};
use crate::process::{Alone, Bystander, now};
use crate::{AMPLE, ms};

/// How many do it at once.
const SLOW: usize = 500;

/// How often a byte comes.
const EVERY: Duration = ms(500);

/// Sends `first`, then a byte now and then until the other side has had enough; gives what it said.
async fn trickles(addr: SocketAddr, first: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(addr).await.expect("a connection");
    let mut got = Vec::new();
    if socket.write_all(first).await.is_err() {
        return got;
    }
    loop {
        match timeout(EVERY, socket.read_buf(&mut got)).await {
            Ok(Ok(0) | Err(_)) => return got,
            Ok(Ok(_)) => {}
            Err(_elapsed) => {
                if socket.write_all(b"x").await.is_err() {
                    return got;
                }
            }
        }
    }
}

/// The status that many of them got, and how many got none.
async fn all_trickle(addr: SocketAddr, first: &'static [u8]) -> (Vec<u16>, usize) {
    let mut callers = JoinSet::new();
    for _ in 0..SLOW {
        callers.spawn(timeout(AMPLE * 2, async move { trickles(addr, first).await }));
    }
    let (mut statuses, mut none) = (Vec::new(), 0);
    for got in callers.join_all().await {
        let got = got.expect("it is ended");
        match crate::raw::answers(&got).first() {
            Some(answer) => statuses.push(answer.status),
            None => none += 1,
        }
    }
    statuses.sort_unstable();
    statuses.dedup();
    (statuses, none)
}

/// Every one of them is ended by the limit of a head, ten seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn slow_heads_are_cut_off_and_others_are_served_meanwhile() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let proxy = Alone::start(upstream.addr(), 2 * SLOW, AMPLE).await;
    let (bystander, before, since) = (Bystander::start(proxy.addr).await, proxy.memory(), now());
    let (statuses, none) = all_trickle(proxy.addr, b"GET /slow HTTP/1.1\r\nhost: shop\r\nx-a: ").await;
    let (took, after, served) = (now() - since, proxy.memory(), bystander.stop().await);
    println!("{SLOW} slow heads: {none} cut off after {took:.1?} at most; memory: {before}, {after}; {served}");
    assert_eq!((statuses, none), (Vec::new(), SLOW), "a head that is not whole is not answered");
    served.assert_all();
    assert!(after.peak < before.now + 32 * 1024, "{before}, {after}");
}

/// With fewer places than there are of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn slow_heads_on_every_place_make_room_for_others() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let proxy = Alone::start(upstream.addr(), SLOW / 5, AMPLE).await;
    let bystander = Bystander::start(proxy.addr).await;
    let (statuses, none) = all_trickle(proxy.addr, b"GET /slow HTTP/1.1\r\nhost: shop\r\nx-a: ").await;
    let served = bystander.stop().await;
    println!("{SLOW} slow heads on {} places: {none} cut off; {served}", SLOW / 5);
    assert_eq!((statuses, none), (Vec::new(), SLOW));
    served.assert_all();
}

/// Every one of them is ended by its budget, a second, and told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn slow_bodies_end_with_their_budget_and_others_are_served_meanwhile() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let proxy = Alone::start(upstream.addr(), 2 * SLOW, AMPLE).await;
    let (bystander, before, since) = (Bystander::start(proxy.addr).await, proxy.memory(), now());
    let head = b"POST /slow HTTP/1.1\r\nhost: shop\r\nx-remaining-ms: 1000\r\ncontent-length: 1000000\r\n\r\nx";
    let (statuses, none) = all_trickle(proxy.addr, head).await;
    let (took, after, served) = (now() - since, proxy.memory(), bystander.stop().await);
    println!(
        "{SLOW} slow bodies: answered {statuses:?}, {none} cut off, after {took:.1?} at most; memory: {before}, {after}; {served}"
    );
    // Nothing of them is kept: those that got as far as the upstream are cancelled there.
    let cancelled = upstream.requests() - served.answered();
    upstream.callers_left(cancelled).await.expect("every call is cancelled");
    assert!(statuses.iter().all(|status| [408, 503, 504].contains(status)), "{statuses:?}");
    served.assert_all();
    assert!(after.peak < before.now + 32 * 1024, "{before}, {after}");
}

/// HTTP/2 connections that do not get as far as a head: the idle limit of the listener ends them. The proxy's is 75 s; here is
/// the same accept loop with less.
#[tokio::test]
async fn half_a_head_on_http2_ends_with_the_idle_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let service = tower::service_fn(|_: Request<Incoming>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let server = serve(listener, service).idle(ms(500)).header_read_timeout(ms(500)).linger(ms(100), 1024);
    let _served = AbortOnDropHandle::new(tokio::spawn(async move {
        let _ = server.await;
    }));
    let half = frame(HEADERS, 0, 1, &block(&[(b":method", b"GET")]));
    let whole = get(1, "/", crate::frames::END_STREAM);
    for (name, bytes) in [
        ("a preface", hello(&[])),
        ("half a preface", hello(&[])[..12].to_vec()),
        ("a head without its continuation", [hello(&[]), half].concat()),
        ("half a frame", [hello(&[]), whole[..20].to_vec()].concat()),
    ] {
        let since = now();
        let mut socket = TcpStream::connect(addr).await.expect("a connection");
        socket.write_all(&bytes).await.expect("written");
        let mut got = Vec::new();
        let ended = timeout(AMPLE, socket.read_to_end(&mut got)).await;
        println!("{name}: ended after {:.1?}", now() - since);
        ended.unwrap_or_else(|_| panic!("{name}: not ended")).ok(); // a reset is an end
    }
}
