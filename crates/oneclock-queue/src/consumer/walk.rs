//! The walk of one delivery: judged, done or not, and settled.
//!
//! Decides the order only; every decision is `oneclock_core::expiry`'s. First whether it may run at all, then whether it is still of
//! use, then its key, then its handler within its operation and its lease ([`handling`](super::handling)); at the end the broker is
//! told ([`settling`](super::settling)), by its own bound and not by the handler's, and only while the delivery is ours.

use std::sync::Arc;
use std::time::Duration;

use oneclock::events::Delivery as Told;
use oneclock::{Shutdown, clock};
use oneclock_core::expiry::{End, Fault, Handled, Judged, Stamp, Terms, Why, end, judge, may_run};

use super::ends::{Counts, Telling};
use super::handling::run;
use super::settling::{dead, hold, settled};
use super::tenure::Tenure;
use super::{Keys, Shared};
use crate::broker::{Broker, Delivery, Lane, Settle};

pub(super) async fn walk<B: Broker>(
    shared: &Arc<Shared<B>>,
    delivery: B::Delivery,
    lane: Lane,
    shutdown: &Shutdown,
    counts: &Arc<Counts>,
) {
    let delivery = Arc::new(delivery);
    let mut telling = Telling::new(shared, &*delivery, counts);
    let stamp = &delivery.message().stamp;
    let ours = shared.uncertainty.get();
    let (now, at) = (clock::wall(), clock::now());

    // A handler enforces the key that is there; one that is not there protects nothing.
    let under_key = shared.keys.are_enforced() && stamp.key.is_some();
    // Nor does a record under a name that only this delivery has: then how it was delivered decides.
    let is_nameless = shared.keys.decide_repeats() && stamp.key.is_none() && !delivery.id_lasts();
    if is_nameless {
        telling.fault(Fault::KeyMissing);
    }
    let may_have_run = delivery.may_have_run() && (is_nameless || !shared.keys.decide_repeats());
    let may = may_run(delivery.attempt(), may_have_run, &shared.effect, under_key, &shared.attempts);
    // Malformed is never absent: what was to have one effect is not done under another key.
    let unreadable = delivery.message().faults.contains(&Fault::KeyUnreadable) && !matches!(shared.keys, Keys::Nobody);
    let may = if unreadable { Err(Why::KeyUnreadable) } else { may };
    let terms = match judge(stamp, now, ours, shared.min_useful).if_allowed(may) {
        Judged::Run(terms) if terms.late && lane == Lane::Main => {
            return settled(shared, &*delivery, None, Settle::Late, Told::MovedLate, telling).await;
        }
        Judged::Run(terms) => terms,
        Judged::Hold { until } => return settled(shared, &*delivery, None, hold(until), Told::Held, telling).await,
        Judged::Discard(why) => {
            return settled(shared, &*delivery, None, Settle::Gone, Told::Discarded(why), telling).await;
        }
        Judged::DeadLetter(why) => {
            let settle = dead(&*delivery, why, None);
            return settled(shared, &*delivery, None, settle, Told::DeadLettered(why), telling).await;
        }
    };

    let tenure = Arc::new(Tenure::new(&delivery, &terms, at));
    let (handled, detail) = work(shared, &delivery, &terms, &tenure, is_nameless, shutdown).await;
    let (handled, is_duplicate) = match handled {
        Worked::Ran(handled) => (handled, false),
        Worked::HadBeenDone => (Handled::Done, true),
        Worked::Elsewhere { again_in } => {
            let again = Settle::Again { after: again_in, counted: false };
            return settled(shared, &*delivery, Some(&tenure), again, Told::GivenBack, telling).await;
        }
        Worked::Ends(why) => {
            let dead = dead(&*delivery, why, detail);
            return settled(shared, &*delivery, Some(&tenure), dead, Told::DeadLettered(why), telling).await;
        }
    };
    // A shutdown that cut it off says nothing against it, though it were its last attempt: it is welcome elsewhere, at once.
    let attempt = if tenure.was_cut_short() { 0 } else { delivery.attempt() };
    let ended = end(handled, stamp, &shared.effect, under_key, attempt, &shared.attempts, clock::wall(), ours);
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
        End::DeadLetter(why) => (dead(&*delivery, why, detail), Told::DeadLettered(why)),
        End::Leave => return telling.ended(Told::LeaseLost),
    };
    settled(shared, &*delivery, Some(&tenure), settle, told, telling).await;
}

/// A delivery that nobody has begun goes back as it came, at once.
pub(super) async fn give_back<B: Broker>(shared: &Arc<Shared<B>>, delivery: B::Delivery, counts: &Arc<Counts>) {
    let telling = Telling::new(shared, &delivery, counts);
    let again = Settle::Again { after: Duration::ZERO, counted: false };
    settled(shared, &delivery, None, again, Told::GivenBack, telling).await;
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
    shared: &Arc<Shared<B>>,
    delivery: &Arc<B::Delivery>,
    terms: &Terms,
    tenure: &Arc<Tenure>,
    #[cfg_attr(not(feature = "idempotency"), expect(unused_variables, reason = "only a store asks"))] is_nameless: bool,
    shutdown: &Shutdown,
) -> Detailed<Worked> {
    match &shared.keys {
        #[cfg(feature = "idempotency")]
        Keys::Store(store) if !is_nameless => {
            let (run_, tenure_) = (|fence| run(shared, &**delivery, terms, tenure, Some(fence), shutdown), tenure);
            store.once(shared, delivery.message(), tenure_, run_).await
        }
        _ => {
            let (handled, detail) = run(shared, &**delivery, terms, tenure, None, shutdown).await;
            (Worked::Ran(handled), detail)
        }
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
