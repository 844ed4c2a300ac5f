//! A delivery is worked on only while it is ours, and only then acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oneclock::events::Delivery;
use oneclock_core::expiry::Why;
use oneclock_queue::{Broker, Delivery as _, Job, Lane, MemoryBroker, NotSettled, Producer, Settle, Work};

use super::support::{consume, secs};

async fn with_one(lease: u64) -> MemoryBroker {
    let broker = MemoryBroker::with_lease("orders", secs(lease));
    Producer::new("shop", broker.clone()).accept(Work::new("charge", "7").id("one").never_expires()).await.unwrap();
    broker
}

#[tokio::test(start_paused = true)]
async fn work_longer_than_its_lease_is_kept_by_heartbeats_and_done_once() {
    let broker = with_one(3).await;
    let runs = Arc::new(AtomicU32::new(0));
    let counts = runs.clone();
    let handler = move |job: Job| {
        counts.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::time::sleep(secs(20)).await;
            job.before_effect()?;
            Ok(())
        }
    };
    let ends = consume(&broker, |builder| builder.limit(secs(60)), handler, |ends| !ends.all().is_empty()).await;
    assert_eq!(ends.words(), ["done"]);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

/// The worker's process stands still for longer than the lease: what it says afterwards is not believed by itself.
#[tokio::test(start_paused = true)]
async fn a_worker_that_slept_past_its_lease_begins_no_effect_and_says_nothing() {
    let broker = with_one(3).await;
    let thief = broker.clone();
    let effects = Arc::new(AtomicU32::new(0));
    let counts = effects.clone();
    let handler = move |job: Job| {
        let (thief, counts) = (thief.clone(), counts.clone());
        async move {
            if job.attempt() == 1 {
                tokio::time::advance(secs(10)).await; // nothing runs meanwhile, heartbeats neither
                // Somebody else has it by now, and finishes it.
                let taken = thief.receive(Lane::Main, 1).await.unwrap();
                taken[0].settle(&Settle::Gone).await.unwrap();
            }
            job.before_effect()?;
            counts.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    };
    let ends =
        consume(&broker, |builder| builder.places(1).limit(secs(60)), handler, |ends| !ends.all().is_empty()).await;
    assert_eq!(ends.words(), ["lease_lost"]);
    assert_eq!(effects.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn the_broker_fences_a_late_word() {
    let broker = with_one(3).await;
    let first = broker.receive(Lane::Main, 1).await.unwrap();
    tokio::time::advance(secs(4)).await;
    let second = broker.receive(Lane::Main, 1).await.unwrap();
    assert!(matches!(first[0].settle(&Settle::Gone).await, Err(NotSettled::Lost)));
    assert!(second[0].may_have_run() && second[0].attempt() == 2);
    second[0].settle(&Settle::Gone).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_somebody_died_over_is_not_done_again_by_itself() {
    let broker = with_one(3).await;
    drop(broker.receive(Lane::Main, 1).await.unwrap()); // a consumer that died
    let ends = consume(&broker, |builder| builder, |_| async { Ok(()) }, |ends| !ends.all().is_empty()).await;
    assert_eq!(ends.of("one"), [Delivery::DeadLettered(Why::OutcomeUnknown)]);

    let broker = with_one(3).await;
    drop(broker.receive(Lane::Main, 1).await.unwrap());
    let handler = |_| async { Ok(()) };
    let ends = consume(
        &broker,
        |builder| builder.effect(oneclock::Effect::Idempotent),
        handler,
        |ends| !ends.all().is_empty(),
    )
    .await;
    assert_eq!(ends.of("one"), [Delivery::Done { late: false }]);
}
