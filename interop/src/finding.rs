//! What a check found. Decides what counts against us: a check that fails with our layers in place. One that fails with
//! plain tonic in our place only shows that it can.

use serde_json::{Value, json};

use crate::Error;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds,
    Fails,
    /// The peer's library cannot do what the check needs.
    NotPossible,
}

/// The verdict, and what was seen.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    pub(crate) said: String,
}

/// One check with one peer in one direction.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) check: &'static str,
    /// With our layers, in each place that they can have.
    pub(crate) ours: Vec<(&'static str, Finding)>,
    /// With none of ours.
    pub(crate) plain: (&'static str, Finding),
}

/// All checks with one peer in one direction.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// `grpcio sync calls us`.
    pub(crate) title: String,
    /// Library and version.
    pub(crate) peer: String,
    pub(crate) rows: Vec<Row>,
}

// === Finding ===

impl Finding {
    /// Holds if it does.
    pub(crate) fn when(holds: bool, said: impl Into<String>) -> Self {
        Self { verdict: if holds { Verdict::Holds } else { Verdict::Fails }, said: said.into() }
    }

    /// The peer cannot do that.
    pub(crate) fn not_possible(said: impl Into<String>) -> Self {
        Self { verdict: Verdict::NotPossible, said: said.into() }
    }

    /// A check that was not completed has failed.
    pub(crate) fn of(result: Result<Self, Error>) -> Self {
        result.unwrap_or_else(|error| Self::when(false, error.to_string()))
    }

    fn json(&self) -> Value {
        let verdict = match self.verdict {
            Verdict::Holds => "holds",
            Verdict::Fails => "fails",
            Verdict::NotPossible => "not possible",
        };
        json!({ "verdict": verdict, "said": self.said })
    }
}

// === Row, Group ===

impl Row {
    /// What our layers make of it, worst first.
    pub(crate) fn verdict(&self) -> Verdict {
        let has = |verdict| self.ours.iter().any(|(_, finding)| finding.verdict == verdict);
        if has(Verdict::Fails) {
            Verdict::Fails
        } else if has(Verdict::Holds) {
            Verdict::Holds
        } else {
            Verdict::NotPossible
        }
    }

    fn json(&self) -> Value {
        let mut row = json!({ "check": self.check });
        for (place, finding) in self.ours.iter().chain([&self.plain]) {
            row[*place] = finding.json();
        }
        row
    }
}

impl Group {
    /// How many of its checks came out like this.
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict() == verdict).count()
    }

    /// How many fail with plain tonic in our place.
    pub(crate) fn plain_fails(&self) -> usize {
        self.rows.iter().filter(|row| row.plain.1.verdict == Verdict::Fails).count()
    }

    pub(crate) fn json(&self) -> Value {
        json!({ "group": self.title, "peer": self.peer, "checks": self.rows.iter().map(Row::json).collect::<Vec<_>>() })
    }
}
