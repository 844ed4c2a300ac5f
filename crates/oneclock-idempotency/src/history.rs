//! Checking what callers saw against what happened: a history of attempts, answers and effects, and the rules that it must
//! keep.
//!
//! For crash tests, of this crate and of services: clients write what they ask and what they are told, the far side writes
//! what it did, and [`check`] says which key broke which rule. Order within one key is the order of the lines; no clock is
//! needed, since the rules are about what is there at the end.
//!
//! ```
//! use oneclock_idempotency::history::{check, History, Violation};
//!
//! let history: History = "\
//! invoke tap-7 first
//! effect tap-7 first
//! info tap-7 first
//! invoke tap-7 second
//! ok tap-7 second receipt-1".parse().unwrap();
//! assert!(check(&history).is_empty());
//!
//! let broken: History = "invoke tap-7 a\neffect tap-7 a\neffect tap-7 b\nok tap-7 a x".parse().unwrap();
//! assert_eq!(check(&broken), [Violation::MoreThanOnce { key: "tap-7".into(), effects: 2 }]);
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// One line: what was seen, of which key, by which attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key, without spaces.
    pub key: String,
    /// The attempt, without spaces. For an effect: the run that had it, if the far side knows.
    pub attempt: String,
    /// What was seen.
    pub seen: Seen,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The attempt was sent.
    Invoke,
    /// It was answered with success: this answer.
    Ok(String),
    /// It was answered definitely: it did nothing.
    Fail,
    /// It is not known what it did: no answer, or one that says so.
    Info,
    /// The far side did it.
    Effect,
}

/// What was seen, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(Vec<Entry>);

/// A rule that a key broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// It took effect more than once.
    #[error("{key}: {effects} effects")]
    MoreThanOnce {
        /// The key.
        key: String,
        /// How many.
        effects: usize,
    },
    /// Two successful answers differ.
    #[error("{key}: answered with {first:?} and with {other:?}")]
    AnswersDiffer {
        /// The key.
        key: String,
        /// The first answer.
        first: String,
        /// Another.
        other: String,
    },
    /// It was answered with success, and did not happen.
    #[error("{key}: answered with success, and no effect")]
    SuccessWithoutEffect {
        /// The key.
        key: String,
    },
    /// Every attempt failed definitely, or this attempt did, and it happened.
    #[error("{key}: attempt {attempt} failed definitely, and had its effect")]
    FailureWithEffect {
        /// The key.
        key: String,
        /// The attempt.
        attempt: String,
    },
    /// An attempt is unknown, and no later one says what became of it.
    #[error("{key}: unknown since attempt {attempt}, and never resolved")]
    NeverResolved {
        /// The key.
        key: String,
        /// The attempt.
        attempt: String,
    },
}

/// A line that is no entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text:?} is none of `invoke|fail|info|effect KEY ATTEMPT` and `ok KEY ATTEMPT ANSWER`")]
pub struct NotAnEntry {
    /// Counted from 1.
    pub line: usize,
    /// The line.
    pub text: String,
}

/// Every rule that the history breaks: at most one effect for a key; all successful answers of a key identical; success
/// implies the effect; a definite failure implies none; every unknown is resolved later.
pub fn check(history: &History) -> Vec<Violation> {
    let mut keys: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in &history.0 {
        keys.entry(&entry.key).or_default().push(entry);
    }
    keys.into_iter().flat_map(|(key, entries)| check_key(key, &entries)).collect()
}

fn check_key(key: &str, entries: &[&Entry]) -> Vec<Violation> {
    let mut broken = Vec::new();
    let of =
        |seen: &Seen| entries.iter().filter(|entry| entry.seen == *seen).map(|entry| entry.attempt.as_str()).collect();
    let effects: Vec<&str> = of(&Seen::Effect);
    let failed: Vec<&str> = of(&Seen::Fail);
    let key = || key.to_owned();
    if effects.len() > 1 {
        broken.push(Violation::MoreThanOnce { key: key(), effects: effects.len() });
    }
    let mut answers =
        entries.iter().filter_map(|entry| if let Seen::Ok(answer) = &entry.seen { Some(answer) } else { None });
    if let Some(first) = answers.next() {
        if let Some(other) = answers.find(|answer| *answer != first) {
            broken.push(Violation::AnswersDiffer { key: key(), first: first.clone(), other: other.clone() });
        }
        if effects.is_empty() {
            broken.push(Violation::SuccessWithoutEffect { key: key() });
        }
    }
    if let Some(attempt) = effects.iter().find(|attempt| failed.contains(attempt)) {
        broken.push(Violation::FailureWithEffect { key: key(), attempt: (*attempt).to_owned() });
    }
    broken.extend(
        unresolved(entries).map(|attempt| Violation::NeverResolved { key: key(), attempt: attempt.to_owned() }),
    );
    broken
}

/// The last attempt without a definite end, if no definite end of any attempt comes after it.
fn unresolved<'a>(entries: &[&'a Entry]) -> Option<&'a str> {
    let mut open = BTreeSet::new();
    let mut unknown = None;
    for entry in entries {
        match entry.seen {
            Seen::Invoke => {
                open.insert(entry.attempt.as_str());
            }
            Seen::Info => {
                open.remove(entry.attempt.as_str());
                unknown = Some(entry.attempt.as_str());
            }
            Seen::Ok(_) | Seen::Fail => {
                open.remove(entry.attempt.as_str());
                unknown = None;
                // Those that were lost before this was asked and answered are resolved by it too.
                open.clear();
            }
            Seen::Effect => {}
        }
    }
    unknown.or_else(|| open.first().copied())
}

// === History ===

impl History {
    /// Adds what was seen.
    pub fn push(&mut self, entry: Entry) {
        self.0.push(entry);
    }

    /// What was seen.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }
}

impl FromStr for History {
    type Err = NotAnEntry;

    /// Reads lines; empty ones are skipped.
    fn from_str(text: &str) -> Result<Self, NotAnEntry> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let entries =
            lines.map(|(n, line)| entry(line).ok_or_else(|| NotAnEntry { line: n + 1, text: line.to_owned() }));
        entries.collect::<Result<_, _>>().map(Self)
    }
}

fn entry(line: &str) -> Option<Entry> {
    let mut words = line.trim().splitn(4, ' ');
    let (word, key, attempt, rest) = (words.next()?, words.next()?, words.next()?, words.next());
    let seen = match (word, rest) {
        ("invoke", None) => Seen::Invoke,
        ("ok", Some(answer)) => Seen::Ok(answer.to_owned()),
        ("fail", None) => Seen::Fail,
        ("info", None) => Seen::Info,
        ("effect", None) => Seen::Effect,
        _ => return None,
    };
    Some(Entry { key: key.to_owned(), attempt: attempt.to_owned(), seen })
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, attempt, seen } = self;
        match seen {
            Seen::Invoke => write!(f, "invoke {key} {attempt}"),
            Seen::Ok(answer) => write!(f, "ok {key} {attempt} {answer}"),
            Seen::Fail => write!(f, "fail {key} {attempt}"),
            Seen::Info => write!(f, "info {key} {attempt}"),
            Seen::Effect => write!(f, "effect {key} {attempt}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn breaks(lines: &str, want: &[&str]) {
        let history: History = lines.replace("; ", "\n").parse().expect("a history");
        let broken: Vec<String> = check(&history).iter().map(Violation::to_string).collect();
        assert_eq!(broken, want, "{lines}");
    }

    #[test]
    fn histories_that_hold() {
        breaks("", &[]);
        breaks("invoke k a; effect k a; ok k a r; invoke k b; ok k b r", &[]);
        breaks("invoke k a; fail k a", &[]);
        breaks("invoke k a; fail k a; invoke k b; effect k b; ok k b r", &[]);
        breaks("invoke k a; effect k a; invoke k b; info k b; invoke k c; ok k c r", &[]);
        breaks("invoke k a; invoke l a; effect l a; ok l a 1; fail k a", &[]);
    }

    #[test]
    fn each_broken_rule_is_caught() {
        breaks("invoke k a; effect k a; ok k a r; effect k b", &["k: 2 effects"]);
        breaks("invoke k a; effect k a; ok k a r; invoke k b; ok k b s", &["k: answered with \"r\" and with \"s\""]);
        breaks("invoke k a; ok k a r", &["k: answered with success, and no effect"]);
        breaks("invoke k a; effect k a; fail k a", &["k: attempt a failed definitely, and had its effect"]);
        breaks("invoke k a; effect k a", &["k: unknown since attempt a, and never resolved"]);
        breaks(
            "invoke k a; ok k a r; effect k a; invoke k b; info k b",
            &["k: unknown since attempt b, and never resolved"],
        );
    }

    #[test]
    fn what_is_no_entry_names_its_line() {
        let error = "invoke k a\nok k a".parse::<History>().expect_err("no answer");
        assert!(error.to_string().starts_with("line 2: \"ok k a\" is none of"), "{error}");
        let line = "ok k a an answer with spaces";
        assert_eq!(entry(line).expect("an entry").to_string(), line);
    }
}
