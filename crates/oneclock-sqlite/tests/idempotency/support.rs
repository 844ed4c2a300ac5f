//! A folder with a store.

use std::time::Duration;

use oneclock::clock;
use oneclock_core::wire::Wall;
use oneclock_sqlite::{IdempotencyStore, IdempotencyStoreBuilder};

pub(crate) use crate::notes::{Folder, created, layer, send, until_there};

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

impl Folder {
    pub(crate) fn builder(&self) -> IdempotencyStoreBuilder {
        IdempotencyStore::builder(self.path.join("store.sqlite")).busy_for(Duration::from_secs(10))
    }

    /// A store whose clock is ahead by `shift`.
    pub(crate) fn store_ahead(&self, shift: Duration) -> IdempotencyStore {
        self.builder().clock(move || ahead(shift)).build().unwrap()
    }
}

pub(crate) fn ahead(shift: Duration) -> Wall {
    clock::wall() + shift
}
