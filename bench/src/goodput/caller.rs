//! A caller that is nobody's product: one call is one try or several. Decides what an answer was, whether another try
//! follows, and what the server is told of the time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use oneclock_core::Reason;
use oneclock_core::throttle::{Throttle, ThrottlePolicy, Told};
use tokio::time::{Instant, sleep, timeout_at};

use crate::clock;
use crate::pool::{Answer, Pool};
use crate::tag::{self, Tag};

/// The first wait between two tries is anything up to this; each further one up to twice as much.
const BACKOFF: Duration = Duration::from_millis(10);
/// A hop below that has tried already says so, and why there is no answer; systems that do not know of it never do.
const RETRIED: &str = "oneclock-retried";
const REASON: &str = "oneclock-reason";

/// What a caller does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    pub(crate) tries: u32,
    /// After this a try is given up by closing its connection.
    pub(crate) per_try: Option<Duration>,
    /// Whether retries are limited to a tenth of what succeeds.
    pub(crate) budget: bool,
    /// Whether it sends less when it is refused a lot, as our clients do.
    pub(crate) throttled: bool,
    pub(crate) tells: Tells,
    /// Whether the server is told of the whole call's time although the try is given up earlier.
    pub(crate) leaves_unannounced: bool,
}

/// The field that says how much time is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tells {
    Nothing,
    Remaining,
    Envoy,
    EnvoyAndRemaining,
    Grpc,
}

/// How a call came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// With success, within its time.
    InTime,
    /// With success, too late.
    TooLate,
    /// Refused: not worked on.
    Refused,
    /// The server says that the time ran out.
    TimedOut,
    /// The caller gave up.
    GivenUp,
    /// Not sent: the caller holds back.
    HeldBack,
    /// Anything else.
    Failed,
}

/// A finished call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) came: Came,
    pub(crate) tries: u32,
    /// How long each refusal took, in microseconds.
    pub(crate) refused_us: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct Caller {
    pool: Arc<Pool>,
    manners: Manners,
    tokens: Mutex<f64>,
    throttle: Throttle,
}

impl Caller {
    pub(crate) fn new(pool: Arc<Pool>, manners: Manners) -> Self {
        Self { pool, manners, tokens: Mutex::new(10.0), throttle: Throttle::new(ThrottlePolicy::default()) }
    }

    /// Calls until it succeeds, `until` has passed or nothing more is tried. `asks` is told of each try.
    pub(crate) async fn call(&self, path: &str, tag: Tag, until: Instant, asks: impl Fn()) -> Call {
        let mut call = Call { came: Came::GivenUp, tries: 0, refused_us: Vec::new() };
        loop {
            let sent = match self.throttle.ask(rand::random(), oneclock::clock::now()) {
                Ok(sent) => sent,
                Err(_) if !self.manners.throttled => self.throttle.sent(oneclock::clock::now()),
                Err(_) => {
                    call.came = Came::HeldBack;
                    return call;
                }
            };
            call.tries += 1;
            asks();
            let began = clock::now();
            let gives_up = self.manners.per_try.map_or(until, |span| until.min(began + span));
            // For the meter alone: from then on nobody waits for this try.
            let until_us = tag.until_us.min(clock::wall_us() + clock::us(gives_up.saturating_duration_since(began)));
            let told = if self.manners.leaves_unannounced { until } else { gives_up };
            let fields = self.fields(Tag { until_us, ..tag }, told.saturating_duration_since(began));
            let answer = timeout_at(gives_up, self.pool.ask(path, &fields)).await;
            let stop;
            (call.came, stop) = match answer {
                Err(_) => (Came::GivenUp, false),
                Ok(Err(_)) => (Came::Failed, false),
                Ok(Ok(answer)) => (judged(&answer), answer.headers.contains_key(RETRIED)),
            };
            if call.came == Came::Refused {
                call.refused_us.push(u32::try_from(clock::us(clock::now() - began)).unwrap_or(u32::MAX));
            }
            self.throttle.end(sent, call.came.told());
            if call.came == Came::InTime {
                if clock::now() > until {
                    call.came = Came::TooLate;
                }
                self.earn();
                return call;
            }
            let most = BACKOFF * 2_u32.saturating_pow(call.tries - 1);
            let wait = most.mul_f64(rand::random::<f64>());
            if stop || call.tries >= self.manners.tries || clock::now() + wait >= until || !self.pay() {
                return call;
            }
            sleep(wait).await;
        }
    }

    fn earn(&self) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        *tokens = (*tokens + 0.1).min(100.0);
    }

    /// Whether there is a token for another try.
    fn pay(&self) -> bool {
        if !self.manners.budget {
            return true;
        }
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = *tokens >= 1.0;
        *tokens -= f64::from(u8::from(enough));
        enough
    }

    fn fields(&self, tag: Tag, left: Duration) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(4);
        fields.insert(HeaderName::from_static(tag::FIELD), tag.written());
        let ms = left.as_millis().max(1);
        let mut say = |name: &'static str, text: String| {
            if let Ok(value) = HeaderValue::try_from(text) {
                fields.insert(HeaderName::from_static(name), value);
            }
        };
        if matches!(self.manners.tells, Tells::Remaining | Tells::EnvoyAndRemaining) {
            say("x-remaining-ms", ms.to_string());
        }
        if matches!(self.manners.tells, Tells::Envoy | Tells::EnvoyAndRemaining) {
            say("x-envoy-upstream-rq-timeout-ms", ms.to_string());
        }
        if self.manners.tells == Tells::Grpc {
            say("grpc-timeout", format!("{ms}m"));
        }
        fields
    }
}

fn judged(answer: &Answer) -> Came {
    let reason = answer.headers.get(REASON).and_then(|reason| Reason::from_word(reason.to_str().ok()?));
    match (answer.status.as_u16(), answer.code) {
        // Ours refuses with 504 what would not be done in time.
        _ if reason == Some(Reason::InsufficientBudget) => Came::Refused,
        (200, None | Some(0)) => Came::InTime,
        (429 | 503, _) | (_, Some(8 | 14)) => Came::Refused,
        (408 | 504, _) | (_, Some(1 | 4)) => Came::TimedOut,
        _ => Came::Failed,
    }
}

impl Came {
    /// What it says of the server.
    fn told(self) -> Told {
        match self {
            Self::InTime | Self::TooLate => Told::Well,
            Self::Refused => Told::Shed,
            Self::TimedOut | Self::GivenUp => Told::TimedOut,
            Self::HeldBack => Told::NotSent,
            Self::Failed => Told::Broken,
        }
    }

    /// The status with which a tier says that the one below came out like this.
    pub(crate) fn status(self) -> http::StatusCode {
        match self {
            Self::InTime | Self::TooLate => http::StatusCode::OK,
            Self::Refused | Self::HeldBack => http::StatusCode::SERVICE_UNAVAILABLE,
            Self::TimedOut | Self::GivenUp => http::StatusCode::GATEWAY_TIMEOUT,
            Self::Failed => http::StatusCode::BAD_GATEWAY,
        }
    }
}
