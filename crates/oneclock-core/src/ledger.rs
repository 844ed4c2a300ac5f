//! Where the budget went: entries with a beginning and an end, at most [`MAX_ENTRIES`]; more fold into count and sum per
//! name.
//!
//! Decides what the sums mean: siblings may overlap (parallel children charge the interval they cover together), and
//! what no entry covers is [`Ledger::unaccounted`], so that everything adds up to the elapsed time. Invariant I13.

use std::fmt;
use std::time::Duration;

use crate::time::Legible;
use crate::{Name, Stage, Tick};

/// The most entries that are kept one by one.
pub const MAX_ENTRIES: usize = 32;

/// The most names that are folded one by one; the rest share [`OTHERS`].
pub const MAX_FOLDED: usize = 32;

/// The name under which folded entries of too many names are counted.
pub const OTHERS: Name = Name::literal("others");

/// The account of one operation.
///
/// ```
/// # use oneclock_core::{ledger::Ledger, Stage, Tick}; use std::time::Duration;
/// # fn at(ms: u64) -> Tick { Tick::from_nanos(ms * 1_000_000) }
/// let mut ledger = Ledger::new(at(0));
/// let auth = ledger.open("auth", Stage::Work, None, at(0));
/// ledger.close(auth, at(45));
/// let stock = ledger.open("inventory", Stage::Wait, None, at(50));
/// ledger.close(stock, at(170));
/// assert_eq!(ledger.unaccounted(at(170)), Duration::from_millis(5));
/// assert_eq!(ledger.to_string(), "auth 45ms, inventory 120ms");
/// ```
#[derive(Clone, Debug)]
pub struct Ledger {
    began: Tick,
    entries: Vec<Entry>, // empty ones own no memory: an operation without children pays nothing
    folded: Vec<Folded>,
}

/// One thing that time was spent on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What: a call, a branch, a step.
    pub name: Name,
    /// Which kind of time.
    pub stage: Stage,
    /// The entry that this one is a part of.
    pub part_of: Option<EntryId>,
    /// When it began.
    pub began: Tick,
    /// When it ended; `None` while it goes on.
    pub ended: Option<Tick>,
}

/// Entries beyond the first [`MAX_ENTRIES`], summed by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    /// What they were.
    pub name: Name,
    /// How many ended.
    pub count: u64,
    /// The time they took together. They may have overlapped.
    pub sum: Duration,
}

/// A place in one ledger, given by [`Ledger::open`] and taken by [`Ledger::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryId {
    place: Place,
    began: Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Entry(u8),
    Folded(u8),
}

// === Ledger ===

impl Ledger {
    /// The empty account of an operation that began at `began`.
    pub const fn new(began: Tick) -> Self {
        Self { began, entries: Vec::new(), folded: Vec::new() }
    }

    /// Opens an entry. It must be closed by whoever opened it, from a guard, also when its future is dropped
    /// (contract N1).
    pub fn open(&mut self, name: impl Into<Name>, stage: Stage, part_of: Option<EntryId>, now: Tick) -> EntryId {
        let name = name.into();
        let place = if self.entries.len() < MAX_ENTRIES {
            self.entries.push(Entry { name, stage, part_of, began: now, ended: None });
            Place::Entry((self.entries.len() - 1) as u8)
        } else {
            Place::Folded(self.fold(name))
        };
        EntryId { place, began: now }
    }

    /// Closes an entry. Closing it again changes nothing.
    pub fn close(&mut self, id: EntryId, now: Tick) {
        match id.place {
            Place::Entry(index) => {
                if let Some(entry) = self.entries.get_mut(usize::from(index))
                    && entry.ended.is_none()
                {
                    entry.ended = Some(now.max(entry.began));
                }
            }
            Place::Folded(index) => {
                if let Some(folded) = self.folded.get_mut(usize::from(index)) {
                    folded.count += 1;
                    folded.sum = folded.sum.saturating_add(now.since(id.began));
                }
            }
        }
    }

    /// When the operation began.
    pub const fn began(&self) -> Tick {
        self.began
    }

    /// The entries, in the order in which they were opened.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What did not fit, by name.
    pub fn folded(&self) -> &[Folded] {
        &self.folded
    }

    /// The entries that are part of `parent`, or of the operation itself for `None`, with their places.
    pub fn parts_of(&self, parent: Option<EntryId>) -> impl Iterator<Item = (EntryId, &Entry)> {
        self.entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (EntryId { place: Place::Entry(index as u8), began: entry.began }, entry))
            .filter(move |(_, entry)| entry.part_of == parent)
    }

    /// The account of one entry by itself: its parts become the direct entries. For the error of one call.
    #[must_use]
    pub fn part(&self, of: EntryId) -> Self {
        let entries = self.parts_of(Some(of)).map(|(_, entry)| Entry { part_of: None, ..entry.clone() }).collect();
        Self { began: of.began, entries, folded: Vec::new() }
    }

    /// The time until `now` that at least one direct entry covers; what runs in parallel counts once.
    pub fn accounted(&self, now: Tick) -> Duration {
        let mut spans: Vec<(Tick, Tick)> =
            self.parts_of(None).map(|(_, entry)| (entry.began, entry.ended.unwrap_or(now).min(now))).collect();
        spans.sort_unstable();
        let mut covered = Duration::ZERO;
        let mut until = self.began;
        for (began, ended) in spans {
            covered += ended.since(began.max(until));
            until = until.max(ended);
        }
        covered
    }

    /// The time until `now` that no entry covers: our own work between its steps.
    pub fn unaccounted(&self, now: Tick) -> Duration {
        now.since(self.began).saturating_sub(self.accounted(now))
    }

    fn fold(&mut self, name: Name) -> u8 {
        let known = self.folded.iter().position(|folded| folded.name == name);
        let index = known.unwrap_or_else(|| {
            let name = if self.folded.len() + 1 < MAX_FOLDED { name } else { OTHERS };
            if let Some(last) = self.folded.last()
                && last.name == OTHERS
            {
                return self.folded.len() - 1;
            }
            self.folded.push(Folded { name, count: 0, sum: Duration::ZERO });
            self.folded.len() - 1
        });
        index as u8
    }
}

/// One line: the direct entries with what each took; those still going on end in `…`.
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (_, entry) in self.parts_of(None) {
            match entry.ended {
                Some(ended) => write!(f, "{separator}{} {}", entry.name, Legible(ended.since(entry.began)))?,
                None => write!(f, "{separator}{} …", entry.name)?,
            }
            separator = ", ";
        }
        for folded in &self.folded {
            write!(f, "{separator}{} {} in {}", folded.name, Legible(folded.sum), folded.count)?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("nothing recorded") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn parallel_children_charge_the_interval_they_cover() {
        let mut ledger = Ledger::new(at(0));
        let a = ledger.open("a", Stage::Wait, None, at(10));
        let b = ledger.open("b", Stage::Wait, None, at(20));
        let part = ledger.open("connect", Stage::Connect, Some(a), at(10));
        ledger.close(part, at(15));
        ledger.close(a, at(50));
        ledger.close(b, at(60));
        assert_eq!(ledger.accounted(at(100)), Duration::from_millis(50));
        assert_eq!(ledger.unaccounted(at(100)), Duration::from_millis(50));
        assert_eq!(ledger.parts_of(Some(a)).count(), 1);
    }

    #[test]
    fn more_than_fits_is_folded_by_name_and_stays_bounded() {
        let mut ledger = Ledger::new(at(0));
        for n in 0..1_000 {
            let id = ledger.open(format!("call-{}", n % 200), Stage::Wait, None, at(n));
            ledger.close(id, at(n + 2));
        }
        assert_eq!(ledger.entries().len(), MAX_ENTRIES);
        assert!(ledger.folded().len() <= MAX_FOLDED);
        let folded: u64 = ledger.folded().iter().map(|folded| folded.count).sum();
        assert_eq!(folded, 1_000 - MAX_ENTRIES as u64);
    }

    proptest! {
        #[test]
        fn i13_what_is_accounted_and_what_is_not_sum_to_the_elapsed_time(
            spans in prop::collection::vec((0u64..1_000, 0u64..1_000, prop::bool::weighted(0.9)), 0..60),
            end in 0u64..2_500,
        ) {
            let mut ledger = Ledger::new(at(0));
            for (began, took, closes) in spans {
                let id = ledger.open("step", Stage::Work, None, at(began));
                if closes { ledger.close(id, at(began + took)); }
            }
            let now = at(end);
            prop_assert_eq!(ledger.accounted(now) + ledger.unaccounted(now), now.since(at(0)));
        }
    }
}
