//! The callers: plain hyper, who know nothing of the proxy. Some leave.
//!
//! Decides what an answer was, and which ones a request explains: a time-out needs a budget that is used up by the caller's
//! own watch, a failure an upstream that failed. Everything else is a finding, and so are more refusals than an upstream that
//! fails now and then would explain.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use oneclock::clock;
use tokio::time::timeout;

use crate::plan::{DOES, Does, ID, MIN_USEFUL, Plan, Said, Way, said_to};
use crate::websocket;

/// Nobody may wait longer than this: the longest budget is 2 s.
const LONGEST: Duration = Duration::from_secs(20);
/// For how long a connection is kept that nothing is asked on. The proxy closes it after 75 s, and after 10 s if nothing was ever
/// asked on it, as anybody may at any time (RFC 9112 section 9.5): a request that meets that would be lost without a mistake of
/// anybody's. Callers who let go of it first never meet that, so whatever is lost here is a finding.
const KEPT: Duration = Duration::from_secs(5);
/// How many HTTP/2 connections there are; over HTTP/1.1 there is one for each call that is on its way.
const CONNECTIONS: usize = 4;
/// The share that may be refused: nearly all of those for whom nobody is there (3 %), and a few of the others.
const REFUSED: f64 = 0.06;
/// Findings of one sort that are told in full.
const TOLD: usize = 5;

type Http = Client<HttpConnector, Full<Bytes>>;

pub(super) struct Callers {
    proxy: SocketAddr,
    seed: u64,
    http1: Http,
    http2: Vec<Http>,
    got: Mutex<BTreeMap<(Way, Got), u64>>,
    findings: Mutex<BTreeMap<&'static str, (u64, Vec<String>)>>,
}

/// What a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Got {
    /// All of it, and its own.
    Answer,
    /// Refused: what it said of the time cannot be read.
    Malformed,
    OutOfTime,
    /// Not asked: the proxy holds back from an upstream that fails a lot, which meets others, too.
    Refused,
    /// The upstream gave no answer.
    Failed,
    /// An answer that ended before its end, and said so.
    CutOff,
    /// The caller left.
    Left,
}

/// What must not be.
enum Wrong {
    Lost(String),
    AnothersAnswer(String),
    Unexplained(Got, String),
    Strange(String),
}

impl Callers {
    pub(super) fn new(proxy: SocketAddr, seed: u64) -> Self {
        let mut http1 = Client::builder(TokioExecutor::new());
        let http1 = http1.pool_timer(TokioTimer::new()).pool_idle_timeout(KEPT).build_http();
        let http2 = || Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        let http2 = std::iter::repeat_with(http2).take(CONNECTIONS).collect();
        Self { proxy, seed, http1, http2, got: Mutex::default(), findings: Mutex::default() }
    }

    /// How often which way came to what.
    pub(super) fn outcomes(&self) -> BTreeMap<(Way, Got), u64> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn findings(&self) -> Vec<String> {
        let findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        let lines =
            findings.iter().map(|(what, (count, some))| format!("{count} {what}, such as: {}", some.join("; ")));
        let mut lines: Vec<String> = lines.collect();
        let outcomes = self.outcomes();
        let refused = outcomes.iter().filter(|((_, got), _)| *got == Got::Refused).map(|(_, count)| count).sum::<u64>();
        let all = outcomes.values().sum::<u64>();
        if refused as f64 > REFUSED * all as f64 {
            lines.push(format!("{refused} of {all} were refused: at most {:.0} % may be", REFUSED * 100.0));
        }
        lines
    }

    /// One call, as its number says.
    pub(super) async fn call(&self, number: u64) {
        let plan = Plan::of(self.seed, number);
        let patience = plan.leaves.unwrap_or(LONGEST);
        let began = clock::now();
        let got = match timeout(patience, self.exchange(number, &plan)).await {
            Ok(Ok(got)) => got,
            Ok(Err(wrong)) => return self.wrong(number, &plan, wrong),
            Err(_) if plan.leaves.is_some() => Got::Left,
            Err(_) => return self.found("hung", format!("{number} {plan:?}")),
        };
        let took = clock::now().since(began);
        if !explained(got, &plan, took) {
            self.wrong(number, &plan, Wrong::Unexplained(got, format!("after {took:?}")));
        }
        *self.got.lock().unwrap_or_else(PoisonError::into_inner).entry((plan.way, got)).or_default() += 1;
    }

    async fn exchange(&self, id: u64, plan: &Plan) -> Result<Got, Wrong> {
        if plan.way == Way::WebSocket {
            return match websocket::talk(self.proxy, id, plan).await {
                Ok(None) => Ok(Got::Answer),
                Ok(Some(504)) => Ok(Got::OutOfTime),
                Ok(Some(503)) => Ok(Got::Refused),
                Ok(Some(status)) => Err(Wrong::Strange(format!("a WebSocket was answered with {status}"))),
                Err(error) => Err(Wrong::Lost(error.to_string())),
            };
        }
        let client = match plan.way {
            Way::Http1 => &self.http1,
            _ => &self.http2[usize::try_from(id).unwrap_or(0) % CONNECTIONS],
        };
        let request = request(self.proxy, id, plan).map_err(|error| Wrong::Strange(error.to_string()))?;
        let answer = client.request(request).await.map_err(|error| Wrong::Lost(chain(&error)))?;
        let (head, body) = answer.into_parts();
        let own = head.headers.get(ID).map(|own| own.as_bytes().to_vec());
        let whole = match body.collect().await {
            Ok(whole) => whole,
            Err(_) => return Ok(Got::CutOff),
        };
        let status = |fields: &http::HeaderMap| fields.get("grpc-status")?.to_str().ok()?.parse::<u8>().ok();
        let code = whole.trailers().and_then(status).or_else(|| status(&head.headers));
        let said = whole.to_bytes();
        match (plan.way, head.status.as_u16(), code) {
            (Way::Grpc, 200, Some(0)) | (Way::Http1 | Way::Http2, 200, None) => is_own(id, plan, own, &said),
            (Way::Grpc, 200, Some(4)) | (Way::Http1 | Way::Http2, 504, None) => Ok(Got::OutOfTime),
            (Way::Grpc, 200, Some(14)) if !plan.fails() => Ok(Got::Refused),
            // A reset after the head, where the rest of a message was to come.
            (Way::Grpc, 200, Some(14 | 13 | 2)) if plan.said != Said::Malformed => Ok(Got::Failed),
            (Way::Http1 | Way::Http2, 502, None) => Ok(Got::Failed),
            (Way::Http1 | Way::Http2, 503, None) => Ok(Got::Refused),
            // Its upload was still on its way.
            (Way::Http1 | Way::Http2, 408, None) if plan.upload.is_some() => Ok(Got::OutOfTime),
            (Way::Grpc, 200, Some(13)) | (Way::Http1 | Way::Http2, 400, None) => Ok(Got::Malformed),
            (_, status, code) => Err(Wrong::Strange(format!("status {status}, code {code:?}, {} bytes", said.len()))),
        }
    }

    fn wrong(&self, number: u64, plan: &Plan, wrong: Wrong) {
        let (what, why) = match wrong {
            Wrong::Lost(why) => ("lost their answer", why),
            Wrong::AnothersAnswer(why) => ("got what is not their answer", why),
            Wrong::Unexplained(got, why) => ("got what nothing explains", format!("{got:?} {why}")),
            Wrong::Strange(why) => ("got something strange", why),
        };
        self.found(what, format!("{number}: {why}, of {plan:?}"));
    }

    fn found(&self, what: &'static str, why: String) {
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, some) = findings.entry(what).or_default();
        *count += 1;
        if some.len() < TOLD {
            some.push(why);
        }
    }
}

fn request(proxy: SocketAddr, id: u64, plan: &Plan) -> Result<Request<Full<Bytes>>, http::Error> {
    let path = match (plan.way, plan.to_nobody) {
        (Way::Grpc, false) => "soak.Work/Do",
        (Way::Grpc, true) => "soak.Nobody/Do",
        (_, false) => "work",
        (_, true) => "nobody",
    };
    let method = if plan.upload.is_some() || plan.way == Way::Grpc { http::Method::POST } else { http::Method::GET };
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://{proxy}/{path}"))
        .header(ID, id)
        .header(DOES, plan.does.to_string());
    if !plan.may_repeat() {
        request = request.header("x-once", "1");
    }
    let grpc = plan.way == Way::Grpc;
    request = match (plan.said, grpc) {
        (Said::Nothing, _) => request,
        (Said::Ms(ms), false) => request.header("x-remaining-ms", ms),
        (Said::Ms(ms), true) => request.header("grpc-timeout", format!("{ms}m")),
        (Said::Malformed, false) => request.header("x-remaining-ms", "+5"),
        (Said::Malformed, true) => request.header("grpc-timeout", "5"),
    };
    if grpc {
        let message = Bytes::from_static(&[0, 0, 0, 0, 0]);
        let request = request.header(header::CONTENT_TYPE, "application/grpc").header(header::TE, "trailers");
        return request.body(Full::new(message));
    }
    request.body(Full::from(plan.upload.map(|bytes| said_to(id, bytes)).unwrap_or_default()))
}

/// Whether that may come of it.
fn explained(got: Got, plan: &Plan, took: Duration) -> bool {
    // The caller's watch began before the proxy's. What is left and not useful is refused at once.
    let late = took + MIN_USEFUL >= plan.budget();
    match got {
        Got::Answer => !plan.fails() && plan.said != Said::Malformed,
        Got::Malformed => plan.said == Said::Malformed,
        Got::OutOfTime => late,
        Got::Refused => true, // how often is looked at in the end
        Got::Failed => plan.fails(),
        Got::CutOff => late || matches!(plan.does, Does::ResetsMidway { .. }),
        Got::Left => plan.leaves.is_some(),
    }
}

fn is_own(id: u64, plan: &Plan, own: Option<Vec<u8>>, said: &[u8]) -> Result<Got, Wrong> {
    let said = if plan.way == Way::Grpc { said.get(5..).unwrap_or_default() } else { said };
    let bytes = match plan.does {
        Does::Answers { bytes, .. } => bytes,
        _ => said.len(),
    };
    let is_own = own.as_deref() == Some(id.to_string().as_bytes()) && said == said_to(id, bytes);
    if is_own {
        return Ok(Got::Answer);
    }
    Err(Wrong::AnothersAnswer(format!("{own:?} with {} bytes", said.len())))
}

fn chain(error: &dyn std::error::Error) -> String {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

impl Got {
    pub(super) const ALL: [Self; 7] =
        [Self::Answer, Self::Malformed, Self::OutOfTime, Self::Refused, Self::Failed, Self::CutOff, Self::Left];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Answer => "own answer",
            Self::Malformed => "malformed",
            Self::OutOfTime => "out of time",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::CutOff => "cut off",
            Self::Left => "left",
        }
    }
}
