//! One tier: its slots, its work, and whom it calls after that. Decides when a slot is held: for the local work alone, not
//! while the tier waits for the one below.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Semaphore;

use crate::caller::Caller;
use crate::meter::Meter;
use crate::tag::Tag;

/// What a slot does for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Model {
    /// Waits for a timer, as for a database: the processor is nearly idle.
    Sleep,
    /// Uses the processor, on a thread of its own that shares a core with the one that reads and refuses requests.
    Spin,
}

#[derive(Debug)]
pub(crate) struct Tier {
    pub(crate) number: usize,
    pub(crate) meter: Meter,
    /// Who calls the next tier, where systems do not bring a client of their own.
    pub(crate) next: Option<Caller>,
    slots: Arc<Semaphore>,
    model: Model,
}

impl Tier {
    pub(crate) fn new(number: usize, slots: usize, model: Model, meter: Meter, next: Option<Caller>) -> Arc<Self> {
        Arc::new(Self { number, meter, next, slots: Arc::new(Semaphore::new(slots)), model })
    }

    /// Waits for a slot, first come first served, and works.
    pub(crate) async fn work(&self, tag: Tag) {
        let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else { return }; // never closed
        let working = self.meter.begin(tag, self.number);
        match self.model {
            Model::Sleep => {
                tokio::time::sleep(working.takes()).await;
                working.end();
            }
            Model::Spin => {
                let work = move || {
                    spin(working.takes());
                    working.end();
                    drop(slot); // not before, even if the caller has left
                };
                let _ = tokio::task::spawn_blocking(work).await;
            }
        }
    }
}

/// For so much time of the processor, not of the clock: else what refusals take would cost the work nothing.
fn spin(span: Duration) {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let began = used();
    while used().saturating_sub(began) < span {
        for _ in 0..200 {
            std::hint::spin_loop();
        }
    }
}
