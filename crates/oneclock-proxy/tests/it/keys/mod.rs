//! Idempotency keys: a charge that is asked for twice and made once, by an upstream that knows nothing of keys.

mod doubt;
mod once;
mod postgres;
mod reloads;
mod scope;
mod stores;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use oneclock_proxy::config::{Config, Idempotency, IdempotencyStore, Principal};
use oneclock_test::Protocol;
use oneclock_test::caller::{Caller, H1Caller};
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};

use crate::common::{AMPLE, Upstream, body, config, whole_h1};

/// Makes a charge for every request that reaches it, once it is let.
pub(crate) struct Till {
    pub(crate) addr: SocketAddr,
    charges: Arc<AtomicUsize>,
    asked: watch::Receiver<usize>,
    lets: Arc<Semaphore>,
    _served: Upstream,
}

impl Till {
    /// Lets every charge through.
    pub(crate) async fn open() -> Self {
        let till = Self::closed().await;
        till.let_all();
        till
    }

    /// Each charge waits until it is let.
    pub(crate) async fn closed() -> Self {
        let (charges, lets) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (ask, asked) = watch::channel(0);
        let shared = (Arc::clone(&charges), Arc::clone(&lets), Arc::new(ask));
        let served = Upstream::of(move |request| {
            let (charges, lets, ask) = shared.clone();
            async move {
                ask.send_modify(|asked| *asked += 1);
                let cents = request.into_body().collect().await.expect("a body").to_bytes();
                let _let = lets.acquire().await.expect("it is never closed");
                let nth = charges.fetch_add(1, Ordering::SeqCst) + 1;
                let receipt = format!("receipt {nth} for {}", String::from_utf8_lossy(&cents));
                let mut answer = Response::new(body(Full::from(Bytes::from(receipt))));
                *answer.status_mut() = StatusCode::CREATED;
                answer.headers_mut().insert("x-order-id", nth.into());
                answer.headers_mut().insert("x-served-by", http::HeaderValue::from_static("till 4"));
                answer
            }
        })
        .await;
        Self { addr: served.addr, charges, asked, lets, _served: served }
    }

    pub(crate) fn let_all(&self) {
        self.lets.add_permits(1_000);
    }

    /// How many requests have reached it.
    pub(crate) fn asked(&self) -> usize {
        *self.asked.borrow()
    }

    pub(crate) async fn await_asked(&self, n: usize) {
        let mut asked = self.asked.clone();
        let waited = tokio::time::timeout(AMPLE, asked.wait_for(|asked| *asked >= n)).await;
        waited.expect("in time").expect("it runs");
    }

    /// How many charges it has made.
    pub(crate) fn charges(&self) -> usize {
        self.charges.load(Ordering::SeqCst)
    }
}

/// A file of its own for each test.
pub(crate) fn file() -> (TempDir, IdempotencyStore) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = IdempotencyStore::Sqlite(folder.path().join("keys.sqlite"));
    (folder, store)
}

/// Keys of everybody's, kept there.
pub(crate) fn keyed(upstream: SocketAddr, store: &IdempotencyStore) -> Config {
    keyed_with(upstream, store, |_| ())
}

/// The same with something else said of them.
pub(crate) fn keyed_with(
    upstream: SocketAddr,
    store: &IdempotencyStore,
    change: impl FnOnce(&mut Idempotency),
) -> Config {
    let mut config = config(upstream, Protocol::Http1);
    let route = &mut config.routes[0];
    let mut once = Idempotency::new(store.clone(), Principal::Everybody, route.ceiling);
    once.monitor = Some("/operations".to_owned());
    change(&mut once);
    route.idempotency = Some(once);
    config
}

/// `POST /charges` with this key, and ample time.
pub(crate) fn charge(proxy: SocketAddr, key: &str, cents: &str) -> H1Caller {
    unkeyed(proxy, cents).header("idempotency-key", key)
}

pub(crate) fn unkeyed(proxy: SocketAddr, cents: &str) -> H1Caller {
    Caller::h1(proxy).post("/charges", cents.to_owned()).header("x-remaining-ms", "9000")
}

/// What came of it: status, headers, body.
pub(crate) async fn told(call: H1Caller) -> (StatusCode, HeaderMap, String) {
    let (status, headers, body) = whole_h1(call.answer().await.expect("sent"));
    (status, headers, String::from_utf8(body.to_vec()).expect("text"))
}

pub(crate) fn is_replay(headers: &HeaderMap) -> bool {
    headers.get("idempotent-replayed").is_some_and(|said| said == "true")
}

/// The last part of a problem's type.
#[track_caller]
pub(crate) fn problem(body: &str) -> String {
    let document: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("no problem: {body}"));
    let kind = document["type"].as_str().unwrap_or_else(|| panic!("no type: {body}"));
    kind.rsplit(['/', ':']).next().unwrap_or_default().to_owned()
}

/// gRPC in HTTP/2 by prior knowledge.
pub(crate) fn grpc() -> oneclock_proxy::config::UpstreamProtocol {
    oneclock_proxy::config::UpstreamProtocol::Auto
}
