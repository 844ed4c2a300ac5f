//! What `.proto` files say of repeating a call: which methods of gRPC it may be for, and whether all of these may be
//! repeated.
//!
//! A call is for one method, `/shop.Carts/Get`, or for a whole service, `/shop.Carts/`, or, of a client of gRPC and
//! without a path, for everything that it calls. What such a client's file says of a method comes before what it says of
//! the service, and that before the rest. A route of a proxy takes its path for a beginning: `/shop.Carts/Get` lets
//! `GetAndClear` through, too.
//!
//! Of several descriptions of a service the nearest in the tree of files counts. Where none is there, or none that could
//! be read, nothing is known, which never means "no effect".

use std::collections::{BTreeMap, HashMap, HashSet};

use super::names::nearest;
use crate::inventory::{ComponentId, Declared, Edge, Effects, Inventory, RpcMethod, RpcService};

/// A method that a call may be for, and of which nothing says that it may be repeated.
#[derive(Clone, Debug)]
pub struct Undeclared<'a> {
    /// Its service.
    pub service: &'a str,
    /// The method.
    pub method: &'a RpcMethod,
    /// Whether its service has an `idempotency_level` for others: then it is missing here, and not just in use nowhere.
    pub others_are: bool,
}

/// What is known of repeating a call.
pub(super) type Said<'a> = (Effects, Option<Undeclared<'a>>);

/// All services of gRPC that files describe.
pub(super) struct Rpc<'a> {
    services: BTreeMap<&'a str, Vec<Described<'a>>>,
    clients: HashSet<ComponentId>,
    /// The services and methods for which a client's file has something of their own; of a whole service without a method.
    named: HashSet<(ComponentId, &'a str, &'a str)>,
    /// Whether some file could not be read: then there may be more services.
    unread: bool,
}

/// A service, as one file describes it.
struct Described<'a> {
    service: &'a RpcService,
    methods: HashMap<&'a str, &'a RpcMethod>,
    /// Those without a word on repeating them, by their names.
    undeclared: Vec<&'a RpcMethod>,
    /// Whether nothing of it has an effect.
    reads_only: bool,
    /// Whether some method has an `idempotency_level`.
    uses_levels: bool,
}

// === Rpc ===

impl<'a> Rpc<'a> {
    pub(super) fn of(inventory: &'a Inventory) -> Self {
        let mut services: BTreeMap<&str, Vec<Described<'_>>> = BTreeMap::new();
        for service in &inventory.rpc_services {
            services.entry(&service.name).or_default().push(Described::of(service));
        }
        let components = inventory.components.iter().enumerate();
        let clients = components.filter(|(_, one)| one.product == "gRPC").map(|(at, _)| ComponentId(at)).collect();
        let named = |call: &'a Edge| parts(call.path.as_deref()?).map(|(service, method)| (call.from, service, method));
        let mut all = Self { services, clients, named: HashSet::new(), unread: false };
        if !all.services.is_empty() {
            let calls = inventory.edges.iter().filter(|call| all.clients.contains(&call.from));
            all.named = calls.filter_map(named).collect();
            all.unread = inventory.left_out.iter().any(|left| left.place.file.ends_with(".proto"));
        }
        all
    }

    /// What is known of repeating a call. What is said of the call itself comes first.
    pub(super) fn said(&self, call: &'a Edge) -> Said<'a> {
        if call.effects != Effects::Unknown || self.services.is_empty() {
            return (call.effects, None);
        }
        let client = self.clients.contains(&call.from);
        match call.path.as_deref().map(parts) {
            Some(Some((service, method))) => self.of_service(service, method, call, client),
            None if client => self.of_all(call.from),
            _ => (Effects::Unknown, None),
        }
    }

    fn of_service(&self, service: &str, method: &str, call: &Edge, client: bool) -> Said<'a> {
        let described = self.services.get(service).map(Vec::as_slice).unwrap_or_default();
        let described = described.iter().map(|one| (one, &*one.service.place.file));
        let described: Vec<&Described<'a>> = nearest(described, &call.place.file).unwrap_or_default();
        let mut effects = None;
        for one in described {
            let (own, undeclared) = match method {
                "" => {
                    (one.effects(), one.undeclared.iter().find(|method| !self.has_its_own(call, client, one, method)))
                }
                method => {
                    let Some(own) = one.methods.get(method) else { return (Effects::Unknown, None) };
                    let undeclared =
                        if client { own.declared.is_none().then_some(own) } else { one.first_undeclared(method) };
                    (own.declared.map_or(Effects::Unknown, Declared::effects), undeclared)
                }
            };
            if let Some(method) = undeclared {
                return (Effects::Unknown, Some(one.without(method)));
            }
            effects = Some(if effects.is_none_or(|before| before == own) { own } else { Effects::Idempotent });
        }
        (effects.unwrap_or_default(), None)
    }

    /// Whether a client's file says something else of a method of a service than of the rest of it.
    fn has_its_own(&self, call: &Edge, client: bool, of: &Described<'_>, method: &RpcMethod) -> bool {
        client && self.named.contains(&(call.from, of.service.name.as_str(), method.name.as_str()))
    }

    /// Of everything that a client calls and that its file does not name otherwise.
    fn of_all(&self, client: ComponentId) -> Said<'a> {
        let has_its_own = |service: &str, method: &str| self.named.contains(&(client, service, method));
        let rest = self.services.iter().filter(|(service, _)| !has_its_own(service, "")).flat_map(|(_, all)| all);
        let mut found = false;
        for one in rest {
            let undeclared = one.undeclared.iter().find(|method| !has_its_own(&one.service.name, &method.name));
            if let Some(method) = undeclared {
                // Whether the client calls it at all, no file says.
                return (Effects::Unknown, Some(Undeclared { others_are: false, ..one.without(method) }));
            }
            found = true;
        }
        (if found && !self.unread { Effects::Idempotent } else { Effects::Unknown }, None)
    }
}

// === Described ===

impl<'a> Described<'a> {
    fn of(service: &'a RpcService) -> Self {
        let methods = &service.methods;
        let mut undeclared: Vec<_> = methods.iter().filter(|method| method.declared.is_none()).collect();
        undeclared.sort_by_key(|method| &method.name);
        let reads = |method: &RpcMethod| method.declared.map(Declared::effects) == Some(Effects::ReadOnly);
        let levels = [Some(Declared::NoSideEffects), Some(Declared::Idempotent)];
        Self {
            service,
            methods: methods.iter().map(|method| (method.name.as_str(), method)).collect(),
            undeclared,
            reads_only: methods.iter().all(reads),
            uses_levels: methods.iter().any(|method| levels.contains(&method.declared)),
        }
    }

    /// Of a call to any of its methods, where all of them may be repeated.
    const fn effects(&self) -> Effects {
        if self.reads_only { Effects::ReadOnly } else { Effects::Idempotent }
    }

    /// The first method without a word on repeating it whose name begins so.
    fn first_undeclared(&self, begins: &str) -> Option<&&'a RpcMethod> {
        let from = self.undeclared.partition_point(|method| method.name.as_str() < begins);
        self.undeclared.get(from).filter(|method| method.name.starts_with(begins))
    }

    fn without(&self, method: &'a RpcMethod) -> Undeclared<'a> {
        Undeclared { service: &self.service.name, method, others_are: self.uses_levels }
    }
}

/// The service and the method of a path; the latter is empty where it is for all of them.
fn parts(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/').filter(|path| !path.is_empty())?;
    Some(path.split_once('/').unwrap_or((path, "")))
}
