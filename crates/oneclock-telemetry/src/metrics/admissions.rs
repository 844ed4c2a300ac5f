//! What stands before scarce places, as gauges: read at the scrape, so that a request pays nothing for them.
//!
//! Decides what is a series: every admission that was registered, by its name, and of each its sorts of work once their estimate
//! says something.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{Gauge, Key, Label};
use oneclock::Admission;
use oneclock_core::Name;
use oneclock_core::admission::Mode;

use super::family::Handle;
use super::sink::Sink;
use crate::names::{self, Metric, NONE};

/// Those that are told of, by name.
#[derive(Default)]
pub(super) struct Admissions(Mutex<BTreeMap<Name, Watched>>);

/// One of them, and its series.
struct Watched {
    admission: Admission,
    places: Gauge,
    taken: Gauge,
    waiting: Gauge,
    standing: Gauge,
    held: Gauge,
    modes: [(Mode, Gauge); 3],
    classes: BTreeMap<Option<Name>, OfClass>, // up to 65: the admission has no more
}

/// A sort of work.
struct OfClass {
    needed: Gauge,
    cut_off: Gauge,
}

// === Admissions ===

impl Admissions {
    pub(super) fn watch(&self, sink: &Sink, admission: &Admission) {
        let watched = Watched::new(sink, admission);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(admission.name().clone(), watched);
    }

    /// No longer tells of those that are not among `left`: their series stay, at 0.
    pub(super) fn keep(&self, left: &dyn Fn(&Name) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, watched| {
            let stays = left(name);
            if !stays {
                watched.clear();
            }
            stays
        });
    }

    pub(super) fn refresh(&self, sink: &Sink) {
        for watched in self.0.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            watched.refresh(sink);
        }
    }
}

// === Watched ===

impl Watched {
    fn new(sink: &Sink, admission: &Admission) -> Self {
        let gauge = |metric| gauge(sink, metric, &[admission.name().as_str()]);
        let modes = [Mode::Observe, Mode::Shadow, Mode::Enforce]
            .map(|mode| (mode, self::gauge(sink, &names::ADMISSION_MODE, &[admission.name().as_str(), mode.as_str()])));
        Self {
            admission: admission.clone(),
            places: gauge(&names::PLACES),
            taken: gauge(&names::PLACES_TAKEN),
            waiting: gauge(&names::WAITING),
            standing: gauge(&names::STANDING),
            held: gauge(&names::HELD),
            modes,
            classes: BTreeMap::new(),
        }
    }

    fn clear(&self) {
        let Self { admission: _, places, taken, waiting, standing, held, modes, classes } = self;
        let of_classes = classes.values().flat_map(|OfClass { needed, cut_off }| [needed, cut_off]);
        let all = [places, taken, waiting, standing, held].into_iter().chain(modes.iter().map(|(_, gauge)| gauge));
        all.chain(of_classes).for_each(|gauge| gauge.set(0.0));
    }

    fn refresh(&mut self, sink: &Sink) {
        let admission = &self.admission;
        self.places.set(admission.places());
        self.taken.set(admission.busy());
        self.waiting.set(admission.waiting());
        self.standing.set(truth(admission.is_standing()));
        self.held.set(admission.held().as_secs_f64());
        let mode = admission.mode();
        for (each, gauge) in &self.modes {
            gauge.set(truth(*each == mode));
        }
        for (name, needed, cut_off) in admission.estimates() {
            let class = match self.classes.get(&name) {
                Some(class) => class,
                None if needed == Duration::ZERO => continue, // nothing is known
                None => {
                    let labels = [admission.name().as_str(), name.as_ref().map_or(NONE, Name::as_str)];
                    let [needed, cut_off] = [&names::NEEDED, &names::CUT_OFF].map(|of| gauge(sink, of, &labels));
                    self.classes.entry(name).or_insert(OfClass { needed, cut_off })
                }
            };
            class.needed.set(needed.as_secs_f64());
            class.cut_off.set(cut_off);
        }
    }
}

pub(super) fn truth(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

pub(super) fn gauge(sink: &Sink, metric: &Metric, values: &[&str]) -> Gauge {
    let labels = metric.labels.iter().zip(values).map(|(label, value)| Label::new(*label, (*value).to_owned()));
    let key = Key::from_parts(metric.name, labels.collect::<Vec<_>>());
    sink.with(|recorder| Gauge::register(recorder, &key))
}
