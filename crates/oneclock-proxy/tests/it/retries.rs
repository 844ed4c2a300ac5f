//! What is tried again, and what is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use oneclock_proxy::config::Config;
use oneclock_test::caller::Caller;

use crate::common::{Upstream, address, body, ms, start, whole_h1};

#[tokio::test]
async fn a_get_is_tried_again_and_a_post_is_not() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let upstream = Upstream::of(move |request| {
        let nth = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            let _ = request.into_body().collect().await;
            let status = if nth == 1 { 200 } else { 503 };
            Response::builder().status(status).body(body(Full::<Bytes>::default())).expect("an answer")
        }
    })
    .await;
    let file = format!(
        "listeners: [{{ name: http, address: 127.0.0.1:0 }}]\nupstreams: {{ app: {{ url: 'http://{}' }} }}\nroutes:\n\
         - matches: [{{ path: {{ type: PathPrefix, value: / }} }}]\n  upstream: app\n  retry: {{ attempts: 2 }}\nadmin: none\n",
        upstream.addr
    );
    let proxy = start(Config::parse(&file).expect("a configuration")).await;
    let (status, ..) = whole_h1(Caller::h1(address(&proxy)).get("/stock").answer().await.expect("sent"));
    assert_eq!((status, asked.load(Ordering::SeqCst)), (StatusCode::OK, 2));
    let (status, ..) = whole_h1(Caller::h1(address(&proxy)).post("/cart", "7").answer().await.expect("sent"));
    assert_eq!((status, asked.load(Ordering::SeqCst)), (StatusCode::SERVICE_UNAVAILABLE, 3));
}

/// Contract R1: what the route calls the least that is useful is asked of each attempt, not of the first alone.
#[tokio::test]
async fn no_attempt_is_begun_with_less_left_than_is_useful() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let upstream = Upstream::of(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(ms(600)).await; // the work
            Response::builder().status(503).body(body(Full::<Bytes>::default())).expect("an answer")
        }
    })
    .await;
    let route = |path: &str, least: &str| {
        format!(
            "- {{ matches: [{{ path: {{ value: {path} }} }}], upstream: app, timeouts: {{ request: 3s }}, \
             retry: {{ attempts: 1 }}, minUseful: {least} }}\n"
        )
    };
    let file = format!(
        "listeners: [{{ name: http, address: 127.0.0.1:0 }}]\nupstreams: {{ app: {{ url: 'http://{}' }} }}\nroutes:\n{}{}admin: none\n",
        upstream.addr,
        route("/any", "5ms"),
        route("/most", "2s500ms")
    );
    let proxy = start(Config::parse(&file).expect("a configuration")).await;
    let (status, ..) = whole_h1(Caller::h1(address(&proxy)).get("/any").answer().await.expect("sent"));
    assert_eq!((status, asked.load(Ordering::SeqCst)), (StatusCode::SERVICE_UNAVAILABLE, 2), "2.4 s are left");
    let (status, ..) = whole_h1(Caller::h1(address(&proxy)).get("/most").answer().await.expect("sent"));
    assert_eq!((status, asked.load(Ordering::SeqCst)), (StatusCode::SERVICE_UNAVAILABLE, 3), "not again");
}
