//! Below an ingress layer: the deadline comes over the wire, and refusals are written for whom the listener trusts.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use oneclock_core::{Policy, Trust};
use oneclock_http::{BoxError, IngressLayer, Upload};
use oneclock_idempotency::{Idempotency, MemoryStore};
use tower::{ServiceBuilder, ServiceExt as _};

use crate::support::*;

/// A body from a stream that can also be there at once.
struct Any(http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>);

impl From<Bytes> for Any {
    fn from(bytes: Bytes) -> Self {
        Self(Full::from(bytes).map_err(|never| match never {}).boxed_unsync())
    }
}

impl http_body::Body for Any {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        std::pin::Pin::new(&mut self.0).poll_frame(cx)
    }
}

struct Service {
    once: Idempotency<MemoryStore>,
    begun: Arc<AtomicUsize>,
}

impl Service {
    fn new() -> Self {
        let (once, _) = layer(MemoryStore::with_clock(paused_wall), |l| l);
        Self { once, begun: Arc::default() }
    }

    async fn send(&self, left_ms: &str, body: Any) -> Got {
        let policy = Policy::named("shop").when_absent(ms(800)).ceiling(ms(60_000)).build().unwrap();
        let begun = Arc::clone(&self.begun);
        let service = ServiceBuilder::new()
            .layer(IngressLayer::new(policy).trust(Trust::Inside))
            .layer(self.once.clone())
            .service_fn(move |_: Request<Upload<Any>>| {
                let n = begun.fetch_add(1, Ordering::SeqCst);
                async move {
                    tokio::time::sleep(ms(500)).await;
                    Ok::<_, Infallible>(receipt(n))
                }
            });
        let request = Request::post("/charges").header("idempotency-key", "tap-7").header("x-remaining-ms", left_ms);
        let answer: Response<_> = service.oneshot(request.body(body).unwrap()).await.unwrap();
        got(answer.map(|body| body.map_err(Into::into).boxed_unsync())).await
    }
}

fn small() -> Any {
    Any::from(Bytes::from_static(b"{}"))
}

#[tokio::test(start_paused = true)]
async fn m10_the_deadline_of_the_wire_ends_the_wait_and_the_retry_gets_the_answer() {
    let service = Service::new();
    let late = service.send("200", small()).await;
    assert_eq!((late.status, &late.headers["oneclock-reason"]), (504, &"deadline".parse().unwrap()));
    assert!(late.body.contains("\"outcome\":\"unknown\"") && late.link.is_some(), "{late:?}");
    let early = service.send("100", small()).await;
    assert!(early.is(409, "in_progress") && early.body.contains("\"outcome\":\"unknown\""), "{early:?}");
    assert!(early.retry_after.is_some());
    let again = service.send("2000", small()).await;
    assert_eq!((again.status, again.body.as_str(), again.replayed), (201, "receipt 0", true));
    assert_eq!(service.begun.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_claims_nothing() {
    let service = Service::new();
    let stalls = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, BoxError>>());
    let stalled = service.send("200", Any(stalls.boxed_unsync())).await;
    assert_eq!(stalled.status, 408, "{stalled:?}");
    let breaks = futures_util::stream::iter([Err::<Frame<Bytes>, BoxError>("reset".into())]);
    assert_eq!(service.send("200", Any(StreamBody::new(breaks).boxed_unsync())).await.status, 400);
    assert_eq!((service.begun.load(Ordering::SeqCst), service.once.store().len()), (0, 0));
}
