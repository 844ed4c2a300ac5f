//! resilience4j: time limiters, retries, breakers, bulkheads and rate limiters, each instance with what it takes over
//! from its base. Which call an instance is put around stands in code: it is told as a call to the instance's name.

use std::collections::HashMap;

use super::App;
use super::tree::Tree;
use crate::inventory::{Edge, EdgeId, Inventory, Name, On, To};
use crate::source::Place;

/// The part, and what it has: the property, the setting, and whether it holds where nobody wrote it.
type Part = (&'static str, &'static [(&'static str, &'static str, bool)]);

const PARTS: &[Part] = &[
    ("timelimiter", &[("timeout-duration", "resilience4j.timelimiter.timeout", true)]),
    (
        "retry",
        &[
            ("max-attempts", "resilience4j.retry.max_attempts", true),
            ("wait-duration", "resilience4j.retry.wait_duration", true),
        ],
    ),
    (
        "circuitbreaker",
        &[
            ("wait-duration-in-open-state", "resilience4j.circuitbreaker.open", false),
            ("slow-call-duration-threshold", "resilience4j.circuitbreaker.slow_call", false),
        ],
    ),
    ("bulkhead", &[("max-wait-duration", "resilience4j.bulkhead.max_wait", false)]),
    ("ratelimiter", &[("timeout-duration", "resilience4j.ratelimiter.timeout", true)]),
];

pub(super) fn read(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    let mut calls = HashMap::new();
    for (name, settings) in PARTS {
        let Some(part) = document.at(&format!("resilience4j.{name}")) else { continue };
        // `backends` is what instances were called before 1.0.
        for path in ["instances", "backends"] {
            for instance in part.at(path).into_iter().flat_map(Tree::children) {
                let block = instance.place(&app.start);
                let Some(edge) = around(app, &instance.name, &block, &mut calls, inventory) else { continue };
                for (property, id, told) in *settings {
                    match inherited(part, instance, property) {
                        Some((text, place)) => inventory.say(On::Edge(edge), id, text, place),
                        None if *told => {
                            let own = format!("resilience4j.{name}.{path}.[{}].{property}", instance.name);
                            app.default(&On::Edge(edge), id, &[&own], &block, inventory);
                        }
                        None => {}
                    }
                }
            }
        }
    }
}

/// The call of an instance; the parts of one name are around the same one.
fn around(
    app: &App<'_>,
    name: &str,
    place: &Place,
    calls: &mut HashMap<String, EdgeId>,
    inventory: &mut Inventory,
) -> Option<EdgeId> {
    if let Some(edge) = calls.get(name) {
        return Some(*edge);
    }
    let to = To::Name(Name::of(name)?);
    let edge = inventory.edge(Edge::new(app.component, to, format!("resilience4j {name}"), place.clone()));
    calls.insert(name.to_owned(), edge);
    Some(edge)
}

/// What an instance says itself, what its base says, what the base of all says; a base may have a base.
fn inherited<'a>(part: &'a Tree, instance: &'a Tree, property: &str) -> Option<(&'a str, Place)> {
    const LONGEST: usize = 8;
    let mut at = instance;
    for _ in 0..LONGEST {
        if let Some(written) = at.written(property) {
            return Some(written);
        }
        let base = at.text("base-config").unwrap_or("default");
        at = part.at("configs")?.at(&format!("[{base}]"))?;
    }
    None
}

/// What bounds the calls under a breaker of Spring Cloud of this name, and where that is written.
pub(super) fn time_limit<'a>(app: &'a App<'_>, name: &str) -> Option<(&'a str, Place)> {
    app.documents.iter().find_map(|document| {
        let part = document.at("resilience4j.timelimiter")?;
        let instance = part.at(&format!("instances.[{name}]")).or_else(|| part.at("configs.default"))?;
        inherited(part, instance, "timeout-duration")
    })
}

/// Whether the limiter of Spring Cloud is turned off, for all or for this name.
pub(super) fn limiter_is_off<'a>(app: &'a App<'_>, name: &str) -> Option<(&'a str, Place)> {
    let all = "spring.cloud.circuitbreaker.resilience4j.disable-time-limiter";
    let one = format!("spring.cloud.circuitbreaker.resilience4j.disable-time-limiter-map.[{name}]");
    let off = |path: &str| {
        app.documents.iter().find_map(|document| document.written(path).filter(|(text, _)| *text == "true"))
    };
    off(&one).or_else(|| off(all))
}
