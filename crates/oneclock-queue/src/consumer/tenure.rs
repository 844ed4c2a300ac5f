//! For how long a piece of work is ours to do: until it expires, as long as its lease is kept and its connection stands, and no longer
//! than its handler is waited for.
//!
//! Decides nothing of its own: `oneclock_core::expiry` has the rules (`Gate`, `Lease`). Keeps the lease alive while the handler
//! runs, and says when it is lost.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::expiry::{Gate, Lease, Stop, Terms};
use oneclock_core::{Deadline, Tick};

use crate::broker::{Delivery, NotSettled};

/// The hold on a piece of work.
pub(super) struct Tenure {
    judged: Tick,
    gate: Gate,
    lease: Option<Mutex<Lease>>, // `None`: as long as its connection stands
    is_lost: Box<dyn Fn() -> bool + Send + Sync>,
    steps: AtomicU8,
}

/// A step that cannot be taken back has begun.
const BEGUN: u8 = 1;
/// None may begin any more: its handler is not waited for.
const OVER: u8 = 2;
/// Its handler was cut short by a shutdown.
const CUT_SHORT: u8 = 4;

/// How often it is looked whether a connection stands, where no lease says until when.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// How long one heartbeat may take before it is asked again.
const HEARTBEAT_WITHIN: Duration = Duration::from_secs(5);

/// The least between two heartbeats of which the first failed.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

impl Tenure {
    /// Of a delivery that was judged at `now`.
    pub(super) fn new<D: Delivery>(delivery: &Arc<D>, terms: &Terms, now: Tick) -> Self {
        let lease = delivery.lease().map(|length| Mutex::new(Lease::new(length, delivery.asked())));
        // A job that its handler keeps does not keep the delivery.
        let known = Arc::downgrade(delivery);
        let is_lost = Box::new(move || known.upgrade().is_none_or(|delivery| delivery.is_lost()));
        Self { judged: now, gate: Gate::new(terms, now), lease, is_lost, steps: AtomicU8::new(0) }
    }

    /// When it was judged: what it has left is counted from there.
    pub(super) const fn judged(&self) -> Tick {
        self.judged
    }

    /// Whether a step that cannot be taken back may begin. From the first one on it is not known any more that nothing happened.
    pub(super) fn before_effect(&self, now: Tick) -> Result<(), Stop> {
        self.still_begins(now)?;
        let begin = |steps| (steps & OVER == 0).then_some(steps | BEGUN);
        let begun = self.steps.fetch_update(Ordering::AcqRel, Ordering::Acquire, begin);
        begun.map(drop).map_err(|_over| Stop::LeaseLost)
    }

    /// Whether one could begin.
    pub(super) fn still_begins(&self, now: Tick) -> Result<(), Stop> {
        if self.holds(now) { self.gate.may_begin(now) } else { Err(Stop::LeaseLost) }
    }

    /// Whether a step that cannot be taken back has begun.
    #[cfg(feature = "idempotency")]
    pub(super) fn has_begun(&self) -> bool {
        self.steps.load(Ordering::Acquire) & BEGUN != 0
    }

    /// From now on none begins, whoever still has the job. Whether one has.
    pub(super) fn close(&self) -> bool {
        self.steps.fetch_or(OVER, Ordering::AcqRel) & BEGUN != 0
    }

    /// A shutdown has cut its handler short.
    pub(super) fn cut_short(&self) {
        self.steps.fetch_or(CUT_SHORT, Ordering::AcqRel);
    }

    /// Whether one has.
    pub(super) fn was_cut_short(&self) -> bool {
        self.steps.load(Ordering::Acquire) & CUT_SHORT != 0
    }

    /// Whether it is still ours.
    pub(super) fn holds(&self, now: Tick) -> bool {
        !(self.is_lost)() && self.with_lease(|lease| lease.holds(now)).unwrap_or(true)
    }

    /// Until when it is, unless it is renewed.
    pub(super) fn until(&self) -> Option<Tick> {
        self.with_lease(|lease| lease.until())
    }

    /// Keeps the lease. Returns when it is lost, or its connection where there is none to keep.
    pub(super) async fn keep<D: Delivery>(&self, delivery: &D) {
        let mut not_before = Tick::default();
        loop {
            let Some((due, until)) = self.with_lease(|lease| (lease.heartbeat_at(), lease.until())) else {
                while !delivery.is_lost() {
                    tokio::time::sleep(LOOKS_EVERY).await;
                }
                return;
            };
            sleep_until(due.max(not_before).min(until)).await;
            let asked = clock::now();
            if !self.holds(asked) {
                return;
            }
            let within = until.since(asked).min(HEARTBEAT_WITHIN);
            match tokio::time::timeout(within, delivery.renew()).await {
                Ok(Ok(())) => {
                    self.with_lease(|lease| lease.renewed(asked));
                }
                Ok(Err(NotSettled::Lost)) => {
                    self.with_lease(Lease::lost);
                    return;
                }
                // Whether it was renewed is not known: asked again, soon, as long as it is ours for certain.
                Ok(Err(NotSettled::Failed(_) | NotSettled::TooLarge)) | Err(_) => {
                    not_before = clock::now() + AGAIN_AFTER.max(within / 10)
                }
            }
        }
    }

    fn with_lease<R>(&self, f: impl FnOnce(&mut Lease) -> R) -> Option<R> {
        let lease = self.lease.as_ref()?;
        Some(f(&mut lease.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

async fn sleep_until(tick: Tick) {
    tokio::time::sleep_until(clock::instant(Deadline::at(tick))).await;
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure").field("lease", &self.lease).field("steps", &self.steps).finish_non_exhaustive()
    }
}
