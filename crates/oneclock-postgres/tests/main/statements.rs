//! Statements with ways of their own, all under a budget.

use bytes::Bytes;
use futures_util::StreamExt;
use oneclock_core::{Cause, Outcome};
use oneclock_postgres::tokio_postgres::error::SqlState;
use oneclock_postgres::{PgError, Pool};

use crate::support::{BOUND, Database, at_rest, ms, patient, rows, running, sent, until};

/// They refuse to run inside a transaction, so nothing may be put in front of them in the same message.
#[tokio::test]
async fn vacuum_and_create_index_concurrently_work_under_a_budget() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let op = patient();
    for sql in [
        "VACUUM t",
        "VACUUM (FULL, ANALYZE) t",
        "CREATE INDEX CONCURRENTLY by_n ON t (n)",
        "REINDEX TABLE CONCURRENTLY t",
    ] {
        // Anew each time, so that the bound is sent with it.
        let mut client = pool.get_in(&op, "maintain").await.unwrap();
        client.execute(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        drop(client);
        at_rest(&pool).await;
        pool.get_in(&op, "maintain")
            .await
            .unwrap()
            .batch_execute(sql.replace("CREATE INDEX", "DROP INDEX").split(" ON").next().unwrap())
            .await
            .unwrap();
        at_rest(&pool).await;
    }
}

/// What may be left half done is not said to be undone.
#[tokio::test]
async fn r8_an_index_that_was_cut_off_is_unknown() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1).cap("index", ms(800))).await;
    // Somebody writes, and the index has to wait for that.
    outside.batch_execute("BEGIN; INSERT INTO t VALUES (1, 1)").await.unwrap();
    let op = patient();
    let error = pool
        .get_in(&op, "index")
        .await
        .unwrap()
        .execute("CREATE INDEX CONCURRENTLY by_n ON t (n)", &[])
        .await
        .unwrap_err();
    assert!(matches!(error.outcome(), Outcome::Unknown { .. }), "{error}");
    outside.batch_execute("ROLLBACK").await.unwrap();
    at_rest(&pool).await;
}

#[tokio::test]
async fn listen_gets_notifications_until_its_call_ends() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1).cap("brief", ms(800))).await;
    let op = patient();
    let mut client = pool.get_in(&op, "listen").await.unwrap();
    client.listen("news \"today\"").await.unwrap();
    outside.batch_execute("SELECT pg_notify('news \"today\"', 'rain')").await.unwrap();
    let news = tokio::time::timeout(BOUND, client.notification()).await.unwrap().unwrap();
    assert_eq!((news.channel(), news.payload()), ("news \"today\"", "rain"));
    drop(client);
    at_rest(&pool).await;

    let mut client = pool.get_in(&op, "brief").await.unwrap();
    client.listen("nothing").await.unwrap();
    outside.batch_execute("SELECT pg_notify('news \"today\"', 'for nobody')").await.unwrap();
    let error = client.notification().await.unwrap_err();
    assert_eq!(error.ending().map(|ending| ending.cause), Some(Cause::Deadline), "{error}");
    drop(client);
    at_rest(&pool).await;
    assert_eq!(pool.status().cancels_sent, 0, "nothing ran");
}

#[tokio::test]
async fn copy_in_and_out_end_with_their_call() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1).cap("brief", ms(800))).await;
    let op = patient();
    let mut client = pool.get_in(&op, "copy").await.unwrap();
    let mut copy = client.copy_in("COPY t FROM STDIN").await.unwrap();
    for i in 0..100 {
        copy.send(Bytes::from(format!("{i}\t{i}\n"))).await.unwrap();
    }
    assert_eq!(copy.finish().await.unwrap(), 100);
    let mut out = client.copy_out("COPY t TO STDOUT").await.unwrap();
    let mut bytes = 0;
    while let Some(piece) = out.next().await {
        bytes += piece.unwrap().len();
    }
    drop(out);
    assert_eq!(bytes, (0..100).map(|i: i32| 2 * i.to_string().len() + 2).sum::<usize>());
    assert_eq!(client.query("SELECT 1", &[]).await.unwrap().len(), 1, "and goes on");

    // Dropped midway: nothing of it is there.
    let mut copy = client.copy_in("COPY t FROM STDIN").await.unwrap();
    copy.send(Bytes::from_static(b"1000\t1\n")).await.unwrap();
    drop(copy);
    drop(client);
    at_rest(&pool).await;
    assert_eq!(rows(&outside, "t").await, 100);

    // Its time is up while it has more to send.
    let mut client = pool.get_in(&op, "brief").await.unwrap();
    let mut copy = client.copy_in("COPY t FROM STDIN").await.unwrap();
    copy.send(Bytes::from_static(b"1001\t1\n")).await.unwrap();
    let error = loop {
        tokio::time::sleep(ms(10)).await;
        if let Err(error) = copy.send(Bytes::from_static(b"")).await {
            break error;
        }
    };
    assert!(matches!(error, PgError::Stopped { .. }), "{error}");
    drop(copy);
    drop(client);
    at_rest(&pool).await;
    assert_eq!(rows(&outside, "t").await, 100);

    // A line that it cannot read: an error of the server, and the connection goes on.
    let mut client = pool.get_in(&op, "copy").await.unwrap();
    let mut copy = client.copy_in("COPY t FROM STDIN").await.unwrap();
    copy.send(Bytes::from_static(b"no number\n")).await.unwrap();
    let error = copy.finish().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Failed, "{error}");
    drop(client);
    at_rest(&pool).await;
    pool.query("next", "SELECT 1", &[]).await.unwrap();
}

/// A statement that was prepared before its table changed is prepared anew, once, and only where nothing can run twice.
#[tokio::test]
async fn prepared_statements_outlive_a_change_of_their_table() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let op = patient();
    let sql = "SELECT * FROM t";
    pool.get_in(&op, "read").await.unwrap().query(sql, &[]).await.unwrap();
    outside.batch_execute("INSERT INTO t VALUES (1, 1); ALTER TABLE t ADD COLUMN more text DEFAULT 'x'").await.unwrap();
    let rows = pool.get_in(&op, "read").await.unwrap().query(sql, &[]).await.unwrap();
    assert_eq!(rows[0].len(), 3, "with the new column");

    // In a transaction it is an error that may pass, and the next transaction goes through.
    outside.batch_execute("ALTER TABLE t DROP COLUMN more").await.unwrap();
    let read = async |tx: &mut oneclock_postgres::Transaction<'_>| tx.query(sql, &[]).await;
    let error = pool.transaction_in(&op, "read", read).await.unwrap_err();
    assert_eq!(error.database().map(|error| error.code().clone()), Some(SqlState::FEATURE_NOT_SUPPORTED));
    let rows = pool.transaction_in(&op, "read", async |tx| tx.query(sql, &[]).await).await.unwrap();
    assert_eq!(rows[0].len(), 2);

    // And one whose server forgot it.
    let mut client = pool.get_in(&op, "read").await.unwrap();
    client.query("SELECT n FROM t", &[]).await.unwrap();
    client.batch_execute("DEALLOCATE ALL").await.unwrap();
    assert_eq!(client.query("SELECT n FROM t", &[]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn texts_without_an_end_do_not_fill_the_memory_of_the_server() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1).statements_kept(10)).await;
    let op = patient();
    let mut client = pool.get_in(&op, "read").await.unwrap();
    for i in 0..50 {
        client.query(&format!("SELECT {i}"), &[]).await.unwrap();
    }
    let kept: i64 = client.query_one("SELECT count(*) FROM pg_prepared_statements", &[]).await.unwrap().get(0);
    assert!(kept <= 13, "{kept}");
}

/// D4: whose cancel it was is told from our own state.
#[tokio::test]
async fn d4_somebody_elses_cancel_is_an_error_of_the_server_and_ours_is_not() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(1)).await;
    let op = patient();
    let mut client = pool.get_in(&op, "slow").await.unwrap();
    let query = client.query("SELECT pg_sleep(30)", &[]);
    let query = sent(query, async || running(&outside, &database, "pg_sleep").await == 1).await;
    let all = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()";
    outside.query(all, &[&database.name]).await.unwrap();
    let error = query.await.unwrap_err();
    assert_eq!(error.database().map(|error| error.code().clone()), Some(SqlState::QUERY_CANCELED));
    assert_eq!((error.outcome(), error.ending()), (Outcome::Rejected, None), "{error}");
    client.query("SELECT 1", &[]).await.unwrap();

    // A bound that the role or the user set is not ours either.
    client.batch_execute("SET statement_timeout = 50").await.unwrap();
    let error = client.batch_execute("SET LOCAL statement_timeout = 50; SELECT pg_sleep(30)").await.unwrap_err();
    assert!(matches!(error, PgError::Database { .. }), "{error}");
    drop(client);
    at_rest(&pool).await;
    until("idle", async || running(&outside, &database, "pg_sleep").await == 0).await;
}

/// D1: with no cancel getting through, the server ends the statement by itself.
#[tokio::test]
async fn d1_the_backstop_ends_what_no_cancel_reaches() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let relay = crate::relay::Relay::to(&database.config()).await;
    let through = relay.through(&database.config());
    let pool = Pool::configured(through).size(1).slack(ms(200)).grace(ms(100)).build().unwrap();
    let op = oneclock::Operation::begin("test", ms(600));
    let client = pool.get_in(&op, "slow").await.unwrap();
    relay.set(|switches| &switches.deaf, true);
    let work = async move {
        let mut client = client;
        client.query("SELECT pg_sleep(60)", &[]).await.map(|_| ())
    };
    let error = work.await.unwrap_err();
    assert!(matches!(error.outcome(), Outcome::Unknown { .. }), "{error}");
    at_rest(&pool).await;
    assert_eq!(pool.status().discarded, 1, "its connection is not lent again");
    until("the server to end it", async || running(&outside, &database, "pg_sleep").await == 0).await;
}
