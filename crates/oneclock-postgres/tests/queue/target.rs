//! Where a relay moves jobs to in these tests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock_core::wire::Wall;
use oneclock_core::{Name, Outcome};
use oneclock_postgres::{Relay, Relayed};
use oneclock_queue::{Broker, BrokerError, Lane, MemoryBroker, MemoryDelivery, Message};
use tokio::sync::oneshot;

use crate::support::{BOUND, until};

/// A broker that remembers what it was given, in its order, and does as it is told.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) inner: MemoryBroker,
    given: Arc<Mutex<Vec<String>>>,
    at_once: Arc<Mutex<HashMap<String, usize>>>,
    pub(crate) twice_at_once: Arc<AtomicUsize>,
    /// How many of the next it does not take, and what is known then.
    pub(crate) refuses: Arc<Mutex<(usize, Option<Outcome>)>>,
    /// What it never takes, and what is known then.
    pub(crate) never_takes: Arc<Mutex<HashMap<String, Outcome>>>,
    /// Whether it says a word to whoever asks for its clock.
    pub(crate) answers: Arc<AtomicBool>,
    /// The most that were under way together.
    pub(crate) most: Arc<AtomicUsize>,
    takes: Duration,
}

struct Publishing<'a>(&'a Target, String);

impl Target {
    pub(crate) fn new(takes: Duration) -> Self {
        Self {
            inner: MemoryBroker::new("jobs"),
            given: Arc::default(),
            at_once: Arc::default(),
            twice_at_once: Arc::default(),
            refuses: Arc::default(),
            never_takes: Arc::default(),
            answers: Arc::new(AtomicBool::new(true)),
            most: Arc::default(),
            takes,
        }
    }

    pub(crate) fn given(&self) -> Vec<String> {
        self.given.lock().unwrap().clone()
    }

    pub(crate) async fn until_given(&self, many: usize) {
        until("what was published", async || self.given().len() >= many).await;
    }
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        *self.0.at_once.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

impl Broker for Target {
    type Delivery = MemoryDelivery;

    fn name(&self) -> &Name {
        self.inner.name()
    }

    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        let id = message.id.to_string();
        {
            let mut at_once = self.at_once.lock().unwrap();
            let many = at_once.entry(id.clone()).or_default();
            *many += 1;
            self.twice_at_once.fetch_add(usize::from(*many > 1), Ordering::SeqCst);
            self.most.fetch_max(at_once.values().sum(), Ordering::SeqCst);
        }
        let _publishing = Publishing(self, id.clone());
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        let refuses = {
            let mut refuses = self.refuses.lock().unwrap();
            let outcome = refuses.1.filter(|_| refuses.0 > 0);
            refuses.0 = refuses.0.saturating_sub(1);
            outcome
        };
        let refuses = refuses.or(self.never_takes.lock().unwrap().get(&id).copied());
        if let Some(outcome) = refuses {
            let queue = self.name().clone();
            return Err(BrokerError { queue, what: "publish", outcome, source: "told so".into() });
        }
        self.given.lock().unwrap().push(id);
        self.inner.publish(message).await
    }

    async fn receive(&self, lane: Lane, at_most: usize) -> Result<Vec<MemoryDelivery>, BrokerError> {
        self.inner.receive(lane, at_most).await
    }

    async fn clock(&self) -> Result<Option<Wall>, BrokerError> {
        if self.answers.load(Ordering::SeqCst) { self.inner.clock().await } else { std::future::pending().await }
    }
}

pub(crate) fn ids(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("id-{n}")).collect()
}

/// Runs `relay` until `done`.
pub(crate) async fn runs(relay: &Relay<Target>, done: impl Future<Output = ()>) -> Relayed {
    let (stop, stopped) = oneshot::channel::<()>();
    // On the heap, since these nest.
    let stopping = Box::pin(async {
        done.await;
        let _ = stop.send(());
    });
    let running = Box::pin(relay.run(async {
        let _ = stopped.await;
    }));
    let both = async { tokio::join!(running, stopping) };
    let (relayed, ()) = tokio::time::timeout(BOUND, both).await.expect("moved");
    relayed.unwrap()
}
