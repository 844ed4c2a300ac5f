//! How long a caller waits: what its settings come to, taken together.
//!
//! Kinds are kept apart. Only a total, a limit of an attempt, and what a server ends can be compared with each other; a
//! limit of silence bounds nothing but the wait for the first byte, and only of a caller that reads one answer.

use std::time::Duration;

use crate::amount::Amount;
use crate::catalogue::Kind;
use crate::inventory::{Setting, Stated};

/// The settings that bear on one call, the nearest of each kind.
#[derive(Clone, Debug, Default)]
pub struct Limits<'a> {
    settings: Vec<&'a Setting>,
}

/// How long a caller waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patience {
    /// No longer than this, whatever happens.
    AtMost(Duration),
    /// No longer than this without hearing anything: for one answer the wait for its first byte, for a stream nothing.
    Silence(Duration),
    /// For ever.
    Forever,
    /// Something of it only a running system knows, or no file says.
    Unknown,
}

// === Limits ===

impl<'a> Limits<'a> {
    /// From groups of settings, the nearest first: of each kind the first group that has one decides.
    #[must_use]
    pub fn of<const N: usize>(groups: [Vec<&'a Setting>; N]) -> Self {
        let mut settings: Vec<&'a Setting> = Vec::new();
        for group in &groups {
            let mut kinds: Vec<Kind> = group.iter().map(|setting| setting.known.kind).collect();
            kinds.sort_unstable();
            kinds.dedup();
            for kind in kinds {
                let of_kind = |setting: &&&'a Setting| setting.known.kind == kind;
                let before = settings.iter().position(|setting| setting.known.kind == kind);
                let Some(found) = chosen(group.iter().filter(of_kind).copied()) else { continue };
                match before {
                    None => settings.push(found),
                    // What somebody wrote further away comes before what nobody wrote.
                    Some(at) if settings[at].stated == Stated::Default && found.stated != Stated::Default => {
                        settings[at] = found;
                    }
                    Some(_) => {}
                }
            }
        }
        Self { settings }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[&'a Setting] {
        &self.settings
    }

    /// The one of a kind.
    #[must_use]
    pub fn get(&self, kind: Kind) -> Option<&'a Setting> {
        self.settings.iter().find(|setting| setting.known.kind == kind).copied()
    }

    /// How often it is tried, the first time included; `None` for without end. Once, where nothing says otherwise.
    #[must_use]
    pub fn tries(&self) -> Option<u64> {
        // What is tried again only when there was no connection repeats no work.
        let repeats = self.get(Kind::Attempts).filter(|setting| !setting.known.connects_only);
        match repeats.map(|setting| (&setting.amount, setting.known.first)) {
            Some((Amount::Times(times), true)) => Some((*times).max(1)),
            Some((Amount::Times(times), false)) => Some(times.saturating_add(1)),
            Some((Amount::Never, _)) => None,
            _ => Some(1),
        }
    }

    /// The least wait before another attempt; zero where nothing says so.
    #[must_use]
    pub fn backoff(&self) -> Duration {
        self.get(Kind::Backoff).and_then(|setting| setting.amount.after()).unwrap_or_default()
    }

    /// How long one attempt may take.
    #[must_use]
    pub fn attempt(&self) -> Patience {
        let limited = [Kind::Attempt, Kind::Total].map(|kind| self.get(kind).map(|setting| &setting.amount));
        let times: Vec<Duration> = limited.iter().flatten().filter_map(|amount| amount.after()).collect();
        if let Some(least) = times.iter().min() {
            return Patience::AtMost(*least);
        }
        if limited.iter().flatten().any(|amount| matches!(amount, Amount::Unknown(_))) {
            return Patience::Unknown;
        }
        let silent = [Kind::FirstByte, Kind::Idle].map(|kind| self.get(kind).map(|setting| &setting.amount));
        if let Some(least) = silent.iter().flatten().filter_map(|amount| amount.after()).min() {
            return Patience::Silence(least);
        }
        let says_never = limited.iter().chain(&silent).flatten().any(|amount| **amount == Amount::Never);
        if silent.iter().flatten().any(|amount| matches!(amount, Amount::Unknown(_))) || !says_never {
            return Patience::Unknown;
        }
        Patience::Forever
    }

    /// The setting that decides how long one attempt may take; `None` where nothing bounds it.
    #[must_use]
    pub fn decides_attempt(&self) -> Option<&'a Setting> {
        let shortest = |kinds: [Kind; 2]| {
            let found = kinds.into_iter().filter_map(|kind| self.get(kind));
            found
                .filter_map(|setting| Some((setting.amount.after()?, setting)))
                .min_by_key(|(time, _)| *time)
                .map(|(_, one)| one)
        };
        shortest([Kind::Attempt, Kind::Total]).or_else(|| shortest([Kind::FirstByte, Kind::Idle]))
    }

    /// The setting that decides how long all attempts may take.
    #[must_use]
    pub fn decides(&self) -> Option<&'a Setting> {
        let total = self.get(Kind::Total).filter(|setting| setting.amount.after().is_some());
        let all = self.untotalled().at_most();
        match total {
            Some(total) if all.is_none_or(|all| total.amount.after() <= Some(all)) => Some(total),
            _ => self.decides_attempt(),
        }
    }

    /// How long all attempts and the waits between them may take.
    #[must_use]
    pub fn patience(&self) -> Patience {
        let total = self.get(Kind::Total).map(|setting| &setting.amount);
        let all = self.untotalled();
        match (total, all) {
            (Some(Amount::After(total)), Patience::AtMost(all)) => Patience::AtMost(all.min(*total)),
            (Some(Amount::After(total)), _) => Patience::AtMost(*total),
            (Some(Amount::Unknown(_)), _) => Patience::Unknown,
            (_, all) => all,
        }
    }

    /// What the attempts alone come to: tries times the limit of one, and the waits between them.
    #[must_use]
    pub fn untotalled(&self) -> Patience {
        let Some(tries) = self.tries() else { return Patience::Forever };
        let tries = u32::try_from(tries).unwrap_or(u32::MAX);
        let waits = self.backoff().saturating_mul(tries.saturating_sub(1));
        match self.attempt() {
            Patience::AtMost(one) => Patience::AtMost(one.saturating_mul(tries).saturating_add(waits)),
            Patience::Silence(one) => Patience::Silence(one.saturating_mul(tries).saturating_add(waits)),
            other => other,
        }
    }
}

/// Of several settings of one kind: a written one before a default; of those the shortest; an unknown one before no limit.
#[must_use]
pub fn chosen<'a>(settings: impl Iterator<Item = &'a Setting>) -> Option<&'a Setting> {
    settings.min_by_key(|setting| {
        let written = u8::from(setting.stated == Stated::Default);
        match &setting.amount {
            Amount::After(time) => (written, 0, *time),
            Amount::Times(times) => (written, 0, Duration::from_nanos(*times)),
            Amount::Unknown(_) => (written, 1, Duration::ZERO),
            Amount::Never => (written, 2, Duration::ZERO),
        }
    })
}

// === Patience ===

impl Patience {
    /// The time, if it bounds the whole.
    #[must_use]
    pub const fn at_most(&self) -> Option<Duration> {
        match self {
            Self::AtMost(time) => Some(*time),
            _ => None,
        }
    }

    /// The time, if there is one, of the whole or of silence.
    #[must_use]
    pub const fn time(&self) -> Option<Duration> {
        match self {
            Self::AtMost(time) | Self::Silence(time) => Some(*time),
            Self::Forever | Self::Unknown => None,
        }
    }
}
