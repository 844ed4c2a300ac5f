//! The ways through the graph, from the outside in.
//!
//! Bounded: a way is at most [`DEEPEST`] calls long, goes through nobody twice, and there are at most [`MOST`] of them.

use std::collections::HashSet;

use super::{Graph, Hop};
use crate::inventory::{ComponentId, Role};

/// The longest way that is followed.
pub const DEEPEST: usize = 12;
/// The most ways that are followed.
pub const MOST: usize = 10_000;

/// Calls, each made by the one that the call before went to.
#[derive(Clone, Debug)]
pub struct Path<'g, 'a> {
    /// From the outside in; at least one.
    pub hops: Vec<&'g Hop<'a>>,
}

impl<'a> Graph<'a> {
    /// All ways from where calls begin to where none goes on. Begins at what nobody here calls, and at every gateway.
    #[must_use]
    pub fn paths(&self) -> Vec<Path<'_, 'a>> {
        let mut paths = Vec::new();
        let mut seen = HashSet::new();
        for hop in &self.hops {
            if seen.insert(hop.from) && self.begins(hop.from) {
                self.follow(hop.from, &mut Vec::new(), &mut paths);
            }
        }
        paths
    }

    fn begins(&self, id: ComponentId) -> bool {
        let gateway = self.component(id).is_some_and(|component| component.role == Role::Gateway);
        gateway || self.calls_to(id).next().is_none()
    }

    fn follow<'g>(&'g self, from: ComponentId, way: &mut Vec<&'g Hop<'a>>, paths: &mut Vec<Path<'g, 'a>>) {
        let mut went_on = false;
        if way.len() < DEEPEST {
            for hop in self.calls_of(from) {
                let again = hop.to.is_some_and(|to| to == from || way.iter().any(|before| before.from == to));
                if again || paths.len() >= MOST {
                    continue;
                }
                went_on = true;
                way.push(hop);
                match hop.to {
                    Some(to) => self.follow(to, way, paths),
                    None => paths.push(Path { hops: way.clone() }),
                }
                way.pop();
            }
        }
        if !went_on && !way.is_empty() && paths.len() < MOST {
            paths.push(Path { hops: way.clone() });
        }
    }
}
