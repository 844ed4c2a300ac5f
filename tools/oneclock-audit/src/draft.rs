//! The beginning of a topology file: who runs, as files show it, with the places as comments, and what no file says left
//! to whoever knows it. Nothing is guessed: what is not known is not there, or is a comment that says `TODO`.
//!
//! Calls that files show are comments, too. Written out they would be calls a second time, with other limits.

use std::collections::HashMap;
use std::fmt::Write;

use crate::graph::Graph;
use crate::inventory::{Component, ComponentId, Role};
use crate::readers::topology::FILE;
use crate::report::{one_line, waits};

/// A drafted file.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Its text.
    pub text: String,
    /// How many services are in it.
    pub services: usize,
    /// How many calls are shown in comments.
    pub calls: usize,
}

const HEAD: &str = "\
# What no other file says: who calls whom in code, with which limits; what was measured; where somebody waits. Drafted from
# what the files do say. Fill in what has a TODO, delete the rest; `oneclock audit` tells what it does not understand.
#
# A call, with all that can be said of it:
#   - {to: stock, timeout: 800ms, attempts: 2, backoff: 50ms, methods: [GET], effects: read_only, propagates: deadline, p99: 40ms}
# effects: read_only, idempotent, keyed or once. propagates: deadline (the callee gets what is left), none or unknown.

";

/// Drafts one from the graph.
#[must_use]
pub fn draft(graph: &Graph<'_>) -> Draft {
    let mut draft = Draft { text: HEAD.to_owned(), services: 0, calls: 0 };
    let text = &mut draft.text;
    text.push_str("entries:\n# Where somebody waits, how long, and how often they come:\n");
    text.push_str("# - {name: TODO, to: TODO, budget: TODO, reserve: 50ms, rate: TODO/s}\n\nservices:\n");
    let mut by_name: HashMap<String, Vec<ComponentId>> = HashMap::new();
    let mut order = Vec::new();
    for (number, component) in graph.inventory.components.iter().enumerate() {
        let id = ComponentId(number);
        if graph.stands_for(id) == id && is_listed(component) {
            let same = by_name.entry(component.name.to_ascii_lowercase()).or_default();
            if same.is_empty() {
                order.push(component.name.to_ascii_lowercase());
            }
            same.push(id);
        }
    }
    for name in &order {
        match by_name.get(name).map(Vec::as_slice) {
            Some([id]) => service(graph, *id, &mut draft),
            Some(several) => {
                let places = several.iter().filter_map(|id| graph.component(*id)).take(3);
                let places: Vec<String> = places.map(|one| one_line(&one.place.to_string())).collect();
                let more = several.len().saturating_sub(places.len());
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let (name, places) = (one_line(name), places.join(", "));
                let _ = writeln!(draft.text, "# {name}: several go by that name, so none is listed: {places}{more}");
            }
            None => {}
        }
    }
    draft
}

/// What does work and can be told from others; what stands in front of others is no service.
fn is_listed(component: &Component) -> bool {
    matches!(component.role, Role::Service | Role::Worker | Role::Store | Role::Broker) && !component.name.is_empty()
}

fn service(graph: &Graph<'_>, id: ComponentId, draft: &mut Draft) {
    let Some(component) = graph.component(id) else { return };
    draft.services += 1;
    let text = &mut draft.text;
    let _ = writeln!(text, "# {} ({})", one_line(&component.place.to_string()), component.reader);
    let _ = writeln!(text, "- name: {}", scalar(&component.name));
    let role = match component.role {
        Role::Store => Some("store"),
        Role::Broker => Some("broker"),
        Role::Worker => Some("worker"),
        Role::Service | Role::Gateway | Role::Between => None,
    };
    if let Some(role) = role {
        let _ = writeln!(text, "  role: {role}");
    }
    if !matches!(component.role, Role::Service | Role::Worker) {
        return;
    }
    text.push_str("  # order: TODO serial or parallel: how its calls follow each other\n  # p99: TODO its own work\n");
    let hops: Vec<_> = graph.calls_of(id).collect();
    if !hops.is_empty() {
        text.push_str("  # The files show these calls:\n");
    }
    for hop in hops {
        draft.calls += 1;
        let (callee, place) = (one_line(&graph.callee(hop)), one_line(&hop.call.place.to_string()));
        let _ = writeln!(text, "  #   {callee}, {}: {place}", waits(hop));
    }
    text.push_str("  # calls:\n  # - {to: TODO, timeout: TODO, effects: TODO, propagates: TODO}\n");
}

/// As it is where YAML takes that for a text, and in quotes otherwise.
fn scalar(text: &str) -> String {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    let plain = first && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    if plain && !word { text.to_owned() } else { serde_json::to_string(text).unwrap_or_default() }
}

/// The name that the file has to have.
#[must_use]
pub const fn file_name() -> &'static str {
    FILE
}
