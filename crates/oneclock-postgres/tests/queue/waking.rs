//! How a consumer that waits hears of a job, and how it comes back to a server that was away.

use std::time::Duration;

use oneclock::{Operation, clock};
use oneclock_core::Outcome;
use oneclock_postgres::{PgError, PgQueue, Pool};
use oneclock_queue::{Broker as _, Delivery as _, Lane, NotPublished, Producer, Settle, Work};

use crate::relay::Relay;
use crate::shop::{body, in_lane, message, next, queue};
use crate::support::{BOUND, Database, ms, patient, rows, running, until};

/// Nobody looks by itself in these tests.
const NEVER: Duration = Duration::from_secs(3_600);

/// Far below any poll, and far beyond what a notification takes.
const SOON: Duration = Duration::from_secs(5);

async fn listeners(database: &Database) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND query LIKE 'LISTEN%'";
    database.admin().await.query_one(sql, &[&database.name]).await.unwrap().get(0)
}

async fn until_listening(database: &Database) {
    until("a listening connection", async || listeners(database).await == 1).await;
}

#[tokio::test]
async fn whoever_waits_is_woken_by_a_publication() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.poll(NEVER)).await;
    let publishing = async {
        until_listening(&database).await;
        jobs.publish(&message(1)).await.unwrap();
        clock::now()
    };
    let (held, published) = tokio::join!(next(&jobs, Lane::Main), publishing);
    let waited = clock::now().since(published);
    assert!(waited < SOON, "{waited:?}");
    held.settle(&Settle::Gone).await.unwrap();
    // And again, by the connection that listens already.
    for n in 2..10 {
        let publishing = async {
            tokio::task::yield_now().await;
            jobs.publish(&message(n)).await.unwrap();
        };
        let both = async { tokio::join!(next(&jobs, Lane::Main), publishing) };
        let (held, ()) = tokio::time::timeout(SOON, both).await.expect("woken");
        held.settle(&Settle::Gone).await.unwrap();
    }
    assert_eq!(listeners(&database).await, 1);
}

#[tokio::test]
async fn a_commit_wakes_and_a_rollback_does_not() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.poll(NEVER)).await;
    let pool = database.pool(|pool| pool).await;
    let publishing = async {
        until_listening(&database).await;
        let undone: Result<(), PgError> = pool
            .transaction_in(&patient(), "order", async |tx| {
                jobs.publish_with(tx, &message(1)).await?;
                tx.execute("INSERT INTO nowhere VALUES (1)", &[]).await.map(|_| ())
            })
            .await;
        undone.unwrap_err();
        let op = patient();
        pool.transaction_in(&op, "order", async |tx| jobs.publish_with(tx, &message(2)).await).await.unwrap();
    };
    let both = Box::pin(async { tokio::join!(next(&jobs, Lane::Main), publishing) });
    let (held, ()) = tokio::time::timeout(BOUND, both).await.expect("woken");
    assert_eq!(body(&held), "2");
}

/// A queue that does not notify leaves the job until somebody looks.
#[tokio::test]
async fn naive_without_notifications_nobody_is_woken() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.poll(NEVER).without_notify()).await;
    let waiting = next(&jobs, Lane::Main);
    let publishing = async {
        until("the first look", async || running_idle(&database).await > 0).await;
        jobs.publish(&message(1)).await.unwrap();
    };
    let both = async { tokio::join!(waiting, publishing) };
    assert!(tokio::time::timeout(ms(1_000), both).await.is_err());
    assert_eq!(listeners(&database).await, 0);
    assert_eq!(in_lane(&jobs, Lane::Main).await, 1);
}

async fn running_idle(database: &Database) -> i64 {
    let sql =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND state = 'idle' AND query LIKE 'WITH at AS%'";
    database.admin().await.query_one(sql, &[&database.name]).await.unwrap().get(0)
}

#[tokio::test]
async fn one_connection_listens_for_all_who_wait_and_goes_with_the_last_clone() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.poll(NEVER)).await;
    let waiting: Vec<_> = (0..3).map(|_| next(&jobs, Lane::Main)).collect();
    let publishing = async {
        until_listening(&database).await;
        for n in 0..3 {
            jobs.publish(&message(n)).await.unwrap();
        }
    };
    let all = async { tokio::join!(futures_util::future::join_all(waiting), publishing) };
    let (held, ()) = tokio::time::timeout(BOUND, all).await.expect("all woken");
    assert_eq!(held.len(), 3);
    assert_eq!(listeners(&database).await, 1);
    drop((held, jobs));
    until("no listening connection", async || listeners(&database).await == 0).await;
}

#[tokio::test]
async fn the_leader_leaves_and_another_listens() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.poll(NEVER)).await;
    let mut first = Box::pin(next(&jobs, Lane::Main));
    let listening = until_listening(&database);
    tokio::select! {
        held = &mut first => panic!("nothing was published: {held:?}"),
        () = listening => {}
    }
    let second = next(&jobs, Lane::Main);
    let publishing = async {
        tokio::task::yield_now().await;
        drop(first);
        jobs.publish(&message(1)).await.unwrap();
    };
    let both = async { tokio::join!(second, publishing) };
    tokio::time::timeout(SOON, both).await.expect("woken");
}

/// The server goes away while a consumer waits, and comes back: so does the consumer, and hears of jobs again.
#[tokio::test]
async fn a_consumer_comes_back_by_itself() {
    let database = Database::new().await;
    queue(&database, |queue| queue).await;
    let relay = Relay::to(&database.config()).await;
    let pool = Pool::configured(relay.through(&database.config())).build().unwrap();
    let jobs = PgQueue::builder("jobs", pool).poll(ms(100)).within(ms(500)).build().unwrap();
    let outside = database.outside().await;
    let publishing = async {
        until_listening(&database).await;
        relay.set(|switches| &switches.refuses, true);
        relay.cut();
        until("no connection of the consumer's", async || listeners(&database).await == 0).await;
        outside.batch_execute("INSERT INTO oneclock_queue (queue) VALUES ('jobs')").await.unwrap();
        relay.set(|switches| &switches.refuses, false);
    };
    let (held, ()) = tokio::join!(next(&jobs, Lane::Main), publishing);
    held.settle(&Settle::Gone).await.unwrap();
    let waiting = next(&jobs, Lane::Main);
    let publishing = async {
        until_listening(&database).await;
        jobs.publish(&message(2)).await.unwrap();
    };
    tokio::join!(waiting, publishing);
}

#[tokio::test]
async fn what_does_not_pass_is_told_at_once() {
    let database = Database::new().await;
    let pool = Pool::configured(database.config()).build().unwrap();
    let jobs = PgQueue::builder("jobs", pool).build().unwrap();
    let error = tokio::time::timeout(SOON, jobs.receive(Lane::Main, 1)).await.expect("no trying again").unwrap_err();
    assert_eq!(error.outcome, Outcome::Failed, "{error}");
    assert!(error.source.to_string().contains("oneclock_queue"), "{}", error.source);
}

#[tokio::test]
async fn a_session_that_does_not_wait_for_the_disk_publishes_nothing() {
    let database = Database::new().await;
    queue(&database, |queue| queue).await;
    let mut config = database.config();
    config.options("-c synchronous_commit=off");
    let jobs = PgQueue::builder("jobs", Pool::configured(config).build().unwrap()).build().unwrap();
    let error = jobs.publish(&message(1)).await.unwrap_err();
    assert_eq!(error.outcome, Outcome::Rejected);
    assert!(error.source.to_string().contains("synchronous_commit"), "{}", error.source);
    assert_eq!(in_lane(&jobs, Lane::Main).await, 0);
}

/// Published within the request's budget: cut off while the server is still at it, nothing of it is there; without an answer,
/// nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishing_spends_its_callers_budget_and_says_what_is_known() {
    let database = Database::new().await;
    let outside = database.outside().await;
    queue(&database, |queue| queue).await;
    let relay = Relay::to(&database.config()).await;
    let pool = Pool::configured(relay.through(&database.config())).build().unwrap();
    let producer = Producer::new("tests", PgQueue::builder("jobs", pool).build().unwrap());
    let work = || Work::new("job", "x").never_expires();
    let accepted = |budget| {
        let producer = producer.clone();
        async move { Operation::begin("order", budget).run(producer.accept(work())).await.unwrap() }
    };
    accepted(BOUND).await.unwrap();

    outside.batch_execute("BEGIN; LOCK TABLE oneclock_queue IN EXCLUSIVE MODE").await.unwrap();
    let error = accepted(ms(400)).await.unwrap_err();
    // Proven if the server's word came in time, and unknown if not; never that it is there.
    assert!(matches!(error.outcome(), Outcome::Rejected | Outcome::Unknown { .. }), "{error}");
    outside.batch_execute("ROLLBACK").await.unwrap();
    until("nothing runs", async || running(&outside, &database, "INSERT INTO oneclock_queue").await == 0).await;
    assert_eq!(rows(&outside, "oneclock_queue").await, 1);

    relay.set(|switches| &switches.swallows_answers, true);
    let error = accepted(ms(400)).await.unwrap_err();
    assert!(matches!(error.outcome(), Outcome::Unknown { .. }), "{error}");
    assert!(matches!(error, NotPublished::Broker(_) | NotPublished::Stopped(_)));
    until("it was published all the same", async || rows(&outside, "oneclock_queue").await == 2).await;
}
