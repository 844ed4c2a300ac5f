//! A delivery is worked on only while it is ours, and only then acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oneclock::events::Delivery;
use oneclock_core::expiry::{Stop, Why};
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

/// The worker's process stands still for longer than the lease: what it says afterwards is not believed by itself. Somebody else has
/// the work by then, to whom it looks as if it may have been done.
#[tokio::test(start_paused = true)]
async fn a_worker_that_slept_past_its_lease_begins_no_effect_and_says_nothing() {
    let broker = with_one(3).await;
    let effects = Arc::new(AtomicU32::new(0));
    let (counts, (tells, told)) = (effects.clone(), tokio::sync::mpsc::unbounded_channel());
    let mut told = told;
    let handler = move |job: Job| {
        let (counts, tells) = (counts.clone(), tells.clone());
        async move {
            // In a task of its own: what is stopped with its handler asks nothing any more.
            let sleeps = tokio::spawn(async move {
                tokio::time::advance(secs(10)).await; // nothing runs meanwhile, heartbeats neither
                let may = job.before_effect();
                counts.fetch_add(u32::from(may.is_ok()), Ordering::Relaxed);
                tells.send((job.attempt(), may)).unwrap();
                may
            });
            Ok(sleeps.await??)
        }
    };
    let ends =
        consume(&broker, |builder| builder.places(1).limit(secs(60)), handler, |ends| ends.all().len() == 2).await;
    assert_eq!(ends.words(), ["lease_lost", "dead_lettered outcome_unknown"]);
    assert_eq!(told.recv().await, Some((1, Err(Stop::LeaseLost))));
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

/// It blocks its thread for three leases: whoever keeps the lease does not share it. Not a wait of the test's, but what is tested.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_keeps_its_lease() {
    let broker = with_one(1).await;
    let runs = Arc::new(AtomicU32::new(0));
    let counts = runs.clone();
    let handler = move |job: Job| {
        counts.fetch_add(1, Ordering::Relaxed);
        async move {
            std::thread::sleep(secs(3));
            job.before_effect()?;
            Ok(())
        }
    };
    let ends = consume(&broker, |builder| builder.limit(secs(60)), handler, |ends| !ends.all().is_empty()).await;
    assert_eq!((ends.words(), runs.load(Ordering::Relaxed)), (vec!["done".to_owned()], 1));
}

/// It does not hear that its operation is over: its delivery ends without it, and whatever it still has may begin nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_shutdown_leaves_a_handler_behind_that_blocks_its_thread() {
    let broker = with_one(30).await;
    let (began, (go, goes)) = (Arc::new(tokio::sync::Notify::new()), std::sync::mpsc::channel::<()>());
    let (told, tells) = tokio::sync::oneshot::channel();
    let (tells, ends) = (began.clone(), (Arc::new(super::support::Ends::default()), tells, told));
    let (ends, heard, told) = (ends.0, ends.1, std::sync::Mutex::new(Some((ends.2, goes))));
    let shutdown = oneclock::Shutdown::new();
    let consumer =
        oneclock_queue::Consumer::builder(broker.clone()).observed_by(ends.clone()).build(move |job: Job| {
            let (tells, (told, goes)) = (tells.clone(), told.lock().unwrap().take().unwrap());
            async move {
                tells.notify_one();
                let _ = goes.recv(); // blocks
                let _ = told.send(job.before_effect());
                Ok(())
            }
        });
    let consumer = consumer.unwrap();
    let stops = async {
        began.notified().await;
        shutdown.drain(std::time::Duration::from_millis(20)).await;
    };
    let both = async { tokio::join!(consumer.run(&shutdown), stops) };
    let (consumed, ()) = tokio::time::timeout(secs(20), both).await.expect("nobody waits for it");
    assert_eq!((ends.words(), consumed.given_back), (vec!["given_back".to_owned()], 1));
    drop(go); // it goes on
    assert_eq!(heard.await.unwrap(), Err(Stop::LeaseLost));
    let again = broker.receive(Lane::Main, 1).await.unwrap();
    assert_eq!((again[0].attempt(), again[0].may_have_run()), (1, false));
}
