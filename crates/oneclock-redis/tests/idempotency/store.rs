//! The rules of a store, and what is Redis' own: time to live, names on a shared server, a server that forgets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use oneclock_core::idempotency::{Claim, Claimed, Fence, Fingerprint, Key, Owner, Scope, State, Takeover};
use oneclock_idempotency::{Answer, Settle, Settled, Store as _, Which};
use oneclock_redis::{BadStore, IdempotencyStore, IdempotencyStoreBuilder, redis};

use crate::store_rules;
use crate::support::{BOUND, Server, address, client, ms};

/// What the keys of one test begin with; they go with it.
pub(crate) struct Prefix(pub(crate) String);

impl Prefix {
    pub(crate) fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        Self(format!("oneclock-test:idempotency:{}:{n}", std::process::id()))
    }

    fn store(&self) -> IdempotencyStoreBuilder {
        IdempotencyStore::builder(client(|redis| redis)).prefix(&self.0).within(BOUND)
    }

    /// Its keys, without what they begin with.
    fn keys(&self) -> Vec<Vec<u8>> {
        let mut connection = redis::Client::open(address()).unwrap().get_connection().unwrap();
        redis::cmd("KEYS").arg(format!("{}:*", self.0)).query(&mut connection).unwrap()
    }
}

impl Drop for Prefix {
    fn drop(&mut self) {
        let keys = self.keys();
        if !keys.is_empty() {
            let mut connection = redis::Client::open(address()).unwrap().get_connection().unwrap();
            let _: Result<(), _> = redis::cmd("DEL").arg(keys).query(&mut connection);
        }
    }
}

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

fn receipt() -> Settle {
    Settle::Complete(Answer::new(http::StatusCode::CREATED, "receipt"))
}

#[tokio::test]
async fn the_store_keeps_the_rules() {
    let prefix = Prefix::new();
    let next = AtomicUsize::new(0);
    store_rules::all(|clock| {
        let n = next.fetch_add(1, Ordering::Relaxed);
        prefix.store().prefix(&format!("{}:{n}", prefix.0)).clock(clock).build().unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn m5_several_processes_on_one_server_agree() {
    let prefix = Prefix::new();
    let stores: Vec<_> = (0..3).map(|_| prefix.store().build().unwrap()).collect();
    for key in ["a", "b", "c", "d"] {
        let scope = scope(key);
        let asked: Vec<Claim> = (0..64)
            .map(|n| Claim { fingerprint: Fingerprint([if n % 4 == 0 { 8 } else { 7 }; 32]), ..ask(n) })
            .collect();
        let claims = asked.iter().enumerate().map(|(n, asked)| stores[n % 3].claim(&scope, asked));
        let found: Vec<_> = join_all(claims).await.into_iter().map(|found| found.unwrap().claimed).collect();
        let ran = found.iter().position(|claimed| matches!(claimed, Claimed::Run { .. })).expect("one runs");
        for (asked_by, claimed) in asked.iter().zip(&found) {
            match claimed {
                Claimed::Run { fence, .. } => assert_eq!((*fence, asked_by.owner), (Fence(1), asked[ran].owner)),
                Claimed::InProgress { .. } => assert_eq!(asked_by.fingerprint, asked[ran].fingerprint),
                other => assert_eq!(
                    (*other, asked_by.fingerprint == asked[ran].fingerprint),
                    (Claimed::OtherFingerprint, false)
                ),
            }
        }
    }
}

/// On the server's own clock.
#[tokio::test]
async fn m3_a_lease_lapses_and_who_comes_late_is_fenced_off() {
    let prefix = Prefix::new();
    let store = prefix.store().build().unwrap();
    let short = Claim { lease: ms(1), ..ask(1) };
    assert!(matches!(store.claim(&scope("k"), &short).await.unwrap().claimed, Claimed::Run { .. }));
    tokio::time::sleep(ms(20)).await; // the lease itself is what is waited for
    assert!(matches!(store.read(&scope("k")).await.unwrap().unwrap().record.state, State::Unknown(_)));
    assert_eq!(store.list(Which::Unknown, None, 10).await.unwrap().len(), 1);
    let safe = Claim { takeover: Takeover::DeclaredSafe, ..ask(2) };
    let taken = store.claim(&scope("k"), &safe).await.unwrap().claimed;
    assert_eq!(taken, Claimed::Run { fence: Fence(2), taken_over: true });
    let late = store.settle(&scope("k"), Fence(1), receipt()).await.unwrap();
    assert_eq!(late, Settled::Fenced { current: Fence(2) });
    assert_eq!(store.settle(&scope("k"), Fence(2), receipt()).await.unwrap(), Settled::Done);
}

/// What is settled goes by itself when its retention is over, and fences grow over it; what is open stays.
#[tokio::test]
async fn m9_a_settled_record_goes_by_itself() {
    let prefix = Prefix::new();
    let store = prefix.store().build().unwrap();
    let brief = Claim { retention: ms(200), ..ask(1) };
    for key in ["done", "open"] {
        store.claim(&scope(key), &brief).await.unwrap();
    }
    store.settle(&scope("done"), Fence(1), receipt()).await.unwrap();
    let gone = async {
        while store.read(&scope("done")).await.unwrap().is_some() {
            tokio::time::sleep(ms(10)).await;
        }
    };
    tokio::time::timeout(BOUND, gone).await.expect("it goes");
    assert!(store.read(&scope("open")).await.unwrap().is_some());
    let listed = store.list(Which::All, None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|(scope, _)| scope.key.as_str()).collect::<Vec<_>>(), ["open"]);
    let again = store.claim(&scope("done"), &ask(2)).await.unwrap().claimed;
    assert_eq!(again, Claimed::Run { fence: Fence(2), taken_over: false }, "fences grow");
    assert_eq!(store.reap(10).await.unwrap(), 0, "it is a new record, and open");
}

#[tokio::test]
async fn reaping_leaves_nothing_behind_but_the_highest_fence() {
    let prefix = Prefix::new();
    let store = prefix.store().build().unwrap();
    for n in 0..5 {
        let key = scope(&format!("k{n}"));
        let Claimed::Run { fence, .. } =
            store.claim(&key, &Claim { retention: ms(1), ..ask(1) }).await.unwrap().claimed
        else {
            panic!("no run");
        };
        store.settle(&key, fence, receipt()).await.unwrap();
    }
    let mut gone = 0;
    let all = async {
        while gone < 5 {
            gone += store.reap(2).await.unwrap();
        }
    };
    tokio::time::timeout(BOUND, all).await.expect("they go");
    assert_eq!(prefix.keys(), [format!("{}:floor", prefix.0).into_bytes()]);
}

/// Why it is best effort: what this server answered is gone with it, and a duplicate runs.
#[tokio::test]
async fn a_server_that_keeps_nothing_forgets_what_it_acknowledged() {
    let mut server = Server::start();
    let store = IdempotencyStore::builder(server.client(|redis| redis)).within(BOUND).build().unwrap();
    assert!(matches!(store.claim(&scope("k"), &ask(1)).await.unwrap().claimed, Claimed::Run { .. }));
    assert!(matches!(store.claim(&scope("k"), &ask(2)).await.unwrap().claimed, Claimed::InProgress { .. }));
    server.restart();
    let asking = async {
        loop {
            // The first call may still meet the old connection.
            if let Ok(found) = store.claim(&scope("k"), &ask(2)).await {
                return found.claimed;
            }
        }
    };
    let claimed = tokio::time::timeout(BOUND, asking).await.expect("the server is back");
    assert!(matches!(claimed, Claimed::Run { .. }), "{claimed:?}");
}

#[tokio::test]
async fn m6_a_server_that_is_gone_gives_no_claim() {
    let mut server = Server::start();
    let store = IdempotencyStore::builder(server.client(|redis| redis)).within(ms(300)).build().unwrap();
    server.kill();
    assert!(store.claim(&scope("k"), &ask(1)).await.is_err());
    let error = IdempotencyStore::builder(server.client(|redis| redis)).within(ms(0)).build().unwrap_err();
    assert!(matches!(error, BadStore::NoTime), "{error}");
}
