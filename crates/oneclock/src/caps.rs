//! What the calls of one adapter may spend: its reserve, caps by the names of calls, and what becomes of a call outside of any
//! operation.
//!
//! Decides the last (contract C6), once for every way out: such a call gets its cap and never infinity, or is refused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oneclock_core::{Ask, Name, Refused};

use crate::events::{self, Event};
use crate::{NotBegun, Operation};

/// The most that a call may spend where neither a cap nor an operation says how much.
pub const DEFAULT_CAP: Duration = Duration::from_secs(10);

/// What errors and events call the operation of a call that has none.
const NO_OPERATION: Name = Name::literal("(no operation)");

/// What becomes of a call that is made while no operation is current (contract C6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WithoutOperation {
    /// It is refused.
    Require,
    /// It gets its cap, else [`DEFAULT_CAP`]; said once in the log.
    #[default]
    Warn,
    /// The same, and nothing is said.
    Ignore,
}

/// What the calls of one adapter may spend, by their names. For adapters: pools, clients, drivers.
///
/// A cap for a name that no call has bounds nothing, and nobody can tell that it was meant for another. So where a name is
/// written twice, at the cap and at the call, let it be one constant.
///
/// ```
/// # use oneclock::{Caps, Name, Operation}; use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// const LOOKUP: Name = Name::literal("lookup");
///
/// let mut caps = Caps::new();
/// caps.cap(LOOKUP, ms(50));
/// assert_eq!(caps.ask(&LOOKUP).cap_value(), Some(ms(50)));
/// assert_eq!(caps.ask(&"report".into()).cap_value(), None);
///
/// // Outside of any operation a call still has an end.
/// let operation = caps.operation(&LOOKUP)?;
/// assert!(operation.remaining() <= ms(50));
/// # Ok::<(), oneclock::NotBegun>(())
/// ```
#[derive(Debug, Default)]
pub struct Caps {
    ask: Ask,
    by_name: BTreeMap<Name, Duration>,
    without_operation: WithoutOperation,
    warned: AtomicBool,
}

// === Caps ===

/// A clone has said nothing in the log yet.
impl Clone for Caps {
    fn clone(&self) -> Self {
        let Self { ask, by_name, without_operation, warned: _ } = self;
        Self {
            ask: *ask,
            by_name: by_name.clone(),
            without_operation: *without_operation,
            warned: AtomicBool::new(false),
        }
    }
}

impl Caps {
    /// No cap and no reserve.
    pub fn new() -> Self {
        Self::default()
    }

    /// The most that a call named `name` may spend. Of two for one name the smaller one holds (invariant I3).
    pub fn cap(&mut self, name: impl Into<Name>, cap: Duration) {
        let of_name = self.by_name.entry(name.into()).or_insert(cap);
        *of_name = cap.min(*of_name);
    }

    /// What operations keep back from each call.
    pub fn reserve(&mut self, reserve: Duration) {
        self.ask = self.ask.reserve(reserve);
    }

    /// The least that is useful for a call.
    pub fn min_useful(&mut self, min_useful: Duration) {
        self.ask = self.ask.min_useful(min_useful);
    }

    /// How long before its operation a call ends at most, so that what it finds out still finds somebody.
    pub fn way_home(&mut self, at_most: Duration) {
        self.ask = self.ask.way_home(at_most);
    }

    /// What becomes of a call outside of any operation.
    pub fn without_operation(&mut self, without: WithoutOperation) {
        self.without_operation = without;
    }

    /// Whether every cap leaves enough to be useful.
    ///
    /// # Errors
    /// The first call whose cap contradicts the least that is useful, and how.
    pub fn check(&self) -> Result<(), (Name, Refused)> {
        for (name, cap) in &self.by_name {
            self.ask.cap(*cap).check().map_err(|refused| (name.clone(), refused))?;
        }
        Ok(())
    }

    /// What a call named `name` asks of its operation.
    pub fn ask(&self, name: &Name) -> Ask {
        self.by_name.get(name).map_or(self.ask, |cap| self.ask.cap(*cap))
    }

    /// The current operation, else one of the call's own with its cap (contract C6).
    ///
    /// # Errors
    /// [`NotBegun`] where an operation is required and none is current.
    pub fn operation(&self, name: &Name) -> Result<Operation, NotBegun> {
        match Operation::current() {
            Some(operation) => Ok(operation),
            None => self.without_operation.operation(name, self.ask(name).cap_value(), &self.warned),
        }
    }
}

// === WithoutOperation ===

impl WithoutOperation {
    /// An operation of the call's own, with its cap. `warned` is whether the log has said so. For drivers.
    ///
    /// # Errors
    /// [`NotBegun`] where an operation is required.
    pub fn operation(self, call: &Name, cap: Option<Duration>, warned: &AtomicBool) -> Result<Operation, NotBegun> {
        match self {
            Self::Require => {
                let not_begun = NotBegun::without_operation(NO_OPERATION, call.clone());
                let (operation, call, reason) = (&not_begun.operation, &not_begun.call, not_begun.reason());
                events::send(None, &Event::NotCalled { operation, call, reason });
                return Err(not_begun);
            }
            Self::Warn if !warned.swap(true, Ordering::Relaxed) => {
                tracing::warn!(
                    %call,
                    "no operation is current: the call gets only its cap; run it in Operation::scope (said once)"
                );
            }
            Self::Warn | Self::Ignore => {}
        }
        Ok(Operation::begin(NO_OPERATION, cap.unwrap_or(DEFAULT_CAP)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKUP: Name = Name::literal("lookup");

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn c6_without_an_operation_a_call_gets_its_cap_and_never_infinity() {
        let mut caps = Caps::new();
        assert!(caps.operation(&LOOKUP).is_ok_and(|operation| operation.remaining() <= DEFAULT_CAP));
        caps.cap(LOOKUP, ms(50));
        assert!(caps.operation(&LOOKUP).is_ok_and(|operation| operation.remaining() <= ms(50)));
        caps.without_operation(WithoutOperation::Require);
        assert!(caps.operation(&LOOKUP).is_err());
    }

    #[test]
    fn c6_the_current_operation_is_the_one_that_pays() {
        let caps = Caps::new();
        let order = Operation::begin("order", ms(800));
        let found = order.sync_scope(|| caps.operation(&LOOKUP).map(|operation| operation.name().clone()));
        assert!(found.is_ok_and(|name| name == "order"));
    }

    #[test]
    fn i3_of_two_caps_the_smaller_one_holds() {
        let mut caps = Caps::new();
        caps.cap(LOOKUP, ms(50));
        caps.cap(LOOKUP, ms(500));
        assert_eq!(caps.ask(&LOOKUP).cap_value(), Some(ms(50)));
    }

    #[test]
    fn c1_a_cap_below_the_least_that_is_useful_is_refused() {
        let mut caps = Caps::new();
        caps.cap(LOOKUP, ms(50));
        assert!(caps.check().is_ok());
        caps.min_useful(ms(60));
        assert!(caps.check().is_err_and(|(name, _)| name == LOOKUP));
    }
}
