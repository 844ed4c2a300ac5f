//! What goes through as it came, and what does not.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use oneclock_core::ingress::Coverage;
use oneclock_test::caller::Caller;
use oneclock_test::{Protocol, grpc, peer};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::common::{
    AMPLE, BOTH, Upstream, address, body, config, config_with, loopback, ms, start, text, told, whole_h1, whole_h2,
};

#[tokio::test]
async fn a_get_and_a_post_go_through_over_every_pair_of_protocols() {
    let upstream = Upstream::of(|request| async {
        let (head, upload) = request.into_parts();
        let upload = upload.collect().await.expect("an upload").to_bytes();
        let said = format!("{} {} {}", head.method, head.uri.path_and_query().expect("a path"), upload.len());
        Response::builder().status(201).header("x-said", said).body(body(Full::from(upload))).expect("an answer")
    })
    .await;
    for protocol in BOTH {
        let proxy = start(config(upstream.addr, protocol)).await;
        let addr = address(&proxy);
        let big = "x".repeat(300_000);

        let got = Caller::h1(addr).get("/cart?id=7").answer().await.expect("a connection");
        let (status, headers, body) = whole_h1(got);
        assert_eq!(
            (status.as_u16(), text(&headers, "x-said"), body.len()),
            (201, "GET /cart?id=7 0", 0),
            "{protocol:?}"
        );
        let got = Caller::h1(addr).post("/cart", big.clone()).answer().await.expect("a connection");
        let (status, headers, body) = whole_h1(got);
        assert_eq!((status.as_u16(), text(&headers, "x-said"), body.len()), (201, "POST /cart 300000", 300_000));

        let caller = Caller::h2(addr).connect().await.expect("a connection");
        let got = caller.post("/cart", big).send().await.expect("sent").answer().await;
        let (status, headers, body, _) = whole_h2(got);
        assert_eq!((status.as_u16(), text(&headers, "x-said"), body.len()), (201, "POST /cart 300000", 300_000));
        proxy.shutdown().await;
    }
}

#[tokio::test]
async fn the_upstream_is_told_less_than_the_caller_gave_and_nothing_stale() {
    for protocol in BOTH {
        let upstream = peer::echo_headers(protocol).expect("a port");
        let proxy = start(config(upstream.addr(), protocol)).await;
        let call = Caller::h1(address(&proxy)).get("/stock/7").header("x-remaining-ms", "700");
        // Of a convention that this upstream does not understand: it would count from when it was written.
        let call = call.header("x-envoy-expected-rq-timeout-ms", "650").header("grpc-timeout", "9S");
        let (status, ..) = whole_h1(call.answer().await.expect("a connection"));
        assert_eq!(status, StatusCode::OK);
        let seen = upstream.await_request().await.expect("a request").headers;
        let told = told(&seen);
        assert!(told < 650 && told > 100, "{told}: the smallest of what was said, less what it took here");
        for stale in ["x-envoy-expected-rq-timeout-ms", "grpc-timeout"] {
            assert!(!seen.contains_key(stale), "{stale} in {seen:?}");
        }
        if protocol == Protocol::Http1 {
            assert_eq!(text(&seen, "host"), address(&proxy).to_string(), "the caller's");
        }
        assert_eq!(text(&seen, "x-forwarded-for"), "127.0.0.1");
        assert_eq!(text(&seen, "x-forwarded-proto"), "http");
        for none in ["via", "connection"] {
            assert!(!seen.contains_key(none), "{none} in {seen:?}");
        }
    }
}

#[tokio::test]
async fn a_call_of_grpc_is_told_in_grpcs_field_and_its_trailers_come_back() {
    let upstream = peer::grpc::echo_headers().expect("a port");
    let proxy = start(config(upstream.addr(), Protocol::Http2)).await;
    let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
    let call = caller.grpc("/shop.Pricing/Price", "cart 7").header("grpc-timeout", "800m");
    let (status, _, body, trailers) = whole_h2(call.send().await.expect("sent").answer().await);
    assert_eq!(status, StatusCode::OK);
    assert!(grpc::messages(&body).is_some());
    assert_eq!(text(&trailers.expect("trailers"), "grpc-status"), "0");
    let seen = upstream.await_request().await.expect("a request").headers;
    let told = text(&seen, "grpc-timeout");
    let (number, unit) = told.split_at(told.len() - 1);
    let number: u64 = number.parse().expect("a number");
    let nanos = match unit {
        "u" => number * 1_000,
        "n" => number,
        "m" => number * 1_000_000,
        other => panic!("unit {other}"),
    };
    assert!(nanos < 800_000_000, "{told}");
    assert_eq!(text(&seen, "te"), "trailers");
}

#[tokio::test]
async fn trailers_come_through_over_http1_too() {
    let upstream = Upstream::of(|_| async {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", "7".parse().expect("a value"));
        let frames = [Ok::<_, std::io::Error>(Frame::data(Bytes::from("whole"))), Ok(Frame::trailers(trailers))];
        let frames = StreamBody::new(futures_of(frames));
        Response::builder().header("trailer", "x-checksum").body(body(frames)).expect("an answer")
    })
    .await;
    for protocol in BOTH {
        let proxy = start(config(upstream.addr, protocol)).await;
        let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
        let call = caller.get("/file").header("te", "trailers").send().await.expect("sent");
        let (_, _, body, trailers) = whole_h2(call.answer().await);
        assert_eq!(
            (body, text(&trailers.expect("trailers"), "x-checksum")),
            (Bytes::from("whole"), "7"),
            "{protocol:?}"
        );
    }
}

/// Both ways: each piece of the upload is answered before the next one is sent.
#[tokio::test]
async fn bodies_stream_both_ways() {
    let upstream = Upstream::of(|request| async {
        let upload = request.into_body();
        Response::new(body(upload.map_frame(|frame| frame)))
    })
    .await;
    let proxy = start(config(upstream.addr, Protocol::Http2)).await;
    let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
    let mut call = caller.post("/echo", "first").unfinished().send().await.expect("sent");
    let (status, _) = timeout(AMPLE, call.head()).await.expect("in time").expect("a head");
    assert_eq!(status, StatusCode::OK);
    assert_eq!(timeout(AMPLE, call.data()).await.expect("in time").expect("data"), Some(Bytes::from("first")));
    call.upload("second", true).expect("open");
    assert_eq!(timeout(AMPLE, call.data()).await.expect("in time").expect("data"), Some(Bytes::from("second")));
    let (_, _, rest, _) = whole_h2(call.answer().await);
    assert_eq!(rest, "");
}

/// Contract S2: the budget covers the establishment of a declared stream, and its own clocks the rest.
#[tokio::test]
async fn a_declared_stream_outlives_its_budget_and_ends_when_its_caller_leaves() {
    for protocol in BOTH {
        let (send, receive) = mpsc::channel::<Bytes>(1);
        let receive = std::sync::Arc::new(std::sync::Mutex::new(Some(receive)));
        let upstream = Upstream::of(move |_| {
            let receive = receive.lock().expect("a lock").take().expect("asked once");
            async move { Response::new(body(StreamBody::new(Receiving(receive)))) }
        })
        .await;
        let config = config_with(upstream.addr, protocol, |route| {
            route.when_absent = ms(300);
            route.kind = Coverage::Streaming { idle: AMPLE, total: Duration::from_secs(60) };
        });
        let proxy = start(config).await;
        let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
        let mut call = caller.get("/events").send().await.expect("sent");
        send.send(Bytes::from("a")).await.expect("a stream");
        let (status, _) = call.head().await.expect("a head");
        assert_eq!((status, call.data().await.expect("data")), (StatusCode::OK, Some(Bytes::from("a"))));
        tokio::time::sleep(ms(600)).await; // well past its budget, which is what this is about
        send.send(Bytes::from("b")).await.expect("a stream");
        assert_eq!(call.data().await.expect("data"), Some(Bytes::from("b")), "{protocol:?}");
        call.reset(oneclock_test::Reason::CANCEL);
        timeout(AMPLE, send.closed()).await.expect("the upstream is cancelled with it");
        proxy.shutdown().await;
    }
}

#[tokio::test]
async fn what_no_route_takes_is_a_404_in_the_words_of_its_caller() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let config = config_with(upstream.addr(), Protocol::Http1, |route| {
        route.matches[0].path = oneclock_proxy::config::PathMatch::Prefix("/orders".into());
    });
    let proxy = start(config).await;
    let (status, headers, _) = whole_h1(Caller::h1(address(&proxy)).get("/orders-old").answer().await.expect("sent"));
    assert_eq!((status, text(&headers, "content-type")), (StatusCode::NOT_FOUND, "application/problem+json"));
    let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
    let call = caller.grpc("/shop.Pricing/Price", "cart 7").send().await.expect("sent");
    let (status, headers, ..) = whole_h2(call.answer().await);
    assert_eq!((status, text(&headers, "grpc-status")), (StatusCode::OK, "12"));
    let (status, ..) = whole_h1(Caller::h1(address(&proxy)).get("/orders/7").answer().await.expect("sent"));
    assert_eq!((status, upstream.requests()), (StatusCode::OK, 1));
}

/// An upstream that says these bytes, and what it was sent until it had its blank line and `until`.
async fn raw(says: &'static str, until: &'static str) -> (std::net::SocketAddr, tokio::task::JoinHandle<String>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind(loopback()).await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let served = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a connection");
        let mut asked = Vec::new();
        while !String::from_utf8_lossy(&asked).ends_with(until) {
            let byte = timeout(AMPLE, socket.read_u8()).await.expect("in time").expect("more");
            asked.push(byte);
        }
        socket.write_all(says.as_bytes()).await.expect("written");
        String::from_utf8(asked).expect("text")
    });
    (addr, served)
}

#[tokio::test]
async fn an_upstream_of_http_1_0_does_not_make_one_of_the_proxy() {
    let (addr, _served) = raw("HTTP/1.0 200 OK\r\nconnection: close\r\n\r\nold", "\r\n\r\n").await;
    let proxy = start(config(addr, Protocol::Http1)).await;
    let mut socket = tokio::net::TcpStream::connect(address(&proxy)).await.expect("a connection");
    let asked = b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut socket, asked).await.expect("sent");
    let mut head = [0; 15];
    tokio::io::AsyncReadExt::read_exact(&mut socket, &mut head).await.expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 200 OK");
}

/// Of a length that says one thing and chunks that say another, no two hops may believe different ones.
#[tokio::test]
async fn what_an_upload_is_is_said_once() {
    let (addr, served) = raw("HTTP/1.1 204 No Content\r\n\r\n", "0\r\n\r\n").await;
    let proxy = start(config(addr, Protocol::Http1)).await;
    let mut socket = tokio::net::TcpStream::connect(address(&proxy)).await.expect("a connection");
    let asked = b"POST / HTTP/1.1\r\nhost: shop\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n\
                  5\r\nwhole\r\n0\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut socket, asked).await.expect("sent");
    let mut head = [0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut socket, &mut head).await.expect("an answer");
    if &head == b"HTTP/1.1 204" {
        let asked = timeout(AMPLE, served).await.expect("in time").expect("a request");
        assert!(!asked.contains("content-length") && asked.ends_with("5\r\nwhole\r\n0\r\n\r\n"), "{asked}");
    } else {
        assert_eq!(&head, b"HTTP/1.1 400");
    }
}

#[tokio::test]
async fn a_request_for_two_hosts_is_for_none() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let proxy = start(config(upstream.addr(), Protocol::Http1)).await;
    let call = Caller::h1(address(&proxy)).get("/").header("host", "another"); // beside the caller's own
    let (status, ..) = whole_h1(call.answer().await.expect("sent"));
    assert_eq!((status, upstream.requests()), (StatusCode::BAD_REQUEST, 0));
}

/// Frames that are there already.
fn futures_of<T: Unpin, const N: usize>(items: [T; N]) -> impl futures_core::Stream<Item = T> + Unpin {
    struct Items<T>(std::collections::VecDeque<T>);
    impl<T: Unpin> futures_core::Stream for Items<T> {
        type Item = T;
        fn poll_next(mut self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Option<T>> {
            std::task::Poll::Ready(self.0.pop_front())
        }
    }
    Items(items.into())
}

struct Receiving(mpsc::Receiver<Bytes>);

impl futures_core::Stream for Receiving {
    type Item = Result<Frame<Bytes>, std::io::Error>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}
