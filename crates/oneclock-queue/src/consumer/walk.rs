//! The walk of one delivery: judged, done or not, and settled.
//!
//! Decides the order only; every decision is `oneclock_core::expiry`'s. First whether it may run at all, then whether it is still of
//! use, then its key, then its handler within its operation and its lease; at the end the broker is told, by its own bound and not
//! by the handler's, and only while the delivery is ours.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use oneclock::events::Delivery as Told;
use oneclock::{Cause, Operation, Shutdown, clock};
use oneclock_core::expiry::{End, Fault, Handled, Judged, Stamp, Terms, Why, end, judge, may_run};
use oneclock_core::wire::Wall;

use super::ends::Telling;
use super::job::{Inner, Job, known_of};
use super::tenure::Tenure;
use super::{Keys, Shared};
use crate::broker::{Broker, Dead, Delivery, Lane, NotSettled, Settle};

/// How long settling may take where no lease says so, and how often it is said.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);
const SETTLE_AGAIN: Duration = Duration::from_millis(50);

pub(super) async fn walk<B: Broker>(shared: &Shared<B>, delivery: B::Delivery, lane: Lane, shutdown: &Shutdown) {
    let telling = Telling::new(shared, &delivery);
    let stamp = &delivery.message().stamp;
    let ours = shared.uncertainty.get();
    let (now, at) = (clock::wall(), clock::now());

    // A handler enforces the key that is there; one that is not there protects nothing.
    let under_key = shared.keys.are_enforced() && stamp.key.is_some();
    let may_have_run = delivery.may_have_run() && !shared.keys.decide_repeats();
    let may = may_run(delivery.attempt(), may_have_run, &shared.effect, under_key, &shared.attempts);
    // Malformed is never absent: what was to have one effect is not done under another key.
    let unreadable = delivery.message().faults.contains(&Fault::KeyUnreadable) && !matches!(shared.keys, Keys::Nobody);
    let may = if unreadable { Err(Why::KeyUnreadable) } else { may };
    let terms = match judge(stamp, now, ours, shared.min_useful).if_allowed(may) {
        Judged::Run(terms) if terms.late && lane == Lane::Main => {
            return settled(shared, &delivery, None, Settle::Late, Told::MovedLate, telling).await;
        }
        Judged::Run(terms) => terms,
        Judged::Hold { until } => return settled(shared, &delivery, None, hold(until), Told::Held, telling).await,
        Judged::Discard(why) => {
            return settled(shared, &delivery, None, Settle::Gone, Told::Discarded(why), telling).await;
        }
        Judged::DeadLetter(why) => {
            let settle = dead(&delivery, why, None);
            return settled(shared, &delivery, None, settle, Told::DeadLettered(why), telling).await;
        }
    };

    let tenure = Arc::new(Tenure::new(&delivery, &terms, at));
    let (handled, detail) = work(shared, &delivery, &terms, &tenure, shutdown).await;
    let (handled, is_duplicate) = match handled {
        Worked::Ran(handled) => (handled, false),
        Worked::HadBeenDone => (Handled::Done, true),
        Worked::Elsewhere { again_in } => {
            let again = Settle::Again { after: again_in, counted: false };
            return settled(shared, &delivery, Some(&tenure), again, Told::GivenBack, telling).await;
        }
        Worked::Ends(why) => {
            let dead = dead(&delivery, why, detail);
            return settled(shared, &delivery, Some(&tenure), dead, Told::DeadLettered(why), telling).await;
        }
    };
    // A shutdown that cut it off says nothing against it: it is welcome elsewhere, at once.
    let ended =
        end(handled, stamp, &shared.effect, under_key, delivery.attempt(), &shared.attempts, clock::wall(), ours);
    let ended = if tenure.holds(clock::now()) { ended } else { End::Leave };
    let (settle, told) = match ended {
        End::Complete if is_duplicate => (Settle::Gone, Told::Duplicate),
        End::Complete => (Settle::Gone, Told::Done { late: is_late(stamp, &terms, ours) }),
        End::Again { after } => {
            let after = if shutdown.is_signalled() { Duration::ZERO } else { after };
            (Settle::Again { after, counted: !shutdown.is_signalled() }, Told::GivenBack)
        }
        End::Hold { until } => (hold(until), Told::Held),
        End::Discard(why) => (Settle::Gone, Told::Discarded(why)),
        End::DeadLetter(why) => (dead(&delivery, why, detail), Told::DeadLettered(why)),
        End::Leave => return telling.ended(Told::LeaseLost),
    };
    settled(shared, &delivery, Some(&tenure), settle, told, telling).await;
}

/// What came of the work of a delivery.
#[cfg_attr(not(feature = "idempotency"), expect(dead_code, reason = "only a store says the others"))]
pub(super) enum Worked {
    /// Its handler ran.
    Ran(Handled),
    /// An earlier one had done it, under the same key.
    HadBeenDone,
    /// Somebody else is at it, or its key could not be asked for.
    Elsewhere {
        /// When to look again.
        again_in: Duration,
    },
    /// It may not run.
    Ends(Why),
}

/// With what its handler said.
pub(super) type Detailed<T> = (T, Option<String>);

async fn work<B: Broker>(
    shared: &Shared<B>,
    delivery: &B::Delivery,
    terms: &Terms,
    tenure: &Arc<Tenure>,
    shutdown: &Shutdown,
) -> Detailed<Worked> {
    match &shared.keys {
        Keys::Nobody | Keys::Handler => {
            let (handled, detail) = run(shared, delivery, terms, tenure, None, shutdown).await;
            (Worked::Ran(handled), detail)
        }
        #[cfg(feature = "idempotency")]
        Keys::Store(store) => {
            let (run_, tenure_) = (|fence| run(shared, delivery, terms, tenure, Some(fence), shutdown), tenure);
            store.once(shared, delivery.message(), tenure_, run_).await
        }
    }
}

/// Runs the handler, in an operation bounded by the work's expiry, the handler's limit and the lease.
async fn run<B: Broker>(
    shared: &Shared<B>,
    delivery: &B::Delivery,
    terms: &Terms,
    tenure: &Arc<Tenure>,
    fence: Option<oneclock_core::idempotency::Fence>,
    shutdown: &Shutdown,
) -> Detailed<Handled> {
    let message = delivery.message().clone();
    // Called after the queue: what a message says it is, strangers say.
    let left = terms.within.map(|within| within.saturating_sub(clock::now().since(tenure.judged())));
    let mut operation = Operation::begin(shared.broker.name().clone(), shared.limit).expires_in(left);
    if let Some(observer) = &shared.observer {
        operation = operation.observed_by(Arc::clone(observer));
    }
    let operation = operation.ended_by(shutdown);
    let (attempt, late) = (delivery.attempt(), terms.late);
    let job = Job(Arc::new(Inner {
        message,
        operation: operation.clone(),
        attempt,
        late,
        fence,
        tenure: Arc::clone(tenure),
    }));
    let handling = AssertUnwindSafe(operation.run(async { (shared.handler)(job).await })).catch_unwind();
    let handled = tokio::select! {
        biased;
        handled = handling => handled,
        () = tenure.keep(delivery) => {
            operation.end(Cause::CalledOff);
            return (Handled::LeaseLost, None);
        }
    };
    let known = known_of(tenure.has_begun());
    match handled {
        Ok(Ok(Ok(()))) => (Handled::Done, None),
        Ok(Ok(Err(error))) => (error.handled(known), Some(Dead::detail_of(&error))),
        Ok(Err(ended)) => {
            // At the end of its work's life it ends as the contract of that says, and is not tried again first.
            let handled = tenure
                .still_begins(clock::now())
                .map_or_else(|stop| Handled::Stopped(stop, known), |()| Handled::CutOff(known));
            (handled, Some(Dead::detail_of(&ended)))
        }
        Err(_panic) => (Handled::CutOff(known), Some("its handler panicked".to_owned())),
    }
}

impl Keys {
    /// Whether the record of its key decides if work runs again, and not how it was delivered.
    const fn decide_repeats(&self) -> bool {
        match self {
            Self::Nobody | Self::Handler => false,
            #[cfg(feature = "idempotency")]
            Self::Store(_) => true,
        }
    }

    /// Whether a repeat has no second effect, whatever became of the first.
    const fn are_enforced(&self) -> bool {
        match self {
            Self::Nobody => false,
            Self::Handler => true,
            #[cfg(feature = "idempotency")]
            Self::Store(_) => false, // what is unknown to it is not run again
        }
    }
}

/// Whether it was done after its end.
fn is_late(stamp: &Stamp, terms: &Terms, ours: Duration) -> bool {
    terms.late || stamp.zone(clock::wall(), ours) == oneclock_core::expiry::Zone::Expired
}

/// Looked at again at least so often: a clock that was said to be very wrong holds nothing for days.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

fn hold(until: Wall) -> Settle {
    Settle::Again { after: until.since(clock::wall()).min(LONGEST_HOLD), counted: false }
}

fn dead<D: Delivery>(delivery: &D, why: Why, detail: Option<String>) -> Settle {
    Settle::Dead(Dead { why, detail, at: clock::wall(), attempts: delivery.attempt() })
}

/// Tells the broker, as long as the delivery is ours, and then whoever counts.
async fn settled<B: Broker>(
    shared: &Shared<B>,
    delivery: &B::Delivery,
    tenure: Option<&Arc<Tenure>>,
    settle: Settle,
    told: Told,
    telling: Telling,
) {
    let until = tenure.and_then(|tenure| tenure.until());
    let until = until.or_else(|| delivery.lease().map(|lease| delivery.asked() + lease));
    let left = || until.map_or(SETTLE_WITHIN, |until| until.since(clock::now()).min(SETTLE_WITHIN));
    #[cfg(feature = "idempotency")]
    if let Keys::Store(store) = &shared.keys {
        store.ended(shared.broker.name(), delivery.message(), told, left() / 2).await;
    }
    let within = left();
    let saying = async {
        loop {
            match delivery.settle(&settle).await {
                Ok(()) => return Told::clone(&told),
                Err(NotSettled::Lost) => return Told::LeaseLost,
                Err(NotSettled::Failed(error)) => {
                    tracing::debug!(error = &*error as &dyn std::error::Error, "telling the broker again");
                    tokio::time::sleep(SETTLE_AGAIN).await;
                }
            }
        }
    };
    let told = tokio::time::timeout(within, saying).await.unwrap_or(Told::NotSettled);
    if told == Told::NotSettled {
        let queue = shared.broker.name();
        tracing::warn!(%queue, message = %delivery.message(), ?within, "the broker could not be told what became of a delivery: it comes again");
    }
    telling.ended(told);
}
