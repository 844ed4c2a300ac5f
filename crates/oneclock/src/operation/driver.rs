//! Who says when an operation is over.
//!
//! Decides nothing: a driver that is dropped before its work is done ends the operation with the cause that a drop has
//! (contract X4), and the one event of the end is sent when it goes.

use std::fmt;
use std::sync::atomic::Ordering;
use std::task::Context;

use oneclock_core::{Name, Tick};

use super::{Inner, Operation};
use crate::scope::Awaiting;
use crate::{clock, scope};

/// Drives one operation: whoever holds it says when the work is done. Dropped before that, it ends the operation with
/// the cause that a drop has (contract X4). For layers and other drivers; services get their operations from them.
#[must_use = "dropping the driver ends the operation"]
#[derive(Debug)]
pub struct Driver {
    pub(super) operation: Operation,
    over: Option<Tick>, // when it was finished, so that the clock need not be asked again
}

/// One turn of an operation's work, made by [`Driver::polling`].
#[must_use = "it watches until it is dropped"]
pub struct Polling<'a> {
    pub(super) operation: &'a Inner,
    pub(super) unwinding: bool, // already, when the turn began
}

// === Driver ===

impl Driver {
    pub(super) const fn of(operation: Operation) -> Self {
        Self { operation, over: None }
    }

    /// The operation.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The same, for a request that is attempt `attempt` of the hop above: nothing of it is retried here if that is not the
    /// first (contract R9). Call it before the operation is cloned; later it has no effect, and is an error in the log.
    ///
    /// # Panics
    /// Then, in debug builds.
    pub fn serving_attempt(mut self, attempt: u32) -> Self {
        if let Some(inner) = self.operation.unshared("an attempt") {
            let before = attempt.saturating_sub(1);
            inner.context.attempts_before = inner.context.attempts_before.max(before);
        }
        self
    }

    /// The same, for a request that was matched to `route`. Call it before the operation is cloned; later it has no effect, and
    /// is an error in the log.
    ///
    /// # Panics
    /// Then, in debug builds.
    pub fn on_route(mut self, route: Name) -> Self {
        if let Some(inner) = self.operation.unshared("a route") {
            inner.context.route = Some(route);
        }
        self
    }

    /// Ends the operation as its drop would, but tells nobody yet: drop what works for it, then the driver, so that the
    /// ledger in its event is complete.
    pub fn abandon(&self) {
        self.operation.0.end_as_dropped();
    }

    /// Hold it while the work is polled: a panic that unwinds through the poll is remembered, so that the operation ends
    /// as called off and not as if its caller had left, also when a layer above catches the panic and drops the driver
    /// only afterwards (contract X4).
    ///
    /// ```
    /// # use oneclock::{Driver, Operation, clock}; use oneclock_core::*; use std::time::Duration;
    /// # fn arrives() -> Driver {
    /// #     let now = clock::now();
    /// #     Operation::arrive("order".into(), now, Budget::begin(BoundBy::Caller, Duration::from_secs(1), now), None, None, None)
    /// # }
    /// let driver = arrives();
    /// let op = driver.operation().clone();
    /// let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
    ///     let _polling = driver.polling();
    ///     panic!("on purpose"); // the handler's poll
    /// }));
    /// assert!(caught.is_err());
    /// drop(driver);
    /// assert_eq!(op.ending().unwrap().cause, Cause::CalledOff);
    /// ```
    pub fn polling(&self) -> Polling<'_> {
        self.operation.polling()
    }

    /// Hold it while the work is polled, where [`EndOf`](crate::EndOf) this operation is polled with the same `cx` right after, if the
    /// work is not ready: calls of the operation that wait inside need no timers of their own then.
    pub fn awaiting_its_end(&self, cx: &Context<'_>) -> Awaiting<'_> {
        scope::awaiting(&self.operation, cx)
    }

    /// The work is done. Whatever of it still runs ends with it (contract N5).
    pub fn finish(self) {
        self.finish_at(clock::now());
    }

    /// The same, for a layer that knows the time already: reading the clock is a good part of what a request costs.
    pub fn finish_at(mut self, now: Tick) {
        self.over = Some(now);
        self.operation.0.life.finish(now);
        self.operation.0.leave_place(true, || now);
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        if !self.unwinding && std::thread::panicking() {
            self.operation.panicked.store(true, Ordering::Release);
        }
    }
}

impl fmt::Debug for Polling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polling").field("operation", &self.operation.name).finish_non_exhaustive()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let now = || self.over.unwrap_or_else(clock::now);
        self.operation.0.end_as_dropped();
        self.operation.0.leave_place(false, now);
        self.operation.0.close(now);
    }
}
