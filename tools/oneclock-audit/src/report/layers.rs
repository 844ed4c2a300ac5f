//! The layers that a request goes through, from the outside in, with what each of them waits for. Ways that say the same
//! are one, and those with findings come first: a gateway with two hundred routes has a few kinds of them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::words;
use crate::amount::shown;
use crate::audited::Audited;
use crate::catalogue::Kind;
use crate::graph::paths::Path;
use crate::graph::{Graph, Hop};
use crate::inventory::{Entry, Setting, Stated};
use crate::rules::Severity;
use crate::source::Place;

/// A way from the outside in.
#[derive(Debug)]
pub(super) struct Way<'a> {
    /// Through whom.
    pub(super) names: Vec<String>,
    /// What each of them waits for.
    pub(super) layers: Vec<Layer<'a>>,
    /// The rules that found something on it, the loudest first.
    pub(super) rules: Vec<&'static str>,
    /// How many others say the same.
    pub(super) alike: usize,
    /// Nothing on it has a limit that anybody knows.
    pub(super) says_nothing: bool,
}

/// One limit of one layer.
#[derive(Debug)]
pub(super) struct Layer<'a> {
    /// `storefront → reviews`; `reviews`, for what a server does itself.
    pub(super) who: String,
    /// What kind of limit.
    pub(super) kind: &'static str,
    /// How long, or how often.
    pub(super) limit: String,
    /// The same, where it is a time.
    pub(super) time: Option<Duration>,
    /// Where it comes from.
    pub(super) stated: String,
    /// What somebody measured.
    pub(super) p99: Option<Duration>,
    /// The setting, where it is one.
    pub(super) setting: Option<&'a Setting>,
    /// Where that is said.
    pub(super) place: Option<&'a Place>,
}

/// The kinds that bound a call, in the order in which they are told; those of a default only where they decide.
const OF_A_CALL: &[(Kind, bool)] = &[
    (Kind::Total, true),
    (Kind::Attempt, true),
    (Kind::Attempts, true),
    (Kind::Retrying, false),
    (Kind::Backoff, false),
    (Kind::FirstByte, true),
    (Kind::Idle, true),
    (Kind::PoolWait, true),
    (Kind::LockWait, true),
    (Kind::Connect, false),
    (Kind::Statement, true),
    (Kind::Fault, true),
];

/// The kinds that bound what a server does.
const OF_A_SERVER: &[Kind] = &[Kind::ServerKill, Kind::Statement, Kind::PoolWait, Kind::LockWait, Kind::Redelivery];

// === Layer ===

impl Layer<'_> {
    /// How many times as long as what was measured; of what limits the time of one answer only.
    pub(super) fn ratio(&self) -> Option<f64> {
        let p99 = self.p99.filter(|p99| !p99.is_zero())?;
        Some(self.time?.as_secs_f64() / p99.as_secs_f64())
    }
}

/// All ways, those that say the same together.
pub(super) fn ways<'a>(audited: &Audited<'_>, graph: &Graph<'a>) -> Vec<Way<'a>> {
    let found = Found::of(audited);
    let entries: Vec<(&Entry, _)> =
        graph.inventory.entries.iter().filter_map(|entry| Some((entry, graph.who_answers(entry)?))).collect();
    let mut ways: Vec<Way<'a>> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for path in graph.paths() {
        let way = way(graph, &path, &entries, &found);
        // The names of those who are called do not count, only who begins.
        let layers: Vec<String> = way
            .layers
            .iter()
            .map(|layer| format!("{}|{}|{}|{:?}", layer.kind, layer.limit, layer.stated, layer.p99))
            .collect();
        let key = format!("{:?}{}{layers:?}{:?}", way.names.first(), way.names.len(), way.rules);
        match known.get(&key).and_then(|at| ways.get_mut(*at)) {
            Some(same) => same.alike += 1,
            None => {
                known.insert(key, ways.len());
                ways.push(way);
            }
        }
    }
    // A stable order: of those that are equal the first one found.
    ways.sort_by_key(|way| (way.rules.is_empty(), way.says_nothing, std::cmp::Reverse(way.rules.len())));
    ways
}

/// Findings by the first call that they are about, or by the first two whom they are between where nobody knows which
/// call. Notes break nothing.
struct Found<'f> {
    by_hop: HashMap<usize, Vec<One<'f, usize>>>,
    by_pair: HashMap<(&'f str, &'f str), Vec<One<'f, String>>>,
}

/// One of them.
struct One<'f, T> {
    along: &'f [T],
    /// How loud it is among all: the loudest has the lowest.
    rank: usize,
    rule: &'static str,
}

impl<'f> Found<'f> {
    fn of(audited: &'f Audited<'_>) -> Self {
        let mut by_hop: HashMap<_, Vec<_>> = HashMap::new();
        let mut by_pair: HashMap<_, Vec<_>> = HashMap::new();
        let loud = |(_, found): &(usize, &crate::audited::Found)| found.finding.severity < Severity::Note;
        for (rank, found) in audited.findings.iter().enumerate().filter(loud) {
            let rule = found.finding.rule;
            for hops in &found.hops {
                if let Some(first) = hops.first() {
                    by_hop.entry(*first).or_default().push(One { along: hops.as_slice(), rank, rule });
                }
            }
            let between = &*found.finding.between;
            if let ([first, second, ..], true) = (between, found.finding.hops.is_empty()) {
                by_pair.entry((first.as_str(), second.as_str())).or_default().push(One { along: between, rank, rule });
            }
        }
        Self { by_hop, by_pair }
    }

    fn on(&self, hops: &[usize], names: &[String]) -> Vec<&'static str> {
        let mut rules = Vec::new();
        for (at, hop) in hops.iter().enumerate() {
            for One { along, rank, rule } in self.by_hop.get(hop).into_iter().flatten() {
                if hops.get(at..).is_some_and(|rest| rest.starts_with(along)) {
                    rules.push((*rank, *rule));
                }
            }
        }
        for (at, pair) in names.windows(2).enumerate() {
            let [first, second] = pair else { continue };
            for One { along, rank, rule } in self.by_pair.get(&(first.as_str(), second.as_str())).into_iter().flatten()
            {
                if names.get(at..).is_some_and(|rest| rest.starts_with(along)) {
                    rules.push((*rank, *rule));
                }
            }
        }
        rules.sort_unstable();
        let mut seen = HashSet::new();
        rules.into_iter().map(|(_, rule)| rule).filter(|rule| seen.insert(*rule)).collect()
    }
}

fn way<'a>(
    graph: &Graph<'a>,
    path: &Path<'_, 'a>,
    entries: &[(&'a Entry, crate::inventory::ComponentId)],
    found: &Found<'_>,
) -> Way<'a> {
    let mut names: Vec<String> = path.hops.first().map(|first| graph.name(first.from).to_owned()).into_iter().collect();
    names.extend(path.hops.iter().map(|hop| graph.callee(hop)));
    let mut layers = Vec::new();
    let begins = path.hops.first().map(|first| first.from);
    for (entry, _) in entries.iter().filter(|(_, to)| Some(*to) == begins) {
        layers.push(Layer {
            who: entry.name.clone(),
            kind: "budget",
            limit: shown(entry.budget),
            time: Some(entry.budget),
            stated: "topology file".to_owned(),
            p99: None,
            setting: None,
            place: Some(&entry.place),
        });
    }
    let mut says_nothing = layers.is_empty();
    for hop in &path.hops {
        let before = layers.len();
        of_call(graph, hop, &mut layers);
        says_nothing &= layers.len() == before;
        if layers.len() == before {
            layers.push(Layer {
                who: hop_name(graph, hop),
                kind: "",
                limit: words::arrow(hop),
                time: None,
                stated: if hop.call.streaming { String::new() } else { "no file says it".to_owned() },
                p99: graph.measured_call(hop),
                setting: None,
                place: Some(&hop.call.place),
            });
        }
        of_server(graph, hop, &mut layers);
    }
    let hops: Vec<usize> = path.hops.iter().map(|hop| hop.number).collect();
    let rules = found.on(&hops, &names);
    Way { names, layers, rules, alike: 0, says_nothing }
}

/// With the route, where its caller has several to the same one.
fn hop_name(graph: &Graph<'_>, hop: &Hop<'_>) -> String {
    format!("{} → {}{}", graph.name(hop.from), graph.callee(hop), words::route(graph, hop))
}

fn of_call<'a>(graph: &Graph<'a>, hop: &Hop<'a>, layers: &mut Vec<Layer<'a>>) {
    let who = hop_name(graph, hop);
    let p99 = graph.measured_call(hop);
    let decides = [hop.limits.decides(), hop.limits.decides_attempt()];
    let before = layers.len();
    for (kind, always) in OF_A_CALL {
        let Some(setting) = hop.limits.get(*kind) else { continue };
        let decides = decides.iter().flatten().any(|one| std::ptr::eq(*one, setting));
        if !always && setting.stated == Stated::Default && !decides {
            continue;
        }
        let bounds = matches!(kind, Kind::Total | Kind::Attempt | Kind::FirstByte | Kind::Idle);
        layers.push(Layer { p99: p99.filter(|_| bounds), ..layer(&who, setting) });
    }
    let tries = hop.limits.tries().is_none_or(|tries| tries > 1);
    if layers.len() > before && tries && hop.limits.decides().is_some() {
        layers.push(Layer {
            who,
            kind: "all together",
            limit: words::patience(&hop.limits),
            time: hop.limits.patience().time(),
            stated: "follows".to_owned(),
            p99,
            setting: None,
            place: None,
        });
    }
}

fn of_server<'a>(graph: &Graph<'a>, hop: &Hop<'a>, layers: &mut Vec<Layer<'a>>) {
    let Some(to) = hop.to else { return };
    for kind in OF_A_SERVER {
        if let Some(setting) = graph.serving(to, *kind) {
            layers.push(layer(graph.name(to), setting));
        }
    }
}

fn layer<'a>(who: &str, setting: &'a Setting) -> Layer<'a> {
    Layer {
        who: who.to_owned(),
        kind: words::kind(setting.known.kind),
        limit: words::amount(setting),
        time: setting.amount.after(),
        stated: words::stated(setting.stated, setting.known),
        p99: None,
        setting: Some(setting),
        place: Some(&setting.place),
    }
}
