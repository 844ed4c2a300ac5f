//! What ends a request, and who hears of it.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use oneclock_core::ingress::Coverage;
use oneclock_proxy::config::UpstreamProtocol;
use oneclock_test::caller::{Caller, H2Outcome, How};
use oneclock_test::peer::{self, Leaving, ResetAt};
use oneclock_test::{Baseline, Probe, Protocol, Reason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::common::{
    AMPLE, BOTH, Upstream, address, body, config, config_with, loopback, ms, start, text, told, whole_h1, whole_h2,
};

#[tokio::test]
async fn a_caller_that_leaves_takes_the_upstream_with_it() {
    for protocol in BOTH {
        let upstream = peer::stall(protocol).expect("a port");
        let proxy = start(config(upstream.addr(), protocol)).await;
        let call = Caller::h1(address(&proxy)).get("/stock").send(How::Close).await.expect("sent");
        upstream.await_request().await.expect("a request");
        call.leave().await.expect("left");
        let left = upstream.caller_left().await.expect("it is told").how;
        let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
        let call = caller.get("/stock").send().await.expect("sent");
        upstream.await_requests(2).await.expect("a request");
        call.reset(Reason::CANCEL);
        let left_again = upstream.callers_left(2).await.expect("it is told").how;
        match protocol {
            Protocol::Http1 => assert_eq!((left, left_again), (Leaving::Closed, Leaving::Closed)),
            Protocol::Http2 => {
                let cancelled = Leaving::StreamReset(Reason::CANCEL);
                assert_eq!((left, left_again), (cancelled, cancelled));
            }
        }
    }
}

#[tokio::test]
async fn a_caller_that_leaves_in_the_middle_of_its_answer_takes_the_upstream_with_it() {
    for protocol in BOTH {
        let upstream = peer::stall_mid_body(protocol).expect("a port");
        let proxy = start(config(upstream.addr(), protocol)).await;
        let call = Caller::h1(address(&proxy)).get("/stock").send(How::AfterHead).await.expect("sent");
        call.leave().await.expect("left");
        upstream.caller_left().await.expect("it is told");
    }
}

/// A stream has its connection for itself; the rules of its establishment are those of any call.
#[tokio::test]
async fn the_establishment_of_a_stream_is_cancelled_and_cut_off_like_a_call() {
    for protocol in BOTH {
        let upstream = peer::stall(protocol).expect("a port");
        let proxy = start(config_with(upstream.addr(), protocol, |route| {
            route.kind = Coverage::Streaming { idle: AMPLE, total: AMPLE };
        }))
        .await;
        let call = Caller::h1(address(&proxy)).get("/events").send(How::Close).await.expect("sent");
        assert!(told(&upstream.await_request().await.expect("a request").headers) <= 2_000, "when_absent");
        call.leave().await.expect("left");
        let left = upstream.caller_left().await.expect("it is told").how;
        let call = Caller::h1(address(&proxy)).get("/events").header("x-remaining-ms", "300");
        let (status, headers, _) = whole_h1(call.answer().await.expect("sent"));
        assert_eq!((status, text(&headers, "oneclock-reason")), (StatusCode::GATEWAY_TIMEOUT, "deadline"));
        assert!(told(&upstream.await_requests(2).await.expect("a request").headers) < 300);
        let left_again = upstream.callers_left(2).await.expect("it is told").how;
        let want = match protocol {
            Protocol::Http1 => Leaving::Closed,
            Protocol::Http2 => Leaving::StreamReset(Reason::CANCEL),
        };
        assert_eq!((left, left_again), (want, want));
    }
    let refusing = peer::refuse().expect("a port");
    let proxy = start(config_with(refusing.addr(), Protocol::Http1, |route| {
        route.kind = Coverage::Streaming { idle: AMPLE, total: AMPLE };
    }))
    .await;
    let (status, ..) = whole_h1(Caller::h1(address(&proxy)).get("/events").answer().await.expect("sent"));
    assert_eq!(status, StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn a_stalled_upstream_ends_at_the_deadline() {
    for protocol in BOTH {
        let upstream = peer::stall(protocol).expect("a port");
        let proxy = start(config(upstream.addr(), protocol)).await;
        let call = Caller::h1(address(&proxy)).get("/stock").header("x-remaining-ms", "300");
        let (status, headers, _) = whole_h1(call.answer().await.expect("sent"));
        assert_eq!((status, text(&headers, "oneclock-reason")), (StatusCode::GATEWAY_TIMEOUT, "deadline"));
        assert_eq!(text(&headers, "content-type"), "application/problem+json");
        upstream.caller_left().await.expect("it is told");
    }
}

/// Contract V13, X5.
#[tokio::test]
async fn a_stalled_upstream_of_grpc_ends_in_grpcs_words() {
    let upstream = peer::grpc::stall().expect("a port");
    let mut config = config(upstream.addr(), Protocol::Http2);
    config.upstreams.values_mut().for_each(|upstream| upstream.protocol = UpstreamProtocol::Auto);
    let proxy = start(config).await;
    let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
    let call = caller.grpc("/shop.Pricing/Price", "cart 7").header("grpc-timeout", "300m").send().await.expect("sent");
    let (status, headers, ..) = whole_h2(call.answer().await);
    assert_eq!((status, text(&headers, "grpc-status")), (StatusCode::OK, "4"));
    assert_eq!(upstream.caller_left().await.expect("it is told").how, Leaving::StreamReset(Reason::CANCEL));
}

/// The budget runs from when the head was read, whatever the upload does (most proxies begin behind it).
#[tokio::test]
async fn a_slow_upload_spends_the_same_budget() {
    for protocol in BOTH {
        let upstream = peer::slow(protocol, ms(60_000)).expect("a port");
        let proxy = start(config(upstream.addr(), protocol)).await;
        let call = Caller::h1(address(&proxy)).post("/cart", "").header("x-remaining-ms", "400");
        let sent = call.send(How::TricklesUpload(ms(20))).await.expect("sent");
        let (status, ..) = whole_h1(sent.answer().await);
        // The upload was what it waited for (contract section 5), or the upstream.
        assert!([408, 504].contains(&status.as_u16()), "{status}");
        let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
        let call = caller.post("/cart", "whole").header("x-remaining-ms", "400").send().await.expect("sent");
        let (status, ..) = whole_h2(call.answer().await);
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    }
}

/// The rest of what it sends is thrown away, and its next request would be, too (RFC 9112 section 9.6).
#[tokio::test]
async fn whoever_is_answered_in_the_middle_of_its_upload_is_told_that_its_connection_ends() {
    let refusing = peer::refuse().expect("a port");
    let proxy = start(config(refusing.addr(), Protocol::Http1)).await;
    for (sent, rest, is_last) in [("item=7", "", false), ("item", "=7", true)] {
        let mut caller = TcpStream::connect(address(&proxy)).await.expect("a connection");
        let asks = format!("POST /cart HTTP/1.1\r\nhost: shop\r\ncontent-length: 6\r\n\r\n{sent}");
        caller.write_all(asks.as_bytes()).await.expect("sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(caller.read_u8().await.expect("an answer"));
        }
        let head = String::from_utf8(head).expect("text").to_lowercase();
        assert!(head.starts_with("http/1.1 502"), "{head}");
        assert_eq!(head.contains("\r\nconnection: close\r\n"), is_last, "{head}");
        caller.write_all(rest.as_bytes()).await.expect("it lingers");
    }
}

#[tokio::test]
async fn what_is_expired_on_arrival_never_reaches_the_upstream() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let proxy = start(config(upstream.addr(), Protocol::Http1)).await;
    // A busy machine may take the 3 ms for itself.
    let reasons: [(&str, &[&str]); 2] =
        [("0", &["expired_before_start"]), ("3", &["insufficient_budget", "expired_before_start"])];
    for (left, reasons) in reasons {
        let call = Caller::h1(address(&proxy)).get("/stock").header("x-remaining-ms", left);
        let (status, headers, _) = whole_h1(call.answer().await.expect("sent"));
        let reason = text(&headers, "oneclock-reason");
        assert!(status == StatusCode::GATEWAY_TIMEOUT && reasons.contains(&reason), "{status} {reason}");
    }
    assert_eq!((upstream.requests(), upstream.connections()), (0, 0));
}

#[tokio::test]
async fn an_upstream_that_fails_is_a_problem_and_never_a_success() {
    let refusing = peer::refuse().expect("a port");
    let resetting = peer::reset(ResetAt::RequestRead).expect("a port");
    for upstream in [refusing.addr(), resetting.addr()] {
        let proxy = start(config(upstream, Protocol::Http1)).await;
        let (status, headers, _) = whole_h1(Caller::h1(address(&proxy)).get("/stock").answer().await.expect("sent"));
        assert_eq!((status, text(&headers, "content-type")), (StatusCode::BAD_GATEWAY, "application/problem+json"));
    }
    let truncating = peer::reset(ResetAt::MidBody).expect("a port");
    let proxy = start(config(truncating.addr(), Protocol::Http1)).await;
    let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
    let outcome = caller.get("/stock").send().await.expect("sent").answer().await;
    assert!(matches!(outcome, H2Outcome::Reset { .. }), "{outcome:?}");
}

/// Contract V12.
#[tokio::test]
async fn two_proxies_in_a_row_never_lengthen() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let second = start(config(upstream.addr(), Protocol::Http1)).await;
    let first = start(config(address(&second), Protocol::Http2)).await;
    let (mut least, mut most) = (u64::MAX, 0);
    for (asked, nth) in [(900, 1), (2_500, 2), (9_000, 3)] {
        let call = Caller::h1(address(&first)).get("/stock").header("x-remaining-ms", asked.to_string());
        whole_h1(call.answer().await.expect("sent"));
        let told = told(&upstream.await_requests(nth).await.expect("a request").headers);
        assert!(told < asked, "{told} of {asked}");
        (least, most) = (least.min(asked - told), most.max(asked - told));
    }
    assert!(least >= 1, "each hop rounds down and takes its time: {least} to {most} ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_at_once_each_have_their_own_budget() {
    let upstream = Upstream::of(|request| async move {
        let told = request.headers()["x-remaining-ms"].clone();
        Response::builder().header("x-told", told).body(body(Full::<Bytes>::default())).expect("an answer")
    })
    .await;
    for protocol in BOTH {
        let proxy = start(config(upstream.addr, protocol)).await;
        let addr = address(&proxy);
        let mut calls = JoinSet::new();
        for nth in 0..200_u64 {
            calls.spawn(async move {
                let given = 4_000 + nth * 20; // each some way from its neighbour's
                let call = Caller::h1(addr).get("/").header("x-remaining-ms", given.to_string());
                let (status, headers, _) = whole_h1(call.answer().await.expect("sent"));
                assert_eq!(status, StatusCode::OK);
                let told: u64 = text(&headers, "x-told").parse().expect("a number");
                assert!(told < given && told + 3_500 > given, "{told} of {given}");
                told
            });
        }
        let told = calls.join_all().await;
        assert_eq!(told.len(), 200);
    }
}

/// Contract X10: live work ends at its own deadline, however long the grace is.
#[tokio::test]
async fn a_drain_takes_as_long_as_the_longest_deadline_and_no_longer() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let mut file = config(upstream.addr(), Protocol::Http1);
    file.shutdown_grace = ms(60_000);
    let proxy = start(file).await;
    let call = Caller::h1(address(&proxy)).get("/stock").header("x-remaining-ms", "700");
    let call = call.send(How::Close).await.expect("sent");
    upstream.await_request().await.expect("a request");
    let drained = proxy.shutdown().await;
    assert!(drained.grace <= ms(700) && drained.grace > ms(0), "{drained:?}");
    let (status, headers, _) = whole_h1(call.answer().await);
    assert_eq!((status, text(&headers, "oneclock-reason")), (StatusCode::GATEWAY_TIMEOUT, "deadline"));
}

#[tokio::test]
async fn a_grace_that_is_shorter_ends_what_lives() {
    let upstream = peer::stall(Protocol::Http1).expect("a port");
    let mut file = config_with(upstream.addr(), Protocol::Http1, |route| route.ceiling = ms(60_000));
    file.shutdown_grace = ms(200);
    let proxy = start(file).await;
    let call = Caller::h1(address(&proxy)).get("/stock").header("x-remaining-ms", "50000");
    let call = call.send(How::Close).await.expect("sent");
    upstream.await_request().await.expect("a request");
    let drained = proxy.shutdown().await;
    assert_eq!(drained.grace, ms(200));
    let (status, headers, _) = whole_h1(call.answer().await);
    assert_eq!((status, text(&headers, "oneclock-reason")), (StatusCode::SERVICE_UNAVAILABLE, "shutdown_midway"));
}

/// A handler in an upstream of ours really stops.
#[tokio::test]
async fn the_work_behind_it_stops_when_the_caller_leaves() {
    let probe = Probe::new();
    let work = probe.clone();
    let upstream = Upstream::of(move |_| {
        let work = work.clone();
        async move {
            work.never().await;
            unreachable!("it never ends by itself")
        }
    })
    .await;
    let proxy = start(config(upstream.addr, Protocol::Http2)).await;
    let call = Caller::h1(address(&proxy)).get("/report").send(How::Reset).await.expect("sent");
    probe.started(1).await.expect("it began");
    call.leave().await.expect("left");
    probe.ended(1).await.expect("it was dropped");
    assert_eq!(probe.running(), 0);
}

/// Its socket is full, so that not even a goodbye can be written to it.
#[tokio::test]
async fn a_stream_leaves_nothing_behind_at_an_upstream_that_stops_reading() {
    const UPLOAD: usize = 64 << 20; // the kernels do not take all of that
    // SETTINGS with the largest window for a stream, and the largest WINDOW_UPDATE for all of them.
    const WINDOWS: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff\0\0\x04\x08\0\0\0\0\0\x7f\xff\0\0";
    let listener = TcpSocket::new_v4().expect("a socket");
    listener.set_recv_buffer_size(8 * 1_024).expect("a smaller buffer");
    listener.bind(loopback()).expect("a port");
    let listener = listener.listen(8).expect("it listens");
    let addr = listener.local_addr().expect("an address");
    let upstream = AbortOnDropHandle::new(tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a connection");
        socket.write_all(WINDOWS).await.expect("written");
        std::future::pending::<()>().await; // the socket stays open
    }));
    let before = Baseline::tasks_only();
    let file = config_with(addr, Protocol::Http2, |route| {
        route.kind = Coverage::Streaming { idle: AMPLE, total: AMPLE };
    });
    let proxy = start(file).await;
    let mut caller = TcpStream::connect(address(&proxy)).await.expect("a connection");
    let head =
        format!("POST /events HTTP/1.1\r\nx-remaining-ms: 1500\r\nhost: shop\r\ncontent-length: {UPLOAD}\r\n\r\n");
    let (mut read, mut write) = caller.split();
    let uploads = async {
        write.write_all(head.as_bytes()).await?;
        write.write_all(&vec![0; UPLOAD]).await
    };
    tokio::select! {
        uploaded = uploads => assert!(uploaded.is_err(), "somebody took all of it"),
        _ = read.read_u8() => {} // at the deadline of its establishment
    }
    drop(caller);
    proxy.shutdown().await;
    assert!(!upstream.is_finished());
    before.assert_back().await;
}
