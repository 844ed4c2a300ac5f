//! The core's own admission in the place of a control: nothing is decided here.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use oneclock_core::admission::{Admission, Arrival, Asking, Class, Due, Refusal, Settings, Settled};
use oneclock_core::estimate::Sample;
use oneclock_core::queue::Key;
use oneclock_core::{Deadline, Tick};

use crate::control::{Asked, Control, How, Id, Next, Verdict};

pub(crate) struct Ours {
    admission: Admission<Id>,
    classes: Vec<Arc<Class>>,
    waiting: HashMap<Id, Key>,
    /// Of what has been asked and not answered.
    class: HashMap<Id, usize>,
    told: BTreeMap<&'static str, u64>,
}

// === Ours ===

impl Ours {
    /// As it comes: nothing is tuned but that the number of places is known.
    pub(crate) fn as_it_comes(slots: usize) -> Box<dyn Control> {
        Self::with(Settings::fixed(slots as u32))
    }

    pub(crate) fn at_quantile(slots: usize, quantile: f64) -> Box<dyn Control> {
        Self::with(Settings::fixed(slots as u32).quantile(quantile))
    }

    fn with(settings: Settings) -> Box<dyn Control> {
        let admission = Admission::new(settings);
        let classes = (0..4).map(|_| admission.class()).collect();
        let (waiting, class) = (HashMap::new(), HashMap::new());
        Box::new(Self { admission, classes, waiting, class, told: BTreeMap::new() })
    }

    fn refused(&mut self, id: Id, refusal: &Refusal) {
        self.waiting.remove(&id);
        self.class.remove(&id);
        *self.told.entry(refusal.why.as_str()).or_default() += 1;
    }
}

impl Control for Ours {
    fn arrive(&mut self, asked: &Asked, now: Tick, next: &mut Vec<Next>) -> Verdict {
        let deadline = Deadline::at(asked.deadline.unwrap_or(Tick::MAX));
        let asking = Asking::new(&self.classes[asked.class], deadline).importance(asked.importance).peer(asked.peer);
        self.class.insert(asked.id, asked.class);
        match self.admission.arrive(&asking, asked.id, now) {
            Arrival::Runs { .. } => Verdict::Run,
            Arrival::Refused(id, refusal) => {
                self.refused(id, &refusal);
                Verdict::Refuse
            }
            Arrival::Waits { key, start_by, evicted } => {
                self.waiting.insert(asked.id, key);
                if let Some((id, refusal)) = evicted {
                    self.refused(id, &refusal);
                    next.push(Next::Drop(id));
                }
                Verdict::Wait(Some(start_by))
            }
        }
    }

    fn freed(&mut self, _id: Id, held: Duration, _how: How, now: Tick, next: &mut Vec<Next>) {
        for settled in self.admission.vacate(held, now) {
            next.push(match settled {
                Settled::Runs(id) => {
                    self.waiting.remove(&id);
                    Next::Start(id)
                }
                Settled::Refused(id, refusal) => {
                    self.refused(id, &refusal);
                    Next::Drop(id)
                }
            });
        }
    }

    fn answered(&mut self, id: Id, took: Duration, how: How, now: Tick) {
        let Some(class) = self.class.remove(&id) else { return };
        // What failed further down says nothing of how long such work takes.
        let sample = match how {
            How::Served => Sample::Whole,
            How::Cut => Sample::CutOff,
            How::Failed => return,
        };
        self.classes[class].took(took, sample, now);
    }

    fn left(&mut self, id: Id, _now: Tick, _next: &mut Vec<Next>) {
        if let Some(key) = self.waiting.remove(&id) {
            self.class.remove(&id);
            assert_eq!(self.admission.left(key), Some(id), "it waited");
            *self.told.entry("left").or_default() += 1;
        }
    }

    fn look(&mut self, id: Id, now: Tick, next: &mut Vec<Next>) -> Option<Tick> {
        let key = *self.waiting.get(&id)?;
        match self.admission.due(key, now) {
            Due::Later(again) => Some(again),
            Due::Gone => None,
            Due::Refused(id, refusal) => {
                self.refused(id, &refusal);
                next.push(Next::Drop(id));
                None
            }
        }
    }

    fn told(&self) -> String {
        let told: Vec<String> = self.told.iter().map(|(why, many)| format!("{why} {many}")).collect();
        let needs: Vec<String> =
            self.classes.iter().map(|class| format!("{:.1?}", class.estimate().needed())).collect();
        format!("{} (needed {})", told.join(", "), needs.join(" "))
    }
}
