//! A configuration as a file: everything that holds, also what was not written, and no password.
//!
//! Decides the order of the keys, which is that of the reference. What is printed is read again to the same.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use oneclock_core::ingress::{Coverage, OnMalformed};
use oneclock_core::wire::{Convention, Conventions, Declared};
use oneclock_core::{Name, Trust};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::values::written;
use super::{
    AccessLog, Concurrency, Config, Idempotency, IdempotencyStore, Listener, LogTo, Match, PathMatch, Principal, Retry,
    Route, Share, Tls, Upstream, UpstreamTls, redact,
};
use crate::digest::Digest;

/// A document that is written: mappings keep their order.
enum Out {
    Text(String),
    Number(u64),
    Share(Share),
    Flag(bool),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

// === Config ===

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_saphyr::to_string(&whole(self)).map_err(|_| fmt::Error)?;
        f.write_str(text.trim_end())?;
        f.write_str("\n")
    }
}

impl Config {
    /// What two configurations have in common that are printed the same: 16 hexadecimal digits, as the admin pages and metrics
    /// of a proxy show them. Passwords are not printed, and have no part in it.
    ///
    /// ```
    /// # use oneclock_proxy::config::Config;
    /// let config = Config::simple("127.0.0.1:8080".parse()?, "http://127.0.0.1:3000")?;
    /// assert_eq!(Config::parse(&config.to_string())?.hash(), config.hash());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hash(&self) -> String {
        let mut hash = Digest::of([self.to_string()]).to_string();
        hash.truncate(16);
        hash
    }

    /// The same as JSON, with the keys of a file.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(whole(self)).unwrap_or_default() // its keys are text, so it is JSON
    }
}

fn whole(config: &Config) -> Out {
    let Config { listeners, upstreams, routes, admin, probes, access_log, shutdown_grace } = config;
    let upstreams = upstreams.iter().map(|(name, one)| (name.as_str().to_owned(), upstream(one)));
    map([
        ("listeners", Out::List(listeners.iter().map(listener).collect())),
        ("upstreams", Out::Map(upstreams.collect())),
        ("routes", Out::List(routes.iter().map(route).collect())),
        ("admin", pages(*admin, *probes)),
        ("accessLog", lines(access_log)),
        ("shutdownGrace", text(written(*shutdown_grace))),
    ])
}

/// In its short form, if that says it all.
fn pages(admin: Option<SocketAddr>, probes: Option<SocketAddr>) -> Out {
    let place = |at: Option<SocketAddr>| text(at.map_or_else(|| "none".to_owned(), |address| address.to_string()));
    if probes.is_none() { place(admin) } else { map([("pages", place(admin)), ("probes", place(probes))]) }
}

/// In its short form, if that says it all.
fn lines(log: &AccessLog) -> Out {
    let AccessLog { to, sample, refusals } = log;
    let place = text(to.to_string());
    let by_default = AccessLog { to: to.clone(), ..AccessLog::default() } == *log;
    if by_default || *to == LogTo::Nowhere {
        return place;
    }
    let refusals = Out::Number(u64::from(*refusals));
    map([("to", place), ("sample", Out::Share(*sample)), ("refusals", refusals)])
}

fn listener(listener: &Listener) -> Out {
    let Listener { name, address, tls, trust, reads, max_connections } = listener;
    let mut out = vec![("name", named(name)), ("address", text(address.to_string())), ("protocol", text("http"))];
    if let Some(Tls { certificate, key, client_ca }) = tls {
        let mut files = vec![("certificate", certificate), ("key", key)];
        files.extend(client_ca.as_ref().map(|path| ("clientCa", path)));
        out.push(("tls", map(files.into_iter().map(|(key, path)| (key, text(path.display().to_string()))))));
    }
    out.extend([
        ("trust", trusted(*trust)),
        ("reads", conventions(reads)),
        ("maxConnections", number(*max_connections)),
    ]);
    map(out)
}

fn upstream(upstream: &Upstream) -> Out {
    let Upstream { url, protocol, tls, tells, trust, cap, max_connections } = upstream;
    let scheme = url.scheme_str().unwrap_or("http");
    let host = url.authority().map_or("", http::uri::Authority::as_str);
    let mut out = vec![("url", text(format!("{scheme}://{host}"))), ("protocol", text(protocol.as_str()))];
    if let Some(UpstreamTls { ca, server_name, client }) = tls {
        let path = |path: &PathBuf| text(path.display().to_string());
        let mut files = Vec::new();
        files.extend(ca.as_ref().map(|ca| ("ca", path(ca))));
        files.extend(server_name.as_ref().map(|name| ("serverName", text(name))));
        if let Some((certificate, key)) = client {
            files.extend([("clientCertificate", path(certificate)), ("clientKey", path(key))]);
        }
        if !files.is_empty() {
            out.push(("tls", map(files)));
        }
    }
    out.extend(tells.as_ref().map(|tells| ("tells", conventions(tells))));
    out.extend([
        ("trust", trusted(*trust)),
        ("cap", text(cap.map_or_else(|| "none".to_owned(), written))),
        ("maxConnections", number(*max_connections)),
    ]);
    map(out)
}

fn route(route: &Route) -> Out {
    let backend = route.backend_request.map_or_else(|| "none".to_owned(), written);
    let mut out = vec![
        ("name", named(&route.name)),
        ("matches", Out::List(route.matches.iter().map(a_match).collect())),
        ("upstream", named(&route.upstream)),
        ("timeouts", map([("backendRequest", text(backend))])),
        ("whenAbsent", text(written(route.when_absent))),
        ("ceiling", text(written(route.ceiling))),
        ("minUseful", text(written(route.min_useful))),
        ("reserve", text(written(route.reserve))),
    ];
    out.extend(route.trust.map(|trust| ("trust", trusted(trust))));
    let malformed = match route.on_malformed {
        OnMalformed::Reject => "reject",
        OnMalformed::Clamp => "clamp",
    };
    let kind = match route.kind {
        Coverage::Unary => text("unary"),
        Coverage::Streaming { idle, total } => {
            let clocks = map([("idle", text(written(idle))), ("total", text(written(total)))]);
            map([("streaming", clocks)])
        }
    };
    out.extend([("onMalformed", text(malformed)), ("kind", kind)]);
    if let Some(Retry { codes, attempts, backoff }) = &route.retry {
        let mut retry = Vec::new();
        if !codes.is_empty() {
            retry.push(("codes", Out::List(codes.iter().map(|code| Out::Number(u64::from(*code))).collect())));
        }
        retry.extend([("attempts", Out::Number(u64::from(*attempts))), ("backoff", text(written(*backoff)))]);
        out.push(("retry", map(retry)));
    }
    if let Some(idempotency) = &route.idempotency {
        out.push(("idempotency", once(idempotency)));
    }
    let concurrency = match route.concurrency {
        Concurrency::Adaptive => text("adaptive"),
        Concurrency::Fixed(places) => Out::Number(u64::from(places)),
    };
    out.extend([("concurrency", concurrency), ("queue", number(route.queue)), ("mode", text(route.mode.as_str()))]);
    map(out)
}

fn once(idempotency: &Idempotency) -> Out {
    let Idempotency {
        store,
        principal,
        execution,
        lease,
        retention,
        require,
        max_request,
        max_answer,
        replays,
        monitor,
    } = idempotency;
    let principal = match principal {
        Principal::Everybody => text("everybody"),
        Principal::Field(field) => text(field.as_str()),
    };
    let mut out = vec![("store", text(store.to_string()))];
    if let IdempotencyStore::Postgres { ca: Some(ca), .. } = store {
        out.push(("ca", text(ca.display().to_string())));
    }
    out.extend([("principal", principal), ("execution", text(written(*execution)))]);
    out.extend(lease.map(|lease| ("lease", text(written(lease)))));
    out.extend([
        ("retention", text(written(*retention))),
        ("require", Out::Flag(*require)),
        ("maxRequest", number(*max_request)),
        ("maxAnswer", number(*max_answer)),
    ]);
    if !replays.is_empty() {
        out.push(("replays", Out::List(replays.iter().map(|field| text(field.as_str())).collect())));
    }
    out.extend(monitor.as_ref().map(|path| ("monitor", text(path.as_str()))));
    map(out)
}

fn a_match(one: &Match) -> Out {
    let (kind, value) = match &one.path {
        PathMatch::Exact(path) => ("Exact", path),
        PathMatch::Prefix(path) => ("PathPrefix", path),
    };
    let mut out = vec![("path", map([("type", text(kind)), ("value", text(value.as_str()))]))];
    out.extend(one.method.as_ref().map(|method| ("method", text(method.as_str()))));
    map(out)
}

fn conventions(all: &Conventions) -> Out {
    Out::List(all.iter().map(convention).collect())
}

fn convention(one: &Convention) -> Out {
    let declared = Declared::ALL.into_iter().find(|kind| kind.codec() == one.codec());
    match declared.filter(|_| !Convention::ALL.contains(one)) {
        Some(kind) => map([("field", named(one.name())), ("is", text(kind.as_str()))]),
        None => named(one.name()),
    }
}

fn trusted(trust: Trust) -> Out {
    text(match trust {
        Trust::Inside => "inside",
        Trust::Outside => "outside",
    })
}

fn text(text: impl Into<String>) -> Out {
    Out::Text(text.into())
}

fn named(name: &Name) -> Out {
    text(name.as_str())
}

fn number(number: usize) -> Out {
    Out::Number(u64::try_from(number).unwrap_or(u64::MAX))
}

fn map(entries: impl IntoIterator<Item = (&'static str, Out)>) -> Out {
    Out::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

// === Out ===

impl Serialize for Out {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Share(share) => serializer.serialize_f64(share.as_f64()),
            Self::Flag(yes) => serializer.serialize_bool(*yes),
            Self::List(items) => items.serialize(serializer),
            Self::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

// === IdempotencyStore ===

impl fmt::Display for IdempotencyStore {
    /// As it is written in a file, without its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres { url, .. } => f.write_str(&redact::url(url)),
        }
    }
}

impl fmt::Debug for IdempotencyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}
