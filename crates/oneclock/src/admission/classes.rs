//! The sorts of work that came by, each with its estimate.
//!
//! Decides the bound: 64 by name, one for all others. Read without a lock; written once for each name.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use oneclock_core::Name;
use oneclock_core::admission::{Admission, Class};

use super::turn::Sleeper;

const MOST: usize = 64;

pub(super) struct Classes {
    named: ArcSwap<HashMap<Box<str>, Arc<Class>>>,
    other: Arc<Class>,
    adding: Mutex<()>,
}

impl Classes {
    pub(super) fn new(admission: &Admission<Sleeper>) -> Self {
        Self { named: ArcSwap::default(), other: admission.class(), adding: Mutex::new(()) }
    }

    pub(super) fn of(&self, name: Option<&str>, admission: &Admission<Sleeper>) -> Arc<Class> {
        let Some(name) = name else { return Arc::clone(&self.other) };
        let named = self.named.load();
        match named.get(name) {
            Some(class) => Arc::clone(class),
            None if named.len() >= MOST => Arc::clone(&self.other),
            None => self.add(name, admission),
        }
    }

    #[cold]
    fn add(&self, name: &str, admission: &Admission<Sleeper>) -> Arc<Class> {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let mut named = HashMap::clone(&self.named.load());
        if named.len() >= MOST {
            return Arc::clone(&self.other);
        }
        let class = Arc::clone(named.entry_ref(name).or_insert_with(|| admission.class()));
        self.named.store(Arc::new(named));
        class
    }

    pub(super) fn estimates(&self) -> Vec<(Option<Name>, Duration, f64)> {
        let told = |name, class: &Class| (name, class.estimate().needed(), class.estimate().cut_off());
        let named = self.named.load();
        let mut all: Vec<_> =
            named.iter().map(|(name, class)| told(Some(Name::from(Arc::<str>::from(&**name))), class)).collect();
        all.sort_by(|(one, ..), (other, ..)| one.as_ref().map(Name::as_str).cmp(&other.as_ref().map(Name::as_str)));
        all.push(told(None, &self.other));
        all
    }
}
