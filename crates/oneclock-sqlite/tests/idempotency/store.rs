//! The rules of a store, and what is SQLite's own: group commit, other processes, files that are busy or odd.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use oneclock_core::idempotency::{Claim, Claimed, Fence, Fingerprint, Key, Owner, Scope, Takeover};
use oneclock_idempotency::{Answer, Settle, Settled, Store as _, StoreError, Which};
use oneclock_sqlite::{BadStore, IdempotencyStore, rusqlite};

use crate::store_rules;
use crate::support::*;

fn scope(key: &str) -> Scope {
    Scope { principal: "shop".into(), method: "POST".into(), route: "charge".into(), key: Key::new(key).unwrap() }
}

fn ask(owner: u128) -> Claim {
    Claim {
        fingerprint: Fingerprint([7; 32]),
        owner: Owner(owner),
        made: None,
        lease: Duration::from_secs(30),
        retention: Duration::from_secs(3600),
        takeover: Takeover::Never,
    }
}

#[tokio::test]
async fn the_store_keeps_the_rules() {
    let folders: std::sync::Mutex<Vec<Folder>> = std::sync::Mutex::default();
    store_rules::all(|clock| {
        let folder = Folder::new();
        let store = folder.builder().clock(clock).build().unwrap();
        folders.lock().unwrap().push(folder);
        store
    })
    .await;
}

#[tokio::test]
async fn m1_many_claims_share_a_commit() {
    let folder = Folder::new();
    let store = folder.builder().build().unwrap();
    let before = store.commits();
    let keys: Vec<Scope> = (0..256).map(|n| scope(&format!("k{n}"))).collect();
    let answers = join_all(keys.iter().map(|scope| async {
        store.claim(scope, &ask(1)).await.unwrap();
        store.settle(scope, Fence(1), Settle::Complete(Answer::new(http::StatusCode::OK, "x"))).await.unwrap()
    }))
    .await;
    assert!(answers.iter().all(|settled| *settled == Settled::Done));
    let after = store.commits();
    assert_eq!(after.held - before.held, 512);
    assert!(after.commits - before.commits <= 128, "{after:?}: 512 requests, and hardly any shared a commit");
}

#[tokio::test]
async fn m1_what_was_answered_is_there_after_a_restart() {
    let folder = Folder::new();
    let claimed = folder.builder().build().unwrap().claim(&scope("k"), &ask(1)).await.unwrap().claimed;
    assert!(matches!(claimed, Claimed::Run { .. }));
    let again = folder.builder().build().unwrap().claim(&scope("k"), &ask(2)).await.unwrap().claimed;
    assert!(matches!(again, Claimed::InProgress { .. }), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn m5_two_processes_on_one_file_agree() {
    let folder = Folder::new();
    let stores: Vec<IdempotencyStore> = (0..2).map(|_| folder.builder().build().unwrap()).collect();
    for key in ["a", "b", "c", "d"] {
        let scope = scope(key);
        let asked: Vec<Claim> = (0..32).map(ask).collect();
        let claims = asked.iter().enumerate().map(|(n, asked)| stores[n % 2].claim(&scope, asked));
        let runs = join_all(claims)
            .await
            .into_iter()
            .filter(|found| matches!(found.as_ref().expect("a store that answers").claimed, Claimed::Run { .. }));
        assert_eq!(runs.count(), 1);
    }
}

#[tokio::test]
async fn m6_a_full_queue_refuses_at_once() {
    let folder = Folder::new();
    let store = folder.builder().queue(4).batch(1).build().unwrap();
    let other = rusqlite::Connection::open(folder.path.join("store.sqlite")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap(); // the writer waits in its first commit
    let keys: Vec<Scope> = (0..64).map(|n| scope(&format!("k{n}"))).collect();
    let asked = ask(1);
    let mut claims = Box::pin(join_all(keys.iter().map(|scope| store.claim(scope, &asked))));
    assert!(futures_util::poll!(&mut claims).is_pending(), "asked, all of them");
    other.execute_batch("ROLLBACK").unwrap();
    let answers = claims.await;
    let full = answers.iter().filter(|answer| matches!(answer, Err(StoreError::Full { places: 4 }))).count();
    assert!((59..=60).contains(&full), "{full} of 64 refused, with 4 places and one in its commit");
    let kept = store.list(Which::All, None, 100).await.unwrap().len();
    assert_eq!(kept, 64 - full, "what was refused was not written");
}

#[tokio::test]
async fn m6_a_file_that_somebody_else_holds_is_an_error_and_not_a_claim() {
    let folder = Folder::new();
    let store = folder.builder().busy_for(ms(50)).build().unwrap();
    let other = rusqlite::Connection::open(folder.path.join("store.sqlite")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(matches!(store.claim(&scope("k"), &ask(1)).await, Err(StoreError::Failed(_))));
    other.execute_batch("ROLLBACK").unwrap();
    assert!(matches!(store.claim(&scope("k"), &ask(1)).await.unwrap().claimed, Claimed::Run { .. }));
}

#[tokio::test]
async fn m6_a_row_that_cannot_be_read_concerns_its_own_key_only() {
    let folder = Folder::new();
    let store = folder.builder().build().unwrap();
    for key in ["odd", "fine"] {
        store.claim(&scope(key), &ask(1)).await.unwrap();
    }
    let other = rusqlite::Connection::open(folder.path.join("store.sqlite")).unwrap();
    other.execute("UPDATE oneclock_idempotency SET state = 'of a later version' WHERE key = 'odd'", []).unwrap();
    let (odd, fine) = (scope("odd"), scope("fine"));
    let asked = ask(2);
    let (odd, fine) = tokio::join!(store.claim(&odd, &asked), store.claim(&fine, &asked));
    assert!(odd.is_err(), "never as if there were none");
    assert!(matches!(fine.unwrap().claimed, Claimed::InProgress { .. }));
}

#[tokio::test]
async fn m4_a_claim_whose_asker_has_left_is_not_made() {
    let folder = Folder::new();
    let store = folder.builder().build().unwrap();
    let other = rusqlite::Connection::open(folder.path.join("store.sqlite")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap(); // so that the writer is held in this claim …
    let held = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&scope("held"), &ask(1)).await.map(|found| found.claimed) }
    });
    tokio::time::sleep(ms(50)).await;
    let left = tokio::time::timeout(ms(20), store.claim(&scope("left"), &ask(1))).await; // … while this one waits
    assert!(left.is_err());
    other.execute_batch("ROLLBACK").unwrap();
    assert!(matches!(held.await.unwrap().unwrap(), Claimed::Run { .. }));
    let kept = store.list(Which::All, None, 9).await.unwrap();
    let keys: Vec<_> = kept.iter().map(|(scope, _)| scope.key.as_str()).collect();
    // It may have been in the same commit as the first, if that began late.
    assert!(keys == ["held"] || keys == ["held", "left"], "{keys:?}");
}

#[tokio::test]
async fn what_was_asked_is_written_when_the_last_clone_goes() {
    let folder = Folder::new();
    let store = folder.builder().build().unwrap();
    store.claim(&scope("k"), &ask(1)).await.unwrap();
    let key = scope("k");
    let mut settling = Box::pin(store.settle(&key, Fence(1), Settle::Release));
    let asked = futures_util::poll!(&mut settling);
    assert!(asked.is_pending());
    drop(settling); // its asker leaves: what became of a run is written all the same
    drop(store);
    let kept = folder.builder().build().unwrap().read(&key).await.unwrap().expect("a record");
    assert_eq!(kept.record.state.as_str(), "failed_retryable");
}

#[test]
fn what_contradicts_itself_shows_at_once() {
    let folder = Folder::new();
    assert!(matches!(folder.builder().batch(0).build(), Err(BadStore::NoPlaces { .. })));
    let nowhere = IdempotencyStore::builder(folder.path.join("no/such/folder/store.sqlite")).build().unwrap_err();
    assert!(nowhere.to_string().starts_with("cannot open the idempotency store"), "{nowhere}");
}

/// The layer over the real store: one run, and the answers of all.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn m10_64_duplicates_over_a_real_file_are_one_run() {
    let folder = Folder::new();
    let (layer, counting) = layer(folder.builder().build().unwrap(), |l| l);
    let sends = (0..64).map(|_| {
        let layer = layer.clone();
        let folder = Arc::new(folder.path.clone());
        tokio::spawn(async move {
            send(&layer, "tap-7", "{}", move |_| {
                let folder = Folder::at((*folder).clone());
                async move {
                    folder.note("effects", "effect");
                    created("receipt")
                }
            })
            .await
        })
    });
    for answer in join_all(sends).await {
        assert_eq!(answer.unwrap(), (201, "receipt".to_owned()));
    }
    assert_eq!((folder.notes("effects").lines().count(), counting.count("keyed ran")), (1, 1));
}

/// What it acknowledges would be gone with the process, or with the machine.
#[test]
fn m1_a_database_without_a_write_ahead_log_is_refused() {
    for path in [":memory:", ""] {
        let refused = IdempotencyStore::builder(path).build();
        assert!(matches!(refused, Err(BadStore::NotDurable { .. })), "{path:?}: {:?}", refused.map(drop));
    }
}

/// A file of a version in which nothing could be queued: its rows are read, and an index takes part in reaping what is queued now.
#[tokio::test]
async fn a_file_from_before_there_was_a_queue_is_read() {
    let folder = Folder::new();
    let store = folder.builder().build().unwrap();
    store.claim(&scope("old"), &ask(1)).await.unwrap();
    store.settle(&scope("old"), Fence(1), Settle::Complete(Answer::new(http::StatusCode::OK, "x"))).await.unwrap();
    drop(store);
    let indexes = |connection: &rusqlite::Connection| {
        let mut select =
            connection.prepare("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE INDEX%' ORDER BY name").unwrap();
        let names = select.query_map([], |row| row.get::<_, String>(0)).unwrap();
        names.map(Result::unwrap).collect::<Vec<_>>()
    };
    let other = rusqlite::Connection::open(folder.path.join("store.sqlite")).unwrap();
    other
        .execute_batch(
            "DROP INDEX oneclock_idempotency_not_open;
             CREATE INDEX oneclock_idempotency_settled ON oneclock_idempotency (expires)
             WHERE state IN ('completed', 'failed_retryable');",
        )
        .unwrap();
    let store = folder.builder().build().unwrap();
    assert!(store.read(&scope("old")).await.unwrap().expect("a record").answer.is_some());
    assert_eq!(indexes(&other), ["oneclock_idempotency_not_open", "oneclock_idempotency_open"]);
}
