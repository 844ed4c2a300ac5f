//! How long a caller waits: what its settings come to, taken together.
//!
//! Kinds are kept apart. Only a total, a limit of an attempt, and what a server ends can be compared with each other; a
//! limit of silence bounds nothing but the wait for the first byte, and only of a caller that reads one answer. Hence two
//! answers where there are both: how long a call may take is the whole; when its caller has gone, the lesser.

use std::time::Duration;

use crate::amount::Amount;
use crate::catalogue::Kind;
use crate::inventory::{Setting, Stated};

/// The settings that bear on one call, the nearest of each kind.
#[derive(Clone, Debug, Default)]
pub struct Limits<'a> {
    settings: Vec<&'a Setting>,
}

/// When a caller that hears nothing has given up one attempt.
#[derive(Clone, Copy, Debug)]
pub struct GivesUp<'a> {
    /// After this time.
    pub after: Duration,
    /// The setting that decides.
    pub decides: &'a Setting,
    /// Whether only silence counts: an answer that has begun may come for longer.
    pub silence: bool,
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

/// What ends an attempt, whatever happens.
const ENDS: [Kind; 2] = [Kind::Attempt, Kind::Total];
/// What ends it when nothing is heard.
const SILENT: [Kind; 2] = [Kind::FirstByte, Kind::Idle];

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

    /// What is tried again only when there was no connection repeats no work.
    fn repeats(&self) -> Option<&'a Setting> {
        self.get(Kind::Attempts).filter(|setting| !setting.known.connects_only)
    }

    /// Whether it is known how often it is tried: not where a variable says so.
    #[must_use]
    pub(crate) fn knows_tries(&self) -> bool {
        !self.repeats().is_some_and(|setting| matches!(setting.amount, Amount::Unknown(_)))
    }

    /// How often it is tried, the first time included; `None` for without end. Once, where nothing says otherwise, and at
    /// least once where [`Limits::knows_tries`] is not so.
    #[must_use]
    pub(crate) fn tries(&self) -> Option<u64> {
        match self.repeats().map(|setting| (&setting.amount, setting.known.first)) {
            Some((Amount::Times(times), true)) => Some((*times).max(1)),
            Some((Amount::Times(times), false)) => Some(times.saturating_add(1)),
            Some((Amount::Never, _)) => None,
            _ => Some(1),
        }
    }

    /// The least wait before another attempt; zero where nothing says so.
    #[must_use]
    pub(crate) fn backoff(&self) -> Duration {
        self.get(Kind::Backoff).and_then(|setting| setting.amount.after()).unwrap_or_default()
    }

    /// How long one attempt may take.
    #[must_use]
    pub(crate) fn attempt(&self) -> Patience {
        let limited = ENDS.map(|kind| self.get(kind).map(|setting| &setting.amount));
        let times: Vec<Duration> = limited.iter().flatten().filter_map(|amount| amount.after()).collect();
        if let Some(least) = times.iter().min() {
            return Patience::AtMost(*least);
        }
        if limited.iter().flatten().any(|amount| matches!(amount, Amount::Unknown(_))) {
            return Patience::Unknown;
        }
        let silent = SILENT.map(|kind| self.get(kind).map(|setting| &setting.amount));
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
    pub(crate) fn decides_attempt(&self) -> Option<&'a Setting> {
        self.shortest(ENDS).or_else(|| self.shortest(SILENT)).map(|(_, setting)| setting)
    }

    /// When a caller that hears nothing has given up one attempt: after the shortest of what ends it and of what counts
    /// silence.
    #[must_use]
    pub(crate) fn gives_up(&self) -> Option<GivesUp<'a>> {
        let of = |kinds, silence| {
            let (after, decides) = self.shortest(kinds)?;
            Some(GivesUp { after, decides, silence })
        };
        // Of equal ones the first: that which ends the whole.
        of(ENDS, false).into_iter().chain(of(SILENT, true)).min_by_key(|one| one.after)
    }

    /// The setting because of which nothing bounds the call.
    #[must_use]
    pub(crate) fn unbounds(&self) -> Option<&'a Setting> {
        let never = |kind: Kind| self.get(kind).filter(|setting| setting.amount == Amount::Never);
        [Kind::Total, Kind::Attempt, Kind::FirstByte, Kind::Idle, Kind::Attempts].into_iter().find_map(never)
    }

    fn shortest(&self, kinds: [Kind; 2]) -> Option<(Duration, &'a Setting)> {
        let found = kinds.into_iter().filter_map(|kind| self.get(kind));
        found.filter_map(|setting| Some((setting.amount.after()?, setting))).min_by_key(|(time, _)| *time)
    }

    /// The setting that decides how long all attempts may take.
    #[must_use]
    pub(crate) fn decides(&self) -> Option<&'a Setting> {
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

    /// What the attempts alone come to: tries times the limit of one, and the waits between them; no later than the last
    /// one that may still begin.
    #[must_use]
    pub(crate) fn untotalled(&self) -> Patience {
        let begins = self.get(Kind::Retrying).and_then(|setting| setting.amount.after());
        let tries = self.tries().filter(|_| self.knows_tries()).map(|tries| u32::try_from(tries).unwrap_or(u32::MAX));
        let all = |one: Duration| {
            let by_count = tries.map(|tries| {
                one.saturating_mul(tries).saturating_add(self.backoff().saturating_mul(tries.saturating_sub(1)))
            });
            let by_time = begins.filter(|_| tries != Some(1)).map(|begins| begins.saturating_add(one));
            by_count.into_iter().chain(by_time).min()
        };
        match self.attempt() {
            // Once at least: what no file bounds otherwise, only a running system knows.
            Patience::AtMost(_) | Patience::Silence(_) if !self.knows_tries() && begins.is_none() => Patience::Unknown,
            Patience::AtMost(one) => all(one).map_or(Patience::Forever, Patience::AtMost),
            // It ends the call, whichever attempt runs.
            Patience::Silence(one) if self.decides_attempt().is_some_and(|silence| silence.known.all_attempts) => {
                Patience::Silence(one)
            }
            Patience::Silence(one) => all(one).map_or(Patience::Forever, Patience::Silence),
            _ if self.tries().is_none() => Patience::Forever,
            other => other,
        }
    }
}

/// Of several settings of one kind: a written one before a default; of those the shortest; an unknown one before no limit.
#[must_use]
pub(crate) fn chosen<'a>(settings: impl Iterator<Item = &'a Setting>) -> Option<&'a Setting> {
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
    pub(crate) const fn at_most(&self) -> Option<Duration> {
        match self {
            Self::AtMost(time) => Some(*time),
            _ => None,
        }
    }

    /// The time, if there is one, of the whole or of silence.
    #[must_use]
    pub(crate) const fn time(&self) -> Option<Duration> {
        match self {
            Self::AtMost(time) | Self::Silence(time) => Some(*time),
            Self::Forever | Self::Unknown => None,
        }
    }
}
