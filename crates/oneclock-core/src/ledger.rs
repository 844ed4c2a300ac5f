//! Where the budget went: entries with a beginning and an end. At most [`MAX_ENTRIES`] direct ones are kept one by one;
//! more fold into count and sum per name. Their parts have a bound of their own, [`MAX_PARTS`].
//!
//! Decides what the sums mean: siblings may overlap (parallel children charge the interval they cover together), what is
//! folded counts like what is kept, and what no entry covers is [`Ledger::unaccounted`], so that everything adds up to
//! the elapsed time. Invariant I13.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::time::Legible;
use crate::wire::server_timing::Account;
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
    told: Vec<(EntryId, Account)>, // at most MAX_ENTRIES
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

/// Stands for the entry that a ledger is the account of.
const THE_WHOLE: EntryId = EntryId { place: Place::Within, began: Tick::from_nanos(0) };

/// Whom the time is charged to that entries cover together: each moment to one of those that cover it, the one that ends
/// last, since that is what was waited for. Each charge is one interval within its entry and within `within`, in the order
/// of `entries`; an entry that others outlast everywhere is charged an empty one. Together the charges are what
/// [`Ledger::accounted`] says of the same entries.
///
/// ```
/// # use oneclock_core::{ledger, Tick}; fn at(ms: u64) -> Tick { Tick::from_nanos(ms * 1_000_000) }
/// let (stock, price) = ((at(10), at(40)), (at(20), at(90)));
/// let charges = ledger::charges((at(0), at(60)), &[stock, price]);
/// assert_eq!(charges, [(at(10), at(20)), (at(20), at(60))]);
/// ```
pub fn charges(within: (Tick, Tick), entries: &[(Tick, Tick)]) -> Vec<(Tick, Tick)> {
    let clip = |at: Tick| at.max(within.0).min(within.1.max(within.0));
    let mut charges: Vec<_> = entries.iter().map(|(began, ended)| (clip(*began), clip(*ended))).collect();
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|index| (charges[*index].0, Reverse(charges[*index].1)));
    let mut last: Option<usize> = None; // of those so far, the one that ends last
    for index in order {
        let (began, ended) = charges[index];
        match last {
            _ if ended <= began => charges[index].1 = began,
            Some(last) if charges[last].1 >= ended => charges[index].1 = began,
            before => {
                if let Some(before) = before {
                    charges[before].1 = charges[before].1.min(began);
                }
                last = Some(index);
            }
        }
    }
    charges
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
            told: Vec::new(),
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

    /// The far side told where the time of this entry went. The first account of an entry stays; one that did not fit is not
    /// kept, nor is what it says.
    ///
    /// ```
    /// # use oneclock_core::{ledger::Ledger, wire::server_timing::Account, Stage, Tick}; use std::time::Duration;
    /// # fn at(ms: u64) -> Tick { Tick::from_nanos(ms * 1_000_000) }
    /// let mut ledger = Ledger::new(at(0));
    /// let stock = ledger.open("inventory", Stage::Wait, None, at(0));
    /// let said = "oneclock;desc=inventory;dur=118, queue;dur=90, unaccounted;dur=28, left;dur=2";
    /// ledger.tell(stock, Account::parse(said.as_bytes()).unwrap());
    /// ledger.close(stock, at(120));
    /// assert_eq!(
    ///     ledger.to_string(),
    ///     "inventory 120ms (inventory 118ms: queue 90ms, unaccounted 28ms, left 2ms)"
    /// );
    /// ```
    pub fn tell(&mut self, of: EntryId, account: Account) {
        let kept = matches!(of.place, Place::Entry(_));
        if kept && self.told.len() < MAX_ENTRIES && self.told_of(of).is_none() {
            self.told.push((of, account));
        }
    }

    /// What the far side told of this entry.
    pub fn told_of(&self, entry: EntryId) -> Option<&Account> {
        self.told.iter().find(|(of, _)| *of == entry).map(|(_, account)| account)
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
        part.told =
            self.told.iter().filter(|(entry, _)| *entry == of).map(|(_, told)| (THE_WHOLE, told.clone())).collect();
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

/// One line: the direct entries with what each took, and in brackets what the far side told of it; those still going on end
/// in `…`.
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (id, entry) in self.parts_of(None) {
            match entry.ended {
                Some(ended) => write!(f, "{separator}{} {}", entry.name, Legible(ended.since(entry.began)))?,
                None => write!(f, "{separator}{} …", entry.name)?,
            }
            if let Some(told) = self.told_of(id) {
                write!(f, " ({told})")?;
            }
            separator = ", ";
        }
        for folded in &self.folded {
            write!(f, "{separator}{} {} in {}", folded.name, Legible(folded.sum), folded.count)?;
            separator = ", ";
        }
        if let Some(told) = self.told_of(THE_WHOLE) {
            write!(f, "{separator}there: {told}")?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("nothing recorded") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
