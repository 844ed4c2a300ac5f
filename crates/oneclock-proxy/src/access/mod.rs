//! The access log: one line of JSON for each request that is kept.
//!
//! Decides what a request leaves behind, from what happened to its operation: every figure is one of the operation's own ledger,
//! every word one of the library's. Lines come from the event of the end, which is sent from a guard, so that a request whose
//! caller left has its line like one that was answered (contract N1). On the way of a request nothing is written and nothing
//! waits: a request that leaves no line costs what has to be kept of its head, one that does a place in a queue.
//!
//! | file | decides |
//! |---|---|
//! | `keep` | who is kept: a sample, whatever a deadline ended or the upstream failed, refusals up to so many a second |
//! | `record` | what is known of a request before its end |
//! | `figures` | what its ledger says |
//! | `line` | how it is written |
//! | `out` | where lines go, and what happens when they cannot |

mod figures;
mod keep;
mod line;
mod out;
mod record;

use std::sync::Arc;
use std::time::SystemTime;

use oneclock::clock;
use oneclock::events::{
    AnswerHead, CallBegan, Event, Observer, OperationEnded, Refusal, RequestBegan, Slot, global_observer,
};
use oneclock::operation::Kind;
use oneclock_core::{Cause, Name, Reason, Stage, Tick, Trust};
use oneclock_telemetry::Several;
use oneclock_telemetry::readiness::WithoutProbes;

use self::figures::Figures;
use self::keep::{Allowance, Sampler};
use self::line::{Line, Over};
use self::out::Out;
use self::record::{Record, Told};
use crate::StartFailed;
use crate::config::{AccessLog, Listener, Route};

pub(crate) use self::record::Note;

/// The access log of one configuration: what is kept, and where that goes. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Log(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    says: AccessLog,
    sampler: Sampler,
    refusals: Allowance,
    out: Out,
}

/// Writes a line for each request of one listener that is kept. An observer.
#[derive(Debug)]
struct OfListener {
    log: Log,
    listener: Name,
    trust: Trust,
    /// Routes that say otherwise, few as they are.
    otherwise: Vec<(Name, Trust)>,
}

/// Who is told of what happens on these routes of this listener: the log, beside `others`, else beside the observer of the
/// process.
pub(crate) fn beside(
    log: Option<&Log>,
    listener: &Listener,
    routes: &[Route],
    others: Option<Arc<dyn Observer>>,
) -> Option<Arc<dyn Observer>> {
    let Some(log) = log else { return others };
    let others = others.or_else(global_observer);
    let log = WithoutProbes::new(OfListener::new(log.clone(), listener, routes));
    Some(Arc::new(others.into_iter().fold(Several::new().and(log), Several::and_shared)))
}

// === Log ===

impl Log {
    /// The log that `says` describes; `None` if there is none. What `before` has open stays open if it goes to the same place.
    pub(crate) fn open(says: &AccessLog, before: Option<&Self>) -> Result<Option<Self>, StartFailed> {
        let out = match before.filter(|before| before.0.says.to == says.to) {
            Some(before) => before.0.out.clone(),
            None => {
                match Out::open(&says.to).map_err(|source| StartFailed::AccessLog { to: says.to.clone(), source })? {
                    Some(out) => out,
                    None => return Ok(None),
                }
            }
        };
        let sampler = Sampler::of(says.sample);
        let refusals = Allowance::after(before.map(|before| &before.0.refusals), says.refusals);
        Ok(Some(Self(Arc::new(Kept { says: says.clone(), sampler, refusals, out }))))
    }

    /// Whether it could be opened, as far as that can be told without making a file.
    pub(crate) fn check(says: &AccessLog) -> Result<(), StartFailed> {
        out::check(&says.to).map_err(|source| StartFailed::AccessLog { to: says.to.clone(), source })
    }

    /// Has its file opened anew, at its path, before the next line: what was moved away is written to no more. If that fails it is
    /// told, and lines go where they went before. Waits for nothing.
    pub(crate) fn reopen(&self) {
        self.0.out.reopen();
    }

    /// Returns once all lines so far are written, or after a while in which they could not be.
    ///
    /// # Cancel safety
    /// Waits only.
    pub(crate) async fn flush(&self) {
        self.0.out.flush().await;
    }

    /// One that ended.
    fn ended(&self, ended: &OperationEnded<'_>) {
        if !matches!(ended.kind, Kind::Request | Kind::Stream) {
            return Self::apart(ended);
        }
        let Some(record) = ended.slot.get::<Record>() else { return };
        let until = ended.ledger.began() + ended.elapsed;
        if ended.goes_on {
            record.established(Figures::of(ended.ledger, until, &record.grants()), ended.bound.limit);
            return;
        }
        let late = ended.ending.is_some_and(|ending| ending.cause == Cause::Deadline)
            || ended.answered.is_some_and(is_about_time)
            || record.problem().is_some_and(Told::is_about_time);
        let failed = record.problem().is_some_and(Told::is_about_the_upstream);
        let never_began = ended.not_admitted();
        if !self.keeps(record, late || failed, never_began.is_some(), until) {
            return;
        }
        let (mut figures, budget_in, streamed) = match record.take_established() {
            Some((figures, budget_in)) => (figures, budget_in, Some(ended.elapsed)),
            None => (Figures::of(ended.ledger, until, &record.grants()), ended.bound.limit, None),
        };
        if let Some(apart) = record.take_apart(until) {
            figures.add(apart);
        }
        let over = Over {
            ending: ended.ending,
            answered: ended.answered,
            why: never_began.map(|why| why.as_str()),
            bound: Some(ended.bound.by),
            field: None,
            refused_at: None,
        };
        let took = until.since(record.arrived);
        let route = ended.operation.clone();
        self.write(Line::new(ended.slot.clone(), route, SystemTime::now(), took, over, figures, budget_in, streamed));
    }

    /// What was done for a request in an operation of its own, as a run under an idempotency key is.
    fn apart(ended: &OperationEnded<'_>) {
        if let Some(record) = ended.nearest_slot.get::<Record>() {
            let figures = Figures::of(ended.ledger, ended.ledger.began() + ended.elapsed, &record.grants());
            record.apart(figures);
        }
    }

    /// One that never began.
    fn refused(&self, refusal: &Refusal) {
        let Some(record) = refusal.slot.get::<Record>() else { return };
        if !self.keeps(record, false, true, record.arrived) {
            return;
        }
        let over = Over {
            ending: None,
            answered: Some(refusal.reason),
            why: refusal.admission.map(|admission| admission.why.as_str()),
            bound: refusal.bound,
            field: refusal.field.clone(),
            refused_at: Some(if refusal.admission.is_some() { Stage::Queue } else { Stage::Arrival }),
        };
        let took = clock::now().since(record.arrived);
        let (slot, route) = (refusal.slot.clone(), refusal.operation.clone());
        let figures = Figures::default();
        self.write(Line::new(slot, route, SystemTime::now(), took, over, figures, refusal.remaining, None));
    }

    /// Whether it leaves a line: because it is one of the share, or a refusal for which there is room, or went wrong.
    fn keeps(&self, record: &Record, went_wrong: bool, never_began: bool, at: Tick) -> bool {
        record.sampled || if never_began { self.0.refusals.takes(at) } else { went_wrong }
    }

    fn write(&self, mut line: Line) {
        line.left_out = self.0.refusals.left_out();
        if let Err(left_out) = self.0.out.offer(line) {
            self.0.refusals.give_back(left_out);
        }
    }
}

// === OfListener ===

impl OfListener {
    fn new(log: Log, listener: &Listener, routes: &[Route]) -> Self {
        let otherwise = routes.iter().filter_map(|route| Some((route.name.clone(), route.trust?)));
        let otherwise = otherwise.filter(|(_, trust)| *trust != listener.trust).collect();
        Self { log, listener: listener.name.clone(), trust: listener.trust, otherwise }
    }

    /// Whether callers of this route are ours.
    fn trusts(&self, route: &Name) -> bool {
        let said = self.otherwise.iter().find(|(name, _)| name == route);
        said.map_or(self.trust, |(_, trust)| *trust) == Trust::Inside
    }
}

impl Observer for OfListener {
    fn on(&self, event: &Event<'_>) {
        match event {
            Event::Ended(ended) => self.log.ended(ended),
            Event::Refused(refusal) => self.log.refused(refusal),
            _ => {}
        }
    }

    fn request_began(&self, request: &RequestBegan<'_>) -> Slot {
        Slot::of(Record::of(request, &self.listener, &self.log.0.sampler, self.trusts(request.operation)))
    }

    fn begun(&self, call: &CallBegan<'_>) -> Slot {
        if let Some(record) = call.operation.nearest_slot().get::<Record>() {
            record.granted(call);
        }
        Slot::default() // what is asked of a call's answer is asked of the request's
    }

    fn answered(&self, slot: &Slot, answer: &AnswerHead<'_>) {
        if let Some(record) = slot.get::<Record>() {
            record.answered(answer);
        }
    }
}

/// Whether an answer with this reason was about time running out.
fn is_about_time(reason: Reason) -> bool {
    reason.http_status() == 504
}
