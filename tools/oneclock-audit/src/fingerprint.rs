//! How a finding is known again when lines move: by its rule, its file, what its line says, and between whom it is.
//!
//! Not by the line's number, and not by the finding's sentence: numbers of another layer are in that.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::rules::Finding;

/// One for each finding. Those that would be the same are numbered in their order.
pub(crate) fn of(findings: &[Finding], texts: &HashMap<Arc<str>, Arc<str>>) -> Vec<String> {
    let mut lines: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut all = Vec::with_capacity(findings.len());
    for finding in findings {
        let file = &*finding.place.file;
        let lines =
            lines.entry(file).or_insert_with(|| texts.get(file).map(|text| text.lines().collect()).unwrap_or_default());
        let at = usize::try_from(finding.place.line).unwrap_or(usize::MAX).saturating_sub(1);
        let line = lines.get(at).copied().unwrap_or(&finding.label);
        let hash = hash(finding, line);
        let times = seen.entry(hash.clone()).and_modify(|times| *times += 1).or_insert(1);
        all.push(format!("{hash}:{times}"));
    }
    all
}

fn hash(finding: &Finding, line: &str) -> String {
    let mut hash = Sha256::new();
    let words = line.split_whitespace();
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
    fn two_that_are_the_same_are_numbered() {
        let both = told("x 5s;\n", 1);
        assert_eq!(
            both.iter().map(|one| one.rsplit_once(':').map(|(_, times)| times)).collect::<Vec<_>>(),
            [Some("1"), Some("2")]
        );
    }
}
