//! What a program is told through its environment: whom it calls, and how long it may take. The same rules for the files
//! of compose and Kubernetes, for `ENV` in a Dockerfile and for `.env` files.
//!
//! A variable is an address only where it clearly is one ([`address`]). A variable named for a time is a setting of the
//! call that its name is about; where its unit is neither in the name nor in the value, the amount is unknown, not
//! guessed. A variable that bounds something nobody can tell is listed ([`timing`]).

mod address;
mod dotenv;
mod spring;
mod timing;

pub(super) use address::Near;
pub(super) use dotenv::{Vars, lines};
pub(super) use timing::is_product_key;

use crate::inventory::{ComponentId, Edge, EdgeId, Inventory, To};
use crate::source::Place;

/// Longer names are nobody's.
const LONGEST: usize = 256;

/// A variable and where its value stands.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    /// Its name.
    pub(super) key: String,
    /// Its value, as far as the repository says.
    pub(super) value: String,
    /// Where it is.
    pub(super) place: Place,
}

/// A call that was found, and what it is known by.
struct Call {
    edge: EdgeId,
    to: To,
    /// The words of the variables and of the host, in upper case.
    words: Vec<String>,
    postgres: bool,
}

/// Reads the variables of a component.
pub(super) fn read(variables: &[Variable], component: ComponentId, near: &Near<'_>, inventory: &mut Inventory) {
    let calls = calls(variables, component, near, inventory);
    for variable in variables.iter().filter(|variable| variable.key.len() <= LONGEST) {
        timing::read(variable, component, &calls, inventory);
    }
}

fn calls(variables: &[Variable], component: ComponentId, near: &Near<'_>, inventory: &mut Inventory) -> Vec<Call> {
    const MOST: usize = 64;
    let mut calls: Vec<Call> = Vec::new();
    for variable in variables.iter().filter(|variable| variable.key.len() <= LONGEST) {
        for target in address::targets(&variable.key, &variable.value, near) {
            if target.to == To::Component(component) {
                continue;
            }
            let words = words(&variable.key).into_iter().chain(words(&target.host));
            let edge = if let Some(call) = calls.iter_mut().find(|call| call.to == target.to) {
                if call.words.len() < MOST {
                    call.words.extend(words);
                }
                call.postgres |= target.postgres;
                call.edge
            } else {
                if calls.len() >= MOST {
                    continue;
                }
                let mut edge = Edge::new(component, target.to.clone(), variable.key.clone(), variable.place.clone());
                edge.streaming = target.streaming;
                let edge = inventory.edge(edge);
                calls.push(Call { edge, to: target.to.clone(), words: words.collect(), postgres: target.postgres });
                edge
            };
            timing::parameters(&target, edge, &variable.place, inventory);
        }
    }
    calls
}

/// `PAYMENT_TIMEOUT_MS`, `payment-timeout`: its words, in upper case.
fn words(key: &str) -> Vec<String> {
    key.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_uppercase)
        .collect()
}

fn has(words: &[String], any: &[&str]) -> bool {
    words.iter().any(|word| any.contains(&word.as_str()))
}
