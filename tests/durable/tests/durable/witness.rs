//! Who saw what: the end of each delivery, and each effect with the moment when it began.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::clock;
use oneclock::events::{Delivered, Delivery, Event, Observer};
use oneclock_core::wire::Wall;

/// By how much clocks are assumed to be wrong in these tests, where all processes have one.
pub(crate) const OURS: Duration = Duration::from_millis(100);

/// Keeps what became of each delivery, and which effects began.
#[derive(Default)]
pub(crate) struct Witness {
    ends: Mutex<BTreeMap<String, Vec<Delivery>>>,
    effects: Mutex<BTreeMap<String, Vec<Wall>>>,
    owners: Mutex<BTreeMap<String, String>>,
}

impl Observer for Witness {
    fn on(&self, event: &Event<'_>) {
        if let Event::Delivered(delivered) = event {
            self.ended(delivered);
        }
    }
}

impl Witness {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    fn ended(&self, delivered: &Delivered) {
        self.ends.lock().unwrap().entry(delivered.id.to_string()).or_default().push(delivered.end);
        if let Some(owner) = &delivered.owner {
            self.owners.lock().unwrap().insert(delivered.id.to_string(), owner.to_string());
        }
    }

    /// An effect begins.
    pub(crate) fn effect(&self, id: &str) {
        self.effects.lock().unwrap().entry(id.to_owned()).or_default().push(clock::wall());
    }

    /// When effects of this message began.
    pub(crate) fn effects_of(&self, id: &str) -> Vec<Wall> {
        self.effects.lock().unwrap().get(id).cloned().unwrap_or_default()
    }

    /// What became of its deliveries, in their order.
    pub(crate) fn ends_of(&self, id: &str) -> Vec<Delivery> {
        self.ends.lock().unwrap().get(id).cloned().unwrap_or_default()
    }

    /// Who was told that it is late.
    pub(crate) fn owner_of(&self, id: &str) -> Option<String> {
        self.owners.lock().unwrap().get(id).cloned()
    }

    /// How many messages are through.
    pub(crate) fn through(&self) -> usize {
        self.ends.lock().unwrap().values().filter(|ends| ends.iter().any(|end| end.is_final())).count()
    }

    /// How many deliveries ended so, by their words.
    pub(crate) fn tally(&self) -> BTreeMap<String, usize> {
        let mut tally = BTreeMap::new();
        for end in self.ends.lock().unwrap().values().flatten() {
            *tally.entry(end.to_string()).or_default() += 1;
        }
        tally
    }

    /// Waits until `how_many` messages are through, at most `within`.
    pub(crate) async fn wait_until_through(&self, how_many: usize, within: Duration) {
        let waited = tokio::time::timeout(within, async {
            while self.through() < how_many {
                tokio::time::sleep(Duration::from_millis(20)).await; // the event is in another task's hands: looked for
            }
        });
        assert!(waited.await.is_ok(), "{} of {how_many} are through: {:?}", self.through(), self.tally());
    }
}
