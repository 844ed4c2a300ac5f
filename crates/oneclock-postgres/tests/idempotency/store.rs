//! The rules of a store, and what is PostgreSQL's own: several pools on one table, sessions that do not wait for the disk,
//! tables that somebody holds, rows that are odd.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use oneclock_core::idempotency::{Claim, Claimed, Fingerprint};
use oneclock_idempotency::{Store as _, StoreError};
use oneclock_postgres::{BadStore, IdempotencyStore, Pool};

use crate::notes::{created, layer, send};
use crate::records::{ask, make_schema, scope, store_in};
use crate::store_rules;
use crate::support::{Database, connect, ms, until};

#[tokio::test]
async fn the_store_keeps_the_rules() {
    let database = Database::new().await;
    let config = database.config();
    for n in 0..12 {
        make_schema(&config, &format!("rules_{n}")).await;
    }
    let next = AtomicUsize::new(0);
    store_rules::all(|clock| {
        let n = next.fetch_add(1, Ordering::Relaxed);
        store_in(&config, &format!("rules_{n}")).clock(clock).build().unwrap()
    })
    .await;
    assert!(next.into_inner() <= 12, "more rules than schemas: make more");
}

#[tokio::test]
async fn many_make_the_tables_at_the_same_time() {
    let database = Database::new().await;
    let stores: Vec<_> = (0..8).map(|_| store_in(&database.config(), "public").build().unwrap()).collect();
    for made in join_all(stores.iter().map(IdempotencyStore::create)).await {
        made.unwrap();
    }
    stores[0].create().await.expect("again, later");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn m5_several_processes_on_one_table_agree() {
    let database = Database::new().await;
    let stores: Vec<_> = (0..3).map(|_| store_in(&database.config(), "public").build().unwrap()).collect();
    stores[0].create().await.unwrap();
    for key in ["a", "b", "c", "d"] {
        let scope = scope(key);
        let asked: Vec<Claim> = (0..48).map(ask).collect();
        let claims = asked.iter().enumerate().map(|(n, asked)| stores[n % 3].claim(&scope, asked));
        let found = join_all(claims).await;
        let runs = found
            .iter()
            .filter(|found| matches!(found.as_ref().expect("a store that answers").claimed, Claimed::Run { .. }));
        assert_eq!(runs.count(), 1, "{found:?}");
    }
}

#[tokio::test]
async fn m1_a_session_that_does_not_wait_for_the_disk_gets_no_claim() {
    let database = Database::new().await;
    store_in(&database.config(), "public").build().unwrap().create().await.unwrap();
    let mut config = database.config();
    config.options("-c synchronous_commit=off");
    let store = IdempotencyStore::builder(Pool::configured(config).build().unwrap()).build().unwrap();
    let Err(StoreError::Failed(error)) = store.claim(&scope("k"), &ask(1)).await else { panic!("a claim") };
    assert!(error.to_string().starts_with("synchronous_commit is off"), "{error}");
    assert!(store.read(&scope("k")).await.unwrap().is_none());
}

#[tokio::test]
async fn m6_a_row_that_cannot_be_read_concerns_its_own_key_only() {
    let database = Database::new().await;
    let store = store_in(&database.config(), "public").build().unwrap();
    store.create().await.unwrap();
    for key in ["odd", "fine"] {
        store.claim(&scope(key), &ask(1)).await.unwrap();
    }
    let outside = database.outside().await;
    let odd = "UPDATE oneclock_idempotency SET state = 'of a later version' WHERE key = 'odd'";
    outside.batch_execute(odd).await.unwrap();
    assert!(store.claim(&scope("odd"), &ask(2)).await.is_err(), "never as if there were none");
    assert!(matches!(store.claim(&scope("fine"), &ask(2)).await.unwrap().claimed, Claimed::InProgress { .. }));
}

/// The layer over the real store: one run, and the answers of all; and of those with another body, none.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn m10_64_duplicates_over_two_services_are_one_run() {
    let database = Database::new().await;
    let config = database.config();
    store_in(&config, "public").build().unwrap().create().await.unwrap();
    let services: Vec<_> = (0..2).map(|_| layer(store_in(&config, "public").build().unwrap(), |l| l).0).collect();
    let effects = Arc::new(AtomicUsize::new(0));
    let one = |n: usize, body: &'static str| {
        let (service, effects) = (services[n % 2].clone(), Arc::clone(&effects));
        tokio::spawn(async move {
            send(&service, "tap-7", body, move |_| {
                let effects = Arc::clone(&effects);
                async move {
                    effects.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(ms(50)).await;
                    created("receipt")
                }
            })
            .await
        })
    };
    // Of two services one has the run; in the other one duplicates look at the record until it is settled.
    let first = join_all((0..64).map(|n| one(n, "{}"))).await;
    let answers: Vec<_> = first.into_iter().map(|answer| answer.unwrap()).collect();
    assert!(answers.iter().all(|answer| *answer == (201, "receipt".to_owned())), "{answers:?}");
    for (body, want) in [("{\"other\":1}", 422), ("{}", 201)] {
        for answer in join_all((0..64).map(|n| one(n, body))).await {
            assert_eq!(answer.unwrap().0, want, "{body}");
        }
    }
    assert_eq!(effects.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn m8_another_request_with_the_key_is_told_so_in_every_state() {
    let database = Database::new().await;
    let store = store_in(&database.config(), "public").build().unwrap();
    store.create().await.unwrap();
    store.claim(&scope("k"), &ask(1)).await.unwrap();
    let other = Claim { fingerprint: Fingerprint([8; 32]), ..ask(2) };
    assert_eq!(store.claim(&scope("k"), &other).await.unwrap().claimed, Claimed::OtherFingerprint);
}

/// The table is held by somebody: the store is slow. Nothing runs, and afterwards the key is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn m6_a_store_that_is_too_slow_lets_nothing_run_and_keeps_nothing() {
    let database = Database::new().await;
    let store = store_in(&database.config(), "public").within(ms(1_000)).build().unwrap();
    store.create().await.unwrap();
    let outside = connect(&database.config()).await;
    outside.batch_execute("BEGIN; LOCK TABLE oneclock_idempotency IN EXCLUSIVE MODE").await.unwrap();
    let (slow, _) = layer(store, |l| l.claim_within(ms(300)));
    let sends = (0..16).map(|_| send(&slow, "k", "{}", |_| async { panic!("it ran") }));
    for answer in join_all(sends).await {
        assert_eq!(answer.0, 503, "{answer:?}");
    }
    outside.batch_execute("ROLLBACK").await.unwrap();
    until("the withdrawal", || async { slow.runs() == 0 }).await;
    let answer = send(&slow, "k", "{}", |_| async { created("receipt") }).await;
    assert_eq!(answer, (201, "receipt".to_owned()), "a claim whose answer was lost is withdrawn");
}

#[tokio::test]
async fn m6_a_store_that_is_gone_lets_nothing_run() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let pool = Pool::builder(format!("postgres://postgres@{nobody}/none")).build().unwrap();
    let store = IdempotencyStore::builder(pool).within(ms(200)).build().unwrap();
    let (gone, _) = layer(store, |l| l.claim_within(ms(300)).record_within(ms(300)));
    let answer = send(&gone, "k", "{}", |_| async { panic!("it ran") }).await;
    assert_eq!(answer.0, 503, "{answer:?}");
}

#[test]
fn what_contradicts_itself_shows_at_once() {
    let pool = Pool::builder("postgres://postgres@127.0.0.1/none").build().unwrap();
    let error = IdempotencyStore::builder(pool).within(ms(0)).build().unwrap_err();
    assert!(matches!(error, BadStore::NoTime), "{error}");
}

/// Tables of a version in which nothing could be queued: their rows are read, and an index takes part in reaping what is queued now.
#[tokio::test]
async fn tables_from_before_there_was_a_queue_are_read() {
    let database = Database::new().await;
    let store = store_in(&database.config(), "public").build().unwrap();
    store.create().await.unwrap();
    store.claim(&scope("old"), &ask(1)).await.unwrap();
    let outside = database.outside().await;
    outside
        .batch_execute(
            "DROP INDEX oneclock_idempotency_not_open;
             CREATE INDEX oneclock_idempotency_settled ON oneclock_idempotency (expires)
             WHERE state IN ('completed', 'failed_retryable')",
        )
        .await
        .unwrap();
    store.create().await.unwrap();
    assert!(matches!(store.claim(&scope("old"), &ask(2)).await.unwrap().claimed, Claimed::InProgress { .. }));
    let names = "SELECT indexname FROM pg_indexes WHERE tablename = 'oneclock_idempotency' ORDER BY indexname";
    let names: Vec<String> = outside.query(names, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let want = ["oneclock_idempotency_not_open", "oneclock_idempotency_open", "oneclock_idempotency_pkey"];
    assert_eq!(names, want);
}
