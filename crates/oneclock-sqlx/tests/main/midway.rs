//! Statements that commit midway: their error proves less than that of others.

use oneclock_core::Outcome;
use oneclock_sqlx::SqlxError;
use oneclock_sqlx::sqlx::postgres::PgDatabaseError;
use oneclock_sqlx::sqlx::{self, AssertSqlSafe};

use crate::support::{Database, PLENTY, Recorder, operation, run};

const PROCEDURE: &str = "CREATE PROCEDURE p(what text) LANGUAGE plpgsql AS \
    $$ BEGIN INSERT INTO t VALUES (1); COMMIT; EXECUTE what; END $$";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n1_an_error_after_a_commit_inside_is_unknown() {
    let database = Database::new().await;
    let mut outside = database.outside().await;
    run(&mut outside, PROCEDURE).await;
    let pool = database.pool(|pool| pool.size(1));
    let raise = |code: &str| format!("CALL p('DO $d$ BEGIN RAISE EXCEPTION USING errcode = ''{code}''; END $d$')");
    for (sql, code) in [
        (raise("40001"), "40001"),
        (raise("55P03"), "55P03"),
        (raise("23505"), "23505"),
        (raise("P0001"), "P0001"),
        ("CALL p('selct')".to_owned(), "42601"),
        ("CALL p('SELECT nothing')".to_owned(), "42703"),
        ("INSERT INTO t VALUES (1); COMMIT; SELECT nothing".to_owned(), "42703"),
        ("BEGIN; INSERT INTO t VALUES (1); COMMIT; SELECT 1 / 0".to_owned(), "22012"),
    ] {
        run(&mut outside, "TRUNCATE t").await;
        let recorder = Recorder::new();
        let op = operation(PLENTY).observed_by(recorder.clone());
        let failed = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(pool.named_in(&op, "call")).await.unwrap_err();
        // Nothing of the server's error is lost by what is known of it.
        let database_error = failed.as_database_error().unwrap();
        assert_eq!(database_error.code().as_deref(), Some(code), "{sql}");
        assert_eq!(database_error.downcast_ref::<PgDatabaseError>().code(), code, "{sql}");
        assert_eq!(database_error.is_unique_violation(), code == "23505");
        let failed = SqlxError::from(failed);
        assert!(matches!(failed.outcome(), Outcome::Unknown { .. }), "{sql}: {failed}");
        let again = SqlxError::from(sqlx::Error::from(failed));
        assert!(matches!(again.outcome(), Outcome::Unknown { .. }), "{sql}: {again}");
        assert!(matches!(recorder.call("call").await.outcome, Outcome::Unknown { .. }), "{sql}");
        assert_eq!(database.rows().await, 1, "{sql}");
    }
}

/// What is refused before anything of it ran has no parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r8_what_was_refused_unread_has_failed() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    let op = operation(PLENTY);
    for sql in ["CALL nothing()", "INSERT INTO t VALUES (1); COMMIT; selct", "VACUUM nothing;"] {
        let failed = sqlx::raw_sql(sql).execute(pool.named_in(&op, "call")).await.unwrap_err();
        assert_eq!(SqlxError::from(failed).outcome(), Outcome::Failed, "{sql}");
    }
    assert_eq!(database.rows().await, 0);
}

/// The text of a statement ends the transaction that it runs in: a rollback takes nothing back then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_a_transaction_that_was_ended_in_sql_is_not_known_to_be_rolled_back() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(PLENTY).observed_by(recorder.clone());
    let is_unknown = |outcome| matches!(outcome, Outcome::Unknown { .. });

    let mut tx = pool.begin_in(&op, "fails").await.unwrap();
    let failed = sqlx::raw_sql("INSERT INTO t VALUES (1); COMMIT; SELECT 1 / 0").execute(&mut tx).await.unwrap_err();
    assert!(is_unknown(SqlxError::from(failed).outcome()));
    drop(tx);
    assert!(is_unknown(recorder.call("fails").await.outcome));
    assert_eq!(database.rows().await, 1);

    let mut tx = pool.begin_in(&op, "goes-through").await.unwrap();
    sqlx::query("INSERT INTO t VALUES (2)").execute(&mut tx).await.unwrap();
    sqlx::query("COMMIT").execute(&mut tx).await.unwrap();
    drop(tx);
    assert!(is_unknown(recorder.call("goes-through").await.outcome));
    assert_eq!(database.rows().await, 2);

    // What cannot end it: all is taken back.
    let mut tx = pool.begin_in(&op, "cannot").await.unwrap();
    sqlx::query("INSERT INTO t VALUES (3)").execute(&mut tx).await.unwrap();
    sqlx::raw_sql("DO $$ BEGIN RAISE EXCEPTION 'no'; END $$").execute(&mut tx).await.unwrap_err();
    drop(tx);
    assert_eq!(recorder.call("cannot").await.outcome, Outcome::Rejected);
    assert_eq!(database.rows().await, 2);
}

/// A row that is missing or cannot be decoded is told by sqlx to its caller, in a transaction that is rolled back too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_an_answer_of_no_use_does_not_prove_that_it_stays() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    let op = operation(PLENTY);
    let mut tx = pool.begin_in(&op, "missing").await.unwrap();
    let missing =
        sqlx::query_scalar::<_, i32>("INSERT INTO t SELECT 1 WHERE false RETURNING i").fetch_one(&mut tx).await;
    assert!(matches!(SqlxError::from(missing.unwrap_err()).outcome(), Outcome::Unknown { .. }));
    let wrong = sqlx::query_scalar::<_, String>("INSERT INTO t VALUES (1) RETURNING i").fetch_one(&mut tx).await;
    assert!(matches!(SqlxError::from(wrong.unwrap_err()).outcome(), Outcome::Unknown { .. }));
    drop(tx);
    assert_eq!(database.rows().await, 0);
}
