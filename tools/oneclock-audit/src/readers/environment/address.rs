//! Which variables are addresses of somebody who is called.
//!
//! A URL with a known scheme is; so is `host:port` under a key that is named for an address, if the host is one of the
//! same file. Not taken for calls: telemetry, which nobody waits for; what a program is itself reached by (public URLs,
//! listeners, origins); and the own machine.

use std::collections::HashMap;

use super::{has, words};
use crate::inventory::{Name, To};

/// Who else is described in the same file.
#[derive(Default)]
pub(in crate::readers) struct Near<'a> {
    /// By the names they answer to.
    pub(in crate::readers) hosts: HashMap<String, To>,
    /// The namespace that a short name is in.
    pub(in crate::readers) namespace: Option<&'a str>,
    /// In a cluster: `name:port` is a service there, wherever it is described.
    pub(in crate::readers) cluster: bool,
}

/// An address.
pub(super) struct Target {
    /// Who it is.
    pub(super) to: To,
    /// The host, as it is written.
    pub(super) host: String,
    /// The scheme, in lower case and without a driver; empty where there is none.
    pub(super) scheme: String,
    /// What stands behind the `?`.
    pub(super) query: String,
    pub(super) postgres: bool,
    pub(super) streaming: bool,
}

/// Schemes of which nobody uses one for anything but an address.
const SCHEMES: &[&str] = &[
    "http",
    "https",
    "ws",
    "wss",
    "grpc",
    "grpcs",
    "postgres",
    "postgresql",
    "jdbc:postgresql",
    "mysql",
    "mariadb",
    "jdbc:mysql",
    "jdbc:mariadb",
    "redis",
    "rediss",
    "amqp",
    "amqps",
    "mongodb",
    "nats",
    "kafka",
    "memcached",
    "clickhouse",
    "tcp",
];
/// Held open rather than asked.
const STREAMING: &[&str] = &["ws", "wss", "amqp", "amqps", "nats", "kafka"];
/// Keys that are no call whoever stands in them.
const NO_CALL: &[&str] = &[
    "OTEL",
    "JAEGER",
    "ZIPKIN",
    "TELEMETRY",
    "TRACING",
    "METRICS",
    "PROMETHEUS",
    "LOKI",
    "LOG",
    "LOGS",
    "LOGGING",
    "ALLOWED",
    "CORS",
    "CSRF",
    "ORIGIN",
    "ORIGINS",
    "CALLBACK",
    "REDIRECT",
    "ISSUER",
    "ADVERTISED",
    "LISTENER",
    "LISTENERS",
    "LISTEN",
    "BIND",
    "PROXY",
    "REGISTRY",
    "MIRROR",
    "INDEX",
    "TEST",
    "HEALTH",
    "HEALTHCHECK",
];
/// Keys that name the way in from outside, unless the host is one of the same file.
const PUBLIC: &[&str] = &[
    "PUBLIC",
    "EXTERNAL",
    "SITE",
    "ROOT",
    "DOCS",
    "HELP",
    "SUPPORT",
    "HOMEPAGE",
    "DOWNLOAD",
    "LOGO",
    "ICON",
    "AVATAR",
    "SCHEMA",
    "REPO",
    "REPOSITORY",
    "GIT",
    "DOMAIN",
    "LICENSE",
    "TERMS",
    "PRIVACY",
    "VIRTUAL",
];
/// What a key that holds a bare address ends in.
const ADDRESS: &[&str] = &[
    "ADDR", "ADDRESS", "HOST", "HOSTNAME", "URL", "URI", "SERVICE", "ENDPOINT", "SERVER", "SERVERS", "BROKER",
    "BROKERS", "UPSTREAM", "BACKEND", "DSN",
];
/// Longer values hold something else.
const LONGEST: usize = 2048;

/// Whom a variable names.
pub(super) fn targets(key: &str, value: &str, near: &Near<'_>) -> Vec<Target> {
    const MOST: usize = 8;
    let key = words(key);
    let value = value.trim();
    let reports = has(&key, &["SENTRY"]) && has(&key, &["DSN"]);
    if value.is_empty() || value.len() > LONGEST || reports || has(&key, NO_CALL) {
        return Vec::new();
    }
    if value.contains("://") {
        return url(&key, value, near).into_iter().collect();
    }
    if !key.last().is_some_and(|word| ADDRESS.contains(&word.as_str())) {
        return Vec::new();
    }
    value.split(',').take(MOST).filter_map(|one| bare(&key, one.trim(), near)).collect()
}

/// A URL, whoever answers there.
fn url(key: &[String], value: &str, near: &Near<'_>) -> Option<Target> {
    let (scheme, rest) = value.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let scheme = scheme.split('+').next().unwrap_or_default().to_owned();
    if !SCHEMES.contains(&scheme.as_str()) || rest.contains("://") || rest.contains(char::is_whitespace) {
        return None;
    }
    // Of several hosts the first: the others are its replicas.
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at_checked(end)?;
    let authority = authority.split(',').next().unwrap_or_default();
    let name = Name::of(&format!("{scheme}://{authority}"))?;
    let known = near.hosts.contains_key(&name.host);
    if is_own(&name) || (!known && (has(key, PUBLIC) || is_site(key))) {
        return None;
    }
    let query =
        behind.split_once('?').map(|(_, query)| query.split('#').next().unwrap_or_default()).unwrap_or_default();
    let postgres = scheme.ends_with("postgres") || scheme.ends_with("postgresql");
    let streaming = STREAMING.contains(&scheme.as_str());
    Some(Target {
        host: name.host.clone(),
        to: near.resolve(name),
        scheme,
        query: query.to_owned(),
        postgres,
        streaming,
    })
}

/// `BASE_URL`, `APP_URL`, `URL`: the program's own.
fn is_site(key: &[String]) -> bool {
    match key {
        [only] => matches!(only.as_str(), "URL" | "HOST"),
        [.., first, last] => matches!(first.as_str(), "BASE" | "APP" | "SERVER" | "WEB" | "MY") && last == "URL",
        [] => false,
    }
}

/// `db`, `cart:8080`: only where the file has such a host.
fn bare(key: &[String], value: &str, near: &Near<'_>) -> Option<Target> {
    let name = Name::of(value)?;
    if !near.hosts.contains_key(&name.host) && !near.names_ports(&name) {
        return None;
    }
    if is_own(&name) {
        return None;
    }
    let postgres = has(key, &["PG", "PGHOST", "POSTGRES", "POSTGRESQL"]) || name.port == Some(5432);
    let streaming = has(key, &["KAFKA", "RABBITMQ", "AMQP", "NATS", "BROKER", "BROKERS", "BOOTSTRAP"]);
    Some(Target {
        host: name.host.clone(),
        to: near.resolve(name),
        scheme: String::new(),
        query: String::new(),
        postgres,
        streaming,
    })
}

fn is_own(name: &Name) -> bool {
    name.is_loopback()
        || name.is_everywhere()
        || matches!(name.host.as_str(), "example.com" | "host")
        || name.host.ends_with(".example.com")
}

// === Near ===

impl Near<'_> {
    fn resolve(&self, name: Name) -> To {
        match self.hosts.get(&name.host) {
            Some(To::Component(component)) => To::Component(*component),
            _ => To::Name(name.within(self.namespace)),
        }
    }

    fn names_ports(&self, name: &Name) -> bool {
        self.cluster && name.port.is_some() && name.host.chars().any(|c| c.is_ascii_alphabetic())
    }
}
