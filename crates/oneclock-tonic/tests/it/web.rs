//! grpc-web, with our layer inside of tonic-web's: the browser gets the status in the words of its protocol.

use std::future::IntoFuture as _;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use oneclock::{Operation, clock};
use oneclock_core::Policy;
use oneclock_http::{Client, collect, serve};
use oneclock_tonic::PolicyExt as _;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::service::Routes;
use tonic_web::GrpcWebLayer;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _};

use crate::support::{Peer, inside, ms, one, one_then_nothing, peer, silent};

/// Over HTTP/1.1, as from a browser.
async fn ask(service: Peer, timeout: &str, with_us: bool) -> Response<Body> {
    let request = Request::post("/test.Peer/Unary")
        .version(http::Version::HTTP_11)
        .header("content-type", "application/grpc-web+proto")
        .header("grpc-timeout", timeout)
        .body(Full::new(Bytes::from_static(b"\0\0\0\0\0")))
        .unwrap();
    let routes = Routes::new(service);
    if with_us {
        ServiceBuilder::new().layer(GrpcWebLayer::new()).layer(inside()).service(routes).oneshot(request).await.unwrap()
    } else {
        GrpcWebLayer::new().layer(routes).oneshot(request).await.unwrap()
    }
}

/// The frames of a grpc-web body: whether it is the trailers, and what is in it.
fn frames(mut body: &[u8]) -> Vec<(bool, String)> {
    let mut frames = Vec::new();
    while let [kind, a, b, c, d, rest @ ..] = body {
        let len = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        frames.push((kind & 0x80 != 0, String::from_utf8(rest[..len].to_vec()).unwrap()));
        body = &rest[len..];
    }
    frames
}

#[tokio::test(start_paused = true)]
async fn x3_a_browser_gets_status_4_at_the_deadline() {
    let began = clock::now();
    let response = ask(silent(), "300m", true).await;
    assert_eq!((response.status().as_u16(), clock::now().since(began)), (200, ms(300)));
    assert_eq!(response.headers()["content-type"], "application/grpc-web+proto");
    assert_eq!(response.headers()["grpc-status"], "4");
}

#[tokio::test(start_paused = true)]
async fn x3_a_browsers_stream_ends_with_status_4_in_its_last_frame() {
    let began = clock::now();
    let response = ask(peer(|_| async { Ok(one_then_nothing("first")) }), "300m", true).await;
    assert!(response.headers().get("grpc-status").is_none());
    let body = response.into_body().collect().await.expect("an orderly end").to_bytes();
    assert_eq!(clock::now().since(began), ms(300));
    let frames = frames(&body);
    assert_eq!(frames[0], (false, "first".to_owned()));
    let (is_trailers, trailers) = &frames[1];
    assert!(*is_trailers && trailers.contains("grpc-status:4\r\n"), "{trailers:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_done_in_time_is_answered() {
    let response = ask(peer(|_| async { Ok(one("done")) }), "300m", true).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let frames = frames(&body);
    assert_eq!(frames[0].1, "done");
    assert!(frames[1].1.contains("grpc-status:0\r\n"), "{frames:?}");
}

#[tokio::test(start_paused = true)]
async fn x3_naive_tonic_web_alone_has_no_deadline_at_all() {
    let asked = ask(silent(), "300m", false);
    tokio::time::timeout(ms(60_000), asked).await.expect_err("tonic's timer is its transport's");
}

/// On the wire: what the head names for callers of gRPC itself does no harm to a browser, whose status is in the body.
#[tokio::test]
async fn x3_over_http1_a_browsers_stream_ends_in_order_with_its_status() {
    let layer = Policy::named("shop").when_absent(ms(300)).build().unwrap().grpc_layer();
    let routes = Routes::new(peer(|_| async { Ok(one_then_nothing("first")) }));
    let app = ServiceBuilder::new().layer(GrpcWebLayer::new()).layer(layer).service(routes);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let browser = Client::builder("shop", format!("http://{}", listener.local_addr().unwrap())).build().unwrap();
    tokio::spawn(serve(listener, app).into_future());
    let request = Request::post("/test.Peer/Unary").header("content-type", "application/grpc-web+proto");
    let request = request.body(Full::new(Bytes::from_static(b"\0\0\0\0\0"))).unwrap();
    let answer = browser.request_in(&Operation::begin("page", ms(10_000)), request).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_11));
    let frames = frames(&collect(answer.into_body(), 1_000).await.expect("an orderly end"));
    assert_eq!((frames.len(), frames[0].1.as_str()), (2, "first"));
    assert!(frames[1].0 && frames[1].1.contains("grpc-status:4\r\n"), "{frames:?}");
}
