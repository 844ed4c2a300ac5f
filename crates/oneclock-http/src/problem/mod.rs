//! The answer in place of an answer: a problem document (RFC 9457), or the words of gRPC and Connect.
//!
//! The only place where a [`Reason`] becomes an answer (contract X3, X5 and the table of section 5). Outsiders learn the
//! reason; callers inside the trust boundary also learn which bound, where, and where the time went. Here a problem is made,
//! in `of_error` that of somebody's error; `document` and `rpc` write it.

mod details;
mod document;
mod of_error;
mod rpc;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::time::Duration;

use http::StatusCode;
use http::header::HeaderValue;
use oneclock::Ended;
use oneclock_core::admission;
use oneclock_core::ending::Repeat;
use oneclock_core::ingress::RefusedAtIngress;
use oneclock_core::ledger::Ledger;
use oneclock_core::retry::Pushback;
use oneclock_core::{Bound, Outcome, Reason, Stage, Tick};

pub use document::ledger_json;
pub use rpc::{grpc_message, grpc_status_of_connect};

/// Why there is no proper answer, for the caller.
///
/// Handlers return it as their error (`oneclock-axum` makes it a response); the ingress layer writes it for the caller
/// that asked: briefly for outsiders, in full inside the trust boundary, as a status for gRPC.
#[derive(Clone, Debug)]
pub struct Problem {
    word: Option<&'static str>, // none: the status says it all (RFC 9457, `about:blank`)
    title: Cow<'static, str>,
    status: u16,
    grpc_status: u8,
    reason: Option<Reason>,
    detail: Option<String>,  // for everybody
    insight: Option<String>, // for trusted callers
    bound: Option<Bound>,
    stage: Option<Stage>,
    elapsed: Option<Duration>,
    remaining: Option<Duration>,
    outcome: Option<Outcome>,
    nothing: Option<NothingHappened>,
    come_again: Pushback, // said whatever the caller has left
    ledger: Option<(Box<Ledger>, Tick)>,
}

/// In the extensions of an answer: the handler's word that it did nothing, so that the request may run again (contract M4).
///
/// For what can prove it: its transaction was rolled back, or it refused before the first effect. Without it an answer of 500
/// and above leaves open what was done. [`Problem::nothing_happened`] puts it there; an answer that is no problem gets it by
/// hand:
///
/// ```
/// # use oneclock_http::NothingHappened;
/// let mut answer = http::Response::builder().status(503).body("no stock service").unwrap();
/// answer.extensions_mut().insert(NothingHappened); // asked before anything was charged
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NothingHappened;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// A caller that is told to come again is told not before this.
const RETRY_AFTER_LEAST: Duration = Duration::from_secs(1);

// === Problem: making one ===

impl Problem {
    /// The problem of this reason, with nothing else known.
    pub fn new(reason: Reason) -> Self {
        Self {
            word: Some(reason.as_str()),
            title: reason.title().into(),
            status: reason.http_status(),
            grpc_status: reason.grpc_status(),
            reason: Some(reason),
            detail: None,
            insight: None,
            bound: None,
            stage: None,
            elapsed: None,
            remaining: None,
            outcome: None,
            nothing: None,
            come_again: Pushback::Unsaid,
            ledger: None,
        }
    }

    /// Our own mistake, which somebody else logs: 500, and nothing of what it was.
    pub fn failed() -> Self {
        Self {
            word: Some("internal"),
            title: "this service failed".into(),
            status: 500,
            grpc_status: 13,
            reason: None,
            ..Self::new(Reason::CalledOff)
        }
    }

    /// A problem of the service's own making: not found, conflict, and so on. It has a status and a title, and no
    /// reason of the contract's. Over gRPC its status is the one for which `google.rpc.Code` has this
    /// status of HTTP, or the nearest where it has none.
    ///
    /// ```
    /// # use oneclock_http::Problem; use http::StatusCode;
    /// let problem = Problem::with_status(StatusCode::NOT_FOUND, "no such cart").detail("cart 7 was emptied");
    /// assert_eq!(problem.status(), 404);
    /// ```
    pub fn with_status(status: StatusCode, title: impl Into<Cow<'static, str>>) -> Self {
        Self {
            word: None,
            title: title.into(),
            status: status.as_u16(),
            grpc_status: rpc::grpc_status_of(status.as_u16()),
            reason: None,
            ..Self::new(Reason::CalledOff)
        }
    }

    /// The same, and the caller is welcome again after this: `Retry-After` over HTTP, in whole seconds, rounded up;
    /// `grpc-retry-pushback-ms` and `google.rpc.RetryInfo` over gRPC. Said whatever the caller has left.
    #[must_use]
    pub fn come_again(self, after: Duration) -> Self {
        Self { come_again: Pushback::After(after), ..self }
    }

    /// The same, and the same request would get it again: `grpc-retry-pushback-ms: -1` over gRPC, whose clients repeat by the
    /// status alone, and never a `Retry-After`.
    ///
    /// ```
    /// # use oneclock_http::Problem; use http::StatusCode; use oneclock_core::Trust;
    /// let taken = Problem::with_status(StatusCode::CONFLICT, "another order has this number").never_again();
    /// assert_eq!(taken.to_grpc_response(Trust::Outside).headers()["grpc-retry-pushback-ms"], "-1");
    /// ```
    #[must_use]
    pub fn never_again(self) -> Self {
        Self { come_again: Pushback::Never, ..self }
    }

    /// The same with a type of its own, `urn:oneclock:<word>`, and this gRPC status. For crates that add words to the
    /// contract's.
    #[must_use]
    pub fn typed(self, word: &'static str, grpc_status: u8) -> Self {
        Self { word: Some(word), grpc_status, ..self }
    }

    /// The same, knowing this of what was to be done.
    #[must_use]
    pub fn with_outcome(self, outcome: Outcome) -> Self {
        Self { outcome: Some(outcome), ..self }
    }

    /// The same from a handler that did nothing of what it was asked for, and knows it: its transaction was rolled back, or it
    /// refused before the first effect. The outcome is then [`Rejected`](Outcome::Rejected), the response carries
    /// [`NothingHappened`], and under an idempotency layer the next request with the key runs (contract M4).
    ///
    /// What a part says of itself is never taken for it: a statement that was not sent says nothing of the one before.
    ///
    /// ```
    /// # use oneclock_http::Problem;
    /// # fn reserve() -> std::io::Result<()> { Err(std::io::Error::other("no stock service")) }
    /// fn place() -> Result<(), Problem> {
    ///     reserve().map_err(|error| Problem::of(error).nothing_happened())?; // the first thing it does
    ///     Ok(())
    /// }
    /// # assert_eq!(place().unwrap_err().outcome(), Some(oneclock_core::Outcome::Rejected));
    /// ```
    #[must_use]
    pub fn nothing_happened(self) -> Self {
        Self { outcome: Some(Outcome::Rejected), nothing: Some(NothingHappened), ..self }
    }

    pub(crate) fn refused(refused: &RefusedAtIngress<'_>) -> Self {
        Self {
            // Which field and why helps whoever sent it, and says nothing about us.
            detail: refused.malformed.map(|malformed| malformed.to_string()),
            insight: Some(refused.to_string()),
            bound: Some(refused.bound),
            stage: Some(Stage::Arrival),
            remaining: Some(refused.remaining),
            outcome: Some(Outcome::NotSent),
            ..Self::new(refused.reason)
        }
    }

    /// There was no place for it, or none in time.
    pub(crate) fn not_admitted(refusal: &admission::Refusal) -> Self {
        let problem = Self {
            insight: Some(refusal.to_string()),
            stage: Some(Stage::Queue),
            remaining: Some(refusal.remaining),
            elapsed: Some(refusal.waited),
            outcome: Some(Outcome::NotSent),
            ..Self::new(refusal.reason())
        };
        // Said only if it fits what the caller has left: whole seconds over HTTP seldom do.
        match refusal.come_again() {
            Some(wait) if wait.max(RETRY_AFTER_LEAST) < refusal.remaining => problem.come_again(wait),
            _ => problem,
        }
    }

    pub(crate) fn shutting_down(remaining: Duration) -> Self {
        Self { remaining: Some(remaining), outcome: Some(Outcome::NotSent), ..Self::new(Reason::Shutdown) }
    }

    /// Adds a sentence that outsiders may read.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// The same with this sentence for trusted callers, in place of what it says to them now.
    #[must_use]
    pub fn insight(self, insight: impl Into<String>) -> Self {
        Self { insight: Some(insight.into()), ..self }
    }

    /// Adds to what trusted callers read.
    pub(crate) fn hint(mut self, hint: Option<String>) -> Self {
        if let (Some(insight), Some(hint)) = (&mut self.insight, hint) {
            let _ = write!(insight, "; {hint}");
        }
        self
    }

    /// The same under the status with which it leaves, which a layer below may have set.
    pub(crate) fn at_status(self, status: StatusCode) -> Self {
        Self { status: status.as_u16(), ..self }
    }

    /// The reason, if it is one of the contract's.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// The last part of its type, the word for logs: the reason, `call_failed` and the like, or one that was
    /// [given](Self::typed); `None` where the status says it all.
    pub fn word(&self) -> Option<&'static str> {
        self.word
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The gRPC status.
    pub fn grpc_status(&self) -> u8 {
        self.grpc_status
    }

    /// Why, for whoever runs the service: what trusted callers read, in one line.
    ///
    /// ```
    /// # use oneclock_http::Problem;
    /// assert_eq!(Problem::call_failed().insight("no route to host").why(), Some("no route to host"));
    /// ```
    pub fn why(&self) -> Option<&str> {
        self.insight.as_deref()
    }

    /// Where it was, if that is known.
    pub fn stage(&self) -> Option<Stage> {
        self.stage
    }

    /// What is known of what was to be done.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Whether it is the handler's word that nothing happened: see [`nothing_happened`](Self::nothing_happened).
    pub fn says_nothing_happened(&self) -> bool {
        self.nothing.is_some()
    }

    /// How long to wait before coming again: only where that is welcome, and only if it fits what the caller has left.
    fn come_again_after(&self) -> Option<Duration> {
        match self.come_again {
            Pushback::After(wait) => return Some(wait),
            Pushback::Never => return None,
            Pushback::Unsaid => {}
        }
        let welcome = self.reason.map(Reason::repeat) == Some(Repeat::IfItFits);
        let fits = self.remaining.is_some_and(|remaining| remaining > RETRY_AFTER_LEAST);
        (welcome && fits).then_some(RETRY_AFTER_LEAST)
    }

    /// The request itself ended early, with this reason (which can be the upload's).
    pub(crate) fn ended(ended: &Ended, reason: Reason) -> Self {
        Self::new(reason).told_by(ended)
    }

    /// The same, with what is known of how it ended.
    fn told_by(self, ended: &Ended) -> Self {
        Self {
            insight: Some(ended.to_string()),
            bound: Some(ended.bound),
            stage: Some(ended.stage()),
            elapsed: Some(ended.elapsed),
            ledger: Some((ended.ledger.clone(), ended.ending.at)),
            ..self
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.insight.as_ref().or(self.detail.as_ref()) {
            Some(text) => write!(f, "{} ({}): {text}", self.title, self.status),
            None => write!(f, "{} ({})", self.title, self.status),
        }
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;
    use bytes::Bytes;
    use http::Response;
    use http::header::RETRY_AFTER;
    use oneclock_core::Trust;
    use serde_json::Value;

    fn parse(response: &Response<Bytes>) -> Value {
        serde_json::from_slice(response.body()).expect("JSON")
    }

    #[test]
    fn outsiders_learn_the_reason_and_nothing_of_our_insides() {
        let problem = Problem { insight: Some("order → inventory".into()), ..Problem::new(Reason::Deadline) };
        let response = problem.to_response(Trust::Outside);
        assert_eq!(response.status(), 504);
        assert_eq!(response.headers()[names::REASON], "deadline");
        let keys: Vec<_> = parse(&response).as_object().expect("an object").keys().cloned().collect();
        assert_eq!(keys, ["status", "title", "type"]);
        assert!(parse(&problem.to_response(Trust::Inside))["insight"].is_string());
    }

    #[test]
    fn retry_after_only_where_it_fits() {
        for (left, want) in [(500, None), (1_000, None), (1_500, Some("1"))] {
            let problem = Problem { remaining: Some(Duration::from_millis(left)), ..Problem::new(Reason::Shutdown) };
            let response = problem.to_response(Trust::Outside);
            let got = response.headers().get(RETRY_AFTER).map(|value| value.to_str().expect("ASCII"));
            assert_eq!(got, want, "{left} ms left");
        }
    }
}
