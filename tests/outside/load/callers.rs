//! The callers: plain hyper, over both protocols, who know nothing of the deadline but what they write. Some leave.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::{sleep, timeout};

use super::plan::{Hop, PLAN, Plan};

type AnyBody = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// How many HTTP/2 connections there are; over HTTP/1.1 there is one for each call that is on its way.
const CONNECTIONS: usize = 4;
/// A caller that nobody answers would wait for ever; the services let nobody wait longer than a second.
const LONGEST: Duration = Duration::from_secs(5);

pub(super) struct Callers {
    gateway: SocketAddr,
    seed: u64,
    h1: Client<HttpConnector, AnyBody>,
    h2: Vec<Client<HttpConnector, AnyBody>>,
    got: [AtomicU64; NAMES.len()],
}

const NAMES: [&str; 8] =
    ["answered", "refused (400, 504)", "ended (408, 503, 504)", "failed (500, 502)", "cut off", "left", "lost", "hung"];

#[derive(Clone, Copy)]
enum Got {
    Answer,
    Refusal,
    Ended,
    Failure,
    CutOff,
    Left,
    Lost,
    Hung,
}

impl Callers {
    pub(super) fn new(gateway: SocketAddr, seed: u64) -> Self {
        let h1 = Client::builder(TokioExecutor::new()).build_http();
        let h2 = || Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        let h2 = std::iter::repeat_with(h2).take(CONNECTIONS).collect();
        Self { gateway, seed, h1, h2, got: Default::default() }
    }

    pub(super) fn outcomes(&self) -> Vec<(&'static str, u64)> {
        NAMES.into_iter().zip(self.got.iter().map(|got| got.load(Ordering::Relaxed))).collect()
    }

    /// One call, as its number says.
    pub(super) async fn call(&self, number: u64) {
        let plan = Plan::of(self.seed, Hop::Caller).number() ^ number;
        let mut dice = Plan::of(plan, Hop::Caller);
        let patience = if dice.chance(30) { dice.span(60) } else { LONGEST };
        let got = match timeout(patience, self.exchange(plan, dice)).await {
            Ok(got) => got,
            Err(_) if patience == LONGEST => Got::Hung,
            Err(_) => Got::Left,
        };
        self.got[got as usize].fetch_add(1, Ordering::Relaxed);
    }

    async fn exchange(&self, plan: u64, mut dice: Plan) -> Got {
        let client = match dice.up_to(2 * CONNECTIONS - 1) {
            nth if nth < CONNECTIONS => &self.h2[nth],
            _ => &self.h1,
        };
        let request = Request::post(format!("http://{}/work", self.gateway)).header(PLAN, plan.to_string());
        let request = match dice.up_to(99) {
            0..3 => request.header("x-remaining-ms", "0"),
            3..6 => request.header("x-remaining-ms", "2"),
            6..8 => request.header("x-remaining-ms", "+5"),
            8..18 => request,
            18..30 => request.header("grpc-timeout", format!("{}m", 20 + dice.span(300).as_millis())),
            _ => request.header("x-remaining-ms", (10 + dice.span(300).as_millis()).to_string()),
        };
        let Ok(request) = request.body(body(&mut dice)) else { return Got::Lost };
        let Ok(answer) = client.request(request).await else { return Got::Lost };
        let (head, mut body) = answer.into_parts();
        let own = !head.headers.contains_key("oneclock-reason");
        let (stops, lingers) = (dice.chance(8), dice.span(150));
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return Got::CutOff;
            }
            if stops {
                sleep(lingers).await;
                return Got::Left;
            }
        }
        match head.status.as_u16() {
            200 => Got::Answer,
            400 => Got::Refusal,
            504 if !own && is_of_the_start(&head.headers) => Got::Refusal,
            408 | 503 | 504 => Got::Ended,
            _ => Got::Failure,
        }
    }
}

fn is_of_the_start(headers: &http::HeaderMap) -> bool {
    headers
        .get("oneclock-reason")
        .is_some_and(|reason| reason == "expired_before_start" || reason == "insufficient_budget")
}

/// Mostly none; sometimes a whole one, sometimes one that comes slowly.
fn body(dice: &mut Plan) -> AnyBody {
    match dice.up_to(19) {
        0..3 => Full::new(Bytes::from(vec![b'x'; dice.up_to(100_000)])).boxed_unsync(),
        3 => {
            let pieces: Vec<_> = (0..dice.up_to(8)).map(|_| (dice.span(40), dice.up_to(20_000))).collect();
            let pieces = stream::unfold(pieces, |mut left| async move {
                let (pause, length) = left.pop()?;
                sleep(pause).await;
                Some((Ok(Frame::data(Bytes::from(vec![b'x'; length]))), left))
            });
            StreamBody::new(pieces).boxed_unsync()
        }
        _ => Full::default().boxed_unsync(),
    }
}
