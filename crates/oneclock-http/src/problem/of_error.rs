//! The problem of a part that failed, and of somebody's error.
//!
//! Decides what an error says of the whole that it ended: the words of whatever stopped it, wherever in its source chain that
//! stands, else that something below failed or could not be reached, else that the mistake is ours. What a part says of itself,
//! that it was not begun, that it did nothing, is never said of the whole.

use std::fmt::Write as _;

use http::StatusCode;
use oneclock::{
    Ended, Missing, NotBegun, Operation, PartFailed, Stopped, TaskFailed, TooLate, Unfinished, not_connected_in,
    reason_in, stopped_in,
};
use oneclock_core::{Outcome, Reason, Stage};

use super::Problem;
use crate::body::{BodyCutOff, BoxError};
use crate::client::{EndedEarly, NotCollected, NotSuccessful};
use crate::error::{CallError, CallFailed};
use crate::grpc;

// === Problem: that of a part, and of an error ===

impl Problem {
    /// Something we called failed while there was time: 502.
    pub fn call_failed() -> Self {
        Self {
            word: Some("call_failed"),
            title: "something this service depends on failed".into(),
            status: 502,
            grpc_status: 14,
            reason: None,
            ..Self::new(Reason::CalledOff)
        }
    }

    /// Something we called was out of time before we were: 504. It has no reason of ours, since whoever said so need not
    /// be one of us: what came of the call is unknown.
    pub fn call_timed_out() -> Self {
        Self {
            word: Some("call_timed_out"),
            title: "something this service depends on was out of time".into(),
            status: 504,
            grpc_status: 4,
            outcome: Some(Outcome::Unknown { stage: Stage::Wait }),
            ..Self::call_failed()
        }
    }

    /// Something we called, or would have called, refused for load: 503. It has no reason of ours, and names no wait: a part
    /// that was refused says nothing of what was done before it, so what came of the whole is unknown.
    ///
    /// Callers take it for load further down: their throttles send less, their breakers count no failure.
    ///
    /// ```
    /// # use oneclock_http::Problem; use oneclock_core::effect::{Outcome, Seen, outcome};
    /// let problem = Problem::call_refused();
    /// assert_eq!((problem.status(), problem.grpc_status(), problem.reason()), (503, 14, None));
    /// let seen = Seen::Answer { status: problem.status(), reason: problem.reason() };
    /// assert!(matches!(outcome(seen, false), Outcome::Unknown { .. }), "nothing says that it did not begin");
    /// ```
    pub fn call_refused() -> Self {
        Self {
            word: Some("call_refused"),
            title: "something this service depends on refused for load".into(),
            status: 503,
            outcome: Some(Outcome::Unknown { stage: Stage::Work }),
            ..Self::call_failed()
        }
    }

    /// The problem of a whole that had begun when a part of it ended with this reason: never one that says that the whole did
    /// not begin ([`Reason::of_a_part`]). A part that was refused for load is [`call_refused`](Self::call_refused).
    ///
    /// ```
    /// # use oneclock_http::Problem; use oneclock_core::Reason;
    /// assert_eq!(Problem::of_part(Reason::Shed).status(), 503);
    /// assert_eq!(Problem::of_part(Reason::InsufficientBudget).reason(), Some(Reason::Deadline));
    /// ```
    pub fn of_part(reason: Reason) -> Self {
        if reason == Reason::Shed { Self::call_refused() } else { Self::new(reason.of_a_part()) }
    }

    /// The problem of a whole that would have been this call and nothing else, as it is in a proxy: that there was too little
    /// time to begin the call is said of the whole, so whoever asked may come again with more. `None` where something else kept
    /// the call from being begun, which says as little of the whole as of any other ([`of_part`](Self::of_part)).
    pub fn of_whole(not_begun: &NotBegun) -> Option<Self> {
        let reason = not_begun.reason();
        if reason != Reason::InsufficientBudget {
            return None;
        }
        let of_a_part = Self::from(&Stopped::from(not_begun.clone()));
        let Self { insight, bound, elapsed, ledger, .. } = of_a_part;
        let (stage, outcome) = (Some(Stage::Arrival), Some(Outcome::NotSent)); // of the call: it was never under way
        Some(Self { insight, bound, stage, elapsed, outcome, ledger, ..Self::new(reason) })
    }

    /// Something we need could not be reached: 503. Nothing was sent to it, and it may be there again in a moment.
    pub fn not_connected() -> Self {
        Self {
            word: Some("not_connected"),
            title: "something this service depends on cannot be reached".into(),
            status: 503,
            outcome: Some(Outcome::NotSent),
            ..Self::call_failed()
        }
    }

    /// Our own mistake: 500, and no word about it to outsiders. So it is logged here, at level error, with its causes and
    /// the current operation.
    pub fn internal(error: &dyn std::error::Error) -> Self {
        let current = Operation::current();
        let operation = current.as_ref().map(|operation| tracing::field::display(operation.name()));
        tracing::error!(operation, error = %chain(error), "this service failed, which is answered with status 500");
        Self { insight: Some(chain(error)), ..Self::failed() }
    }

    /// The problem of any error: its own words where something in its source chain was stopped by a budget, 504 where a
    /// call was answered 504, 502 where it failed otherwise, 503 where it was held back or refused for load
    /// ([`call_refused`](Self::call_refused)) or where there was no connection to a database or a cache
    /// ([`NotConnected`](oneclock::NotConnected)), else 500 with no word about it to outsiders.
    ///
    /// ```
    /// # use oneclock_http::Problem;
    /// let problem = Problem::of(std::io::Error::other("disk full"));
    /// assert_eq!(problem.status(), 500);
    /// ```
    pub fn of(error: impl Into<BoxError>) -> Self {
        Self::of_error(&*error.into())
    }

    /// The same of an error that somebody else holds.
    pub fn of_error(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::known(error).unwrap_or_else(|| Self::internal(error))
    }

    /// The same, if something in its source chain says why there is no answer. `None` for what would be a mistake of our own:
    /// nothing is logged.
    ///
    /// ```
    /// # use oneclock_http::Problem; use std::io::{Error, ErrorKind};
    /// assert!(Problem::known(&Error::other("disk full")).is_none());
    /// let unreachable = oneclock::NotConnected::because(Error::from(ErrorKind::ConnectionRefused));
    /// assert_eq!(Problem::known(&unreachable).map(|problem| problem.status()), Some(503));
    /// ```
    pub fn known(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        if let Some(problem) = error.downcast_ref::<Self>() {
            return Some(problem.clone());
        }
        if let Some(problem) = find::<Self>(error) {
            return Some(problem.of_a_part()); // a step or a part said it in these words already
        }
        let problem = if let Some(stopped) = stopped_in(error) {
            stopped.into()
        } else if let Some(call) = find::<CallError>(error) {
            call.into()
        } else if let Some(ended) = find::<Ended>(error) {
            Self { outcome: Some(ended.outcome()), ..Self::of_part(ended.reason()).told_by(ended) }
        } else if let Some(body) = find::<BodyCutOff>(error) {
            let outcome = Some(Outcome::Unknown { stage: Stage::Body });
            Self { stage: Some(Stage::Body), outcome, ..Self::of_part(body.ending.reason()) }
        } else if let Some(reason) = reason_in(error) {
            Self::of_part(reason)
        } else if find::<NotSuccessful>(error).is_some_and(|answer| answer.status == StatusCode::GATEWAY_TIMEOUT) {
            Self::call_timed_out()
        } else if find::<NotSuccessful>(error).is_some_and(NotSuccessful::is_shed) {
            Self::call_refused()
        } else if find::<CallFailed>(error).is_some()
            || find::<NotCollected>(error).is_some()
            || find::<NotSuccessful>(error).is_some()
        {
            Self::call_failed()
        } else if not_connected_in(error).is_some() {
            Self::not_connected()
        } else {
            return None;
        };
        Some(Self { insight: Some(chain(error)), ..problem })
    }

    /// The problem of an answer whose body failed with `error`, its head being out: in the words of what stopped it, where
    /// something in its source chain says that, else of a far side that failed, else of a mistake of our own. Nothing is logged.
    ///
    /// Over gRPC a stream that was reset has the status of the code that it was reset with, a connection that was lost
    /// UNAVAILABLE, as libraries of gRPC have it where no proxy stands between.
    ///
    /// ```
    /// # use oneclock_http::Problem;
    /// assert_eq!(Problem::broke_off(&std::io::Error::other("disk full")).grpc_status(), 13);
    /// ```
    pub fn broke_off(error: &(dyn std::error::Error + 'static)) -> Self {
        if let Some(problem) = Self::known(error) {
            return problem;
        }
        // GOAWAY is about the connection, whatever its code.
        let reset = find::<h2::Error>(error).filter(|error| !error.is_go_away()).and_then(h2::Error::reason);
        let problem = if let Some(code) = reset {
            Self { grpc_status: grpc::status_of_reset(code.into()), ..Self::call_failed() }
        } else if find::<EndedEarly>(error).is_some() {
            Self { grpc_status: grpc::INTERNAL, ..Self::call_failed() }
        } else if find::<h2::Error>(error).is_some() || find::<hyper::Error>(error).is_some() {
            Self::call_failed()
        } else {
            Self::failed()
        };
        Self {
            insight: Some(chain(error)),
            stage: Some(Stage::Body),
            outcome: Some(Outcome::Unknown { stage: Stage::Body }),
            ..problem
        }
    }

    /// What a part of the work said: that it did nothing is not said of the whole.
    fn of_a_part(&self) -> Self {
        Self { nothing: None, ..self.clone() }
    }
}

/// A part of the work was cut off, or not begun. The whole had begun, so it never claims that it had not.
impl From<&Stopped> for Problem {
    fn from(stopped: &Stopped) -> Self {
        let problem = Self::of_part(stopped.reason());
        let outcome = problem.outcome.or(Some(stopped.outcome()));
        match stopped {
            Stopped::Ended(ended) => Self { outcome, ..problem.told_by(ended) },
            Stopped::NotBegun(not_begun) => {
                let problem = Self { insight: Some(not_begun.to_string()), outcome, ..problem };
                let Some(standing) = &not_begun.standing else { return problem };
                let until = standing.ledger.began() + standing.elapsed;
                Self {
                    bound: Some(standing.bound),
                    stage: Some(standing.stage),
                    elapsed: Some(standing.elapsed),
                    ledger: Some((Box::new(standing.ledger.clone()), until)),
                    ..problem
                }
            }
        }
    }
}

impl From<&CallError> for Problem {
    fn from(error: &CallError) -> Self {
        match error.stopped() {
            Some(stopped) => stopped.into(),
            None => Self { insight: Some(chain(error)), outcome: Some(error.outcome()), ..Self::call_failed() },
        }
    }
}

/// The step's own error decides where it has one; a wait that ended says that the outcome is unknown.
impl<E: Into<BoxError>> From<Unfinished<E>> for Problem {
    fn from(unfinished: Unfinished<E>) -> Self {
        let outcome = unfinished.outcome();
        let problem = match unfinished {
            Unfinished::Failed(error) => return Self::of(error).of_a_part(),
            Unfinished::NotBegun(not_begun) => not_begun.into(),
            Unfinished::StillRunning { step, bound, ended } => {
                let insight = Unfinished::<BoxError>::StillRunning { step, bound, ended: ended.clone() }.to_string();
                Self { insight: Some(insight), ..ended.into() }
            }
            Unfinished::CutOff(ended) => ended.into(),
            other => Self { insight: Some(other.to_string()), ..Self::of_part(other.reason()) },
        };
        Self { outcome, ..problem }
    }
}

macro_rules! problem_of {
    ($($error:ty),*) => {$(
        impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                Self::of_error(&error)
            }
        }
    )*};
}
problem_of!(CallError, Ended, Missing, NotBegun, NotCollected, NotSuccessful, PartFailed, Stopped, TaskFailed);

impl<T> From<TooLate<T>> for Problem {
    fn from(too_late: TooLate<T>) -> Self {
        too_late.ended.into()
    }
}

/// An error and its sources in one line. A source that the text has said already is not said again.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            let _ = write!(text, ": {next}");
        }
        source = error.source();
    }
    text
}

fn find<'e, E: std::error::Error + 'static>(mut error: &'e (dyn std::error::Error + 'static)) -> Option<&'e E> {
    loop {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        error = error.source()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;
    use crate::problem::{NothingHappened, RETRY_AFTER_LEAST};
    use bytes::Bytes;
    use http::Response;
    use http::header::{HeaderValue, RETRY_AFTER};
    use oneclock_core::Trust;
    use serde_json::Value;

    fn parse(response: &Response<Bytes>) -> Value {
        serde_json::from_slice(response.body()).expect("JSON")
    }

    #[test]
    fn m4_that_nothing_happened_is_the_handlers_word_and_never_a_parts() {
        let carries =
            |problem: &Problem| problem.to_response(Trust::Outside).extensions().get::<NothingHappened>().is_some();
        let said = Problem::of(std::io::Error::other("rolled back")).nothing_happened();
        assert!(carries(&said) && carries(&Problem::of(said.clone())));
        assert_eq!(parse(&said.to_response(Trust::Inside))["outcome"], "rejected");
        let of_a_part = Problem::of(std::io::Error::other(said.clone()));
        assert_eq!((of_a_part.status(), carries(&of_a_part)), (500, false), "the whole may have done something else");
        assert!(!carries(&Problem::from(Unfinished::Failed(said))), "so may the handler around a step");
    }

    #[test]
    fn an_answer_that_broke_off_is_told_in_the_words_of_what_broke_it_off() {
        let reset = |code: h2::Reason| Problem::broke_off(&h2::Error::from(code));
        for (code, want) in [(h2::Reason::REFUSED_STREAM, 14), (h2::Reason::CANCEL, 1), (h2::Reason::NO_ERROR, 13)] {
            let problem = reset(code);
            let says = (problem.word(), problem.grpc_status(), problem.outcome());
            assert_eq!(says, (Some("call_failed"), want, Some(Outcome::Unknown { stage: Stage::Body })), "{code:?}");
            assert_eq!(problem.reason(), None, "nobody's word that it may be repeated");
        }
        let ours = Problem::broke_off(&std::io::Error::other("disk full"));
        assert_eq!((ours.word(), ours.grpc_status()), (Some("internal"), 13));
    }

    #[test]
    fn what_cannot_be_reached_is_no_mistake_of_ours() {
        #[derive(Debug, thiserror::Error)]
        #[error("no stock today")]
        struct OfMine(#[source] oneclock::NotConnected);
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let problem = Problem::of(OfMine(oneclock::NotConnected::because(refused)));
        assert_eq!((problem.status(), problem.outcome()), (503, Some(Outcome::NotSent)));
        assert_eq!(parse(&problem.to_response(Trust::Inside))["outcome"], "not_sent");
    }

    /// By its reason a call that was held back would be one that was called off: 500, which looks like a failure of ours.
    #[tokio::test(start_paused = true)]
    async fn what_is_refused_below_is_load_here_and_no_promise_that_nothing_was_done() {
        use oneclock_core::effect::{Seen, outcome};
        use oneclock_core::throttle::{Had, Told};

        #[derive(Debug, thiserror::Error)]
        #[error("no stock today")]
        struct OfMine(#[source] NotSuccessful);
        let health =
            oneclock::Health::of("inventory").breaker(oneclock_core::breaker::BreakerPolicy::default()).build();
        (0..20).filter_map(|_| health.ask(RETRY_AFTER_LEAST).ok()).for_each(|watch| watch.told(Told::Broken));
        let order = Operation::begin("order", RETRY_AFTER_LEAST * 5);
        let held_back = order.grant("inventory").health(&health).call().unwrap_err();
        let answered =
            |status, reason| OfMine(NotSuccessful { status: StatusCode::from_u16(status).expect("a status"), reason });
        for problem in [Problem::of(held_back), Problem::of(answered(503, Some(Reason::Shed)))] {
            let (http, grpc) = (problem.to_response(Trust::Inside), problem.to_grpc_response(Trust::Inside));
            assert_eq!((http.status().as_u16(), &grpc.headers()["grpc-status"]), (503, &HeaderValue::from(14)));
            for headers in [http.headers(), grpc.headers()] {
                let says = [RETRY_AFTER, names::REASON, http::HeaderName::from_static("grpc-retry-pushback-ms")];
                assert!(!says.iter().any(|field| headers.contains_key(field)), "{headers:?}");
            }
            assert_eq!(parse(&http)["outcome"], "unknown", "{problem:?}");
            // What the hop above makes of it.
            for seen in [Seen::Answer { status: 503, reason: None }, Seen::GrpcAnswer { status: 14, reason: None }] {
                assert_eq!(outcome(seen, false), Outcome::Unknown { stage: Stage::Wait });
                assert_eq!(Told::by(seen, Had::default()), Told::Shed, "its throttle counts it, its breaker does not");
            }
        }
        for (status, reason) in [(503, None), (503, Some(Reason::Shutdown)), (502, Some(Reason::Shed))] {
            assert_eq!(Problem::of(answered(status, reason)).status(), 502, "{status} {reason:?} is another thing");
        }
    }
}
