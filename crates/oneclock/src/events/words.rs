//! The words of events, for labels.
//!
//! Decides them once: without `_`, so that a new variant does not compile until it has one.

use super::{Downstream, Keyed, RanOn, TriedAgain};

// === Downstream ===

impl Downstream {
    /// The word for labels, which are called `layer`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Database => "database",
            Self::Queue => "queue",
        }
    }
}

// === TriedAgain ===

impl TriedAgain {
    /// The word for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Hedge => "hedge",
        }
    }
}

// === RanOn ===

impl RanOn {
    /// The word for labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MustFinish => "must_finish",
            Self::Blocking => "blocking",
            Self::Statement => "statement",
        }
    }
}

// === Keyed ===

impl Keyed {
    /// The word for labels: a refusal's is the refusal's own.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::TookOver => "took_over",
            Self::Replayed => "replayed",
            Self::Refused(refusal) => refusal.as_str(),
            Self::Unknown(_) => "unknown",
            Self::Fenced => "fenced",
            Self::NotRecorded => "not_recorded",
        }
    }
}
