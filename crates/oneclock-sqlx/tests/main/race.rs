//! D3: a cancel never hits the next statement, whose ever it is.

use std::time::Duration;

use oneclock_core::Outcome;
use oneclock_sqlx::SqlxError;
use oneclock_sqlx::sqlx::{self, AssertSqlSafe};

use crate::support::{Database, PLENTY, ms, operation, warm};

const RACES: usize = 600;

/// What the next borrower runs: long enough to be hit.
const INNOCENT: &str = "SELECT pg_sleep(0.002)";

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(|error| error.code()).map(Into::into).unwrap_or_default()
}

/// How long the statement sleeps, drawn to where its end and its cancel meet.
struct Aim(Duration);

impl Aim {
    const STEP: Duration = Duration::from_micros(150);

    fn statement(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!("SELECT pg_sleep({})", self.0.as_secs_f64()))
    }

    fn saw(&mut self, was_cut: bool) {
        self.0 = if was_cut { self.0.saturating_sub(Self::STEP) } else { self.0 + Self::STEP };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d3_a_late_cancel_never_hits_the_next_statement() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1).min_useful(ms(1)));
    warm(&pool, 1).await;
    let plenty = operation(PLENTY);
    let mut aim = Aim(ms(8));
    let (mut cut, mut harmed) = (0, 0);
    for _ in 0..RACES {
        let op = operation(ms(10));
        let raced = sqlx::raw_sql(aim.statement()).execute(pool.named_in(&op, "raced")).await;
        let was_cut = raced.is_err();
        if let Err(error) = raced {
            assert!(matches!(SqlxError::from(error), SqlxError::Stopped { .. }));
        }
        aim.saw(was_cut);
        cut += usize::from(was_cut);
        harmed += usize::from(sqlx::query(INNOCENT).execute(pool.named_in(&plenty, "innocent")).await.is_err());
    }
    let status = pool.status();
    println!(
        "oneclock-sqlx: {RACES} races, {cut} cut, {harmed} innocent harmed, {} connections lost",
        status.discarded
    );
    assert_eq!(harmed, 0);
    assert!(cut > 0 && cut < RACES, "{cut} of {RACES} is no race");
}

/// The same on one guard: what comes next is the same caller's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d3_nor_does_one_for_a_statement_that_was_given_up() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    warm(&pool, 1).await;
    let op = operation(PLENTY);
    let mut guard = pool.get_in(&op, "both").await.unwrap();
    let (mut aim, mut cut) = (Aim(ms(8)), 0);
    for n in 0..200 {
        let raced = sqlx::raw_sql(aim.statement()).execute(&mut guard);
        let was_cut = tokio::time::timeout(ms(10), raced).await.is_err();
        aim.saw(was_cut);
        cut += usize::from(was_cut);
        let innocent = sqlx::query(INNOCENT).execute(&mut guard).await;
        assert!(innocent.is_ok(), "harmed in race {n}: {innocent:?}");
    }
    assert!(cut > 0);
    assert!(pool.status().discarded <= 1, "a cancel costs no connection");
}

/// Without the fence: the cancel is sent and not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d3_the_naive_way_harms() {
    let database = Database::new().await;
    let mut connection = database.outside().await;
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await.unwrap();
    let cancels =
        sqlx::postgres::PgPoolOptions::new().max_connections(2).connect_with(database.options()).await.unwrap();
    let mut aim = Aim(ms(8));
    let mut harmed = 0;
    for _ in 0..RACES {
        let cancels = cancels.clone();
        let cancel = tokio::spawn(async move {
            tokio::time::sleep(ms(8)).await;
            let _ = sqlx::query("SELECT pg_cancel_backend($1)").bind(pid).execute(&cancels).await;
        });
        let was_cut = sqlx::raw_sql(aim.statement()).execute(&mut connection).await.is_err();
        aim.saw(was_cut);
        if let Err(error) = sqlx::query(INNOCENT).execute(&mut connection).await {
            assert_eq!(code(&error), "57014");
            harmed += 1;
        }
        cancel.await.unwrap();
    }
    println!("without a fence: {harmed} of {RACES} innocent harmed");
    assert!(harmed > 0, "then the fence would not be needed");
}

/// D4: told from our own state, not from the message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d4_somebody_elses_cancel_is_not_our_deadline() {
    let database = Database::new().await;
    let pool = database.pool(|pool| pool.size(1));
    warm(&pool, 1).await;
    let op = operation(PLENTY);
    let mut guard = pool.get_in(&op, "cancelled").await.unwrap();
    let pid = crate::support::pid(&mut guard).await;
    let mut outside = database.outside().await;
    let cancel = async {
        crate::support::eventually("its statement", async || {
            (crate::support::running(&mut outside, "pg_sleep(20)").await == 1).then_some(())
        })
        .await;
        sqlx::query("SELECT pg_cancel_backend($1)").bind(pid).execute(&mut outside).await.unwrap();
    };
    let (ended, ()) = tokio::join!(sqlx::query("SELECT pg_sleep(20)").execute(&mut guard), cancel);
    let error = ended.unwrap_err();
    assert_eq!(code(&error), "57014", "as sqlx says it");
    assert_eq!(SqlxError::from(error).outcome(), Outcome::Rejected);
    assert_eq!(crate::support::pid(&mut guard).await, pid, "the connection is still the same");
}
