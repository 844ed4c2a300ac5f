//! One run: the claim, the work, and what became of it, on a task that its caller's leaving does not end.
//!
//! Decides the order (contract M1, M2, M10): the claim is durable before the work begins; the work has its own bound; what
//! became of it is written within a time of its own, and only then told. Requests wait for a run, also together; none of them
//! carries it.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{Extensions, HeaderMap, Request, Response, response};
use oneclock::events::{Event, Keyed};
use oneclock::{Operation, Stopped};
use oneclock_core::idempotency::{Claim, Claimed, Doubt, Fence, Record, Scope, State, Takeover, Verdict};
use oneclock_core::{Name, Outcome, Stage};
use oneclock_http::{BoxError, NothingHappened, Problem, Protocol};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::body::{Body, Collected, Whole, collect, whole};
use crate::key::Incoming;
use crate::layer::{Config, Limits};
use crate::refuse::{self, LeftOpen};
use crate::runs::{Place, Told};
use crate::store::{Found, Settle, Settled, Store, StoreError};
use crate::{Answer, rpc};

/// The service below, for one request, ready or not.
pub(crate) type Work = Arc<dyn Fn(Request<Bytes>) -> Working + Send + Sync>;
type Working = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

/// One run on its way.
pub(crate) struct Run<St> {
    pub(crate) config: Arc<Config<St>>,
    pub(crate) place: Place,
    pub(crate) claim: Claim,
    pub(crate) protocol: Protocol,
    pub(crate) head: Parts,
    pub(crate) bytes: Bytes,
    pub(crate) work: Work,
    pub(crate) original: oneshot::Sender<Response<Body>>, // for the request that began it
    pub(crate) permit: OwnedSemaphorePermit,
}

/// What a run keeps of its time to tell what became of it, when the store has taken all the rest.
const LAST_WORD: Duration = Duration::from_millis(100);

/// What the work came to.
enum Worked {
    Answered { head: response::Parts, body: Whole },
    HandedOn { head: response::Parts, trailers: HeaderMap },
    Broken { problem: Problem, doubt: Doubt },
    NotBegun(Problem),
    Panicked(Box<dyn std::any::Any + Send>),
}

// === Run ===

impl<St: Store> Run<St> {
    /// From the claim to the record. Runs in the scope of a step that must finish.
    pub(crate) async fn run(self) {
        let Self { config, place, claim, protocol, head, bytes, work, original, permit } = self;
        let limits = config.limits;
        let claiming = config.store.claim(&place.scope, &claim);
        let claimed = tokio::time::timeout(limits.claim_within, claiming).await;
        let claimed = claimed.unwrap_or(Err(StoreError::TooSlow { within: limits.claim_within }));
        let (fence, taken_over) = match claimed {
            Ok(Found { claimed: Claimed::Run { fence, taken_over }, .. }) => (fence, taken_over),
            Ok(found) => return place.tell(found.into()),
            Err(error) => {
                let scope = place.scope.clone();
                tracing::warn!(%scope, error = &error as &dyn std::error::Error, "no claim, so nothing was run");
                place.tell(Told::StoreUnreachable);
                drop((original, place)); // neither who began it nor the next request need wait for what follows
                match error {
                    StoreError::Full { .. } | StoreError::Closed => {}
                    StoreError::TooSlow { .. } | StoreError::Failed(_) => withdraw(&config, &scope, claim).await,
                }
                return drop(permit); // held until here, so that a store that is gone collects no more than `max_runs`
            }
        };
        place.claimed();
        // After a run of which nothing is known, that nothing happened in this one proves nothing.
        let nothing = if taken_over { Settle::Doubt(Doubt::LeaseLapsed) } else { Settle::Release };
        if place.is_abandoned() {
            // Nobody waits and nothing has begun: that is proof, and the next one may.
            return record(&config, &place, fence, nothing, Told::Gone).await;
        }
        config.tell(&place.called, if taken_over { Keyed::TookOver } else { Keyed::Ran });
        let mut request = Request::from_parts(head, bytes);
        request.extensions_mut().insert(Incoming(Arc::new(place.scope.clone())));
        request.extensions_mut().insert(fence);
        // The caller's, if it was carried: this is another operation's work.
        request.extensions_mut().remove::<Operation>();

        let mut original = Some(original);
        let worked = worked(&config, &place.called, work(request), &mut original).await;
        let mut panic = None;
        let (answer, settle, told) = match worked {
            Worked::Answered { head, body } => {
                let Whole { bytes, trailers } = &body;
                let verdict = rpc::verdict(protocol, &head, trailers, Some(bytes), nothing_happened(&head.extensions));
                let kept = Answer::of(protocol, &head, trailers, &config.replays, Some(bytes.clone()));
                let answer = Some(Response::from_parts(head, body.into()));
                match verdict {
                    Verdict::Keep => (answer, Settle::Complete(kept.clone()), Told::Kept(Arc::new(kept))),
                    Verdict::Nothing => (answer, nothing, Told::Nothing(Arc::new(kept))),
                    Verdict::Doubtful => doubtful(answer, Doubt::Failed),
                }
            }
            Worked::HandedOn { head, trailers } => {
                let verdict = rpc::verdict(protocol, &head, &trailers, None, nothing_happened(&head.extensions));
                let kept = Answer::of(protocol, &head, &trailers, &config.replays, None);
                match verdict {
                    Verdict::Keep => (None, Settle::Complete(kept.clone()), Told::Kept(Arc::new(kept))),
                    Verdict::Nothing => (None, nothing, Told::Nothing(Arc::new(kept))),
                    Verdict::Doubtful => doubtful(None, Doubt::Failed),
                }
            }
            Worked::Broken { problem, doubt } => doubtful(Some(problem_in(protocol, problem)), doubt),
            Worked::NotBegun(problem) => (Some(problem_in(protocol, problem)), nothing, Told::Gone),
            Worked::Panicked(payload) => {
                panic = Some(payload);
                doubtful(Some(problem_in(protocol, Problem::failed())), Doubt::Panicked)
            }
        };
        match (answer, original) {
            // The record first: who has the answer can get it again.
            (Some(answer), Some(original)) => {
                recorded(&config, &place, fence, settle, told, |told| match told {
                    // Of another run, or of a probe: there is one answer for a key, and it is not this one.
                    Some(_) => drop(original),
                    None => drop(original.send(answer)),
                })
                .await;
            }
            _ => recorded(&config, &place, fence, settle, told, |_| ()).await,
        }
        drop(permit);
        if let Some(payload) = panic {
            drop(place);
            resume_unwind(payload); // so that it is counted and reported as any other
        }
    }
}

/// An outcome that proves nothing. The answer says so too: what its problem knows is a part's outcome, and the record's is the
/// whole's.
fn doubtful(mut answer: Option<Response<Body>>, doubt: Doubt) -> (Option<Response<Body>>, Settle, Told) {
    if let Some(extensions) = answer.as_mut().map(Response::extensions_mut) {
        extensions.insert(LeftOpen);
        if let Some(problem) = said(extensions) {
            let stage = match problem.outcome() {
                Some(Outcome::Unknown { stage }) => stage,
                _ => Stage::Work,
            };
            extensions.insert(problem.with_outcome(Outcome::Unknown { stage }));
        }
    }
    (answer, Settle::Doubt(doubt), Told::Unknown(doubt))
}

/// The problem that an answer stands for, taken out of it.
fn said(extensions: &mut Extensions) -> Option<Problem> {
    #[cfg(feature = "tonic")]
    if let Some(problem) = crate::tonic::take_problem(extensions) {
        return Some(problem);
    }
    extensions.remove::<Problem>()
}

/// The handler's word that it did nothing (contract M4).
fn nothing_happened(extensions: &Extensions) -> bool {
    #[cfg(feature = "tonic")]
    if crate::tonic::nothing_happened(extensions) {
        return true;
    }
    extensions.get::<NothingHappened>().is_some()
}

fn problem_in(protocol: Protocol, problem: Problem) -> Response<Body> {
    refuse::of_problem(problem, protocol).map(whole)
}

/// The work, within its own bound; never a panic.
async fn worked<St>(
    config: &Config<St>,
    called: &Name,
    working: Working,
    original: &mut Option<oneshot::Sender<Response<Body>>>,
) -> Worked {
    let limits = config.limits;
    let answering = async move {
        let (head, body) = working.await?.into_parts();
        let shown = head.clone();
        let collected = collect(body, limits.answer_bytes, |body| {
            if let Some(original) = original.take() {
                let _ = original.send(Response::from_parts(shown, body));
            }
        });
        match collected.await {
            Collected::Whole(body) => Ok(Worked::Answered { head, body }),
            Collected::HandedOn(trailers) => Ok(Worked::HandedOn { head, trailers }),
            Collected::Broken(error) => Err(error),
        }
    };
    let Some(step) = Operation::current() else { return Worked::NotBegun(Problem::call_failed()) };
    let grant = step.grant(called.clone()).cap(limits.execution).reserve(limits.record_within);
    match grant.run(|_| AssertUnwindSafe(answering).catch_unwind()).await {
        Ok(Ok(Ok(worked))) => worked,
        Ok(Ok(Err(error))) => Worked::Broken { problem: Problem::of(error), doubt: Doubt::Failed },
        Ok(Err(payload)) => Worked::Panicked(payload),
        Err(Stopped::NotBegun(not_begun)) => Worked::NotBegun(not_begun.into()),
        Err(stopped @ Stopped::Ended(_)) => Worked::Broken { problem: stopped.into(), doubt: Doubt::CutOff },
    }
}

/// A claim whose answer was lost may be there all the same, and would block its key until its lease lapsed and a probe had
/// answered. Asked again under its own owner it tells its fence, and that nothing happened under it is known here.
async fn withdraw<St: Store>(config: &Config<St>, scope: &Scope, claim: Claim) {
    let limits = &config.limits;
    let again = Claim { takeover: Takeover::Never, ..claim };
    let found = insist(limits, || config.store.claim(scope, &again)).await;
    if let Some(Found { claimed: Claimed::Run { fence, .. }, .. }) = found {
        let settle = match claim.takeover {
            Takeover::Never => Settle::Release,
            // It may have taken over from a run of which nothing is known.
            Takeover::DeclaredSafe => Settle::Doubt(Doubt::LeaseLapsed),
        };
        let _ = insist(limits, || config.store.settle(scope, fence, settle.clone())).await;
    }
}

/// Writes what became of a run, and tells it.
async fn record<St: Store>(config: &Config<St>, place: &Place, fence: Fence, settle: Settle, told: Told) {
    recorded(config, place, fence, settle, told, |_| ()).await;
}

/// Writes what became of a run, tells whoever began it by `answer` (`Some`: what stands there instead), then the others.
async fn recorded<St: Store>(
    config: &Config<St>,
    place: &Place,
    fence: Fence,
    settle: Settle,
    told: Told,
    answer: impl FnOnce(Option<&Told>),
) {
    let limits = &config.limits;
    if let Settle::Doubt(doubt) = settle {
        config.tell(&place.called, Keyed::Unknown(doubt));
    }
    let settled = insist(limits, || config.store.settle(&place.scope, fence, settle.clone())).await;
    let instead = match settled {
        Some(Settled::Done) => None,
        Some(Settled::Already | Settled::Fenced { .. } | Settled::Otherwise(_) | Settled::Absent) => {
            if !matches!(settled, Some(Settled::Already)) {
                config.tell(&place.called, Keyed::Fenced);
            }
            let kept = insist(limits, || config.store.read(&place.scope)).await.flatten();
            let kept = kept.map_or(Told::Unknown(Doubt::LeaseLapsed), |kept| standing(kept.record, kept.answer, &told));
            // The same as was said here, and written at the first of two tries.
            let is_ours = matches!((&kept, &told), (Told::Kept(there), Told::Kept(here)) if there == here);
            (!is_ours).then_some(kept)
        }
        None => {
            config.tell(&place.called, Keyed::NotRecorded);
            tracing::error!(
                scope = %place.scope,
                within = ?limits.record_within,
                "the store could not be told what became of a run: when its lease lapses it will count as unknown"
            );
            // Who waits is told the truth; who comes later learns that nobody knows.
            None
        }
    };
    let is_recorded = settled.is_some();
    answer(instead.as_ref());
    place.tell(match instead {
        Some(instead) => instead,
        None if is_recorded => told,
        None => Told::Unknown(Doubt::LeaseLapsed),
    });
}

/// Asks until there is an answer, a little less often each time. `None` when the time is over: that of a record, and at most
/// what the run has left, less the time to say so. The run's own end would drop it, and nobody be told.
async fn insist<T, F>(limits: &Limits, mut ask: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pause = Duration::from_millis(5);
    let asking = async {
        loop {
            match ask().await {
                Ok(answer) => return Some(answer),
                Err(StoreError::Closed) => return None,
                Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "asking the store again"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    };
    let within = limits.record_within;
    let kept = LAST_WORD.min(within / 4);
    let left = oneclock::remaining().map_or(within, |left| left.saturating_sub(kept));
    tokio::time::timeout(within.min(left), asking).await.ok().flatten()
}

/// What a record says to somebody whose own word was `said`.
fn standing(record: Record, answer: Option<Answer>, said: &Told) -> Told {
    match (record.state, answer) {
        (State::Completed, Some(answer)) => Told::Kept(Arc::new(answer)),
        (State::Unknown(doubt), _) => Told::Unknown(doubt),
        (State::InProgress { lease_until }, _) => Told::Elsewhere { lease_left: lease_until.since(record.since) },
        _ => said.clone(),
    }
}

// === Config ===

impl<St> Config<St> {
    pub(crate) fn tell(&self, called: &Name, what: Keyed) {
        oneclock::events::send(self.observer.as_ref(), &Event::Keyed { route: called, what });
    }
}
