//! A consumer whose handler is the test's, and what it told.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::Shutdown;
use oneclock::events::{Delivered, Delivery, Event, Observer};
use oneclock_queue::{Consumer, ConsumerBuilder, Job, JobError, MemoryBroker, Uncertainty};

/// Keeps what became of each delivery.
#[derive(Default)]
pub(super) struct Ends(Mutex<Vec<Delivered>>);

impl Observer for Ends {
    fn on(&self, event: &Event<'_>) {
        if let Event::Delivered(delivered) = event {
            self.0.lock().unwrap().push((*delivered).clone());
        }
    }
}

impl Ends {
    pub(super) fn all(&self) -> Vec<Delivered> {
        self.0.lock().unwrap().clone()
    }

    pub(super) fn of(&self, body_id: &str) -> Vec<Delivery> {
        self.all().iter().filter(|delivered| &*delivered.id == body_id).map(|delivered| delivered.end).collect()
    }

    pub(super) fn words(&self) -> Vec<String> {
        self.all().iter().map(|delivered| delivered.end.to_string()).collect()
    }
}

pub(super) const HALF: Duration = Duration::from_millis(500);

pub(super) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Runs `handler` over the queue until `until` is true of what was told, at most ten minutes of virtual time.
pub(super) async fn consume<H, F>(
    broker: &MemoryBroker,
    settings: impl FnOnce(ConsumerBuilder<MemoryBroker>) -> ConsumerBuilder<MemoryBroker>,
    handler: H,
    until: impl Fn(&Ends) -> bool,
) -> Arc<Ends>
where
    H: Fn(Job) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), JobError>> + Send + 'static,
{
    let (ends, shutdown) = (Arc::new(Ends::default()), Shutdown::new());
    let builder = Consumer::builder(broker.clone()).uncertainty(Uncertainty::assumed(HALF)).observed_by(ends.clone());
    let consumer = settings(builder).build(handler).unwrap();
    let enough = async {
        while !until(&ends) {
            tokio::time::sleep(ms(10)).await; // virtual time
        }
        shutdown.drain(secs(5)).await;
    };
    let both = async { tokio::join!(consumer.run(&shutdown), enough) };
    assert!(tokio::time::timeout(secs(600), both).await.is_ok(), "told so far: {:?}", ends.words());
    ends
}
