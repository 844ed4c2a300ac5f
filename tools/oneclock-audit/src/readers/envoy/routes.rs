//! Routes: which request goes to which cluster, how long it may take, and how often it is tried.

use oneclock_yaml::Node;

use super::super::proto::{Sayings, at, get, list, text};
use super::File;
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Propagates, To, Why, is_repeatable};

/// More names than these of one component say nothing about it.
const MOST_NAMES: usize = 64;

/// More calls than people describe in one file; the rest of it is listed as too large.
const MOST_CALLS: usize = 20_000;

/// More methods than there are.
const MOST_METHODS: usize = 16;

/// After these conditions a request was not worked on, so that any may be repeated.
const UNTOUCHED: &[&str] = &["connect-failure", "refused-stream", "reset-before-request", "envoy-ratelimited"];

/// The routes of a component.
pub(super) fn read(file: &File<'_>, routes: &Node, component: ComponentId, inventory: &mut Inventory) {
    let hosts = list(routes, "virtual_hosts");
    let domains = hosts.iter().flat_map(|host| get(host, "domains").map(Node::items).unwrap_or_default());
    for domain in domains.filter_map(Node::text).filter_map(Name::of).take(MOST_NAMES) {
        inventory.answers_to(component, Some(domain));
    }
    for host in hosts {
        if let Some(tree) = get(host, "matcher") {
            inventory.leave_out(Why::NotRead, file.source.of(tree), "matcher: routes as a tree are not read");
        }
        let hedges = hedges(host);
        let retries = get(host, "retry_policy").and_then(|policy| Retries::of(file, policy, inventory));
        for route in list(host, "routes") {
            // A redirect and an answer that stands in the file call nobody.
            let Some(action) = get(route, "route") else { continue };
            if inventory.edges.len() >= file.calls_before.saturating_add(MOST_CALLS) {
                let says = format!("more than {MOST_CALLS} calls in one file; the routes from here on are not read");
                return inventory.leave_out(Why::TooLarge, file.source.of(route), says);
            }
            match get(action, "retry_policy") {
                Some(own) => {
                    let own = Retries::of(file, own, inventory);
                    one(file, route, action, own.as_ref(), hedges, component, inventory);
                }
                None => one(file, route, action, retries.as_ref(), hedges, component, inventory),
            }
        }
    }
}

/// The clusters that an action names.
pub(super) fn chosen(action: &Node) -> impl Iterator<Item = &str> {
    let weighted = get(action, "weighted_clusters").map(|all| list(all, "clusters")).unwrap_or_default();
    text(action, &["cluster"]).into_iter().chain(weighted.iter().filter_map(|one| text(one, &["name"])))
}

fn one(
    file: &File<'_>,
    route: &Node,
    action: &Node,
    retries: Option<&Retries>,
    hedges: bool,
    from: ComponentId,
    inventory: &mut Inventory,
) {
    let matched = Matched::of(route);
    let says = settings(file, route, action);
    let hedged = hedges || self::hedges(action);
    let streaming = matched.connect || upgrades(action);
    let mut found = false;
    for cluster in chosen(action) {
        found = true;
        let targets = file.clusters.targets(cluster);
        if targets.is_empty() {
            let says = format!("`{}` is no name that could be looked for", crate::amount::shortened(cluster));
            inventory.leave_out(Why::NotUnderstood, file.source.of(action), says);
        }
        for target in targets {
            let label = format!("route {} to {cluster}", matched.path.unwrap_or("*"));
            let mut edge = Edge::new(from, To::Name(target), label, file.source.of(action));
            edge.methods.clone_from(&matched.methods);
            edge.path = matched.path.map(str::to_owned);
            edge.streaming = streaming;
            edge.propagates =
                if matched.grpc && limits_grpc(action) { Propagates::Deadline } else { Propagates::Unknown };
            edge.spares_unsafe = retries.map(|retries| retries.spares_unsafe);
            let edge = inventory.edge(edge);
            says.of(&On::Edge(edge), inventory);
            if let Some(retries) = retries {
                retries.says.of(&On::Edge(edge), inventory);
                let attempt = if hedged { &retries.hedged } else { &retries.attempt };
                attempt.of(&On::Edge(edge), inventory);
            }
            file.clusters.settings(cluster, edge, true, inventory);
        }
    }
    if !found {
        inventory.leave_out(
            Why::NotRead,
            file.source.of(action),
            "a route whose cluster the request or a plug-in chooses",
        );
    }
}

/// Whether the route takes its limit from what the client asks for in `grpc-timeout`; otherwise that header passes as it
/// came, and says nothing of the limit of the route.
fn limits_grpc(action: &Node) -> bool {
    at(action, &["max_stream_duration", "grpc_timeout_header_max"])
        .or_else(|| get(action, "max_grpc_timeout"))
        .is_some()
}

fn settings(file: &File<'_>, route: &Node, action: &Node) -> Sayings {
    let mut says = Sayings::default();
    says.or_default(file.source, action, "envoy.route.timeout", &["timeout"]);
    let rows: &[(&str, &[&str])] = &[
        ("envoy.route.idle_timeout", &["idle_timeout"]),
        ("envoy.route.max_stream_duration", &["max_stream_duration", "max_stream_duration"]),
        ("envoy.route.grpc_timeout_header_max", &["max_stream_duration", "grpc_timeout_header_max"]),
        ("envoy.route.grpc_timeout_header_offset", &["max_stream_duration", "grpc_timeout_header_offset"]),
        ("envoy.route.max_grpc_timeout", &["max_grpc_timeout"]),
    ];
    says.add(file.source, action, rows);
    let filters = get(route, "typed_per_filter_config").map(Node::entries).unwrap_or_default();
    if let Some((_, fault)) = filters.iter().find(|(key, _)| key.text.ends_with(".fault")) {
        says.add(file.source, fault, &[("envoy.fault.fixed_delay", &["delay", "fixed_delay"])]);
    }
    says
}

/// A policy by which something is tried again.
struct Retries {
    says: Sayings,
    /// The limit of an attempt, and the same where another one is begun beside it.
    attempt: Sayings,
    hedged: Sayings,
    spares_unsafe: bool,
}

// === Retries ===

impl Retries {
    /// `None` where the policy names no condition, and so nothing is tried again.
    fn of(file: &File<'_>, policy: &Node, inventory: &mut Inventory) -> Option<Self> {
        if text(policy, &["retry_on"]).is_none_or(|conditions| conditions.trim().is_empty()) {
            let says = "retry_policy without retry_on: nothing is tried again, unless a request asks for it";
            inventory.leave_out(Why::NotUnderstood, file.source.of(policy), says);
            return None;
        }
        let mut says = Sayings::default();
        says.or_default(file.source, policy, "envoy.retry.num_retries", &["num_retries"]);
        says.or_default(file.source, policy, "envoy.retry.base_interval", &["retry_back_off", "base_interval"]);
        says.add(file.source, policy, &[("envoy.retry.per_try_idle_timeout", &["per_try_idle_timeout"])]);
        let attempt = |id| {
            let mut says = Sayings::default();
            says.add(file.source, policy, &[(id, &["per_try_timeout"])]);
            says
        };
        let hedged = attempt("envoy.retry.per_try_timeout.hedged");
        Some(Self {
            says,
            attempt: attempt("envoy.retry.per_try_timeout"),
            hedged,
            spares_unsafe: spares_unsafe(policy),
        })
    }
}

/// Whether an attempt that takes too long goes on beside the next one.
fn hedges(node: &Node) -> bool {
    text(node, &["hedge_policy", "hedge_on_per_try_timeout"]) == Some("true")
}

/// Envoy repeats every method, so only two things spare a POST: conditions under which nobody has worked on it, and a
/// list of the requests that are repeated.
fn spares_unsafe(policy: &Node) -> bool {
    let conditions = text(policy, &["retry_on"]).unwrap_or_default();
    let untouched = conditions.split(',').all(|condition| UNTOUCHED.contains(&condition.trim()));
    let named: Vec<&str> = list(policy, "retriable_request_headers").iter().filter_map(method).collect();
    untouched || (!named.is_empty() && named.iter().all(|method| is_repeatable(method)))
}

/// Whether requests may become something else, a WebSocket as a rule.
fn upgrades(action: &Node) -> bool {
    list(action, "upgrade_configs").iter().any(|upgrade| text(upgrade, &["enabled"]) != Some("false"))
}

/// Which method a header matcher asks for.
fn method(header: &Node) -> Option<&str> {
    let inverted = text(header, &["invert_match"]) == Some("true");
    let exact = text(header, &["string_match", "exact"]).or_else(|| text(header, &["exact_match"]));
    exact.filter(|_| !inverted && text(header, &["name"]) == Some(":method"))
}

/// Which requests a route is for.
struct Matched<'a> {
    path: Option<&'a str>,
    methods: Vec<String>,
    grpc: bool,
    connect: bool,
}

// === Matched ===

impl<'a> Matched<'a> {
    fn of(route: &'a Node) -> Self {
        let paths: &[&[&str]] = &[
            &["match", "prefix"],
            &["match", "path"],
            &["match", "path_separated_prefix"],
            &["match", "safe_regex", "regex"],
            &["match", "regex"],
        ];
        let headers = get(route, "match").map(|matched| list(matched, "headers")).unwrap_or_default();
        Self {
            path: paths.iter().find_map(|path| text(route, path)),
            methods: headers.iter().filter_map(method).take(MOST_METHODS).map(str::to_owned).collect(),
            grpc: at(route, &["match", "grpc"]).is_some(),
            connect: at(route, &["match", "connect_matcher"]).is_some(),
        }
    }
}
