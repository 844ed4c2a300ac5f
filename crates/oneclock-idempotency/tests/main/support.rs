//! A shop whose charges are counted, a store that can be slow or gone, and requests with keys.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use oneclock::events::{Counting, Event, Observer};
use oneclock_core::idempotency::{Claim, Enqueue, Enqueued, Fence, Record, Scope};
use oneclock_core::wire::Wall;
use oneclock_idempotency::*;
use tower::ServiceExt as _;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The store's clock: it stands still with the tests'.
pub(crate) fn paused_wall() -> Wall {
    Wall::from_nanos(oneclock::clock::now().as_nanos())
}

pub(crate) type Answering = Pin<Box<dyn Future<Output = Response<Full<Bytes>>> + Send>>;
pub(crate) type Handler = Arc<dyn Fn(usize, Request<Full<Bytes>>) -> Answering + Send + Sync>;

/// A handler that counts how often it was begun.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) begun: Arc<AtomicUsize>,
    handler: Handler,
}

impl Shop {
    /// The handler is told how many were begun before.
    pub(crate) fn new<F>(handler: impl Fn(usize, Request<Full<Bytes>>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        Self { begun: Arc::default(), handler: Arc::new(move |n, request| Box::pin(handler(n, request))) }
    }

    /// Answers `receipt <n>` after `takes`.
    pub(crate) fn that_takes(takes: Duration) -> Self {
        Self::new(move |n, _| async move {
            tokio::time::sleep(takes).await;
            receipt(n)
        })
    }

    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

pub(crate) fn receipt(n: usize) -> Response<Full<Bytes>> {
    Response::builder()
        .status(201)
        .header("location", format!("/receipts/{n}"))
        .body(format!("receipt {n}").into())
        .unwrap()
}

impl tower::Service<Request<Full<Bytes>>> for Shop {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let n = self.begun.fetch_add(1, Ordering::SeqCst);
        let answer = (self.handler)(n, request);
        Box::pin(async move { Ok(answer.await) })
    }
}

/// A layer over `store` with what most tests want, and a witness of its events.
pub(crate) fn layer<St: Store>(
    store: St,
    of: impl FnOnce(IdempotencyBuilder<St>) -> IdempotencyBuilder<St>,
) -> (Idempotency<St>, Arc<Counting>) {
    let counting = Arc::new(Counting::default());
    let builder =
        Idempotency::builder("charge", store).one_principal().monitor_at("/operations").observed_by(counting.clone());
    (of(builder).build().expect("a layer"), counting)
}

/// The names under which events of keys were told.
pub(crate) type Names = Arc<Mutex<BTreeSet<String>>>;

#[cfg_attr(not(any(feature = "axum", feature = "tonic")), expect(dead_code, reason = "of tests with a router"))]
pub(crate) fn names_told() -> (Arc<dyn Observer>, Names) {
    let told = Names::default();
    let names = Arc::clone(&told);
    let observer = move |event: &Event<'_>| {
        if let Event::Keyed { route, .. } = event {
            names.lock().unwrap().insert(route.to_string());
        }
    };
    (Arc::new(observer), told)
}

pub(crate) fn post(key: &str, body: &str) -> Request<Full<Bytes>> {
    let request = Request::post("/charges").header("idempotency-key", key).header("content-type", "application/json");
    request.body(Full::from(body.to_owned())).unwrap()
}

/// What came back, in a form to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) replayed: bool,
    pub(crate) retry_after: Option<String>,
    pub(crate) link: Option<String>,
    pub(crate) headers: http::HeaderMap,
}

impl Got {
    /// Whether it is a problem of this type.
    pub(crate) fn is(&self, status: u16, word: &str) -> bool {
        self.status == status && self.body.contains(&format!("urn:oneclock:{word}\""))
    }
}

pub(crate) async fn got(response: Response<Body>) -> Got {
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    let text = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    Got {
        status: head.status.as_u16(),
        body: String::from_utf8_lossy(&body).into_owned(),
        replayed: text("idempotent-replayed").as_deref() == Some("true"),
        retry_after: text("retry-after"),
        link: text("link"),
        headers: head.headers,
    }
}

/// Sends a request through `layer` to `shop`.
pub(crate) async fn send<St: Store>(layer: &Idempotency<St>, shop: &Shop, request: Request<Full<Bytes>>) -> Got {
    use tower::Layer as _;
    got(layer.layer(shop.clone()).oneshot(request).await.unwrap()).await
}

/// The same under a caller's budget.
pub(crate) async fn send_within<St: Store>(
    layer: &Idempotency<St>,
    shop: &Shop,
    budget: Duration,
    request: Request<Full<Bytes>>,
) -> Got {
    let op = oneclock::Operation::begin("caller", budget);
    op.run(send(layer, shop, request)).await.expect("answered within the caller's budget")
}

/// A store that can be slow or gone, and remembers what it was asked.
#[derive(Clone)]
pub(crate) struct Moody {
    pub(crate) inner: MemoryStore,
    pub(crate) gone: Arc<AtomicBool>,
    pub(crate) settles_fail: Arc<AtomicBool>,
    pub(crate) slow_ms: Arc<AtomicU64>,
    pub(crate) answers_lost: Arc<AtomicUsize>, // of the next claims: they arrive all the same
    pub(crate) log: Arc<Mutex<Vec<&'static str>>>,
}

impl Moody {
    pub(crate) fn new() -> Self {
        Self {
            inner: MemoryStore::with_clock(paused_wall),
            gone: Arc::default(),
            settles_fail: Arc::default(),
            slow_ms: Arc::default(),
            answers_lost: Arc::default(),
            log: Arc::default(),
        }
    }

    async fn mood(&self, what: &'static str) -> Result<(), StoreError> {
        tokio::time::sleep(ms(self.slow_ms.load(Ordering::SeqCst))).await;
        self.log.lock().unwrap().push(what);
        if self.gone.load(Ordering::SeqCst) { Err(StoreError::failed("connection refused")) } else { Ok(()) }
    }
}

impl Store for Moody {
    async fn claim(&self, scope: &Scope, claim: &Claim) -> Result<Found, StoreError> {
        self.mood("claim").await?;
        let found = self.inner.claim(scope, claim).await;
        let lost = |lost: usize| lost.checked_sub(1);
        match self.answers_lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lost) {
            Ok(_) => Err(StoreError::failed("connection reset")),
            Err(_) => found,
        }
    }

    async fn enqueue(&self, scope: &Scope, ask: &Enqueue) -> Result<Enqueued, StoreError> {
        self.mood("enqueue").await?;
        self.inner.enqueue(scope, ask).await
    }

    async fn settle(&self, scope: &Scope, fence: Fence, settle: Settle) -> Result<Settled, StoreError> {
        self.mood("settle").await?;
        if self.settles_fail.load(Ordering::SeqCst) {
            return Err(StoreError::failed("disk full"));
        }
        self.inner.settle(scope, fence, settle).await
    }

    async fn read(&self, scope: &Scope) -> Result<Option<Kept>, StoreError> {
        self.mood("read").await?;
        self.inner.read(scope).await
    }

    async fn list(
        &self,
        which: Which,
        after: Option<&Scope>,
        limit: usize,
    ) -> Result<Vec<(Scope, Record)>, StoreError> {
        self.mood("list").await?;
        self.inner.list(which, after, limit).await
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        self.mood("reap").await?;
        self.inner.reap(limit).await
    }
}
