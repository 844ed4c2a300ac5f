//! Whose a key is, who must have one, and what is kept of who they are.

use http::StatusCode;
use oneclock_proxy::config::Principal;
use oneclock_test::caller::Caller;
use oneclock_test::{Protocol, peer};

use super::{Till, charge, file, is_replay, keyed, keyed_with, problem, told, unkeyed};
use crate::common::{address, start, text, whole_h2};

const SECRET: &str = "s3cret-token";

/// Contract M8: two customers may send the same key, also on purpose.
#[tokio::test]
async fn a_key_is_its_callers_and_who_that_is_is_not_kept() {
    let ((folder, store), till) = (file(), Till::open().await);
    let field = http::header::AUTHORIZATION;
    let proxy = start(keyed_with(till.addr, &store, |once| once.principal = Principal::Field(field))).await;
    let of = |token: &str| charge(address(&proxy), "tap-7", "499").header("authorization", format!("Bearer {token}"));
    let (_, _, first) = told(of(SECRET)).await;
    let (_, headers, other) = told(of("other")).await;
    assert_eq!((&*first, &*other, is_replay(&headers)), ("receipt 1 for 499", "receipt 2 for 499", false));
    let (_, headers, again) = told(of(SECRET)).await;
    assert_eq!((again, is_replay(&headers), till.charges()), (first, true, 2));
    let (status, _, body) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, till.asked()), (StatusCode::UNAUTHORIZED, 2), "nobody's key");
    assert!(body.contains("the field authorization,"), "it says what is missing: {body}");
    proxy.shutdown().await;
    let files = std::fs::read_dir(folder.path()).expect("a folder");
    let kept: Vec<u8> =
        files.flat_map(|file| std::fs::read(file.expect("a file").path()).expect("its bytes")).collect();
    let holds = |text: &str| kept.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(holds("authorization:") && !holds(SECRET));
}

/// Contract M7.
#[tokio::test]
async fn a_key_may_be_required_of_what_has_an_effect() {
    let ((_folder, store), till) = (file(), Till::open().await);
    let proxy = start(keyed_with(till.addr, &store, |once| once.require = true)).await;
    let (status, _, body) = told(unkeyed(address(&proxy), "499")).await;
    assert_eq!((status, &*problem(&body)), (StatusCode::BAD_REQUEST, "key_missing"));
    let (status, _, body) = told(charge(address(&proxy), "", "499")).await;
    assert_eq!((status, &*problem(&body)), (StatusCode::BAD_REQUEST, "key_malformed"));
    assert_eq!(till.asked(), 0);
    let (status, ..) = told(Caller::h1(address(&proxy)).get("/charges")).await;
    assert_eq!((status, till.asked()), (StatusCode::CREATED, 1), "a GET has no effect to repeat");
}

/// A gRPC call has its key in its metadata, and its trailers are given again with its message.
#[tokio::test]
async fn a_call_of_grpc_is_given_again_with_its_trailers() {
    let (_folder, store) = file();
    let upstream = peer::grpc::echo_headers().expect("a port");
    let mut config = keyed(upstream.addr(), &store);
    config.upstreams.values_mut().for_each(|upstream| upstream.protocol = super::grpc());
    let proxy = start(config).await;
    let caller = Caller::h2(address(&proxy)).connect().await.expect("a connection");
    let mut answers = Vec::new();
    for nth in 0..2 {
        let call = caller.grpc("/shop.Till/Charge", "499").header("idempotency-key", "tap-7");
        let (status, headers, body, trailers) = whole_h2(call.send().await.expect("sent").answer().await);
        let trailers = trailers.expect("trailers");
        assert_eq!((status, text(&trailers, "grpc-status"), is_replay(&headers)), (StatusCode::OK, "0", nth == 1));
        answers.push(body);
    }
    assert_eq!((&answers[0], upstream.requests()), (&answers[1], 1));
    let refused = caller.grpc("/shop.Till/Charge", "500").header("idempotency-key", "tap-7");
    let (status, headers, ..) = whole_h2(refused.send().await.expect("sent").answer().await);
    assert_eq!((status, text(&headers, "grpc-status")), (StatusCode::OK, "9"), "FAILED_PRECONDITION");
}

/// Keys stand in the way of nothing that has none: a WebSocket is opened on such a route, too.
#[tokio::test]
async fn what_has_no_key_is_forwarded_as_on_any_route() {
    let (_folder, store) = file();
    let upstream = peer::stall_mid_body(Protocol::Http1).expect("a port");
    let proxy = start(keyed(upstream.addr(), &store)).await;
    let call = unkeyed(address(&proxy), "499").send(oneclock_test::caller::How::AfterHead).await.expect("sent");
    call.leave().await.expect("left");
    upstream.caller_left().await.expect("a caller without a key takes its call with it");
}
