//! A call put together piece by piece, over a socket: what the far side gets, and what never leaves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::routing::any;
use http::Method;
use http_body_util::BodyExt as _;
use oneclock::Operation;
use oneclock_core::idempotency::Key;
use oneclock_core::retry::RetryPolicy;
use oneclock_core::{Outcome, Trust};
use oneclock_http::{Asking, CallError, Client, NotARequest, collect, serve};
use tokio::net::TcpListener;

/// As `IdempotencyKey` of `oneclock-idempotency` is.
struct Tap(Key);

impl AsRef<Key> for Tap {
    fn as_ref(&self) -> &Key {
        &self.0
    }
}

fn tap() -> Tap {
    Tap(Key::new("tap 7").unwrap())
}

/// Says what it got: method, path, type, key, body.
async fn echo(request: Request) -> String {
    let (head, body) = request.into_parts();
    let field = |name: &str| head.headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
    let body = body.collect().await.unwrap().to_bytes();
    let said = [field("content-type"), field("idempotency-key"), field("x-shop"), field("x-remaining-ms")];
    format!("{} {} {} {}", head.method, head.uri, said.join(" "), String::from_utf8_lossy(&body))
}

async fn client() -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/shop", listener.local_addr().unwrap());
    tokio::spawn(serve(listener, Router::new().fallback(any(echo))).trust(Trust::Inside).into_future());
    Client::builder("echo", url).build().unwrap()
}

async fn said(asking: Asking<'_>) -> String {
    let op = Operation::begin("order", Duration::from_secs(30));
    let answer = asking.send_in(&op).await.unwrap();
    let text = collect(answer.into_body(), 4096).await.unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let (head, left) = text.rsplit_once(' ').unwrap();
    let (before, remaining) = head.rsplit_once(' ').unwrap();
    assert!((20_000..30_000).contains(&remaining.parse::<u32>().unwrap()), "it is told what is left: {text}");
    format!("{before} {left}")
}

#[tokio::test]
async fn what_is_said_of_a_call_is_what_the_far_side_gets() {
    let client = client().await;
    let cart = BTreeMap::from([("article", 7)]);
    let asking = client.ask(Method::PUT, "/carts/3").json(&cart).key(&tap()).header("x-shop", "north");
    assert_eq!(said(asking).await, r#"PUT /shop/carts/3 application/json "tap 7" north {"article":7}"#);
    assert_eq!(said(client.ask(Method::POST, "mail").body("hello")).await, "POST /shop/mail - - - hello");
}

#[tokio::test]
async fn get_and_post_take_the_operation_too() {
    let client = client().await;
    let hasty = Operation::begin("order", Duration::from_millis(2));
    for asked in [client.get_in(&hasty, "/").await, client.post_in(&hasty, "/", "x").await] {
        assert_eq!(asked.unwrap_err().outcome(), Outcome::NotSent, "two milliseconds are too few for a call");
    }
    let patient = Operation::begin("order", Duration::from_secs(30));
    assert!(client.get_in(&patient, "/").await.is_ok() && client.post_in(&patient, "/", "x").await.is_ok());
}

#[tokio::test]
async fn what_cannot_be_put_together_is_not_sent_and_the_first_mistake_is_told() {
    let client = client().await;
    let no_json = BTreeMap::from([(vec![1], 7)]);
    let op = Operation::begin("order", Duration::from_secs(30));
    let refused = |error: CallError| {
        assert_eq!(error.outcome(), Outcome::NotSent);
        let CallError::Failed(failed) = error else { panic!("{error}") };
        *failed.source.downcast::<NotARequest>().unwrap()
    };
    let asked = client.ask(Method::POST, "/").json(&no_json).header("no name", "x").send_in(&op).await;
    assert!(matches!(refused(asked.unwrap_err()), NotARequest::NotJson(_)));
    let asked = client.ask(Method::POST, "/").header("no name", "x").json(&7).send_in(&op).await;
    assert!(matches!(refused(asked.unwrap_err()), NotARequest::NotAField(_)));
    let asked = client.ask(Method::GET, "/a b").send_in(&op).await;
    assert!(matches!(refused(asked.unwrap_err()), NotARequest::NotAPath(_)));
}

/// Contract R7: with a key, at a destination that enforces keys, what may have happened is asked again.
#[tokio::test]
async fn r7_the_key_says_what_repeating_does() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = asked.clone();
    let fails = move |_: Bytes| {
        let first = counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(2);
        std::future::ready(if first { http::StatusCode::SERVICE_UNAVAILABLE } else { http::StatusCode::OK })
    };
    tokio::spawn(serve(listener, Router::new().fallback(any(fails))).into_future());
    let policy = RetryPolicy::new().attempts(2).build().unwrap();
    let client = Client::builder("payment", url).retry(policy).enforces_keys().build().unwrap();
    let op = Operation::begin("order", Duration::from_secs(30));
    let keyed = client.ask(Method::POST, "/").key(&tap()).send_in(&op).await.unwrap();
    assert_eq!((keyed.status().as_u16(), asked.load(std::sync::atomic::Ordering::Relaxed)), (200, 2));
    let bare = client.ask(Method::POST, "/").send_in(&op).await.unwrap();
    assert_eq!((bare.status().as_u16(), asked.load(std::sync::atomic::Ordering::Relaxed)), (503, 3));
}
