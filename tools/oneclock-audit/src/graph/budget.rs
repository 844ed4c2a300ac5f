//! A budget, spent from the outside in: what each call gets, what it may take, and what is left.
//!
//! A call that hands on what is left takes what it takes and ends with its caller; of it only what was measured counts. One
//! that does not may take all of its own limit, whatever its caller has, and begins when those before it have ended: one
//! that hands on, and that nobody measured, may have used all that was left.
//!
//! Who is reached by several ways has the least that one of them gives.

use std::collections::HashMap;
use std::time::Duration;

use super::{Graph, Hop};
use crate::catalogue::Kind;
use crate::graph::paths::{DEEPEST, MOST};
use crate::inventory::{ComponentId, Edge, EdgeId, Entry, On, Order, Propagates, Setting, Stated, To};
use crate::source::Place;

/// One step of a budget.
#[derive(Clone, Debug)]
pub struct Step {
    /// How many calls inside of the entry.
    pub depth: usize,
    /// Who spends.
    pub name: String,
    /// What it may spend.
    pub given: Duration,
    /// What it keeps back.
    pub reserve: Duration,
    /// What its calls may take, together.
    pub calls: Duration,
    /// What somebody measured of its own work.
    pub own: Duration,
    /// Its calls one after the other, or at once; `None` where nobody says: then the longest counts.
    pub order: Option<Order>,
    /// Where that can be changed.
    pub place: Place,
    /// Its longest call, for a sentence.
    pub longest: Option<(String, Duration, Place)>,
    /// Whether somebody wrote every number that decides, here and on the way here, and all names are joined without doubt.
    pub certain: bool,
}

/// What a way gives to a component.
struct Given<'p> {
    time: Duration,
    certain: bool,
    /// Where that can be changed.
    place: &'p Place,
}

/// What was spent so far.
#[derive(Default)]
struct Spent {
    steps: Vec<Step>,
    /// The step of each component.
    of: HashMap<ComponentId, usize>,
    /// From the entry to whoever spends now.
    way: Vec<ComponentId>,
    visits: usize,
}

impl Step {
    /// What is left when all goes badly; negative where it is too much.
    #[must_use]
    pub fn rest_millis(&self) -> i128 {
        let millis = |time: Duration| i128::try_from(time.as_millis()).unwrap_or(i128::MAX / 8);
        millis(self.given) - millis(self.reserve) - millis(self.own) - millis(self.calls)
    }
}

impl Graph<'_> {
    /// An entry's budget, step by step, each one once.
    #[must_use]
    pub fn budget(&self, entry: &Entry) -> Vec<Step> {
        let mut spent = Spent::default();
        let (Some(start), others) = self.all_who_answer(entry) else { return spent.steps };
        let time = entry.budget.saturating_sub(entry.reserve);
        self.spend(start, &Given { time, certain: others == 0, place: &entry.place }, &mut spent);
        spent.steps
    }

    /// Whom an entry calls.
    pub(crate) fn who_answers(&self, entry: &Entry) -> Option<ComponentId> {
        self.all_who_answer(entry).0
    }

    /// The same, and how many others answer equally well.
    fn all_who_answer(&self, entry: &Entry) -> (Option<ComponentId>, usize) {
        let nobody = ComponentId(usize::MAX);
        let call = Edge::new(nobody, To::Name(entry.to.clone()), "", entry.place.clone());
        let found = super::names::Names::of(self.inventory).who(&entry.to, &call, self.inventory).unwrap_or_default();
        let mut found: Vec<ComponentId> = found.into_iter().map(|id| self.stands_for(id)).collect();
        found.sort_unstable();
        found.dedup();
        (found.first().copied(), found.len().saturating_sub(1))
    }

    fn spend(&self, id: ComponentId, given: &Given<'_>, spent: &mut Spent) {
        let Some(component) = self.component(id) else { return };
        let before = spent.of.get(&id).copied();
        let had = before.and_then(|at| spent.steps.get(at)).map(|step| step.given);
        let depth = spent.way.len();
        if depth > DEEPEST
            || spent.visits >= MOST
            || spent.way.contains(&id)
            || had.is_some_and(|had| had <= given.time)
        {
            return;
        }
        spent.visits += 1;
        let mut calls: Vec<&Hop<'_>> = self.calls_of(id).collect();
        let own = self.measured(&On::Component(id)).unwrap_or_default();
        let left = given.time.saturating_sub(component.reserve).saturating_sub(own);
        let certain = given.certain && calls.iter().all(|hop| self.is_certain(hop));
        calls.dedup_by_key(|hop| hop.edge);
        let needs = |hop: &&Hop<'_>| self.needs(hop).unwrap_or_default();
        let together = match component.order {
            Some(Order::Serial) => calls.iter().fold(Duration::ZERO, |begins, hop| {
                let takes = self.needs(hop).unwrap_or_else(|| match hop.call.propagates {
                    Propagates::Deadline => shorter(hop.limits.attempt().time(), left.saturating_sub(begins)),
                    _ => Duration::ZERO,
                });
                begins.saturating_add(takes)
            }),
            Some(Order::Parallel) | None => calls.iter().map(needs).max().unwrap_or_default(),
        };
        let longest = calls.iter().max_by_key(|hop| needs(hop)).map(|hop| {
            let place = hop.limits.decides().map_or(&hop.call.place, |setting| &setting.place);
            (self.callee(hop), needs(hop), place.clone())
        });
        let step = Step {
            depth: before.and_then(|at| spent.steps.get(at)).map_or(depth, |step| step.depth),
            name: component.name.clone(),
            given: given.time,
            reserve: component.reserve,
            calls: together,
            own,
            order: component.order,
            place: given.place.clone(),
            longest,
            certain,
        };
        match before.and_then(|at| spent.steps.get_mut(at)) {
            Some(known) => *known = step,
            None => {
                spent.of.insert(id, spent.steps.len());
                spent.steps.push(step);
            }
        }
        spent.way.push(id);
        for hop in self.calls_of(id) {
            let Some(to) = hop.to else { continue };
            let limit = hop.limits.attempt().time();
            let time = match hop.call.propagates {
                Propagates::Deadline => shorter(limit, left),
                _ => limit.unwrap_or(left),
            };
            let certain = given.certain && self.is_certain(hop);
            self.spend(to, &Given { time, certain, place: &hop.call.place }, spent);
        }
        spent.way.pop();
    }

    /// Whether somebody wrote all that says how long a call may take, and whom it calls.
    fn is_certain(&self, hop: &Hop<'_>) -> bool {
        let written = |setting: &Setting| setting.stated != Stated::Default;
        let decides = hop.limits.decides();
        let again = hop.limits.tries() != Some(1) && decides.is_none_or(|setting| setting.known.kind != Kind::Total);
        let repeats = [Kind::Attempts, Kind::Backoff, Kind::Retrying].map(|kind| hop.limits.get(kind));
        hop.others == 0
            && decides.into_iter().chain(hop.limits.decides_attempt()).all(written)
            && (!again || repeats.into_iter().flatten().all(written))
    }

    /// What a call may take of its caller's budget.
    fn needs(&self, hop: &Hop<'_>) -> Option<Duration> {
        if hop.call.propagates == Propagates::Deadline {
            return self.measured_call(hop);
        }
        hop.limits.patience().time().or_else(|| self.measured_call(hop))
    }

    /// The 99th percentile of a call, or of whom it calls.
    #[must_use]
    pub fn measured_call(&self, hop: &Hop<'_>) -> Option<Duration> {
        self.measured(&On::Edge(hop.edge)).or_else(|| hop.to.and_then(|to| self.measured(&On::Component(to))))
    }

    /// The 99th percentile of something; the greatest that somebody said.
    fn measured(&self, on: &On) -> Option<Duration> {
        let means = |about: &On| match (about, on) {
            (On::Component(a), On::Component(b)) => self.stands_for(*a) == *b,
            (a, b) => a == b,
        };
        self.inventory.latencies.iter().filter(|latency| means(&latency.on)).map(|latency| latency.p99).max()
    }

    /// Where the 99th percentile of a call is said.
    #[must_use]
    pub fn measured_at(&self, edge: EdgeId, to: Option<ComponentId>) -> Option<&Place> {
        let about = |latency: &&crate::inventory::Latency| match &latency.on {
            On::Edge(id) => *id == edge,
            On::Component(id) => Some(self.stands_for(*id)) == to,
            On::CallsTo(_) => false,
        };
        self.inventory.latencies.iter().find(about).map(|latency| &latency.place)
    }
}

fn shorter(limit: Option<Duration>, left: Duration) -> Duration {
    limit.map_or(left, |limit| limit.min(left))
}
