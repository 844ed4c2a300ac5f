//! How far the clocks of two processes are apart, as far as a trace can tell.
//!
//! Decides the interval in which the offset lies. A child cannot begin before its parent: that holds whatever happened, and
//! bounds the offset from below. A call that was waited for ends before its client: that bounds it from above, but not where
//! the client left. So a call that cannot fit into its client under any offset that the beginnings allow did outlive it, and a
//! call that can is not claimed to have.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::tree::Tree;

/// What was found out about one pair of processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skew {
    /// The calling process.
    pub from: String,
    /// The called one.
    pub to: String,
    /// What must at least be added to the called one's clock, in nanoseconds.
    pub at_least_ns: i64,
    /// What may at most be added; `None` where no call was waited for.
    pub at_most_ns: Option<i64>,
    /// From how many calls.
    pub calls: u64,
    /// What was added for this trace: nothing, if that is within the interval, or if it would be more than is believed.
    pub added_ns: i64,
}

/// A called clock is set back no further than this, one second: what begins later than that after its parent's end was more
/// probably begun later. It is claimed neither way.
const BELIEVED: i128 = 1_000_000_000;

/// The clocks of one trace.
pub(crate) struct Clocks {
    /// By span: what is added to its times.
    added: Vec<i128>,
    /// By span: how it stands to its parent's clock. `None`: the same clock, exact.
    apart: Vec<Option<Apart>>,
    pub(crate) skews: Vec<Skew>,
}

/// The interval of the offset between a span and its parent.
#[derive(Clone, Copy)]
pub(crate) struct Apart {
    pub(crate) at_least: i128,
    pub(crate) at_most: Option<i128>,
}

#[derive(Default)]
struct Pair {
    at_least: Option<i128>,
    ends: Vec<i128>,
    calls: u64,
}

impl Clocks {
    pub(crate) fn of(tree: &Tree) -> Self {
        let clocks = clock_of_each(tree);
        let mut pairs: BTreeMap<(usize, usize), Pair> = BTreeMap::new();
        let mut pair_of = vec![None; tree.spans.len()];
        for (index, node) in tree.spans.iter().enumerate() {
            let Some(parent) = node.parent else { continue };
            if clocks[parent] == clocks[index] && !may_be_another(tree, parent, index) {
                continue;
            }
            let key = (clocks[parent], clocks[index]);
            pair_of[index] = Some(key);
            let pair = pairs.entry(key).or_default();
            let ((parent_began, parent_ended), (began, ended)) = (tree.spans[parent].time, node.time);
            pair.at_least = pair.at_least.max(Some(i128::from(parent_began) - i128::from(began)));
            if node.own.is_none() {
                pair.ends.push(i128::from(parent_ended) - i128::from(ended));
            }
            pair.calls += 1;
        }
        let apart: BTreeMap<(usize, usize), Apart> = pairs
            .iter()
            .map(|(key, pair)| {
                let at_least = pair.at_least.unwrap_or_default();
                let at_most = pair.ends.iter().copied().filter(|end| *end >= at_least).min();
                (*key, Apart { at_least, at_most })
            })
            .collect();
        // From the root's clock outwards; the first way to a clock counts.
        let mut offsets: HashMap<usize, i128> = HashMap::new();
        let mut skews = Vec::new();
        for index in &tree.order {
            let own = clocks[*index];
            let Some(parent) = tree.spans[*index].parent else {
                offsets.entry(own).or_insert(0);
                continue;
            };
            let Some(key) = pair_of[*index] else { continue };
            let Some(apart) = apart.get(&key) else { continue };
            let added = if key.0 == key.1 { 0 } else { apart.nearest_to_zero() };
            let added = if apart.at_least <= BELIEVED && added < -BELIEVED { 0 } else { added };
            let above = offsets.get(&clocks[parent]).copied().unwrap_or_default();
            offsets.entry(own).or_insert(above + added);
            if let Some(pair) = pairs.remove(&key) {
                skews.push(Skew {
                    from: label(tree, parent),
                    to: label(tree, *index),
                    at_least_ns: narrow(apart.at_least),
                    at_most_ns: apart.at_most.map(narrow),
                    calls: pair.calls,
                    added_ns: narrow(added),
                });
            }
        }
        let added = clocks.iter().map(|clock| offsets.get(clock).copied().unwrap_or_default()).collect();
        let apart = pair_of.iter().map(|key| key.and_then(|key| apart.get(&key).copied())).collect();
        Self { added, apart, skews }
    }

    /// A recorded moment of this span, on the clock of the root.
    pub(crate) fn on_one_clock(&self, index: usize, at: u64) -> i128 {
        i128::from(at) + self.added[index]
    }

    /// How the span's clock stands to its parent's; `None` if it is the same.
    pub(crate) fn apart(&self, index: usize) -> Option<Apart> {
        self.apart[index]
    }
}

impl Apart {
    fn nearest_to_zero(self) -> i128 {
        match self.at_most {
            Some(at_most) => 0.clamp(self.at_least, at_most.max(self.at_least)),
            None => self.at_least.max(0),
        }
    }
}

/// Processes of one machine share a clock; of two that do not say where they are, it is not known.
fn clock_of_each(tree: &Tree) -> Vec<usize> {
    let mut known: HashMap<(&str, &str), usize> = HashMap::new();
    let clocks = tree.spans.iter().map(|node| {
        let process = &node.span.process;
        let key = match &process.host {
            Some(host) => ("", host.as_str()),
            None => (process.service.as_str(), process.instance.as_str()),
        };
        let next = known.len();
        *known.entry(key).or_insert(next)
    });
    clocks.collect()
}

/// A service that calls itself, and does not say which of its instances is which.
fn may_be_another(tree: &Tree, parent: usize, child: usize) -> bool {
    use crate::span::Kind::{Client, Server};
    let (parent, child) = (&tree.spans[parent].span, &tree.spans[child].span);
    let says_nothing = child.process.host.is_none() && child.process.instance.is_empty();
    says_nothing && parent.kind == Client && child.kind == Server
}

fn label(tree: &Tree, index: usize) -> String {
    let process = &tree.spans[index].span.process;
    let service = if process.service.is_empty() { "unknown" } else { &process.service };
    if process.instance.is_empty() { service.to_owned() } else { format!("{service} ({})", process.instance) }
}

pub(crate) fn narrow(nanos: i128) -> i64 {
    i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}
