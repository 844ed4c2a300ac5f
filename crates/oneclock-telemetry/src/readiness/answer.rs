//! Readiness as an answer over HTTP.
//!
//! Decides the form: JSON unless text is all that is accepted, never stored by anybody on the way. It waits for nothing.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tower_service::Service;

use super::Readiness;

/// `GET /readyz`. Made by [`Readiness::readyz`].
#[derive(Clone, Debug)]
pub struct Readyz(Readiness);

/// `GET /status`. Made by [`Readiness::status`].
#[derive(Clone, Debug)]
pub struct Status(Readiness);

impl Readyz {
    pub(super) const fn new(readiness: Readiness) -> Self {
        Self(readiness)
    }

    /// The answer to a request with these fields.
    pub fn answer(&self, fields: &HeaderMap) -> Response<String> {
        let verdict = self.0.now();
        let status = if verdict.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        if wants_text(fields) {
            answer(status, "text/plain; charset=utf-8", format!("{verdict}\n"))
        } else {
            answer(status, "application/json", verdict.to_json().to_string())
        }
    }
}

impl Status {
    pub(super) const fn new(readiness: Readiness) -> Self {
        Self(readiness)
    }

    /// The answer to any request.
    pub fn answer(&self) -> Response<String> {
        answer(StatusCode::OK, "application/json", self.0.to_json().to_string())
    }
}

impl<B> Service<Request<B>> for Readyz {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(if may_ask(request.method()) { self.answer(request.headers()) } else { only_get() }))
    }
}

impl<B> Service<Request<B>> for Status {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(if may_ask(request.method()) { self.answer() } else { only_get() }))
    }
}

fn may_ask(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn only_get() -> Response<String> {
    let mut response = answer(StatusCode::METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", String::new());
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

/// Whether `accept` names text and neither JSON nor everything.
fn wants_text(fields: &HeaderMap) -> bool {
    let accepted = fields.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds =
        accepted.flat_map(|value| value.split(',')).map(|kind| kind.split(';').next().unwrap_or(kind).trim());
    let (mut text, mut json) = (false, false);
    kinds.by_ref().for_each(|kind| match kind {
        "text/plain" | "text/*" => text = true,
        "application/json" | "application/*" | "*/*" => json = true,
        _ => {}
    });
    text && !json
}

fn answer(status: StatusCode, kind: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
