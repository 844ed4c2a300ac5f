//! An event as one line, for the person on call.
//!
//! Decides the words: first which operation and what it called, then what happened, which bound, where, after how long, and
//! what is known of the far side.

use std::fmt;

use oneclock_core::Outcome;
use oneclock_core::name::Hop;
use oneclock_core::time::Legible;

use super::{Arrived, Called, Event, Keyed, OperationEnded, RanOn, Refusal, TriedAgain};

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Arrived(arrived) => arrived.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::WouldRefuse { operation, refusal, .. } => {
                write!(f, "{operation} runs, and would be refused: {refusal}")
            }
            Self::Ended(ended) => ended.fmt(f),
            Self::Called(called) => called.fmt(f),
            Self::NotCalled { operation, call, reason } => {
                let hop = Hop(operation, Some(call));
                write!(f, "{hop} not called: {} ({reason}), outcome: {}", reason.title(), Outcome::NotSent)
            }
            Self::TriedAgain { operation, call, attempt, because } => {
                let why = match because {
                    TriedAgain::Retry => "the one before failed",
                    TriedAgain::Hedge => "the one before is slow, and goes on",
                };
                write!(f, "{}: attempt {attempt} begins, {why}", Hop(operation, Some(call)))
            }
            Self::GaveUp { operation, call, attempts, why } => {
                let noun = if attempts == 1 { "attempt" } else { "attempts" };
                write!(f, "{}: gave up after {attempts} {noun}: {why}", Hop(operation, Some(call)))
            }
            Self::Late { operation, result: _, route: _, by } => {
                write!(f, "{operation}: complete {} after its deadline, and delivered all the same", Legible(by))
            }
            Self::RanOn { operation, work, because, for_ } => {
                let what = match because {
                    RanOn::MustFinish => "a step that must finish",
                    RanOn::Blocking => "a blocking closure",
                    RanOn::Statement => "a statement on a database server",
                };
                let hop = Hop(operation, Some(work));
                write!(f, "{hop} went on for {} after the operation had ended: {what}", Legible(for_))
            }
            Self::Detached { from, operation, reason } => write!(f, "{from}: {operation} may outlive it: {reason}"),
            Self::Keyed { route, what } => write!(f, "{route}: {what}"),
            Self::Delivered(delivered) => delivered.fmt(f),
            Self::Breaker { destination, change } => write!(f, "{destination}: its breaker: {}", change.as_str()),
            Self::Panicked { operation, work } => write!(f, "{} panicked", Hop(operation, Some(work))),
        }
    }
}

/// `order arrived with 800ms (bound: caller, from grpc-timeout)`
impl fmt::Display for Arrived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, route: _, remaining: _, bound, source, clamped, skew_suspected, malformed } = self;
        write!(f, "{operation} arrived with {} (bound: {}", Legible(bound.limit), bound.by)?;
        if let Some(field) = source {
            write!(f, ", from {field}")?;
        }
        if *clamped {
            f.write_str(", less than was asked for")?;
        }
        if *skew_suspected {
            f.write_str(", the clocks probably differ")?;
        }
        if let Some(field) = malformed {
            write!(f, ", {field} could not be read")?;
        }
        f.write_str(")")
    }
}

/// `order refused: too little of the time budget was left to begin (insufficient_budget), 3ms left`
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, route: _, reason, field, remaining, bound: _, skew_suspected: _, admission, slot: _ } =
            self;
        write!(f, "{operation} refused: {} ({reason}", reason.title())?;
        if let Some(field) = field {
            write!(f, ", {field}")?;
        }
        write!(f, "), {} left", Legible(*remaining))?;
        admission.map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

/// `order: out of time in stage body (bound: caller) after 800ms of 800ms; spent: inventory 20ms`
impl fmt::Display for OperationEnded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if let Some(parent) = self.parent {
            write!(f, " (of {parent})")?;
        }
        let (elapsed, limit) = (Legible(self.elapsed), Legible(self.bound.limit));
        match (self.ending, self.answered) {
            // Its bound is the one that counts; the ending says it where it was the deadline.
            (Some(ending), _) => write!(f, ": {ending} after {elapsed} of {limit}")?,
            (None, Some(reason)) => {
                write!(f, ": answered with {reason} after {elapsed} of {limit} (bound: {})", self.bound.by)?;
            }
            (None, None) => write!(f, ": done after {elapsed} of {limit} (bound: {})", self.bound.by)?,
        }
        if self.ledger.entries().is_empty() { Ok(()) } else { write!(f, "; spent: {}", self.ledger) }
    }
}

/// `order → inventory: out of time in stage connect (bound: cap) after 300ms of 300ms, outcome: not sent`
impl fmt::Display for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (elapsed, limit) = (Legible(self.elapsed), Legible(self.bound.limit));
        write!(f, "{}: ", Hop(&self.operation, Some(&self.call)))?;
        match self.ending {
            Some(ending) => write!(f, "{ending} after {elapsed} of {limit}")?,
            None => write!(f, "over after {elapsed} of {limit} (bound: {})", self.bound.by)?,
        }
        if self.attempt > 1 {
            write!(f, ", attempt {}", self.attempt)?;
        }
        write!(f, ", outcome: {}", self.outcome)?;
        match &self.below {
            Some(below) => write!(f, "; there: {below}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Keyed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ran => f.write_str("keyed ran"),
            Self::TookOver => f.write_str("keyed took over"),
            Self::Replayed => f.write_str("keyed replayed"),
            Self::Refused(refusal) => write!(f, "keyed refused {}", refusal.as_str()),
            Self::Unknown(doubt) => write!(f, "keyed unknown {}", doubt.as_str()),
            Self::Fenced => f.write_str("keyed fenced"),
            Self::NotRecorded => f.write_str("keyed not recorded"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oneclock_core::retry::Stop;
    use oneclock_core::wire::server_timing::Account;
    use oneclock_core::{Bound, BoundBy, Cause, Deadline, Ending, Importance, Ledger, Name, Reason, Stage, Tick};
    use std::time::Duration;

    use crate::events::{Downstream, Late, Slot};
    use crate::operation::Kind;

    #[track_caller]
    fn says(event: &Event<'_>, want: &str) {
        assert_eq!(event.to_string(), want);
    }

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn each_event_is_one_line_that_says_which_what_and_how_long() {
        let (order, stock) = (&Name::from("order"), &Name::from("inventory"));
        let bound = Bound { by: BoundBy::Caller, limit: ms(800) };
        let at = Tick::from_nanos(0) + ms(800);
        let mut arrived = Arrived {
            route: None,
            remaining: ms(800),
            operation: order.clone(),
            bound,
            source: Some("grpc-timeout".into()),
            clamped: false,
            skew_suspected: false,
            malformed: None,
        };
        says(&Event::Arrived(&arrived), "order arrived with 800ms (bound: caller, from grpc-timeout)");
        arrived = Arrived { source: None, clamped: true, skew_suspected: true, ..arrived };
        let want = "order arrived with 800ms (bound: caller, less than was asked for, the clocks probably differ)";
        says(&Event::Arrived(&arrived), want);
        let refusal = Refusal::new(order.clone(), Reason::Malformed, ms(3), Some("grpc-timeout".into()));
        let want = "order refused: a deadline field could not be read (malformed_deadline, grpc-timeout), 3ms left";
        says(&Event::Refused(&refusal), want);

        let mut ledger = Ledger::new(Tick::from_nanos(0));
        let entry = ledger.open("inventory", Stage::Wait, None, Tick::from_nanos(0));
        ledger.close(entry, Tick::from_nanos(0) + ms(20));
        let nothing = Slot::default();
        let mut ended = OperationEnded {
            route: None,
            deadline: Deadline::at(at),
            slot: &nothing,
            nearest_slot: &nothing,
            operation: order,
            kind: Kind::Request,
            parent: None,
            bound,
            ending: Some(Ending::out_of_time(BoundBy::Caller, Stage::Body, at)),
            answered: None,
            importance: Importance::Required,
            elapsed: ms(801),
            ledger: &ledger,
            goes_on: false,
        };
        let want = "order: out of time in stage body (bound: caller) after 801ms of 800ms; spent: inventory 20ms";
        says(&Event::Ended(&ended), want);
        (ended.ending, ended.answered, ended.parent) = (None, Some(Reason::Deadline), Some(stock));
        let want = "order (of inventory): answered with deadline after 801ms of 800ms (bound: caller); \
                    spent: inventory 20ms";
        says(&Event::Ended(&ended), want);
        let nothing = Ledger::new(Tick::from_nanos(0));
        (ended.answered, ended.parent, ended.ledger) = (None, None, &nothing);
        says(&Event::Ended(&ended), "order: done after 801ms of 800ms (bound: caller)");

        let mut called = Called {
            downstream: Downstream::Service,
            remaining: ms(800),
            below: None,
            slot: Slot::default(),
            operation: order.clone(),
            call: stock.clone(),
            bound: Bound { by: BoundBy::Cap, limit: ms(300) },
            ending: Some(Ending { cause: Cause::Deadline, bound: BoundBy::Cap, stage: Stage::Connect, at }),
            elapsed: ms(300),
            outcome: Outcome::NotSent,
            attempt: 1,
        };
        let want =
            "order → inventory: out of time in stage connect (bound: cap) after 300ms of 300ms, outcome: not sent";
        says(&Event::Called(&called), want);
        called = Called { ending: None, elapsed: ms(20), outcome: Outcome::Applied, attempt: 2, ..called };
        let want = "order → inventory: over after 20ms of 300ms (bound: cap), attempt 2, outcome: applied";
        says(&Event::Called(&called), want);

        let below = "oneclock;desc=inventory;dur=19, queue;dur=15, unaccounted;dur=4, left;dur=280";
        called.below = Account::parse(below.as_bytes());
        let want = format!("{want}; there: inventory 19ms: queue 15ms, unaccounted 4ms, left 280ms");
        says(&Event::Called(&called), &want);

        let reason = Reason::InsufficientBudget;
        says(
            &Event::NotCalled { operation: order, call: stock, reason },
            "order → inventory not called: too little of the time budget was left to begin (insufficient_budget), \
             outcome: not sent",
        );
        for (because, want) in [
            (TriedAgain::Retry, "order → inventory: attempt 2 begins, the one before failed"),
            (TriedAgain::Hedge, "order → inventory: attempt 2 begins, the one before is slow, and goes on"),
        ] {
            says(&Event::TriedAgain { operation: order, call: stock, attempt: 2, because }, want);
        }
        let want = "order → inventory: gave up after 2 attempts: all 2 attempts were made";
        let why = Stop::AllMade { attempts: 2 };
        says(&Event::GaveUp { operation: order, call: stock, attempts: 2, why }, want);
        let want = "order: complete 3ms after its deadline, and delivered all the same";
        says(&Event::Late { operation: order, result: Late::Answer, route: None, by: ms(3) }, want);
        let want = "order → inventory went on for 3ms after the operation had ended: a blocking closure";
        says(&Event::RanOn { operation: order, work: stock, because: RanOn::Blocking, for_: ms(3) }, want);
        let want = "order: mail may outlive it: the receipt goes out";
        says(&Event::Detached { from: order, operation: &"mail".into(), reason: "the receipt goes out" }, want);
        says(&Event::Keyed { route: order, what: Keyed::Replayed }, "order: keyed replayed");
        let change = oneclock_core::breaker::Change::HalfOpen;
        says(&Event::Breaker { destination: stock, change }, "inventory: its breaker: half_open");
        says(&Event::Panicked { operation: order, work: stock }, "order → inventory panicked");
    }
}
