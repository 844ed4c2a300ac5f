//! What was there when somebody began: findings that are known, and fail nobody until they are mended.
//!
//! A file of JSON, one entry a place, known again by its rule, its path and its fingerprint, so that lines may move. A
//! finding that is told of several places is known where all of them are: one that is mended makes nothing new, and one
//! more does. An entry whose finding is gone is stale, and is told: a baseline only ever shrinks.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::audited::Found;
use crate::ignores;
use crate::rules::Finding;

/// The only version that there is.
const VERSION: u32 = 1;

/// Known findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    version: u32,
    findings: Vec<Entry>,
}

/// A known finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its file.
    pub path: String,
    /// Its rule.
    pub rule: String,
    /// As [`Found::fingerprint`](crate::Found::fingerprint).
    pub fingerprint: String,
    /// As it was told, for whoever reads the file.
    pub says: String,
}

/// A file that is no baseline.
#[derive(Debug, thiserror::Error)]
pub enum BaselineRefused {
    /// It is not what `--write-baseline` writes.
    #[error("{}:{}: {error}; write it again with --write-baseline", error.line(), error.column())]
    Unreadable {
        /// What is wrong.
        error: serde_json::Error,
    },
    /// Another version wrote it.
    #[error("1:1: version {found} is not known, {VERSION} is; write it again with --write-baseline")]
    Version {
        /// What it says.
        found: u32,
    },
}

// === Baseline ===

impl Baseline {
    /// All findings of an audit, but for those about ignores: they are mended at once.
    #[must_use]
    pub fn of(findings: &[Found]) -> Self {
        let about_ignores = |found: &&Found| ignores::RULES.iter().any(|rule| rule.id == found.finding.rule);
        let mut findings: Vec<Entry> =
            findings.iter().filter(|found| !about_ignores(found)).flat_map(|found| &found.parts).cloned().collect();
        findings.sort();
        findings.dedup();
        Self { version: VERSION, findings }
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// It is no baseline, or one of another version.
    pub fn read(text: &str) -> Result<Self, BaselineRefused> {
        let baseline: Self = serde_json::from_str(text).map_err(|error| BaselineRefused::Unreadable { error })?;
        match baseline.version {
            VERSION => Ok(baseline),
            found => Err(BaselineRefused::Version { found }),
        }
    }

    /// The file's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// How many it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.findings.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// Marks the findings that it has, and gives back the entries whose finding is gone.
    pub(crate) fn mark(&self, findings: &mut [Found]) -> Vec<Entry> {
        let mut left: HashSet<(&str, &str, &str)> = self.findings.iter().map(Entry::key).collect();
        for found in findings {
            // Each is taken out, whether or not the others are known.
            let known = found.parts.iter().filter(|part| left.remove(&part.key())).count();
            found.known = known > 0 && known == found.parts.len();
        }
        self.findings.iter().filter(|entry| left.contains(&entry.key())).cloned().collect()
    }
}

// === Entry ===

impl Entry {
    pub(crate) fn of(finding: &Finding, fingerprint: &str) -> Self {
        Self {
            path: finding.place.file.to_string(),
            rule: finding.rule.to_owned(),
            fingerprint: fingerprint.to_owned(),
            says: finding.says.clone(),
        }
    }

    fn key(&self) -> (&str, &str, &str) {
        (&self.path, &self.rule, &self.fingerprint)
    }
}
