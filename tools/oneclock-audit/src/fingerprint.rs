//! How a finding is known again when lines move: by its rule, its file, what its line and the lines of the other side say,
//! and between whom it is. A caller that waits for less than it did makes another finding of it, and maybe a worse one.
//!
//! Not by the lines' numbers.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::rules::Finding;
use crate::source::Place;

/// One for each finding. Those that would be the same are numbered in their order.
pub(crate) fn of<'a>(findings: &'a [Finding], texts: &'a HashMap<Arc<str>, Arc<str>>) -> Vec<String> {
    let mut lines: HashMap<&'a str, Vec<&'a str>> = HashMap::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut all = Vec::with_capacity(findings.len());
    for finding in findings {
        let mut line = |place: &'a Place| {
            let file = &*place.file;
            let text = || texts.get(file).map(|text| text.lines().collect()).unwrap_or_default();
            let at = usize::try_from(place.line).unwrap_or(usize::MAX).saturating_sub(1);
            lines.entry(file).or_insert_with(text).get(at).copied()
        };
        let own = line(&finding.place).unwrap_or(&finding.label);
        let others: Vec<&str> =
            finding.related.iter().map(|related| line(&related.place).unwrap_or(&related.says)).collect();
        let hash = hash(finding, own, &others);
        let times = seen.entry(hash.clone()).and_modify(|times| *times += 1).or_insert(1);
        all.push(format!("{hash}:{times}"));
    }
    all
}

fn hash(finding: &Finding, line: &str, others: &[&str]) -> String {
    let mut hash = Sha256::new();
    let words = std::iter::once(line).chain(others.iter().copied()).flat_map(str::split_whitespace);
    for part in
        [finding.rule, &finding.place.file].into_iter().chain(words).chain(finding.between.iter().map(String::as_str))
    {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignores::UNUSED;
    use crate::rules::Severity;
    use crate::source::Source;

    fn told(text: &str, line: usize) -> Vec<String> {
        let source = Source::new("a.conf", text);
        let finding = Finding::new(&UNUSED, Severity::Note, &source.place(line, 1, 1), "so").between(["a", "b"]);
        of(&[finding.clone(), finding], &HashMap::from([(source.path, source.text)]))
    }

    #[test]
    fn it_is_the_same_wherever_the_line_is() {
        assert_eq!(told("x 5s;\n", 1), told("\n\n   x   5s;\n", 3));
        assert_ne!(told("x 5s;\n", 1), told("x 6s;\n", 1));
    }

    #[test]
    fn the_other_side_counts() {
        let told = |text: &str| {
            let source = Source::new("a.conf", text);
            let finding = Finding::new(&UNUSED, Severity::Note, &source.place(1, 1, 1), "so");
            let finding = finding.related(&source.place(2, 1, 1), "the caller");
            of(&[finding], &HashMap::from([(source.path, source.text)]))
        };
        assert_eq!(told("x 5s;\ny 3s;\n"), told("x 5s;\n  y  3s;\n"));
        assert_ne!(told("x 5s;\ny 3s;\n"), told("x 5s;\ny 1s;\n"), "it is worse than it was");
    }

    #[test]
    fn two_that_are_the_same_are_numbered() {
        let both = told("x 5s;\n", 1);
        assert_eq!(
            both.iter().map(|one| one.rsplit_once(':').map(|(_, times)| times)).collect::<Vec<_>>(),
            [Some("1"), Some("2")]
        );
    }
}
