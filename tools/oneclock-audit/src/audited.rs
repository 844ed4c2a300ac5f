//! One audit of what was read: join, judge, leave out what somebody chose to ignore, and know every finding again.

use std::collections::HashMap;
use std::sync::Arc;

use crate::baseline::{Baseline, Entry};
use crate::graph::Graph;
use crate::ignores::{self, Ignored};
use crate::inventory::{Inventory, LeftOut, Why};
use crate::rules::{Finding, Rule, Severity};
use crate::walk::Repository;
use crate::{estimate, fingerprint, rules};

/// Said where not every way through the calls is judged.
const TOO_MANY_WAYS: &str = "there are more ways through the calls than are followed: not every layer outside of this call, \
                             and of others, was compared with those inside of it";

/// What an audit comes to.
pub struct Audited<'a> {
    /// What was found in the files.
    pub inventory: &'a Inventory,
    /// What was not read, or not understood; and what was not followed.
    pub left_out: Vec<LeftOut>,
    /// What does not fit, the loudest first; without what is ignored.
    pub findings: Vec<Found>,
    /// What does not fit, and is ignored with a reason.
    pub ignored: Vec<Ignored>,
    /// What a baseline has, and is not found any more.
    pub stale: Vec<Entry>,
    /// Whether a baseline said what is known.
    pub compared: bool,
    /// The same, joined: who calls whom.
    graph: Graph<'a>,
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

/// Judges what was read of a repository.
///
/// ```
/// use oneclock_audit::audit;
/// use oneclock_audit::walk::{Repository, walk};
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(
///     folder.path().join("oneclock.topology.yaml"),
///     "services:\n- name: shop\n  calls:\n  - {to: stock, timeout: 2s, propagates: none}\n\
///      - name: stock\n  calls:\n  - {to: db, timeout: 5s}\n- name: db\n",
/// )?;
/// let repository = Repository::new(folder.path());
/// let inventory = walk(&repository, |_| ());
/// let audited = audit(&repository, &inventory);
/// assert!(audited.findings.iter().any(|found| found.finding.rule == "outer-before-inner"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn audit<'a>(repository: &Repository, inventory: &'a Inventory) -> Audited<'a> {
    let graph = Graph::of(inventory);
    let mut findings = rules::places(&graph);
    estimate::told::amend(&graph, &mut findings);
    let mut left_out = inventory.left_out.clone();
    let mut not_followed = |place, says| left_out.push(LeftOut { why: Why::NotFollowed, place, says });
    graph.crowded().for_each(|(place, says)| not_followed(place, says));
    if let Some(hop) = graph.ways().cut {
        not_followed(hop.call.place.clone(), TOO_MANY_WAYS.to_owned());
    }
    let open = |path: &str| repository.open(path).ok();
    let written = inventory.files.iter().filter_map(|file| open(&file.path)).map(|source| ignores::written(&source));
    let ignored = ignores::apply(written.collect(), &mut findings);
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
    Audited {
        inventory,
        left_out,
        findings: found.collect(),
        ignored,
        stale: Vec::new(),
        compared: false,
        graph,
        texts,
    }
}

/// All rules that a report may name: those that look at the graph, and those about ignores.
pub fn every_rule() -> impl Iterator<Item = &'static Rule> {
    rules::RULES.iter().chain(ignores::RULES).copied()
}

// === Audited ===

impl<'a> Audited<'a> {
    /// Who calls whom.
    #[must_use]
    pub const fn graph(&self) -> &Graph<'a> {
        &self.graph
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
    pub(crate) fn count(&self, severity: Severity) -> usize {
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
        self.left_out.iter().filter(|left| left.why != Why::NotRead).count()
    }

    /// The text of a file that a finding is about.
    #[must_use]
    pub(crate) fn text(&self, file: &str) -> Option<&str> {
        self.texts.get(file).map(|text| &**text)
    }
}
