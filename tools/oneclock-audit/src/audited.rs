//! One audit from end to end: read, join, judge, leave out what somebody chose to ignore, and know every finding again.

use std::collections::HashMap;
use std::sync::Arc;

use crate::baseline::{Baseline, Entry};
use crate::graph::Graph;
use crate::ignores::{self, Ignored};
use crate::inventory::{Inventory, Why};
use crate::rules::{Finding, Rule, Severity};
use crate::source::Source;
use crate::walk::{Repository, Step, walk};
use crate::{estimate, fingerprint, rules};

/// Said where not every way through the calls is judged.
const TOO_MANY_WAYS: &str = "there are more ways through the calls than are followed: not every layer outside of this call, \
                             and of others, was compared with those inside of it";

/// What an audit comes to.
#[derive(Debug, Default)]
pub struct Audited {
    /// What was found in the files.
    pub inventory: Inventory,
    /// What does not fit, the loudest first; without what is ignored.
    pub findings: Vec<Found>,
    /// What does not fit, and is ignored with a reason.
    pub ignored: Vec<Ignored>,
    /// What a baseline has, and is not found any more.
    pub stale: Vec<Entry>,
    /// Whether a baseline said what is known.
    pub compared: bool,
    /// The texts of the files that findings are about.
    texts: HashMap<Arc<str>, Arc<str>>,
}

/// A finding, and how it is known again.
#[derive(Clone, Debug)]
pub struct Found {
    /// What was found.
    pub finding: Finding,
    /// The same for as long as the line says the same, wherever in its file it stands.
    pub fingerprint: String,
    /// Whether the baseline has it: then it fails nobody.
    pub known: bool,
    /// All places that it is told of together, as a baseline keeps them; at least its own.
    pub(crate) parts: Vec<Entry>,
    /// The calls of each of them, where they are known.
    pub(crate) hops: Vec<Vec<usize>>,
}

/// Reads a repository and judges it. `step` is told how far it is.
///
/// ```
/// use oneclock_audit::{audit, walk::Repository};
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(
///     folder.path().join("oneclock.topology.yaml"),
///     "services:\n- name: shop\n  calls:\n  - {to: stock, timeout: 2s, propagates: none}\n\
///      - name: stock\n  calls:\n  - {to: db, timeout: 5s}\n- name: db\n",
/// )?;
/// let audited = audit(&Repository::new(folder.path()), |_| ());
/// assert!(audited.findings.iter().any(|found| found.finding.rule == "outer-before-inner"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn audit(repository: &Repository, step: impl FnMut(Step)) -> Audited {
    let mut inventory = walk(repository, step);
    let graph = Graph::of(&inventory);
    let mut findings = rules::places(&graph);
    estimate::told::amend(&graph, &mut findings);
    let cut = graph.ways().cut.map(|hop| hop.call.place.clone());
    let crowded: Vec<_> = graph.crowded().collect();
    for (place, says) in crowded {
        inventory.leave_out(Why::NotFollowed, place, says);
    }
    if let Some(place) = cut {
        inventory.leave_out(Why::NotFollowed, place, TOO_MANY_WAYS);
    }
    let paths: Vec<Arc<str>> = inventory.files.iter().map(|file| Arc::clone(&file.path)).collect();
    judged(inventory, findings, paths, |path| repository.open(path).ok())
}

/// The second half: `open` gives the files that were read.
fn judged(
    inventory: Inventory,
    mut findings: Vec<Finding>,
    paths: Vec<Arc<str>>,
    open: impl Fn(&str) -> Option<Source>,
) -> Audited {
    let mut written = Vec::new();
    for path in paths {
        if let Some(source) = open(&path) {
            written.push(ignores::written(&source));
        }
    }
    let ignored = ignores::apply(written, &mut findings);
    rules::sort(&mut findings);
    let mut texts = HashMap::new();
    for place in findings.iter().flat_map(Finding::places) {
        if !texts.contains_key(&place.file)
            && let Some(source) = open(&place.file)
        {
            texts.insert(Arc::clone(&place.file), source.text);
        }
    }
    let fingerprints = fingerprint::of(&findings, &texts);
    let entries = findings.iter().zip(&fingerprints).map(|(finding, fingerprint)| Entry::of(finding, fingerprint));
    let entries: Vec<Entry> = entries.collect();
    let found = rules::grouped(findings, entries).into_iter().filter_map(|all| {
        let (all, parts): (Vec<Finding>, Vec<Entry>) = all.into_iter().unzip();
        let fingerprint = parts.first()?.fingerprint.clone();
        let hops = all.iter().map(|finding| finding.hops.clone()).collect();
        Some(Found { finding: all.into_iter().next()?, fingerprint, known: false, parts, hops })
    });
    Audited { inventory, findings: found.collect(), ignored, stale: Vec::new(), compared: false, texts }
}

/// All rules that a report may name: those that look at the graph, and those about ignores.
pub fn every_rule() -> impl Iterator<Item = &'static Rule> {
    rules::RULES.iter().chain(ignores::RULES).copied()
}

// === Audited ===

impl Audited {
    /// The joined graph of what was found.
    #[must_use]
    pub fn graph(&self) -> Graph<'_> {
        Graph::of(&self.inventory)
    }

    /// Marks what a baseline has, and keeps what it has for nothing.
    pub fn compare(&mut self, baseline: &Baseline) {
        self.stale = baseline.mark(&mut self.findings);
        self.compared = true;
    }

    /// The findings that the baseline does not have.
    pub fn new_findings(&self) -> impl Iterator<Item = &Found> {
        self.findings.iter().filter(|found| !found.known)
    }

    /// How many of a severity are not in the baseline.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.new_findings().filter(|found| found.finding.severity == severity).count()
    }

    /// Whether something as loud as this, or louder, is not in the baseline.
    #[must_use]
    pub fn fails(&self, from: Severity) -> bool {
        // Declared from the loudest on.
        self.new_findings().any(|found| found.finding.severity <= from)
    }

    /// How many files, or places in files, of known formats could not be read or not be understood.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.inventory.left_out.iter().filter(|left| left.why != Why::NotRead).count()
    }

    /// The text of a file that a finding is about.
    #[must_use]
    pub fn text(&self, file: &str) -> Option<&str> {
        self.texts.get(file).map(|text| &**text)
    }
}
