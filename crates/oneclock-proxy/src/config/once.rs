//! `idempotency` of a route: what its runs may take, and what of that contradicts itself.
//!
//! Decides that a key never gets its request less than it would have without one, so that `ceiling <= execution`; and that the
//! monitor is where its route is. That a lease outlasts its run, and a record whoever tries again, is the layer's own rule.

use http::Method;
use oneclock_core::ingress::Coverage;
use oneclock_idempotency::{BadIdempotency, MemoryStore};
use oneclock_postgres::tokio_postgres;

use super::check::RouteDraft;
use super::node::{Node, Place, Refuse};
use super::route_keys::{BODY_MOST, IDEMPOTENCY};
use super::shape::Fields;
use super::values::written;
use super::{Config, Idempotency, IdempotencyStore, Refused, values};
use crate::keyed;

/// Reads it into a route whose limits and kind are known.
pub(super) fn read(node: &Node, draft: &mut RouteDraft) -> Result<(), Refused> {
    let route = &mut draft.route;
    let fields = Fields::of(node, &IDEMPOTENCY)?;
    let mut store = values::parsed(fields.need("store")?, values::store)?;
    if let Some(node) = fields.get("ca") {
        match &mut store {
            IdempotencyStore::Postgres { url, ca } if is_over_tls(url) => *ca = Some(values::text(node)?.into()),
            _ => {
                return Err(node.refused(
                    "ca is for a database that is reached over TLS: write postgres://…?sslmode=require, or delete the line",
                ));
            }
        }
    }
    let principal = values::parsed(fields.need("principal")?, values::principal)?;
    if let Coverage::Streaming { .. } = route.kind {
        return Err(node.refused(
            "a stream has no answer that could be kept and given again: delete it, or make the route unary, with a ceiling \
             that covers the stream",
        ));
    }
    let mut once = Idempotency::new(store, principal, route.ceiling);
    if let Some(execution) = fields.read("execution", values::bound)? {
        if execution < route.ceiling {
            let (one, all) = (written(execution), written(route.ceiling));
            return Err(fields.need("execution")?.refused(format!(
                "execution is {one}, and ceiling is {all}: a request with a key would be cut off sooner than one without, \
                 and what was cut off is unknown; write at least {all}"
            )));
        }
        once.execution = execution;
    }
    once.lease = fields.read("lease", values::bound)?;
    once.retention = fields.read("retention", values::bound)?.unwrap_or(once.retention);
    once.require = fields.read("require", values::flag)?.unwrap_or(once.require);
    let bytes = |node: &Node| Ok(usize::try_from(values::count(node, 1, BODY_MOST)?).unwrap_or(usize::MAX));
    once.max_request = fields.read("maxRequest", bytes)?.unwrap_or(once.max_request);
    once.max_answer = fields.read("maxAnswer", bytes)?.unwrap_or(once.max_answer);
    let field = |node: &Node| values::parsed(node, values::field);
    let replays = fields.read("replays", |node| values::items(node)?.iter().map(field).collect::<Result<_, _>>())?;
    once.replays = replays.unwrap_or_default();
    if let Some(monitor) = fields.get("monitor") {
        let path = values::parsed(monitor, values::path)?;
        let path = path.trim_end_matches('/');
        if path.is_empty() {
            return Err(monitor.refused("`/` would be asked instead of the upstream: write a path of its own"));
        }
        once.monitor = Some(path.to_owned());
        draft.monitor_at = Some(monitor.place);
    }
    let checked = keyed::builder(route.name.clone(), MemoryStore::new(), &once).build();
    checked.map_err(|why| contradicts(&why, &fields, &once))?;
    route.idempotency = Some(once);
    Ok(())
}

/// Whether the URL of a database asks for TLS, and nothing else.
pub(crate) fn is_over_tls(url: &str) -> bool {
    let read = url.parse::<tokio_postgres::Config>();
    read.is_ok_and(|config| config.get_ssl_mode() == tokio_postgres::config::SslMode::Require)
}

/// What the layer says, where the line is that has to change.
fn contradicts(why: &BadIdempotency, fields: &Fields<'_>, once: &Idempotency) -> Refused {
    match why {
        BadIdempotency::LeaseTooShort { lease, run } => fields.get("lease").unwrap_or(fields.node).refused(format!(
            "lease is {}, and a run may take {} (its claim, execution, and its record): it would count as lost while \
                 it works; write more, or delete the line",
            written(*lease),
            written(*run)
        )),
        BadIdempotency::Retention(short) => {
            let at = fields.get("retention").or_else(|| fields.get("execution")).unwrap_or(fields.node);
            at.refused(format!(
                "retention is {}, and {} is the least (twice execution): a record would be gone before the last retry \
                 comes, which then would run again",
                written(once.retention),
                written(short.least)
            ))
        }
        other => fields.get("replays").unwrap_or(fields.node).refused(other.to_string()),
    }
}

/// Whoever asks at the monitor has to come to the route whose operations it knows.
pub(super) fn monitors(config: &Config, places: &[Option<Place>]) -> Result<(), Refused> {
    for (route, at) in config.routes.iter().zip(places) {
        let monitor = route.idempotency.as_ref().and_then(|once| once.monitor.as_ref());
        let (Some(path), Some(at)) = (monitor, at) else { continue };
        let taken = config.route_for(&format!("{path}/x"), &Method::GET);
        if taken.is_none_or(|taken| taken.name != route.name) {
            return Err(at.refused(format!(
                "GET {path}/… does not take this route, so that nobody could ask there: write a path below one that it \
                 matches for GET, or add a match",
            )));
        }
    }
    Ok(())
}
