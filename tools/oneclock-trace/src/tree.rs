//! Spans into a tree, whatever they say of each other. Decides who is whose parent when ids are doubled, missing or run in a
//! circle, and which spans begin an operation of their own because nobody waits for them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use oneclock_core::Tick;
use serde::Serialize;

use crate::span::{Facts, Kind, Span};

/// What was odd about a trace. It was explained all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Oddities {
    /// Spans recorded twice; the first counts.
    pub duplicates: u64,
    /// Circles of parents that were cut.
    pub circles: u64,
    /// Spans whose parent was not recorded.
    pub missing_parents: u64,
    /// Spans without a beginning or an end. Their children count as their parent's.
    pub without_time: u64,
    /// Spans that ended before they began.
    pub negative: u64,
    /// Spans beyond the bound on one trace.
    pub dropped: u64,
}

/// Why an entry begins an operation of its own: nobody waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Own {
    /// It works on a message: the consumer, or what a producer or consumer left running.
    Message,
    /// It follows from its parent (`FOLLOWS_FROM`).
    Follows,
    /// It says so (`oneclock.detached`).
    Declared,
    /// It began when its parent had ended, on one clock.
    BegunAfter,
}

/// A trace in order. All lists have one entry per span.
pub(crate) struct Tree {
    pub(crate) spans: Vec<Node>,
    pub(crate) roots: Vec<usize>,
    /// Parents before children.
    pub(crate) order: Vec<usize>,
    pub(crate) odd: Oddities,
}

pub(crate) struct Node {
    pub(crate) span: Span,
    /// Beginning and end as recorded.
    pub(crate) time: (u64, u64),
    pub(crate) parent: Option<usize>,
    pub(crate) children: Vec<usize>,
    /// Nobody waits for it, and why: it begins an operation of its own.
    pub(crate) own: Option<Own>,
    /// Made of an attribute, no span of its own.
    pub(crate) made: bool,
}

impl Tree {
    /// Puts the spans of one trace in order.
    pub(crate) fn of(spans: Vec<Span>) -> Self {
        let mut odd = Oddities::default();
        let spans = without_duplicates(spans, &mut odd);
        let parents = parents(&spans, &mut odd);
        let mut nodes = timed(spans, parents, &mut odd);
        cut_circles(&mut nodes, &mut odd);
        queue_waits(&mut nodes);
        let mut by_time: Vec<usize> = (0..nodes.len()).collect();
        // Ids decide between equal times, so that the order of the input does not.
        by_time.sort_by(|a, b| {
            let key = |index: usize| (nodes[index].time.0, Reverse(nodes[index].time.1), &nodes[index].span.id);
            key(*a).cmp(&key(*b))
        });
        let mut roots = Vec::new();
        for index in by_time {
            match nodes[index].parent {
                Some(parent) => nodes[parent].children.push(index),
                None => roots.push(index),
            }
        }
        let mut order = Vec::with_capacity(nodes.len());
        let mut next: Vec<usize> = roots.iter().rev().copied().collect();
        while let Some(index) = next.pop() {
            order.push(index);
            next.extend(nodes[index].children.iter().rev());
        }
        for index in &order {
            nodes[*index].own = own(&nodes, *index);
        }
        Self { spans: nodes, roots, order, odd }
    }

    /// What began when its parent had ended was never waited for. `times` are on one clock.
    pub(crate) fn begun_after(&mut self, times: &[(Tick, Tick)]) {
        for index in &self.order {
            let node = &self.spans[*index];
            let Some(parent) = node.parent.filter(|_| node.own.is_none()) else { continue };
            let grain = Duration::from_nanos(node.span.grain.max(self.spans[parent].span.grain) * 2);
            if times[*index].0.since(times[parent].1) > grain {
                self.spans[*index].own = Some(Own::BegunAfter);
            }
        }
    }
}

/// The two sides of one call may share an id.
const fn is_called_side(kind: Kind) -> bool {
    matches!(kind, Kind::Server | Kind::Consumer)
}

/// Zipkin tells a span in pieces; so one that lacks a time, a name or a process gets it from another with its id.
fn without_duplicates(spans: Vec<Span>, odd: &mut Oddities) -> Vec<Span> {
    let mut known: HashMap<(String, bool), usize> = HashMap::with_capacity(spans.len());
    let mut kept: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match known.entry((span.id.clone(), is_called_side(span.kind))) {
            Entry::Vacant(new) => {
                new.insert(kept.len());
                kept.push(span);
            }
            Entry::Occupied(known) => {
                let first = &mut kept[*known.get()];
                odd.duplicates += u64::from(first.time.is_some() && span.time.is_some());
                if first.time.is_none() {
                    (first.time, first.negative, first.grain) = (span.time, span.negative, span.grain);
                }
                if first.kind == Kind::Unspecified {
                    first.kind = span.kind;
                }
                if first.name.is_empty() {
                    first.name = span.name;
                }
                if first.process.service.is_empty() {
                    first.process = span.process;
                }
                first.parent = first.parent.take().or(span.parent);
                first.error |= span.error;
            }
        }
    }
    kept
}

fn parents(spans: &[Span], odd: &mut Oddities) -> Vec<Option<usize>> {
    let mut sides: HashMap<&str, [Option<usize>; 2]> = HashMap::with_capacity(spans.len());
    for (index, span) in spans.iter().enumerate() {
        sides.entry(&span.id).or_default()[usize::from(is_called_side(span.kind))] = Some(index);
    }
    let parent = |(index, span): (usize, &Span)| {
        // The called side of a shared id is the child of the calling side.
        if is_called_side(span.kind)
            && let Some([Some(calling), _]) = sides.get(span.id.as_str())
        {
            return Some(*calling);
        }
        let id = span.parent.as_deref()?;
        match sides.get(id) {
            Some([Some(calling), Some(called)]) => {
                let same = |other: usize| other != index && spans[other].process.service == span.process.service;
                Some(if same(*calling) && !same(*called) { *calling } else { *called })
            }
            Some([Some(only), None] | [None, Some(only)]) => Some(*only),
            _ => {
                odd.missing_parents += 1;
                None
            }
        }
    };
    spans.iter().enumerate().map(parent).collect()
}

/// Only spans with a time; the children of others go to the next one above that has one.
fn timed(spans: Vec<Span>, parents: Vec<Option<usize>>, odd: &mut Oddities) -> Vec<Node> {
    let has_time: Vec<bool> = spans.iter().map(|span| span.time.is_some()).collect();
    let mut place = Vec::with_capacity(spans.len());
    let mut kept = 0;
    for has_time in &has_time {
        place.push(kept);
        kept += usize::from(*has_time);
    }
    let above = |index: usize| {
        let mut parent = parents[index];
        for _ in 0..spans.len() {
            match parent {
                Some(at) if !has_time[at] => parent = parents[at],
                _ => break,
            }
        }
        parent.filter(|at| has_time[*at]).map(|at| place[at])
    };
    let above: Vec<Option<usize>> = (0..spans.len()).map(above).collect();
    let mut nodes = Vec::with_capacity(kept);
    for (span, parent) in spans.into_iter().zip(above) {
        let Some(time) = span.time else {
            odd.without_time += 1;
            continue;
        };
        odd.negative += u64::from(span.negative);
        nodes.push(Node { span, time, parent, children: Vec::new(), own: None, made: false });
    }
    nodes
}

fn cut_circles(nodes: &mut [Node], odd: &mut Oddities) {
    let mut seen = vec![0_usize; nodes.len()]; // by which walk
    for start in 0..nodes.len() {
        let walk = start + 1;
        let mut at = start;
        while seen[at] == 0 {
            seen[at] = walk;
            match nodes[at].parent {
                Some(parent) if seen[parent] == walk => {
                    nodes[at].parent = None;
                    odd.circles += 1;
                }
                Some(parent) => at = parent,
                None => {}
            }
        }
    }
}

/// A wait that was told as an attribute is an entry like any other.
fn queue_waits(nodes: &mut Vec<Node>) {
    for parent in 0..nodes.len() {
        let Some(wait) = nodes[parent].span.facts.queue_wait.filter(|wait| !wait.is_zero()) else { continue };
        let (began, ended) = nodes[parent].time;
        let wait = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let span = Span {
            name: "queue wait".to_owned(),
            process: Arc::clone(&nodes[parent].span.process),
            kind: Kind::Internal,
            grain: nodes[parent].span.grain,
            facts: Facts { stage: Some("queue".to_owned()), ..Facts::default() },
            ..Span::default()
        };
        let time = (began, began.saturating_add(wait).min(ended));
        nodes.push(Node { span, time, parent: Some(parent), children: Vec::new(), own: None, made: true });
    }
}

fn own(nodes: &[Node], index: usize) -> Option<Own> {
    let node = &nodes[index];
    let above = &nodes[node.parent?];
    if node.span.facts.detached {
        return Some(Own::Declared);
    }
    if node.span.follows {
        return Some(Own::Follows);
    }
    let consumes = node.span.kind == Kind::Consumer && above.span.kind != Kind::Consumer;
    let left_running = matches!(above.span.kind, Kind::Producer | Kind::Consumer) && node.time.1 > above.time.1;
    (consumes || left_running).then_some(Own::Message)
}
