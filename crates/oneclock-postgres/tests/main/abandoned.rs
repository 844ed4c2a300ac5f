//! D3, I6: what nobody waits for does not run, and the pool serves others meanwhile.

use std::sync::Arc;
use std::time::Duration;

use oneclock::{Operation, Retries, clock, retry};
use oneclock_core::retry::RetryPolicy;
use oneclock_core::{Effect, Outcome};
use oneclock_postgres::tokio_postgres::NoTls;
use oneclock_postgres::{PgError, Pool};
use tokio::task::JoinSet;

use crate::support::{BOUND, Calls, Database, at_rest, ms, patient, rows, running, sent, until};

const REQUESTS: u64 = 200;
const BUDGET: Duration = ms(100);

/// 200 requests of 100 ms for a statement of 10 s, on 5 connections, all at once: 200 ms after the last deadline none of
/// the backends runs it. The same with tokio-postgres and deadpool alone, beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i06_two_hundred_abandoned_statements_leave_no_backend_running() {
    let database = Database::new().await;
    let outside = database.outside().await;
    // The server's own bound comes long after, so only a cancel can be what ends them.
    let pool = database.pool(|pool| pool.size(5).slack(BOUND)).await;
    let mut requests = JoinSet::new();
    for _ in 0..REQUESTS {
        let pool = pool.clone();
        requests.spawn(async move {
            let op = Operation::begin("request", BUDGET);
            op.run(pool.query("slow", "SELECT pg_sleep(10) AS ours", &[])).await
        });
    }
    while let Some(answer) = requests.join_next().await {
        assert!(!matches!(answer.unwrap(), Ok(Ok(_))), "a statement of 10 s has no answer after 100 ms");
    }
    tokio::time::sleep(ms(200)).await;
    let ours = running(&outside, &database, "AS ours").await;

    let peers = peers(&database, 5);
    let mut requests = JoinSet::new();
    for _ in 0..REQUESTS {
        let peers = peers.clone();
        requests.spawn(tokio::time::timeout(BUDGET, async move {
            peers.get().await.unwrap().query("SELECT pg_sleep(10) AS theirs", &[]).await
        }));
    }
    while requests.join_next().await.is_some() {}
    tokio::time::sleep(ms(200)).await;
    let theirs = running(&outside, &database, "AS theirs").await;
    let innocent = tokio::time::timeout(ms(500), async { peers.get().await.unwrap().query("SELECT 1", &[]).await });
    let innocent = innocent.await.is_ok();

    println!(
        "still running 200 ms after the last deadline, of a pool of 5: oneclock {ours}, tokio-postgres and deadpool {theirs}"
    );
    until("no backend running it", async || running(&outside, &database, "AS ours").await == 0).await;
    assert!(ours < 5, "after 200 ms: {ours}; on a machine of one's own it is 0");
    assert_eq!(theirs, 5, "the naive way leaves them all running, or this test would show nothing");
    assert!(!innocent, "and whoever comes next waits behind them");
    at_rest(&pool).await;
    assert_eq!(pool.status().discarded, 0, "{:?}", pool.status());
}

/// Spread over seconds, so that there are always some running and always a place: an innocent statement is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i06_the_pool_answers_innocent_statements_throughout() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(5)).await;
    let op = Operation::begin("warm", BOUND);
    let warm: Vec<_> = futures_util::future::join_all((0..5).map(|_| pool.get_in(&op, "warm"))).await;
    drop(warm);
    let mut requests = JoinSet::new();
    let mut waits = Vec::new();
    for _ in 0..REQUESTS {
        let guilty = pool.clone();
        requests.spawn(async move {
            let op = Operation::begin("request", BUDGET);
            drop(op.run(guilty.query("slow", "SELECT pg_sleep(10) AS guilty", &[])).await);
        });
        let asked = clock::now();
        Operation::begin("innocent", BOUND).run(pool.query("innocent", "SELECT 1", &[])).await.unwrap().unwrap();
        waits.push(clock::now().since(asked));
        // One that leaves while another comes: between 2 and 3 of the 5 run at any time.
        tokio::time::sleep((asked + ms(40)).since(clock::now())).await;
    }
    while requests.join_next().await.is_some() {}
    tokio::time::sleep(ms(200)).await;
    let left = running(&outside, &database, "AS guilty").await;
    waits.sort();
    let (p50, p99) = (waits[waits.len() / 2], waits[waits.len() * 99 / 100]);
    println!(
        "an innocent SELECT 1 beside {REQUESTS} abandoned statements: p50 {p50:?}, p99 {p99:?}; left running: {left}"
    );
    assert_eq!(left, 0);
    assert!(p99 < ms(500), "the target is 50 ms on a machine of one's own: {p99:?}");
}

#[tokio::test]
async fn i06_a_caller_that_leaves_takes_its_statement_along() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let calls = Arc::new(Calls::default());
    let op = calls.operation(BOUND);
    let leaving = pool.get_in(&op, "leaving").await.unwrap();
    let query = async move {
        let mut client = leaving;
        client.query("SELECT pg_sleep(30)", &[]).await.map(|_| ())
    };
    let query = sent(query, async || running(&outside, &database, "pg_sleep").await == 1).await;
    drop(query);
    until("the backend idle", async || running(&outside, &database, "pg_sleep").await == 0).await;
    assert!(matches!(calls.outcome_of("leaving"), Some(Outcome::Unknown { .. })), "{:?}", calls.seen());
    // The only connection serves the next one, and it is the same one.
    op.run(pool.query("next", "SELECT 1", &[])).await.unwrap().unwrap();
    let status = pool.status();
    assert_eq!((status.open, status.discarded), (1, 0), "{status:?}");
}

/// A statement that was cut off inside of a moment is proven to have done nothing.
#[tokio::test]
async fn r8_a_cancelled_statement_is_proven_not_to_have_happened() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let op = Operation::begin("test", ms(60));
    let error = op
        .run(async {
            let mut client = pool.get("insert").await?;
            client.execute("INSERT INTO t SELECT 1, 1 FROM pg_sleep(30)", &[]).await
        })
        .await;
    // The operation ends at the same moment; what it is told depends on who comes first.
    if let Ok(result) = error {
        let error = result.unwrap_err();
        assert!(matches!(error.outcome(), Outcome::Rejected | Outcome::Unknown { .. }), "{error}");
    }
    at_rest(&pool).await;
    assert_eq!(rows(&outside, "t").await, 0);

    let capped = database.pool(|pool| pool.size(1).cap("insert", ms(60))).await;
    let op = patient();
    let error = capped
        .run_in(&op, "insert", async |client| client.execute("INSERT INTO t SELECT 1, 1 FROM pg_sleep(30)", &[]).await)
        .await
        .unwrap_err();
    println!("cut off by its cap: {error}");
    assert!(matches!(error.outcome(), Outcome::Rejected | Outcome::Unknown { .. }), "{error}");
}

/// What the cancel proves reaches the handler whose operation ends at that moment, and the event says it too. Without the way
/// home that a call keeps for it, both end in the same instant, and it is unknown. A machine may be late; not ten times.
#[tokio::test]
async fn r8_the_proof_comes_before_the_end_of_the_operation() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let calls = Arc::new(Calls::default());
    let mut seen = Vec::new();
    for _ in 0..10 {
        let op = calls.operation(ms(400));
        let told =
            op.run(pool.query("slow", "SELECT pg_sleep(30)", &[])).await.map(|result| result.unwrap_err().outcome());
        at_rest(&pool).await;
        let both = (told.ok(), calls.outcome_of("slow"));
        seen.push(both);
        if both == (Some(Outcome::Rejected), Some(Outcome::Rejected)) {
            return;
        }
    }
    panic!("never proven: {seen:?}");
}

/// The same for an attempt under a limit of its own: what is proven not to have happened is tried again.
#[tokio::test]
async fn r7_a_transaction_that_is_cut_off_is_tried_again() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let mut seen = Vec::new();
    for _ in 0..10 {
        let policy = RetryPolicy::new().attempts(3).per_try(ms(400)).effect(Effect::Once).build().unwrap();
        let stock = Retries::to("stock", policy).build().unwrap();
        let trying = retry(&stock, |attempt| {
            let pool = pool.clone();
            async move {
                pool.transaction("sell", async |tx| {
                    let seconds = if attempt.number == 1 { 30.0 } else { 0.0 };
                    tx.execute("INSERT INTO t SELECT 1, 1 FROM pg_sleep($1)", &[&seconds]).await
                })
                .await
            }
        });
        match patient().run(trying).await.unwrap() {
            Ok(sold) => {
                assert_eq!(sold, 1);
                assert_eq!(rows(&outside, "t").await, 1);
                return;
            }
            Err(gave_up) => seen.push(gave_up.to_string()),
        }
    }
    panic!("never tried again: {seen:?}");
}

/// A write that waits behind an abandoned statement, whose cancel does not get through, is told that it was not sent; and it
/// never happens. On a connection of tokio-postgres alone, it does.
#[tokio::test]
async fn d3_a_write_behind_an_abandoned_statement_never_executes() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let relay = crate::relay::Relay::to(&database.config()).await;
    database.pool(|pool| pool).await; // its table
    let pool = Pool::configured(relay.through(&database.config())).size(1).grace(ms(1_500)).build().unwrap();
    let op = Operation::begin("first", BOUND);
    let client = pool.get_in(&op, "slow").await.unwrap();
    let query = async move {
        let mut client = client;
        client.query("SELECT pg_sleep(3)", &[]).await.map(|_| ())
    };
    let query = sent(query, async || running(&outside, &database, "pg_sleep").await == 1).await;
    relay.set(|switches| &switches.deaf, true); // cancels go nowhere
    drop(query);
    let write = Operation::begin("write", ms(150));
    let error = async { pool.get_in(&write, "write").await?.execute("INSERT INTO t VALUES (8, 8)", &[]).await };
    let error = error.await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotSent, "{error}");
    assert_eq!(running(&outside, &database, "pg_sleep").await, 1, "it runs still");
    // The grace passes, the connection is given up, and the next one gets another.
    at_rest(&pool).await;
    assert_eq!(pool.status().discarded, 1);
    relay.set(|switches| &switches.deaf, false);
    until("the abandoned statement to be over", async || running(&outside, &database, "pg_sleep").await == 0).await;
    assert_eq!(rows(&outside, "t").await, 0, "it was told that it was not sent");
    op.run(pool.execute("write", "INSERT INTO t VALUES (1, 1)", &[])).await.unwrap().unwrap();
    assert_eq!(rows(&outside, "t").await, 1);
    outside.batch_execute("DELETE FROM t").await.unwrap();

    // The naive way: the same connection, the wait given up, the write pipelined behind.
    let (client, connection) = database.config().connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let gave_up = tokio::time::timeout(ms(50), client.batch_execute("SELECT pg_sleep(0.4)")).await;
    assert!(gave_up.is_err());
    let write = tokio::time::timeout(ms(50), client.batch_execute("INSERT INTO t VALUES (9, 9)")).await;
    assert!(write.is_err(), "its caller was told that time was up");
    until("the naive write to happen all the same", async || rows(&outside, "t").await == 1).await;
}

/// A cancel is a process on the server: of five departures at once only two are on their way.
#[tokio::test]
async fn d3_cancels_in_flight_have_a_bound() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let relay = crate::relay::Relay::to(&database.config()).await;
    let through = relay.through(&database.config());
    let pool = Pool::configured(through).size(5).cancels_in_flight(2).grace(ms(3_000)).build().unwrap();
    let op = patient();
    let mut leaving = Vec::new();
    for n in 1..=5 {
        let mut client = pool.get_in(&op, "slow").await.unwrap();
        let query = async move { client.batch_execute("SELECT pg_sleep(20)").await };
        leaving.push(sent(query, async || running(&outside, &database, "pg_sleep").await == n).await);
    }
    relay.set(|switches| &switches.deaf, true); // so that none comes to its end
    let opened = || relay.switches.opened.load(std::sync::atomic::Ordering::SeqCst);
    let sessions = opened();
    drop(leaving);
    until("two cancels", || std::future::ready(opened() == sessions + 2)).await;
    tokio::time::sleep(ms(300)).await;
    assert_eq!(opened(), sessions + 2, "the others wait for their turn");
    at_rest(&pool).await;
    assert_eq!(pool.status().discarded, 5, "{:?}", pool.status());
}

/// A stream of rows that is dropped midway, or not read to its end in time, is a statement that was abandoned.
#[tokio::test]
async fn i06_streams_end_with_their_call() {
    use futures_util::StreamExt;
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1).cap("brief", ms(600))).await;
    let op = patient();
    let many = "SELECT i, pg_sleep(CASE WHEN i > 3 THEN 30 ELSE 0 END) FROM generate_series(1, 10) i";
    {
        let mut client = pool.get_in(&op, "stream").await.unwrap();
        let mut rows = client.query_raw("SELECT i FROM generate_series(1, 1000000) i", &[]).await.unwrap();
        for want in 1..=3 {
            assert_eq!(rows.next().await.unwrap().unwrap().get::<_, i32>(0), want);
        }
        drop(rows);
        let gone = client.query("SELECT 1", &[]).await.unwrap_err();
        assert!(matches!(gone, PgError::Gone { .. }), "{gone}");
    }
    at_rest(&pool).await;
    {
        let mut client = pool.get_in(&op, "brief").await.unwrap();
        let reading = async {
            let mut rows = client.query_raw(many, &[]).await?; // the server keeps the first rows until it has some more
            while let Some(row) = rows.next().await {
                row?;
            }
            Ok::<(), PgError>(())
        };
        let error = reading.await.unwrap_err();
        assert!(matches!(error, PgError::Stopped { .. }), "{error}");
    }
    until("the backend idle", async || running(&outside, &database, "generate_series").await == 0).await;
    at_rest(&pool).await;
    assert_eq!(pool.status().discarded, 0, "{:?}", pool.status());
}

fn peers(database: &Database, size: usize) -> deadpool_postgres::Pool {
    let manager = deadpool_postgres::Manager::new(database.config(), NoTls);
    deadpool_postgres::Pool::builder(manager).max_size(size).build().unwrap()
}
