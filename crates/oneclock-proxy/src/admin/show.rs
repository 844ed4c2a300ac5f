//! What is under way and what holds, as JSON.
//!
//! Decides how much of it is in one answer, and that nothing that a caller may want to keep for itself is: paths are shown
//! without their queries, fields and bodies not at all.

use std::time::Duration;

use oneclock::clock;
use oneclock_core::{Name, Tick};
use serde_json::{Map, Value, json};

use crate::control::{Control, Reload};
use crate::live::{Live, Seen};
use crate::table::Table;

/// So many of those that are under way are shown: the ones with the least left.
const MOST: usize = 100;

/// What is under way.
pub(super) fn operations(live: &Live, now: Tick) -> Value {
    let (all, seen) = live.most_urgent(MOST);
    let wall = clock::wall().as_nanos();
    let operations: Vec<Value> = seen.iter().map(|seen| operation(seen, now, wall)).collect();
    json!({ "live": all, "not_shown": all - operations.len(), "operations": operations })
}

fn operation(seen: &Seen, now: Tick, wall: u64) -> Value {
    let age = now.since(seen.what.since);
    let began = Duration::from_nanos(wall).saturating_sub(age);
    json!({
        "id": seen.id,
        "kind": seen.kind.as_str(),
        "listener": seen.what.listener.as_str(),
        "route": seen.what.route.as_ref().map(Name::as_str),
        "method": seen.what.method.as_str(),
        "path": &*seen.what.path,
        "since_unix_ms": millis(began),
        "age_ms": millis(age),
        "left_ms": seen.deadline.map(|deadline| millis(deadline.remaining(now))),
    })
}

/// What holds.
pub(super) fn config(control: &Control) -> Value {
    let table = control.table().load();
    let overrides: Vec<Value> = table.overrides.iter().map(|(name, _)| route(&table, name)).collect();
    json!({
        "hash": table.hash,
        "last_reload": reload(&control.latest_reload()),
        "overrides": overrides,
        "config": table.config.to_json(),
    })
}

fn reload(reload: &Reload) -> Value {
    let Reload { at, taken_at, refused } = reload;
    let unix_ms = |nanos: u64| millis(Duration::from_nanos(nanos));
    let mut said =
        json!({ "successful": refused.is_none(), "at_unix_ms": unix_ms(*at), "taken_at_unix_ms": unix_ms(*taken_at) });
    if let Some(why) = refused {
        said["refused"] = why.as_str().into();
    }
    said
}

/// What holds of a route, beside what the configuration says of it.
pub(super) fn route(table: &Table, name: &Name) -> Value {
    let mut said = Map::new();
    said.insert("route".into(), name.as_str().into());
    let held = table.overrides.of(name);
    if let Some(route) = table.config.routes.iter().find(|route| route.name == *name) {
        let word = |on: bool| if on { "on" } else { "off" };
        let configured = route.retry.is_some();
        let retry = json!({ "configured": word(configured), "in_force": word(configured && !held.no_retries) });
        said.insert("retry".into(), retry);
        let mode = json!({ "configured": route.mode.as_str(), "in_force": held.mode_of(route).as_str() });
        said.insert("mode".into(), mode);
    }
    Value::Object(said)
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
