//! What an observer keeps beside an operation or a call.
//!
//! Decides nothing: what it is, only the observer knows.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A place beside an operation or a call in which an observer keeps something of its own from the beginning to the end: a
/// span, for example. Empty unless an observer fills it, and then it owns an `Arc`.
///
/// ```
/// use oneclock::events::Slot;
///
/// let slot = Slot::of(std::time::Instant::now());
/// assert!(slot.get::<std::time::Instant>().is_some());
/// assert!(Slot::default().get::<std::time::Instant>().is_none());
/// ```
#[derive(Clone, Default)]
pub struct Slot(Option<Arc<dyn Any + Send + Sync>>);

/// What two observers keep in one place.
struct Both(Slot, Slot);

// === Slot ===

impl Slot {
    /// A slot that holds `value`.
    pub fn of(value: impl Any + Send + Sync) -> Self {
        Self(Some(Arc::new(value)))
    }

    /// Whether nothing is in it.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// A slot that holds what is in both. Of two of one type [`get`](Self::get) finds the first.
    ///
    /// ```
    /// # use oneclock::events::Slot;
    /// let both = Slot::of(7_u8).and(Slot::of("seven"));
    /// assert_eq!((both.get::<u8>(), both.get::<&str>()), (Some(&7), Some(&"seven")));
    /// ```
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (false, true) => self,
            (false, false) => Self::of(Both(self, other)),
        }
    }

    /// What is in it, if it is one of these.
    pub fn get<T: Any>(&self) -> Option<&T> {
        let kept = self.0.as_ref()?;
        kept.downcast_ref().or_else(|| {
            let Both(one, other) = kept.downcast_ref()?;
            one.get().or_else(|| other.get())
        })
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Slot(_)" } else { "Slot" })
    }
}
