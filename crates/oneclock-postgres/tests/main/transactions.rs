//! D5: what is known of a transaction, whatever happens to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use oneclock::Operation;
use oneclock_core::Outcome;
use oneclock_postgres::tokio_postgres::IsolationLevel;
use oneclock_postgres::tokio_postgres::error::SqlState;
use oneclock_postgres::{Decision, PgError, Pool};

use crate::relay::Relay;
use crate::support::{BOUND, Calls, Database, at_rest, ms, patient, rows, until};

#[tokio::test]
async fn savepoints_are_kept_and_taken_back_by_themselves() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let op = patient();
    let mut client = pool.get_in(&op, "nested").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (1, 0)", &[]).await.unwrap();
    {
        let mut kept = tx.savepoint().await.unwrap();
        kept.execute("INSERT INTO t VALUES (2, 0)", &[]).await.unwrap();
        {
            let mut failed = kept.savepoint().await.unwrap();
            failed.execute("INSERT INTO t VALUES (1, 0)", &[]).await.unwrap_err();
            let refused = failed.query("SELECT 1", &[]).await.unwrap_err();
            assert_eq!(refused.database().unwrap().code(), &SqlState::IN_FAILED_SQL_TRANSACTION);
        } // dropped: only this part is taken back
        kept.execute("INSERT INTO t VALUES (3, 0)", &[]).await.unwrap();
        {
            let mut back = kept.savepoint().await.unwrap();
            back.execute("INSERT INTO t VALUES (4, 0)", &[]).await.unwrap();
            back.rollback().await.unwrap();
        }
        kept.commit().await.unwrap();
    }
    let mut dropped = tx.savepoint().await.unwrap();
    dropped.execute("INSERT INTO t VALUES (5, 0)", &[]).await.unwrap();
    drop(dropped); // and COMMIT is the next thing that is sent
    tx.commit().await.unwrap();
    drop(client);
    let sql = "SELECT array_agg(i ORDER BY i) FROM t";
    let there: Vec<i32> = outside.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(there, [1, 2, 3]);
    let mut client = pool.get_in(&op, "isolated").await.unwrap();
    let mut tx = client.begin_isolated(IsolationLevel::Serializable).await.unwrap();
    let level: String = tx.query_one("SHOW transaction_isolation", &[]).await.unwrap().get(0);
    assert_eq!(level, "serializable");
}

#[tokio::test]
async fn what_the_work_decides_to_roll_back_is_no_error_and_definitely_not_done() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let calls = Arc::new(Calls::default());
    for (name, wants, outcome) in [("sell", true, Outcome::Applied), ("sold out", false, Outcome::Failed)] {
        let (op, pool) = (calls.operation(BOUND), pool.clone());
        // In a task, as a handler is: its future must be `Send`.
        let selling = tokio::spawn(async move {
            let work = pool.decide_in(&op, name, async |tx| {
                tx.execute("INSERT INTO t VALUES (1, 1) ON CONFLICT (i) DO UPDATE SET n = t.n + 1", &[]).await?;
                Ok::<_, PgError>(if wants { Decision::Commit("sold") } else { Decision::RollBack("sold out") })
            });
            work.await
        });
        assert_eq!(selling.await.unwrap().unwrap(), if wants { "sold" } else { "sold out" });
        assert_eq!(calls.outcome_of(name), Some(outcome), "{:?}", calls.seen());
    }
    assert_eq!(outside.query_one("SELECT n FROM t", &[]).await.unwrap().get::<_, i32>(0), 1);
}

/// PostgreSQL answers the COMMIT of a failed transaction with success and rolls back: here it is an error.
#[tokio::test]
async fn d5_a_failed_transaction_is_never_reported_as_committed() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let calls = Arc::new(Calls::default());
    let op = calls.operation(BOUND);
    for batch in [false, true] {
        let error = pool
            .transaction_in(&op, "charge", async |tx| {
                tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await?;
                // The error is not passed on.
                if batch {
                    let _ = tx.batch_execute("INSERT INTO t VALUES (2, 2); INSERT INTO t VALUES (1, 1)").await;
                } else {
                    let _ = tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await;
                }
                Ok::<(), PgError>(())
            })
            .await
            .unwrap_err();
        assert!(matches!(error, PgError::TransactionLost { .. }), "{error}");
        assert_eq!(error.outcome(), Outcome::Failed);
        assert_eq!(calls.outcome_of("charge"), Some(Outcome::Failed));
        assert_eq!(rows(&outside, "t").await, 0);
    }
    let error = pool
        .transaction_in(&op, "charge", async |tx| tx.execute("INSERT INTO t VALUES (1, 1 / (SELECT 0))", &[]).await)
        .await
        .unwrap_err();
    assert_eq!(error.outcome(), Outcome::Failed);
    pool.transaction_in(&op, "charge", async |tx| tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await).await.unwrap();
    assert_eq!(calls.outcome_of("charge"), Some(Outcome::Applied));
    at_rest(&pool).await;
    assert_eq!(pool.status().discarded, 0);
}

#[tokio::test]
async fn d5_conflicts_at_commit_are_answers() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(2)).await;
    outside
        .batch_execute(
            "ALTER TABLE t ADD CONSTRAINT once UNIQUE (n) DEFERRABLE INITIALLY DEFERRED; INSERT INTO t VALUES (1, 7)",
        )
        .await
        .unwrap();
    let op = patient();
    let error = pool
        .transaction_in(&op, "deferred", async |tx| tx.execute("INSERT INTO t VALUES (2, 7)", &[]).await)
        .await
        .unwrap_err();
    assert_eq!(error.outcome(), Outcome::Failed, "{error}");

    let (mut one, mut two) = (pool.get_in(&op, "one").await.unwrap(), pool.get_in(&op, "two").await.unwrap());
    let mut a = one.begin_isolated(IsolationLevel::Serializable).await.unwrap();
    let mut b = two.begin_isolated(IsolationLevel::Serializable).await.unwrap();
    for tx in [&mut a, &mut b] {
        tx.query("SELECT sum(n) FROM t", &[]).await.unwrap();
    }
    a.execute("INSERT INTO t VALUES (10, 10)", &[]).await.unwrap();
    b.execute("INSERT INTO t VALUES (20, 20)", &[]).await.unwrap();
    a.commit().await.unwrap();
    let conflict = b.commit().await.unwrap_err();
    assert_eq!(conflict.outcome(), Outcome::Rejected, "may go through another time: {conflict}");
}

/// A constraint that is checked at COMMIT and takes long there.
pub(crate) const SLOW_COMMIT: &str = "
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1.5); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()";

#[tokio::test]
async fn d5_a_commit_that_was_sent_is_never_cancelled() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1).slack(ms(1))).await;
    outside.batch_execute(SLOW_COMMIT).await.unwrap();
    let calls = Arc::new(Calls::default());

    // Its deadline passes while the COMMIT is under way: neither a cancel nor the server's bound cuts it off.
    let op = calls.operation(ms(800));
    let error = pool
        .transaction_in(&op, "deadline", async |tx| tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await)
        .await
        .unwrap_err();
    assert!(matches!(error.outcome(), Outcome::Unknown { .. }), "{error}");
    assert!(matches!(error, PgError::Stopped { .. }), "{error}");
    until("the event that tells", async || calls.outcome_of("deadline").is_some()).await;
    assert_eq!(calls.outcome_of("deadline"), Some(Outcome::Applied));
    assert_eq!(rows(&outside, "t").await, 1);

    // Its caller leaves.
    let op = calls.operation(BOUND);
    let committing =
        Box::pin(pool.transaction_in(&op, "leaves", async |tx| tx.execute("INSERT INTO t VALUES (2, 2)", &[]).await));
    let is_committing = async || crate::support::running(&outside, &database, "COMMIT").await == 1;
    let committing = crate::support::sent(committing, is_committing).await;
    drop(committing);
    until("the event that tells", async || calls.outcome_of("leaves").is_some()).await;
    assert_eq!(calls.outcome_of("leaves"), Some(Outcome::Applied));
    assert_eq!(rows(&outside, "t").await, 2);
    at_rest(&pool).await;
    let status = pool.status();
    assert_eq!((status.cancels_sent, status.discarded), (0, 0), "{status:?}");
}

/// The answer to COMMIT never comes; the server is asked on another connection.
#[tokio::test]
async fn d5_a_lost_answer_is_found_out_where_the_server_can_tell() {
    let database = Database::new().await;
    let outside = database.outside().await;
    database.pool(|pool| pool).await; // its table
    let relay = Relay::to(&database.config()).await;
    let pool = Pool::configured(relay.through(&database.config())).size(1).commit_bound(ms(2_000)).build().unwrap();
    let op = patient();

    // It was committed: the answers are thrown away from just before COMMIT on, then the connection is cut.
    let mut client = pool.get_in(&op, "applied").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await.unwrap();
    relay.set(|switches| &switches.swallows_answers, true);
    let cutting = async {
        until("the commit", async || rows(&outside, "t").await == 1).await;
        relay.set(|switches| &switches.swallows_answers, false);
        relay.cut();
    };
    let (committed, ()) = tokio::join!(tx.commit(), cutting);
    committed.expect("the server knows that it was committed");
    drop(client);

    // It was not: COMMIT itself got lost.
    let mut client = pool.get_in(&op, "rejected").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (2, 2)", &[]).await.unwrap();
    relay.set(|switches| &switches.swallows_requests, true);
    let cutting = async {
        tokio::time::sleep(ms(50)).await; // nothing can be seen of what is lost
        relay.set(|switches| &switches.swallows_requests, false);
        relay.cut();
    };
    let (committed, ()) = tokio::join!(tx.commit(), cutting);
    let error = committed.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Rejected, "{error}");
    drop(client);
    assert_eq!(rows(&outside, "t").await, 1);

    // Nobody can be asked: it is not known, and that is what is said.
    let mut client = pool.get_in(&op, "unknown").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (3, 3)", &[]).await.unwrap();
    relay.set(|switches| &switches.swallows_answers, true);
    relay.set(|switches| &switches.refuses, true);
    let cutting = async {
        until("the commit", async || rows(&outside, "t").await == 2).await;
        relay.cut();
    };
    let (committed, ()) = tokio::join!(tx.commit(), cutting);
    let error = committed.unwrap_err();
    assert!(matches!(error.outcome(), Outcome::Unknown { .. }), "{error}");
    drop(client);
    relay.set(|switches| &switches.refuses, false);
    relay.set(|switches| &switches.swallows_answers, false);
    op.run(pool.query("healed", "SELECT 1", &[])).await.unwrap().unwrap();
}

/// COMMIT is not answered within its bound, on a connection that just says nothing.
#[tokio::test]
async fn d5_a_commit_has_a_bound_of_its_own() {
    let database = Database::new().await;
    let outside = database.outside().await;
    database.pool(|pool| pool).await; // its table
    let relay = Relay::to(&database.config()).await;
    let pool = Pool::configured(relay.through(&database.config())).size(1).commit_bound(ms(1_500)).build().unwrap();
    let op = patient();
    let mut client = pool.get_in(&op, "silent").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await.unwrap();
    relay.set(|switches| &switches.holds_answers, true); // held and not lost: who is asked answers too
    let opened = relay.switches.opened.load(Ordering::SeqCst);
    let hearing = async {
        // As soon as somebody else is asked, answers pass again.
        until("a question", async || relay.switches.opened.load(Ordering::SeqCst) > opened).await;
        relay.set(|switches| &switches.holds_answers, false);
    };
    let (committed, ()) = tokio::join!(tx.commit(), hearing);
    committed.expect("the server knows that it was committed");
    assert_eq!(rows(&outside, "t").await, 1);
    let gone = client.query("SELECT 1", &[]).await.unwrap_err();
    assert!(matches!(gone, PgError::Gone { .. }), "{gone}");
}

/// After the end no COMMIT begins.
#[tokio::test]
async fn x6_nothing_is_committed_after_the_end() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let calls = Arc::new(Calls::default());
    let op = calls.operation(ms(500));
    let error = pool
        .transaction_in(&op, "late", async |tx| {
            tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await?;
            tokio::time::sleep(ms(600)).await; // its own work takes too long
            Ok::<(), PgError>(())
        })
        .await
        .unwrap_err();
    assert_eq!(error.outcome(), Outcome::Rejected, "{error}");
    at_rest(&pool).await;
    assert_eq!(rows(&outside, "t").await, 0);
    assert_eq!(calls.outcome_of("late"), Some(Outcome::Rejected));
}

/// A transaction that reads, or writes nothing, asks for no number and commits all the same.
#[tokio::test]
async fn transactions_that_write_nothing_commit() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let op = Operation::begin("test", BOUND);
    let n = pool
        .transaction_in(&op, "read", async |tx| {
            tx.execute("DELETE FROM t WHERE i = 99", &[]).await?;
            let row = tx.query_one("SELECT 1", &[]).await?;
            Ok::<i32, PgError>(row.get(0))
        })
        .await
        .unwrap();
    assert_eq!(n, 1);
}
