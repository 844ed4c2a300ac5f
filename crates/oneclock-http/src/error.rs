//! Why a call gave no answer, for the code that made it and for the person on call.

use std::error::Error as StdError;
use std::fmt;

use oneclock::{Ended, HasOutcome, HeldBack, NotBegun, NotConnected, Stopped, not_connected_in, stopped_in};
use oneclock_core::effect::Seen;
use oneclock_core::name::Hop;
use oneclock_core::retry::{Stop, Tried};
use oneclock_core::{Name, Outcome, Reason, Stage};

use crate::body::{BodyCutOff, BoxError};
use crate::retry::judge;

/// A call gave no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallError {
    /// It was not made, or it was cut off: by its deadline, or because its operation ended.
    Stopped(Stopped),
    /// The connection or the service below failed while there was still time.
    Failed(CallFailed),
    /// It was tried as often as made sense, and the last attempt gave no answer either.
    GaveUp(Box<CallGaveUp>),
}

/// A call was tried as often as made sense, and the last attempt gave no answer either.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallGaveUp {
    /// How many attempts were made.
    pub attempts: u32,
    /// Why there was no further one.
    pub why: Stop,
    /// What became of the last one.
    pub last: CallError,
}

/// The connection or the service below failed while there was still time.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallFailed {
    /// The operation that made the call.
    pub operation: Name,
    /// What was called.
    pub call: Name,
    /// What is known of the far side.
    pub outcome: Outcome,
    /// What failed.
    pub source: BoxError,
}

/// Whether `error`, or one that it came from, says that the far side did not look at the request: `REFUSED_STREAM`, or
/// `GOAWAY` below our stream, which is the only one that h2 tells a stream about (RFC 9113 sections 6.8 and 8.7). Such a
/// call is [`Outcome::Rejected`](oneclock_core::Outcome::Rejected) (contract R8).
///
/// ```
/// let timed_out = std::io::Error::from(std::io::ErrorKind::TimedOut);
/// assert!(!oneclock_http::is_refused_stream(&timed_out));
/// ```
pub fn is_refused_stream(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return error.is_remote() && (refused || error.is_go_away());
        }
        next = error.source();
    }
    false
}

/// What is known of the far side of a call, if something in the source chain of `error` says it: of a call of ours, of work
/// that was stopped or not begun, of an answer that broke off, of something that could not be reached. `None` is no proof of
/// anything: take it for unknown. Errors of databases and caches say it themselves, by their `outcome()`.
///
/// It speaks of one call, and never of what the operation did before it.
///
/// ```
/// # use {oneclock::NotConnected, oneclock_core::Outcome, oneclock_http::outcome_in};
/// #[derive(Debug, thiserror::Error)]
/// #[error("no price today")]
/// struct OfMine(#[source] NotConnected);
///
/// let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
/// assert_eq!(outcome_in(&OfMine(NotConnected::because(refused))), Some(Outcome::NotSent));
/// assert_eq!(outcome_in(&std::io::Error::other("disk full")), None);
/// ```
pub fn outcome_in(error: &(dyn StdError + 'static)) -> Option<Outcome> {
    let mut chain = std::iter::successors(Some(error), |&error| error.source());
    let of_a_call = chain.find_map(|error| {
        let failed = || error.downcast_ref().map(|failed: &CallFailed| failed.outcome);
        let broke_off = || error.is::<BodyCutOff>().then_some(Outcome::Unknown { stage: Stage::Body });
        error.downcast_ref().map(CallError::outcome).or_else(failed).or_else(broke_off)
    });
    let stopped = || stopped_in(error).map(Stopped::outcome);
    let ended = || find(error).map(Ended::outcome);
    let not_begun =
        || (find::<NotBegun>(error).is_some() || find::<HeldBack>(error).is_some()).then_some(Outcome::NotSent);
    let not_connected = || not_connected_in(error).map(|_| Outcome::NotSent);
    of_a_call.or_else(stopped).or_else(ended).or_else(not_begun).or_else(not_connected)
}

fn find<'e, E: StdError + 'static>(error: &'e (dyn StdError + 'static)) -> Option<&'e E> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
}

/// How a call came to its end whose connection or service failed with `error` in `stage`.
pub(crate) fn seen_in(error: &(dyn StdError + 'static), stage: Stage) -> Seen {
    if is_of_our_upload(error) {
        Seen::CutOff { stage } // whatever its producer ran into, some of the request had left
    } else if is_refused_stream(error) {
        Seen::RefusedStream
    } else if error.is::<NotConnected>() {
        Seen::NoConnection // the word of a client that can tell; further down the chain it would be about something else
    } else {
        Seen::CutOff { stage }
    }
}

/// Whether the body of the request failed, and not the connection.
fn is_of_our_upload(error: &(dyn StdError + 'static)) -> bool {
    let mut chain = std::iter::successors(Some(error), |&error| error.source());
    chain.any(|error| error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_user))
}

// === CallError ===

impl CallError {
    /// What is known of the far side.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Stopped(stopped) => stopped.outcome(),
            Self::Failed(failed) => failed.outcome,
            Self::GaveUp(gave_up) => gave_up.last.outcome(),
        }
    }

    /// Why the call was stopped, if our own clock or operation stopped it; `None` if something below failed.
    pub fn stopped(&self) -> Option<&Stopped> {
        match self {
            Self::Stopped(stopped) => Some(stopped),
            Self::Failed(_) => None,
            Self::GaveUp(gave_up) => gave_up.last.stopped(),
        }
    }

    /// What our own caller is told, if the call was stopped (contract section 5).
    pub fn reason(&self) -> Option<Reason> {
        self.stopped().map(Stopped::reason)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(stopped) => stopped.fmt(f),
            Self::Failed(failed) => failed.fmt(f),
            Self::GaveUp(gave_up) => {
                let CallGaveUp { attempts, why, last } = &**gave_up;
                let noun = if *attempts == 1 { "attempt" } else { "attempts" };
                write!(f, "{last}; gave up after {attempts} {noun}: {why}")
            }
        }
    }
}

impl StdError for CallError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            // Its words are in ours; it is what `oneclock::stopped_in` looks for.
            Self::Stopped(stopped) => Some(stopped),
            Self::Failed(failed) => failed.source(),
            Self::GaveUp(gave_up) => gave_up.last.source(), // its own words are in ours
        }
    }
}

impl From<Stopped> for CallError {
    fn from(stopped: Stopped) -> Self {
        Self::Stopped(stopped)
    }
}

impl From<Ended> for CallError {
    fn from(ended: Ended) -> Self {
        Self::Stopped(ended.into())
    }
}

impl From<NotBegun> for CallError {
    fn from(not_begun: NotBegun) -> Self {
        Self::Stopped(not_begun.into())
    }
}

// === CallFailed ===

impl fmt::Display for CallFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed, outcome: {}", Hop(&self.operation, Some(&self.call)), self.outcome)
    }
}

impl StdError for CallFailed {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

/// So that `oneclock::retry` can be put around calls of ours.
impl HasOutcome for CallError {
    fn outcome(&self) -> Outcome {
        self.outcome()
    }

    fn tried(&self) -> Tried {
        judge::failed(self)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oneclock::Operation;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("could not price the cart")]
    struct Wrapped(#[source] BoxError);

    #[track_caller]
    fn says(error: impl Into<BoxError>, want: &str) {
        let error = Wrapped(error.into());
        assert_eq!(outcome_in(&error).map_or("nothing", |outcome| outcome.as_str()), want, "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_of_the_far_side_is_found_behind_any_wrapper() {
        let failed = |outcome| CallFailed {
            operation: "order".into(),
            call: "pricing".into(),
            outcome,
            source: NotConnected::because(std::io::Error::other("no route")).into(),
        };
        let op = Operation::begin("order", Duration::from_millis(50));
        says(CallError::Failed(failed(Outcome::Rejected)), "rejected"); // its own word, and not that of its source
        says(failed(Outcome::Rejected), "rejected");
        says(op.grant("pricing").min_useful(Duration::from_secs(1)).remaining().expect_err("too little"), "not_sent");
        says(NotConnected::because(std::io::Error::other("no route")), "not_sent");
        says(op.run(std::future::pending::<()>()).await.expect_err("for ever"), "unknown");
        says(std::io::Error::other("disk full"), "nothing");
    }

    /// `Missing::stopped` and `PartFailed::stopped` find it in the chain: it must stand there by itself.
    #[tokio::test(start_paused = true)]
    async fn why_a_call_was_stopped_is_found_in_its_chain() {
        let op = Operation::begin("order", Duration::from_millis(50));
        let ended = op.run(std::future::pending::<()>()).await;
        let error = ended.map_err(CallError::from);
        let found = error.as_ref().err().and_then(|error| stopped_in(error));
        assert_eq!(found.map(Stopped::reason), Some(Reason::Cap));
    }
}
