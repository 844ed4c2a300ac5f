//! What a configuration is made into: the services of its routes, once for each listener.
//!
//! Decides that a table is whole or none, who serves a request, and what is refused because it is not done yet. What routes share,
//! and what a reload keeps of it, is [`made`](crate::made)'s decision.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use http::Method;
use oneclock::events::Observer;
use oneclock::{Admission, Health};
use oneclock_core::ingress::Coverage;
use oneclock_core::{Name, Policy};
use oneclock_http::{Ingress, IngressLayer};
use tower_layer::Layer;

use crate::StartFailed;
use crate::access::{self, Log};
use crate::config::{Config, Listener, Route};
use crate::forward::Forward;
use crate::keyed::{Opened, Opens};
use crate::made::{Made, Secured, admission_key, secured, way};
use crate::overrides::Overrides;
use crate::to::Clients;

/// What one configuration is made into. Requests in flight keep theirs.
pub(crate) struct Table {
    pub(crate) config: Config,
    /// Of what it says.
    pub(crate) hash: String,
    /// What of it does not hold, for now.
    pub(crate) overrides: Overrides,
    observer: Option<Arc<dyn Observer>>,
    /// Where its requests leave lines.
    pub(crate) log: Option<Log>,
    made: Made,
    listeners: HashMap<Name, Served>,
}

/// Where a request goes, as far as that is known of its head.
pub(crate) struct Found<'t> {
    /// The route that takes it; nobody does without one.
    pub(crate) route: Option<&'t Name>,
    pub(crate) ingress: &'t Ingress<Forward>,
}

/// The services of one listener.
struct Served {
    routes: Vec<(Name, Ingress<Forward>)>, // as many as the configuration has
    nowhere: Ingress<Forward>,
}

impl Table {
    /// The first table of a proxy. What happens on its routes is told to `observer`, else to that of the process.
    pub(crate) fn of(config: Config, observer: Option<Arc<dyn Observer>>) -> Result<Self, StartFailed> {
        let log = Log::open(&config.access_log, None)?;
        let secured = secured(&config)?;
        Self::make(config, Overrides::default(), observer, log, secured, &Made::default())
    }

    /// Whether there is a table of `config`: no store of keys is opened for it.
    pub(crate) fn check(config: Config) -> Result<(), StartFailed> {
        let known = Made { opens: Opens::Nothing, ..Made::default() };
        Log::check(&config.access_log)?;
        let secured = secured(&config)?;
        Self::make(config, Overrides::default(), None, None, secured, &known).map(drop)
    }

    /// The table of `config`, with what this one has already.
    pub(crate) fn reloaded(&self, config: Config) -> Result<Self, StartFailed> {
        let overrides = self.overrides.left_by(&self.config, &config);
        let log = Log::open(&config.access_log, self.log.as_ref())?;
        let secured = secured(&config)?;
        Self::make(config, overrides, self.observer.clone(), log, secured, &self.made)
    }

    /// This one with other overrides.
    pub(crate) fn overridden(&self, overrides: Overrides) -> Result<Self, StartFailed> {
        let (observer, log, secured) = (self.observer.clone(), self.log.clone(), self.made.secured.clone());
        Self::make(self.config.clone(), overrides, observer, log, secured, &self.made)
    }

    fn make(
        config: Config,
        overrides: Overrides,
        observer: Option<Arc<dyn Observer>>,
        log: Option<Log>,
        secured: Secured,
        known: &Made,
    ) -> Result<Self, StartFailed> {
        not_yet(&config)?;
        let mut made = Made { opens: known.opens, secured, ..Made::default() };
        let mut ways = Vec::new();
        for route in &config.routes {
            ways.push(way(route, overrides.of(&route.name), &config, observer.as_ref(), known, &mut made)?);
        }
        let mut listeners = HashMap::new();
        for listener in &config.listeners {
            let observer = access::beside(log.as_ref(), listener, &config.routes, observer.clone());
            let served = Served::of(listener, &config.routes, &ways, observer.as_ref())?;
            listeners.insert(listener.name.clone(), served);
        }
        let hash = config.hash();
        Ok(Self { config, hash, overrides, observer, log, made, listeners })
    }

    /// Puts the modes of its routes in force. An admission is shared with the table before, so this comes last: when this table
    /// is the one that holds.
    pub(crate) fn enforce_modes(&self) {
        for route in &self.config.routes {
            let mode = self.overrides.of(&route.name).mode_of(route);
            if let Some(admission) = self.made.admissions.get(&admission_key(route)).filter(|one| one.mode() != mode) {
                admission.set_mode(mode);
            }
        }
    }

    /// The stores of its idempotency keys.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &Opened> {
        self.made.stores.values()
    }

    /// What stands before the places of its routes.
    pub(crate) fn admissions(&self) -> impl Iterator<Item = &Admission> {
        self.made.admissions.values()
    }

    /// The health of its upstreams, as calls that are neither gRPC nor Connect see it.
    pub(crate) fn healths(&self) -> impl Iterator<Item = &Health> {
        // Several of one upstream, where routes keep different reserves, have one name: always the same one is told of.
        let clients: BTreeMap<&String, &Clients> = self.made.clients.iter().collect();
        clients.into_values().map(|clients| clients.http.destination().health())
    }

    /// Who serves a request to `path`. `None` where there is no such listener.
    pub(crate) fn find(&self, listener: &Name, path: &str, method: &Method) -> Option<Found<'_>> {
        let served = self.listeners.get(listener)?;
        let route = self.config.route_for(path, method);
        let found = route.and_then(|route| served.routes.iter().find(|(name, _)| *name == route.name));
        Some(match found {
            Some((name, ingress)) => Found { route: Some(name), ingress },
            None => Found { route: None, ingress: &served.nowhere },
        })
    }
}

impl Served {
    fn of(
        listener: &Listener,
        routes: &[Route],
        ways: &[(Forward, Admission)],
        observer: Option<&Arc<dyn Observer>>,
    ) -> Result<Self, StartFailed> {
        let observed = |layer: IngressLayer| observer.cloned().into_iter().fold(layer, IngressLayer::observed_by);
        let mut served = Vec::new();
        for (route, (forward, admission)) in routes.iter().zip(ways) {
            let policy = Policy::named(route.name.clone()).limits(route.limits()).build();
            let policy = policy.map_err(|source| StartFailed::Limits { route: route.name.clone(), source })?;
            let mut layer = IngressLayer::new(policy).reads(listener.reads.clone()).on_route(&route.name);
            if let Some(trust) = route.trust {
                layer = layer.trust(trust);
            }
            layer = observed(layer.admission(admission));
            served.push((route.name.clone(), layer.layer(forward.clone())));
        }
        let name = Name::from("no_route");
        let policy = Policy::named(name.clone()).build();
        let policy = policy.map_err(|source| StartFailed::Limits { route: name, source })?;
        let nowhere = observed(IngressLayer::new(policy).reads(listener.reads.clone())).layer(Forward::nowhere());
        Ok(Self { routes: served, nowhere })
    }
}

/// What is written and not done yet.
fn not_yet(config: &Config) -> Result<(), StartFailed> {
    let refuse = |what: String, instead| Err(StartFailed::NotYet { what, instead });
    if config.listeners.is_empty() {
        return Err(StartFailed::NoListener);
    }
    for route in &config.routes {
        let name = &route.name;
        if let Coverage::Streaming { .. } = route.kind {
            if route.idempotency.is_some() {
                let what = format!("route {name}: idempotency of a stream");
                return refuse(what, "leave it out, or make the route unary, with a ceiling that covers the stream");
            }
            if route.retry.is_some() {
                return refuse(
                    format!("route {name}: a retry of a stream"),
                    "leave retry out, or make the route unary",
                );
            }
            if route.backend_request.is_some() {
                let what = format!("route {name}: backendRequest of a stream");
                return refuse(what, "leave it out; request bounds the establishment");
            }
        }
    }
    Ok(())
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("config", &self.config).finish_non_exhaustive()
    }
}

/// So that whoever holds a table holds it whole.
pub(crate) type Shared = Arc<arc_swap::ArcSwap<Table>>;
