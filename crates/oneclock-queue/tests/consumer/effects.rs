//! Before each consequential step it is asked again (contract Q3).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oneclock::events::Delivery;
use oneclock_core::expiry::Why;
use oneclock_queue::{Job, MemoryBroker, Producer, Uncertainty, Work};

use super::support::{consume, ms, secs};

async fn two_steps(work: Work, asks: bool) -> (Vec<Delivery>, u32) {
    let broker = MemoryBroker::new("orders");
    let producer = Producer::new("shop", broker.clone()).uncertainty(Uncertainty::assumed(ms(10)));
    producer.accept(work.id("one")).await.unwrap();
    let effects = Arc::new(AtomicU32::new(0));
    let counts = effects.clone();
    let handler = move |job: Job| {
        let counts = counts.clone();
        async move {
            // What it waited for is there, and by the time it hears of it the work has expired: a result that is there is delivered.
            let (tells, hears) = tokio::sync::oneshot::channel();
            let other = tokio::spawn(async move {
                let _ = tells.send(());
                tokio::time::advance(secs(9)).await;
            });
            let _ = hears.await;
            drop(other);
            if asks {
                job.before_effect()?;
            }
            counts.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    };
    let ends = consume(
        &broker,
        |builder| builder.limit(secs(60)),
        handler,
        |ends| ends.all().iter().any(|end| end.end.is_final()),
    )
    .await;
    (ends.of("one"), effects.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn q3_a_step_that_comes_too_late_does_not_begin() {
    let (ends, effects) = two_steps(Work::new("charge", "7").expires_in(secs(8)), true).await;
    assert_eq!((ends, effects), (vec![Delivery::DeadLettered(Why::Expired)], 0));
    let (ends, effects) = two_steps(Work::new("charge", "7").expires_in(secs(8)).discard(), true).await;
    assert_eq!((ends, effects), (vec![Delivery::Discarded(Why::Expired)], 0));
    let (ends, effects) = two_steps(Work::new("charge", "7").expires_in(secs(8)).must_complete("payments"), true).await;
    assert_eq!((ends.len(), effects), (1, 1), "what must be completed is");
}

/// The naive way, which looks at the expiry when it receives and not again.
#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_ask_begins_too_late() {
    let (_, effects) = two_steps(Work::new("charge", "7").expires_in(secs(8)), false).await;
    assert_eq!(effects, 1);
}
