//! A budget, spent from the outside in: what each call gets, what it may take, and what is left.
//!
//! A call that hands on what is left takes what it takes and ends with its caller; of it only what was measured counts. One
//! that does not may take all of its own limit, whatever its caller has.

use std::collections::HashSet;
use std::time::Duration;

use super::{Graph, Hop};
use crate::graph::paths::DEEPEST;
use crate::inventory::{ComponentId, Edge, EdgeId, Entry, On, Order, Propagates, To};
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
        let mut steps = Vec::new();
        let Some(start) = self.who_answers(entry) else { return steps };
        let given = entry.budget.saturating_sub(entry.reserve);
        self.spend(start, given, 0, &entry.place, &mut HashSet::new(), &mut steps);
        steps
    }

    /// Whom an entry calls.
    pub(crate) fn who_answers(&self, entry: &Entry) -> Option<ComponentId> {
        let nobody = ComponentId(usize::MAX);
        let call = Edge::new(nobody, To::Name(entry.to.clone()), "", entry.place.clone());
        let found = super::names::Names::of(self.inventory).who(&entry.to, &call, self.inventory);
        found.first().map(|id| self.stands_for(*id))
    }

    fn spend(
        &self,
        id: ComponentId,
        given: Duration,
        depth: usize,
        place: &Place,
        seen: &mut HashSet<ComponentId>,
        steps: &mut Vec<Step>,
    ) {
        let Some(component) = self.component(id) else { return };
        if depth > DEEPEST || !seen.insert(id) {
            return;
        }
        let mut told = HashSet::new();
        let calls: Vec<&Hop<'_>> = self.calls_of(id).filter(|hop| told.insert(hop.edge)).collect();
        let needs = |hop: &&Hop<'_>| self.needs(hop).unwrap_or_default();
        let together = match component.order {
            Some(Order::Serial) => calls.iter().map(needs).fold(Duration::ZERO, Duration::saturating_add),
            Some(Order::Parallel) | None => calls.iter().map(needs).max().unwrap_or_default(),
        };
        let longest = calls.iter().max_by_key(|hop| needs(hop)).map(|hop| {
            let place = hop.limits.decides().map_or(&hop.call.place, |setting| &setting.place);
            (self.callee(hop), needs(hop), place.clone())
        });
        let own = self.measured(&On::Component(id)).unwrap_or_default();
        let reserve = component.reserve;
        let (name, order) = (component.name.clone(), component.order);
        steps.push(Step { depth, name, given, reserve, calls: together, own, order, place: place.clone(), longest });
        let left = given.saturating_sub(reserve).saturating_sub(own);
        for hop in calls {
            let Some(to) = hop.to else { continue };
            let limit = hop.limits.attempt().time();
            let gets = match (hop.call.propagates, limit) {
                (Propagates::Deadline, Some(limit)) => limit.min(left),
                (Propagates::Deadline, None) => left,
                (_, Some(limit)) => limit,
                (_, None) => left,
            };
            self.spend(to, gets, depth + 1, &hop.call.place, seen, steps);
        }
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
