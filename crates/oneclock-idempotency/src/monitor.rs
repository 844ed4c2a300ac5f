//! The resource that says what is known of an operation, for who lost its answer.
//!
//! Decides who may see what: the principal is the asker's own, so that somebody else's handle shows nothing. What is unknown
//! may become known, never the reverse; "never seen" is said only of keys that are young enough for that to be known.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use oneclock::clock;
use oneclock_core::idempotency::{Handle, Record, Refusal, State};
use oneclock_http::{Problem, Protocol};
use serde_json::json;
use tower_service::Service;

use crate::body::{Body, whole};
use crate::layer::Idempotency;
use crate::refuse;
use crate::store::{Kept, Store};

/// Answers `GET <anything>/<handle>` with what is known of the record: `in_progress`, `completed`, `failed_retryable` or
/// `unknown`, with its times and, if it is completed, the status of its answer.
///
/// 404: never seen. 410: the key is older than records are kept, and there is none. Its address is in the `Link` of answers
/// that leave something open.
pub struct Monitor<St>(Idempotency<St>);

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, std::convert::Infallible>> + Send>>;

impl<St: Store> Monitor<St> {
    pub(crate) fn new(of: Idempotency<St>) -> Self {
        Self(of)
    }

    async fn answer(of: Idempotency<St>, head: Parts) -> Response<Bytes> {
        if head.method != Method::GET && head.method != Method::HEAD {
            let problem = Problem::with_status(StatusCode::METHOD_NOT_ALLOWED, "an operation's state is read with GET");
            let mut response = refuse::of_problem(problem, Protocol::Http);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let nothing = |status, title| refuse::of_problem(Problem::with_status(status, title), Protocol::Http);
        let segment = head.uri.path().rsplit('/').next().unwrap_or_default();
        let (Some(handle), Some(principal)) = (Handle::parse(segment), (of.0.principal)(&head)) else {
            return nothing(StatusCode::NOT_FOUND, "no such operation");
        };
        let scope = handle.with_principal(&principal);
        let within = of.0.limits.claim_within;
        match tokio::time::timeout(within, of.store().read(&scope)).await {
            Ok(Ok(Some(Kept { record, answer }))) => document(&record, answer.map(|answer| answer.status())),
            Ok(Ok(None)) => match scope.key.made() {
                Some(made) if clock::wall().since(made) >= of.0.limits.retention => {
                    nothing(StatusCode::GONE, "records are not kept for as long")
                }
                _ => nothing(StatusCode::NOT_FOUND, "no such operation"),
            },
            Ok(Err(_)) | Err(_) => refuse::answer(Refusal::StoreUnreachable, None, within, Protocol::Http),
        }
    }
}

fn document(record: &Record, status: Option<StatusCode>) -> Response<Bytes> {
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
    if let Some(status) = status {
        document["status"] = status.as_u16().into();
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
        let of = Idempotency(Arc::clone(&self.0.0));
        let (head, _) = request.into_parts();
        Box::pin(async move { Ok(Self::answer(of, head).await.map(whole)) })
    }
}

impl<St> Clone for Monitor<St> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<St> fmt::Debug for Monitor<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Monitor").field(&self.0).finish()
    }
}
