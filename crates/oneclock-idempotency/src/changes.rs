//! Who waits in this process for a record to change.
//!
//! Decides nothing of records: whoever is woken looks. That a change between a look and the wait is not missed is up to the
//! order: [`watch`](Changes::watch) first, then look, then wait.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oneclock_core::idempotency::Scope;
use tokio::sync::watch;

/// Tells who waits for a record that it has changed. A store has one and says so after each write; all clones are the same.
///
/// It holds what is waited for and nothing else, so it is as large as there are who wait.
#[derive(Clone, Default)]
pub struct Changes(Arc<Mutex<HashMap<Scope, watch::Sender<()>>>>);

/// One who waits. From its making on no change is missed.
#[derive(Debug)]
pub struct Watch {
    of: Changes,
    scope: Scope,
    changed: Option<watch::Receiver<()>>, // taken in drop, so that the last one is seen to be the last
}

// === Changes ===

impl Changes {
    /// Nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// The record of this scope may have changed: wakes who waits for that. For stores, after their write.
    pub fn changed(&self, scope: &Scope) {
        if let Some(sender) = self.waited_for().get(scope) {
            sender.send_replace(());
        }
    }

    /// Begins to wait for this scope.
    pub fn watch(&self, scope: &Scope) -> Watch {
        let mut waited_for = self.waited_for();
        let changed = match waited_for.entry(scope.clone()) {
            Entry::Occupied(entry) => entry.get().subscribe(),
            Entry::Vacant(entry) => entry.insert(watch::Sender::new(())).subscribe(),
        };
        Watch { of: self.clone(), scope: scope.clone(), changed: Some(changed) }
    }

    fn waited_for(&self) -> MutexGuard<'_, HashMap<Scope, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("waited_for", &self.waited_for().len()).finish()
    }
}

// === Watch ===

impl Watch {
    /// Until it changes; at once, if it has since this was asked last.
    ///
    /// # Cancel safety
    /// Dropped, nothing is missed.
    pub async fn changed(&mut self) {
        let told = match &mut self.changed {
            Some(changed) => changed.changed().await.is_ok(),
            None => false,
        };
        if !told {
            std::future::pending().await // not reached: its sender is there as long as this is
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut waited_for = self.of.waited_for();
        self.changed = None;
        if waited_for.get(&self.scope).is_some_and(|sender| sender.receiver_count() == 0) {
            waited_for.remove(&self.scope);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use oneclock_core::idempotency::Key;

    fn scope(key: &str) -> Scope {
        let key = Key::new(key).expect("a key");
        Scope { principal: "shop".into(), method: "POST".into(), route: "/charges".into(), key }
    }

    #[test]
    fn who_waits_is_woken_by_its_own_record_and_leaves_nothing_behind() {
        let changes = Changes::new();
        let (mut first, mut second) = (changes.watch(&scope("a")), changes.watch(&scope("a")));
        changes.changed(&scope("b"));
        assert!(first.changed().now_or_never().is_none());
        changes.changed(&scope("a"));
        changes.changed(&scope("a"));
        assert!(first.changed().now_or_never().is_some(), "also one that was told before it waited");
        assert!(first.changed().now_or_never().is_none(), "once");
        drop(first);
        assert!(second.changed().now_or_never().is_some());
        assert_eq!(changes.waited_for().len(), 1);
        drop(second);
        assert_eq!(changes.waited_for().len(), 0);
    }
}
