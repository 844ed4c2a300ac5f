//! D5: what became of a COMMIT whose answer is lost.

use oneclock_core::Outcome;
use oneclock_sqlx::sqlx;
use oneclock_sqlx::{Pool, SqlxError, Transaction};

use crate::support::{Database, Mode, PLENTY, Recorder, Relay, eventually, ms, operation, run, until_idle};

const INSERT: &str = "INSERT INTO t VALUES (1)";

/// Makes every commit wait in the server, before it is one.
pub(crate) const SLOW_COMMIT: &str = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
    $$ BEGIN PERFORM pg_sleep(1.5); RETURN NULL; END $$; \
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()";

pub(crate) async fn inserted(pool: &Pool, op: &oneclock::Operation) -> Transaction<'static> {
    let mut tx = pool.begin_in(op, "charge").await.unwrap();
    sqlx::query(INSERT).execute(&mut tx).await.unwrap();
    tx
}

/// The deadline passes while COMMIT is on the server: it is not cancelled, and who waits is told the truth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_a_commit_that_was_sent_is_never_cancelled() {
    let database = Database::new().await;
    run(&mut database.outside().await, SLOW_COMMIT).await;
    let pool = database.pool(|pool| pool.size(1));
    crate::support::warm(&pool, 1).await;
    let recorder = Recorder::new();
    let op = operation(ms(1_000)).observed_by(recorder.clone());
    let tx = inserted(&pool, &op).await;
    match tx.commit().await {
        Ok(()) => {} // a machine so slow that the answer was there first
        Err(error) => assert!(matches!(error.outcome(), Outcome::Unknown { .. }), "{error}"),
    }
    assert_eq!(recorder.call("charge").await.outcome, Outcome::Applied, "the event is told later, and knows");
    assert_eq!(database.rows().await, 1);
    until_idle(&pool).await;
    assert_eq!(pool.status().discarded, 0);
}

/// Its caller is dropped while COMMIT is on the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_a_commit_whose_caller_has_gone_goes_on() {
    let database = Database::new().await;
    run(&mut database.outside().await, SLOW_COMMIT).await;
    let pool = database.pool(|pool| pool.size(1));
    let recorder = Recorder::new();
    let op = operation(PLENTY).observed_by(recorder.clone());
    let mut commit = Box::pin(inserted(&pool, &op).await.commit());
    eventually("its COMMIT", async || {
        assert!(futures_util::FutureExt::now_or_never(&mut commit).is_none());
        (database.running("COMMIT").await == 1).then_some(())
    })
    .await;
    drop(commit);
    assert_eq!(recorder.call("charge").await.outcome, Outcome::Applied);
    assert_eq!(database.rows().await, 1);
}

/// The connection breaks after COMMIT was sent: the server is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_a_lost_commit_is_asked_for() {
    for goes_through in [true, false] {
        let database = Database::new().await;
        run(&mut database.outside().await, SLOW_COMMIT).await;
        let pool = database.pool(|pool| pool.size(1));
        let recorder = Recorder::new();
        let op = operation(PLENTY).observed_by(recorder.clone());
        let mut tx = inserted(&pool, &op).await;
        let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut tx).await.unwrap();
        let mut outside = database.outside().await;
        let kill = async {
            eventually("its COMMIT", async || (database.running("COMMIT").await == 1).then_some(())).await;
            if !goes_through {
                run(&mut outside, &format!("SELECT pg_terminate_backend({pid})")).await;
            }
        };
        let (committed, ()) = tokio::join!(tx.commit(), kill);
        match (goes_through, committed) {
            (true, Ok(())) => assert_eq!(database.rows().await, 1),
            (false, Err(error)) => {
                assert_eq!(error.outcome(), Outcome::Rejected, "{error}: the server says that it was rolled back");
                assert_eq!(recorder.call("charge").await.outcome, Outcome::Rejected);
                assert_eq!(database.rows().await, 0);
            }
            (_, other) => panic!("{goes_through}: {other:?}"),
        }
    }
}

/// The answer of COMMIT does not come: the network is deaf for it, and not for the reserved connections, which go another
/// way. The server knows, and so does the caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_an_answer_that_never_comes() {
    let database = Database::new().await;
    run(&mut database.outside().await, SLOW_COMMIT).await;
    let relay = Relay::new().await;
    let pool = Pool::with_options(relay.options(&database)).size(1).build().unwrap();
    let recorder = Recorder::new();
    let op = operation(ms(5_000)).observed_by(recorder.clone());
    let mut commit = Box::pin(inserted(&pool, &op).await.commit());
    eventually("its COMMIT", async || {
        assert!(futures_util::FutureExt::now_or_never(&mut commit).is_none());
        (database.running("COMMIT").await == 1).then_some(())
    })
    .await;
    relay.set(Mode::Deaf);
    let error = commit.await.unwrap_err();
    assert!(
        matches!(error, SqlxError::Stopped { outcome: Outcome::Unknown { .. }, .. }),
        "nobody can tell now: {error}"
    );
    assert_eq!(database.rows().await, 1, "as it turns out");
    relay.set(Mode::Open); // before the commit's own bound
    assert_eq!(recorder.call("charge").await.outcome, Outcome::Applied, "the event is told later, and knows");
    until_idle(&pool).await;
}

/// A connection that breaks under a COMMIT, after it went through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_an_answer_lost_with_its_connection() {
    let database = Database::new().await;
    run(&mut database.outside().await, SLOW_COMMIT).await;
    let relay = Relay::new().await;
    let pool = Pool::with_options(relay.options(&database)).size(1).build().unwrap();
    let recorder = Recorder::new();
    let op = operation(PLENTY).observed_by(recorder.clone());
    let tx = inserted(&pool, &op).await;
    let breaks = async {
        eventually("its COMMIT", async || (database.running("COMMIT").await == 1).then_some(())).await;
        relay.set(Mode::Deaf);
        eventually("it through", async || (database.rows().await == 1).then_some(())).await;
        relay.set(Mode::Broken);
        tokio::task::yield_now().await;
    };
    let reopens = async {
        breaks.await;
        tokio::time::sleep(ms(100)).await; // all that was open has seen it
        relay.set(Mode::Open);
    };
    let (committed, ()) = tokio::join!(tx.commit(), reopens);
    committed.expect("the server, asked on another connection, says that it went through");
    assert_eq!(recorder.call("charge").await.outcome, Outcome::Applied);
}
