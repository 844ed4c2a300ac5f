//! What every setting means: its kind, its unit, what starts it, what happens when it fires, and what holds when nobody
//! wrote it. One dated file of data, `data/catalogue.yaml`; nothing of this stands in code.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::amount::{Amount, NotUnderstood, Unit, Zero, amount};

/// What a limit limits. A number of seconds has no meaning without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Making a connection; with TLS where the product counts it in.
    Connect,
    /// Receiving a request (its head, or all of it), or sending it: bounds the peer, not the work.
    Header,
    /// From the request to the first byte, or to the head, of the answer.
    FirstByte,
    /// Between two reads or writes: no bound on the whole, however often it is taken for one. A caller's limit that counts
    /// writing alone says nothing of how long an answer is waited for, and is [`Kind::Header`].
    Idle,
    /// One attempt, from its start to its end.
    Attempt,
    /// All attempts and the waits between them, or a call that is tried once.
    Total,
    /// Waiting for a connection or a worker before the work begins.
    PoolWait,
    /// Waiting for a lock that somebody else holds.
    LockWait,
    /// The server ends the work of one request.
    ServerKill,
    /// The database ends one statement.
    Statement,
    /// Work that is not acknowledged by then is given to somebody else, while the first still runs.
    Redelivery,
    /// How long a connection without work is kept.
    KeepAlive,
    /// How long a connection is kept, busy or not.
    Lifetime,
    /// How long a transaction may be open without a statement.
    IdleInTransaction,
    /// A question whether something lives; not a request of anybody.
    Probe,
    /// How long what is running may go on when its process is told to stop.
    Grace,
    /// The wait before another attempt.
    Backoff,
    /// How long another attempt may begin: one that runs goes on.
    Retrying,
    /// How often it is tried, the first time included or not (`first` in the catalogue).
    Attempts,
    /// How long an answer, a key or a message is remembered.
    Retention,
    /// What a breaker looks at, or how long it stays open.
    Breaker,
    /// Time that a test adds on purpose.
    Fault,
    /// What a caller asks for in a header.
    HeaderUnit,
}

/// Which end a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Whoever calls: it bounds calls to somebody else.
    Call,
    /// Whoever serves: it bounds what others asked for.
    Serve,
}

/// What becomes of the work when a limit fires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancels {
    /// It is ended.
    Work,
    /// The connection is closed, which the other side may or may not notice.
    Connection,
    /// Nothing: it goes on.
    Nothing,
    /// Not known, or not applicable.
    #[default]
    Unknown,
}

/// How sure a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checked {
    /// Read in the product's own source or documentation.
    Read,
    /// Measured on a running one.
    Run,
    /// General knowledge.
    General,
}

/// A setting that some product has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// `product.setting`, as readers and reports name it.
    pub id: String,
    /// The product, as people write it.
    pub product: String,
    /// The key, as it stands in a file.
    pub key: String,
    /// What it limits.
    pub kind: Kind,
    /// Whose it is.
    pub side: Side,
    /// What a bare number means.
    pub unit: Unit,
    /// Whether only a number is a value: the product refuses one with a unit.
    #[serde(default)]
    pub bare: bool,
    /// Whether the product refuses parts of a unit: `1.5s`.
    #[serde(default)]
    pub whole: bool,
    /// Limits of a call only: whether its clock starts when there is a connection, or nothing says that it starts before.
    #[serde(default)]
    pub connected: bool,
    /// Whether hours are nothing unusual for what it bounds: a job, a workflow.
    #[serde(default)]
    pub long: bool,
    /// What zero means.
    #[serde(default)]
    pub zero: Zero,
    /// Counts only: whether the first attempt is one of them.
    #[serde(default)]
    pub first: bool,
    /// Counts only: whether only what could not connect is tried again, so that nobody ever works twice.
    #[serde(default)]
    pub connects_only: bool,
    /// Silence only: whether it ends the call, whichever attempt runs, so that no attempt follows.
    #[serde(default)]
    pub all_attempts: bool,
    /// When the clock starts, in a few words.
    #[serde(default)]
    pub starts: String,
    /// What happens when it fires, in a few words.
    #[serde(default)]
    pub fires: String,
    /// What becomes of the work then.
    #[serde(default)]
    pub cancels: Cancels,
    /// Whether firing makes the product try again.
    #[serde(default)]
    pub retries: bool,
    /// What holds when nobody wrote it: a value as it would be written, `none`, or nothing where that depends.
    #[serde(default)]
    pub default: Option<String>,
    /// Of which versions that is true; `all` where no other is known.
    pub versions: String,
    /// Whether a default would surprise: nobody who reads the file sees that it is there.
    #[serde(default)]
    pub hidden: bool,
    /// Where it was looked up.
    pub source: String,
    /// How.
    pub checked: Checked,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// When the rows were last gone through.
    dated: String,
    settings: Vec<Known>,
}

/// All rows.
pub struct Catalogue {
    file: File,
    by_id: HashMap<&'static str, &'static Known>,
}

const TEXT: &str = include_str!("../data/catalogue.yaml");

static CATALOGUE: LazyLock<Result<Catalogue, String>> = LazyLock::new(|| {
    let file: File = serde_saphyr::from_str(TEXT).map_err(|error| error.to_string())?;
    // Once in a process: rows are handed out for as long as it runs.
    let settings: &'static [Known] = Vec::leak(file.settings);
    let by_id = settings.iter().map(|known| (known.id.as_str(), known)).collect();
    Ok(Catalogue { file: File { dated: file.dated, settings: Vec::new() }, by_id })
});

// === Catalogue ===

/// The row of a setting.
#[must_use]
pub fn known(id: &str) -> Option<&'static Known> {
    CATALOGUE.as_ref().ok().and_then(|catalogue| catalogue.by_id.get(id).copied())
}

/// All rows, by their id.
#[must_use]
pub fn all() -> Vec<&'static Known> {
    let mut rows: Vec<_> =
        CATALOGUE.as_ref().map(|catalogue| catalogue.by_id.values().copied().collect()).unwrap_or_default();
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    rows
}

/// The day on which the rows were last gone through, `2026-11-30`.
#[must_use]
pub fn dated() -> &'static str {
    CATALOGUE.as_ref().map_or("", |catalogue| &catalogue.file.dated)
}

// === Known ===

impl Known {
    /// What a written value amounts to.
    ///
    /// # Errors
    /// What is no value of this setting.
    pub(crate) fn amount(&self, text: &str) -> Result<Amount, NotUnderstood> {
        if self.bare && crate::amount::has_unit(text) {
            return Err(NotUnderstood { text: crate::amount::shortened(text), wanted: "a number without a unit" });
        }
        if self.whole && crate::amount::has_fraction(text) {
            return Err(NotUnderstood { text: crate::amount::shortened(text), wanted: "a time in whole numbers" });
        }
        amount(text, self.unit, self.zero)
    }

    /// What holds when nobody wrote it.
    #[must_use]
    pub fn default(&self) -> Option<Amount> {
        self.default.as_deref().and_then(|text| self.amount(text).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_reads_and_every_row_holds() {
        let file: File = match serde_saphyr::from_str(TEXT) {
            Ok(file) => file,
            Err(error) => panic!("data/catalogue.yaml: {error}"),
        };
        let mut ids: Vec<_> = file.settings.iter().map(|known| known.id.as_str()).collect();
        assert_eq!(ids.len(), all().len(), "two rows have one id");
        ids.dedup();
        assert_eq!(ids.len(), file.settings.len());
        for known in &file.settings {
            assert!(!known.source.is_empty() && !known.versions.is_empty(), "{}: no source", known.id);
            if let Some(text) = &known.default {
                let default = known.amount(text);
                assert!(default.is_ok(), "{}: default {text:?}: {default:?}", known.id);
            }
            let goes_on = known.fires.contains("that runs goes on");
            let ends = matches!(known.kind, Kind::Total | Kind::Attempt);
            assert!(!(ends && goes_on), "{}: what lets a try go on ends no wait", known.id);
            assert!(
                ends || !known.connected,
                "{}: only a limit of a call has a connection for its beginning",
                known.id
            );
            assert!(known.unit == Unit::Seconds || !known.long, "{}: nobody asks whether it is too long", known.id);
            let (attempts, counted) = (known.kind == Kind::Attempts, known.unit == Unit::Times);
            let may_be_counted = attempts || known.kind == Kind::Breaker;
            assert!(counted || !attempts, "{}: attempts are counted", known.id);
            assert!(may_be_counted || !counted, "{}: what is no attempt and no breaker is timed", known.id);
        }
    }
}
