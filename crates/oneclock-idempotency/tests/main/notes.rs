//! For tests of stores, in whichever crate: a folder with notes that survive whoever writes them, and requests with keys.

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
use oneclock::clock;
use oneclock::events::Counting;
use oneclock_idempotency::{Idempotency, IdempotencyBuilder, Store};
use tower::{Layer as _, ServiceExt as _};

/// Far beyond what anything here takes when it works, on a busy machine too.
const HALF_A_MINUTE: Duration = Duration::from_secs(30);

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

/// A layer for tests that are not about a store that is slow, unless they say so.
pub(crate) fn layer<St: Store>(
    store: St,
    of: impl FnOnce(IdempotencyBuilder<St>) -> IdempotencyBuilder<St>,
) -> (Idempotency<St>, Arc<Counting>) {
    let counting = Arc::new(Counting::default());
    let builder = Idempotency::builder("charge", store).one_principal().required().observed_by(counting.clone());
    let builder = builder.claim_within(HALF_A_MINUTE).execution(HALF_A_MINUTE).record_within(HALF_A_MINUTE);
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

/// Looks until it is there: what another process does wakes nobody here.
pub(crate) fn until_there(what: &str, mut there: impl FnMut() -> bool) {
    let begun = clock::now();
    while !there() {
        assert!(clock::now().since(begun) < HALF_A_MINUTE, "not seen within {HALF_A_MINUTE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
