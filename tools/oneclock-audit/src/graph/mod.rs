//! Who calls whom, with everything that bounds each call.
//!
//! Joins the names of an [`Inventory`]: what two files describe is one component (`merge`),
//! and every edge gets those that answer to its name, the nearest ones in the tree of files where several do (`names`). What bounds a call is gathered from the call, from its
//! caller and from what is said of everybody's calls to that name ([`limits`]); what repeating one would do, from the call
//! and from its methods of gRPC ([`rpc`]). Decides nothing about what fits.

pub(crate) mod budget;
pub mod limits;
mod merge;
mod names;
pub(crate) mod paths;
pub mod rpc;

use std::collections::{BTreeMap, HashMap};

use crate::catalogue::{Kind, Side};
use crate::inventory::{Component, ComponentId, Edge, EdgeId, Effects, Inventory, On, Setting, To};
use crate::source::Place;
use limits::Limits;
use rpc::{Rpc, Undeclared};

/// The joined graph.
pub struct Graph<'a> {
    /// What it was made of.
    pub inventory: &'a Inventory,
    /// Every call, joined; a call whose name nobody answers to leads nowhere.
    pub hops: Vec<Hop<'a>>,
    /// The hops that leave a component, by its number.
    out: HashMap<ComponentId, Vec<usize>>,
    /// The hops that arrive at a component.
    into: HashMap<ComponentId, Vec<usize>>,
    /// The settings of components.
    of_component: HashMap<ComponentId, Vec<&'a Setting>>,
    /// Who stands for whom.
    stands: Vec<ComponentId>,
    /// Those that several files describe, with what all of them say.
    whole: HashMap<ComponentId, Component>,
    /// Names that so many answer to that nobody is taken, with where the first call to each is.
    crowded: BTreeMap<String, (usize, Place)>,
}

/// One call from one component to another.
#[derive(Clone, Debug)]
pub struct Hop<'a> {
    /// Its number in [`Graph::hops`].
    pub number: usize,
    /// The call it is.
    pub edge: EdgeId,
    /// The same.
    pub call: &'a Edge,
    /// Who calls.
    pub from: ComponentId,
    /// Whom; `None` where nobody here answers to the name.
    pub to: Option<ComponentId>,
    /// How many others answer to the name equally well: with some, nothing about the callee is certain.
    pub others: usize,
    /// What bounds it.
    pub limits: Limits<'a>,
    /// What repeating it would do, by what is said of the call, or else by what `.proto` files say of its methods.
    pub effects: Effects,
    /// Of a call of gRPC a method of which nothing says that it may be repeated.
    pub undeclared: Option<Undeclared<'a>>,
}

// === Graph ===

impl<'a> Graph<'a> {
    /// Joins an inventory.
    #[must_use]
    pub fn of(inventory: &'a Inventory) -> Self {
        let names = names::Names::of(inventory);
        let merge::Merged { stands, whole } = merge::merged(inventory);
        let mut crowded = BTreeMap::new();
        let stand = |id: ComponentId| stands.get(id.0).copied().unwrap_or(id);
        let settings = Settings::of(inventory, &stand);
        let rpc = Rpc::of(inventory);
        let mut hops = Vec::new();
        for (number, call) in inventory.edges.iter().enumerate() {
            let edge = EdgeId(number);
            let from = stand(call.from);
            let callees = match &call.to {
                To::Component(id) => vec![*id],
                To::Name(name) => names.who(name, call, inventory).unwrap_or_else(|many| {
                    crowded.entry(name.to_string()).or_insert_with(|| (many, call.place.clone()));
                    Vec::new()
                }),
            };
            let mut callees: Vec<ComponentId> = callees.into_iter().map(stand).filter(|to| *to != from).collect();
            callees.sort_unstable();
            callees.dedup();
            let limits = settings.of_call(edge, call, from, &callees, (&names, inventory, &whole));
            let others = callees.len().saturating_sub(1);
            let (effects, undeclared) = rpc.said(call);
            let mut add = |to: Option<ComponentId>| {
                let (limits, undeclared) = (limits.clone(), undeclared.clone());
                hops.push(Hop { number: hops.len(), edge, call, from, to, others, limits, effects, undeclared });
            };
            if callees.is_empty() {
                add(None);
            }
            callees.into_iter().for_each(|to| add(Some(to)));
        }
        let mut out: HashMap<_, Vec<usize>> = HashMap::new();
        let mut into: HashMap<_, Vec<usize>> = HashMap::new();
        for hop in &hops {
            out.entry(hop.from).or_default().push(hop.number);
            if let Some(to) = hop.to {
                into.entry(to).or_default().push(hop.number);
            }
        }
        Self { inventory, hops, out, into, of_component: settings.of_component, stands, whole, crowded }
    }

    /// A component; where several files describe it, with what all of them say.
    #[must_use]
    pub fn component(&self, id: ComponentId) -> Option<&Component> {
        self.whole.get(&id).or_else(|| self.inventory.components.get(id.0))
    }

    /// The names that so many answer to that nobody is taken: where the first call to each is, and a sentence.
    pub(crate) fn crowded(&self) -> impl Iterator<Item = (Place, String)> {
        let told = |(name, (many, place)): (&String, &(usize, Place))| {
            (place.clone(), format!("{many} answer to {name}: nobody is taken"))
        };
        self.crowded.iter().map(told)
    }

    /// The component that stands for one, where two files describe the same thing.
    #[must_use]
    pub(crate) fn stands_for(&self, id: ComponentId) -> ComponentId {
        self.stands.get(id.0).copied().unwrap_or(id)
    }

    /// A component's name, for people.
    #[must_use]
    pub(crate) fn name(&self, id: ComponentId) -> &'a str {
        self.inventory.components.get(id.0).map_or("", |component| &component.name)
    }

    /// Whom a hop calls, for people.
    #[must_use]
    pub(crate) fn callee(&self, hop: &Hop<'a>) -> String {
        match (hop.to, &hop.call.to) {
            (Some(to), _) => self.name(to).to_owned(),
            (None, To::Component(to)) => self.name(*to).to_owned(),
            (None, To::Name(name)) => name.to_string(),
        }
    }

    /// The calls that a component makes.
    pub(crate) fn calls_of(&self, id: ComponentId) -> impl Iterator<Item = &Hop<'a>> {
        self.out.get(&id).into_iter().flatten().filter_map(|number| self.hops.get(*number))
    }

    /// The calls that arrive at a component.
    pub(crate) fn calls_to(&self, id: ComponentId) -> impl Iterator<Item = &Hop<'a>> {
        self.into.get(&id).into_iter().flatten().filter_map(|number| self.hops.get(*number))
    }

    /// The settings of a component as one that serves.
    pub(crate) fn serves(&self, id: ComponentId) -> impl Iterator<Item = &'a Setting> {
        self.of_component.get(&id).into_iter().flatten().copied().filter(|setting| setting.known.side == Side::Serve)
    }

    /// The setting of one kind of a component as one that serves; the written one, where there are several.
    #[must_use]
    pub(crate) fn serving(&self, id: ComponentId, kind: Kind) -> Option<&'a Setting> {
        limits::chosen(self.serves(id).filter(|setting| setting.known.kind == kind))
    }
}

/// Settings, by whom they are about.
struct Settings<'a> {
    of_component: HashMap<ComponentId, Vec<&'a Setting>>,
    of_edge: HashMap<EdgeId, Vec<&'a Setting>>,
    of_name: Vec<(&'a crate::inventory::Name, &'a Setting)>,
}

impl<'a> Settings<'a> {
    fn of(inventory: &'a Inventory, stand: &impl Fn(ComponentId) -> ComponentId) -> Self {
        let mut all = Self { of_component: HashMap::new(), of_edge: HashMap::new(), of_name: Vec::new() };
        for setting in &inventory.settings {
            match &setting.on {
                On::Component(id) => all.of_component.entry(stand(*id)).or_default().push(setting),
                On::Edge(id) => all.of_edge.entry(*id).or_default().push(setting),
                On::CallsTo(name) => all.of_name.push((name, setting)),
            }
        }
        all
    }

    /// The call's own settings first, then what is said of everybody's calls to that name, then the caller's, and last what
    /// its controller reads.
    fn of_call(
        &self,
        edge: EdgeId,
        call: &'a Edge,
        from: ComponentId,
        callees: &[ComponentId],
        (names, inventory, whole): (&names::Names, &Inventory, &HashMap<ComponentId, Component>),
    ) -> Limits<'a> {
        let own = self.of_edge.get(&edge).cloned().unwrap_or_default();
        let to_name = match &call.to {
            To::Name(name) => {
                let component = |id: &ComponentId| whole.get(id).or_else(|| inventory.components.get(id.0));
                let others = callees.iter().filter_map(component).flat_map(|component| &component.names);
                names.about(std::iter::once(name).chain(others), call, &self.of_name)
            }
            To::Component(_) => Vec::new(),
        };
        let callers = self.of_component.get(&from).into_iter().flatten().copied();
        let callers = callers.filter(|setting| setting.known.side == Side::Call).collect();
        Limits::of([own, to_name, callers, self.of_controller(call, inventory)])
    }

    /// What the caller's controller reads for all that it serves: the nearest one of its product, if that is one.
    fn of_controller(&self, call: &Edge, inventory: &Inventory) -> Vec<&'a Setting> {
        let component = |id: ComponentId| inventory.components.get(id.0);
        let Some(caller) = component(call.from).filter(|_| !inventory.controllers.is_empty()) else {
            return Vec::new();
        };
        let same = inventory.controllers.iter().filter_map(|id| Some((*id, component(*id)?)));
        let same = same.filter(|(_, one)| one.product == caller.product).map(|(id, one)| (id, &*one.place.file));
        let nearest = names::nearest(same, &call.place.file).unwrap_or_default();
        let [one] = &*nearest else { return Vec::new() };
        let settings = self.of_component.get(one).into_iter().flatten().copied();
        settings.filter(|setting| setting.known.side == Side::Call).collect()
    }
}
