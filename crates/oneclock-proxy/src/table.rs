//! What a configuration is made into: the services of its routes, once for each listener.
//!
//! Decides what routes share, and what a reload keeps: the client of an upstream and the admission of a route stay, with their
//! connections, tokens and estimates, where the new configuration says the same of them. Here is also what is refused because
//! it is not done yet.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::uri::Scheme;
use oneclock::{Admission, WithoutOperation};
use oneclock_core::ingress::Coverage;
use oneclock_core::wire::writes;
use oneclock_core::{Name, Policy};
use oneclock_http::{Client, Destination, Ingress, IngressLayer, RetryLayer};
use tower_layer::Layer;

use crate::StartFailed;
use crate::config::{AccessLog, Config, DEFAULT_ADMIN, Listener, PathMatch, Route, Upstream, UpstreamProtocol};
use crate::forward::{Attempts, Clients, Forward, To};
use crate::own::{Place, Speaks};
use crate::route::Matched;

/// How many calls are on one HTTP/2 connection at most. How many are worked on at once is admission's business; this bounds
/// what the connection holds.
const STREAMS: usize = 1_024;

/// The least that a call asks for, unless a route says less.
const LEAST: Duration = Duration::from_millis(5);

/// What one configuration is made into. Requests in flight keep theirs.
pub(crate) struct Table {
    pub(crate) config: Config,
    made: Made,
    listeners: HashMap<Name, Served>,
}

/// The services of one listener.
struct Served {
    routes: Vec<(Name, Matched, Ingress<Forward>)>, // as many as the configuration has
    nowhere: Ingress<Forward>,
}

/// What is kept by a reload, by what it was made of.
#[derive(Clone, Default)]
struct Made {
    clients: HashMap<String, Clients>,
    retries: HashMap<String, RetryLayer>,
    admissions: HashMap<String, Admission>,
}

impl Table {
    /// The table of `config`, with what `before` has already.
    pub(crate) fn of(mut config: Config, before: Option<&Self>) -> Result<Self, StartFailed> {
        not_yet(&config)?;
        config.admin = None; // what it runs with: the default is not served yet
        let known = before.map(|before| before.made.clone()).unwrap_or_default();
        let mut made = Made::default();
        let mut ways = Vec::new();
        for route in &config.routes {
            ways.push(way(route, &config, &known, &mut made)?);
        }
        let mut listeners = HashMap::new();
        for listener in &config.listeners {
            listeners.insert(listener.name.clone(), Served::of(listener, &config.routes, &ways)?);
        }
        Ok(Self { config, made, listeners })
    }

    /// Who serves a request to `path`, and what it was matched to. `None` where there is no such listener.
    pub(crate) fn find(
        &self,
        listener: &Name,
        path: &str,
        method: &Method,
    ) -> Option<(Option<&Matched>, &Ingress<Forward>)> {
        let served = self.listeners.get(listener)?;
        let route = self.config.route_for(path, method);
        let found = route.and_then(|route| served.routes.iter().find(|(name, ..)| *name == route.name));
        Some(found.map_or((None, &served.nowhere), |(_, matched, ingress)| (Some(matched), ingress)))
    }
}

impl Served {
    fn of(listener: &Listener, routes: &[Route], ways: &[(Forward, Admission)]) -> Result<Self, StartFailed> {
        let mut served = Vec::new();
        for (route, (forward, admission)) in routes.iter().zip(ways) {
            let matched = Matched::new(pattern(route));
            let policy =
                policy(route, &matched).map_err(|source| StartFailed::Limits { route: route.name.clone(), source })?;
            let mut layer = IngressLayer::new(policy).reads(listener.reads.clone()).route_by(Matched::of);
            if let Some(trust) = route.trust {
                layer = layer.trust(trust);
            }
            layer = layer.admission(admission);
            served.push((route.name.clone(), matched, layer.layer(forward.clone())));
        }
        let name = Name::from("no_route");
        let policy = Policy::named(name.clone()).build();
        let policy = policy.map_err(|source| StartFailed::Limits { route: name, source })?;
        let nowhere = IngressLayer::new(policy).reads(listener.reads.clone()).layer(Forward::nowhere());
        Ok(Self { routes: served, nowhere })
    }
}

fn policy(route: &Route, matched: &Matched) -> Result<Policy, oneclock_core::ingress::PolicyError> {
    let limits = route.limits();
    let policy = Policy::named(route.name.clone())
        .when_absent(route.when_absent)
        .ceiling(route.ceiling)
        .min_useful(route.min_useful)
        .on_malformed(route.on_malformed);
    policy.route(matched.as_str(), move |_| limits).build() // what the budget covers is said for a route only
}

/// By what a route is known where there must be as many values as routes: the path of its first match, as it is written.
fn pattern(route: &Route) -> &str {
    match route.matches.first().map(|one| &one.path) {
        Some(PathMatch::Exact(path) | PathMatch::Prefix(path)) => path,
        None => "/",
    }
}

/// What is written and not done yet.
fn not_yet(config: &Config) -> Result<(), StartFailed> {
    let refuse = |what: String, instead| Err(StartFailed::NotYet { what, instead });
    if config.listeners.is_empty() {
        return Err(StartFailed::NoListener);
    }
    // Its default was asked for by nobody.
    if config.admin.is_some_and(|admin| admin != DEFAULT_ADMIN) {
        return refuse("an admin listener".into(), "leave admin out");
    }
    if config.access_log != AccessLog::Off {
        return refuse("the access log".into(), "leave accessLog out");
    }
    for route in &config.routes {
        let name = &route.name;
        if route.idempotency.is_some() {
            return refuse(format!("route {name}: idempotency"), "leave it out; keys are passed on to the upstream");
        }
        if let Coverage::Streaming { .. } = route.kind {
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
            let upstream = config.upstreams.get(&route.upstream);
            if upstream.is_some_and(|upstream| upstream.url.scheme() == Some(&Scheme::HTTPS)) {
                let what = format!("route {name}: a stream from an upstream over TLS");
                return refuse(what, "make the route unary, with a ceiling that covers the stream");
            }
        }
    }
    for (name, upstream) in &config.upstreams {
        if upstream.url.scheme() == Some(&Scheme::HTTPS) && upstream.protocol == UpstreamProtocol::Http1 {
            let what = format!("upstream {name}: HTTP/1.1 alone over TLS");
            return refuse(what, "write protocol: auto; the two sides agree on one in their handshake");
        }
    }
    Ok(())
}

/// Where the requests of one route go, and the places that it has.
fn way(route: &Route, config: &Config, known: &Made, made: &mut Made) -> Result<(Forward, Admission), StartFailed> {
    let upstream = config
        .upstreams
        .get(&route.upstream)
        .ok_or_else(|| StartFailed::NoUpstream { route: route.name.clone(), upstream: route.upstream.clone() })?;
    // What is said of an upstream in full is its key: what is said differently is another one.
    let least = route.min_useful.min(LEAST);
    let key = format!("{} {upstream:?} {:?} {least:?}", route.upstream, route.reserve);
    let clients = match made.clients.get(&key).or_else(|| known.clients.get(&key)) {
        Some(clients) => clients.clone(),
        None => clients(&route.upstream, upstream, route.reserve, least)?,
    };
    made.clients.insert(key.clone(), clients.clone());

    let policy = route.retry_policy().map_err(|source| StartFailed::Retry { route: route.name.clone(), source })?;
    let attempts = match policy {
        None => Attempts::One(route.backend_request),
        Some(policy) => {
            let key = format!("{key} {policy:?}");
            let layer = match made.retries.get(&key).or_else(|| known.retries.get(&key)) {
                Some(layer) => layer.clone(),
                None => {
                    let destination = Destination::named(route.upstream.clone())
                        .trust(upstream.trust)
                        .reserve(route.reserve)
                        .min_useful(least)
                        .without_operation(WithoutOperation::Require)
                        .unthrottled() // the client below is
                        .retry(policy);
                    let destination = upstream.cap.into_iter().fold(destination, |it, cap| it.cap(cap)).build();
                    let no_time = |source| StartFailed::NoTime { route: route.name.clone(), source };
                    RetryLayer::new(destination.map_err(no_time)?)
                }
            };
            made.retries.insert(key, layer.clone());
            Attempts::By(layer)
        }
    };

    let settings = route.admission(cores());
    let key = format!("{} {settings:?}", route.name);
    let admission = match known.admissions.get(&key) {
        Some(admission) => admission.clone(),
        None => Admission::to(route.name.clone(), settings)
            .map_err(|source| StartFailed::Admission { route: route.name.clone(), source })?,
    };
    made.admissions.insert(key, admission.clone());

    let to = To { clients, attempts, coverage: route.kind, trust: route.trust };
    Ok((Forward::to(to), admission))
}

/// The clients of one upstream. Those that would be the same are one, with one pool.
fn clients(name: &Name, upstream: &Upstream, reserve: Duration, least: Duration) -> Result<Clients, StartFailed> {
    let client = |also: Option<&oneclock_core::wire::Conventions>, http2: bool| {
        let mut client = Client::builder(name.clone(), upstream.url.clone())
            .trust(upstream.trust)
            .reserve(reserve)
            .min_useful(least)
            .max_connections(upstream.max_connections)
            .max_idle(upstream.max_connections)
            .max_streams(STREAMS)
            .without_operation(WithoutOperation::Require)
            .tells(upstream.tells.clone().unwrap_or_else(writes::plain_http));
        if let Some(cap) = upstream.cap {
            client = client.cap(cap);
        }
        if let Some(also) = also {
            client = client.also_tells(also);
        }
        if http2 {
            client = client.http2_only();
        }
        client.build()
    };
    let (grpc2, others2) = match upstream.protocol {
        UpstreamProtocol::Auto => (true, false),
        UpstreamProtocol::Http1 => (false, false),
        UpstreamProtocol::H2c => (true, true),
    };
    let says_itself = upstream.tells.is_none();
    let http = client(None, others2)?;
    let connect = if says_itself { client(Some(&writes::connect()), others2)? } else { http.clone() };
    let grpc = match (says_itself, grpc2 == others2) {
        (true, _) => client(Some(&writes::grpc()), grpc2)?,
        (false, true) => http.clone(),
        (false, false) => client(None, grpc2)?,
    };
    let speaks = |http2| if http2 { Speaks::Http2 } else { Speaks::Http1 };
    let place = Place::of(&upstream.url, upstream.max_connections);
    Ok(Clients { http, grpc, connect, place, speaks: (speaks(grpc2), speaks(others2)) })
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
