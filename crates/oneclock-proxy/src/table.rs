//! What a configuration is made into: the services of its routes, once for each listener.
//!
//! Decides what routes share, and what a reload keeps: the client of an upstream and the admission of a route stay, with their
//! connections, tokens and estimates, where the new configuration says the same of them. Here is also what is refused because
//! it is not done yet.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use oneclock::events::Observer;
use oneclock::{Admission, Health, WithoutOperation};
use oneclock_core::admission::Mode;
use oneclock_core::ingress::Coverage;
use oneclock_core::throttle::ThrottlePolicy;
use oneclock_core::wire::{Conventions, writes};
use oneclock_core::{Name, Policy};
use oneclock_http::{Client, Destination, Ingress, IngressLayer, RetryLayer};
use tower_layer::Layer;

use crate::StartFailed;
use crate::access::{self, Log};
use crate::config::{Config, Idempotency, Listener, Route, Upstream, UpstreamProtocol};
use crate::digest::Digest;
use crate::forward::{Attempts, Clients, Forward, To};
use crate::keyed::{self, Keys, Opened, Opens, Stores, Trusted};
use crate::overrides::{Override, Overrides};
use crate::own::Place;
use crate::tls::UpstreamSecured;

/// How many calls are on one HTTP/2 connection at most. How many are worked on at once is admission's business; this bounds
/// what the connection holds.
const STREAMS: usize = 1_024;

/// The least that a call asks for, unless a route says less.
const LEAST: Duration = Duration::from_millis(5);

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

/// What is kept by a reload, by what it was made of.
#[derive(Clone, Default)]
struct Made {
    clients: HashMap<String, Clients>,
    retries: HashMap<String, RetryLayer>,
    admissions: HashMap<String, Admission>,
    stores: Stores,
    /// By what is said of them, and by what the roots of their store were.
    keys: HashMap<(Name, Idempotency, Option<Digest>), Keys>,
    secured: Secured,
    opens: Opens,
}

/// What the files of upstreams and of stores said when the configuration was read.
#[derive(Clone, Default)]
struct Secured {
    upstreams: HashMap<Name, UpstreamSecured>,
    stores: Trusted,
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

/// What the files of its upstreams and of its stores say.
fn secured(config: &Config) -> Result<Secured, StartFailed> {
    let tls = config.upstreams.iter().filter_map(|(name, upstream)| Some((name, upstream.tls.as_ref()?)));
    let upstreams = tls.map(|(name, tls)| Ok((name.clone(), UpstreamSecured::of(name, tls)?)));
    Ok(Secured { upstreams: upstreams.collect::<Result<_, StartFailed>>()?, stores: keyed::trusted(config)? })
}

/// Where the requests of one route go, and the places that it has.
fn way(
    route: &Route,
    held: Override,
    config: &Config,
    observer: Option<&Arc<dyn Observer>>,
    known: &Made,
    made: &mut Made,
) -> Result<(Forward, Admission), StartFailed> {
    let upstream = config
        .upstreams
        .get(&route.upstream)
        .ok_or_else(|| StartFailed::NoUpstream { route: route.name.clone(), upstream: route.upstream.clone() })?;
    // What is said of an upstream in full is its key: what is said differently is another one.
    let least = route.min_useful.min(LEAST);
    let secured = made.secured.upstreams.get(&route.upstream);
    let files = secured.map(|secured| secured.digest);
    let key = format!("{} {upstream:?} {files:?} {:?} {least:?}", route.upstream, route.reserve);
    let clients = match made.clients.get(&key).or_else(|| known.clients.get(&key)) {
        Some(clients) => clients.clone(),
        None => clients(&route.upstream, upstream, secured, route.reserve, least)?,
    };
    made.clients.insert(key.clone(), clients.clone());

    let policy = route.retry_policy().map_err(|source| StartFailed::Retry { route: route.name.clone(), source })?;
    // Kept while an operator holds them off, too, or they would be full of tokens when they are let on again.
    let retries = match policy {
        None => None,
        Some(policy) => {
            let key = format!("{key} {policy:?} {:?}", route.min_useful);
            let layer = match made.retries.get(&key).or_else(|| known.retries.get(&key)) {
                Some(layer) => layer.clone(),
                None => {
                    let destination = Destination::named(route.upstream.clone())
                        .trust(upstream.trust)
                        .reserve(route.reserve)
                        .min_useful(route.min_useful) // of each attempt (contract R1)
                        .without_operation(WithoutOperation::Require)
                        .unthrottled() // the client below is
                        .retry(policy);
                    let destination = upstream.cap.into_iter().fold(destination, |it, cap| it.cap(cap)).build();
                    let no_time = |source| StartFailed::NoTime { route: route.name.clone(), source };
                    RetryLayer::new(destination.map_err(no_time)?)
                }
            };
            made.retries.insert(key, layer.clone());
            Some(layer)
        }
    };
    let attempts = match retries.filter(|_| !held.no_retries) {
        None => Attempts::One,
        Some(layer) => Attempts::By(layer),
    };

    let key = admission_key(route);
    let admission = match known.admissions.get(&key) {
        Some(admission) => admission.clone(),
        None => Admission::to(route.name.clone(), route.admission(cores()))
            .map_err(|source| StartFailed::Admission { route: route.name.clone(), source })?,
    };
    made.admissions.insert(key, admission.clone());

    let backend_request = route.backend_request;
    let to =
        To { clients, attempts, backend_request, coverage: route.kind, upstream: upstream.trust, trust: route.trust };
    let forward = match &route.idempotency {
        None => Forward::to(to),
        Some(says) => Forward::once(keys(route, says, observer, known, made)?.before(to)),
    };
    Ok((forward, admission))
}

/// The keys of a route: its runs, in a store that it shares with whoever writes the same URL.
fn keys(
    route: &Route,
    says: &Idempotency,
    observer: Option<&Arc<dyn Observer>>,
    known: &Made,
    made: &mut Made,
) -> Result<Keys, StartFailed> {
    // With other roots it is another store, of the same records; and what runs in this one goes on to its end.
    let trusted = made.secured.stores.get(&says.store);
    let roots = trusted.map(|trusted| trusted.digest);
    let key = (says.store.clone(), roots);
    let store = match made.stores.get(&key).or_else(|| known.stores.get(&key)) {
        Some(store) => store.clone(),
        None => Opened::open(&says.store, trusted, known.opens)?,
    };
    made.stores.insert(key, store.clone());
    let key = (route.name.clone(), says.clone(), roots);
    let keys = match known.keys.get(&key) {
        Some(keys) => keys.clone(),
        None => Keys::of(route.name.clone(), store.store(), says, observer)
            .map_err(|source| StartFailed::Keys { route: route.name.clone(), source })?,
    };
    made.keys.insert(key, keys.clone());
    Ok(keys)
}

/// What is said of the places of a route, but for what can be changed about them while they are taken.
fn admission_key(route: &Route) -> String {
    format!("{} {:?}", route.name, route.admission(cores()).mode(Mode::default()))
}

/// The clients of one upstream. Those that would be the same are one, with one pool.
fn clients(
    name: &Name,
    upstream: &Upstream,
    secured: Option<&UpstreamSecured>,
    reserve: Duration,
    least: Duration,
) -> Result<Clients, StartFailed> {
    let client = |also: Option<&Conventions>, speaks: Speaks| {
        let mut client = Client::builder(name.clone(), upstream.url.clone())
            .trust(upstream.trust)
            .reserve(reserve)
            .min_useful(least)
            .max_connections(upstream.max_connections)
            .max_idle(upstream.max_connections)
            .max_streams(STREAMS)
            .throttle(ThrottlePolicy::default().for_strangers()) // how long a call takes, and whether it ends, they decide
            .without_operation(WithoutOperation::Require)
            .tells(upstream.tells.clone().unwrap_or_else(writes::plain_http));
        if let Some(cap) = upstream.cap {
            client = client.cap(cap);
        }
        if let Some(also) = also {
            client = client.also_tells(also);
        }
        if let Some(secured) = secured {
            client = client.tls(Arc::clone(&secured.config));
        }
        if let Some(name) = upstream.tls.as_ref().and_then(|tls| tls.server_name.as_ref()) {
            client = client.server_name(name);
        }
        client = match speaks {
            Speaks::AsAgreed => client,
            Speaks::Http1 => client.http1_only(),
            Speaks::Http2 => client.http2_only(),
        };
        client.build()
    };
    let (grpc, others) = match upstream.protocol {
        UpstreamProtocol::Auto => (Speaks::Http2, Speaks::AsAgreed),
        UpstreamProtocol::Http1 => (Speaks::Http1, Speaks::Http1),
        UpstreamProtocol::H2c => (Speaks::Http2, Speaks::Http2),
    };
    let says_itself = upstream.tells.is_none();
    let http = client(None, others)?;
    let connect = if says_itself { client(Some(&writes::connect()), others)? } else { http.clone() };
    let grpc = match (says_itself, grpc == others) {
        (true, _) => client(Some(&writes::grpc()), grpc)?,
        (false, true) => http.clone(),
        (false, false) => client(None, grpc)?,
    };
    let http1 = if others == Speaks::Http1 { http.clone() } else { client(None, Speaks::Http1)? };
    let (place, failures) = (Place::new(http1, upstream.max_connections), Arc::default());
    Ok(Clients { http, grpc, connect, place, failures })
}

/// What a client of an upstream speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaks {
    /// HTTP/1.1; over TLS what the two sides agree on.
    AsAgreed,
    Http1,
    Http2,
}

fn cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("config", &self.config).finish_non_exhaustive()
    }
}

/// So that whoever holds a table holds it whole.
pub(crate) type Shared = Arc<arc_swap::ArcSwap<Table>>;
