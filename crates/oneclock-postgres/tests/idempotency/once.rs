//! The record, the work and the completion in one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use oneclock::Operation;
use oneclock_core::Outcome;
use oneclock_core::idempotency::{Claim, Claimed, Doubt, Fence, Fingerprint, Refusal};
use oneclock_idempotency::{Answer, Settle, Store as _};
use oneclock_postgres::{IdempotencyStore, NotOnce, Once, PgError, Pool, Transaction};
use tokio::sync::oneshot;

use crate::records::{ask, scope, store_in};
use crate::relay::Relay;
use crate::support::{BOUND, Database, ms, patient, rows, running, until};

/// A store, and a table for the effects.
async fn shop(database: &Database) -> IdempotencyStore {
    let store = store_in(&database.config(), "public").build().unwrap();
    store.create().await.unwrap();
    database.outside().await.batch_execute("CREATE TABLE effects (what text)").await.unwrap();
    store
}

async fn effect(tx: &mut Transaction<'_>) -> Result<(), PgError> {
    tx.execute("INSERT INTO effects VALUES ('charge')", &[]).await.map(|_| ())
}

fn receipt(of: &str) -> Answer {
    Answer::new(http::StatusCode::CREATED, of.to_owned())
}

async fn charges(store: &IdempotencyStore, key: &str, ask: &Claim) -> Result<Once, NotOnce<PgError>> {
    let work = async |tx: &mut Transaction<'_>| {
        effect(tx).await?;
        Ok(receipt("receipt"))
    };
    store.once_in(&patient(), "charge", &scope(key), ask, work).await
}

#[tokio::test]
async fn m1_the_work_and_its_record_are_committed_together() {
    let database = Database::new().await;
    let store = shop(&database).await;
    let outside = database.outside().await;
    assert_eq!(charges(&store, "k", &ask(1)).await.unwrap(), Once::Ran(receipt("receipt")));
    assert_eq!(charges(&store, "k", &ask(2)).await.unwrap(), Once::Replayed(receipt("receipt")));
    let other = Claim { fingerprint: Fingerprint([8; 32]), ..ask(3) };
    assert_eq!(charges(&store, "k", &other).await.unwrap(), Once::Refused(Refusal::OtherFingerprint));
    assert_eq!(rows(&outside, "effects").await, 1);
    assert_eq!(store.claim(&scope("k"), &ask(4)).await.unwrap().claimed, Claimed::Completed, "the same record");
    let xids = "SELECT count(DISTINCT x) FROM (SELECT xmin::text AS x FROM effects UNION ALL \
                SELECT xmin::text FROM oneclock_idempotency) AS all_rows";
    assert_eq!(outside.query_one(xids, &[]).await.unwrap().get::<_, i64>(0), 1, "of one transaction");
}

#[tokio::test]
async fn m4_what_failed_was_rolled_back_and_the_next_one_runs() {
    let database = Database::new().await;
    let store = shop(&database).await;
    let outside = database.outside().await;
    let failed = store
        .once_in(&patient(), "charge", &scope("k"), &ask(1), async |tx| {
            effect(tx).await.map_err(|error| error.to_string())?;
            Err::<Answer, _>("no stock".to_owned())
        })
        .await;
    let Err(error @ NotOnce::Work(_)) = failed else { panic!("{failed:?}") };
    assert_eq!(error.outcome(), Outcome::Rejected);
    // One that goes on after a statement of its own has failed commits nothing either.
    let failed = store
        .once_in(&patient(), "charge", &scope("k"), &ask(2), async |tx| {
            effect(tx).await?;
            let _ = tx.execute("INSERT INTO nowhere VALUES (1)", &[]).await;
            Ok::<_, PgError>(receipt("a lie"))
        })
        .await;
    assert_eq!(failed.unwrap_err().outcome(), Outcome::Rejected);
    assert!(store.read(&scope("k")).await.unwrap().is_none());
    assert_eq!(rows(&outside, "effects").await, 0);
    assert_eq!(charges(&store, "k", &ask(3)).await.unwrap(), Once::Ran(receipt("receipt")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn m7_64_duplicates_wait_and_get_the_one_answer() {
    let database = Database::new().await;
    let store = shop(&database).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let duplicates = (0..64).map(|n| {
        let (store, ran) = (store.clone(), Arc::clone(&ran));
        tokio::spawn(async move {
            let other = n % 8 == 7;
            let asked = Claim { fingerprint: Fingerprint([if other { 8 } else { 7 }; 32]), ..ask(n) };
            let work = async |tx: &mut Transaction<'_>| {
                ran.fetch_add(1, Ordering::Relaxed);
                effect(tx).await?;
                tokio::time::sleep(ms(50)).await;
                Ok::<_, PgError>(receipt(if other { "another" } else { "receipt" }))
            };
            (other, store.once_in(&patient(), "charge", &scope("k"), &asked, work).await.unwrap())
        })
    });
    let told: Vec<_> = join_all(duplicates).await.into_iter().map(|told| told.unwrap()).collect();
    let ran_as = told.iter().find(|(_, once)| matches!(once, Once::Ran(_))).expect("one ran").0;
    for (other, once) in &told {
        match once {
            Once::Ran(_) | Once::Replayed(_) => assert_eq!(*other, ran_as, "{told:?}"),
            Once::Refused(refusal) => assert_eq!((*refusal, *other), (Refusal::OtherFingerprint, !ran_as)),
        }
    }
    assert_eq!(told.iter().filter(|(_, once)| matches!(once, Once::Ran(_))).count(), 1);
    assert_eq!((ran.load(Ordering::Relaxed), rows(&database.outside().await, "effects").await), (1, 1));
}

/// Holds the key in a transaction until told how to end.
async fn held(store: &IdempotencyStore) -> (oneshot::Sender<bool>, tokio::task::JoinHandle<bool>) {
    let (begun, has_begun) = oneshot::channel();
    let (end, ends) = oneshot::channel();
    let store = store.clone();
    let holding = tokio::spawn(async move {
        let work = async |tx: &mut Transaction<'_>| {
            effect(tx).await.map_err(|error| error.to_string())?;
            begun.send(()).unwrap();
            if ends.await.unwrap() { Ok(receipt("receipt")) } else { Err("rolled back".to_owned()) }
        };
        store.once_in(&patient(), "charge", &scope("k"), &ask(1), work).await.is_ok()
    });
    tokio::time::timeout(BOUND, has_begun).await.unwrap().unwrap();
    (end, holding)
}

/// How many backends wait for somebody's transaction.
async fn waiting(database: &Database) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'";
    database.outside().await.query_one(sql, &[&database.name]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m7_a_duplicate_of_what_is_rolled_back_runs_itself() {
    let database = Database::new().await;
    let store = shop(&database).await;
    let (end, holding) = held(&store).await;
    let second = tokio::spawn({
        let store = store.clone();
        async move { charges(&store, "k", &ask(2)).await.unwrap() }
    });
    until("the duplicate waiting", || async { waiting(&database).await == 1 }).await;
    end.send(false).unwrap();
    assert_eq!(second.await.unwrap(), Once::Ran(receipt("receipt")));
    assert!(!holding.await.unwrap());
    assert_eq!(rows(&database.outside().await, "effects").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m7_a_duplicate_waits_no_longer_than_it_may() {
    let database = Database::new().await;
    let store = shop(&database).await;
    let impatient = store_in(&database.config(), "public").wait_at_most(ms(200)).build().unwrap();
    let (end, holding) = held(&store).await;
    assert_eq!(charges(&impatient, "k", &ask(2)).await.unwrap(), Once::Refused(Refusal::InProgress));
    // Its caller's time is a bound as well, with something left for the way home.
    let short = Operation::begin("short", Duration::from_secs(1));
    let work = async |_: &mut Transaction<'_>| -> Result<Answer, PgError> { panic!("it ran") };
    let told = store.once_in(&short, "charge", &scope("k"), &ask(3), work).await;
    // On a machine that is busy its deadline may come first: then nothing was committed.
    match told {
        Ok(told) => assert_eq!(told, Once::Refused(Refusal::InProgress)),
        Err(error) => assert_eq!(error.outcome(), Outcome::Rejected, "{error:?}"),
    }
    end.send(true).unwrap();
    assert!(holding.await.unwrap());
    assert_eq!(charges(&impatient, "k", &ask(4)).await.unwrap(), Once::Replayed(receipt("receipt")));
}

/// The bound of the wait is not left to the work, nor to who borrows the connection next.
#[tokio::test]
async fn d7_the_bound_of_the_wait_is_gone_when_the_work_begins() {
    let database = Database::new().await;
    let store = shop(&database).await;
    let shown = store
        .once_in(&patient(), "charge", &scope("k"), &ask(1), async |tx| {
            let row = tx.query_one("SHOW lock_timeout", &[]).await?;
            Ok::<_, PgError>(receipt(row.get(0)))
        })
        .await;
    assert_eq!(shown.unwrap(), Once::Ran(receipt("0")));
}

#[tokio::test]
async fn m10_the_deadline_rolls_back_and_the_next_one_runs() {
    let database = Database::new().await;
    let store = shop(&database).await;
    let short = Operation::begin("short", ms(700));
    let cut_off = store
        .once_in(&short, "charge", &scope("k"), &ask(1), async |tx| {
            effect(tx).await?;
            tx.query("SELECT pg_sleep(60)", &[]).await?;
            Ok::<_, PgError>(receipt("late"))
        })
        .await;
    assert_eq!(cut_off.unwrap_err().outcome(), Outcome::Rejected);
    assert_eq!(charges(&store, "k", &ask(2)).await.unwrap(), Once::Ran(receipt("receipt")));
    assert_eq!(rows(&database.outside().await, "effects").await, 1);
}

/// Records of runs under leases are respected: those in progress and those of which nothing is known.
#[tokio::test]
async fn m3_a_run_under_a_lease_is_not_joined() {
    let database = Database::new().await;
    let store = shop(&database).await;
    for key in ["busy", "unknown", "free"] {
        assert!(matches!(store.claim(&scope(key), &ask(1)).await.unwrap().claimed, Claimed::Run { .. }));
    }
    store.settle(&scope("unknown"), Fence(1), Settle::Doubt(Doubt::CutOff)).await.unwrap();
    store.settle(&scope("free"), Fence(1), Settle::Release).await.unwrap();
    assert_eq!(charges(&store, "busy", &ask(2)).await.unwrap(), Once::Refused(Refusal::InProgress));
    assert_eq!(charges(&store, "unknown", &ask(2)).await.unwrap(), Once::Refused(Refusal::OutcomeUnknown));
    assert_eq!(charges(&store, "free", &ask(2)).await.unwrap(), Once::Ran(receipt("receipt")));
    assert_eq!(store.read(&scope("free")).await.unwrap().unwrap().record.fence, Fence(2), "fences grow");
}

/// COMMIT goes through and nobody hears of it, nor of what the server is asked about it: the caller is told that it is not
/// known. Asked again with the key, the record knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_after_a_lost_commit_the_record_says_what_became_of_it() {
    let database = Database::new().await;
    let store = shop(&database).await;
    let outside = database.outside().await;
    // A COMMIT that waits until it may go on.
    let gate = "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NULL; END $$;
                CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
                    FOR EACH ROW EXECUTE FUNCTION gate();
                SELECT pg_advisory_lock(77)";
    outside.batch_execute(gate).await.unwrap();
    let relay = Relay::to(&database.config()).await;
    let pool = Pool::configured(relay.through(&database.config())).commit_bound(ms(4_000)).build().unwrap();
    let deaf = IdempotencyStore::builder(pool).within(BOUND).build().unwrap();
    let asked = ask(1);
    let lost = charges(&deaf, "k", &asked);
    let losing = async {
        until("the commit", async || running(&outside, &database, "COMMIT").await == 1).await;
        relay.set(|switches| &switches.refuses, true);
        relay.set(|switches| &switches.swallows_answers, true);
        outside.batch_execute("SELECT pg_advisory_unlock(77)").await.unwrap();
        until("its effect", async || rows(&outside, "effects").await == 1).await;
        relay.cut();
    };
    let (lost, ()) = tokio::join!(lost, losing);
    let error = lost.unwrap_err();
    assert!(matches!((&error, error.outcome()), (NotOnce::Commit(_), Outcome::Unknown { .. })), "{error:?}");
    assert_eq!(charges(&store, "k", &ask(2)).await.unwrap(), Once::Replayed(receipt("receipt")));
    assert_eq!(rows(&outside, "effects").await, 1);
}
