//! The ways through the graph, from the outside in.
//!
//! Bounded: a way is at most [`DEEPEST`] calls long and goes through nobody twice, and there are at most [`MOST`] of them.
//! Nobody is left out for that: those where ways begin share the number, and so do the calls of each component; then come
//! ways that begin at those whom none of the former went on from (as many again at most): beyond the deepest, in a circle that
//! nobody outside calls, behind what was cut. What is left out all the same is told ([`Ways::cut`]).

use std::collections::HashSet;

use super::{Graph, Hop};
use crate::inventory::{ComponentId, Role};

/// The longest way that is followed.
pub(crate) const DEEPEST: usize = 12;
/// The most ways that are followed.
pub(crate) const MOST: usize = 10_000;
/// Where ways begin, so many are followed at least, as long as there are any left.
const SHARE: usize = 50;

/// Calls, each made by the one that the call before went to.
#[derive(Clone, Debug)]
pub struct Path<'g, 'a> {
    /// From the outside in; at least one.
    pub hops: Vec<&'g Hop<'a>>,
}

/// Ways through the graph.
#[derive(Debug)]
pub struct Ways<'g, 'a> {
    /// All that are followed, always in the same order.
    pub paths: Vec<Path<'g, 'a>>,
    /// The first call from which no way went on, or not every one, because there would be too many.
    pub cut: Option<&'g Hop<'a>>,
}

/// Those from one beginning.
struct Found<'g, 'a> {
    /// Whether each call gets its share.
    shared: bool,
    paths: Vec<Path<'g, 'a>>,
    cut: Option<&'g Hop<'a>>,
    /// Whose calls were all looked at.
    followed: HashSet<ComponentId>,
}

impl<'a> Graph<'a> {
    /// The ways from where calls begin to where none goes on: at what nobody here calls, at every gateway, and at whom those
    /// ways leave out.
    #[must_use]
    pub fn paths(&self) -> Vec<Path<'_, 'a>> {
        self.ways().paths
    }

    /// The same, and what was left out of them.
    #[must_use]
    pub fn ways(&self) -> Ways<'_, 'a> {
        let mut seen = HashSet::new();
        let callers: Vec<ComponentId> =
            self.hops.iter().map(|hop| hop.from).filter(|caller| seen.insert(*caller)).collect();
        let roots: Vec<ComponentId> = callers.iter().copied().filter(|caller| self.begins(*caller)).collect();
        let share = (MOST / roots.len().max(1)).max(SHARE);
        let mut left = MOST;
        let mut found: Vec<Found<'_, 'a>> = Vec::new();
        for root in &roots {
            let from_root = self.follow_from(*root, share.min(left));
            left -= from_root.paths.len();
            found.push(from_root);
        }
        // What some did not need the others get.
        let mut short = found.iter().filter(|one| one.cut.is_some()).count();
        for (root, before) in roots.iter().zip(&mut found) {
            if before.cut.is_some() && left > 0 {
                let had = before.paths.len();
                *before = self.follow_from(*root, had + left / short.max(1));
                left = (had + left).saturating_sub(before.paths.len());
                short = short.saturating_sub(1);
            }
        }
        let mut ways = Ways { paths: Vec::new(), cut: None };
        let mut followed = HashSet::new();
        for mut one in found {
            ways.take(&mut one);
            followed.extend(one.followed);
        }
        let mut others: Vec<ComponentId> = callers.into_iter().filter(|caller| !followed.contains(caller)).collect();
        others.sort_unstable();
        let share = (MOST / others.len().max(1)).max(SHARE);
        let mut left = MOST;
        for other in others {
            if followed.contains(&other) {
                continue;
            }
            let mut one = self.follow_from(other, share.min(left));
            left -= one.paths.len();
            ways.take(&mut one);
            followed.extend(one.followed);
        }
        ways
    }

    fn begins(&self, id: ComponentId) -> bool {
        let gateway = self.component(id).is_some_and(|component| component.role == Role::Gateway);
        gateway || self.calls_to(id).next().is_none()
    }

    /// All ways from a beginning; where those are too many, each call gets its share of them.
    fn follow_from(&self, root: ComponentId, most: usize) -> Found<'_, 'a> {
        let with = |shared: bool| {
            let mut found = Found { shared, paths: Vec::new(), cut: None, followed: HashSet::new() };
            self.follow(root, &mut Vec::new(), most, &mut found);
            found
        };
        let all = with(false);
        if all.cut.is_none() { all } else { with(true) }
    }

    /// Follows at most so many ways, and at least one where there is a way so far.
    fn follow<'g>(&'g self, from: ComponentId, way: &mut Vec<&'g Hop<'a>>, most: usize, found: &mut Found<'g, 'a>) {
        let before = found.paths.len();
        if way.len() < DEEPEST {
            let again =
                |hop: &&Hop<'a>| hop.to.is_some_and(|to| to == from || way.iter().any(|before| before.from == to));
            // One more than fit, to know whether there are more.
            let mut calls: Vec<&'g Hop<'a>> =
                self.calls_of(from).filter(|hop| !again(hop)).take(most.saturating_add(1)).collect();
            if let Some(beyond) = calls.get(most).copied() {
                found.cut.get_or_insert(beyond);
                calls.truncate(most);
            } else {
                found.followed.insert(from);
            }
            let count = calls.len();
            for (at, hop) in calls.into_iter().enumerate() {
                let left = most.saturating_sub(found.paths.len() - before);
                if left == 0 {
                    found.cut.get_or_insert(hop);
                    break;
                }
                let share = if found.shared { left.div_ceil(count - at) } else { left };
                way.push(hop);
                match hop.to {
                    Some(to) => self.follow(to, way, share, found),
                    None => found.paths.push(Path { hops: way.clone() }),
                }
                way.pop();
            }
        }
        if found.paths.len() == before && !way.is_empty() {
            found.paths.push(Path { hops: way.clone() });
        }
    }
}

impl<'g, 'a> Ways<'g, 'a> {
    fn take(&mut self, found: &mut Found<'g, 'a>) {
        self.paths.append(&mut found.paths);
        self.cut = self.cut.or(found.cut);
    }
}
