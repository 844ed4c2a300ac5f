//! What a trace shows beside where the time went: work that ran on after its parent had ended, retries, clocks that were
//! reset, calls whose other side was never recorded.
//!
//! Decides what may be claimed. Nothing is said of a span that could still fit into its parent if the two clocks are apart.

use std::collections::BTreeMap;
use std::time::Duration;

use oneclock_core::Tick;
use serde::Serialize;

use crate::fingerprint::very_round_below;
use crate::skew::{Clocks, narrow};
use crate::span::Kind;
use crate::tree::{Own, Tree};

/// How much is known of a span that ended after its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// One clock: it is as long as recorded.
    Exact,
    /// Two clocks: under any offset that the trace allows it is at least so long.
    AtLeast,
    /// Two clocks, and an offset that the trace allows would explain it. No claim.
    Unproven,
}

/// A span that ended after its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Zombie {
    /// Which, as an index into the spans of the trace.
    pub span: usize,
    /// How much is known.
    pub certainty: Certainty,
    /// For how long it worked after that: at least, or as recorded where it is unproven.
    pub after_ns: u64,
    /// At most so long; `None` where nothing bounds it.
    pub at_most_ns: Option<u64>,
    /// It did not even begin before its parent ended, as far as the clocks are known. It was never waited for, so it was not
    /// abandoned either.
    pub began_after: bool,
}

/// An attempt after the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Retry {
    /// Which span.
    pub span: usize,
    /// Which attempt it is; the first was 1.
    pub attempt: u32,
    /// The time since the attempt before it had ended.
    pub waited_ns: Option<u64>,
    /// What was left of the budget when it began, where spans tell it: by the one that says least, since one that reset the
    /// clock says more than there was.
    pub left_ns: Option<u64>,
    /// What was left until its parent ended, which is all that other traces tell.
    pub until_parent_ended_ns: u64,
}

/// A hop that did not go on with the clock it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reset {
    /// Which span.
    pub span: usize,
    /// Why that is said.
    #[serde(flatten)]
    pub evidence: Evidence,
}

/// What shows that a hop reset the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "evidence", rename_all = "snake_case")]
pub enum Evidence {
    /// It was given more than its parent had left.
    GivenMore {
        /// What it was given.
        given_ns: u64,
        /// What was left.
        left_ns: u64,
    },
    /// It failed, outlived its parent, and took a very round time: that looks like a limit of its own.
    OwnRoundTime {
        /// That time.
        round_ns: u64,
    },
}

/// A call that ended when its failing parent did, and whose other side was never recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unrecorded {
    /// The call.
    pub span: usize,
    /// How long it waited for what was not recorded.
    pub waited_ns: u64,
}

/// Everything that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Spans that ended after their parents.
    pub zombies: Vec<Zombie>,
    /// Attempts after the first.
    pub retries: Vec<Retry>,
    /// Hops that reset the clock.
    pub resets: Vec<Reset>,
    /// Calls without a record of their other side.
    pub unrecorded: Vec<Unrecorded>,
}

/// What a budget that is given in whole milliseconds, and on the way, may be off.
const TOLERANCE: Duration = Duration::from_millis(1);

impl Zombie {
    /// It is proven that it ran on after its parent had ended.
    pub fn ran_on(&self) -> bool {
        self.certainty != Certainty::Unproven && !self.began_after
    }
}

/// A trace on one clock.
pub(crate) struct Seen<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) clocks: &'a Clocks,
    pub(crate) times: &'a [(Tick, Tick)],
}

impl Seen<'_> {
    pub(crate) fn findings(&self) -> Findings {
        let mut found = Findings::default();
        for index in &self.tree.order {
            let node = &self.tree.spans[*index];
            let Some(parent) = node.parent.filter(|_| !node.made) else { continue };
            let zombie = self.zombie(parent, *index);
            let proven = zombie.as_ref().is_some_and(Zombie::ran_on);
            let evidence = self.given_more(parent, *index).or_else(|| self.own_round_time(parent, *index, proven));
            found.resets.extend(evidence.map(|evidence| Reset { span: *index, evidence }));
            found.unrecorded.extend(self.unrecorded(parent, *index));
            found.zombies.extend(zombie);
        }
        let whose = self.tree.order.iter().filter(|index| !self.tree.spans[**index].children.is_empty());
        for parent in whose {
            self.retries(*parent, &mut found.retries);
        }
        found
    }

    /// Work for a message, and what was declared or recorded as not waited for, may outlive its parent.
    fn zombie(&self, parent: usize, index: usize) -> Option<Zombie> {
        let (node, above) = (&self.tree.spans[index], &self.tree.spans[parent]);
        let message = |kind: Kind| matches!(kind, Kind::Producer | Kind::Consumer);
        let declared = node.own.is_some_and(|own| own != Own::BegunAfter);
        if declared || message(node.span.kind) || message(above.span.kind) {
            return None;
        }
        let recorded = i128::from(node.time.1) - i128::from(above.time.1);
        // Beginning and length of both are rounded.
        let grain = i128::from(node.span.grain.max(above.span.grain)) * 2;
        let grain = if grain <= 2 { 0 } else { grain };
        let (certainty, after, at_most) = match self.clocks.apart(index) {
            None => (Certainty::Exact, recorded, Some(recorded)),
            Some(apart) if apart.at_least + recorded > grain => {
                let at_most = apart.at_most.map(|at_most| at_most + recorded);
                (Certainty::AtLeast, apart.at_least + recorded, at_most)
            }
            Some(_) => (Certainty::Unproven, recorded, Some(recorded)),
        };
        let nanos = |nanos: i128| u64::try_from(nanos.max(0)).unwrap_or(u64::MAX);
        // It worked for no longer than it took.
        let limit = if certainty == Certainty::Unproven { u64::MAX } else { node.time.1 - node.time.0 };
        let after_ns = nanos(after).min(limit);
        (after > grain && after_ns > 0).then(|| Zombie {
            span: index,
            certainty,
            after_ns,
            at_most_ns: at_most.map(|at_most| nanos(at_most).min(limit)),
            began_after: certainty != Certainty::Unproven && node.own.is_some(),
        })
    }

    /// What the operation had left when the child began, by the nearest span above that tells. Also at least how long
    /// before that was said.
    fn left(&self, parent: usize, child: usize) -> Option<Duration> {
        let mut at = parent;
        for _ in 0..self.tree.spans.len() {
            let node = &self.tree.spans[at];
            let told = node.span.facts.left_at_start.or(node.span.facts.given);
            if let Some(told) = told {
                // A parent on another clock: the least time that can have passed, so that no claim rests on skew.
                let passed = match self.clocks.apart(child).filter(|_| at == parent) {
                    Some(apart) => {
                        let passed =
                            i128::from(self.tree.spans[child].time.0) + apart.at_least - i128::from(node.time.0);
                        Duration::from_nanos(u64::try_from(narrow(passed).max(0)).unwrap_or_default())
                    }
                    None => self.times[child].0.since(self.times[at].0),
                };
                return Some(told.saturating_sub(passed));
            }
            if node.own.is_some() {
                return None;
            }
            at = node.parent?;
        }
        None
    }

    /// The least that any span of the operation, this one or one above, says was left when this one began.
    fn least_left(&self, index: usize) -> Option<Duration> {
        let mut least: Option<Duration> = None;
        let mut at = index;
        loop {
            let node = &self.tree.spans[at];
            let passed = self.times[index].0.since(self.times[at].0);
            if let Some(told) = node.span.facts.left_at_start.or(node.span.facts.given) {
                let left = told.saturating_sub(passed);
                least = Some(least.map_or(left, |least| least.min(left)));
            }
            match node.parent.filter(|_| node.own.is_none()) {
                Some(parent) => at = parent, // no circles: they were cut
                None => return least,
            }
        }
    }

    fn given_more(&self, parent: usize, index: usize) -> Option<Evidence> {
        let node = &self.tree.spans[index];
        if node.own.is_some() {
            return None;
        }
        let given = node.span.facts.left_at_start.or(node.span.facts.given)?;
        let left = self.left(parent, index)?;
        (given > left.saturating_add(TOLERANCE + left / 100))
            .then(|| Evidence::GivenMore { given_ns: nanos(given), left_ns: nanos(left) })
    }

    fn own_round_time(&self, parent: usize, index: usize, proven: bool) -> Option<Evidence> {
        let node = &self.tree.spans[index];
        let calls = matches!(node.span.kind, Kind::Server | Kind::Client);
        let took = self.took(index);
        if !proven || !calls || !node.span.error || took <= self.took(parent) {
            return None;
        }
        very_round_below(took).map(|round| Evidence::OwnRoundTime { round_ns: nanos(round) })
    }

    fn unrecorded(&self, parent: usize, index: usize) -> Option<Unrecorded> {
        let (node, above) = (&self.tree.spans[index], &self.tree.spans[parent]);
        let failed = node.span.error || above.span.error || above.span.facts.cause.as_deref() == Some("deadline");
        let (ended, parent_ended) = (self.times[index].1, self.times[parent].1);
        let apart = ended.since(parent_ended).max(parent_ended.since(ended));
        let took = self.took(index);
        let together = apart <= TOLERANCE.min(took / 20);
        let waited = took * 10 >= self.took(parent) && took >= TOLERANCE * 10;
        (node.span.kind == Kind::Client && node.children.is_empty() && failed && together && waited)
            .then(|| Unrecorded { span: index, waited_ns: nanos(took) })
    }

    /// Siblings of one name and peer, one after the other: one that says that it is a retry, or follows one that failed.
    fn retries(&self, parent: usize, found: &mut Vec<Retry>) {
        let mut alike: BTreeMap<(&str, &str, Option<&str>, bool), Vec<usize>> = BTreeMap::new();
        for child in &self.tree.spans[parent].children {
            let node = &self.tree.spans[*child];
            let messages = matches!(node.span.kind, Kind::Producer | Kind::Consumer);
            if !node.made && node.own.is_none() && !messages {
                let span = &node.span;
                let key = (&*span.process.service, &*span.name, span.facts.peer.as_deref(), span.kind == Kind::Server);
                alike.entry(key).or_default().push(*child);
            }
        }
        for attempts in alike.into_values() {
            let mut before: Option<(usize, u32)> = None;
            for index in attempts {
                let said = self.tree.spans[index].span.facts.attempt;
                let follows = before.filter(|(before, _)| {
                    self.tree.spans[*before].span.error && self.times[index].0 >= self.times[*before].1
                });
                let attempt = match (said, follows) {
                    (Some(said), _) => said.max(1),
                    (None, Some((_, attempt))) => attempt.saturating_add(1),
                    (None, None) => 1,
                };
                if attempt > 1 {
                    let began = self.times[index].0;
                    found.push(Retry {
                        span: index,
                        attempt,
                        waited_ns: before.map(|(before, _)| nanos(began.since(self.times[before].1))),
                        left_ns: self.least_left(index).map(nanos),
                        until_parent_ended_ns: nanos(self.times[parent].1.since(began)),
                    });
                }
                before = Some((index, attempt));
            }
        }
    }

    fn took(&self, index: usize) -> Duration {
        self.times[index].1.since(self.times[index].0)
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
