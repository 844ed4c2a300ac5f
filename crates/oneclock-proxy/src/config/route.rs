//! A route: which requests, and what they may spend.
//!
//! Decides what its limits are when only some are written, and which of them contradict one another. The order that has
//! to hold is `reserve + minUseful <= whenAbsent <= timeouts.request <= ceiling`, and
//! `minUseful <= timeouts.backendRequest <= timeouts.request`. A stream has no `backendRequest`: it would end at that.

use std::time::Duration;

use http::Method;
use oneclock_core::Name;
use oneclock_core::admission::Mode;
use oneclock_core::ingress::{Coverage, OnMalformed};

use super::check::{Placed, RouteDraft};
use super::node::{Node, Place, Refuse, Value};
use super::read::TRUST;
use super::route_keys::{KIND, MATCH, METHODS, PATH, PATH_TYPES, RETRY, ROUTE, STREAMING, TIMEOUTS};
use super::routes::BACKOFF;
use super::shape::Fields;
use super::values::written;
use super::{Concurrency, Match, PathMatch, Refused, Retry, Route, once, values};

/// How many further attempts there are, unless something else is said.
const ATTEMPTS: u32 = 2;

/// What was written of a route's limits.
#[derive(Default)]
pub(super) struct Limits {
    request: Option<Placed<Duration>>,
    backend: Option<Placed<Option<Duration>>>,
    when_absent: Option<Placed<Duration>>,
    ceiling: Option<Placed<Duration>>,
    min_useful: Option<Placed<Duration>>,
    reserve: Option<Placed<Duration>>,
}

pub(super) fn read(node: &Node) -> Result<RouteDraft, Refused> {
    let fields = Fields::of(node, &ROUTE)?;
    let matches = match fields.get("matches") {
        Some(node) => values::items(node)?.iter().map(a_match).collect::<Result<_, _>>()?,
        None => vec![Placed { at: node.place, value: Match::everything() }],
    };
    let upstream = fields.need("upstream")?;
    let mut draft = RouteDraft::new(matches, Placed { at: upstream.place, value: values::name(upstream)? });
    if let Some(name) = fields.get("name") {
        draft.name_at = name.place;
        draft.route.name = values::name(name)?;
    } else {
        draft.name_at = node.place;
    }

    let mut limits = fields.read("timeouts", timeouts)?.unwrap_or_default();
    limits.when_absent = fields.read("whenAbsent", |node| placed(node, values::bound))?;
    limits.ceiling = fields.read("ceiling", |node| placed(node, values::bound))?;
    limits.min_useful = fields.read("minUseful", |node| placed(node, values::span))?;
    limits.reserve = fields.read("reserve", |node| placed(node, values::span))?;
    limits.into(&mut draft.route, node.place)?;

    let route = &mut draft.route;
    if let Some(node) = fields.get("trust") {
        let trust = values::word(node, &TRUST)?;
        route.trust = Some(trust);
        draft.trust_at = Some(node.place);
    }
    let malformed = [("reject", OnMalformed::Reject), ("clamp", OnMalformed::Clamp)];
    route.on_malformed = fields.read("onMalformed", |node| values::word(node, &malformed))?.unwrap_or_default();
    route.kind = fields.read("kind", kind)?.unwrap_or_default();
    if let (Coverage::Streaming { .. }, Some(_)) = (route.kind, route.backend_request) {
        let at = fields.get("timeouts").and_then(|timeouts| timeouts.find("backendRequest")).unwrap_or(node);
        return Err(at.refused(
            "timeouts.backendRequest covers head and body of an attempt, so that it would cut the stream, which has idle and \
             total of its own: delete it",
        ));
    }
    route.retry = fields.read("retry", retry)?;
    if let Some(node) = fields.get("idempotency") {
        once::read(node, &mut draft)?;
    }
    let route = &mut draft.route;
    let (concurrency, queue) = (fields.read("concurrency", concurrency)?, fields.read("queue", queue)?);
    // Nobody is refused because of a number that nobody chose.
    let mode = if concurrency.is_some() || queue.is_some() { Mode::Enforce } else { Mode::Shadow };
    let modes = [Mode::Observe, Mode::Shadow, Mode::Enforce].map(|mode| (mode.as_str(), mode));
    route.mode = fields.read("mode", |node| values::word(node, &modes))?.unwrap_or(mode);
    route.concurrency = concurrency.unwrap_or_default();
    route.queue = queue.unwrap_or(route.queue);
    Ok(draft)
}

/// A value, and where it stands.
fn placed<T>(node: &Node, read: impl FnOnce(&Node) -> Result<T, Refused>) -> Result<Placed<T>, Refused> {
    Ok(Placed { at: node.place, value: read(node)? })
}

/// One match, as both kinds of documents write it.
pub(super) fn a_match(node: &Node) -> Result<Placed<Match>, Refused> {
    let fields = Fields::of(node, &MATCH)?;
    let method = |node: &Node| {
        let words: Vec<(&str, &str)> = METHODS.iter().map(|method| (*method, *method)).collect();
        let method = values::word(node, &words)?;
        Method::from_bytes(method.as_bytes()).map_err(|error| node.refused(error.to_string()))
    };
    let path = fields.read("path", path)?.unwrap_or_else(|| Match::everything().path);
    Ok(Placed { at: node.place, value: Match { path, method: fields.read("method", method)? } })
}

fn path(node: &Node) -> Result<PathMatch, Refused> {
    let fields = Fields::of(node, &PATH)?;
    let exact = match fields.get("type") {
        Some(node) if values::text(node)? == "RegularExpression" => {
            let known = PATH_TYPES.join(" or ");
            return Err(node.refused(format!("RegularExpression is not supported, and is not ignored: write {known}")));
        }
        Some(node) => values::word(node, &[(PATH_TYPES[0], false), (PATH_TYPES[1], true)])?,
        None => false,
    };
    let value = fields.read("value", |node| values::parsed(node, values::path))?.unwrap_or_else(|| "/".to_owned());
    if exact {
        return Ok(PathMatch::Exact(value));
    }
    // A slash at its end makes no difference there (Gateway API, HTTPPathMatch).
    let without = value.trim_end_matches('/');
    Ok(PathMatch::Prefix(if without.is_empty() { "/".to_owned() } else { without.to_owned() }))
}

/// `timeouts`, as both kinds of documents write them.
pub(super) fn timeouts(node: &Node) -> Result<Limits, Refused> {
    let fields = Fields::of(node, &TIMEOUTS)?;
    let request = fields.read("request", |node| placed(node, values::bound))?;
    let backend = fields.read("backendRequest", |node| placed(node, values::bound_or_none))?;
    Ok(Limits { request, backend, ..Limits::default() })
}

/// `retry`, as both kinds of documents write it.
pub(super) fn retry(node: &Node) -> Result<Retry, Refused> {
    let fields = Fields::of(node, &RETRY)?;
    let code = |node: &Node| {
        let code = values::count(node, 408, 599).map_err(|refused| {
            node.refused(format!("{}: lower statuses are no failure that another attempt could change", refused.why))
        })?;
        Ok(u16::try_from(code).unwrap_or(u16::MAX))
    };
    let codes = fields.read("codes", |node| values::items(node)?.iter().map(code).collect::<Result<_, _>>())?;
    let attempts = fields.read("attempts", |node| values::count(node, 1, 9))?;
    let retry = Retry {
        codes: codes.unwrap_or_default(),
        attempts: attempts.and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or(ATTEMPTS),
        backoff: fields.read("backoff", values::span)?.unwrap_or(BACKOFF),
    };
    retry.policy(None).map_err(|error| node.refused(error.to_string()))?;
    Ok(retry)
}

fn kind(node: &Node) -> Result<Coverage, Refused> {
    if let Value::Scalar(word) = &node.value {
        if word == "streaming" {
            return Err(node.refused("a stream needs its clocks: write { streaming: { idle: 30s, total: 1h } }"));
        }
        return values::word(node, &[("unary", Coverage::Unary), ("streaming", Coverage::Unary)]);
    }
    let streaming = Fields::of(node, &KIND)?.need("streaming")?;
    let fields = Fields::of(streaming, &STREAMING)?;
    let (idle, total) = (values::bound(fields.need("idle")?)?, values::bound(fields.need("total")?)?);
    if idle > total {
        return Err(fields.need("idle")?.refused(format!(
            "idle is {}, and total is {}: a stream would end before it could be idle for so long; write less, or more \
             for total",
            written(idle),
            written(total)
        )));
    }
    Ok(Coverage::Streaming { idle, total })
}

fn concurrency(node: &Node) -> Result<Concurrency, Refused> {
    if values::text(node)? == "adaptive" {
        return Ok(Concurrency::Adaptive);
    }
    let places = values::count(node, 1, 1_000_000)
        .map_err(|refused| node.refused(format!("{}, and not `adaptive` either", refused.why)))?;
    Ok(Concurrency::Fixed(u32::try_from(places).unwrap_or(u32::MAX)))
}

fn queue(node: &Node) -> Result<usize, Refused> {
    Ok(usize::try_from(values::count(node, 0, 4_096)?).unwrap_or(usize::MAX))
}

// === Limits ===

impl Limits {
    /// What they come to, if they do not contradict one another.
    pub(super) fn into(self, route: &mut Route, at: Place) -> Result<(), Refused> {
        let Self { request, backend, when_absent, ceiling, min_useful, reserve } = self;
        if let (Some(request), Some(_), Some(_)) = (&request, &when_absent, &ceiling) {
            return Err(request.at.refused(
                "timeouts.request sets whenAbsent and ceiling, and both are written: delete one of the three",
            ));
        }
        let of_request = request.as_ref().map(|request| request.value);
        let absent = when_absent.as_ref().map(|absent| absent.value);
        let top = ceiling.as_ref().map(|ceiling| ceiling.value);
        route.when_absent =
            absent.or(of_request).unwrap_or_else(|| top.map_or(route.when_absent, |top| top.min(route.when_absent)));
        route.ceiling = top.or(of_request).unwrap_or_else(|| route.ceiling.max(route.when_absent));
        route.min_useful = min_useful.as_ref().map_or(route.min_useful, |min_useful| min_useful.value);
        route.reserve = reserve.as_ref().map_or(route.reserve, |reserve| reserve.value);
        route.backend_request = backend.as_ref().and_then(|backend| backend.value);

        let places = [&when_absent, &ceiling, &request];
        let of_absent = places.into_iter().flatten().next().map_or(at, |placed| placed.at);
        let (absent, top, least) = (written(route.when_absent), written(route.ceiling), written(route.min_useful));
        if route.when_absent > route.ceiling {
            return Err(of_absent.refused(match (&when_absent, &ceiling) {
                (_, None) => format!(
                    "whenAbsent is {absent}, and timeouts.request is {top}: nobody may get more than that; write less, or a \
                     ceiling"
                ),
                (None, _) => {
                    format!("ceiling is {top}, and timeouts.request is {absent}: nobody may get more than the ceiling")
                }
                _ => format!("whenAbsent is {absent}, and ceiling is {top}: nobody may get more than the ceiling"),
            }));
        }
        if route.min_useful > route.when_absent {
            return Err(min_useful.map_or(of_absent, |placed| placed.at).refused(format!(
                "minUseful is {least}, and whenAbsent is {absent}: requests without a deadline would all be refused"
            )));
        }
        let keeps_all = |reserve: &Placed<Duration>| reserve.value.saturating_add(route.min_useful) > route.when_absent;
        if let Some(reserve) = reserve.filter(keeps_all) {
            let kept = written(reserve.value);
            return Err(reserve.at.refused(format!(
                "reserve is {kept}, and with minUseful {least} that is more than whenAbsent {absent}: for a request without \
                 a deadline no call would ever be made"
            )));
        }
        if let Some(Placed { at, value: Some(backend) }) = backend {
            let (name, most) = of_request.map_or(("ceiling", route.ceiling), |request| ("timeouts.request", request));
            let (one, all) = (written(backend), written(most));
            if backend > most {
                return Err(at.refused(format!(
                    "timeouts.backendRequest is {one}, and {name} is {all}: one attempt cannot take longer than its \
                     request; write at most {all}"
                )));
            }
            if backend < route.min_useful {
                return Err(at.refused(format!(
                    "timeouts.backendRequest is {one}, and minUseful is {least}: no attempt would ever be made"
                )));
            }
        }
        Ok(())
    }
}

/// What a route is called that was given no name: what it matches first.
pub(super) fn name_of(first: &Match) -> Name {
    let path = match &first.path {
        PathMatch::Exact(path) => path.clone(),
        PathMatch::Prefix(path) if path == "/" => "/*".to_owned(),
        PathMatch::Prefix(path) => format!("{path}/*"),
    };
    Name::from(first.method.as_ref().map_or_else(|| path.clone(), |method| format!("{method} {path}")))
}
