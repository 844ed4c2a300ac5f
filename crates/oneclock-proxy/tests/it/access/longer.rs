//! What the line of a call of gRPC and of a stream says, whose end is not in their head.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body_util::{BodyExt, Full};
use oneclock_core::ingress::Coverage;
use oneclock_proxy::config::{Config, UpstreamProtocol};
use oneclock_test::caller::{Caller, How};
use oneclock_test::peer::{self, StreamResetAt};
use oneclock_test::{Protocol, Reason};
use serde_json::json;

use super::{Logged, millis, says};
use crate::common::{AMPLE, Upstream, body, config, config_with, ms, text, whole_h2};

/// Contract V13.
#[tokio::test]
async fn a_call_of_grpc_has_its_own_status() {
    let upstream = peer::grpc::stall().expect("a port");
    let logged = Logged::with(grpc(upstream.addr()), |_| {}).await;
    let caller = Caller::h2(logged.addr()).connect().await.expect("a connection");
    let call = caller.grpc("/shop.Pricing/Price", "cart 7").header("grpc-timeout", "300m").send().await.expect("sent");
    let (_, headers, ..) = whole_h2(call.answer().await);
    assert_eq!(text(&headers, "grpc-status"), "4");
    let line = logged.line().await;
    says(
        &line,
        [
            ("protocol", json!("grpc")),
            ("path", json!("/shop.Pricing/Price")),
            ("status", json!(200)),
            ("grpc_status", json!(4)),
            ("outcome", json!("deadline")),
            ("stage", json!("wait")),
            ("source", json!("grpc-timeout")),
        ],
    );

    // Cut off between two messages: the status is in the trailers that the proxy wrote.
    let upstream = peer::grpc::trickle(ms(50)).expect("a port");
    let logged = Logged::with(grpc(upstream.addr()), |_| {}).await;
    let caller = Caller::h2(logged.addr()).connect().await.expect("a connection");
    let call = caller.grpc("/shop.Pricing/Prices", "cart 7").header("grpc-timeout", "300m").send().await.expect("sent");
    let _cut_off = call.answer().await;
    let cut_off = [("status", json!(200)), ("grpc_status", json!(4)), ("stage", json!("body"))];
    says(&logged.line().await, cut_off);

    // Broken off there: the one that the code of the reset stands for.
    let upstream = peer::grpc::reset_stream(StreamResetAt::MidBody, Reason::ENHANCE_YOUR_CALM).expect("a port");
    let logged = Logged::with(grpc(upstream.addr()), |_| {}).await;
    let caller = Caller::h2(logged.addr()).connect().await.expect("a connection");
    let call = caller.grpc("/shop.Pricing/Price", "cart 7").send().await.expect("sent");
    let (.., trailers) = whole_h2(call.answer().await);
    assert_eq!(text(&trailers.expect("trailers"), "grpc-status"), "8");
    let broke_off = [("status", json!(200)), ("grpc_status", json!(8)), ("outcome", json!("call_failed"))];
    says(&logged.line().await, broke_off);

    // What the upstream says behind its messages.
    let upstream = Upstream::of(|_| async {
        let mut trailers = HeaderMap::new();
        trailers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from_static("9"));
        let message = Full::from(Bytes::from_static(b"\0\0\0\0\x01x")).with_trailers(async { Some(Ok(trailers)) });
        Response::builder().header("content-type", "application/grpc").body(body(message)).expect("an answer")
    })
    .await;
    let logged = Logged::with(grpc(upstream.addr), |_| {}).await;
    let caller = Caller::h2(logged.addr()).connect().await.expect("a connection");
    let call = caller.grpc("/shop.Pricing/Price", "cart 7").send().await.expect("sent");
    let (.., trailers) = whole_h2(call.answer().await);
    assert_eq!(text(&trailers.expect("trailers"), "grpc-status"), "9");
    says(&logged.line().await, [("grpc_status", json!(9)), ("outcome", json!("ok")), ("bytes", json!(6))]);
}

fn grpc(upstream: SocketAddr) -> Config {
    let mut config = config(upstream, Protocol::Http2);
    config.upstreams.values_mut().for_each(|upstream| upstream.protocol = UpstreamProtocol::Auto);
    config
}

#[tokio::test]
async fn a_stream_has_one_line_at_its_end() {
    for (idle, total, leaves, outcome) in [(AMPLE, ms(300), false, "cap"), (AMPLE, AMPLE, true, "caller_gone")] {
        let upstream = peer::trickle(Protocol::Http1, ms(20)).expect("a port");
        let file = config_with(upstream.addr(), Protocol::Http1, |route| {
            route.kind = Coverage::Streaming { idle, total };
        });
        let logged = Logged::with(file, |_| {}).await;
        let call = Caller::h1(logged.addr()).get("/events").header("x-remaining-ms", "900");
        if leaves {
            call.send(How::AfterHead).await.expect("sent").leave().await.expect("left");
            upstream.caller_left().await.expect("it is told");
        } else {
            let _cut_off = call.answer().await.expect("sent");
        }
        let line = logged.line().await;
        says(
            &line,
            [
                ("status", json!(200)),
                ("outcome", json!(outcome)),
                ("stage", json!("body")),
                ("budget_in_ms", json!(900.0)),
                ("attempts", json!(1)),
            ],
        );
        let (streamed, all) = (millis(&line, "stream_ms"), millis(&line, "ms"));
        assert!(streamed > 0.0 && streamed <= all && millis(&line, "upstream_ms") > 0.0, "{line:#}");
    }
    // Its head has no body, so that no stream follows.
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let file = config_with(upstream.addr(), Protocol::Http1, |route| {
        route.kind = Coverage::Streaming { idle: AMPLE, total: AMPLE };
    });
    let logged = Logged::with(file, |_| {}).await;
    let call = Caller::h1(logged.addr()).method(Method::HEAD, "/events");
    let _head = call.answer().await.expect("sent");
    let line = logged.line().await;
    says(&line, [("method", json!("HEAD")), ("status", json!(200)), ("outcome", json!("ok"))]);
    assert_eq!(line.get("stream_ms"), None);
}
