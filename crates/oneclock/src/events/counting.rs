//! An observer that counts by kind, for tests and for small programs.
//!
//! Decides what a kind is called.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::{Event, Observer, TriedAgain};

/// Counts events, for tests and for small programs.
///
/// ```
/// # use oneclock::{Operation, events::Counting}; use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let counting = Arc::new(Counting::default());
/// let job = Operation::begin("reconcile", Duration::from_secs(1)).observed_by(counting.clone());
/// let late = job.run(tokio::time::sleep(Duration::from_secs(5))).await;
/// drop(job);
/// assert!(late.is_err());
/// assert_eq!(counting.count("ended deadline"), 1);
/// # }
/// ```
#[derive(Default)]
pub struct Counting {
    counts: Mutex<BTreeMap<String, u64>>,
}

// === Counting ===

impl Counting {
    /// How often events of this kind came: `arrived`, `refused <reason>`, `ended ok`, `ended <cause>`,
    /// `called <outcome>`, `not called <reason>`, `keyed <what>`, `delivered <end>`, `retried`, `hedged`, `gave up <why>`, `late`, `ran on`,
    /// `detached`, `panicked`.
    pub fn count(&self, kind: &str) -> u64 {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).get(kind).copied().unwrap_or(0)
    }

    /// The sum over all kinds that begin with `prefix`.
    pub fn sum(&self, prefix: &str) -> u64 {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().filter(|(kind, _)| kind.starts_with(prefix)).map(|(_, count)| count).sum()
    }
}

impl Observer for Counting {
    fn on(&self, event: &Event<'_>) {
        let kind = match event {
            Event::Arrived(_) => "arrived".to_owned(),
            Event::Refused(refusal) => format!("refused {}", refusal.reason),
            Event::WouldRefuse { refusal, .. } => format!("would refuse {}", refusal.reason()),
            Event::Ended(ended) => match ended.ending {
                Some(ending) => format!("ended {}", ending.cause),
                None => "ended ok".to_owned(),
            },
            Event::Called(called) => format!("called {}", called.outcome.as_str()),
            Event::NotCalled { reason, .. } => format!("not called {reason}"),
            Event::TriedAgain { because: TriedAgain::Retry, .. } => "retried".to_owned(),
            Event::TriedAgain { because: TriedAgain::Hedge, .. } => "hedged".to_owned(),
            Event::GaveUp { why, .. } => format!("gave up {}", why.as_str()),
            Event::Late { .. } => "late".to_owned(),
            Event::RanOn { .. } => "ran on".to_owned(),
            Event::Detached { .. } => "detached".to_owned(),
            Event::Keyed { what, .. } => what.to_string(),
            Event::Delivered(delivered) => format!("delivered {}", delivered.end),
            Event::Breaker { change, .. } => format!("breaker {}", change.as_str()),
            Event::Panicked { .. } => "panicked".to_owned(),
        };
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
    }
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.counts.lock().unwrap_or_else(PoisonError::into_inner).iter()).finish()
    }
}
