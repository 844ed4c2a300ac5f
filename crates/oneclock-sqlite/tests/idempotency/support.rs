//! A folder with a store, a history that survives whoever writes it, a far side, and requests with keys.

use std::convert::Infallible;
use std::fs::OpenOptions;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use oneclock::clock;
use oneclock::events::Counting;
use oneclock_core::wire::Wall;
use oneclock_idempotency::{Idempotency, IdempotencyBuilder, Store};
use oneclock_sqlite::{IdempotencyStore, IdempotencyStoreBuilder};
use tower::{Layer as _, ServiceExt as _};

/// Far beyond what anything here takes when it works.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A folder of one test. Goes away with the one that made it.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    own: bool,
}

impl Folder {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("oneclock-idempotency-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self { path, own: true }
    }

    /// Somebody else's.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, own: false }
    }

    pub(crate) fn builder(&self) -> IdempotencyStoreBuilder {
        IdempotencyStore::builder(self.path.join("store.sqlite")).busy_for(Duration::from_secs(10))
    }

    /// A store whose clock is ahead by `shift`.
    pub(crate) fn store_ahead(&self, shift: Duration) -> IdempotencyStore {
        self.builder().clock(move || ahead(shift)).build().unwrap()
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

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

pub(crate) fn ahead(shift: Duration) -> Wall {
    clock::wall() + shift
}

/// A layer with what these tests want.
pub(crate) fn layer<St: Store>(
    store: St,
    of: impl FnOnce(IdempotencyBuilder<St>) -> IdempotencyBuilder<St>,
) -> (Idempotency<St>, Arc<Counting>) {
    let counting = Arc::new(Counting::default());
    let builder = Idempotency::builder("charge", store).one_principal().required().observed_by(counting.clone());
    // Far beyond what a busy machine needs: nothing here is about a store that is slow.
    let half_a_minute = Duration::from_secs(30);
    let builder = builder.claim_within(half_a_minute).execution(half_a_minute).record_within(half_a_minute);
    (of(builder).build().expect("a layer"), counting)
}

/// Sends a request with `key` through `layer` to `handler`: its status and body.
pub(crate) async fn send<St, F>(
    layer: &Idempotency<St>,
    key: &str,
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
    let request = Request::post("/charges").header("idempotency-key", key).body(Full::from("{}")).unwrap();
    let answer = layer.layer(service).oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

pub(crate) fn created(body: impl Into<String>) -> Response<Full<Bytes>> {
    Response::builder().status(201).body(Full::from(body.into())).unwrap()
}

/// Looks until it is there.
pub(crate) fn until(what: &str, mut there: impl FnMut() -> bool) {
    let begun = clock::now();
    while !there() {
        assert!(clock::now().since(begun) < BOUND, "not seen within {BOUND:?}: {what}");
        std::thread::sleep(ms(2));
    }
}
