//! By how much this process's wall clock may be wrong.
//!
//! Decides where the figure comes from: the kernel where its clock is synchronised, else what is assumed; and what readings of
//! the broker's clock have proven, which is the one clock that producers and consumers share (contract Q4).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::expiry::{ASSUMED, WORRYING, measured, uncertainty};

use crate::broker::Broker;

/// By how much this process's wall clock may be wrong. Cheap to clone; all clones share what was measured.
///
/// ```
/// use oneclock_queue::Uncertainty;
/// use std::time::Duration;
///
/// let assumed = Uncertainty::assumed(Duration::from_secs(2)); // where clocks are known to be bad
/// assert!(assumed.get() >= Duration::from_secs(2));
/// ```
#[derive(Clone, Debug)]
pub struct Uncertainty(Arc<Known>);

#[derive(Debug)]
struct Known {
    assumed: Duration,
    asks_kernel: bool,
    measured: AtomicU64, // nanoseconds; u64::MAX: never
}

const NEVER: u64 = u64::MAX;

impl Uncertainty {
    /// What the kernel says where its clock is synchronised, else [`ASSUMED`].
    pub fn of_this_machine() -> Self {
        Self::of(ASSUMED, true)
    }

    /// At least this, whatever the kernel says.
    pub fn assumed(at_least: Duration) -> Self {
        Self::of(at_least, false)
    }

    fn of(assumed: Duration, asks_kernel: bool) -> Self {
        Self(Arc::new(Known { assumed, asks_kernel, measured: AtomicU64::new(NEVER) }))
    }

    /// The figure now.
    pub fn get(&self) -> Duration {
        let kernel = if self.0.asks_kernel { kernel_error() } else { None };
        let measured = match self.0.measured.load(Ordering::Relaxed) {
            NEVER => None,
            nanos => Some(Duration::from_nanos(nanos)),
        };
        uncertainty(kernel, self.0.assumed, measured)
    }

    /// Asks the broker's clock, within `within`, and keeps what that proves of ours. Returns the figure afterwards. A broker
    /// that has no clock, or does not answer, changes nothing.
    ///
    /// # Cancel safety
    /// Dropped, nothing was learnt.
    pub async fn measure<B: Broker>(&self, broker: &B, within: Duration) -> Duration {
        let asked = clock::wall();
        if let Ok(Ok(Some(theirs))) = tokio::time::timeout(within, broker.clock()).await {
            let proven = measured(asked, clock::wall(), theirs);
            self.0.measured.store(u64::try_from(proven.as_nanos()).unwrap_or(NEVER - 1), Ordering::Relaxed);
        }
        let now = self.get();
        if now > WORRYING {
            tracing::warn!(
                queue = %broker.name(), uncertainty = ?now,
                "this machine's clock is not known to better than that: work may wait that long around its expiry; synchronise it"
            );
        }
        now
    }
}

/// What the kernel says where something keeps its clock synchronised.
fn kernel_error() -> Option<Duration> {
    oneclock_kernel_clock::max_error().ok().filter(|error| *error < oneclock_kernel_clock::LOST)
}

impl Default for Uncertainty {
    fn default() -> Self {
        Self::of_this_machine()
    }
}
