//! Where everything is drawn. Columns by how far inside somebody is, rows by who calls whom, and a place of its own on its
//! target for every arrow, so that no words lie on others.

use std::collections::HashMap;

use super::nodes::{Link, Node};
use super::text_width;
use crate::rules::Severity;

/// The space that an arrow and its two lines of words take.
const ROW: f64 = 36.0;
/// The space of an arrow that passes.
const LINE: f64 = 8.0;
const LEAST_HEIGHT: f64 = 46.0;
const GAP: f64 = 22.0;

/// Where everything is.
pub(super) struct Layout {
    /// A box for each node, in the same order.
    pub(super) boxes: Vec<Place>,
    /// An arrow for each link, in the same order.
    pub(super) arrows: Vec<Arrow>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A box.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::report) struct Place {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// An arrow.
pub(super) struct Arrow {
    pub(super) from: (f64, f64),
    /// Where it goes straight on, past the columns between: from, to, and how high.
    pub(super) past: Vec<(f64, f64, f64)>,
    pub(super) to: (f64, f64),
    /// How wide its words are: for so long it is straight before it ends.
    pub(super) words: f64,
    pub(super) severity: Option<Severity>,
    /// It does not lead further inside.
    pub(super) back: bool,
}

// === Layout ===

impl Layout {
    pub(super) fn of(nodes: &[Node], links: &[Link]) -> Self {
        let mut columns = columns(nodes.len(), links);
        let arriving = |node: usize| links.iter().filter(|link| link.to == node).count();
        let leaving = |node: usize| links.iter().filter(|link| link.from == node).count();
        let mut boxes: Vec<Place> = nodes
            .iter()
            .enumerate()
            .map(|(number, node)| {
                let height = (rows(arriving(number)) * ROW).max(rows(leaving(number)) * 14.0).max(LEAST_HEIGHT);
                Place { width: node.width(), height, ..Place::default() }
            })
            .collect();
        let ways: Vec<Vec<usize>> = links.iter().map(|link| way(link, &mut columns, &mut boxes)).collect();
        let steps: Vec<(usize, usize)> =
            ways.iter().flat_map(|way| way.iter().copied().zip(way.iter().copied().skip(1))).collect();
        let by_column = ordered(&columns, &steps);
        let width = across(&by_column, links, &columns, &mut boxes);
        let height = down(&by_column, &mut boxes);
        let arrows = arrows(links, &ways, &columns, &boxes);
        boxes.truncate(nodes.len());
        Self { boxes, arrows, width, height }
    }
}

/// Whom an arrow passes: in each column between its ends it has a place of its own, as low as a line.
fn way(link: &Link, columns: &mut Vec<usize>, boxes: &mut Vec<Place>) -> Vec<usize> {
    let (from, to) =
        (columns.get(link.from).copied().unwrap_or_default(), columns.get(link.to).copied().unwrap_or_default());
    let mut way = vec![link.from];
    for column in from + 1..to {
        way.push(boxes.len());
        columns.push(column);
        boxes.push(Place { height: LINE, ..Place::default() });
    }
    way.push(link.to);
    way
}

#[allow(clippy::cast_precision_loss, reason = "a drawing has few of them")]
const fn rows(count: usize) -> f64 {
    count as f64
}

/// How far inside each one is: one more than whoever calls it. Of calls in a circle, those that lead back do not count.
fn columns(nodes: usize, links: &[Link]) -> Vec<usize> {
    let mut calls: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for link in links {
        if let Some(calls) = calls.get_mut(link.from) {
            calls.push(link.to);
        }
    }
    // Depth first, without recursion: a node is done when all that it calls is; what is still open leads back.
    let mut state = vec![0_u8; nodes];
    let mut done = Vec::with_capacity(nodes);
    let mut kept: Vec<(usize, usize)> = Vec::new();
    let called: Vec<bool> = (0..nodes).map(|node| links.iter().any(|link| link.to == node)).collect();
    let mut starts: Vec<usize> = (0..nodes).collect();
    starts.sort_by_key(|node| called.get(*node).copied().unwrap_or_default());
    for start in starts {
        let mut way = vec![(start, 0_usize)];
        if state.get(start) != Some(&0) {
            continue;
        }
        state[start] = 1;
        while let Some((node, next)) = way.last_mut() {
            let node = *node;
            match calls.get(node).and_then(|calls| calls.get(*next)).copied() {
                Some(to) => {
                    *next += 1;
                    if state.get(to) != Some(&1) {
                        kept.push((node, to));
                    }
                    if state.get(to) == Some(&0) {
                        state[to] = 1;
                        way.push((to, 0));
                    }
                }
                None => {
                    state[node] = 2;
                    done.push(node);
                    way.pop();
                }
            }
        }
    }
    let mut columns = vec![0_usize; nodes];
    let mut inner: HashMap<usize, Vec<usize>> = HashMap::new();
    for (from, to) in kept {
        inner.entry(from).or_default().push(to);
    }
    for node in done.into_iter().rev() {
        let column = columns.get(node).copied().unwrap_or_default();
        for to in inner.get(&node).into_iter().flatten() {
            if let Some(own) = columns.get_mut(*to) {
                *own = (*own).max(column + 1);
            }
        }
    }
    columns
}

/// Who stands in each column, from the top: near those that they have to do with.
fn ordered(columns: &[usize], steps: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let most = columns.iter().copied().max().map_or(0, |most| most + 1);
    let mut by_column: Vec<Vec<usize>> = vec![Vec::new(); most];
    for (node, column) in columns.iter().enumerate() {
        if let Some(nodes) = by_column.get_mut(*column) {
            nodes.push(node);
        }
    }
    let mut rank = vec![0.0; columns.len()];
    for _ in 0..6 {
        for callers in [true, false] {
            for column in &mut by_column {
                for (at, node) in column.iter().enumerate() {
                    rank[*node] = rows(at);
                }
            }
            for column in &mut by_column {
                let middle = |node: usize| {
                    let near = steps.iter().filter_map(|(from, to)| match callers {
                        true => (*to == node).then_some(*from),
                        false => (*from == node).then_some(*to),
                    });
                    let ranks: Vec<f64> = near.filter_map(|near| rank.get(near).copied()).collect();
                    let own = rank.get(node).copied().unwrap_or_default();
                    if ranks.is_empty() { own } else { ranks.iter().sum::<f64>() / rows(ranks.len()) }
                };
                let mut placed: Vec<(f64, usize)> = column.iter().map(|node| (middle(*node), *node)).collect();
                placed.sort_by(|a, b| a.0.total_cmp(&b.0));
                *column = placed.into_iter().map(|(_, node)| node).collect();
                for (at, node) in column.iter().enumerate() {
                    rank[*node] = rows(at);
                }
            }
        }
    }
    by_column
}

/// Sets every `x`: between two columns there is room for the words of the arrows that end there. The width of all.
fn across(by_column: &[Vec<usize>], links: &[Link], columns: &[usize], boxes: &mut [Place]) -> f64 {
    let mut x = 0.0;
    for (number, column) in by_column.iter().enumerate() {
        let words = links.iter().filter(|link| columns.get(link.to) == Some(&number) && number > 0);
        let widest = words.map(words_width).fold(0.0, f64::max);
        if number > 0 {
            x += (widest + 76.0).max(84.0);
        }
        let wide = column.iter().filter_map(|node| boxes.get(*node)).map(|place| place.width).fold(0.0, f64::max);
        for node in column {
            if let Some(place) = boxes.get_mut(*node) {
                place.x = x;
                place.width = wide;
            }
        }
        x += wide;
    }
    x
}

/// How wide the words of an arrow are.
fn words_width(link: &Link) -> f64 {
    let rules = if link.rules.is_empty() { 0.0 } else { text_width(&link.told_rules(), 11.5) + 14.0 };
    text_width(&link.limit, 11.0).max(rules)
}

/// Sets every `y`: each column in the middle. The height of all.
fn down(by_column: &[Vec<usize>], boxes: &mut [Place]) -> f64 {
    let height = |column: &Vec<usize>, boxes: &[Place]| {
        let boxes = column.iter().filter_map(|node| boxes.get(*node));
        boxes.map(|place| place.height + GAP).sum::<f64>() - GAP
    };
    let all = by_column.iter().map(|column| height(column, boxes)).fold(0.0, f64::max);
    for column in by_column {
        let mut y = (all - height(column, boxes)) / 2.0;
        for node in column {
            if let Some(place) = boxes.get_mut(*node) {
                place.y = y;
                y += place.height + GAP;
            }
        }
    }
    all
}

/// Each arrow has its own place on both sides, in the order of those at the other end.
fn arrows(links: &[Link], ways: &[Vec<usize>], columns: &[usize], boxes: &[Place]) -> Vec<Arrow> {
    let place = |node: usize| boxes.get(node).copied().unwrap_or_default();
    let middle = |node: usize| place(node).y + place(node).height / 2.0;
    // Its own end, and whom it comes from or goes to there.
    let leaves = |way: &Vec<usize>| (way.first().copied().unwrap_or_default(), way.get(1).copied().unwrap_or_default());
    let arrives = |way: &Vec<usize>| {
        let mut back = way.iter().rev().copied();
        (back.next().unwrap_or_default(), back.next().unwrap_or_default())
    };
    let port = |number: usize, end: &dyn Fn(&Vec<usize>) -> (usize, usize)| {
        let own = ways.get(number).map(end).unwrap_or_default().0;
        let mut beside: Vec<(f64, usize)> = ways
            .iter()
            .enumerate()
            .filter(|(_, way)| end(way).0 == own)
            .map(|(number, way)| (middle(end(way).1), number))
            .collect();
        beside.sort_by(|a, b| a.0.total_cmp(&b.0));
        let before = beside.iter().position(|(_, one)| *one == number).unwrap_or_default();
        let place = place(own);
        place.y + place.height * (rows(before) + 0.5) / rows(beside.len().max(1))
    };
    let arrow = |(number, (link, way)): (usize, (&Link, &Vec<usize>))| {
        let (from, to) = (place(link.from), place(link.to));
        let passed = way.iter().skip(1).take(way.len().saturating_sub(2)).map(|node| (*node, place(*node)));
        Arrow {
            from: (from.x + from.width, port(number, &leaves)),
            past: passed.map(|(node, place)| (place.x, place.x + place.width, middle(node))).collect(),
            to: (to.x, port(number, &arrives)),
            words: words_width(link),
            severity: link.severity,
            back: columns.get(link.to) <= columns.get(link.from),
        }
    };
    links.iter().zip(ways).enumerate().map(arrow).collect()
}
