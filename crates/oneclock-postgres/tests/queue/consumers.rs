//! Consumers: who has a job, for how long, and what whoever lost it may still do.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use oneclock_core::expiry::Why;
use oneclock_postgres::{PgQueue, Pool};
use oneclock_queue::{Broker as _, Delivery as _, Lane, NotSettled, Settle};
use tokio_util::sync::CancellationToken;

use crate::shop::{again, body, dead, in_lane, message, next, queue, short};
use crate::support::{BOUND, Database, at_rest, ms, rows, until};

const JOBS: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_consumers_never_have_one_job_at_the_same_time() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.poll(ms(50))).await;
    for n in 0..JOBS {
        jobs.publish(&message(n)).await.unwrap();
    }
    let at_work: Arc<Mutex<HashSet<i64>>> = Arc::default();
    let done: Arc<Mutex<Vec<String>>> = Arc::default();
    let over = CancellationToken::new();
    let mut consumers = tokio::task::JoinSet::new();
    for n in 0..8 {
        // Each with connections of its own, as another process would have.
        let pool = Pool::configured(database.config()).size(2).build().unwrap();
        let jobs = PgQueue::builder("jobs", pool).poll(ms(50)).build().unwrap();
        let (at_work, done, over) = (Arc::clone(&at_work), Arc::clone(&done), over.clone());
        consumers.spawn(async move {
            // Not dropped while there is anything to be taken: that would cost a lease.
            while let Some(received) = over.run_until_cancelled(Box::pin(jobs.receive(Lane::Main, 1 + n))).await {
                let received = received.unwrap();
                assert!(received.len() <= 1 + n);
                for delivery in &received {
                    assert!(at_work.lock().unwrap().insert(delivery.row()), "two have it: {delivery:?}");
                    assert_eq!(delivery.attempt(), 1);
                }
                tokio::task::yield_now().await;
                for delivery in &received {
                    assert!(at_work.lock().unwrap().remove(&delivery.row()));
                    delivery.settle(&Settle::Gone).await.unwrap();
                    let mut done = done.lock().unwrap();
                    done.push(body(delivery));
                    if done.len() == JOBS {
                        over.cancel();
                    }
                }
            }
        });
    }
    let all = async { while consumers.join_next().await.transpose().unwrap().is_some() {} };
    tokio::time::timeout(BOUND, all).await.expect("all of them done");
    let mut done: Vec<usize> = done.lock().unwrap().iter().map(|body| body.parse().unwrap()).collect();
    done.sort_unstable();
    assert_eq!(done, (0..JOBS).collect::<Vec<_>>());
    assert_eq!(in_lane(&jobs, Lane::Main).await, 0);
}

#[tokio::test]
async fn whoever_lost_its_lease_changes_nothing() {
    let database = Database::new().await;
    let jobs = queue(&database, short).await;
    jobs.publish(&message(1)).await.unwrap();
    let slow = next(&jobs, Lane::Main).await;
    let other = next(&jobs, Lane::Main).await; // once the lease is over
    assert_eq!((slow.row(), slow.attempt(), other.attempt()), (other.row(), 1, 2));
    assert!(other.fence() > slow.fence() && other.may_have_run() && !slow.may_have_run());
    for settle in [Settle::Gone, again(ms(60_000), true), Settle::Late, dead(Why::Rejected)] {
        assert!(matches!(slow.settle(&settle).await, Err(NotSettled::Lost)), "{settle:?}");
    }
    assert!(matches!(slow.renew().await, Err(NotSettled::Lost)));
    assert_eq!(in_lane(&jobs, Lane::Main).await, 1);
    other.renew().await.unwrap();
    other.settle(&Settle::Gone).await.unwrap();
    assert_eq!(in_lane(&jobs, Lane::Main).await, 0);
    assert!(matches!(other.renew().await, Err(NotSettled::Lost)), "what is over has no lease");
}

/// A queue that asks only for the number of the row lets the slow worker take the job from under the other one.
#[tokio::test]
async fn naive_without_the_fence_a_lost_job_is_completed_by_both() {
    let database = Database::new().await;
    let jobs = queue(&database, short).await;
    jobs.publish(&message(1)).await.unwrap();
    let slow = next(&jobs, Lane::Main).await;
    let other = next(&jobs, Lane::Main).await;
    let outside = database.outside().await;
    assert_eq!(outside.execute("DELETE FROM oneclock_queue WHERE id = $1", &[&slow.row()]).await.unwrap(), 1);
    assert!(
        matches!(other.settle(&Settle::Gone).await, Err(NotSettled::Lost)),
        "whoever has the job is told that it has not"
    );
}

#[tokio::test]
async fn a_renewed_lease_holds_for_as_long_as_it_is_renewed() {
    let database = Database::new().await;
    let jobs = queue(&database, short).await;
    jobs.publish(&message(1)).await.unwrap();
    let held = next(&jobs, Lane::Main).await;
    let lease = held.lease().unwrap();
    let beats = async {
        for _ in 0..6 {
            tokio::time::sleep(lease / 3).await;
            held.renew().await.unwrap();
        }
    };
    tokio::select! {
        biased;
        other = next(&jobs, Lane::Main) => panic!("two have it: {other:?}"),
        () = beats => {}
    }
    held.settle(&Settle::Gone).await.unwrap();
}

#[tokio::test]
async fn what_was_given_back_is_not_kept_by_a_late_heartbeat() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.poll(ms(20))).await;
    jobs.publish(&message(1)).await.unwrap();
    let first = next(&jobs, Lane::Main).await;
    first.settle(&again(ms(0), true)).await.unwrap();
    assert!(matches!(first.renew().await, Err(NotSettled::Lost)));
    let second = next(&jobs, Lane::Main).await;
    assert_eq!((second.attempt(), second.may_have_run()), (2, false), "given back by somebody who said so");
}

#[tokio::test]
async fn uncounted_deliveries_are_no_attempts() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.poll(ms(20))).await;
    jobs.publish(&message(1)).await.unwrap();
    for (attempt, counted) in [(1, false), (1, true), (2, true), (3, false), (3, false), (3, true), (4, true)] {
        let held = next(&jobs, Lane::Main).await;
        assert_eq!(held.attempt(), attempt);
        held.settle(&again(ms(0), counted)).await.unwrap();
        held.settle(&again(ms(0), counted)).await.unwrap(); // as after a lost answer: once is enough
    }
}

#[tokio::test]
async fn what_comes_again_later_waits_as_long() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.poll(ms(20))).await;
    jobs.publish(&message(1)).await.unwrap();
    next(&jobs, Lane::Main).await.settle(&again(ms(400), true)).await.unwrap();
    let peeked = jobs.list(Lane::Main, 1).await.unwrap();
    assert!(peeked[0].free_in > ms(0) && peeked[0].free_in <= ms(400) && peeked[0].leased_by.is_none());
    let given_back = oneclock::clock::now();
    let second = next(&jobs, Lane::Main).await;
    assert!(oneclock::clock::now().since(given_back) >= ms(300));
    second.settle(&Settle::Gone).await.unwrap();
}

/// As if its process were killed: its sessions are ended by the server, and nothing more is heard of it.
#[tokio::test]
async fn the_jobs_of_a_dead_consumer_come_again() {
    let database = Database::new().await;
    let jobs = queue(&database, short).await;
    jobs.publish(&message(1)).await.unwrap();
    let pool = Pool::configured(database.config()).build().unwrap();
    let victim = short(PgQueue::builder("jobs", pool.clone())).consumer("victim").build().unwrap();
    let held = next(&victim, Lane::Main).await;
    assert_eq!(jobs.list(Lane::Main, 1).await.unwrap()[0].leased_by.as_deref(), Some("victim"));
    at_rest(&pool).await;
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name = 'oneclock-postgres tests' AND query LIKE '%oneclock_queue%'";
    let outside = database.outside().await;
    assert!(outside.query_one(kill, &[]).await.unwrap().get::<_, i64>(0) > 0);
    drop((held, victim, pool));
    let again = next(&jobs, Lane::Main).await;
    assert_eq!((again.attempt(), again.may_have_run()), (2, true));
    again.settle(&Settle::Gone).await.unwrap();
}

#[tokio::test]
async fn a_receive_that_is_dropped_loses_nothing() {
    let database = Database::new().await;
    let jobs = queue(&database, short).await;
    for n in 0..20 {
        jobs.publish(&message(n)).await.unwrap();
    }
    for micros in 0..40 {
        let _ = tokio::time::timeout(ms(1) * micros / 10, jobs.receive(Lane::Main, 3)).await;
    }
    let mut done = HashSet::new();
    while done.len() < 20 {
        let held = next(&jobs, Lane::Main).await;
        done.insert(body(&held));
        held.settle(&Settle::Gone).await.unwrap();
    }
    assert_eq!(in_lane(&jobs, Lane::Main).await, 0);
}

#[tokio::test]
async fn jobs_are_taken_in_the_order_in_which_they_came() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue).await;
    for n in 0..40 {
        jobs.publish(&message(n)).await.unwrap();
    }
    let received = jobs.receive(Lane::Main, 63).await.unwrap();
    let order: Vec<String> = received.iter().map(body).collect();
    assert_eq!(order, (0..32).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn queues_of_one_table_do_not_meet() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue).await;
    let pool = Pool::configured(database.config()).build().unwrap();
    let others = PgQueue::builder("jobs.late", pool).build().unwrap();
    jobs.publish(&message(1)).await.unwrap();
    others.publish(&message(2)).await.unwrap();
    let held = next(&jobs, Lane::Main).await;
    held.settle(&Settle::Late).await.unwrap();
    assert_eq!(body(&next(&others, Lane::Main).await), "2");
    assert_eq!(body(&next(&jobs, Lane::Late).await), "1");
}

#[tokio::test]
async fn tables_may_be_made_by_several_at_once() {
    let database = Database::new().await;
    let pool = Pool::configured(database.config()).build().unwrap();
    let jobs = PgQueue::builder("jobs", pool).build().unwrap();
    let made = futures_util::future::join_all((0..6).map(|_| jobs.create())).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    let outside = database.outside().await;
    until("nothing", async || rows(&outside, "oneclock_queue").await == 0).await;
}
