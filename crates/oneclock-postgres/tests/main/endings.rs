//! What is said at the end of a statement is proven, and what is lent after it is free.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use oneclock::{Operation, clock};
use oneclock_core::{Deadline, Outcome};
use oneclock_postgres::tokio_postgres::error::SqlState;
use oneclock_postgres::{PgError, Pool};

use crate::relay::{Answer, Relay};
use crate::support::{BOUND, Calls, Database, at_rest, ms, patient, rows, running, sent};

/// A pool of one connection through a relay, with calls of little time.
async fn relayed(database: &Database, brief: Duration) -> (Relay, Pool) {
    database.pool(|pool| pool).await; // its table
    let relay = Relay::to(&database.config()).await;
    let through = relay.through(&database.config());
    let pool = Pool::configured(through).size(1).cap("brief", brief).grace(ms(300)).build().unwrap();
    (relay, pool)
}

/// Lets the answers pass just after `deadline`: whatever comes then is late.
async fn let_pass_after(deadline: Deadline, relay: &Relay) {
    while !deadline.remaining(clock::now()).is_zero() {
        tokio::time::sleep(ms(1)).await;
    }
    relay.set(|switches| &switches.holds_answers, false);
    relay.set(|switches| &switches.stalls, false);
}

async fn next_is_served(pool: &Pool) {
    let op = Operation::begin("next", ms(8_000));
    pool.get_in(&op, "next").await.unwrap().query("SELECT 1", &[]).await.expect("a connection that is free");
}

/// Only the end of a copy says that it is over: one whose beginning is answered late is in flight, and not lent.
#[tokio::test]
async fn d3_a_copy_that_begins_late_is_not_lent() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let (relay, pool) = relayed(&database, ms(500)).await;
    let op = patient();
    for sql in ["COPY t FROM STDIN", "COPY t TO STDOUT", "SELECT repeat('x', 9000) FROM generate_series(1, 9000)"] {
        pool.get_in(&op, "warm").await.unwrap().prepare(sql).await.unwrap();
        let mut client = pool.get_in(&op, "brief").await.unwrap();
        relay.set(|switches| &switches.holds_answers, true);
        let release = let_pass_after(client.deadline(), &relay);
        let error = match sql.split_whitespace().nth(2) {
            Some("FROM") => tokio::join!(client.copy_in(sql), release).0.map(|_| ()).unwrap_err(),
            Some("TO") => tokio::join!(client.copy_out(sql), release).0.map(|_| ()).unwrap_err(),
            _ => tokio::join!(client.query_raw(sql, &[]), release).0.map(|_| ()).unwrap_err(),
        };
        assert!(matches!(error, PgError::Stopped { .. }), "{sql}: {error}");
        assert!(!matches!(error.outcome(), Outcome::Applied), "{sql}: {error}");
        next_is_served(&pool).await;
        drop(client);
        at_rest(&pool).await;
    }
    assert_eq!(rows(&outside, "t").await, 0);
}

/// A piece that goes out late ends no copy either.
#[tokio::test]
async fn d3_a_copy_whose_piece_goes_out_late_is_not_lent() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let (relay, pool) = relayed(&database, ms(500)).await;
    let op = patient();
    pool.get_in(&op, "warm").await.unwrap().prepare("COPY t FROM STDIN").await.unwrap();
    let mut client = pool.get_in(&op, "brief").await.unwrap();
    let deadline = client.deadline();
    let mut copy = client.copy_in("COPY t FROM STDIN").await.unwrap();
    relay.set(|switches| &switches.stalls, true);
    let piece: Bytes = (0..50_000).map(|i| format!("{i}\t{i}\n")).collect::<String>().into();
    let sending = async {
        loop {
            if let Err(error) = copy.send(piece.clone()).await {
                break error;
            }
        }
    };
    let (error, ()) = tokio::join!(sending, let_pass_after(deadline, &relay));
    assert!(matches!(error, PgError::Stopped { .. }), "{error}");
    next_is_served(&pool).await; // while the copy is held still
    drop(copy);
    drop(client);
    at_rest(&pool).await;
    assert_eq!(rows(&outside, "t").await, 0);
}

/// A statement that was prepared too late is not run any more.
#[tokio::test]
async fn x6_a_late_parse_runs_nothing() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let (relay, pool) = relayed(&database, ms(500)).await;
    let op = patient();
    pool.get_in(&op, "warm").await.unwrap().query("SELECT 1", &[]).await.unwrap();
    let mut client = pool.get_in(&op, "brief").await.unwrap();
    relay.set(|switches| &switches.holds_answers, true);
    let release = let_pass_after(client.deadline(), &relay);
    let (result, ()) = tokio::join!(client.execute("INSERT INTO t VALUES (1, 1)", &[]), release);
    let error = result.unwrap_err();
    assert!(matches!(error, PgError::Stopped { .. }), "{error}");
    assert_eq!(error.outcome(), Outcome::NotSent, "{error}");
    drop(client);
    next_is_served(&pool).await;
    at_rest(&pool).await;
    assert_eq!(rows(&outside, "t").await, 0);
}

/// The row that is missing inside a transaction takes the transaction back with it.
#[tokio::test]
async fn r8_a_missing_row_in_a_transaction_is_not_applied() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let calls = Arc::new(Calls::default());
    let op = calls.operation(BOUND);
    let work = async |tx: &mut oneclock_postgres::Transaction<'_>| {
        tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await?;
        tx.query_one("SELECT 1 WHERE false", &[]).await
    };
    let error = pool.transaction_in(&op, "sell", work).await.unwrap_err();
    assert!(matches!(error, PgError::Rows { .. }), "{error}");
    assert_eq!((error.outcome(), calls.outcome_of("sell")), (Outcome::Failed, Some(Outcome::Failed)));
    assert_eq!(rows(&outside, "t").await, 0);
    // Outside of one the statement went through.
    let insert = "WITH i AS (INSERT INTO t VALUES (1, 1) RETURNING i) SELECT i FROM i WHERE i = 2";
    let error = pool.get_in(&op, "sell").await.unwrap().query_one(insert, &[]).await.unwrap_err();
    assert_eq!((error.outcome(), rows(&outside, "t").await), (Outcome::Applied, 1));
}

/// Who commits with words of his own inside a transaction is not told that nothing happened.
#[tokio::test]
async fn d5_a_transaction_that_the_words_may_have_ended_is_unknown() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1).cap("brief", ms(600))).await;
    let calls = Arc::new(Calls::default());
    let op = calls.operation(BOUND);
    let is_unknown = |outcome| matches!(outcome, Outcome::Unknown { .. });

    // Cut off after its COMMIT.
    let sql = "INSERT INTO t VALUES (1, 1); COMMIT; SELECT pg_sleep(30)";
    let error = pool.transaction_in(&op, "brief", async |tx| tx.batch_execute(sql).await).await.unwrap_err();
    assert!(is_unknown(error.outcome()), "{error}");
    assert_eq!(rows(&outside, "t").await, 1);
    at_rest(&pool).await;

    // What comes after it is not inside any more, whatever becomes of it.
    for then in ["SELECT 1 / 0", "SELECT 1 WHERE false"] {
        let work = async |tx: &mut oneclock_postgres::Transaction<'_>| {
            tx.execute("UPDATE t SET n = n + 1", &[]).await?;
            tx.batch_execute("COMMIT").await?;
            tx.query_one(then, &[]).await
        };
        let error = pool.transaction_in(&op, "words", work).await.unwrap_err();
        assert!(is_unknown(error.outcome()), "{error}");
        assert!(is_unknown(calls.outcome_of("words").unwrap()), "{:?}", calls.seen());
        at_rest(&pool).await;
    }
    // Nor is a decision to roll it back a proof; one to commit it is answered.
    let mut client = pool.get_in(&op, "decided").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    tx.batch_execute("UPDATE t SET n = n + 1; COMMIT AND CHAIN").await.unwrap();
    tx.rollback().await.unwrap();
    drop(client);
    assert!(is_unknown(calls.outcome_of("decided").unwrap()), "{:?}", calls.seen());
    assert_eq!(outside.query_one("SELECT n FROM t", &[]).await.unwrap().get::<_, i32>(0), 4);

    // A block that has an END of its own ends nothing.
    let work = async |tx: &mut oneclock_postgres::Transaction<'_>| {
        tx.batch_execute("DO $$ BEGIN PERFORM 1; END $$; SELECT CASE WHEN true THEN 1 END").await?;
        tx.query_one("SELECT 1 / 0", &[]).await
    };
    let error = pool.transaction_in(&op, "block", work).await.unwrap_err();
    assert_eq!((error.outcome(), calls.outcome_of("block")), (Outcome::Failed, Some(Outcome::Failed)));
}

/// A session that ends before COMMIT takes its transaction back.
#[tokio::test]
async fn d5_a_session_that_dies_before_commit_is_proven_rolled_back() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let op = patient();
    let mut client = pool.get_in(&op, "killed").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await.unwrap();
    let query = tx.query("SELECT pg_sleep(30)", &[]);
    let query = sent(query, async || running(&outside, &database, "pg_sleep").await == 1).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND query LIKE '%pg_sleep%' \
                AND pid <> pg_backend_pid()";
    outside.query(kill, &[&database.name]).await.unwrap();
    let error = query.await.unwrap_err();
    assert_eq!(error.database().map(|error| error.code().clone()), Some(SqlState::ADMIN_SHUTDOWN), "{error}");
    assert_eq!(error.outcome(), Outcome::Rejected, "{error}");
    drop(tx);
    drop(client);
    at_rest(&pool).await;
    assert_eq!(rows(&outside, "t").await, 0);
}

/// A refused COMMIT takes back the bound that was set inside, so nothing is taken to be in force.
#[tokio::test]
async fn d7_a_refused_commit_takes_the_bound_back() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1).slack(ms(1))).await;
    let deferred = "ALTER TABLE t ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED; INSERT INTO t VALUES (1, 7)";
    outside.batch_execute(deferred).await.unwrap();
    pool.get_in(&patient(), "warm").await.unwrap().query("SELECT 1", &[]).await.unwrap();
    let op = Operation::begin("test", ms(3_000));
    let work = async |tx: &mut oneclock_postgres::Transaction<'_>| {
        tokio::time::sleep(ms(1_700)).await; // so that the bound is set anew, inside
        tx.execute("INSERT INTO t VALUES (2, 7)", &[]).await
    };
    let error = pool.transaction_in(&op, "refused", work).await.unwrap_err();
    assert_eq!(error.database().map(|error| error.code().clone()), Some(SqlState::UNIQUE_VIOLATION), "{error}");
    at_rest(&pool).await;
    let op = Operation::begin("test", ms(1_000));
    let sql = "SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'";
    let bound: i32 = pool.get_in(&op, "next").await.unwrap().query_one(sql, &[]).await.unwrap().get(0);
    assert!(bound <= 2 * 1_001, "{bound} ms for a call of 1000 ms");
}

/// The task that sees a COMMIT through goes with its runtime: the COMMIT was sent all the same.
#[test]
fn d5_a_commit_whose_task_dies_is_unknown() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let (database, outside) = second.block_on(async {
        let database = Database::new().await;
        let outside = database.outside().await;
        outside.batch_execute("CREATE TABLE t (i int primary key, n int)").await.unwrap();
        outside.batch_execute(crate::transactions::SLOW_COMMIT).await.unwrap();
        (database, outside)
    });
    let calls = Arc::new(Calls::default());
    let op = calls.operation(BOUND);
    let pool = Pool::configured(database.config()).size(1).build().unwrap();
    let committing = async {
        pool.transaction_in(&op, "dies", async |tx| tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await).await
    };
    let is_committing = async || running(&outside, &database, "COMMIT").await == 1;
    let committing = first.block_on(sent(committing, is_committing));
    first.shutdown_timeout(BOUND);
    let error = second.block_on(committing).unwrap_err();
    assert!(matches!(error.outcome(), Outcome::Unknown { .. }), "{error}");
    assert!(matches!(calls.outcome_of("dies"), Some(Outcome::Unknown { .. })), "{:?}", calls.seen());
    drop(second.enter());
    let _entered = second.enter();
    drop(pool);
}

/// A number may have been given again by a server that lost the transaction: only the one that gave it can tell.
#[tokio::test]
async fn d5_another_server_cannot_tell_what_became_of_a_transaction() {
    let database = Database::new().await;
    database.pool(|pool| pool).await; // its table
    let row = |status| Answer::Row(vec!["t", "1700000000.000001 00000009", status]);
    let name = Answer::Row(vec!["1700000000.000001 00000009"]); // what it is asked when a session begins
    let cases = [
        vec![name.clone(), row("committed")],
        vec![name.clone(), row("aborted")],
        // The number is in its future; later it is somebody else's.
        vec![name, Answer::Error("22023"), row("committed")],
    ];
    for answers in cases {
        let relay = Relay::to(&database.config()).await;
        let pool = Pool::configured(relay.through(&database.config())).size(1).commit_bound(ms(4_000)).build().unwrap();
        let op = patient();
        let mut client = pool.get_in(&op, "lost").await.unwrap();
        let mut tx = client.begin().await.unwrap();
        tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await.unwrap();
        relay.set(|switches| &switches.swallows_requests, true); // the server never hears of the COMMIT
        *relay.switches.impostor.lock().unwrap() = Some(VecDeque::from(answers.clone()));
        let cutting = async {
            tokio::time::sleep(ms(50)).await; // nothing can be seen of what is lost
            relay.cut();
        };
        let (committed, ()) = tokio::join!(tx.commit(), cutting);
        let error = committed.unwrap_err();
        assert!(matches!(error.outcome(), Outcome::Unknown { .. }), "{answers:?}: {error}");
        assert_eq!(relay.switches.asked.load(Ordering::SeqCst), 2, "{answers:?}");
    }
}

/// Rows that came to their end are an answer, and the connection goes on.
#[tokio::test]
async fn rows_that_were_read_to_their_end_are_applied() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let calls = Arc::new(Calls::default());
    let mut client = pool.get_in(&calls.operation(BOUND), "rows").await.unwrap();
    let mut stream = client.query_raw("SELECT generate_series(1, 9)", &[]).await.unwrap();
    let mut n = 0;
    while let Some(row) = stream.next().await {
        row.unwrap();
        n += 1;
    }
    drop(stream);
    drop(client);
    assert_eq!((n, calls.outcome_of("rows")), (9, Some(Outcome::Applied)));
}
