//! One request with a key: what it is told, and how long it waits.
//!
//! Decides the order: key, principal, body, fingerprint; then it joins or begins the run of its scope and waits, within its
//! caller's budget. Leaving ends the wait and never the work (contract M10, N4).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use oneclock::events::Keyed;
use oneclock::{Operation, Unfinished, clock};
use oneclock_core::idempotency::{Claim, Fingerprint, Key, NotAKey, Owner, Refusal, Scope, State, wait};
use oneclock_core::{Deadline, Name, Outcome, Reason, Stage};
use oneclock_http::{BoxError, NothingHappened, Problem, Protocol};
use tokio::sync::{oneshot, watch};
use tower_service::Service;

use crate::body::{Body, own, whole};
use crate::endpoint::{Below, Endpoint};
use crate::layer::Config;
use crate::refuse::{self, LeftOpen, MonitorLink};
use crate::run::{Run, Work};
use crate::runs::{Joined, Place, Told};
use crate::store::{Kept, Store};
use crate::{fingerprint, names, rpc};

/// The first pause between two looks at a record whose run is somewhere else, and the longest.
const LOOKS_FIRST: Duration = Duration::from_millis(20);
const LOOKS_AT_LEAST: Duration = Duration::from_millis(250);

/// A request with a key.
pub(crate) struct Asked<St> {
    config: Arc<Config<St>>,
    work: Work,
    scope: Scope,
    called: Name,
    print: Fingerprint,
    protocol: Protocol,
    head: Parts,
    bytes: Bytes,
    operation: Operation,
    until: Deadline, // of the wait
}

/// What a wait came to.
enum Waited {
    Answer(Response<Body>),
    Told(Told),
    TimeUp,
    /// And the store had not given it the key by then.
    TimeUpBeforeTheClaim,
}

/// The key of a request. `Ok(None)`: it has none and needs none. Else the refusal, and why.
pub(crate) fn key_of<St>(config: &Config<St>, head: &Parts) -> Result<Option<Key>, (Refusal, Option<NotAKey>)> {
    match Key::parse_all(head.headers.get_all(names::KEY).iter().map(http::HeaderValue::as_bytes)) {
        Ok(None) if config.required => Err((Refusal::KeyMissing, None)),
        Ok(key) => Ok(key),
        Err(why) => Err((Refusal::KeyMalformed, Some(why))),
    }
}

/// From the request with its key to its answer.
pub(crate) async fn answer<St, S, B, A>(
    config: Arc<Config<St>>,
    below: Below,
    inner: S,
    key: Key,
    protocol: Protocol,
    request: Request<B>,
) -> Response<Body>
where
    St: Store,
    S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    let (head, body) = request.into_parts();
    let refuse = |problem| refuse::of_problem(problem, protocol).map(whole);
    if !rpc::has_keys(protocol) {
        // A failure would be kept as an answer. A key that is not enforced in silence would be worse than none.
        let title = "what became of a call in this protocol cannot be told from its answer, so it can have no key";
        let problem = Problem::with_status(StatusCode::NOT_IMPLEMENTED, title).typed("no_keys_in_protocol", 12);
        return refuse(problem.with_outcome(Outcome::NotSent).never_again());
    }
    let Some(principal) = (config.principal)(&head) else {
        return refuse(refuse::no_principal(config.known_by.as_deref()));
    };
    let bytes = match Limited::new(body, config.limits.request_bytes).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) => return refuse(not_read(error, config.limits.request_bytes)),
    };
    let Endpoint { route, called } = Endpoint::of(&config, below, &head);
    let scope = Scope { principal, method: head.method.as_str().to_owned().into(), route, key };
    let operation = Operation::current().unwrap_or_else(|| Operation::begin(config.name.clone(), config.limits.run()));
    let Some(most) = wait(operation.remaining(), config.limits.reserve, config.limits.wait_at_most) else {
        // No record for what would be doomed.
        return refuse(Problem::new(Reason::InsufficientBudget).with_outcome(Outcome::NotSent));
    };
    let until = Deadline::after(clock::now(), most);
    let print = fingerprint::of(&head, &bytes);
    Asked { config, work: work_of(inner), scope, called, print, protocol, head, bytes, operation, until }
        .answered()
        .await
}

impl<St: Store> Asked<St> {
    async fn answered(self) -> Response<Body> {
        let mut lease_left = Duration::ZERO;
        loop {
            let (waited, began) = match self.config.runs.join(&self.scope, &self.called, self.print) {
                Joined::OtherFingerprint => return self.refused(Refusal::OtherFingerprint, lease_left),
                Joined::AnotherAsks => {
                    let pause = LOOKS_FIRST.min(self.until.remaining(clock::now()));
                    tokio::time::sleep(pause).await;
                    if self.until.is_past(clock::now()) {
                        return self.refused(Refusal::InProgress, lease_left);
                    }
                    continue;
                }
                Joined::Waits(told) => (self.waits(told).await, false),
                Joined::Begins(place, told) => match self.begins(place, told).await {
                    Ok(waited) => (waited, true),
                    Err(problem) => return self.ended(problem),
                },
            };
            match waited {
                Waited::Answer(answer) => return answer,
                Waited::TimeUp if began => {
                    return self.out_of_time("what was begun goes on; the same key gets its answer");
                }
                Waited::TimeUpBeforeTheClaim => {
                    let detail = "the store of idempotency keys had not answered by then, so nothing was begun; the same key \
                                  may be sent again";
                    return self.out_of_time(detail);
                }
                Waited::TimeUp => return self.refused(Refusal::InProgress, lease_left),
                Waited::Told(Told::Gone) => tokio::task::yield_now().await, // its place is about to be free
                Waited::Told(Told::Elsewhere { lease_left: left }) => {
                    lease_left = left;
                    if !self.looks_until_settled().await {
                        return self.refused(Refusal::InProgress, lease_left);
                    }
                }
                Waited::Told(told) => return self.told(&told),
            }
            if self.until.is_past(clock::now()) {
                return self.refused(Refusal::InProgress, lease_left);
            }
        }
    }

    /// Begins a run and waits for it. The run goes on if the wait ends.
    async fn begins(&self, place: Place, mut told: watch::Receiver<Option<Told>>) -> Result<Waited, Problem> {
        let config = &self.config;
        let Ok(permit) = Arc::clone(&config.places).try_acquire_owned() else {
            return Err(Problem::new(Reason::Shed).with_outcome(Outcome::NotSent));
        };
        let (original, mut answer) = oneshot::channel();
        let is_claimed = place.is_claimed();
        let claim = Claim {
            fingerprint: self.print,
            owner: Owner(uuid::Uuid::now_v7().as_u128()),
            made: self.scope.key.made(),
            lease: config.limits.lease,
            retention: config.limits.retention,
            takeover: config.takeover,
        };
        let run = Run {
            config: Arc::clone(config),
            place,
            claim,
            protocol: self.protocol,
            head: self.head.clone(),
            bytes: self.bytes.clone(),
            work: Arc::clone(&self.work),
            original,
            permit,
        };
        let step = async move {
            run.run().await;
            Ok::<(), std::convert::Infallible>(())
        };
        // Boxed: it holds the service's future, and lives on its own task from the first poll on.
        let step: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(step);
        let mut finishing = pin!(self.operation.must_finish(config.step.clone(), config.limits.run(), step));
        let (mut finished, mut original_gone) = (false, false);
        let mut time_up = pin!(tokio::time::sleep_until(clock::instant(self.until)));
        loop {
            tokio::select! {
                biased;
                answered = &mut answer, if !original_gone => match answered {
                    Ok(answer) => return Ok(Waited::Answer(self.linked_if_open(answer))),
                    Err(_) => original_gone = true, // there will be something else to tell
                },
                done = &mut finishing, if !finished => match done {
                    Err(unfinished @ (Unfinished::NotBegun(_) | Unfinished::StillRunning { .. })) => {
                        return Err(unfinished.into());
                    }
                    _ => finished = true,
                },
                found = told.wait_for(Option::is_some), if original_gone => return Ok(found_told(found)),
                () = &mut time_up => {
                    let runs = is_claimed.load(Ordering::Acquire);
                    return Ok(if runs { Waited::TimeUp } else { Waited::TimeUpBeforeTheClaim });
                }
            }
        }
    }

    /// Waits for a run that another request began.
    async fn waits(&self, mut told: watch::Receiver<Option<Told>>) -> Waited {
        tokio::select! {
            biased;
            found = told.wait_for(Option::is_some) => found_told(found),
            () = tokio::time::sleep_until(clock::instant(self.until)) => Waited::TimeUp,
        }
    }

    /// Looks at the record until it is not in progress any more. False when the time to wait is over first.
    async fn looks_until_settled(&self) -> bool {
        let mut pause = LOOKS_FIRST;
        let looking = async {
            loop {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LOOKS_AT_LEAST);
                // A store that cannot be read is asked again: the claim that follows says what is wrong with it.
                if let Ok(found) = self.config.store.read(&self.scope).await
                    && !found.is_some_and(|Kept { record, .. }| matches!(record.state, State::InProgress { .. }))
                {
                    return;
                }
            }
        };
        tokio::time::timeout_at(clock::instant(self.until), looking).await.is_ok()
    }

    fn told(&self, told: &Told) -> Response<Body> {
        let refusal = match told {
            Told::Kept(answer) => match answer.replay().filter(|_| answer.is_readable_in(self.protocol)) {
                Some(replay) => {
                    self.config.tell(&self.called, Keyed::Replayed);
                    return replay;
                }
                None => Refusal::AnswerNotKept,
            },
            Told::Nothing(answer) => match answer.again() {
                Some(again) => return again,
                None => Refusal::AnswerNotKept,
            },
            Told::Unknown(doubt) => {
                return self.refused_for(Refusal::OutcomeUnknown, Some(doubt.sentence()), Duration::ZERO);
            }
            Told::OtherFingerprint => Refusal::OtherFingerprint,
            Told::KeyTooOld => Refusal::KeyTooOld,
            Told::KeyFromTheFuture => {
                let why = "it says that it was made in the future";
                return self.refused_for(Refusal::KeyMalformed, Some(why), Duration::ZERO);
            }
            Told::StoreUnreachable => Refusal::StoreUnreachable,
            Told::Elsewhere { .. } | Told::Gone => Refusal::InProgress,
        };
        self.refused(refusal, Duration::ZERO)
    }

    fn refused(&self, refusal: Refusal, lease_left: Duration) -> Response<Body> {
        self.refused_for(refusal, None, lease_left)
    }

    fn refused_for(&self, refusal: Refusal, why: Option<&str>, lease_left: Duration) -> Response<Body> {
        self.config.tell(&self.called, Keyed::Refused(refusal));
        let answer = refuse::answer(refusal, why.map(str::to_owned), lease_left, self.protocol);
        let open = matches!(refusal, Refusal::InProgress | Refusal::OutcomeUnknown | Refusal::AnswerNotKept);
        if open { self.link().add_to(answer).map(whole) } else { answer.map(whole) }
    }

    /// The caller's time is over and its work goes on, or may still begin if others wait for it: that is a deadline answer, whose
    /// outcome is unknown, and not a refusal.
    fn out_of_time(&self, detail: &'static str) -> Response<Body> {
        let problem = Problem::new(Reason::Deadline).with_outcome(Outcome::Unknown { stage: Stage::Work });
        let problem = problem.detail(detail);
        self.link().add_to(refuse::of_problem(problem, self.protocol)).map(whole)
    }

    /// It was not begun, or the caller's operation ended while the work goes on.
    fn ended(&self, problem: Problem) -> Response<Body> {
        let open = matches!(problem.outcome(), Some(Outcome::Unknown { .. }));
        let answer = refuse::of_problem(problem, self.protocol);
        if open { self.link().add_to(answer).map(whole) } else { answer.map(whole) }
    }

    /// An answer of the run's own that leaves its outcome open says where to ask.
    fn linked_if_open(&self, mut answer: Response<Body>) -> Response<Body> {
        let said_so = answer.extensions_mut().remove::<LeftOpen>().is_some();
        let failed = answer.status().is_server_error() && answer.extensions().get::<NothingHappened>().is_none();
        let open = said_so || failed;
        if open { self.link().add_to(answer) } else { answer }
    }

    fn link(&self) -> MonitorLink<'_> {
        MonitorLink { at: self.config.monitor.as_deref(), scope: &self.scope }
    }
}

/// The service below as what a run can begin any time: each beginning has a clone of its own.
fn work_of<S, B, A>(inner: S) -> Work
where
    S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: From<Bytes> + Send + 'static,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    let inner = Mutex::new(inner); // a service need not be shared between threads
    Arc::new(move |request: Request<Bytes>| {
        let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            poll_fn(|cx| inner.poll_ready(cx)).await.map_err(Into::into)?;
            let answer = inner.call(request.map(B::from)).await.map_err(Into::into)?;
            Ok(answer.map(own))
        })
    })
}

/// A run that ended with its process's runtime tells nobody anything.
fn found_told(found: Result<watch::Ref<'_, Option<Told>>, watch::error::RecvError>) -> Waited {
    Waited::Told(found.ok().and_then(|told| told.clone()).unwrap_or(Told::Gone))
}

fn not_read(error: BoxError, most: usize) -> Problem {
    if error.is::<LengthLimitError>() {
        let problem = Problem::with_status(StatusCode::PAYLOAD_TOO_LARGE, "too large for an idempotency key");
        let detail = format!("a request with a key has at most {most} bytes, since it must be told from another");
        return problem.detail(detail).never_again(); // RESOURCE_EXHAUSTED, which some repeat
    }
    // Cut off by the deadline, or a shutdown: that has its own words. Else the caller broke off.
    let problem = Problem::of(error);
    match problem.reason() {
        Some(_) => problem.with_outcome(Outcome::NotSent),
        None => Problem::with_status(StatusCode::BAD_REQUEST, "the request body could not be read"),
    }
}
