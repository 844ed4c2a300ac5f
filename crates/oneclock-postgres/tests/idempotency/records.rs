//! Stores with tables of their own, notes that survive whoever writes them, and requests with keys.

use std::convert::Infallible;
use std::fs::OpenOptions;
use std::future::Future;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use oneclock::events::Counting;
use oneclock_core::idempotency::{Claim, Fingerprint, Key, Owner, Scope, Takeover};
use oneclock_idempotency::{Idempotency, IdempotencyBuilder, Store};
use oneclock_postgres::tokio_postgres::Config;
use oneclock_postgres::{IdempotencyStore, IdempotencyStoreBuilder, Pool};
use tower::{Layer as _, ServiceExt as _};

use crate::support::{BOUND, connect, ms};

/// A store whose tables stand in this schema of the database.
pub(crate) fn store_in(config: &Config, schema: &str) -> IdempotencyStoreBuilder {
    let mut config = config.clone();
    config.options(format!("-c search_path={schema}"));
    let pool = Pool::configured(config).size(8).build().unwrap();
    IdempotencyStore::builder(pool).within(BOUND).wait_at_most(BOUND)
}

pub(crate) async fn make_schema(config: &Config, schema: &str) {
    connect(config).await.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    store_in(config, schema).build().unwrap().create().await.unwrap();
}

pub(crate) fn scope(key: &str) -> Scope {
    Scope { principal: "shop".into(), method: "POST".into(), route: "charge".into(), key: Key::new(key).unwrap() }
}

pub(crate) fn ask(owner: u128) -> Claim {
    Claim {
        fingerprint: Fingerprint([7; 32]),
        owner: Owner(owner),
        made: None,
        lease: Duration::from_secs(30),
        retention: Duration::from_secs(86_400),
        takeover: Takeover::Never,
    }
}

/// A folder of one test, for what must survive its processes. Goes away with the one that made it.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    own: bool,
}

impl Folder {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("oneclock-pg-idempotency-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self { path, own: true }
    }

    /// Somebody else's.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, own: false }
    }

    /// Adds a line to a file, in one piece.
    pub(crate) fn note(&self, file: &str, line: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.path.join(file)).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(crate) fn notes(&self, file: &str) -> String {
        std::fs::read_to_string(self.path.join(file)).unwrap_or_default()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.own {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A layer with what these tests want.
pub(crate) fn layer<St: Store>(
    store: St,
    of: impl FnOnce(IdempotencyBuilder<St>) -> IdempotencyBuilder<St>,
) -> (Idempotency<St>, Arc<Counting>) {
    let counting = Arc::new(Counting::default());
    let builder = Idempotency::builder("charge", store).one_principal().required().observed_by(counting.clone());
    // Far beyond what a busy machine needs: nothing here is about a store that is slow, unless it says so.
    let half_a_minute = Duration::from_secs(30);
    let builder = builder.claim_within(half_a_minute).execution(half_a_minute).record_within(half_a_minute);
    (of(builder).build().expect("a layer"), counting)
}

/// Sends a request with `key` and `body` through `layer` to `handler`: its status and body.
pub(crate) async fn send<St, F>(
    layer: &Idempotency<St>,
    key: &str,
    body: &'static str,
    handler: impl Fn(Request<Full<Bytes>>) -> F + Clone + Send + 'static,
) -> (u16, String)
where
    St: Store,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let service = tower::service_fn(move |request| {
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let request = Request::post("/charges").header("idempotency-key", key).body(Full::from(body)).unwrap();
    let answer = layer.layer(service).oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

pub(crate) fn created(body: impl Into<String>) -> Response<Full<Bytes>> {
    Response::builder().status(201).body(Full::from(body.into())).unwrap()
}

/// Looks until it is there.
pub(crate) fn until_there(what: &str, mut there: impl FnMut() -> bool) {
    let begun = oneclock::clock::now();
    while !there() {
        assert!(oneclock::clock::now().since(begun) < BOUND, "not seen within {BOUND:?}: {what}");
        std::thread::sleep(ms(2));
    }
}
