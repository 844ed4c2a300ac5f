//! A look at every listener that there is now, and what the latest found of each.
//!
//! Decides that one listener which does not refuse is enough to hold the proxy back, and that one which hangs keeps nobody from
//! looking at the others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use oneclock::clock;
use oneclock_core::Tick;
use oneclock_core::time::Legible;
use oneclock_telemetry::readiness::Failure;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::probe::{NotSeen, Probe};
use super::show::millis;

/// The most that a look at one listener may take.
const BOUND: Duration = Duration::from_secs(2);

/// Who looks. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Looks(Arc<ArcSwap<Vec<Arc<Look>>>>);

/// One listener, and what was found of it.
#[derive(Debug)]
struct Look {
    probe: Probe,
    found: Mutex<Option<Found>>,
}

/// What the latest look found.
#[derive(Clone, Debug)]
struct Found {
    shown: Result<String, NotSeen>,
    at: Tick,
    took: Duration,
}

impl Looks {
    pub(super) fn at(probes: Vec<Probe>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(looks(probes))))
    }

    /// Looks at these from now on.
    pub(super) fn at_others(&self, probes: Vec<Probe>) {
        self.0.store(Arc::new(looks(probes)));
    }

    /// Looks once at each.
    pub(super) async fn look(&self) -> Result<String, Failure> {
        let looks = self.0.load_full();
        let mut looking = JoinSet::new();
        for look in looks.iter().map(Arc::clone) {
            looking.spawn(async move { look.once().await });
        }
        looking.join_all().await;
        let shown = looks.iter().filter_map(|look| look.found()).map(|found| found.shown);
        let (mut seen, mut broken, mut unclear) = (Vec::new(), Vec::new(), Vec::new());
        for shown in shown {
            match shown {
                Ok(text) => seen.push(text),
                Err(NotSeen::Broken(why)) => broken.push(why),
                Err(NotSeen::Unclear(why)) => unclear.push(why),
            }
        }
        match (broken.is_empty(), unclear.is_empty()) {
            (false, _) => Err(Failure::broken_promise(broken.join("; "))),
            (true, false) => Err(Failure::unavailable(unclear.join("; "))),
            (true, true) => Ok(seen.join("; ")),
        }
    }

    /// Each listener with what was found of it.
    pub(super) fn to_json(&self, now: Tick) -> Vec<Value> {
        self.0.load().iter().map(|look| look.to_json(now)).collect()
    }
}

fn looks(probes: Vec<Probe>) -> Vec<Arc<Look>> {
    probes.into_iter().map(|probe| Arc::new(Look { probe, found: Mutex::default() })).collect()
}

impl Look {
    async fn once(&self) {
        let began = clock::now();
        let shown = tokio::time::timeout(BOUND, self.probe.run()).await;
        let late = |_| Err(NotSeen::Unclear(self.probe.about(&format!("no answer within {}", Legible(BOUND)))));
        let at = clock::now();
        let found = Found { shown: shown.unwrap_or_else(late), at, took: at.since(began) };
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }

    fn found(&self) -> Option<Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn to_json(&self, now: Tick) -> Value {
        let (name, address) = (self.probe.name().as_str(), self.probe.address());
        let Some(Found { shown, at, took }) = self.found() else {
            return json!({ "name": name, "address": address, "shown": "nothing yet" });
        };
        let (word, said) = match &shown {
            Ok(said) => ("kept", said),
            Err(NotSeen::Broken(why)) => ("broken", why),
            Err(NotSeen::Unclear(why)) => ("unclear", why),
        };
        let (age, took) = (millis(now.since(at)), millis(took));
        json!({ "name": name, "address": address, "shown": word, "said": said, "age_ms": age, "took_ms": took })
    }
}
