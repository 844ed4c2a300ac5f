//! Which event is counted in which series.
//!
//! Decides what is one: a request, the stream behind its head, and what our own code begins are operations. Their parts and
//! their steps that must finish are not counted beside them, so that a request is one whatever it is made of.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use metrics::{Counter, Histogram};
use oneclock::events::{Arrived, Called, Delivered, Event, Late, Observer, OperationEnded, Refusal};
use oneclock::operation::Kind;
use oneclock_core::expiry::Why;
use oneclock_core::retry::Stop;
use oneclock_core::{BoundBy, Cause, Ending, Name, Reason, Stage};

use super::Metrics;
use super::family::{Family, Labels, Seconds};
use super::sink::Sink;
use crate::names;
use crate::trace::words::queued;

macro_rules! families {
    ($($field:ident: $handle:ident = $metric:ident,)*) => {
        /// Every metric that is written when something happens.
        pub(super) struct Families {
            $($field: Family<$handle>,)*
        }

        impl Families {
            pub(super) fn new(limit: &Arc<AtomicUsize>) -> Self {
                Self { $($field: Family::new(&names::$metric, limit),)* }
            }
        }
    };
}

families! {
    operations: Counter = OPERATIONS,
    answered: Counter = ANSWERED,
    operation_seconds: Histogram = OPERATION_SECONDS,
    budget: Histogram = BUDGET_AT_ARRIVAL,
    missing: Counter = MISSING,
    clamped: Counter = CLAMPED,
    malformed: Counter = MALFORMED,
    skew: Counter = SKEW_SUSPECTED,
    expired: Counter = EXPIRED,
    deadline_exceeded: Counter = DEADLINE_EXCEEDED,
    cancelled: Counter = CANCELLED,
    cancellations: Counter = CANCELLATIONS,
    late: Counter = LATE,
    not_admitted: Counter = NOT_ADMITTED,
    would_refuse: Counter = WOULD_REFUSE,
    queue_wait: Histogram = QUEUE_WAIT,
    calls: Counter = CALLS,
    call_seconds: Histogram = CALL_SECONDS,
    remaining: Histogram = REMAINING_AT_CALL,
    call_deadline_exceeded: Counter = CALL_DEADLINE_EXCEEDED,
    not_called: Counter = NOT_CALLED,
    retries: Counter = RETRIES,
    retry_skipped: Counter = RETRY_SKIPPED,
    gave_up: Counter = GAVE_UP,
    breaker: Counter = BREAKER_CHANGES,
    ran_on: Counter = RAN_ON,
    ran_on_seconds: Seconds = RAN_ON_SECONDS,
    detached: Counter = DETACHED,
    panicked: Counter = PANICKED,
    keyed: Counter = KEYED,
    deliveries: Counter = DELIVERIES,
    message_wait: Histogram = MESSAGE_WAIT,
    message_faults: Counter = MESSAGE_FAULTS,
}

/// The layer of [`names::CANCELLATIONS`] that a request is.
const HANDLER: &str = "handler";

impl Observer for Metrics {
    fn on(&self, event: &Event<'_>) {
        let (sink, to) = (&self.0.sink, &self.0.families);
        match *event {
            Event::Arrived(arrived) => to.arrived(sink, arrived),
            Event::Refused(refusal) => to.refused(sink, refusal),
            Event::WouldRefuse { operation, route, refusal } => {
                to.would_refuse.count(sink, of(operation, route), [refusal.why.as_str()]);
            }
            Event::Ended(ended) => to.ended(sink, ended),
            Event::Called(called) => to.called(sink, called),
            Event::NotCalled { call, reason, .. } => {
                to.not_called.count(sink, [call.as_str()], [reason.as_str()]);
            }
            Event::TriedAgain { call, because, .. } => to.retries.count(sink, [call.as_str()], [because.as_str()]),
            Event::GaveUp { call, why, .. } => to.gave_up(sink, call, why),
            Event::Breaker { destination, change } => {
                to.breaker.count(sink, [destination.as_str()], [change.as_str()]);
            }
            Event::Late { operation, route, result: Late::Answer, .. } => to.late.count(sink, of(operation, route), []),
            Event::RanOn { operation, because, for_, .. } => {
                to.ran_on.count(sink, [operation.as_str()], [because.as_str()]);
                let labels = Labels::of([operation.as_str()], [because.as_str()]);
                to.ran_on_seconds.write(sink, labels, |seconds| seconds.add(for_));
            }
            Event::Detached { from, .. } => to.detached.count(sink, [from.as_str()], []),
            Event::Panicked { operation, .. } => to.panicked.count(sink, [operation.as_str()], []),
            Event::Delivered(delivered) => to.delivered(sink, delivered),
            Event::Keyed { route, what } => to.keyed.count(sink, [route.as_str()], [what.as_str()]),
            _ => {}
        }
    }
}

// === Families ===

impl Families {
    fn arrived(&self, sink: &Sink, arrived: &Arrived) {
        let who = of(&arrived.operation, arrived.route.as_ref());
        self.budget.sample(sink, who, [arrived.bound.by.as_str()], arrived.remaining);
        if arrived.source.is_none() && arrived.malformed.is_none() {
            self.missing.count(sink, who, []);
        }
        if arrived.clamped {
            self.clamped.count(sink, who, []);
        }
        if arrived.malformed.is_some() {
            self.malformed.count(sink, who, []);
        }
        if arrived.skew_suspected {
            self.skew.count(sink, who, []);
        }
    }

    fn delivered(&self, sink: &Sink, delivered: &Delivered) {
        let queue = [delivered.queue.as_str()];
        let reason = delivered.end.why().map_or(names::NONE, Why::as_str);
        self.deliveries.count(sink, queue, [delivered.policy.as_str(), delivered.end.as_str(), reason]);
        if let Some(waited) = delivered.waited {
            self.message_wait.sample(sink, queue, [], waited);
        }
        for fault in &delivered.faults {
            self.message_faults.count(sink, queue, [fault.as_str()]);
        }
    }

    fn refused(&self, sink: &Sink, refusal: &Refusal) {
        let who = of(&refusal.operation, refusal.route.as_ref());
        self.answered.count(sink, who, [refusal.reason.as_str()]);
        if is_too_late(refusal.reason) {
            self.expired.count(sink, who, [Stage::Arrival.as_str()]);
        }
        if let Some(admission) = &refusal.admission {
            self.not_admitted.count(sink, who, [admission.why.as_str(), Stage::Arrival.as_str()]);
        }
        if refusal.reason == Reason::Malformed {
            self.malformed.count(sink, who, []);
        }
        if refusal.skew_suspected {
            self.skew.count(sink, who, []);
        }
    }

    fn ended(&self, sink: &Sink, ended: &OperationEnded<'_>) {
        if !matches!(ended.kind, Kind::Request | Kind::Stream | Kind::Begun | Kind::Detached) {
            return;
        }
        let who = of(ended.operation, ended.route);
        let cause = ended.ending.map_or(names::NONE, |ending| ending.cause.as_str());
        self.operations.count(sink, who, [cause]);
        // How long a stream lasted is no latency, and its request's establishment has its own.
        if ended.kind != Kind::Stream {
            self.operation_seconds.sample(sink, who, [cause], ended.elapsed);
            if let Some(waited) = queued(ended.ledger) {
                self.queue_wait.sample(sink, who, [], waited);
            }
        }
        if let Some(why) = ended.not_admitted() {
            self.not_admitted.count(sink, who, [why.as_str(), Stage::Queue.as_str()]);
        }
        if let Some(reason) = ended.answered {
            self.answered.count(sink, who, [reason.as_str()]);
        }
        if let Some(ending) = ended.ending {
            self.ended_early(sink, who, ending);
            if ended.answered.is_some_and(is_too_late) {
                self.expired.count(sink, who, [ending.stage.as_str()]);
            }
        }
        // A handler whose call was out of time was done in time to say so.
        let seen = ended.ending.map_or(ended.answered == Some(Reason::Deadline), |ending| is_passed_on(ending.cause));
        if seen && matches!(ended.kind, Kind::Request | Kind::Stream) {
            self.cancellations.count(sink, [], [HANDLER]);
        }
    }

    fn ended_early(&self, sink: &Sink, who: [&str; 2], ending: Ending) {
        match ending.cause {
            Cause::Deadline => {
                self.deadline_exceeded.count(sink, who, [ending.bound.as_str(), ending.stage.as_str()]);
            }
            cause => self.cancelled.count(sink, who, [cause.as_str(), ending.stage.as_str()]),
        }
    }

    fn called(&self, sink: &Sink, called: &Called) {
        let (dependency, layer) = ([called.call.as_str()], called.downstream.as_str());
        self.calls.count(sink, dependency, [layer, called.outcome.as_str()]);
        self.call_seconds.sample(sink, dependency, [layer], called.elapsed);
        self.remaining.sample(sink, dependency, [], called.remaining);
        let Some(ending) = called.ending else { return };
        if ending.cause == Cause::Deadline {
            let words = [layer, ending.bound.as_str(), ending.stage.as_str()];
            self.call_deadline_exceeded.count(sink, dependency, words);
        }
        // A call's own cap is nobody's cancel, unless its operation was out of time as well.
        let by_its_cap =
            ending.cause == Cause::Deadline && called.bound.by == BoundBy::Cap && called.elapsed < called.remaining;
        if is_passed_on(ending.cause) && !by_its_cap {
            self.cancellations.count(sink, [], [layer]);
        }
    }

    fn gave_up(&self, sink: &Sink, call: &Name, why: Stop) {
        self.gave_up.count(sink, [call.as_str()], [why.as_str()]);
        if why.is_for_time() {
            self.retry_skipped.count(sink, [call.as_str()], []);
        }
    }
}

impl Family<Counter> {
    fn count<const N: usize, const W: usize>(&self, sink: &Sink, names: [&str; N], words: [&'static str; W]) {
        self.write(sink, Labels::of(names, words), |counter| counter.increment(1));
    }
}

impl Family<Histogram> {
    fn sample<const N: usize, const W: usize>(
        &self,
        sink: &Sink,
        names: [&str; N],
        words: [&'static str; W],
        span: Duration,
    ) {
        self.write(sink, Labels::of(names, words), |histogram| histogram.record(span.as_secs_f64()));
        sink.sampled();
    }
}

/// Whose it is: the operation, and what its request was matched to.
fn of<'a>(operation: &'a Name, route: Option<&'a Name>) -> [&'a str; 2] {
    [operation.as_str(), route.map_or(names::NONE, Name::as_str)]
}

/// Whether the work was not begun for want of time.
fn is_too_late(reason: Reason) -> bool {
    matches!(reason, Reason::ExpiredBeforeStart | Reason::InsufficientBudget)
}

/// Whether everything below has to hear of it. What our own code lost interest in, a slower twin for example, ends below only.
fn is_passed_on(cause: Cause) -> bool {
    matches!(cause, Cause::Deadline | Cause::CallerGone | Cause::Shutdown)
}
