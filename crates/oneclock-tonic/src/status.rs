//! Statuses: of our own errors, of calls that gave no answer, of what the far side answered.
//!
//! Decides the code. What stopped a call decides it, judged by our own clock, whatever the peer said (contract X2): our
//! deadline is `DEADLINE_EXCEEDED`. Every status made here keeps its error as its source, so that nothing has to be read
//! from a text.

use std::collections::hash_map::RandomState;
use std::error::Error as StdError;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use oneclock::{NotBegun, Stopped, WhyNot};
use oneclock_core::effect::{self, Seen};
use oneclock_core::wire::names as wire;
use oneclock_core::{Outcome, Reason, Stage, Trust};
use oneclock_http::{AnswerGivenUp, BodyCutOff, BoxError, CallError, Problem, is_refused_stream};
use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, ConnectError, Status, TimeoutExpired};

use crate::details::Details;
use crate::fields::{MESSAGE, STATUS};

/// The status of any error, for handlers: what [`Problem::of`] makes of it, kept as the status's source.
///
/// Below a [`ServerLayer`](crate::ServerLayer) the caller gets that problem, in full if it is trusted; without one, and at
/// the end of a stream that has begun, what an outsider may read. An error that is a status already stays as it is.
///
/// ```
/// # use oneclock_tonic::status; use tonic::Code;
/// let status = status(std::io::Error::other("disk full"));
/// assert_eq!(status.code(), Code::Internal);
/// assert!(!status.message().contains("disk"));
/// ```
pub fn status(error: impl Into<BoxError>) -> Status {
    let error = match error.into().downcast::<Status>() {
        Ok(status) => return *status,
        Err(error) => error,
    };
    of_problem(match error.downcast::<Problem>() {
        Ok(problem) => *problem,
        Err(error) => Problem::of(error),
    })
}

/// The problem of the status that a call ended with, for handlers that answer in HTTP: their own words where our clock or
/// operation stopped it, 504 where the far side was out of time, 503 where one of ours refused for load, 502 where it failed
/// otherwise.
///
/// ```
/// # use oneclock_tonic::problem; use tonic::Status;
/// async fn quote(price: Result<u32, Status>) -> Result<u32, oneclock_http::Problem> {
///     price.map_err(|status| problem(&status)) // in a handler of axum, whose own `Problem` is made of it by `?`
/// }
/// assert_eq!(problem(&Status::not_found("no such article")).status(), 502);
/// ```
pub fn problem(status: &Status) -> Problem {
    let said = format!("{:?}: {}", status.code(), status.message());
    match (answered(status), status.source()) {
        (Some(answered), _) => answered.problem(),
        (None, Some(ours)) if outcome(status).is_some() => Problem::of_error(ours),
        _ => Part::of_failure(status.code()).problem().insight(said),
    }
}

/// Makes the error of any result a [`Status`], for handlers: see [`status()`].
///
/// ```
/// use oneclock_tonic::OrStatus as _;
///
/// async fn price() -> Result<String, tonic::Status> {
///     let price = tokio::fs::read_to_string("/no/such/price").await.or_status()?;
///     Ok(price)
/// }
/// # #[tokio::main] async fn main() { assert_eq!(price().await.unwrap_err().code(), tonic::Code::Internal); }
/// ```
pub trait OrStatus<T> {
    /// The value, or the status of the error.
    ///
    /// # Errors
    /// [`Status`], if it was an error.
    fn or_status(self) -> Result<T, Status>;
}

/// The error of a call that gave no answer: what stopped it, and what is known of the far side. `None` if the far side
/// answered ([`answered`]), and for a status that no call of ours gave.
///
/// ```
/// # use oneclock_tonic::call_error; use oneclock_core::Outcome;
/// fn may_have_happened(status: &tonic::Status) -> bool {
///     !matches!(call_error(status).map(|call| call.outcome()), Some(Outcome::NotSent | Outcome::Rejected))
/// }
/// # assert!(may_have_happened(&tonic::Status::unknown("")));
/// ```
pub fn call_error(status: &Status) -> Option<&CallError> {
    find(status)
}

/// What the far side of a call said with this status, beside its code and message. `None` for a status that no call of ours
/// was answered with.
pub fn answered(status: &Status) -> Option<&Answered> {
    find(status)
}

/// What is known of the far side of the call that ended with this status: not answered, answered, or cut off while its
/// messages came. `None` for a status that no call of ours gave.
///
/// ```
/// assert_eq!(oneclock_tonic::outcome(&tonic::Status::not_found("no such cart")), None);
/// ```
pub fn outcome(status: &Status) -> Option<Outcome> {
    if let Some(error) = call_error(status) {
        return Some(error.outcome());
    }
    if let Some(answered) = answered(status) {
        return Some(answered.outcome);
    }
    let cut_off = find::<BodyCutOff>(status).is_some() || find::<BrokeOff>(status).is_some();
    cut_off.then_some(Outcome::Unknown { stage: Stage::Body })
}

/// The far side of a call answered with a status: the source of that status.
///
/// Its fields that speak of the reason, of repeating and of waiting are here and no longer among the status's metadata and
/// details: a handler that passes the status on to its own caller must not pass them on with it, since they say nothing of
/// what the handler did before (contract R8, R9).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answered {
    /// The reason, if the far side is one of ours and gave one.
    pub reason: Option<Reason>,
    /// What is known of the far side.
    pub outcome: Outcome,
    /// How often it was tried, and why no more; only from a destination with a retry policy.
    pub gave_up: Option<AnswerGivenUp>,
    /// The details as they were sent: a `google.rpc.Status`, or empty.
    pub details: Bytes,
    pub(crate) by_a_layer: bool, // its words are those of a layer like ours, and tell of its insides
    problem: Problem,            // what whoever made the call may say of it
}

/// The messages of an answer broke off while there was time: the source of the status that says so.
#[derive(Debug)]
struct BrokeOff(Problem); // what whoever made the call may say of it

/// What a status says of a part of the work, as a mark on it: the one thing that gets through tonic into the trailers of a
/// stream, where the source of a status is lost. It counts only with the token of this process: a far side that is called
/// without our layers can write such a field, too.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Reason(Reason),
    CallFailed,
    CallTimedOut,
    CallRefused,
}

const PART: HeaderName = HeaderName::from_static(wire::ONECLOCK_PART);

/// What only this process knows, drawn from the keys of the standard library's hash maps.
static TOKEN: LazyLock<String> = LazyLock::new(|| {
    let (one, two) = (RandomState::new(), RandomState::new());
    format!("{:016x}{:016x}", one.hash_one(0_u8), two.hash_one(1_u8))
});

// === OrStatus ===

impl<T, E: Into<BoxError>> OrStatus<T> for Result<T, E> {
    fn or_status(self) -> Result<T, Status> {
        self.map_err(status)
    }
}

// === Status ===

fn of_problem(problem: Problem) -> Status {
    let (code, message) = words(&problem);
    let mut status = Status::new(code, message);
    status.set_source(Arc::new(problem));
    status
}

/// The code and the words that a problem has for outsiders.
fn words(problem: &Problem) -> (Code, String) {
    let response = problem.to_grpc_response(Trust::Outside);
    match Status::from_header_map(response.headers()) {
        Some(status) => (status.code(), status.message().to_owned()),
        None => (Code::Internal, String::new()), // it always has one
    }
}

/// Writes a problem over the status in these trailers, as for outsiders.
pub(crate) fn write(problem: &Problem, trailers: &mut HeaderMap) {
    let mut written = problem.to_grpc_response(Trust::Outside).into_parts().0.headers;
    for name in [STATUS, MESSAGE] {
        trailers.remove(&name);
        if let Some(value) = written.remove(&name) {
            trailers.insert(name, value);
        }
    }
}

/// The status of a call that gave no answer.
pub(crate) fn of_call(error: CallError) -> Status {
    let (code, part) = match error.stopped() {
        // Our own mistake, and not the caller's leaving, as its reason has it.
        Some(Stopped::NotBegun(NotBegun { why: WhyNot::NoOperation, .. })) => {
            (Code::Internal, Part::Reason(Reason::CalledOff))
        }
        Some(stopped) => (code(stopped.reason()), Part::Reason(stopped.reason())),
        None => {
            let code = code_of_failure(&error);
            (code, Part::of_failure(code))
        }
    };
    part.mark(of_error(code, Arc::new(error)))
}

/// The status of the messages of an answer that broke off. What the connection says of it is for whoever made the call, and not
/// for its callers.
pub(crate) fn of_a_body(error: BoxError) -> Status {
    let said = match of_our_end(error) {
        Ok(status) => return status,
        Err(error) => Status::from_error(error), // what tonic itself would say of it
    };
    if outcome(&said).is_some() {
        return said; // that of another layer of ours, below
    }
    let (code, part) = (said.code(), Part::of_failure(said.code()));
    let problem = part.problem().with_outcome(Outcome::Unknown { stage: Stage::Body });
    let problem = problem.insight(format!("the answer broke off, {code:?}: {}", said.message()));
    let mut status = Status::new(code, said.message());
    status.set_source(Arc::new(BrokeOff(problem)));
    part.mark(status)
}

/// The status of a body that our own clock or operation cut off.
fn of_our_end(error: BoxError) -> Result<Status, BoxError> {
    match find::<BodyCutOff>(&*error).map(|cut_off| cut_off.ending.reason()) {
        Some(reason) => Ok(Part::Reason(reason).mark(of_error(code(reason), Arc::from(error)))),
        None => Err(error),
    }
}

/// The same for messages on their way up to a handler. tonic takes `CANCELLED` there for the proper end of a stream, and an
/// upload that broke off must never look whole (contract X3).
pub(crate) fn of_an_upload(error: BoxError) -> Status {
    let status = of_our_end(error).unwrap_or_else(Status::from_error);
    if status.code() != Code::Cancelled {
        return status;
    }
    let mut broke_off =
        Status::new(Code::Unknown, format!("the messages of the caller broke off: {}", status.message()));
    broke_off.set_source(Arc::new(status));
    broke_off
}

fn of_error(code: Code, error: Arc<dyn StdError + Send + Sync>) -> Status {
    let mut status = Status::new(code, chain(&*error));
    status.set_source(error);
    status
}

fn code(reason: Reason) -> Code {
    Code::from_i32(reason.grpc_status().into())
}

/// The code for a connection or a service that failed while there was time. What is not known to be anything else is
/// `UNAVAILABLE`, as gRPC has it for connections that fail.
fn code_of_failure(error: &CallError) -> Code {
    if is_refused_stream(error) {
        return Code::Unavailable;
    }
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(status) = error.downcast_ref::<Status>() {
            return status.code();
        }
        // A limit of the channel's own, or the value that we sent, which was rounded down.
        if error.is::<TimeoutExpired>() {
            return Code::DeadlineExceeded;
        }
        if error.is::<ConnectError>() {
            return Code::Unavailable;
        }
        if let Some(code) =
            error.downcast_ref::<h2::Error>().filter(|error| !error.is_go_away()).and_then(code_of_reset)
        {
            return code;
        }
        next = error.source();
    }
    Code::Unavailable
}

/// By gRPC's table of HTTP/2 codes.
fn code_of_reset(error: &h2::Error) -> Option<Code> {
    let status = oneclock_http::grpc::status_of_reset(error.reason()?.into());
    Some(Code::from_i32(status.into()))
}

/// An error and its sources in one line. A source that the text has said already is not said again.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        source = error.source();
    }
    text
}

pub(crate) fn find<'e, E: StdError + 'static>(mut error: &'e (dyn StdError + 'static)) -> Option<&'e E> {
    loop {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        error = error.source()?;
    }
}

// === Answered ===

impl Answered {
    /// What the far side said with this code and message.
    pub(crate) fn new(
        code: Code,
        message: &str,
        reason: Option<Reason>,
        gave_up: Option<AnswerGivenUp>,
        details: Details,
    ) -> Self {
        let seen = Seen::GrpcAnswer { status: u8::try_from(i32::from(code)).unwrap_or(u8::MAX), reason };
        let outcome = effect::outcome(seen, false);
        let problem = Part::of_answer(code, reason).problem().with_outcome(outcome);
        let problem = problem.insight(format!("answered {code:?}: {message}"));
        Self { reason, outcome, gave_up, details: details.bytes, by_a_layer: details.ours, problem }
    }

    /// That a call was answered so, for the caller of whoever made it.
    pub(crate) fn problem(&self) -> Problem {
        self.problem.clone()
    }

    /// What the caller of whoever passes the status on is told: nothing but that a call failed, if the words are those of a
    /// layer like ours, and otherwise those of the far side, which the handler chose to make its own.
    pub(crate) fn part(&self, code: Code) -> Option<Part> {
        (self.by_a_layer || self.reason.is_some()).then(|| Part::of_answer(code, self.reason))
    }
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "answered by the far side, outcome: {}", self.outcome)?;
        if let Some(reason) = self.reason {
            write!(f, ", reason: {}", reason.as_str())?;
        }
        match self.gave_up {
            Some(AnswerGivenUp { attempts, why, .. }) => write!(f, "; gave up after attempt {attempts}: {why}"),
            None => Ok(()),
        }
    }
}

/// Its source is a [`Problem`], so that whoever answers in HTTP says that a call failed, and not that the service did.
impl StdError for Answered {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.problem)
    }
}

// === BrokeOff ===

impl fmt::Display for BrokeOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the messages of the answer broke off")
    }
}

/// As with [`Answered`].
impl StdError for BrokeOff {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

// === Part ===

impl Part {
    /// Something we called failed with this code while there was time.
    pub(crate) fn of_failure(code: Code) -> Self {
        if code == Code::DeadlineExceeded { Self::CallTimedOut } else { Self::CallFailed }
    }

    /// Something we called answered so, and gave this reason if it is trusted. That it refused for load is load here, too.
    fn of_answer(code: Code, reason: Option<Reason>) -> Self {
        if code == Code::Unavailable && reason == Some(Reason::Shed) {
            Self::CallRefused
        } else {
            Self::of_failure(code)
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Reason(reason) => reason.as_str(),
            Self::CallFailed => "call_failed",
            Self::CallTimedOut => "call_timed_out",
            Self::CallRefused => "call_refused",
        }
    }

    pub(crate) fn mark(self, mut status: Status) -> Status {
        if let Ok(mark) = AsciiMetadataValue::try_from(format!("{} {}", self.word(), *TOKEN)) {
            status.metadata_mut().insert(wire::ONECLOCK_PART, mark);
        }
        status
    }

    /// Takes the mark off, whoever made it; it says something if we did.
    pub(crate) fn take(headers: &mut HeaderMap) -> Option<Self> {
        let mark = headers.remove(PART)?;
        let (word, token) = mark.to_str().ok()?.split_once(' ')?;
        if token != *TOKEN {
            return None;
        }
        Some(match word {
            "call_timed_out" => Self::CallTimedOut,
            "call_refused" => Self::CallRefused,
            word => Reason::from_word(word).map_or(Self::CallFailed, Self::Reason),
        })
    }

    pub(crate) fn problem(self) -> Problem {
        match self {
            Self::Reason(reason) => Problem::of_part(reason),
            Self::CallFailed => Problem::call_failed(),
            Self::CallTimedOut => Problem::call_timed_out(),
            Self::CallRefused => Problem::call_refused(),
        }
    }
}
