//! Repositories of others through the audit's library: a table of what was read, left out and found, and a failure where one
//! panics, or where something is missing that is known to be there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use oneclock_audit::inventory::{Inventory, LeftOut};
use oneclock_audit::walk::{Repository, Step, walk};
use oneclock_audit::{Found, audit};

/// What is known of a repository, by a file that tells it from others.
struct Known {
    /// The file, from the repository's root.
    by: &'static str,
    /// What is audited of it; all, where this is empty.
    below: &'static str,
    /// What its code says, in a topology file of ours.
    topology: Option<&'static str>,
    /// The rule, and words of what it has to say.
    finds: &'static [(&'static str, &'static [&'static str])],
}

const KNOWN: &[Known] = &[
    // Its code waits 10 s inside of two tries of 3 s; a route that delays by 7 s therefore fails after 6 s.
    Known {
        by: "samples/bookinfo/networking/virtual-service-ratings-test-delay.yaml",
        below: "samples/bookinfo",
        topology: Some("tools/oneclock-audit/corpus/bookinfo.topology.yaml"),
        finds: &[
            ("outer-before-inner", &["reviews-v2 → ", "may take 10s", "gives up after 3s"]),
            ("answer-too-late", &["takes at least 7s", "the call fails after 6s"]),
        ],
    },
    // Envoy waits 15 s for the OpenTelemetry demo's pages, and no file says so.
    Known {
        by: "src/frontend-proxy/envoy.tmpl.yaml",
        below: "",
        topology: None,
        finds: &[("hidden-default", &["route.timeout 15s is in force", "nobody wrote it"])],
    },
    // Online Boutique's gateway waits for ever: Istio's default, unlike Envoy's.
    Known {
        by: "istio-manifests/frontend-gateway.yaml",
        below: "",
        topology: None,
        finds: &[("no-limit", &["frontend-gateway → frontend"])],
    },
];

/// What one repository came to.
pub(super) struct Outcome {
    name: String,
    files: usize,
    took: Duration,
    /// `None` where it panicked.
    audited: Option<Audited>,
    /// What is known to be there, and was not found.
    missing: Vec<String>,
}

/// What an audit of it read, left out and found.
struct Audited {
    inventory: Inventory,
    left_out: Vec<LeftOut>,
    findings: Vec<Found>,
}

impl Outcome {
    /// Whether nothing of it was read.
    pub(super) fn is_empty(&self) -> bool {
        self.audited.as_ref().is_some_and(|audited| audited.inventory.files.is_empty())
    }
}

/// Audits every folder of a folder, each as a repository of its own, and once more those of which more is known.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn every(root: &Path, folder: &Path) -> Result<Vec<Outcome>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("corpus: {}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    let mut outcomes = Vec::new();
    for name in names {
        let whole = folder.join(&name);
        let known: Vec<&Known> = KNOWN.iter().filter(|known| whole.join(known.by).is_file()).collect();
        let of_all = known.iter().filter(|known| known.topology.is_none()).flat_map(|known| known.finds);
        outcomes.push(one(name.clone(), &Repository::new(&whole), of_all));
        for known in known {
            if let Some(topology) = known.topology {
                let repository = Repository::new(whole.join(known.below)).with_topology(root.join(topology));
                let name = format!("{name}/{} with its topology file", known.below);
                outcomes.push(one(name, &repository, known.finds.iter()));
            }
        }
    }
    Ok(outcomes)
}

fn audited(repository: &Repository, step: impl FnMut(Step)) -> Audited {
    let inventory = walk(repository, step);
    let audited = audit(repository, &inventory);
    let (left_out, findings) = (audited.left_out, audited.findings);
    Audited { inventory, left_out, findings }
}

#[expect(clippy::disallowed_methods, reason = "a stopwatch for people; no test pauses it")]
fn one<'k>(
    name: String,
    repository: &Repository,
    finds: impl Iterator<Item = &'k (&'k str, &'k [&'k str])>,
) -> Outcome {
    let mut files = 0;
    let began = Instant::now();
    let step = |step| {
        if let Step::Found(found) = step {
            files = found;
        }
    };
    let audited = catch_unwind(AssertUnwindSafe(|| audited(repository, step))).ok();
    let took = began.elapsed();
    eprintln!("{name}: {files} files in {:.1} s", took.as_secs_f64());
    let findings = audited.as_ref().map(|audited| audited.findings.as_slice()).unwrap_or_default();
    let is_there = |(rule, words): &&(&str, &[&str])| {
        let says = |says: &str| words.iter().all(|word| says.contains(word));
        findings.iter().any(|found| found.finding.rule == *rule && says(&found.finding.says))
    };
    let missing =
        finds.filter(|one| !is_there(one)).map(|(rule, words)| format!("{rule}: {}", words.join(" … "))).collect();
    Outcome { name, files, took, audited, missing }
}

/// # Errors
/// A panic, or something missing.
pub(super) fn verdict(outcomes: &[Outcome]) -> Result<(), String> {
    let mut wrong = Vec::new();
    for outcome in outcomes {
        if outcome.audited.is_none() {
            wrong.push(format!("{}: the audit panicked", outcome.name));
        }
        wrong.extend(outcome.missing.iter().map(|missing| format!("{}: not found any more: {missing}", outcome.name)));
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("corpus: {}", wrong.join("\n"))) }
}

/// A row a repository, then what was read by whom, what was left out and why, and what was found.
pub(super) fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| repository | files | read | left out | components | calls | settings | errors | warnings | notes | time |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut readers = BTreeMap::new();
    let mut reasons = BTreeMap::new();
    let mut found = BTreeMap::new();
    for outcome in outcomes {
        let Some(audited) = &outcome.audited else {
            let _ = writeln!(text, "| {} | {} | **panicked** |||||||||", outcome.name, outcome.files);
            continue;
        };
        let inventory = &audited.inventory;
        inventory
            .files
            .iter()
            .flat_map(|file| &file.readers)
            .for_each(|reader| count(&mut readers, (*reader).to_owned()));
        audited.left_out.iter().for_each(|left| count(&mut reasons, format!("{:?}", left.why)));
        let mut by_severity = BTreeMap::new();
        for finding in audited.findings.iter().map(|found| &found.finding) {
            count(&mut found, format!("{:?} {}", finding.severity, finding.rule));
            count(&mut by_severity, finding.severity);
        }
        let of = |severity| by_severity.get(&severity).copied().unwrap_or(0);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.2} s |",
            outcome.name,
            outcome.files,
            inventory.files.len(),
            audited.left_out.len(),
            inventory.components.len(),
            inventory.edges.len(),
            inventory.settings.len(),
            of(oneclock_audit::rules::Severity::Error),
            of(oneclock_audit::rules::Severity::Warning),
            of(oneclock_audit::rules::Severity::Note),
            outcome.took.as_secs_f64(),
        );
    }
    for (of, rows) in [("reader", readers), ("left out because", reasons), ("finding", found)] {
        let _ = writeln!(text, "\n| {of} | times |\n|---|---|");
        for (name, times) in rows {
            let _ = writeln!(text, "| {name} | {times} |");
        }
    }
    text
}

fn count<K: Ord>(all: &mut BTreeMap<K, usize>, one: K) {
    *all.entry(one).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_is_a_repository_and_what_is_known_of_one_has_to_be_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let corpus = root.join("target/corpus/test");
        let shop = corpus.join("shop");
        let write = |path: &str, text: &str| {
            let file = shop.join(path);
            fs::create_dir_all(file.parent().expect("a folder above")).expect("the folder");
            fs::write(file, text).expect("the file");
        };
        let route = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: frontend}\nspec:\n  hosts: ['*']\n  \
                     gateways: [frontend-gateway]\n  http: [{route: [{destination: {host: frontend}}]}]\n";
        write("istio-manifests/frontend-gateway.yaml", route);
        let outcomes = every(&root, &corpus).expect("the folder can be read");
        assert_eq!(verdict(&outcomes), Ok(()));
        let table = table(&outcomes);
        assert!(table.contains("| shop | 1 | 1 | 0 | 1 | 1 |"), "{table}");
        assert!(table.contains("| Warning no-limit | 1 |"), "{table}");

        write("istio-manifests/frontend-gateway.yaml", &route.replace("http: [{", "http: [{timeout: 3s, "));
        let outcomes = every(&root, &corpus).expect("the folder can be read");
        let error = "corpus: shop: not found any more: no-limit: frontend-gateway → frontend".to_owned();
        assert_eq!(verdict(&outcomes), Err(error));
    }
}
