//! The health of what is called, as gauges: read at the scrape, so that a call pays nothing for them.
//!
//! Decides what is a series: every health that was registered, by its destination's name.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use metrics::Gauge;
use oneclock::Health;
use oneclock_core::Name;

use super::admissions::{gauge, truth};
use super::sink::Sink;
use crate::names;

/// Those that are told of, by name.
#[derive(Default)]
pub(super) struct Healths(Mutex<BTreeMap<Name, Watched>>);

/// One of them, and its series.
struct Watched {
    health: Health,
    throttled: Gauge,
    open: Gauge,
}

impl Healths {
    pub(super) fn watch(&self, sink: &Sink, health: &Health) {
        let [throttled, open] =
            [&names::THROTTLED, &names::BREAKER_OPEN].map(|metric| gauge(sink, metric, &[health.name().as_str()]));
        let watched = Watched { health: health.clone(), throttled, open };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(health.name().clone(), watched);
    }

    /// No longer tells of those that are not among `left`: their series stay, at 0.
    pub(super) fn keep(&self, left: &dyn Fn(&Name) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, Watched { health: _, throttled, open }| {
            let stays = left(name);
            if !stays {
                throttled.set(0.0);
                open.set(0.0);
            }
            stays
        });
    }

    pub(super) fn refresh(&self) {
        for Watched { health, throttled, open } in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            throttled.set(health.throttled());
            open.set(truth(health.is_broken()));
        }
    }
}
