//! Keeps the events of a shop, and waits for them.

use std::sync::Mutex;
use std::time::Duration;

use oneclock::events::{Called, Event, Observer, RanOn};
use oneclock::operation::Kind;
use oneclock_core::{Bound, Ending, Ledger, Name, Reason};
use oneclock_test::PATIENCE;
use tokio::sync::watch;
use tokio::time::Instant;

/// One event, kept.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    Arrived,
    Refused(Reason),
    Ended(Over),
    Called(Called),
    RanOn { work: Name, because: RanOn, how_long: Duration },
    Panicked(Name),
    Other,
}

/// An operation that is over.
#[derive(Clone, Debug)]
pub(crate) struct Over {
    pub(crate) operation: Name,
    pub(crate) kind: Kind,
    pub(crate) bound: Bound,
    pub(crate) ending: Option<Ending>,
    pub(crate) elapsed: Duration,
    pub(crate) ledger: Ledger,
}

/// Keeps every event.
#[derive(Debug)]
pub(crate) struct Witness {
    seen: Mutex<Vec<Seen>>,
    count: watch::Sender<usize>,
}

impl Default for Witness {
    fn default() -> Self {
        Self { seen: Mutex::default(), count: watch::Sender::new(0) }
    }
}

impl Witness {
    /// What `pick` makes of the events so far.
    pub(crate) fn all<T>(&self, pick: impl FnMut(&Seen) -> Option<T>) -> Vec<T> {
        self.seen.lock().unwrap().iter().filter_map(pick).collect()
    }

    /// What `pick` makes of the first `n` events that it wants, once there are as many.
    pub(crate) async fn first<T>(&self, n: usize, what: &str, mut pick: impl FnMut(&Seen) -> Option<T>) -> Vec<T> {
        let mut changes = self.count.subscribe();
        let waiting = async {
            loop {
                let mut found = self.all(&mut pick);
                if found.len() >= n {
                    found.truncate(n);
                    return found;
                }
                changes.changed().await.expect("the sender is in self");
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(found) => found,
            Err(_) => panic!("{n} × {what} not seen in {PATIENCE:?}, but: {:#?}", self.seen.lock().unwrap()),
        }
    }

    /// The end of the first operation of this name.
    pub(crate) async fn ended(&self, operation: &str) -> Over {
        let over = |seen: &Seen| match seen {
            Seen::Ended(over) if over.operation == *operation => Some(over.clone()),
            _ => None,
        };
        self.first(1, &format!("end of {operation}"), over).await.remove(0)
    }

    /// The end of the first call of this name.
    pub(crate) async fn called(&self, call: &str) -> Called {
        let called = |seen: &Seen| match seen {
            Seen::Called(called) if called.call == *call => Some(called.clone()),
            _ => None,
        };
        self.first(1, &format!("end of a call to {call}"), called).await.remove(0)
    }

    /// How much went on after its operation's end, so far.
    pub(crate) fn ran_on(&self) -> usize {
        self.all(|seen| matches!(seen, Seen::RanOn { .. }).then_some(())).len()
    }
}

impl Observer for Witness {
    fn on(&self, event: &Event<'_>) {
        let seen = match event {
            Event::Arrived(_) => Seen::Arrived,
            Event::Refused(refusal) => Seen::Refused(refusal.reason),
            Event::Ended(ended) => Seen::Ended(Over {
                operation: ended.operation.clone(),
                kind: ended.kind,
                bound: ended.bound,
                ending: ended.ending,
                elapsed: ended.elapsed,
                ledger: ended.ledger.clone(),
            }),
            Event::Called(called) => Seen::Called((*called).clone()),
            Event::RanOn { work, because, for_, .. } => {
                Seen::RanOn { work: (*work).clone(), because: *because, how_long: *for_ }
            }
            Event::Panicked { work, .. } => Seen::Panicked((*work).clone()),
            _ => Seen::Other,
        };
        self.seen.lock().unwrap().push(seen);
        self.count.send_modify(|count| *count += 1);
    }
}

/// Now, on the clock of the fixtures, which is tokio's.
pub(crate) fn clock_now() -> Instant {
    oneclock::clock::instant(oneclock_core::Deadline::at(oneclock::clock::now()))
}
