//! Where the budget went: entries with a beginning and an end. At most [`MAX_ENTRIES`] direct ones are kept one by one;
//! more fold into count and sum per name. Their parts have a bound of their own, [`MAX_PARTS`].
//!
//! Decides what the sums mean: siblings may overlap (parallel children charge the interval they cover together), what is
//! folded counts like what is kept, and what no entry covers is [`Ledger::unaccounted`], so that everything adds up to
//! the elapsed time. Invariant I13.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::time::Legible;
use crate::{Name, Stage, Tick};

/// The most direct entries that are kept one by one.
pub const MAX_ENTRIES: usize = 32;

/// The most parts of entries that are kept one by one. The time of one beyond that is in the entry it is a part of.
pub const MAX_PARTS: usize = 64;

/// The most names that are folded one by one; the rest share [`OTHERS`].
pub const MAX_FOLDED: usize = 32;

/// The name under which folded entries of too many names are counted.
pub const OTHERS: Name = Name::literal("others");

/// The account of one operation.
///
/// Entries are opened and closed in the order of the clock. Threads that come microseconds out of order cost the sums as
/// much, and no more.
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
    // Empty ones own no memory: an operation without children pays nothing.
    entries: Vec<Entry>,
    folded: Vec<Folded>,
    open_folded: BTreeSet<u32>, // which of the folded go on, so that none is closed twice
    opened_folded: u32,
    kept_parts: u8,
    // What the direct entries cover together, kept or folded: up to `until` it is `covered`, and while one is open
    // everything is covered since `since`.
    covered: Duration,
    open: u32,
    since: Tick,
    until: Tick,
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

/// Direct entries beyond the first [`MAX_ENTRIES`], summed by name.
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
    Folded { name: u8, serial: u32 },
    Within, // in the time of the entry that it is a part of, and nowhere else
}

// === Ledger ===

impl Ledger {
    /// The empty account of an operation that began at `began`.
    pub const fn new(began: Tick) -> Self {
        Self {
            began,
            entries: Vec::new(),
            folded: Vec::new(),
            open_folded: BTreeSet::new(),
            opened_folded: 0,
            kept_parts: 0,
            covered: Duration::ZERO,
            open: 0,
            since: began,
            until: began,
        }
    }

    /// Opens an entry. It must be closed by whoever opened it, from a guard, also when its future is dropped
    /// (contract N1).
    pub fn open(&mut self, name: impl Into<Name>, stage: Stage, part_of: Option<EntryId>, now: Tick) -> EntryId {
        let place = if part_of.is_some() {
            if usize::from(self.kept_parts) < MAX_PARTS {
                self.kept_parts += 1;
                self.keep(Entry { name: name.into(), stage, part_of, began: now, ended: None })
            } else {
                Place::Within
            }
        } else {
            self.cover_from(now);
            if self.entries.len() - usize::from(self.kept_parts) < MAX_ENTRIES {
                self.keep(Entry { name: name.into(), stage, part_of, began: now, ended: None })
            } else {
                self.fold(name.into())
            }
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
                    if entry.part_of.is_none() {
                        self.cover_until(now);
                    }
                }
            }
            Place::Folded { name, serial } => {
                if self.open_folded.remove(&serial)
                    && let Some(folded) = self.folded.get_mut(usize::from(name))
                {
                    folded.count += 1;
                    folded.sum = folded.sum.saturating_add(now.since(id.began));
                    self.cover_until(now);
                }
            }
            Place::Within => {}
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
        let entries: Vec<Entry> =
            self.parts_of(Some(of)).map(|(_, entry)| Entry { part_of: None, ..entry.clone() }).collect();
        let mut part = Self::new(of.began);
        // From the first that is still open everything is covered; before it, what the closed ones cover.
        let first_open = entries.iter().filter(|entry| entry.ended.is_none()).map(|entry| entry.began).min();
        let mut closed: Vec<(Tick, Tick)> =
            entries.iter().filter_map(|entry| Some((entry.began, entry.ended?))).collect();
        closed.sort_unstable();
        for (began, ended) in closed {
            let ended = first_open.map_or(ended, |open| ended.min(open));
            part.covered += ended.since(began.max(part.until));
            part.until = part.until.max(ended);
        }
        if let Some(first) = first_open {
            (part.open, part.since) = (1, first);
        }
        part.entries = entries;
        part
    }

    /// The time until `now` that at least one direct entry covers, kept or folded; what runs in parallel counts once.
    ///
    /// `now` is the present, or a moment since the last entry was opened or closed: what was covered at an earlier one is
    /// not kept.
    pub fn accounted(&self, now: Tick) -> Duration {
        let going_on = if self.open > 0 { now.since(self.since) } else { Duration::ZERO };
        self.covered.saturating_add(going_on).min(now.since(self.began))
    }

    /// The time until `now` that no entry covers: our own work between its steps.
    pub fn unaccounted(&self, now: Tick) -> Duration {
        now.since(self.began).saturating_sub(self.accounted(now))
    }

    fn keep(&mut self, entry: Entry) -> Place {
        self.entries.push(entry);
        Place::Entry((self.entries.len() - 1) as u8)
    }

    fn fold(&mut self, name: Name) -> Place {
        let serial = self.opened_folded;
        self.opened_folded = serial.wrapping_add(1);
        self.open_folded.insert(serial);
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
        Place::Folded { name: index as u8, serial }
    }

    /// A direct entry was opened.
    fn cover_from(&mut self, now: Tick) {
        if self.open == 0 {
            self.since = now.max(self.until);
        }
        self.open += 1;
    }

    /// A direct entry was closed. As long as another is open, the interval that they cover together goes on.
    fn cover_until(&mut self, now: Tick) {
        self.until = self.until.max(now);
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.covered = self.covered.saturating_add(self.until.since(self.since));
        }
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

    /// A client call costs one direct entry and a part for each stage.
    #[test]
    fn i13_parts_do_not_push_out_the_calls_that_they_belong_to() {
        let mut ledger = Ledger::new(at(0));
        let stages = [Stage::Pool, Stage::Send, Stage::Wait, Stage::Body];
        for call in 0..40 {
            let began = call * 100;
            let entry = ledger.open("call", Stage::Wait, None, at(began));
            for (n, stage) in (0..).zip(stages) {
                let part = ledger.open(stage.as_str(), stage, Some(entry), at(began + n * 25));
                ledger.close(part, at(began + (n + 1) * 25));
            }
            ledger.close(entry, at(began + 100));
            assert!(ledger.unaccounted(at(began + 100)).is_zero(), "after {} calls: {ledger}", call + 1);
            assert_eq!(ledger.parts_of(None).count(), MAX_ENTRIES.min(call as usize + 1));
        }
        assert_eq!(ledger.entries().len(), MAX_ENTRIES + MAX_PARTS);
        assert_eq!(ledger.folded(), [Folded { name: "call".into(), count: 8, sum: Duration::from_millis(800) }]);
    }

    #[test]
    fn what_is_folded_and_goes_on_is_accounted_and_closing_it_again_changes_nothing() {
        let mut ledger = Ledger::new(at(0));
        for _ in 0..MAX_ENTRIES {
            let id = ledger.open("kept", Stage::Work, None, at(0));
            ledger.close(id, at(1));
        }
        let (a, b) = (ledger.open("more", Stage::Work, None, at(10)), ledger.open("more", Stage::Work, None, at(10)));
        assert_eq!(ledger.accounted(at(30)), Duration::from_millis(21));
        for _ in 0..3 {
            ledger.close(a, at(40));
        }
        assert_eq!(ledger.folded()[0].count, 1);
        assert_eq!(ledger.accounted(at(60)), Duration::from_millis(51), "the other goes on");
        ledger.close(b, at(60));
        ledger.close(b, at(90));
        assert_eq!((ledger.folded()[0].count, ledger.accounted(at(90))), (2, Duration::from_millis(51)));
    }

    #[test]
    fn i13_the_account_of_one_entry_adds_up_too() {
        let mut ledger = Ledger::new(at(0));
        let call = ledger.open("call", Stage::Arrival, None, at(10));
        for (began, ended) in [(20, Some(40)), (30, Some(35)), (50, None)] {
            let part = ledger.open("part", Stage::Wait, Some(call), at(began));
            if let Some(ended) = ended {
                ledger.close(part, at(ended));
            }
        }
        let part = ledger.part(call);
        assert_eq!(part.accounted(at(70)), Duration::from_millis(20 + 20));
        assert_eq!(part.unaccounted(at(70)), Duration::from_millis(10 + 10));
    }

    /// How many of the milliseconds before `end` any span covers, one by one: an account that knows no entries, no bounds
    /// and no folding.
    fn milliseconds_covered(spans: &[(u64, Option<u64>)], end: u64) -> Duration {
        let covers = |ms: u64, (began, ended): (u64, Option<u64>)| began <= ms && ended.is_none_or(|ended| ms < ended);
        Duration::from_millis((0..end).filter(|ms| spans.iter().any(|span| covers(*ms, *span))).count() as u64)
    }

    proptest! {
        /// Many more entries than are kept, some never closed, some closed twice, with parts that must not count.
        #[test]
        fn i13_what_is_accounted_is_what_the_entries_cover(
            spans in prop::collection::vec((0u64..1_000, 0u64..60, prop::bool::weighted(0.98), 0u8..4), 0..120),
            after in 0u64..200,
        ) {
            let spans: Vec<_> = spans.into_iter().map(|(began, took, closes, parts)| {
                (began, closes.then_some(began + took), parts)
            }).collect();
            let mut ledger = Ledger::new(at(0));
            let mut open: Vec<Vec<EntryId>> = vec![Vec::new(); spans.len()];
            let end = 1_100 + after;
            for ms in 0..end {
                for ((began, ended, parts), ids) in spans.iter().zip(&mut open) {
                    if *began == ms {
                        let direct = ledger.open("step", Stage::Work, None, at(ms));
                        ids.push(direct);
                        ids.extend((0..*parts).map(|_| ledger.open("part", Stage::Wait, Some(direct), at(ms))));
                    }
                    if *ended == Some(ms) {
                        for id in ids.iter().rev() {
                            ledger.close(*id, at(ms));
                            ledger.close(*id, at(ms + 5));
                        }
                    }
                }
            }
            let direct: Vec<_> = spans.iter().map(|(began, ended, _)| (*began, *ended)).collect();
            let covered = milliseconds_covered(&direct, end);
            prop_assert_eq!(ledger.accounted(at(end)), covered);
            prop_assert_eq!(ledger.unaccounted(at(end)), Duration::from_millis(end) - covered);
            prop_assert!(ledger.entries().len() <= MAX_ENTRIES + MAX_PARTS);
            prop_assert_eq!(ledger.parts_of(None).count(), spans.len().min(MAX_ENTRIES));
        }
    }
}
