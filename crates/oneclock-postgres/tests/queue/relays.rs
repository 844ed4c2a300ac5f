//! The relay: what is in an outbox comes to another broker, once and in its order, and nothing that cannot stops the rest.

use std::sync::atomic::Ordering;
use std::time::Duration;

use oneclock_core::expiry::{Policy, Why};
use oneclock_core::{Outcome, Stage};
use oneclock_postgres::{PgQueue, PgQueueBuilder, Pool, Relay};
use oneclock_queue::{Broker as _, Delivery as _, Lane, MemoryBroker, Message, Settle, Uncertainty};
use tokio::sync::oneshot;

use crate::shop::{expiring, field, in_lane, message, next, queue, short, until_in_lane};
use crate::support::{Database, ms, until};
use crate::target::{Target, ids, runs};

#[tokio::test]
async fn a_relay_moves_what_is_there_in_its_order() {
    let database = Database::new().await;
    let outbox = queue(&database, |queue| queue.poll(ms(50))).await;
    for n in 0..30 {
        outbox.publish(&message(n)).await.unwrap();
    }
    let target = Target::new(ms(0));
    let relay = Relay::new(outbox.clone(), target.clone()).unwrap().batch(7);
    let relayed = runs(&relay, async {
        target.until_given(30).await;
        outbox.publish(&message(30)).await.unwrap(); // it is woken
        target.until_given(31).await;
    })
    .await;
    assert_eq!(target.given(), ids(0..31));
    assert_eq!((relayed.published, relayed.discarded, relayed.dead, relayed.failed), (31, 0, 0, 0));
    assert_eq!(in_lane(&outbox, Lane::Main).await, 0);
}

#[tokio::test]
async fn q3_a_relay_looks_at_the_expiry_before_it_publishes() {
    let database = Database::new().await;
    let outbox = queue(&database, |queue| queue.poll(ms(50))).await;
    let (long_ago, soon, now) = (ms(60_000), ms(60_000), ms(0));
    let all = [
        expiring(0, Policy::Discard, now, long_ago),
        expiring(1, Policy::DeadLetter, now, long_ago),
        expiring(2, Policy::MustComplete, now, long_ago),
        expiring(3, Policy::Discard, soon, now),
        expiring(4, Policy::Discard, now, ms(200)), // may have expired: whoever takes it looks again
        expiring(5, Policy::DeadLetter, now, ms(200)),
        message(6),
    ];
    for message in &all {
        outbox.publish(message).await.unwrap();
    }
    let target = Target::new(ms(0));
    let relay =
        Relay::new(outbox.clone(), target.clone()).unwrap().uncertainty(Uncertainty::assumed(Duration::from_secs(20)));
    let relayed = runs(&relay, target.until_given(5)).await;
    assert_eq!(target.given(), ids(2..7));
    assert_eq!((relayed.published, relayed.discarded, relayed.dead), (5, 1, 1));
    assert_eq!((in_lane(&outbox, Lane::Main).await, in_lane(&outbox, Lane::Dead).await), (0, 1));
    let letter = next(&outbox, Lane::Dead).await;
    assert_eq!(
        (&*letter.message().id, &*field(letter.message(), "deadline-dead-reason")),
        ("id-1", &["expired".into()][..])
    );
    // The expiry travels unchanged.
    let late = &target.inner.kept(Lane::Main)[0].message;
    let millis = |message: &Message| message.stamp.expires.at().unwrap().as_nanos() / 1_000_000;
    assert_eq!(millis(late), millis(&all[2]));
}

#[tokio::test]
async fn nothing_overtakes_what_could_not_be_published() {
    let database = Database::new().await;
    let outbox = queue(&database, |queue| queue.poll(ms(20))).await;
    for n in 0..10 {
        outbox.publish(&message(n)).await.unwrap();
    }
    let target = Target::new(ms(0));
    *target.refuses.lock().unwrap() = (2, Some(Outcome::Rejected));
    let relay = Relay::new(outbox.clone(), target.clone()).unwrap().batch(4);
    let relayed = runs(&relay, target.until_given(10)).await;
    assert_eq!(target.given(), ids(0..10));
    assert_eq!((relayed.published, relayed.failed, relayed.dead), (10, 2, 0));

    // What will never be taken does not stand in the way.
    outbox.publish(&message(10)).await.unwrap();
    outbox.publish(&message(11)).await.unwrap();
    *target.refuses.lock().unwrap() = (1, Some(Outcome::Failed));
    runs(&relay, target.until_given(11)).await;
    assert_eq!(target.given()[10..], ids(11..12));
    let letter = next(&outbox, Lane::Dead).await;
    assert_eq!(*field(letter.message(), "deadline-dead-reason"), [Why::Rejected.as_str().into()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_relays_one_stands_by_and_takes_over_when_the_other_dies() {
    let database = Database::new().await;
    let outbox = queue(&database, short).await;
    for n in 0..60 {
        outbox.publish(&message(n)).await.unwrap();
    }
    let target = Target::new(ms(5));
    let other = short(PgQueue::builder("jobs", Pool::configured(database.config()).build().unwrap())).build().unwrap();
    let relays = [&outbox, &other].map(|outbox| Relay::new(outbox.clone(), target.clone()).unwrap().batch(10));
    let [first, second] = relays;
    let running = tokio::spawn(async move { first.run(std::future::pending()).await });
    target.until_given(3).await;
    let relayed = runs(&second, async {
        target.until_given(25).await;
        assert_eq!(target.given()[..25], ids(0..25), "one at a time");
        running.abort(); // as if it were killed: whatever it published and did not write comes again
        assert!(running.await.unwrap_err().is_cancelled());
        until_in_lane(&outbox, Lane::Main, 0).await;
    })
    .await;
    assert!(relayed.published > 0);
    assert_eq!(target.twice_at_once.load(Ordering::SeqCst), 0);
    let mut given = target.given();
    assert!(given.len() <= 60 + 10, "a batch at most: {}", given.len());
    // The first of each keep their order, and the rest are copies with the same ids.
    let mut seen = std::collections::HashSet::new();
    given.retain(|id| seen.insert(id.clone()));
    assert_eq!(given, ids(0..60));
}

#[tokio::test]
async fn a_relay_that_stops_lets_another_begin_at_once() {
    let database = Database::new().await;
    let outbox = queue(&database, |queue| queue.poll(ms(20))).await; // leases of 30 s
    for n in 0..20 {
        outbox.publish(&message(n)).await.unwrap();
    }
    let target = Target::new(ms(2));
    let relay = |batch| Relay::new(outbox.clone(), target.clone()).unwrap().batch(batch);
    let first = runs(&relay(20), target.until_given(5)).await;
    assert!((5..20).contains(&first.published), "{first:?}");
    let second = runs(&relay(20), target.until_given(20)).await;
    assert_eq!(first.published + second.published, 20);
    assert_eq!(target.given(), ids(0..20), "none of them twice");
}

#[tokio::test]
async fn a_long_batch_keeps_its_lease() {
    let database = Database::new().await;
    let outbox = queue(&database, short).await; // leases of 1.5 s
    for n in 0..30 {
        outbox.publish(&message(n)).await.unwrap();
    }
    let target = Target::new(ms(100));
    let other = short(PgQueue::builder("jobs", Pool::configured(database.config()).build().unwrap())).build().unwrap();
    let standing_by = Relay::new(other, target.clone()).unwrap();
    let relay = Relay::new(outbox, target.clone()).unwrap();
    let both = async {
        target.until_given(2).await;
        let standing_by = runs(&standing_by, target.until_given(30));
        standing_by.await
    };
    let done = runs(&relay, async {
        assert_eq!(both.await.published, 0);
    })
    .await;
    assert_eq!(done.published, 30);
    assert_eq!(target.given(), ids(0..30));
}

#[tokio::test]
async fn an_outbox_may_lead_to_a_queue_in_another_database() {
    let (here, there) = (Database::new().await, Database::new().await);
    let outbox = queue(&here, |queue| queue.poll(ms(50))).await;
    let target = queue(&there, |queue| queue.poll(ms(50))).await;
    let sent = expiring(1, Policy::DeadLetter, ms(60_000), ms(0));
    outbox.publish(&sent).await.unwrap();
    let relay = Relay::new(outbox, target.clone()).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let receiving = async {
        let held = next(&target, Lane::Main).await;
        assert_eq!((&held.message().id, held.attempt()), (&sent.id, 1));
        let _ = stop.send(());
    };
    let running = relay.run(async {
        let _ = stopped.await;
    });
    let (relayed, ()) = tokio::join!(running, receiving);
    assert_eq!(relayed.unwrap().published, 1);
}

/// A relay that lost its way left jobs leased: another does not begin with those behind them.
#[tokio::test]
async fn what_another_relay_left_behind_holds_up_what_comes_after_it() {
    let database = Database::new().await;
    let outbox = queue(&database, short).await;
    for n in 0..12 {
        outbox.publish(&message(n)).await.unwrap();
    }
    assert_eq!(outbox.receive(Lane::Main, 4).await.unwrap().len(), 4); // and nothing more is heard of it
    let target = Target::new(ms(0));
    runs(&Relay::new(outbox.clone(), target.clone()).unwrap().batch(4), target.until_given(12)).await;
    assert_eq!(target.given(), ids(0..12));
}

#[tokio::test]
async fn a_job_that_is_refused_too_often_goes_aside_and_the_rest_goes_on() {
    let database = Database::new().await;
    let outbox = queue(&database, |queue| queue.poll(ms(20))).await;
    for outcome in [Outcome::Rejected, Outcome::Unknown { stage: Stage::Wait }] {
        for n in 0..10 {
            outbox.publish(&message(n)).await.unwrap();
        }
        let target = Target::new(ms(0));
        target.never_takes.lock().unwrap().insert("id-3".into(), outcome);
        let relay = Relay::new(outbox.clone(), target.clone()).unwrap().batch(4).attempts(3);
        let relayed = runs(&relay, target.until_given(9)).await;
        assert_eq!(target.given(), [ids(0..3), ids(4..10)].concat(), "in order");
        assert_eq!((relayed.published, relayed.failed, relayed.dead), (9, 3, 1));
        let letter = next(&outbox, Lane::Dead).await;
        let said = |name: &str| field(letter.message(), name)[0].to_string();
        assert_eq!(
            (said("deadline-dead-reason"), said("deadline-dead-attempts")),
            ("attempts_exhausted".into(), "3".into())
        );
        assert!(said("deadline-dead-detail").contains("told so"), "why: {}", said("deadline-dead-detail"));
        letter.settle(&Settle::Gone).await.unwrap();
    }
}

/// With an attempt each: whatever counted would end a job.
#[tokio::test]
async fn a_broker_that_is_away_counts_against_no_job() {
    for flow in [Relay::in_order, |relay| Relay::at_a_time(relay, 4)] {
        let database = Database::new().await;
        let outbox = queue(&database, |queue| queue.poll(ms(20))).await;
        for n in 0..5 {
            outbox.publish(&message(n)).await.unwrap();
        }
        let target = Target::new(ms(0));
        let relay = flow(Relay::new(outbox.clone(), target.clone()).unwrap()).attempts(1).within(ms(200));
        let relayed = runs(&relay, async {
            *target.refuses.lock().unwrap() = (usize::MAX, Some(Outcome::NotSent));
            until("failures", async || relay.so_far().failed >= 2).await;
            target.answers.store(false, Ordering::SeqCst);
            *target.refuses.lock().unwrap() = (usize::MAX, Some(Outcome::Unknown { stage: Stage::Wait }));
            let failed = relay.so_far().failed;
            until("failures without an answer", async || relay.so_far().failed > failed).await;
            *target.refuses.lock().unwrap() = (0, None);
            target.until_given(5).await;
        })
        .await;
        assert_eq!((relayed.published, relayed.dead), (5, 0));
        let mut given = target.given();
        given.sort();
        assert_eq!(given, ids(0..5));
    }
}

#[tokio::test]
async fn at_a_time_several_are_under_way_and_what_fails_holds_up_no_other() {
    let database = Database::new().await;
    let outbox = queue(&database, |queue| queue.poll(ms(20))).await;
    for n in 0..40 {
        outbox.publish(&message(n)).await.unwrap();
    }
    let target = Target::new(ms(20));
    target.never_takes.lock().unwrap().insert("id-3".into(), Outcome::Rejected);
    let relay = Relay::new(outbox.clone(), target.clone()).unwrap().batch(32).at_a_time(8).attempts(4);
    let relayed = runs(&relay, async {
        target.until_given(39).await;
        assert_eq!(in_lane(&outbox, Lane::Dead).await, 0, "the others did not wait for its end");
        until_in_lane(&outbox, Lane::Dead, 1).await;
    })
    .await;
    assert_eq!((relayed.published, relayed.failed, relayed.dead), (39, 4, 1));
    let most = target.most.load(Ordering::SeqCst);
    assert!((2..=8).contains(&most), "{most} at once");
    assert_eq!(target.twice_at_once.load(Ordering::SeqCst), 0);
    let mut given = target.given();
    given.sort_by_key(|id| id[3..].parse::<usize>().unwrap());
    assert_eq!(given, [ids(0..3), ids(4..40)].concat());
}

/// A queue that is full refuses all alike: that proves nothing against any of them.
#[tokio::test]
async fn at_a_time_a_broker_that_takes_nothing_counts_against_no_job() {
    let database = Database::new().await;
    let outbox = queue(&database, |queue| queue.poll(ms(20))).await;
    for n in 0..4 {
        outbox.publish(&message(n)).await.unwrap();
    }
    let target = Target::new(ms(0));
    *target.refuses.lock().unwrap() = (16, Some(Outcome::Rejected));
    let relay = Relay::new(outbox.clone(), target.clone()).unwrap().at_a_time(4).attempts(2);
    let relayed = runs(&relay, target.until_given(4)).await;
    assert_eq!((relayed.published, relayed.failed, relayed.dead), (4, 16, 0));
}

#[tokio::test]
async fn an_outbox_of_another_queue_is_moved_nowhere_else() {
    let database = Database::new().await;
    let pool = Pool::configured(database.config()).build().unwrap();
    let outbox = |name: &'static str| PgQueue::builder(name, pool.clone());
    let moved = |outbox: PgQueueBuilder| Relay::new(outbox.build().unwrap(), MemoryBroker::new("mails")).map(|_| ());
    assert_eq!(moved(outbox("mails")), Ok(()));
    assert_eq!(moved(outbox("outbox").outbox_of("mails")), Ok(()));
    let error = moved(outbox("outbox").outbox_of("charges")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "outbox holds work for charges, and would be moved to mails: whoever asks what became of it would look under charges for \
         ever; build it with `outbox_of(\"mails\")`"
    );
    assert!(moved(outbox("outbox")).is_err());
}
