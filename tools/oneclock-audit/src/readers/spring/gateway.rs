//! Spring Cloud Gateway: its routes, the filters that repeat or limit a call, and the timeouts of its client.

use super::App;
use super::resilience::{limiter_is_off, time_limit};
use super::tree::Tree;
use crate::inventory::{EdgeId, Inventory, On, is_repeatable};
use crate::source::Place;

/// Where routes stand: older and newer names, and the servlet kind.
const PREFIXES: &[&str] = &[
    "spring.cloud.gateway",
    "spring.cloud.gateway.server.webflux",
    "spring.cloud.gateway.mvc",
    "spring.cloud.gateway.server.webmvc",
];

/// Filters for all routes, of which no more are read: each of them is told for every route.
const MOST_GENERAL: usize = 8;

/// A filter: its name, and its arguments as they are written.
struct Filter {
    name: String,
    arguments: Vec<(String, String, Place)>,
    place: Place,
}

pub(super) fn is_one(document: &Tree) -> bool {
    document.at("zuul.routes").is_some() || PREFIXES.iter().any(|prefix| document.at(prefix).is_some())
}

pub(super) fn read(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    for prefix in PREFIXES {
        let Some(gateway) = document.at(prefix) else { continue };
        let mut general = filters(gateway, "default-filters");
        general.truncate(MOST_GENERAL);
        let mut any = false;
        for route in gateway.at("routes").into_iter().flat_map(Tree::children) {
            any = true;
            one_route(app, gateway, prefix, route, &general, inventory);
        }
        if !any {
            let rows = [
                ("spring.gateway.connect_timeout", "httpclient.connect-timeout"),
                ("spring.gateway.response_timeout", "httpclient.response-timeout"),
            ];
            app.say_all(gateway, &rows, &app.itself(), inventory);
        }
    }
}

fn one_route(app: &App<'_>, gateway: &Tree, prefix: &str, route: &Tree, general: &[Filter], inventory: &mut Inventory) {
    let block = route.place(&app.start);
    let Some((uri, _)) = route.written("uri") else { return };
    let label = format!("route {}", route.text("id").unwrap_or_default());
    let Some(edge) = app.call(
        uri.strip_prefix("lb:").filter(|rest| rest.contains("://")).unwrap_or(uri),
        label.trim_end(),
        block.clone(),
        inventory,
    ) else {
        return;
    };
    let predicates = filters(route, "predicates");
    if let Some(edge) = inventory.edges.get_mut(edge.0) {
        let of = |name: &str| predicates.iter().find(|one| one.name.eq_ignore_ascii_case(name));
        edge.path = of("Path").and_then(|path| path.arguments.first()).map(|(_, value, _)| value.clone());
        let methods = of("Method").map(|method| method.arguments.iter().map(|(_, value, _)| value.clone()).collect());
        edge.methods = methods.unwrap_or_default();
        edge.streaming = uri.contains("ws://") || uri.contains("wss://");
    }
    let on = On::Edge(edge);
    let client = !prefix.ends_with("mvc");
    for (own, id, path, general_id) in [
        (
            "metadata.connect-timeout",
            "spring.gateway.route.connect_timeout",
            "httpclient.connect-timeout",
            "spring.gateway.connect_timeout",
        ),
        (
            "metadata.response-timeout",
            "spring.gateway.route.response_timeout",
            "httpclient.response-timeout",
            "spring.gateway.response_timeout",
        ),
    ] {
        match (route.written(own), gateway.written(path)) {
            // Below zero turns the general one off.
            (Some((text, place)), _) => {
                inventory.say(on.clone(), id, if text.starts_with('-') { "-1" } else { text }, place)
            }
            (None, Some((text, place))) => inventory.say(on.clone(), general_id, text, place),
            (None, None) if client => app.default(&on, general_id, &[&format!("{prefix}.{path}")], &block, inventory),
            (None, None) => {}
        }
    }
    let own = filters(route, "filters");
    let all: Vec<&Filter> = general.iter().chain(&own).collect();
    let mut repeats = false;
    for filter in all {
        if filter.name.eq_ignore_ascii_case("Retry") {
            retry(filter, edge, inventory);
            repeats = true;
        } else if filter.name.eq_ignore_ascii_case("CircuitBreaker") {
            breaker(app, filter, edge, repeats, inventory);
        } else if filter.name.eq_ignore_ascii_case("Hystrix") {
            hystrix(app, filter, edge, inventory);
        }
    }
}

fn retry(filter: &Filter, edge: EdgeId, inventory: &mut Inventory) {
    let on = On::Edge(edge);
    let argument = |names: &[&str]| {
        filter.arguments.iter().find(|(name, _, _)| names.iter().any(|wanted| name.eq_ignore_ascii_case(wanted)))
    };
    let retries = argument(&["retries"]).map(|(_, text, place)| (text.as_str(), place.clone()));
    inventory.say_or_default(on.clone(), "spring.gateway.retry.retries", retries, &filter.place);
    if let Some((_, text, place)) = argument(&["backoff.firstBackoff", "firstBackoff"]) {
        inventory.say(on, "spring.gateway.retry.first_backoff", text, place.clone());
    }
    // GET alone, unless others are listed.
    let listed: Vec<&str> = filter
        .arguments
        .iter()
        .filter(|(name, _, _)| {
            name.eq_ignore_ascii_case("methods") || name.to_ascii_lowercase().starts_with("methods.")
        })
        .flat_map(|(_, text, _)| text.split(','))
        .map(str::trim)
        .collect();
    let spares = listed.iter().all(|method| is_repeatable(method));
    if let Some(edge) = inventory.edges.get_mut(edge.0) {
        edge.spares_unsafe = Some(spares && edge.spares_unsafe != Some(false));
    }
}

/// The breaker limits the call too, whether or not anybody asked for that; it limits one attempt where the retry stands
/// in front of it, and all of them where it stands in front of the retry.
fn breaker(app: &App<'_>, filter: &Filter, edge: EdgeId, inside_retry: bool, inventory: &mut Inventory) {
    let on = On::Edge(edge);
    let id = if inside_retry { "spring.circuitbreaker.attempt_limit" } else { "spring.circuitbreaker.time_limit" };
    let name = filter.arguments.iter().find(|(name, _, _)| name.eq_ignore_ascii_case("name"));
    let name = name.map_or("", |(_, text, _)| text.as_str());
    if let Some((_, place)) = limiter_is_off(app, name) {
        inventory.say(on, id, "off", place);
    } else if let Some((text, place)) = time_limit(app, name) {
        inventory.say(on, id, text, place);
    } else if app.limited_in_code() {
        inventory.unknown(on, id, "set in code: TimeLimiterConfig", filter.place.clone());
    } else {
        let own = format!("resilience4j.timelimiter.instances.[{name}].timeout-duration");
        app.default(&on, id, &[&own], &filter.place, inventory);
    }
}

/// The older breaker has a limit of its own.
fn hystrix(app: &App<'_>, filter: &Filter, edge: EdgeId, inventory: &mut Inventory) {
    let named = filter.arguments.iter().find(|(name, _, _)| name.eq_ignore_ascii_case("name"));
    let limit = |command: &str| {
        let path = format!("hystrix.command.[{command}].execution.isolation.thread.timeoutInMilliseconds");
        app.documents.iter().find_map(|document| document.written(&path))
    };
    let on = On::Edge(edge);
    match named.and_then(|(_, name, _)| limit(name)).or_else(|| limit("default")) {
        Some((text, place)) => inventory.say(on, "spring.hystrix.thread_timeout", text, place),
        None => app.default(&on, "spring.hystrix.thread_timeout", &["timeoutInMilliseconds"], &filter.place, inventory),
    }
}

/// `- Retry=3,BAD_GATEWAY`, `- CircuitBreaker=name=x,fallbackUri=/y`, or a name with arguments.
fn filters(tree: &Tree, path: &str) -> Vec<Filter> {
    const ORDER: &[(&str, &[&str])] =
        &[("retry", &["retries", "statuses", "methods"]), ("circuitbreaker", &["name"]), ("hystrix", &["name"])];
    let mut found = Vec::new();
    for one in tree.at(path).into_iter().flat_map(Tree::children) {
        if let Some((text, place)) = one.own() {
            let (name, rest) = text.split_once('=').unwrap_or((text, ""));
            let order = ORDER
                .iter()
                .find(|(known, _)| name.trim().eq_ignore_ascii_case(known))
                .map_or(&[][..], |(_, order)| order);
            let arguments = rest.split(',').filter(|part| !part.trim().is_empty()).enumerate().map(|(index, part)| {
                let named = part.split_once('=').filter(|_| !order.is_empty());
                let (key, value) = named.unwrap_or_else(|| (order.get(index).copied().unwrap_or(""), part));
                (key.trim().to_owned(), value.trim().to_owned(), place.clone())
            });
            found.push(Filter { name: name.trim().to_owned(), arguments: arguments.collect(), place: place.clone() });
        } else if let Some((name, place)) = one.written("name") {
            let mut arguments = Vec::new();
            for argument in one.at("args").into_iter().flat_map(Tree::children) {
                if let Some((text, place)) = argument.own() {
                    arguments.push((argument.name.clone(), text.to_owned(), place));
                }
                for inner in argument.children() {
                    if let Some((text, place)) = inner.own() {
                        arguments.push((format!("{}.{}", argument.name, inner.name), text.to_owned(), place));
                    }
                }
            }
            found.push(Filter { name: name.to_owned(), arguments, place });
        }
    }
    found
}
