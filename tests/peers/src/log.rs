//! What reaches the backend: one entry for each request, with the fields that it brought and how its work ended.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use h2::Reason;
use http::HeaderMap;
use oneclock::clock;
use oneclock_core::Tick;
use tokio::sync::watch;
use tokio::time::timeout;

/// Names the call, so that a row finds its own.
pub(crate) const CASE: &str = "x-case";
/// How long a row waits for something to have happened.
const PATIENCE: Duration = Duration::from_secs(10);

/// How the work for one request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It came to its own end: nobody had told it that nobody waits.
    RanOn,
    /// Its stream was reset with this code.
    Reset(Reason),
    /// Its connection was closed.
    Closed,
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    fields: HeaderMap,
    pub(crate) at: Tick,
    /// How its work ended, and when.
    pub(crate) ended: Option<(Ending, Tick)>,
}

/// All that arrived at one backend.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    changes: watch::Sender<()>,
    cases: Arc<AtomicUsize>,
}

/// Writes down how the work for one request ended. A guard, because nothing after an await runs in work that is dropped.
#[derive(Debug)]
pub(crate) struct AtWork {
    log: Log,
    index: usize,
    ending: Ending,
}

// === Log ===

impl Log {
    pub(crate) fn new() -> Self {
        Self { arrivals: Arc::default(), changes: watch::Sender::new(()), cases: Arc::default() }
    }

    /// A name that no call has had before.
    pub(crate) fn next_case(&self) -> String {
        self.cases.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// A request with these fields is there.
    pub(crate) fn arrive(&self, fields: HeaderMap) -> AtWork {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.push(Arrival { fields, at: clock::now(), ended: None });
        let index = arrivals.len() - 1;
        drop(arrivals);
        self.changes.send_replace(());
        AtWork { log: self.clone(), index, ending: Ending::Closed }
    }

    /// What has arrived for this case.
    pub(crate) fn of(&self, case: &str) -> Vec<Arrival> {
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.iter().filter(|arrival| arrival.said(CASE) == Some(case)).cloned().collect()
    }

    /// What has arrived for this case, once all of its work is over.
    pub(crate) async fn over(&self, case: &str) -> Result<Vec<Arrival>, String> {
        self.once(case, |arrivals| arrivals.iter().all(|arrival| arrival.ended.is_some())).await
    }

    /// Returns once something has arrived for this case.
    pub(crate) async fn begun(&self, case: &str) -> Result<(), String> {
        self.once(case, |arrivals| !arrivals.is_empty()).await.map(drop)
    }

    async fn once(&self, case: &str, is: impl Fn(&[Arrival]) -> bool) -> Result<Vec<Arrival>, String> {
        let mut changes = self.changes.subscribe();
        let waiting = async {
            loop {
                let arrivals = self.of(case);
                if is(&arrivals) {
                    return arrivals;
                }
                let _ = changes.changed().await; // the sender is in self
            }
        };
        timeout(PATIENCE, waiting)
            .await
            .map_err(|_| format!("waited {PATIENCE:?} for the backend: {:?}", self.of(case)))
    }
}

impl Arrival {
    /// A field of the request.
    pub(crate) fn said(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(|value| value.to_str().ok())
    }

    /// Whether somebody ended its work before its own end.
    pub(crate) fn was_cut(&self) -> bool {
        self.ended.is_some_and(|(ending, _)| ending != Ending::RanOn)
    }
}

// === AtWork ===

impl AtWork {
    /// The work is over.
    pub(crate) fn ends(mut self, ending: Ending) {
        self.ending = ending;
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let ended = Some((self.ending, clock::now()));
        let mut arrivals = self.log.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(arrival) = arrivals.get_mut(self.index) {
            arrival.ended = ended;
        }
        drop(arrivals);
        self.log.changes.send_replace(());
    }
}
