//! One service of the chain, whoever keeps its time: how long it works for what, and what was seen there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::Tick;

use super::{CHAIN, Spike};
use crate::purchase::{Service, Try};

/// The services of a chain.
#[derive(Clone)]
pub(super) struct Tiers([Arc<Tier>; 3]);

pub(super) struct Tier {
    pub(super) service: Service,
    spike: Spike,
    arrived: AtomicUsize,
    worked: Mutex<BTreeMap<Work, Duration>>,
}

/// Whom work was done for: a tap, and which try of the app.
type Work = (usize, u32);

/// A piece of work in progress; its time is counted however it ends.
struct Working<'a> {
    tier: &'a Tier,
    of: Try,
    began: Tick,
}

// === Tiers ===

impl Tiers {
    pub(super) fn new(spike: &Spike) -> Self {
        let tier = |service| Tier { service, spike: *spike, arrived: AtomicUsize::new(0), worked: Mutex::default() };
        Self(CHAIN.map(|service| Arc::new(tier(service))))
    }

    /// Callers first.
    pub(super) fn all(&self) -> &[Arc<Tier>; 3] {
        &self.0
    }

    /// The time that was worked, at all of them, and how much of it for a try of which `good` is not true.
    pub(super) fn worked(&self, good: impl Fn(usize, u32) -> bool) -> (Duration, Duration) {
        let mut sums = (Duration::ZERO, Duration::ZERO);
        for tier in self.all() {
            for (&(tap, number), &span) in tier.worked.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                sums.0 += span;
                if !good(tap, number) {
                    sums.1 += span;
                }
            }
        }
        sums
    }
}

// === Tier ===

impl Tier {
    /// A request has come, whatever becomes of it.
    pub(super) fn arrives(&self) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn arrived(&self) -> usize {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Does what there is to do for `of`. Whoever calls it has a place.
    pub(super) async fn work(&self, of: Try) {
        let _working = Working { tier: self, of, began: clock::now() };
        tokio::time::sleep(self.spike.works(self.service, of.article)).await;
    }
}

// === Working ===

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let span = clock::now().since(self.began);
        let mut worked = self.tier.worked.lock().unwrap_or_else(PoisonError::into_inner);
        *worked.entry((self.of.tap, self.of.number)).or_default() += span;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_counts_whether_or_not_it_is_finished_and_for_nobody_if_its_try_got_no_answer() {
        let spike = Spike::default();
        let tiers = Tiers::new(&spike);
        let (first, second) =
            (Try { tap: 1, visit: 1, number: 1, article: 3 }, Try { tap: 1, visit: 1, number: 2, article: 3 });
        let gateway = &tiers.all()[0];
        gateway.work(first).await;
        let ms = Duration::from_millis;
        assert!(tokio::time::timeout(ms(5), gateway.work(second)).await.is_err(), "stopped");
        let whole = tiers.worked(|_, number| number == 2);
        // The timer of the tests is exact to a millisecond.
        assert!(whole.0 >= spike.works(Service::Gateway, 3) + ms(5), "{whole:?}");
        assert!(whole.1 >= spike.works(Service::Gateway, 3) && whole.1 + ms(4) < whole.0, "{whole:?}");
    }
}
