//! The resource that says what is known of an operation, for who lost its answer or does not wait for it.
//!
//! Decides who may see what: the principal is the asker's own, so that somebody else's handle shows nothing. What is unknown
//! may become known, never the reverse; "never seen" is said only of keys that are young enough for that to be known. And for how
//! long a caller may wait here for a change (`Prefer: wait`): within its own time, and not too many at once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use oneclock::clock;
use oneclock_core::Deadline;
use oneclock_core::idempotency::{Handle, Record, Refusal, Scope, State, prefers_to_wait, wait};
use oneclock_http::{Problem, Protocol};
use serde_json::json;
use tokio::sync::{Semaphore, SemaphorePermit};
use tower_service::Service;

use crate::Answer;
use crate::body::{Body, whole};
use crate::changes::Watch;
use crate::layer::Idempotency;
use crate::refuse;
use crate::store::{Kept, Store};

/// Answers `GET <anything>/<handle>` with what is known of the record: `queued`, `in_progress`, `completed`, `failed_retryable`
/// or `unknown`, with its times; if it is completed, the status of its answer; and the problem document that was kept, if that
/// is one.
///
/// With `Prefer: wait=10` (RFC 7240) it answers when the state changes, else after so many seconds, within the caller's own
/// deadline: at once where the change is made in this process through the same store, else when it looks again. What is
/// completed is answered at once. An answer that waited has `Preference-Applied: wait`.
///
/// 404: never seen. 410: the key is older than records are kept, and there is none. Its address is in the `Link` of answers
/// that leave something open, and in the `Location` of what was accepted.
pub struct Monitor<St> {
    of: Idempotency<St>,
    wait_at_most: Duration,
    places: Arc<Semaphore>,
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, std::convert::Infallible>> + Send>>;

/// One look at the store: what is there, or that it cannot be told.
type Look = Result<Option<Kept>, Unreachable>;

struct Unreachable;

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// The first pause between two looks of one that waits, and the longest.
const LOOKS_FIRST: Duration = Duration::from_millis(50);
const LOOKS_AT_LEAST: Duration = Duration::from_secs(1);

impl<St: Store> Monitor<St> {
    pub(crate) fn new(of: Idempotency<St>) -> Self {
        Self { of, wait_at_most: Duration::from_secs(60), places: Arc::new(Semaphore::new(256)) }
    }

    /// The longest that a caller may wait here, whatever it prefers and has left; a minute unless said otherwise.
    #[must_use]
    pub fn wait_at_most(mut self, most: Duration) -> Self {
        self.wait_at_most = most;
        self
    }

    /// How many may wait here at the same time; 256 unless said otherwise. Others are answered at once.
    #[must_use]
    pub fn max_waiting(mut self, most: usize) -> Self {
        self.places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        self
    }

    async fn answer(self, head: Parts) -> Response<Bytes> {
        if head.method != Method::GET && head.method != Method::HEAD {
            let problem = Problem::with_status(StatusCode::METHOD_NOT_ALLOWED, "an operation's state is read with GET");
            let mut response = refuse::of_problem(problem, Protocol::Http);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let nothing = |status, title| refuse::of_problem(Problem::with_status(status, title), Protocol::Http);
        let segment = head.uri.path().rsplit('/').next().unwrap_or_default();
        let limits = self.of.0.limits;
        let (Some(handle), Some(principal)) = (Handle::parse(segment), (self.of.0.principal)(&head)) else {
            return nothing(StatusCode::NOT_FOUND, "no such operation");
        };
        let scope = handle.with_principal(&principal);
        let (look, waited) = match self.waits(&head) {
            Some((most, _place)) => (self.looks_until_changed(&scope, most).await, true),
            None => (self.looks(&scope).await, false),
        };
        let mut response = match look {
            Ok(Some(Kept { record, answer })) => document(&record, answer.as_ref()),
            Ok(None) => match scope.key.made() {
                Some(made) if clock::wall().since(made) >= limits.retention => {
                    nothing(StatusCode::GONE, "records are not kept for as long")
                }
                _ => nothing(StatusCode::NOT_FOUND, "no such operation"),
            },
            Err(Unreachable) => refuse::answer(Refusal::StoreUnreachable, None, limits.claim_within, Protocol::Http),
        };
        if waited {
            response.headers_mut().insert(PREFERENCE_APPLIED, HeaderValue::from_static("wait"));
        }
        response
    }

    /// How long the caller would wait, and may, and its place.
    fn waits(&self, head: &Parts) -> Option<(Duration, SemaphorePermit<'_>)> {
        let prefers = prefers_to_wait(head.headers.get_all(PREFER).iter().map(HeaderValue::as_bytes))?;
        let left = oneclock::remaining().unwrap_or(Duration::MAX);
        let most = wait(left, self.of.0.limits.reserve, self.wait_at_most.min(prefers))?;
        Some((most, self.places.try_acquire().ok()?))
    }

    async fn looks(&self, scope: &Scope) -> Look {
        let look = tokio::time::timeout(self.of.0.limits.claim_within, self.of.store().read(scope)).await;
        look.map_err(|_| Unreachable)?.map_err(|_| Unreachable)
    }

    /// The record when it stands otherwise than at first, or as it was seen last.
    async fn looks_until_changed(&self, scope: &Scope, most: Duration) -> Look {
        let until = Deadline::after(clock::now(), most);
        let mut watch = self.of.store().changes().map(|changes| changes.watch(scope)); // before the first look
        let mut last = self.looks(scope).await;
        let Ok(Some(Kept { record: first, .. })) = last else { return last };
        if first.state == State::Completed {
            return last; // it stays so
        }
        let looking = async {
            let mut pause = LOOKS_FIRST;
            loop {
                tokio::select! {
                    () = changed(&mut watch) => {}
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(LOOKS_AT_LEAST),
                }
                last = self.looks(scope).await;
                match &last {
                    Ok(Some(kept)) if stands_as(&kept.record, &first) => {}
                    Err(Unreachable) => {} // asked again while there is time
                    _ => return,
                }
            }
        };
        let _ = tokio::time::timeout_at(clock::instant(until), looking).await;
        last
    }
}

async fn changed(watch: &mut Option<Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

fn stands_as(record: &Record, before: &Record) -> bool {
    (record.fence, record.state, record.since) == (before.fence, before.state, before.since)
}

fn document(record: &Record, answer: Option<&Answer>) -> Response<Bytes> {
    let millis = |wall: oneclock_core::wire::Wall| wall.as_nanos() / 1_000_000;
    let mut document = json!({
        "state": record.state.as_str(),
        "fence": record.fence.0,
        "first_seen_ms": millis(record.first_seen),
        "since_ms": millis(record.since),
    });
    match record.state {
        State::InProgress { lease_until } => document["lease_until_ms"] = millis(lease_until).into(),
        State::Unknown(doubt) => document["because"] = doubt.as_str().into(),
        _ => {}
    }
    if let Some(answer) = answer {
        if record.state == State::Completed {
            document["status"] = answer.status().as_u16().into();
        }
        if let Some(problem) = answer.problem() {
            document["problem"] = problem;
        }
    }
    let mut response = Response::new(Bytes::from(document.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl<St: Store, B> Service<Request<B>> for Monitor<St> {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let monitor = self.clone();
        let (head, _) = request.into_parts();
        Box::pin(async move { Ok(monitor.answer(head).await.map(whole)) })
    }
}

impl<St> Clone for Monitor<St> {
    fn clone(&self) -> Self {
        Self { of: self.of.clone(), wait_at_most: self.wait_at_most, places: Arc::clone(&self.places) }
    }
}

impl<St> fmt::Debug for Monitor<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("of", &self.of).finish_non_exhaustive()
    }
}
