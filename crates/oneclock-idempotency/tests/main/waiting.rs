//! Waiting at the monitor for a change: by a preference, within the caller's own time, and not too many at once.

use std::time::Duration;

use futures_util::future::join_all;
use http::Request;
use oneclock::clock;
use oneclock_core::idempotency::{Claim, Enqueue, Fence, Fingerprint, Handle, Key, Owner, Scope, Takeover};
use oneclock_idempotency::{Answer, MemoryStore, Monitor, Settle, Store};
use tower::ServiceExt as _;

use crate::support::*;

fn scope() -> Scope {
    Scope { principal: "-".into(), method: "DELIVER".into(), route: "mails".into(), key: Key::new("tap-7").unwrap() }
}

/// One record that is queued.
async fn queued<St: Store>(store: &St) {
    let (fingerprint, owner) = (Fingerprint([7; 32]), Owner(1));
    let ask = Enqueue { fingerprint, owner, made: None, retention: Duration::from_secs(3600) };
    store.enqueue(&scope(), &ask).await.unwrap();
}

async fn begins<St: Store>(store: &St) {
    let claim = Claim {
        fingerprint: Fingerprint([7; 32]),
        owner: Owner(2),
        made: None,
        lease: Duration::from_secs(30),
        retention: Duration::from_secs(3600),
        takeover: Takeover::Never,
    };
    store.claim(&scope(), &claim).await.unwrap();
}

/// What the monitor says, and how long that took.
async fn look<St: Store>(monitor: Monitor<St>, prefer: &str) -> (Got, Duration) {
    let asked = clock::now();
    let path = format!("/operations/{}", Handle::of(&scope()));
    let request = Request::get(path).header("prefer", prefer).body(()).unwrap();
    let got = got(monitor.oneshot(request).await.unwrap()).await;
    (got, clock::now().since(asked))
}

fn applied(got: &Got) -> bool {
    got.headers.get("preference-applied").is_some_and(|applied| applied == "wait")
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_at_the_moment_of_the_change() {
    let store = MemoryStore::with_clock(paused_wall);
    queued(&store).await;
    let (layer, _) = layer(store.clone(), |l| l);
    let changes = async {
        tokio::time::sleep(ms(7_777)).await;
        begins(&store).await;
    };
    let ((got, took), ()) = tokio::join!(look(layer.monitor(), "wait=30"), changes);
    assert_eq!((took, applied(&got)), (ms(7_777), true), "and not when it looks again");
    assert!(got.body.contains(r#""state":"in_progress""#), "{got:?}");
    store.settle(&scope(), Fence(2), Settle::Complete(Answer::new(http::StatusCode::OK, "x"))).await.unwrap();
    let (got, took) = look(layer.monitor(), "wait=30").await;
    assert_eq!((took, applied(&got)), (Duration::ZERO, true), "what is completed stays so");
    assert!(got.body.contains(r#""status":200"#), "{got:?}");
}

/// Of a store that does not tell: another process made the change.
#[tokio::test(start_paused = true)]
async fn who_waits_looks_again_now_and_then() {
    let store = Moody::new();
    queued(&store).await;
    let (layer, _) = layer(store.clone(), |l| l);
    let changes = async {
        tokio::time::sleep(ms(7_777)).await;
        begins(&store.inner).await;
    };
    let ((got, took), ()) = tokio::join!(look(layer.monitor(), "wait=30"), changes);
    assert!(got.body.contains(r#""state":"in_progress""#), "{got:?}");
    assert!(took >= ms(7_777) && took <= ms(8_777), "{took:?}: a second later at the latest");
    let looks = store.log.lock().unwrap().iter().filter(|asked| **asked == "read").count();
    assert!(looks < 20, "{looks} looks in {took:?}");
}

#[tokio::test(start_paused = true)]
async fn n4_nobody_waits_beyond_its_own_time() {
    let store = MemoryStore::with_clock(paused_wall);
    queued(&store).await;
    let (layer, _) = layer(store, |l| l.reserve(ms(20)));
    for (prefer, budget, want) in [
        ("wait=2", 5_000, 2_000),
        ("wait=60", 1_000, 980),
        ("wait=600", 900_000, 60_000),
        ("wait=60", 20, 0),
        ("wait=0", 900, 0),
    ] {
        let caller = oneclock::Operation::begin("caller", ms(budget));
        let (got, took) = caller.run(look(layer.monitor(), prefer)).await.expect("within its time");
        assert_eq!((got.status, took, applied(&got)), (200, ms(want), want > 0), "{prefer} of {budget} ms");
        assert!(got.body.contains(r#""state":"queued""#), "{got:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_so_many_wait() {
    let store = MemoryStore::with_clock(paused_wall);
    queued(&store).await;
    let (layer, _) = layer(store.clone(), |l| l);
    let monitor = layer.monitor().max_waiting(3);
    let told = join_all((0..8).map(|_| look(monitor.clone(), "wait=5"))).await;
    let waited = told.iter().filter(|(got, took)| applied(got) && *took == ms(5_000)).count();
    let at_once = told.iter().filter(|(got, took)| got.status == 200 && !applied(got) && took.is_zero()).count();
    assert_eq!((waited, at_once), (3, 5));
    // Their places are free again, also of one that left.
    drop(futures_util::poll!(Box::pin(look(monitor.clone(), "wait=5"))));
    let told = join_all((0..3).map(|_| look(monitor.clone(), "wait=1"))).await;
    assert!(told.iter().all(|(got, _)| applied(got)));
    assert_eq!(format!("{:?}", store.changes().unwrap()), "Changes { waited_for: 0 }", "nothing is left behind");
}

#[tokio::test(start_paused = true)]
async fn m6_a_store_that_cannot_be_asked_is_not_waited_for_in_silence() {
    let store = Moody::new();
    queued(&store).await;
    let (layer, _) = layer(store.clone(), |l| l);
    let goes = async {
        tokio::time::sleep(ms(500)).await;
        store.gone.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    let ((got, took), ()) = tokio::join!(look(layer.monitor(), "wait=5"), goes);
    assert_eq!((got.status, took), (503, ms(5_000)), "{got:?}");
    let (got, took) = look(layer.monitor(), "wait=5").await;
    assert_eq!((got.status, took), (503, Duration::ZERO), "{got:?}");
}
