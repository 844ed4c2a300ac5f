//! Listeners: what each of their chains does with what comes in.

use std::collections::HashMap;

use oneclock_yaml::{Node, Place};

use super::super::proto::{Sayings, configuration, get, is, list, text};
use super::{File, clusters, filters, routes};
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Role, To, Why};

/// Routes that more chains than these take are said of the first ones.
const MOST_CHAINS: usize = 8;

/// Reads a listener. The routes that it takes from elsewhere in the file are counted in `taken`.
pub(super) fn read(file: &File<'_>, listener: &Node, taken: &mut HashMap<Place, usize>, inventory: &mut Inventory) {
    let front = Front::of(listener);
    let chains = list(listener, "filter_chains").iter().chain(get(listener, "default_filter_chain"));
    let mut count = 0;
    for filter in chains.flat_map(|chain| list(chain, "filters")) {
        let Some(config) = configuration(filter) else { continue };
        let http =
            ["route_config", "rds", "scoped_routes", "http_filters"].iter().any(|key| get(config, key).is_some());
        let tcp = is(filter, "tcp_proxy", "TcpProxy");
        let redis = is(filter, "redis_proxy", "RedisProxy");
        if !http && !tcp && !redis {
            continue;
        }
        count += 1;
        let component = front.component(file, config, count, inventory);
        if http {
            manager(file, config, component, taken, inventory);
        } else if tcp {
            passed_through(file, config, component, inventory);
        } else {
            keys(file, config, component, inventory);
        }
    }
    if count == 0 {
        inventory.leave_out(Why::NotRead, file.source.of(listener), "a listener without a filter that is read");
    }
}

/// The manager of HTTP connections.
fn manager(
    file: &File<'_>,
    config: &Node,
    component: ComponentId,
    taken: &mut HashMap<Place, usize>,
    inventory: &mut Inventory,
) {
    let source = file.source;
    let mut says = Sayings::default();
    let common = "common_http_protocol_options";
    says.or_default(source, config, "envoy.stream_idle_timeout", &["stream_idle_timeout"]);
    says.or_default(source, config, "envoy.downstream.idle_timeout", &[common, "idle_timeout"]);
    let rows: &[(&str, &[&str])] = &[
        ("envoy.request_timeout", &["request_timeout"]),
        ("envoy.request_headers_timeout", &["request_headers_timeout"]),
        ("envoy.max_stream_duration", &[common, "max_stream_duration"]),
        ("envoy.drain_timeout", &["drain_timeout"]),
    ];
    says.add(source, config, rows);
    says.of(&On::Component(component), inventory);
    filters::read(file, config, component, inventory);
    if let Some(own) = get(config, "route_config") {
        routes::read(file, own, component, inventory);
    } else if let Some(rds) = get(config, "rds") {
        let Some(routes) = text(rds, &["route_config_name"]).and_then(|name| file.routes.get(name)) else {
            return inventory.leave_out(Why::NotRead, source.of(rds), "rds: the routes stand elsewhere");
        };
        let times = taken.entry(routes.place).or_default();
        *times += 1;
        if *times <= MOST_CHAINS {
            routes::read(file, routes, component, inventory);
        }
    } else if let Some(scoped) = get(config, "scoped_routes") {
        inventory.leave_out(Why::NotRead, source.of(scoped), "scoped_routes: routes by scope are not read");
    }
}

/// A connection that is passed through.
fn passed_through(file: &File<'_>, config: &Node, component: ComponentId, inventory: &mut Inventory) {
    let mut says = Sayings::default();
    says.or_default(file.source, config, "envoy.tcp.idle_timeout", &["idle_timeout"]);
    let most = "max_downstream_connection_duration";
    says.add(file.source, config, &[("envoy.tcp.max_downstream_connection_duration", &[most])]);
    says.of(&On::Component(component), inventory);
    for name in routes::chosen(config) {
        for target in file.clusters.targets(name) {
            let mut edge =
                Edge::new(component, To::Name(target), format!("connections to {name}"), file.source.of(config));
            edge.streaming = true;
            let edge = inventory.edge(edge);
            file.clusters.settings(name, edge, false, inventory);
        }
    }
}

/// Operations on Redis.
fn keys(file: &File<'_>, config: &Node, component: ComponentId, inventory: &mut Inventory) {
    let mut says = Sayings::default();
    says.add(file.source, config, &[("envoy.redis.op_timeout", &["settings", "op_timeout"])]);
    let routes = get(config, "prefix_routes");
    let by_prefix = routes.map(|routes| list(routes, "routes")).unwrap_or_default().iter();
    let rest = routes.and_then(|routes| get(routes, "catch_all_route"));
    let names = by_prefix.chain(rest).filter_map(|route| text(route, &["cluster"])).chain(text(config, &["cluster"]));
    for name in names {
        for target in file.clusters.targets(name) {
            let edge = Edge::new(component, To::Name(target), format!("operations on {name}"), file.source.of(config));
            let edge = inventory.edge(edge);
            says.of(&On::Edge(edge), inventory);
            file.clusters.settings(name, edge, false, inventory);
        }
    }
}

/// What the chains of a listener have in common.
struct Front {
    name: String,
    role: Role,
    /// Where it listens, if that is one place.
    bound: Option<Name>,
}

// === Front ===

impl Front {
    fn of(listener: &Node) -> Self {
        let address = get(listener, "address");
        let written = address.and_then(|address| get(address, "socket_address")).map(|address| {
            format!("{}:{}", text(address, &["address"]).unwrap_or("*"), text(address, &["port_value"]).unwrap_or("*"))
        });
        let name = text(listener, &["name"]).map(str::to_owned).or(written).unwrap_or_else(|| "listener".to_owned());
        let bound = address.and_then(clusters::address);
        // A sidecar: it listens for the one program beside it, or says itself which way it looks.
        let beside = bound.as_ref().is_some_and(Name::is_loopback) || text(listener, &["traffic_direction"]).is_some();
        let role = if beside { Role::Between } else { Role::Gateway };
        Self { name, role, bound: bound.filter(|name| !name.is_everywhere()) }
    }

    /// One chain, of which this is the `count`th.
    fn component(&self, file: &File<'_>, config: &Node, count: usize, inventory: &mut Inventory) -> ComponentId {
        let more = if count > 1 { format!(", chain {count}") } else { String::new() };
        let name = format!("Envoy {}{more}", self.name);
        let component = inventory.component(name, "Envoy", self.role, file.source.of(config));
        inventory.answers_to(component, self.bound.clone());
        component
    }
}
