//! Which page, which method, and the form of an answer: JSON, but for what Prometheus reads.
//!
//! Decides that nothing here waits for anything but the body of a change, that no answer is stored by anybody on the way, and
//! that who asks for what is not there is told what is.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use oneclock::clock;
use oneclock_http::{NotCollected, Upload, collect};
use oneclock_telemetry::readiness::Verdict;
use oneclock_telemetry::{Readiness, Scrape};
use serde_json::{Value, json};
use tower_service::Service;

use super::guard::{self, TurnedAway};
use super::looks::Looks;
use super::policy::{self, Unusable};
use super::show;
use crate::control::Control;

/// How long the body of a change may be, in bytes.
const BODY: usize = 4 * 1024;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const CONTENT_TYPE_OPTIONS: HeaderName = HeaderName::from_static("x-content-type-options");

/// Answers the requests of the admin listener. Always ready.
#[derive(Clone, Debug)]
pub(super) struct Pages(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    control: Control,
    readiness: Readiness,
    looks: Looks,
    address: SocketAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Index,
    Live,
    Ready,
    Metrics,
    Config,
    Operations,
    Ledgers,
    Drain,
    Policy,
}

/// Every page: its path, what it says.
const PAGES: [(Page, &str, &str); 9] = [
    (Page::Index, "/", "this list"),
    (Page::Live, "/live", "whether the process runs: 200"),
    (Page::Ready, "/ready", "whether to send requests here: 200 or 503, and why not"),
    (Page::Metrics, "/metrics", "for Prometheus"),
    (Page::Config, "/config", "what holds, without passwords"),
    (Page::Operations, "/live-operations", "what is under way, and what it has left"),
    (Page::Ledgers, "/ledgers", "the last ones that a deadline ended, and where their time went"),
    (Page::Drain, "/drain", "accepts nothing more, and ends when what is under way is over"),
    (Page::Policy, "/policy", "changes a route for now: its retries, its mode"),
];

pub(super) type Answer = Response<Full<Bytes>>;
type Asked = Request<Upload<Incoming>>;

// === Pages ===

impl Pages {
    pub(super) fn new(control: Control, readiness: Readiness, looks: Looks, address: SocketAddr) -> Self {
        Self(Arc::new(Inner { control, readiness, looks, address }))
    }
}

impl Service<Asked> for Pages {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Asked) -> Self::Future {
        let pages = Arc::clone(&self.0);
        Box::pin(async move {
            let head_only = *request.method() == Method::HEAD;
            let answer = pages.answer(request).await;
            Ok(if head_only { without_body(answer) } else { answer })
        })
    }
}

impl Inner {
    async fn answer(&self, request: Asked) -> Answer {
        let (head, body) = request.into_parts();
        let page = Page::at(head.uri.path());
        if let Err(why) = guard::may_ask(&head, page.is_some_and(Page::changes), self.address) {
            let status = if why == TurnedAway::NoHost { StatusCode::BAD_REQUEST } else { StatusCode::FORBIDDEN };
            return problem(status, "turned away", &why.to_string());
        }
        let Some(page) = page else { return no_such_page() };
        if !page.methods().contains(&head.method) {
            return wrong_method(page);
        }
        let control = &self.control;
        match page {
            Page::Index => json(StatusCode::OK, &json!({ "pages": index() })),
            Page::Live => json(StatusCode::OK, &json!({ "live": true })),
            Page::Ready => self.ready(),
            Page::Metrics => match control.telemetry() {
                Some(telemetry) => answer(StatusCode::OK, METRICS, telemetry.text(control)),
                None => no_such_page(), // cannot be: there are pages, so there are metrics
            },
            Page::Config => json(StatusCode::OK, &show::config(control)),
            Page::Operations => json(StatusCode::OK, &show::operations(control.live(), clock::now())),
            Page::Ledgers => {
                let ledgers = control.telemetry().map(|telemetry| telemetry.ring().to_json());
                json(StatusCode::OK, &ledgers.unwrap_or_default())
            }
            Page::Drain => {
                let grace = control.ask_to_stop();
                tracing::info!(?grace, "asked to stop, by the admin pages");
                let live = control.live().len();
                json(StatusCode::ACCEPTED, &json!({ "draining": true, "grace_ms": show::millis(grace), "live": live }))
            }
            Page::Policy => self.change(body).await,
        }
    }

    fn ready(&self) -> Answer {
        let verdict = self.readiness.now();
        let why: Vec<String> = verdict.why.iter().map(ToString::to_string).collect();
        json(
            status_of(&verdict),
            &json!({
                "ready": verdict.ready,
                "since_unix_ms": verdict.since_unix_ms,
                "for_ms": show::millis(verdict.lasts),
                "why": why,
                "listeners": self.looks.to_json(clock::now()),
            }),
        )
    }

    async fn change(&self, body: Upload<Incoming>) -> Answer {
        let body = match collect(body, BODY).await {
            Ok(body) => body,
            Err(why) => {
                let too_long = matches!(why, NotCollected::TooLong { .. });
                let status = if too_long { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
                return problem(status, "nothing is changed", &why.to_string());
            }
        };
        match self.control.change_route(|config| policy::read(&body, config)) {
            Ok(route) => {
                let held = show::route(&self.control.table().load(), &route);
                tracing::info!(%route, %held, "changed by the admin pages");
                json(StatusCode::OK, &held)
            }
            Err(why) => {
                let status = match why {
                    Unusable::NoJson(_) => StatusCode::BAD_REQUEST,
                    Unusable::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
                    Unusable::Failed(_) => StatusCode::CONFLICT,
                };
                problem(status, "nothing is changed", &why.to_string())
            }
        }
    }
}

// === Page ===

impl Page {
    fn at(path: &str) -> Option<Self> {
        PAGES.iter().find(|(_, known, _)| *known == path).map(|(page, ..)| *page)
    }

    const fn methods(self) -> &'static [Method] {
        match self {
            Self::Drain => &[Method::POST],
            Self::Policy => &[Method::PATCH],
            _ => &[Method::GET, Method::HEAD],
        }
    }

    const fn changes(self) -> bool {
        matches!(self, Self::Drain | Self::Policy)
    }

    fn allowed(self) -> String {
        let words: Vec<&str> = self.methods().iter().map(Method::as_str).collect();
        words.join(", ")
    }
}

// === Answers ===

const METRICS: HeaderValue = HeaderValue::from_static(Scrape::CONTENT_TYPE);

fn index() -> Vec<Value> {
    let page =
        |(page, path, says): &(Page, &str, &str)| json!({ "page": path, "methods": page.allowed(), "says": says });
    PAGES.iter().map(page).collect()
}

fn no_such_page() -> Answer {
    let said = json!({ "type": "about:blank", "title": "there is no such page", "status": 404, "pages": index() });
    answer(StatusCode::NOT_FOUND, PROBLEM, format!("{said:#}\n"))
}

fn wrong_method(page: Page) -> Answer {
    let allowed = page.allowed();
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let mut answer = problem(status, "this page is asked in another way", &format!("methods: {allowed}"));
    answer.headers_mut().extend(HeaderValue::from_str(&allowed).ok().map(|allowed| (ALLOW, allowed)));
    answer
}

/// What who asks by the status alone is told.
pub(super) fn status_of(verdict: &Verdict) -> StatusCode {
    if verdict.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

pub(super) fn problem(status: StatusCode, title: &str, detail: &str) -> Answer {
    let said = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    answer(status, PROBLEM, format!("{said:#}\n"))
}

pub(super) fn json(status: StatusCode, said: &Value) -> Answer {
    answer(status, JSON, format!("{said:#}\n"))
}

fn answer(status: StatusCode, kind: HeaderValue, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// What a HEAD is told: how long the body would be.
pub(super) fn without_body(answer: Answer) -> Answer {
    let (mut head, body) = answer.into_parts();
    let length = http_body::Body::size_hint(&body).exact().unwrap_or_default();
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    Response::from_parts(head, Full::default())
}
