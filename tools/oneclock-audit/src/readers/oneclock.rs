//! The file of `oneclock proxy`: its listeners, upstreams and routes, with what each route grants.
//!
//! Whatever is not written holds by a default that is finite, and what is written pulls its neighbour along (`ceiling: 1s`
//! alone is also what a request gets that says nothing): what comes out of that is said here, at the line that decides.
//! Callers are told what is left, so every call hands its deadline on; nothing is repeated that may not be.
//!
//! Not read: an `HTTPRoute` in the same file as what it means for this proxy; it counts as one of a gateway.

use std::collections::HashMap;
use std::time::Duration;

use oneclock_yaml::Node;

use super::matched::{MOST_MATCHES, Matched, matched};
use super::proto::{Sayings, at, get, list, text};
use crate::catalogue::known;
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Propagates, Role, To, Why};
use crate::source::{Place, Source};

/// One of these has every file of the proxy.
pub(super) const WORDS: &[&str] = &["upstreams"];

/// What a request gets that says nothing, and the most that anybody gets, where no line says so.
const WHEN_ABSENT: Duration = Duration::from_secs(2);
const CEILING: Duration = Duration::from_secs(10);

/// An upstream, as far as a call to it is bounded by it.
struct Upstream<'a> {
    name: Name,
    cap: Option<&'a Node>,
}

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    let upstreams = get(document, "upstreams").map(Node::entries).unwrap_or_default();
    let is_ours = upstreams.iter().any(|(_, upstream)| get(upstream, "url").is_some())
        && (get(document, "routes").is_some() || get(document, "listeners").is_some());
    if !is_ours {
        return false;
    }
    let mut by_name = HashMap::new();
    for (key, upstream) in upstreams {
        let Some(url) = get(upstream, "url") else { continue };
        match url.text().and_then(Name::of) {
            Some(name) => {
                by_name.insert(key.text.as_str(), Upstream { name, cap: get(upstream, "cap") });
            }
            None => inventory.leave_out(
                Why::NotUnderstood,
                source.of(url),
                "a URL that is no name that could be looked for",
            ),
        }
    }
    let (component, inside) = proxy(source, document, inventory);
    for route in list(document, "routes") {
        let Some(upstream) = text(route, &["upstream"]).and_then(|name| by_name.get(name)) else { continue };
        one(source, route, upstream, component, inside, inventory);
    }
    true
}

/// The proxy, and whether some of its callers are ours.
fn proxy(source: &Source, document: &Node, inventory: &mut Inventory) -> (ComponentId, bool) {
    let listeners = list(document, "listeners");
    let inside = listeners.iter().any(|listener| text(listener, &["trust"]) == Some("inside"));
    let address = |listener: &Node| text(listener, &["address"]).and_then(Name::of);
    let beside = |listener: &Node| {
        text(listener, &["trust"]) == Some("inside") || address(listener).is_some_and(|name| name.is_loopback())
    };
    let role = if listeners.iter().all(beside) { Role::Between } else { Role::Gateway };
    let component = inventory.component("oneclock proxy", "oneclock", role, source.of(document));
    for name in listeners.iter().take(MOST_MATCHES).filter_map(address).filter(|name| !name.is_everywhere()) {
        inventory.answers_to(component, Some(name));
    }
    if listeners.is_empty() {
        inventory.answers_to(component, Name::of("127.0.0.1:8080"));
    }
    let mut says = Sayings::default();
    says.or_default(source, document, "oneclock.shutdown_grace", &["shutdownGrace"]);
    says.of(&On::Component(component), inventory);
    (component, inside)
}

fn one(
    source: &Source,
    route: &Node,
    upstream: &Upstream<'_>,
    from: ComponentId,
    inside: bool,
    inventory: &mut Inventory,
) {
    let stream = at(route, &["kind", "streaming"]);
    let retries = get(route, "retry");
    let inside = inside && text(route, &["trust"]) != Some("outside");
    let granted = Granted::of(route, inside);
    let mut says = Sayings::default();
    match stream {
        Some(stream) => {
            says.add(source, stream, &[("oneclock.stream.idle", &["idle"]), ("oneclock.stream.total", &["total"])]);
            granted.say("oneclock.stream.head", source, route, &mut says);
        }
        None => granted.say(granted.id, source, route, &mut says),
    }
    // A cap that is not below what the route grants never ends anything.
    if let Some((text, place)) =
        upstream.cap.filter(|cap| time(cap) < granted.time).and_then(|cap| read_text(source, cap))
    {
        says.text("oneclock.cap", text, place);
    }
    says.add(source, route, &[("oneclock.backend_request", &["timeouts", "backendRequest"])]);
    if let Some(retries) = retries {
        says.or_default(source, retries, "oneclock.retry.attempts", &["attempts"]);
        says.or_default(source, retries, "oneclock.retry.backoff", &["backoff"]);
    }
    if let Some(keys) = get(route, "idempotency") {
        let rows: &[(&str, &[&str])] =
            &[("oneclock.idempotency.execution", &["execution"]), ("oneclock.idempotency.lease", &["lease"])];
        says.add(source, keys, rows);
        says.or_default(source, keys, "oneclock.idempotency.retention", &["retention"]);
    }
    let matches = list(route, "matches").iter().map(|one| (text(one, &["path", "value"]), text(one, &["method"])));
    for Matched { path, methods } in matched(matches) {
        let name = text(route, &["name"]).or(path.as_deref()).unwrap_or("of every request");
        let mut edge = Edge::new(from, To::Name(upstream.name.clone()), format!("route {name}"), source.of(route));
        edge.path = path;
        edge.methods = methods;
        edge.streaming = stream.is_some();
        edge.propagates = Propagates::Deadline;
        edge.spares_unsafe = retries.map(|_| true);
        let edge = inventory.edge(edge);
        says.of(&On::Edge(edge), inventory);
    }
}

fn read_text<'a>(source: &Source, node: &'a Node) -> Option<(&'a str, Place)> {
    Some((node.text()?, source.of(node)))
}

/// How long a line says; `None` where it says no time.
fn time(node: &Node) -> Option<Duration> {
    known("oneclock.request")?.amount(node.text()?).ok()?.after()
}

/// The most that a route's callers get.
struct Granted<'a> {
    id: &'static str,
    /// The line that decides; `None` for the default.
    line: Option<&'a Node>,
    time: Option<Duration>,
}

// === Granted ===

impl<'a> Granted<'a> {
    /// Outsiders get what a request gets that says nothing, at most; ours may ask for more, up to the ceiling.
    fn of(route: &'a Node, inside: bool) -> Self {
        let request = at(route, &["timeouts", "request"]);
        let (absent, ceiling) = (get(route, "whenAbsent"), get(route, "ceiling"));
        let pulled =
            |line: Option<&'a Node>, pulls: fn(Duration) -> bool| line.filter(|line| time(line).is_some_and(pulls));
        let (id, line, default) = if inside {
            let line = ceiling.or(request).or_else(|| pulled(absent, |time| time > CEILING));
            ("oneclock.ceiling", line, CEILING)
        } else {
            let line = absent.or(request).or_else(|| pulled(ceiling, |time| time < WHEN_ABSENT));
            ("oneclock.when_absent", line, WHEN_ABSENT)
        };
        let by_request = line.is_some() && line.map(|line| line.place) == request.map(|line| line.place);
        let id = if by_request { "oneclock.request" } else { id };
        Self { id, line, time: line.map_or(Some(default), time) }
    }

    fn say(&self, id: &'static str, source: &Source, route: &Node, says: &mut Sayings) {
        match self.line.and_then(|line| read_text(source, line)) {
            Some((text, place)) => says.text(id, text, place),
            None => says.unsaid(id, source.of(route)),
        }
    }
}
