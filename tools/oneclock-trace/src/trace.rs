//! One trace, explained: its ledger as a tree, and what was found in it.

use std::collections::BTreeMap;
use std::time::Duration;

use oneclock_core::Tick;
use serde::Serialize;

use crate::account::Account;
use crate::findings::{Findings, Seen};
use crate::open::Collected;
use crate::skew::{Clocks, Skew};
use crate::span::{Facts, Kind};
use crate::tree::{Node, Oddities, Own, Tree};

/// One trace, explained.
///
/// Its own operation goes from the beginning of its first root to the end of its last one. What nobody waits for begins an
/// operation of its own inside the trace: see [`Own`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// Its id, as recorded; hexadecimal digits in lower case.
    pub id: String,
    /// When it began: wall clock of its root's process, nanoseconds since 1970.
    pub began_unix_ns: u64,
    /// How long its own operation took.
    pub elapsed_ns: u64,
    /// What of that no root covers: a trace may lack the span above its roots.
    pub between_roots_ns: u64,
    /// How many roots it has. More than one: the span above them was not recorded.
    pub roots: usize,
    /// The ledger, parents before children.
    pub spans: Vec<Row>,
    /// What was found.
    #[serde(flatten)]
    pub findings: Findings,
    /// What is known of its clocks.
    pub skews: Vec<Skew>,
    /// What was odd about it.
    pub oddities: Oddities,
    /// What did not add up. Empty, or a defect of this crate.
    pub wrong: Vec<String>,
}

/// One entry of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The span's id; empty for a wait that was told as an attribute.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The entry above it.
    pub parent: Option<usize>,
    /// How many are above it.
    pub depth: usize,
    /// Where.
    pub service: String,
    /// What.
    pub name: String,
    /// What kind of span it is.
    pub kind: Kind,
    /// When it began, on one clock, counted from the earliest entry. That may not be the root, where clocks are apart.
    pub began_ns: u64,
    /// How long it took.
    pub took_ns: u64,
    /// What of that its operation waited for: entries beside each other share no moment, and sum with what is unaccounted to
    /// what is charged to the entry above.
    pub charged_ns: u64,
    /// Where that begins.
    pub charged_from_ns: u64,
    /// What of that no entry below covers. These of one operation sum to its elapsed time (for the trace's own: with what is
    /// between its roots).
    pub unaccounted_ns: u64,
    /// It failed.
    #[serde(skip_serializing_if = "is_false")]
    pub error: bool,
    /// Its operation, by the entry at its top; `None` for the trace's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<usize>,
    /// It begins an operation of its own, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<Own>,
    /// What was left of its budget at its beginning, and at its end, and what it was given; what bounded and what ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_at_start_ns: Option<u64>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_at_end_ns: Option<u64>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_ns: Option<u64>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// See above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// What is known of the far side of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}

/// What one name is charged with in one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Where.
    pub service: String,
    /// What.
    pub name: String,
    /// How many spans.
    pub spans: u64,
    /// The time that they account for themselves: what is charged to them, less what is charged to what they called.
    pub own_ns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_false(truth: &bool) -> bool {
    !truth
}

impl Trace {
    /// Explains what was collected of one trace.
    pub(crate) fn of(collected: Collected) -> Self {
        let mut tree = Tree::of(collected.spans);
        tree.odd.dropped = collected.dropped;
        let clocks = Clocks::of(&tree);
        let times = times(&tree, &clocks);
        tree.begun_after(&times);
        let account = Account::of(&tree, &times);
        let findings = Seen { tree: &tree, clocks: &clocks, times: &times }.findings();
        let began_unix_ns = tree.roots.iter().map(|root| tree.spans[*root].time.0).min().unwrap_or_default();
        // Entries are told in their order, so places change.
        let mut place = vec![0; tree.spans.len()];
        for (to, from) in tree.order.iter().enumerate() {
            place[*from] = to;
        }
        let mut depth = vec![0; tree.spans.len()];
        let elapsed_ns = nanos(account.whole.1.since(account.whole.0));
        let between_roots_ns = nanos(account.between);
        let rows = tree.order.iter().map(|index| {
            let node = &tree.spans[*index];
            depth[*index] = node.parent.map_or(0, |parent| depth[parent] + 1);
            Row {
                parent: node.parent.map(|parent| place[parent]),
                depth: depth[*index],
                began_ns: times[*index].0.as_nanos(),
                charged_ns: nanos(account.charged[*index].1.since(account.charged[*index].0)),
                charged_from_ns: account.charged[*index].0.as_nanos(),
                unaccounted_ns: nanos(account.unaccounted[*index]),
                operation: Some(account.operation[*index])
                    .filter(|top| tree.spans[*top].own.is_some())
                    .map(|top| place[top]),
                ..Row::of(node)
            }
        });
        let spans = rows.collect();
        let roots = tree.roots.len();
        Self {
            id: collected.id.to_string(),
            began_unix_ns,
            elapsed_ns,
            between_roots_ns,
            roots,
            spans,
            findings: findings.at(&place),
            skews: clocks.skews,
            oddities: tree.odd,
            wrong: account.wrong,
        }
    }

    /// Where the time of its own operation went, by name, the largest share first. With `between_roots_ns` it sums to
    /// `elapsed_ns`.
    pub fn shares(&self) -> Vec<Share> {
        let mut shares: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for row in self.spans.iter().filter(|row| row.operation.is_none()) {
            let (spans, own) = shares.entry((&row.service, &row.name)).or_default();
            *spans += u64::from(!row.id.is_empty());
            *own = own.saturating_add(row.unaccounted_ns);
        }
        let mut shares: Vec<Share> = shares
            .into_iter()
            .map(|((service, name), (spans, own_ns))| Share {
                service: service.to_owned(),
                name: name.to_owned(),
                spans,
                own_ns,
            })
            .collect();
        shares.sort_by_key(|share| std::cmp::Reverse(share.own_ns));
        shares
    }

    /// The operations inside it that nobody waits for, by the entry at their top.
    pub fn own_operations(&self) -> impl Iterator<Item = (usize, &Row)> {
        self.spans.iter().enumerate().filter(|(_, row)| row.own.is_some())
    }

    /// The elapsed time of all its operations together, the trace's own and those inside it.
    pub fn operations_ns(&self) -> u64 {
        let own = self.own_operations().map(|(_, row)| row.took_ns);
        own.fold(self.elapsed_ns, u64::saturating_add)
    }

    /// The time that abandoned spans ran on after their parents, proven.
    pub fn zombie_ns(&self) -> u64 {
        let zombies = self.findings.zombies.iter().filter(|zombie| zombie.ran_on());
        zombies.fold(0, |sum, zombie| sum.saturating_add(zombie.after_ns))
    }

    /// By which the most telling traces are chosen.
    pub(crate) fn telling(&self) -> (u64, usize, usize, u64) {
        let Findings { resets, unrecorded, retries, zombies } = &self.findings;
        (self.zombie_ns(), resets.len() + unrecorded.len(), retries.len() + zombies.len(), self.elapsed_ns)
    }
}

impl Row {
    fn of(node: &Node) -> Self {
        let span = &node.span;
        let Facts { left_at_start, left_at_end, given, bound, cause, stage, outcome, .. } = span.facts.clone();
        Self {
            id: span.id.clone(),
            service: span.process.service.clone(),
            name: span.name.clone(),
            kind: span.kind,
            took_ns: node.time.1 - node.time.0,
            error: span.error,
            own: node.own,
            left_at_start_ns: left_at_start.map(nanos),
            left_at_end_ns: left_at_end.map(nanos),
            given_ns: given.map(nanos),
            bound,
            cause,
            stage,
            outcome,
            ..Self::default()
        }
    }
}

impl Findings {
    fn at(mut self, place: &[usize]) -> Self {
        self.zombies.iter_mut().for_each(|zombie| zombie.span = place[zombie.span]);
        self.retries.iter_mut().for_each(|retry| retry.span = place[retry.span]);
        self.resets.iter_mut().for_each(|reset| reset.span = place[reset.span]);
        self.unrecorded.iter_mut().for_each(|unrecorded| unrecorded.span = place[unrecorded.span]);
        self
    }
}

/// All times on the clock of the root, counted from the earliest.
fn times(tree: &Tree, clocks: &Clocks) -> Vec<(Tick, Tick)> {
    let on_one_clock = |(index, node): (usize, &Node)| {
        (clocks.on_one_clock(index, node.time.0), clocks.on_one_clock(index, node.time.1))
    };
    let times: Vec<(i128, i128)> = tree.spans.iter().enumerate().map(on_one_clock).collect();
    let first = times.iter().map(|(began, _)| *began).min().unwrap_or_default();
    let tick = |at: i128| Tick::from_nanos(u64::try_from(at - first).unwrap_or(u64::MAX));
    times.into_iter().map(|(began, ended)| (tick(began), tick(ended))).collect()
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
