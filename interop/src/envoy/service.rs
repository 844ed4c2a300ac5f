//! The services behind Envoy: one under our layers, one that knows nothing of budgets. Both do what a field of the request
//! says, and keep what arrived and how their work ended.
//!
//! `x-work` says what to do: `sleep=500` before the head, `status=503` instead of 200, `stream=50` for a body of a piece
//! each 50 ms that never ends, `pieces=3;grpc=4` that ends after three with this status, `shed=1` for the answer of a
//! service of ours that takes nobody more, `read=1` to wait for the whole upload first. `x-case` names the call, so that a row finds its own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use oneclock::clock;
use oneclock_core::wire::{Conventions, names};
use oneclock_core::{Policy, Tick, Trust};
use oneclock_http::{IngressLayer, serve};
use oneclock_tonic::PolicyExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::{ServiceExt as _, service_fn};

/// What the service under our layers allows: what nobody asked for gets this.
pub(crate) const WHEN_ABSENT: Duration = Duration::from_millis(800);
/// The most that it allows.
pub(crate) const CEILING: Duration = Duration::from_secs(5);
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// How long a row waits for something to have happened.
const PATIENCE: Duration = Duration::from_secs(10);

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) head: HeaderMap,
    pub(crate) at: Tick,
    /// What the operation had left, if there was one, when the handler began.
    pub(crate) left: Option<Duration>,
    /// Whether the handler began.
    pub(crate) began: bool,
    /// How its work ended, and when.
    pub(crate) ended: Option<(How, Tick)>,
}

/// How the work for a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Finished,
    Dropped,
}

/// All that arrived at one service.
#[derive(Clone)]
pub(crate) struct Log {
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    changes: watch::Sender<()>,
}

/// A service, running until it is dropped.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) log: Log,
    _tasks: JoinSet<()>,
}

/// Writes down how the work for one request ended. A guard, because nothing after an await runs in work that is dropped.
struct AtWork {
    log: Log,
    index: usize,
    finished: bool,
}

/// Where a request stands in the log.
#[derive(Clone, Copy)]
struct Index(usize);

// === Service ===

impl Service {
    /// One under our layers, whose peers are trusted: gRPC under the one for tonic, the rest under the one for HTTP.
    pub(crate) async fn ours() -> Result<Self, String> {
        let policy = Policy::named("service").when_absent(WHEN_ABSENT).ceiling(CEILING).build();
        let policy = policy.map_err(|error| error.to_string())?;
        Self::start(|router| {
            let grpc = router.clone().layer(policy.grpc_layer());
            let http = router.layer(IngressLayer::new(policy));
            Router::new().fallback_service(service_fn(move |request: Request| {
                let router = if is_grpc(request.headers()) { grpc.clone() } else { http.clone() };
                router.oneshot(request)
            }))
        })
        .await
    }

    /// One under our layer for HTTP that does not read what Envoy writes.
    pub(crate) async fn deaf() -> Result<Self, String> {
        let policy = Policy::named("service").when_absent(WHEN_ABSENT).ceiling(CEILING).build();
        let layer = IngressLayer::new(policy.map_err(|error| error.to_string())?);
        let fields = Conventions::default_set().without(names::X_ENVOY_EXPECTED_RQ_TIMEOUT_MS);
        Self::start(|router| router.layer(layer.reads(fields))).await
    }

    /// One that knows nothing of budgets.
    pub(crate) async fn naive() -> Result<Self, String> {
        Self::start(|router| router).await
    }

    async fn start(under: impl FnOnce(Router) -> Router) -> Result<Self, String> {
        let log = Log { arrivals: Arc::default(), changes: watch::Sender::new(()) };
        let working = log.clone();
        let app = under(Router::new().fallback(move |request| work(working.clone(), request)));
        let arriving = log.clone();
        // Outside of our layers, so that it sees what they refuse, and fields that they remove.
        let app = app.layer(axum::middleware::from_fn(move |mut request: Request, next: axum::middleware::Next| {
            let index = arriving.arrived(request.headers().clone());
            request.extensions_mut().insert(index);
            next.run(request)
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _ = serve(listener, app).trust(Trust::Inside).await;
        });
        Ok(Self { address, log, _tasks: tasks })
    }
}

async fn work(log: Log, request: Request) -> Response {
    let index = request.extensions().get().map_or(usize::MAX, |Index(index)| *index);
    let at_work = log.begins(index);
    let head = request.headers();
    let grpc = is_grpc(head);
    let does = head.get("x-work").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let does = |word: &str| {
        let mut parts = does.split(';').filter_map(|part| part.split_once('='));
        parts.find(|(name, _)| *name == word).and_then(|(_, value)| value.parse::<u64>().ok())
    };
    if does("read").is_some() {
        let _ = axum::body::to_bytes(request.into_body(), 1 << 20).await;
    }
    if let Some(ms) = does("sleep") {
        sleep(Duration::from_millis(ms)).await;
    }
    let status = does("status").and_then(|status| u16::try_from(status).ok()).unwrap_or(200);
    let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from(does("grpc").unwrap_or(0)))]);
    let last = does("pieces");
    let body = match does("stream") {
        Some(every) => {
            let pieces = stream::unfold((at_work, 0), move |(at_work, sent)| async move {
                if Some(sent) == last {
                    at_work.finish();
                    return None;
                }
                sleep(Duration::from_millis(every)).await;
                let piece = if grpc { Bytes::from_static(&[0; 5]) } else { Bytes::from_static(b"piece\n") };
                Some((Ok::<_, Infallible>(Frame::data(piece)), (at_work, sent + 1)))
            });
            let trailers = last.map(|_| Ok(Frame::trailers(trailers)));
            Body::new(StreamBody::new(pieces.chain(stream::iter(trailers))))
        }
        None => {
            at_work.finish();
            if grpc {
                let frames = [Frame::data(Bytes::from_static(&[0; 5])), Frame::trailers(trailers)];
                Body::new(StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>))))
            } else {
                Body::from("done\n")
            }
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    if does("shed").is_some() {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert("oneclock-reason", HeaderValue::from_static("shed"));
    }
    if grpc {
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    }
    response
}

fn is_grpc(head: &HeaderMap) -> bool {
    head.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

// === Log ===

impl Log {
    fn arrived(&self, head: HeaderMap) -> Index {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.push(Arrival { head, at: clock::now(), left: None, began: false, ended: None });
        let index = Index(arrivals.len() - 1);
        drop(arrivals);
        self.changes.send_replace(());
        index
    }

    fn begins(&self, index: usize) -> AtWork {
        self.change(index, |arrival| {
            arrival.began = true;
            arrival.left = oneclock::remaining();
        });
        AtWork { log: self.clone(), index, finished: false }
    }

    fn change(&self, index: usize, change: impl FnOnce(&mut Arrival)) {
        if let Some(arrival) = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).get_mut(index) {
            change(arrival);
        }
        self.changes.send_replace(());
    }

    /// What has arrived for this case.
    pub(crate) fn of(&self, case: &str) -> Vec<Arrival> {
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.iter().filter(|arrival| arrival.said("x-case") == case).cloned().collect()
    }

    /// What has arrived for this case, once all work that began is over.
    pub(crate) async fn over(&self, case: &str) -> Result<Vec<Arrival>, String> {
        self.once(case, |arrivals| arrivals.iter().all(|arrival| !arrival.began || arrival.ended.is_some())).await
    }

    /// What has arrived for this case, once work on it began.
    pub(crate) async fn begun(&self, case: &str) -> Result<Vec<Arrival>, String> {
        self.once(case, |arrivals| arrivals.iter().any(|arrival| arrival.began)).await
    }

    async fn once(&self, case: &str, is: impl Fn(&[Arrival]) -> bool) -> Result<Vec<Arrival>, String> {
        let mut changes = self.changes.subscribe();
        let waiting = async {
            loop {
                let arrivals = self.of(case);
                if is(&arrivals) {
                    return arrivals;
                }
                let _ = changes.changed().await; // the sender is in self
            }
        };
        let seen = timeout(PATIENCE, waiting).await;
        seen.map_err(|_| format!("waited {PATIENCE:?} for the service, which saw {:?}", self.lines(case)))
    }

    fn lines(&self, case: &str) -> Vec<String> {
        self.of(case).iter().map(Arrival::line).collect()
    }
}

impl Arrival {
    /// A field of the request; empty if it is not there.
    pub(crate) fn said(&self, name: &str) -> &str {
        self.head.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// What its operation had left when the work began; nothing if there was none.
    pub(crate) fn left(&self) -> Duration {
        self.left.unwrap_or_default()
    }

    /// Whether its work was dropped before its end.
    pub(crate) fn dropped(&self) -> bool {
        self.ended.is_some_and(|(how, _)| how == How::Dropped)
    }

    /// Everything that speaks of time, and how it ended, in one line.
    pub(crate) fn line(&self) -> String {
        let told: Vec<_> = self
            .head
            .iter()
            .filter(|(name, _)| {
                let name = name.as_str();
                name.ends_with("-ms")
                    || name.contains("timeout")
                    || name.contains("deadline")
                    || name.contains("attempt")
            })
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        let ended = match self.ended {
            Some((how, at)) => format!("{how:?} after {} ms", at.since(self.at).as_millis()),
            None if self.began => "at work".to_owned(),
            None => "not begun".to_owned(),
        };
        let left = self.left.map(|left| format!(", had {} ms", left.as_millis())).unwrap_or_default();
        format!("[{}] {ended}{left}", told.join(", "))
    }
}

// === AtWork ===

impl AtWork {
    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let how = if self.finished { How::Finished } else { How::Dropped };
        self.log.change(self.index, |arrival| arrival.ended = Some((how, clock::now())));
    }
}
