//! The events of a service, kept and awaited.

use std::sync::Arc;
use std::time::Duration;

use oneclock::events::{Event, Observer};
use oneclock::operation::Kind;
use oneclock_core::{BoundBy, Cause, Outcome, Reason};
use oneclock_test::PATIENCE;
use tokio::sync::watch;

/// Keeps every event, in order. Clones keep together.
#[derive(Clone, Debug)]
pub(crate) struct Told(Arc<watch::Sender<Vec<Said>>>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    Arrived { source: Option<String>, limit: Duration, bound: BoundBy, clamped: bool, skew_suspected: bool },
    Refused { reason: Reason, field: Option<String> },
    Ended { name: String, kind: Kind, cause: Option<Cause> },
    Called { call: String, outcome: Outcome, cause: Option<Cause> },
    NotCalled,
    Other,
}

impl Told {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    pub(crate) fn count(&self, is: impl Fn(&Said) -> bool) -> usize {
        self.0.borrow().iter().filter(|said| is(said)).count()
    }

    pub(crate) fn all(&self) -> Vec<Said> {
        self.0.borrow().clone()
    }

    /// Waits until there are `n` of these.
    pub(crate) async fn await_count(&self, n: usize, is: impl Fn(&Said) -> bool) {
        let mut changes = self.0.subscribe();
        let there = changes.wait_for(|said| said.iter().filter(|said| is(said)).count() >= n);
        let came = tokio::time::timeout(PATIENCE, there).await.is_ok();
        assert!(came, "{n} wanted, told: {:#?}", self.all());
    }

    /// How every operation ended, by name, each once.
    pub(crate) fn endings(&self) -> Vec<(String, Option<Cause>)> {
        let ended = |said: Said| match said {
            Said::Ended { name, cause, .. } => Some((name, cause)),
            _ => None,
        };
        let mut endings: Vec<_> = self.all().into_iter().filter_map(ended).collect();
        endings.sort_by(|(a, _), (b, _)| a.cmp(b));
        endings
    }
}

impl Said {
    pub(crate) fn is_request_end(&self) -> bool {
        matches!(self, Self::Ended { kind: Kind::Request, .. })
    }

    pub(crate) fn is_called(&self) -> bool {
        matches!(self, Self::Called { .. })
    }

    pub(crate) fn is_arrived(&self) -> bool {
        matches!(self, Self::Arrived { .. })
    }
}

impl Observer for Told {
    fn on(&self, event: &Event<'_>) {
        let said = match event {
            Event::Arrived(arrived) => Said::Arrived {
                source: arrived.source.as_ref().map(ToString::to_string),
                limit: arrived.bound.limit,
                bound: arrived.bound.by,
                clamped: arrived.clamped,
                skew_suspected: arrived.skew_suspected,
            },
            Event::Refused(refusal) => {
                Said::Refused { reason: refusal.reason, field: refusal.field.as_ref().map(ToString::to_string) }
            }
            Event::Ended(ended) => Said::Ended {
                name: ended.operation.to_string(),
                kind: ended.kind,
                cause: ended.ending.map(|ending| ending.cause),
            },
            Event::Called(called) => Said::Called {
                call: called.call.to_string(),
                outcome: called.outcome,
                cause: called.ending.map(|ending| ending.cause),
            },
            Event::NotCalled { .. } => Said::NotCalled,
            _ => Said::Other,
        };
        self.0.send_modify(|all| all.push(said));
    }
}
