//! D7: what one borrower leaves in its session is never seen by the next.

use oneclock::Operation;
use oneclock_postgres::{PgError, Pool};

use crate::support::{Database, at_rest, ms, patient, until};

/// Runs `leaves` on the only connection, gives it back, and says what `asks` answers for the next borrower of the same
/// backend, if it is the same.
async fn next_sees(pool: &Pool, leaves: &str, asks: &str) -> (bool, String) {
    let op = patient();
    let mut first = pool.get_in(&op, "first").await.unwrap();
    let backend: i32 = first.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    first.batch_execute(leaves).await.unwrap();
    drop(first);
    at_rest(pool).await;
    let mut next = pool.get_in(&op, "next").await.unwrap();
    let same = next.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get::<_, i32>(0) == backend;
    (same, next.query_one(asks, &[]).await.unwrap().get(0))
}

#[tokio::test]
async fn d7_settings_temporary_tables_locks_and_channels_stay_with_their_borrower() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let there = |what: &str| format!("SELECT count(*)::text FROM {what}");
    for (leaves, asks, want) in [
        ("SET search_path = nowhere", "SHOW search_path".to_owned(), "\"$user\", public"),
        (
            "SET statement_timeout = 1234567",
            "SELECT (current_setting('statement_timeout') = '1234567ms')::text".to_owned(),
            "false",
        ),
        ("SELECT set_config('work_mem', '77MB', false)", "SHOW work_mem".to_owned(), "4MB"),
        ("CREATE TEMP TABLE mine (i int)", there("pg_class WHERE relname = 'mine'"), "0"),
        ("SELECT pg_advisory_lock(42)", there("pg_locks WHERE locktype = 'advisory'"), "0"),
        ("LISTEN mine", there("pg_listening_channels()"), "0"),
        ("BEGIN; INSERT INTO t VALUES (1, 1)", there("t"), "0"),
        ("BEGIN; DECLARE mine CURSOR FOR SELECT 1", there("pg_cursors WHERE name = 'mine'"), "0"),
        ("SET ROLE pg_monitor", "SELECT current_user::text".to_owned(), "postgres"),
    ] {
        let (same, seen) = next_sees(&pool, leaves, &asks).await;
        assert!(same, "{leaves}: the connection was kept");
        assert_eq!(seen, want, "{leaves}");
    }
    // A name that is taken by a prepared statement cannot be told from ours: the session goes.
    let named = "pg_prepared_statements WHERE name = 'mine'";
    let (same, seen) = next_sees(&pool, "PREPARE mine AS SELECT 1", &there(named)).await;
    assert_eq!((same, seen.as_str()), (false, "0"));
}

#[tokio::test]
async fn d7_the_bound_of_one_borrower_never_cuts_the_next() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1).slack(ms(1)).cap("brief", ms(500))).await;
    let op = patient();
    for _ in 0..2 {
        // Its bound on the server is 501 ms from here on,
        pool.get_in(&op, "brief").await.unwrap().query("SELECT 1", &[]).await.unwrap();
        // and this takes longer, in a transaction too.
        let mut client = pool.get_in(&op, "patient").await.unwrap();
        client.query("SELECT pg_sleep(0.7)", &[]).await.unwrap();
        drop(client);
        pool.get_in(&op, "brief").await.unwrap().query("SELECT 1", &[]).await.unwrap();
        pool.transaction_in(&op, "patient", async |tx| tx.query("SELECT pg_sleep(0.7)", &[]).await).await.unwrap();
    }
}

/// A rollback takes back the bound that was set inside of it: the next statement gets its own again.
#[tokio::test]
async fn d7_a_rollback_does_not_bring_an_old_bound_back() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1).slack(ms(1)).cap("brief", ms(500))).await;
    let op = patient();
    pool.get_in(&op, "brief").await.unwrap().query("SELECT 1", &[]).await.unwrap();
    let mut client = pool.get_in(&op, "patient").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    tx.query("SELECT pg_sleep(0.6)", &[]).await.unwrap();
    let mut part = tx.savepoint().await.unwrap();
    part.query("SELECT 1", &[]).await.unwrap();
    part.rollback().await.unwrap();
    tx.query("SELECT pg_sleep(0.6)", &[]).await.unwrap();
    tx.rollback().await.unwrap();
    client.query("SELECT pg_sleep(0.6)", &[]).await.unwrap();
}

#[tokio::test]
async fn d7_an_open_transaction_is_rolled_back_whoever_left_it() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let op = patient();
    {
        let mut client = pool.get_in(&op, "dropped").await.unwrap();
        let mut tx = client.begin().await.unwrap();
        tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await.unwrap();
    }
    at_rest(&pool).await;
    // Dropped, and the client used again at once: the rollback goes in front.
    let mut client = pool.get_in(&op, "again").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (2, 2)", &[]).await.unwrap();
    drop(tx);
    let left: i64 = client.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
    // Cut off inside of it, with its time up: the rollback is sent all the same.
    drop(client);
    let brief = Operation::begin("brief", ms(400));
    let error = pool
        .transaction_in(&brief, "cut", async |tx| {
            tx.execute("INSERT INTO t VALUES (3, 3)", &[]).await?;
            tx.query("SELECT pg_sleep(30)", &[]).await
        })
        .await
        .unwrap_err();
    assert!(matches!(error, PgError::Stopped { .. }), "{error}");
    at_rest(&pool).await;
    until("no transaction open", async || {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND state LIKE 'idle in%'";
        outside.query_one(open, &[&database.name]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    assert_eq!(crate::support::rows(&outside, "t").await, 0);
    assert_eq!(pool.status().discarded, 0);
}
