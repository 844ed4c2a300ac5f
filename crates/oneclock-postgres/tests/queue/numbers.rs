//! What whoever is on call sees.

use std::time::Duration;

use oneclock_core::expiry::{Policy, Why};
use oneclock_postgres::Pool;
use oneclock_queue::{Broker as _, Delivery as _, Inspect as _, Lane, Settle};

use crate::shop::{again, body, dead, expiring, message, next, queue};
use crate::support::{Database, ms, until};

#[tokio::test]
async fn what_came_and_what_went_adds_up() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.poll(ms(20))).await;
    for n in 0..20 {
        jobs.publish(&message(n)).await.unwrap();
    }
    // What was rolled back never came.
    let pool = Pool::configured(database.config()).build().unwrap();
    let mut client = pool.get_in(&crate::support::patient(), "order").await.unwrap();
    let mut undone = client.begin().await.unwrap();
    jobs.publish_with(&mut undone, &message(20)).await.unwrap();
    drop(undone);
    drop(client);

    let held = jobs.receive(Lane::Main, 16).await.unwrap();
    for (n, delivery) in held.iter().enumerate() {
        let settle = match n {
            0..=9 => Settle::Gone,
            10 | 11 => Settle::Late,
            12 => dead(Why::Rejected),
            13 => again(Duration::from_secs(3_600), true),
            _ => continue,
        };
        delivery.settle(&settle).await.unwrap();
    }
    let of = async || jobs.stats().await.unwrap();
    until("the counts", async || of().await.rates.gone == 13).await;
    let stats = of().await;
    assert_eq!((stats.main.ready, stats.main.delayed, stats.main.leased), (4, 1, 2), "{stats:?}");
    assert_eq!((stats.late.ready, stats.dead.ready), (2, 1));
    assert_eq!(stats.dead_reasons, [("rejected".to_owned(), 1)]);
    assert_eq!((stats.rates.came, stats.rates.gone), (20, 13), "{stats:?}");
    assert!(stats.rates.over >= Duration::from_secs(50) && stats.rates.over <= Duration::from_secs(61));
    assert!(stats.main.oldest.is_some() && stats.time_to_empty().is_none(), "more came than went");
    let depth = jobs.depth(Lane::Main).await.unwrap();
    assert_eq!((depth.waiting, depth.in_flight, depth.came, depth.went), (Some(5), Some(2), Some(20), Some(13)));
    let late = jobs.depth(Lane::Late).await.unwrap();
    assert_eq!((late.waiting, late.in_flight, late.came, late.went), (Some(2), Some(0), None, None));
    assert_eq!(jobs.peek(Lane::Dead, 9).await.unwrap().len(), 1);
    // What leaves another lane is no drain of the main one.
    next(&jobs, Lane::Dead).await.settle(&Settle::Gone).await.unwrap();
    tokio::time::sleep(ms(2_100)).await; // nothing can be seen of what is not counted
    assert_eq!(of().await.rates.gone, 13);
}

#[tokio::test]
async fn looking_takes_nothing() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.consumer("worker 7")).await;
    for n in 0..3 {
        jobs.publish(&expiring(n, Policy::Discard, ms(60_000), ms(0))).await.unwrap();
    }
    let held = next(&jobs, Lane::Main).await;
    for _ in 0..2 {
        let peeked = jobs.list(Lane::Main, 2).await.unwrap();
        assert_eq!(peeked.len(), 2);
        assert_eq!((peeked[0].leased_by.as_deref(), peeked[1].leased_by.as_deref()), (Some("worker 7"), None));
        assert!(peeked[0].free_in > Duration::from_secs(20) && peeked[1].free_in == Duration::ZERO);
        assert_eq!((peeked[0].attempts, peeked[1].attempts, peeked[1].message.stamp.policy), (1, 0, Policy::Discard));
    }
    held.settle(&Settle::Gone).await.unwrap();
    assert_eq!(body(&next(&jobs, Lane::Main).await), "1");
}

#[tokio::test]
async fn its_clock_is_the_servers() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue).await;
    let before = oneclock::clock::wall();
    let theirs = jobs.clock().await.unwrap().unwrap();
    assert!(theirs.since(before) < ms(5_000) && before.since(theirs) < ms(5_000)); // the same machine
}

#[tokio::test]
async fn what_contradicts_itself_is_refused() {
    let database = Database::new().await;
    let pool = Pool::configured(database.config()).build().unwrap();
    let of = || oneclock_postgres::PgQueue::builder("jobs", pool.clone());
    let says = |builder: oneclock_postgres::PgQueueBuilder| builder.build().unwrap_err().to_string();
    assert!(says(of().within(ms(0))).contains("give it a `within`"));
    assert!(says(of().lease(ms(14_999))).contains("14.999s"));
    assert!(says(of().poll(ms(0))).contains("`poll`"));
}
