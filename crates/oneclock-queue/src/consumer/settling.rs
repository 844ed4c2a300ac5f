//! Telling the broker what becomes of a delivery.
//!
//! Decides how long that may take (as long as it is ours, else by a bound of its own), that it is said again while nobody knows whether
//! it was heard, and what becomes of what cannot be copied. The store of keys is told before the broker.

use std::sync::Arc;
use std::time::Duration;

use oneclock::clock;
use oneclock::events::Delivery as Told;
use oneclock_core::expiry::Why;
use oneclock_core::wire::Wall;

#[cfg(feature = "idempotency")]
use super::Keys;
use super::Shared;
use super::ends::Telling;
use super::tenure::Tenure;
use crate::broker::{Broker, Dead, Delivery, NotSettled, Settle};

/// How long settling may take where no lease says so, and how often it is said.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);
const SETTLE_AGAIN: Duration = Duration::from_millis(50);

/// Looked at again at least so often: a clock that was said to be very wrong holds nothing for days.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

pub(super) fn hold(until: Wall) -> Settle {
    Settle::Again { after: until.since(clock::wall()).min(LONGEST_HOLD), counted: false }
}

pub(super) fn dead<D: Delivery>(delivery: &D, why: Why, detail: Option<String>) -> Settle {
    Settle::Dead(Dead { why, detail, at: clock::wall(), attempts: delivery.attempt() })
}

/// Why somebody looks at what was to come again, or to be done late, and cannot be copied for that.
fn instead<D: Delivery>(delivery: &D, told: Told) -> Why {
    match told {
        _ if delivery.may_have_run() => Why::OutcomeUnknown,
        Told::MovedLate => Why::Expired,
        Told::Held => Why::ExpiryUncertain,
        _ => Why::AttemptsExhausted,
    }
}

/// Tells the broker, as long as the delivery is ours, and then whoever counts.
pub(super) async fn settled<B: Broker>(
    shared: &Shared<B>,
    delivery: &B::Delivery,
    tenure: Option<&Arc<Tenure>>,
    settle: Settle,
    told: Told,
    telling: Telling,
) {
    let is_untouched = tenure.is_none() && told == Told::GivenBack;
    let until = tenure.and_then(|tenure| tenure.until());
    let until = until.or_else(|| delivery.lease().map(|lease| delivery.asked() + lease));
    let left = || until.map_or(SETTLE_WITHIN, |until| until.since(clock::now()).min(SETTLE_WITHIN));
    #[cfg(feature = "idempotency")]
    if let Keys::Store(store) = &shared.keys {
        store.ended(shared.broker.name(), delivery.message(), told, left() / 2).await;
    }
    let within = left();
    let saying = async {
        let (mut settle, mut told) = (settle, told);
        loop {
            match delivery.settle(&settle).await {
                Ok(()) => return told,
                Err(NotSettled::Lost) => return Told::LeaseLost,
                // Said again it would be so again, for ever: it ends where somebody looks at it.
                // But nobody had begun it: then it is left to come again by itself, however that looks.
                Err(error @ NotSettled::TooLarge) if !matches!(settle, Settle::Dead(_)) && !is_untouched => {
                    let why = instead(delivery, told);
                    settle = dead(delivery, why, Some(Dead::detail_of(&error)));
                    told = Told::DeadLettered(why);
                    #[cfg(feature = "idempotency")]
                    if let Keys::Store(store) = &shared.keys {
                        store.ended(shared.broker.name(), delivery.message(), told, left() / 2).await;
                    }
                }
                Err(NotSettled::TooLarge) => return Told::NotSettled,
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
