//! What is one thing to mend in many places is told once: a gateway with twenty routes has one line to write.
//!
//! That happens last, when what is ignored is gone. Told together before, one comment on the first line would silence all
//! the others, of which nobody said anything.

use std::collections::{HashMap, HashSet};

use super::{Finding, Related, words};
use crate::inventory::EdgeId;

/// The most places that are shown beside the first.
const PLACES: usize = 5;

/// With what a finding is told together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// The same for all of them, within their rule.
    pub(super) key: String,
    /// The call that it is about.
    pub(super) call: EdgeId,
    /// How the sentence begins: with the call. Of several, `and 3 more calls` follows.
    pub(super) subject: String,
    /// How it goes on for several.
    pub(super) several: String,
}

/// What is told: each with all that is told together with it, itself among them and first; and what belongs to each.
pub(crate) fn grouped<T>(findings: Vec<Finding>, with: impl IntoIterator<Item = T>) -> Vec<Vec<(Finding, T)>> {
    let mut all: Vec<Vec<(Finding, T)>> = Vec::new();
    let mut known: HashMap<(&'static str, String), usize> = HashMap::new();
    for (finding, with) in findings.into_iter().zip(with) {
        let key = match &finding.group {
            Some(group) => format!("{:?} {}", finding.severity, group.key),
            // Several calls, or ways, of which the same is said in the same place.
            None => format!("{} {}", finding.place, finding.says),
        };
        match known.get(&(finding.rule, key.clone())).and_then(|at| all.get_mut(*at)) {
            Some(others) => others.push((finding, with)),
            None => {
                known.insert((finding.rule, key), all.len());
                all.push(vec![(finding, with)]);
            }
        }
    }
    all.iter_mut().for_each(|findings| together(findings));
    all
}

/// The first of each.
pub(crate) fn first(findings: Vec<Finding>) -> impl Iterator<Item = Finding> {
    grouped(findings, std::iter::repeat(())).into_iter().filter_map(|all| Some(all.into_iter().next()?.0))
}

/// The first speaks for all.
fn together<T>(findings: &mut [(Finding, T)]) {
    let calls: HashSet<EdgeId> = findings.iter().filter_map(|(one, _)| Some(one.group.as_ref()?.call)).collect();
    let mut places: Vec<_> = findings.iter().map(|(one, _)| one.place.clone()).collect();
    places.dedup();
    if let Some(((first, _), _)) = findings.split_first_mut()
        && let Some(group) = &first.group
    {
        if calls.len() > 1 {
            first.says = format!("{}{}{}", group.subject, words::and_more(calls.len()), group.several);
        }
        for place in places.iter().skip(1).take(PLACES) {
            first.related.push(Related { place: place.clone(), says: "here too".to_owned() });
        }
    }
}
