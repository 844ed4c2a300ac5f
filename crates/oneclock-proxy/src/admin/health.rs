//! What probes are answered with where they may come over a network: whether the process runs, and whether to send requests here.
//!
//! Decides that there is nothing else: nothing of the configuration, of requests or of the listeners is told, and nothing can be
//! changed, so that whoever reaches it may ask, under any name.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::header::{ALLOW, HeaderValue};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use oneclock_http::Upload;
use oneclock_telemetry::Readiness;
use serde_json::json;
use tower_service::Service;

use super::pages::{self, Answer};

/// Answers the requests of the listener for probes. Always ready.
#[derive(Clone, Debug)]
pub(super) struct Health(Readiness);

impl Health {
    pub(super) fn of(readiness: Readiness) -> Self {
        Self(readiness)
    }

    fn answer<B>(&self, request: &Request<B>) -> Answer {
        let path = request.uri().path();
        if !matches!(path, "/live" | "/ready") {
            return pages::problem(StatusCode::NOT_FOUND, "there is no such page", "pages: /live, /ready");
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            let mut answer = pages::problem(status, "this page is asked in another way", "methods: GET, HEAD");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        if path == "/live" {
            return pages::json(StatusCode::OK, &json!({ "live": true }));
        }
        let verdict = self.0.now();
        let why: Vec<String> = verdict.why.iter().map(ToString::to_string).collect();
        pages::json(pages::status_of(&verdict), &json!({ "ready": verdict.ready, "why": why }))
    }
}

impl Service<Request<Upload<Incoming>>> for Health {
    type Response = Answer;
    type Error = Infallible;
    type Future = Ready<Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Upload<Incoming>>) -> Self::Future {
        let answer = self.answer(&request);
        ready(Ok(if *request.method() == Method::HEAD { pages::without_body(answer) } else { answer }))
    }
}
