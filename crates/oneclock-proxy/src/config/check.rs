//! What a configuration is made of before its parts were looked at together, and what contradicts itself in the whole.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use oneclock_core::{Name, Trust};

use super::matching::Match;
use super::node::{Place, Refuse};
use super::redact::shown;
use super::refused::known;
use super::values::written;
use super::{AccessLog, Config, DEFAULT_ADMIN, DEFAULT_LISTENER, Listener, Refused, Route, Upstream, once, route};

/// What stands somewhere.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) at: Place,
    pub(super) value: T,
}

/// All that the documents of a file say.
pub(super) struct Draft {
    pub(super) listeners: Vec<Placed<Listener>>, // at their addresses
    pub(super) upstreams: BTreeMap<Name, Placed<Upstream>>,
    pub(super) routes: Vec<RouteDraft>,
    pub(super) admin: Option<Placed<Option<SocketAddr>>>,
    pub(super) probes: Option<Placed<Option<SocketAddr>>>,
    pub(super) access_log: AccessLog,
    pub(super) shutdown_grace: Duration,
}

/// A route, and where its parts stand.
pub(super) struct RouteDraft {
    pub(super) route: Route,
    pub(super) name_at: Place,
    pub(super) upstream_at: Place,
    pub(super) trust_at: Option<Place>,
    pub(super) matches_at: Vec<Place>,
    pub(super) monitor_at: Option<Place>,
}

// === RouteDraft ===

impl RouteDraft {
    /// A route that is called what it matches first.
    pub(super) fn new(matches: Vec<Placed<Match>>, upstream: Placed<Name>) -> Self {
        let matches_at: Vec<Place> = matches.iter().map(|one| one.at).collect();
        let matches: Vec<Match> = matches.into_iter().map(|one| one.value).collect();
        let name = route::name_of(matches.first().unwrap_or(&Match::everything()));
        let name_at = matches_at.first().copied().unwrap_or(upstream.at);
        let route = Route::new(name, matches, upstream.value);
        Self { route, name_at, upstream_at: upstream.at, trust_at: None, matches_at, monitor_at: None }
    }
}

// === Draft ===

impl Draft {
    pub(super) fn new() -> Self {
        let Config { access_log, shutdown_grace, .. } = Config::empty();
        Self {
            listeners: Vec::new(),
            upstreams: BTreeMap::new(),
            routes: Vec::new(),
            admin: None,
            probes: None,
            access_log,
            shutdown_grace,
        }
    }

    /// The whole, if it does not contradict itself.
    pub(super) fn finish(self) -> Result<Config, Refused> {
        let begin = Place { line: 1, column: 1 };
        if self.routes.is_empty() {
            return Err(begin.refused(
                "there is no route, so that every request would be answered with 404: write `upstreams` and `routes`, or \
                 add an HTTPRoute",
            ));
        }
        self.names()?;
        self.addresses(begin)?;
        self.matches()?;
        self.upstreams()?;
        self.trust()?;
        let mut listeners: Vec<Listener> = self.listeners.into_iter().map(|placed| placed.value).collect();
        if listeners.is_empty() {
            listeners.push(Listener::new(Name::from("http"), DEFAULT_LISTENER));
        }
        let monitors: Vec<Option<Place>> = self.routes.iter().map(|draft| draft.monitor_at).collect();
        let config = Config {
            listeners,
            upstreams: self.upstreams.into_iter().map(|(name, placed)| (name, placed.value)).collect(),
            routes: self.routes.into_iter().map(|draft| draft.route).collect(),
            admin: self.admin.map_or(Some(DEFAULT_ADMIN), |placed| placed.value),
            probes: self.probes.and_then(|placed| placed.value),
            access_log: self.access_log,
            shutdown_grace: self.shutdown_grace,
        };
        once::monitors(&config, &monitors)?;
        Ok(config)
    }

    fn names(&self) -> Result<(), Refused> {
        let listeners = self.listeners.iter().map(|placed| (&placed.value.name, placed.at));
        only_once("listener", listeners)?;
        only_once("route", self.routes.iter().map(|draft| (&draft.route.name, draft.name_at)))
    }

    /// No two on one address, the admin pages included.
    fn addresses(&self, begin: Place) -> Result<(), Refused> {
        let mut taken: Vec<(SocketAddr, Place, String)> = Vec::new();
        for Placed { at, value } in &self.listeners {
            taken.push((value.address, *at, format!("listener {}", shown(value.name.as_str()))));
        }
        if taken.is_empty() {
            taken.push((DEFAULT_LISTENER, begin, "the listener that there is where none is written".to_owned()));
        }
        if let Some(Placed { at, value: Some(address) }) = &self.probes {
            taken.push((*address, *at, "admin.probes".to_owned()));
        }
        match &self.admin {
            Some(Placed { at, value: Some(address) }) => taken.push((*address, *at, "admin".to_owned())),
            Some(Placed { value: None, .. }) => {}
            None => {
                let first = taken.first().map_or(begin, |(_, at, _)| *at);
                let clash = taken.iter().find(|(address, ..)| clash(*address, DEFAULT_ADMIN));
                if let Some((address, at, who)) = clash {
                    return Err(at.refused(format!(
                        "{who} is on {address}, where the admin pages are unless something else is written: write another \
                         address here, or for admin"
                    )));
                }
                taken.push((DEFAULT_ADMIN, first, "admin".to_owned()));
            }
        }
        for (index, (address, at, who)) in taken.iter().enumerate() {
            if let Some((_, before, other)) = taken.iter().take(index).find(|(other, ..)| clash(*other, *address)) {
                return Err(at.refused(format!(
                    "{who} is on {address}, where {other} is already (line {}): write another address",
                    before.line
                )));
            }
        }
        Ok(())
    }

    /// Of two that match the same, one would never be taken. Nothing else hides a route: see `matching`.
    fn matches(&self) -> Result<(), Refused> {
        let mut seen: Vec<(&Match, &RouteDraft, Place)> = Vec::new();
        for draft in &self.routes {
            for (one, at) in draft.route.matches.iter().zip(&draft.matches_at) {
                if let Some((_, first, before)) = seen.iter().find(|(other, ..)| *other == one) {
                    return Err(at.refused(format!(
                        "{} goes to route {} already (line {}), so that this match would never be taken: delete one of \
                         them, or add a method or a longer path",
                        route::name_of(one),
                        shown(first.route.name.as_str()),
                        before.line
                    )));
                }
                seen.push((one, draft, *at));
            }
        }
        Ok(())
    }

    fn upstreams(&self) -> Result<(), Refused> {
        let names: Vec<&str> = self.upstreams.keys().map(Name::as_str).collect();
        for RouteDraft { route, upstream_at, .. } in &self.routes {
            let Some(upstream) = self.upstreams.get(&route.upstream) else {
                let wanted = route.upstream.as_str();
                let known = if names.is_empty() { ": there are none".to_owned() } else { known(wanted, &names) };
                return Err(upstream_at.refused(format!("there is no upstream `{}`{known}", shown(wanted))));
            };
            if let Some(cap) = upstream.value.cap.filter(|cap| *cap < route.min_useful) {
                return Err(upstream_at.refused(format!(
                    "the cap of upstream {} is {}, and minUseful here is {}: no call would ever be made",
                    shown(route.upstream.as_str()),
                    written(cap),
                    written(route.min_useful)
                )));
            }
        }
        Ok(())
    }

    /// A path is chosen by the caller, so it cannot make one of ours (contract C2).
    fn trust(&self) -> Result<(), Refused> {
        let outside = self.listeners.iter().find(|placed| placed.value.trust == Trust::Outside);
        let (name, known) = match outside {
            Some(placed) => (placed.value.name.as_str(), true),
            None => ("http", self.listeners.is_empty()), // the default one is outside
        };
        let inside = self.routes.iter().find(|draft| draft.route.trust == Some(Trust::Inside));
        match inside.and_then(|draft| draft.trust_at).filter(|_| known) {
            Some(at) => Err(at.refused(format!(
                "listener {} is outside, and a path cannot make its callers ours: write `trust: inside` at the \
                 listener, or delete this line",
                shown(name)
            ))),
            None => Ok(()),
        }
    }
}

fn only_once<'n>(what: &str, names: impl Iterator<Item = (&'n Name, Place)>) -> Result<(), Refused> {
    let mut seen: BTreeMap<&Name, Place> = BTreeMap::new();
    for (name, at) in names {
        if let Some(before) = seen.insert(name, at) {
            let name = shown(name.as_str());
            return Err(
                at.refused(format!("there is a {what} {name} already (line {}): write another name", before.line))
            );
        }
    }
    Ok(())
}

/// Whether both cannot be listened on at once. An address for all covers every one with its port.
pub(super) fn clash(one: SocketAddr, other: SocketAddr) -> bool {
    let all = |address: IpAddr| address.is_unspecified();
    let overlap = one.ip() == other.ip()
        || (all(one.ip()) && (one.is_ipv6() || other.is_ipv4()))
        || (all(other.ip()) && (other.is_ipv6() || one.is_ipv4()));
    one.port() != 0 && one.port() == other.port() && overlap
}
