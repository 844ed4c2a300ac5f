//! An observer that keeps what it was told, operations that arrive, and a probe that notices being dropped.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::events::{Event, Observer, RanOn};
use oneclock::operation::Kind;
use oneclock::{Driver, Operation, Shutdown, clock};
use oneclock_core::{BoundBy, Budget, Cause, Ending, Name, Outcome, Reason};
use tokio::sync::oneshot;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// What an observer was told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Ended { name: String, kind: Kind, parent: Option<String>, ending: Option<Ending> },
    Called { call: String, ending: Option<Ending>, outcome: Outcome },
    NotCalled { call: String, reason: Reason },
    TriedAgain { call: String, attempt: u32 },
    GaveUp { call: String, attempts: u32, why: &'static str },
    Late { by: Duration },
    RanOn { operation: String, work: String, because: RanOn, for_: Duration },
    Detached { from: String, operation: String, reason: String },
    Panicked { operation: String, work: String },
    Other,
}

#[derive(Default)]
pub(crate) struct Recorder(Mutex<Vec<Told>>);

impl Observer for Recorder {
    fn on(&self, event: &Event<'_>) {
        let told = match event {
            Event::Ended(ended) => Told::Ended {
                name: ended.operation.to_string(),
                kind: ended.kind,
                parent: ended.parent.map(Name::to_string),
                ending: ended.ending,
            },
            Event::Called(called) => {
                Told::Called { call: called.call.to_string(), ending: called.ending, outcome: called.outcome }
            }
            Event::NotCalled { call, reason, .. } => Told::NotCalled { call: call.to_string(), reason: *reason },
            Event::TriedAgain { call, attempt, .. } => Told::TriedAgain { call: call.to_string(), attempt: *attempt },
            Event::GaveUp { call, attempts, why, .. } => {
                Told::GaveUp { call: call.to_string(), attempts: *attempts, why: why.as_str() }
            }
            Event::Late { by, .. } => Told::Late { by: *by },
            Event::RanOn { operation, work, because, for_ } => {
                Told::RanOn { operation: operation.to_string(), work: work.to_string(), because: *because, for_: *for_ }
            }
            Event::Detached { from, operation, reason } => Told::Detached {
                from: from.to_string(),
                operation: operation.to_string(),
                reason: (*reason).to_owned(),
            },
            Event::Panicked { operation, work } => {
                Told::Panicked { operation: operation.to_string(), work: work.to_string() }
            }
            _ => Told::Other,
        };
        self.0.lock().unwrap().push(told);
    }
}

impl Recorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn told(&self) -> Vec<Told> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, which: impl Fn(&Told) -> bool) -> usize {
        self.told().iter().filter(|told| which(told)).count()
    }

    /// The causes with which operations called `name` ended; one entry for each event.
    pub(crate) fn ends_of(&self, name: &str) -> Vec<Option<Cause>> {
        let of = |told| match told {
            Told::Ended { name: whose, ending, .. } if whose == name => Some(ending.map(|ending| ending.cause)),
            _ => None,
        };
        self.told().into_iter().filter_map(of).collect()
    }

    /// The works that ran on, and for how long.
    pub(crate) fn ran_on(&self) -> Vec<(String, RanOn, Duration)> {
        let of = |told| match told {
            Told::RanOn { work, because, for_, .. } => Some((work, because, for_)),
            _ => None,
        };
        self.told().into_iter().filter_map(of).collect()
    }

    pub(crate) fn panics(&self) -> usize {
        self.count(|told| matches!(told, Told::Panicked { .. }))
    }

    /// Returns once `enough` holds of what was told. Real time, for what happens on other threads.
    pub(crate) async fn until(&self, enough: impl Fn(&Self) -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(5), async {
            while !enough(self) {
                tokio::time::sleep(ms(1)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("not told within 5s: {:?}", self.told()));
    }
}

/// An operation begun by our own code and observed.
pub(crate) fn begun(name: &'static str, budget: Duration, recorder: &Arc<Recorder>) -> Operation {
    Operation::begin(name, budget).observed_by(recorder.clone())
}

/// A request whose caller gave it `budget`.
pub(crate) fn request(name: &'static str, budget: Duration, recorder: &Arc<Recorder>) -> Driver {
    request_under(name, budget, recorder, None)
}

pub(crate) fn request_under(
    name: &'static str,
    budget: Duration,
    recorder: &Arc<Recorder>,
    shutdown: Option<&Shutdown>,
) -> Driver {
    let now = clock::now();
    let budget = Budget::begin(BoundBy::Caller, budget, now);
    Operation::arrive(Name::from(name), now, budget, None, shutdown, Some(recorder.clone()))
}

/// Work that never ends by itself, and the news that it was dropped.
pub(crate) fn endless() -> (impl Future<Output = ()> + Send + 'static, oneshot::Receiver<()>) {
    let (alive, dropped) = oneshot::channel::<()>();
    let work = async move {
        let _alive = alive; // dropped with the work, which closes the channel
        std::future::pending::<()>().await;
    };
    (work, dropped)
}

/// Whether the work of [`endless`] was dropped by now.
pub(crate) fn was_dropped(dropped: &mut oneshot::Receiver<()>) -> bool {
    matches!(dropped.try_recv(), Err(oneshot::error::TryRecvError::Closed))
}

pub(crate) fn cause(operation: &Operation) -> Option<Cause> {
    operation.ending().map(|ending| ending.cause)
}

/// Lets tasks that are ready run.
pub(crate) async fn settle() {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
}
