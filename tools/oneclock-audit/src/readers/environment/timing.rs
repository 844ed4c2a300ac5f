//! What a variable says about time.
//!
//! Products' own variables come first; then the words of the name, for the call that the name is about. `CACHE_TIMEOUT`,
//! `SESSION_TIMEOUT` and their like bound no call, and are not mentioned.

use super::super::jdbc;
use super::address::Target;
use super::{Call, Variable, has, spring, words};
use crate::inventory::{ComponentId, EdgeId, Inventory, On, Why};
use crate::source::Place;

/// Times that are about something else than a call.
const ELSEWHERE: &[&str] = &[
    "SESSION",
    "COOKIE",
    "TOKEN",
    "CACHE",
    "LOGIN",
    "JWT",
    "HEALTH",
    "HEALTHCHECK",
    "HEALTHCHECKS",
    "PROBE",
    "READINESS",
    "LIVENESS",
    "READY",
    "STARTUP",
    "BOOT",
    "WAIT",
    "BUILD",
    "TEST",
    "TESTS",
    "CI",
    "CUB",
    "KEEPALIVE",
    "ALIVE",
    "PASSWORD",
    "RESET",
    "EXPIRY",
    "EXPIRE",
    "TTL",
    "BAN",
    "LOCKOUT",
    "INVITE",
    "OTP",
    "DNS",
    "PING",
    "HEARTBEAT",
    "LEASE",
    "LOG",
    "OTEL",
    "SENTRY",
    "INSTALL",
];
/// Words that say how, not whom.
const GENERIC: &[&str] = &[
    "TIMEOUT",
    "TIMEOUTS",
    "DEADLINE",
    "CONNECT",
    "CONNECTION",
    "DIAL",
    "READ",
    "SOCKET",
    "IDLE",
    "INACTIVITY",
    "REQUEST",
    "CALL",
    "RPC",
    "HTTP",
    "HTTPS",
    "GRPC",
    "CLIENT",
    "API",
    "SERVICE",
    "DEFAULT",
    "MAX",
    "TOTAL",
    "OVERALL",
    "POOL",
    "ACQUIRE",
    "CHECKOUT",
    "STATEMENT",
    "QUERY",
    "MS",
    "MSEC",
    "MILLIS",
    "MILLISECONDS",
    "S",
    "SEC",
    "SECS",
    "SECOND",
    "SECONDS",
    "MIN",
    "MINS",
    "MINUTE",
    "MINUTES",
    "RETRIES",
    "RETRY",
    "ATTEMPTS",
    "BACKOFF",
    "DELAY",
    "COUNT",
    "NUM",
    "NUMBER",
    "OF",
    "IN",
    "URL",
    "URI",
    "HOST",
    "ADDR",
];

/// Reads a variable's time, if it has one.
pub(super) fn read(variable: &Variable, component: ComponentId, calls: &[Call], inventory: &mut Inventory) {
    let key = words(&variable.key);
    if spring::read(variable, &key, component, calls, inventory)
        || product(variable, &key, component, calls, inventory)
        || has(&key, ELSEWHERE)
    {
        return;
    }
    let Some(id) = kind(&key) else { return };
    if id == "environment.grace" {
        say(On::Component(component), id, &key, variable, inventory);
        return;
    }
    let about: Vec<&String> = key.iter().filter(|word| !GENERIC.contains(&word.as_str())).collect();
    let is_its = |call: &&Call| !about.is_empty() && about.iter().all(|word| call.words.contains(word));
    let mut matching = calls.iter().filter(is_its);
    match (matching.next(), matching.next()) {
        (Some(call), None) => say(On::Edge(call.edge), id, &key, variable, inventory),
        _ if matches!(id, "environment.statement" | "environment.pool_wait") => {
            say(On::Component(component), id, &key, variable, inventory);
        }
        _ if !key.contains(&"TIMEOUT".to_owned()) => {}
        _ if variable.value.chars().any(|c| c.is_ascii_digit()) => {
            let says =
                format!("{}: which call it bounds is not known; declare the call in the topology file", variable.key);
            // Services that share a file of variables would say the same over and over.
            let told = inventory.left_out.iter().rev().take(32).any(|left| left.place == variable.place);
            if !told {
                inventory.leave_out(Why::NotUnderstood, variable.place.clone(), says);
            }
        }
        _ => {}
    }
}

/// What the words say it limits.
fn kind(key: &[String]) -> Option<&'static str> {
    if has(key, &["RETRIES"]) {
        return Some("environment.retries");
    }
    if has(key, &["ATTEMPTS"]) {
        return Some("environment.attempts");
    }
    if has(key, &["BACKOFF"]) || (has(key, &["RETRY"]) && has(key, &["DELAY"])) {
        return Some("environment.backoff");
    }
    if !has(key, &["TIMEOUT", "DEADLINE"]) {
        return None;
    }
    Some(match key {
        key if has(key, &["SHUTDOWN", "GRACEFUL", "GRACE", "DRAIN", "TERMINATION"]) => "environment.grace",
        key if has(key, &["POOL", "ACQUIRE", "CHECKOUT"]) => "environment.pool_wait",
        key if has(key, &["STATEMENT"]) => "environment.statement",
        key if has(key, &["CONNECT", "CONNECTION", "DIAL"]) => "environment.connect",
        key if has(key, &["READ", "SOCKET", "IDLE", "INACTIVITY"]) => "environment.idle",
        key if has(key, &["TOTAL", "OVERALL", "DEADLINE"]) => "environment.total",
        _ => "environment.attempt",
    })
}

/// Says it with the unit of the name; without one, and without one in the value, it is unknown.
fn say(on: On, id: &str, key: &[String], variable: &Variable, inventory: &mut Inventory) {
    let value = variable.value.trim();
    let bare = !value.is_empty() && value.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '_'));
    let counts = matches!(id, "environment.retries" | "environment.attempts");
    match unit(key) {
        _ if value.is_empty() => {}
        _ if !bare || counts => inventory.say(on, id, value, variable.place.clone()),
        Some(unit) => inventory.say(on, id, &format!("{value}{unit}"), variable.place.clone()),
        None => inventory.unknown(on, id, &format!("{value}, of which no unit is known"), variable.place.clone()),
    }
}

fn unit(key: &[String]) -> Option<&'static str> {
    Some(match key.last()?.as_str() {
        "MS" | "MSEC" | "MILLIS" | "MILLISECONDS" => "ms",
        "S" | "SEC" | "SECS" | "SECOND" | "SECONDS" => "s",
        "MIN" | "MINS" | "MINUTE" | "MINUTES" => "min",
        _ => return None,
    })
}

/// Keys that a product itself reads: the same names and units wherever they stand.
const PRODUCTS: &[(&str, &str)] = &[
    ("GUNICORN_TIMEOUT", "gunicorn.heartbeat"),
    ("GUNICORN_WORKER_TIMEOUT", "gunicorn.heartbeat"),
    ("GUNICORN_GRACEFUL_TIMEOUT", "gunicorn.graceful_timeout"),
    ("GUNICORN_KEEPALIVE", "gunicorn.keepalive"),
    ("GUNICORN_KEEP_ALIVE", "gunicorn.keepalive"),
    ("UVICORN_TIMEOUT_KEEP_ALIVE", "uvicorn.keep_alive"),
    ("UVICORN_TIMEOUT_GRACEFUL_SHUTDOWN", "uvicorn.graceful_shutdown"),
    ("UWSGI_HARAKIRI", "uwsgi.harakiri"),
    ("UWSGI_HTTP_TIMEOUT", "uwsgi.http_timeout"),
    ("UWSGI_SOCKET_TIMEOUT", "uwsgi.socket_timeout"),
];

/// Whether some product reads this key.
pub(in crate::readers) fn is_product_key(key: &str) -> bool {
    known_key(key).is_some() || matches!(key, "PGCONNECT_TIMEOUT" | "PGOPTIONS" | "GUNICORN_CMD_ARGS")
}

/// `SHOP_GUNICORN_TIMEOUT` is `GUNICORN_TIMEOUT` of some shop.
fn known_key(key: &str) -> Option<&'static str> {
    let is = |known: &str| key == known || key.strip_suffix(known).is_some_and(|before| before.ends_with('_'));
    PRODUCTS.iter().find(|(known, _)| is(known)).map(|(_, id)| *id)
}

fn product(
    variable: &Variable,
    key: &[String],
    component: ComponentId,
    calls: &[Call],
    inventory: &mut Inventory,
) -> bool {
    let value = variable.value.trim();
    let place = &variable.place;
    // What bounds the sessions of PostgreSQL is about the calls to one, where there are any.
    let postgres = |id: &str, text: &str, inventory: &mut Inventory| {
        let mut any = false;
        for call in calls.iter().filter(|call| call.postgres) {
            inventory.say(On::Edge(call.edge), id, text, place.clone());
            any = true;
        }
        if !any {
            inventory.say(On::Component(component), id, text, place.clone());
        }
    };
    match variable.key.as_str() {
        _ if value.is_empty() => is_product_key(&variable.key),
        "PGCONNECT_TIMEOUT" => {
            postgres("libpq.connect", value, inventory);
            true
        }
        "PGOPTIONS" => {
            if let Some(text) = option(value, "statement_timeout") {
                postgres("libpq.statement_timeout", text, inventory);
            }
            true
        }
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS" => {
            let mut rest = value.split_whitespace().skip_while(|word| *word != "consumer_timeout");
            if let Some(text) = rest.nth(1) {
                inventory.say(On::Component(component), "rabbitmq.consumer_timeout", text, place.clone());
            }
            true
        }
        name => match known_key(name) {
            Some(id) => {
                inventory.say(On::Component(component), id, value, place.clone());
                true
            }
            None => name == "GUNICORN_CMD_ARGS" || key.is_empty(),
        },
    }
}

/// `statement_timeout` of `-c statement_timeout=5s -c lock_timeout=1s`.
fn option<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let at = text.find(name)?;
    let rest = text.get(at + name.len()..)?.trim_start().strip_prefix('=')?.trim_start();
    let value = rest.split(|c: char| c.is_whitespace() || c == '&').next()?;
    let value = value.trim_matches(['\'', '"']);
    (!value.is_empty()).then_some(value)
}

/// What a URL says behind its `?`.
pub(super) fn parameters(target: &Target, edge: EdgeId, place: &Place, inventory: &mut Inventory) {
    let driver = target.scheme.strip_prefix("jdbc:");
    for jdbc::Parameter { name, id, .. } in driver.map(jdbc::parameters).unwrap_or_default() {
        if let Some(text) = driver.and_then(|driver| jdbc::written(&target.query, driver, name)) {
            inventory.say(On::Edge(edge), id, text, place.clone());
        }
    }
    for pair in target.query.split('&') {
        let Some((name, value)) = pair.split_once('=') else { continue };
        let id = match (name, driver.is_some(), target.postgres) {
            ("connect_timeout", false, true) => "libpq.connect",
            ("tcp_user_timeout", false, true) => "libpq.tcp_user_timeout",
            ("statement_timeout", false, true) => "libpq.statement_timeout",
            ("options", _, true) => {
                let plain = value.replace("%20", " ").replace('+', " ").replace("%3D", "=").replace("%3d", "=");
                if let Some(text) = option(&plain, "statement_timeout") {
                    inventory.say(On::Edge(edge), "libpq.statement_timeout", text, place.clone());
                }
                continue;
            }
            _ => continue,
        };
        inventory.say(On::Edge(edge), id, value, place.clone());
    }
}
