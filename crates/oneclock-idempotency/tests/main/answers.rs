//! What is replayed: large, streamed and compressed answers, and headers that belong to one exchange.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use oneclock::Operation;
use oneclock_idempotency::MemoryStore;
use tower::{Layer as _, ServiceExt as _};

use crate::support::*;

fn store() -> MemoryStore {
    MemoryStore::with_clock(paused_wall)
}

#[tokio::test(start_paused = true)]
async fn m7_set_cookie_is_given_once() {
    let (layer, _) = layer(store(), |l| l.replays(http::HeaderName::from_static("x-receipt")));
    let shop = Shop::new(|n, _| async move {
        let mut answer = receipt(n);
        for (name, value) in [
            ("set-cookie", "session=1"),
            ("set-cookie", "other=2"),
            ("date", "Mon, 30 Nov 2026 00:00:00 GMT"),
            ("x-request-id", "7"),
            ("x-receipt", "kept"),
            ("content-type", "text/plain"),
            ("etag", "\"1\""),
        ] {
            answer.headers_mut().append(name, value.parse().unwrap());
        }
        answer
    });
    let first = send(&layer, &shop, post("k", "{}")).await;
    assert_eq!(first.headers.get_all("set-cookie").iter().count(), 2, "its own caller gets what the handler made");
    let again = send(&layer, &shop, post("k", "{}")).await;
    let mut names: Vec<_> = again.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-type", "etag", "idempotent-replayed", "location", "x-receipt"]);
    assert_eq!((again.status, again.body), (201, first.body));
}

#[tokio::test(start_paused = true)]
async fn m7_a_compressed_answer_is_replayed_with_its_coding() {
    let (layer, _) = layer(store(), |l| l);
    let gzip: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let shop = Shop::new(move |_, _| async move {
        Response::builder().header("content-encoding", "gzip").body(Full::from(Bytes::from_static(gzip))).unwrap()
    });
    let service = layer.layer(shop);
    for _ in 0..2 {
        let answer = service.clone().oneshot(post("k", "{}")).await.unwrap();
        assert_eq!(answer.headers()["content-encoding"], "gzip");
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), gzip);
    }
}

#[tokio::test(start_paused = true)]
async fn m7_an_answer_at_the_limit_is_kept_and_one_byte_more_is_given_once() {
    for (size, kept) in [(1_000, true), (1_001, false)] {
        let (layer, _) = layer(store(), |l| l.answer_bytes(1_000));
        let shop = Shop::new(move |_, _| async move { Response::new(Full::from(vec![b'x'; size])) });
        let first = send(&layer, &shop, post("k", "{}")).await;
        assert_eq!((first.status, first.body.len()), (200, size), "given whole");
        let again = send(&layer, &shop, post("k", "{}")).await;
        if kept {
            assert_eq!((again.replayed, again.body.len()), (true, size));
        } else {
            assert!(again.is(409, "answer_not_kept"), "{again:?}");
            assert!(again.link.is_some() && again.retry_after.is_none());
        }
        assert_eq!(shop.begun(), 1);
    }
}

/// A service whose answer comes in pieces, with a pause before each.
#[derive(Clone)]
struct Streams {
    pieces: usize,
    breaks: bool,
}

type Pieces = Pin<Box<dyn http_body::Body<Data = Bytes, Error = std::io::Error> + Send>>;

impl tower::Service<Request<Full<Bytes>>> for Streams {
    type Response = Response<Pieces>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        let Self { pieces, breaks } = *self;
        let frames = stream::unfold(0, move |n| async move {
            tokio::time::sleep(ms(10)).await;
            let piece = Ok(http_body::Frame::data(Bytes::from(vec![b'x'; 100])));
            match n {
                n if n < pieces => Some((piece, n + 1)),
                n if n == pieces && breaks => Some((Err(std::io::Error::other("broke off")), n + 1)),
                _ => None,
            }
        });
        std::future::ready(Ok(Response::new(Box::pin(StreamBody::new(frames)))))
    }
}

async fn sends(layer: &oneclock_idempotency::Idempotency<MemoryStore>, streams: &Streams) -> Got {
    got(layer.layer(streams.clone()).oneshot(post("k", "{}")).await.unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn m7_a_streamed_answer_within_the_limit_is_replayed_whole() {
    let (layer, _) = layer(store(), |l| l);
    let streams = Streams { pieces: 10, breaks: false };
    assert_eq!(sends(&layer, &streams).await.body.len(), 1_000);
    let again = sends(&layer, &streams).await;
    assert_eq!((again.body.len(), again.replayed), (1_000, true));
}

#[tokio::test(start_paused = true)]
async fn m7_a_large_stream_reaches_its_caller_and_is_done_also_if_the_caller_leaves() {
    let (layer, _) = layer(store(), |l| l.answer_bytes(500));
    let streams = Streams { pieces: 50, breaks: false };
    let first = sends(&layer, &streams).await;
    assert_eq!(first.body.len(), 5_000);
    assert!(sends(&layer, &streams).await.is(409, "answer_not_kept"));

    let (layer, _) = layer_of_500();
    let answer = layer.layer(streams.clone()).oneshot(post("k", "{}")).await.unwrap();
    assert_eq!(answer.status(), 200);
    drop(answer); // reads nothing
    let again = sends(&layer, &streams).await; // waits for the run
    assert!(again.is(409, "answer_not_kept"), "{again:?}");
}

fn layer_of_500() -> (oneclock_idempotency::Idempotency<MemoryStore>, std::sync::Arc<oneclock::events::Counting>) {
    layer(store(), |l| l.answer_bytes(500))
}

#[tokio::test(start_paused = true)]
async fn m3_an_answer_that_breaks_off_is_unknown() {
    for answer_bytes in [500, 50_000] {
        let (layer, _) = layer(store(), |l| l.answer_bytes(answer_bytes));
        let streams = Streams { pieces: 10, breaks: true };
        let first = layer.layer(streams.clone()).oneshot(post("k", "{}")).await.unwrap();
        if answer_bytes == 500 {
            assert!(first.into_body().collect().await.is_err(), "a truncated body never looks complete");
        } else {
            assert_eq!(first.status(), 500);
        }
        assert!(sends(&layer, &streams).await.is(409, "outcome_unknown"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_reads_nothing_holds_a_run_no_longer_than_its_bound() {
    let (layer, _) = layer(store(), |l| l.answer_bytes(500).execution(ms(2_000)));
    let streams = Streams { pieces: 50, breaks: false };
    let held = layer.layer(streams.clone()).oneshot(post("k", "{}")).await.unwrap();
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(layer.runs(), 0);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_body_too_large_for_a_fingerprint_is_413() {
    let (layer, _) = layer(store(), |l| l.request_bytes(10));
    let shop = Shop::that_takes(ms(1));
    let large = send(&layer, &shop, post("k", "01234567890")).await;
    assert_eq!((large.status, shop.begun()), (413, 0));
    assert!(large.body.contains("at most 10 bytes"), "{large:?}");
    assert_eq!(send(&layer, &shop, post("k", "0123456789")).await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn the_handler_gets_the_request_as_it_came() {
    let (layer, _) = layer(store(), |l| l);
    let shop = Shop::new(|_, request| async move {
        assert_eq!(request.headers()["content-type"], "application/json");
        assert!(
            request.extensions().get::<oneclock_core::idempotency::Fence>().is_some(),
            "to hand on to the far side"
        );
        assert_ne!(Operation::current().expect("an operation").name().as_str(), "caller");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(Full::from(body))
    });
    assert_eq!(send_within(&layer, &shop, ms(500), post("k", r#"{"cents":499}"#)).await.body, r#"{"cents":499}"#);
}

/// A service whose answers end with trailers.
#[derive(Clone)]
struct Trails;

impl tower::Service<Request<Full<Bytes>>> for Trails {
    type Response = Response<oneclock_idempotency::Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        let value = || "1".parse().unwrap();
        let trailers = [("etag", value()), ("x-sum", value())].map(|(name, value)| (name.parse().unwrap(), value));
        let trailers = std::future::ready(Some(Ok(trailers.into_iter().collect())));
        let body = Full::from("receipt").with_trailers(trailers).map_err(|never: Infallible| match never {});
        std::future::ready(Ok(Response::new(body.boxed_unsync())))
    }
}

#[tokio::test(start_paused = true)]
async fn m7_trailers_are_replayed_by_the_same_list_as_headers() {
    let (layer, _) = layer(store(), |l| l);
    for (replayed, want) in [(false, vec!["etag", "x-sum"]), (true, vec!["etag"])] {
        let answer = layer.layer(Trails).oneshot(post("k", "{}")).await.unwrap();
        assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
        let body = answer.into_body().collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap();
        assert_eq!(trailers.keys().map(http::HeaderName::as_str).collect::<Vec<_>>(), want);
        assert_eq!(body.to_bytes(), "receipt");
    }
}
