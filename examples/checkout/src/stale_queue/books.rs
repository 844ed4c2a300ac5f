//! What really happened, as those outside wrote it down, and what the shop had promised by then.
//!
//! Counts nothing that a queue says of itself, but for the ends of ours, which is what is to be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::clock;
use oneclock::events::{Event, Observer};
use oneclock_core::Tick;
use tokio::sync::watch;

/// What happened in one run.
#[derive(Default)]
pub(super) struct Books {
    kept: Mutex<Kept>,
    changed: watch::Sender<Tick>,
}

/// The entries.
#[derive(Clone, Default)]
pub(super) struct Kept {
    /// How many users were answered in time.
    pub(super) answered: usize,
    /// Confirmations that were accepted as work, by order, and when.
    pub(super) promised: BTreeMap<usize, Tick>,
    /// Cards of which it was accepted as work to find out what became of them, likewise.
    pub(super) owed: BTreeMap<usize, Tick>,
    /// Orders whose card was charged.
    pub(super) charged: BTreeSet<usize>,
    /// The mails that were sent.
    pub(super) mails: Vec<(usize, Tick)>,
    /// The keys under which some were.
    pub(super) mail_keys: BTreeSet<String>,
    /// The cards of which somebody found out, and whether that was said to be late.
    pub(super) settled: Vec<(usize, Tick, Late)>,
    /// What our queue said of the end of each piece of work, by its kind and its order. The last word counts.
    pub(super) ends: BTreeMap<(String, usize), End>,
}

/// Whether whoever did it was told that it is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    No,
    Flagged,
}

/// The end of a piece of work.
#[derive(Clone, Debug)]
pub(super) struct End {
    /// In the words of the metrics: `done`, `done_late`, `discarded expired`.
    pub(super) said: String,
    pub(super) owner: Option<String>,
}

// === Books ===

impl Books {
    pub(super) fn answered(&self) {
        self.entry(|kept| kept.answered += 1);
    }

    pub(super) fn promised(&self, order: usize) {
        self.entry(|kept| *kept.promised.entry(order).or_insert_with(clock::now));
    }

    pub(super) fn owed(&self, order: usize) {
        self.entry(|kept| *kept.owed.entry(order).or_insert_with(clock::now));
    }

    pub(super) fn charged(&self, order: usize) {
        self.entry(|kept| kept.charged.insert(order));
    }

    /// A mail, unless there was one under this key. How many there are, if this one is new.
    pub(super) fn mail(&self, order: usize, key: Option<&str>) -> Option<usize> {
        self.entry(|kept| {
            if let Some(key) = key
                && !kept.mail_keys.insert(key.to_owned())
            {
                return None;
            }
            kept.mails.push((order, clock::now()));
            Some(kept.mails.len())
        })
    }

    pub(super) fn settled(&self, order: usize, late: Late) {
        self.entry(|kept| kept.settled.push((order, clock::now(), late)));
    }

    pub(super) fn is_charged(&self, order: usize) -> bool {
        self.lock().charged.contains(&order)
    }

    pub(super) fn read(&self) -> Kept {
        self.lock().clone()
    }

    /// Until so many mails have been sent.
    pub(super) async fn mails_reach(&self, count: usize) {
        self.until(|kept| kept.mails.len() >= count).await;
    }

    /// Until this is so.
    pub(super) async fn until(&self, is_so: impl Fn(&Kept) -> bool) {
        let mut changes = self.changed.subscribe();
        while !is_so(&self.lock()) {
            if changes.changed().await.is_err() {
                return; // not reached: it is ours
            }
        }
    }

    /// Until nothing has happened for so long.
    pub(super) async fn quiet_for(&self, quiet: Duration, within: Duration) {
        let mut changes = self.changed.subscribe();
        let stirs = async { while tokio::time::timeout(quiet, changes.changed()).await.is_ok() {} };
        let _ = tokio::time::timeout(within, stirs).await; // then the figures say what is left
    }

    fn entry<R>(&self, write: impl FnOnce(&mut Kept) -> R) -> R {
        let written = write(&mut self.lock());
        self.changed.send_replace(clock::now());
        written
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Books {
    fn on(&self, event: &Event<'_>) {
        let Event::Delivered(delivered) = event else { return };
        // The order service calls its messages so.
        let order = delivered.id.rsplit_once('-').and_then(|(_, order)| order.parse().ok());
        if let Some(order) = order.filter(|_| delivered.end.is_final()) {
            let (said, owner) = (delivered.end.to_string(), delivered.owner.as_deref().map(str::to_owned));
            let of = (delivered.kind.as_str().to_owned(), order);
            self.entry(|kept| kept.ends.insert(of, End { said, owner }));
        }
    }
}
