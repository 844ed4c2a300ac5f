//! What routes share, and what a reload keeps.
//!
//! Decides when two things are one: the client of an upstream, the tokens of retries, the places of a route, a store of keys stay,
//! with their connections and estimates, where the new configuration says the same of them. What is said is the key; what is said
//! differently is another one.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use oneclock::events::Observer;
use oneclock::{Admission, WithoutOperation};
use oneclock_core::Name;
use oneclock_core::admission::Mode;
use oneclock_core::throttle::ThrottlePolicy;
use oneclock_core::wire::{Conventions, writes};
use oneclock_http::{Client, Destination, RetryLayer};

use crate::StartFailed;
use crate::config::{Config, Idempotency, Route, Upstream, UpstreamProtocol};
use crate::digest::Digest;
use crate::forward::Forward;
use crate::keyed::{self, Keys, Opened, Opens, Stores, Trusted};
use crate::overrides::Override;
use crate::own::Place;
use crate::tls::UpstreamSecured;
use crate::to::{Attempts, Clients, To};

/// How many calls are on one HTTP/2 connection at most. How many are worked on at once is admission's business; this bounds
/// what the connection holds.
const STREAMS: usize = 1_024;

/// The least that a call asks for, unless a route says less.
const LEAST: Duration = Duration::from_millis(5);

/// What is kept by a reload, by what it was made of.
#[derive(Clone, Default)]
pub(crate) struct Made {
    pub(crate) clients: HashMap<String, Clients>,
    pub(crate) retries: HashMap<String, RetryLayer>,
    pub(crate) admissions: HashMap<String, Admission>,
    pub(crate) stores: Stores,
    /// By what is said of them, and by what the roots of their store were.
    pub(crate) keys: HashMap<(Name, Idempotency, Option<Digest>), Keys>,
    pub(crate) secured: Secured,
    pub(crate) opens: Opens,
}

/// What the files of upstreams and of stores said when the configuration was read.
#[derive(Clone, Default)]
pub(crate) struct Secured {
    upstreams: HashMap<Name, UpstreamSecured>,
    stores: Trusted,
}

/// What the files of its upstreams and of its stores say.
pub(crate) fn secured(config: &Config) -> Result<Secured, StartFailed> {
    let tls = config.upstreams.iter().filter_map(|(name, upstream)| Some((name, upstream.tls.as_ref()?)));
    let upstreams = tls.map(|(name, tls)| Ok((name.clone(), UpstreamSecured::of(name, tls)?)));
    Ok(Secured { upstreams: upstreams.collect::<Result<_, StartFailed>>()?, stores: keyed::trusted(config)? })
}

/// Where the requests of one route go, and the places that it has.
pub(crate) fn way(
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
pub(crate) fn admission_key(route: &Route) -> String {
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
