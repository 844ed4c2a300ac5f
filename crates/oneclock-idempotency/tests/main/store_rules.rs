//! What every store must do. Each crate with a store includes this file by its path.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use oneclock_core::idempotency::{
    Claim, Claimed, Doubt, Enqueue, Enqueued, Fence, Fingerprint, Key, Owner, Scope, State, Takeover,
};
use oneclock_core::wire::Wall;
use oneclock_idempotency::*;

const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(3600);

/// Every rule, each on a store of its own, made with a clock that the rule moves.
pub(crate) async fn all<St: Store>(make: impl Fn(Box<dyn Fn() -> Wall + Send + Sync>) -> St) {
    let clock = Arc::new(AtomicU64::new(1_000_000_000_000_000_000));
    let store = || {
        let clock = Arc::clone(&clock);
        make(Box::new(move || Wall::from_nanos(clock.load(Ordering::SeqCst))))
    };
    let passes = |span: Duration| {
        clock.fetch_add(u64::try_from(span.as_nanos()).unwrap(), Ordering::SeqCst);
    };
    one_run_and_its_replay(&store()).await;
    one_of_many_claims_runs(&store()).await;
    a_lapsed_lease_is_unknown_and_taken_over_only_if_safe(&store(), &passes).await;
    what_is_released_runs_again(&store()).await;
    lists_in_pages(&store(), &passes).await;
    reaps_what_is_settled_and_old(&store(), &passes).await;
    any_bytes_come_back(&store()).await;
    what_is_queued_runs_for_whoever_claims_it(&store(), &passes).await;
    what_is_set_aside_says_why(&store(), &passes).await;
    who_waits_is_told(&store()).await;
}

fn scope(key: &str) -> Scope {
    Scope {
        principal: "shop ' 7".into(),
        method: "POST".into(),
        route: "/charges/{id}".into(),
        key: Key::new(key).unwrap(),
    }
}

fn ask(owner: u128) -> Claim {
    Claim {
        fingerprint: Fingerprint([7; 32]),
        owner: Owner(owner),
        made: None,
        lease: LEASE,
        retention: RETENTION,
        takeover: Takeover::Never,
    }
}

fn answer() -> Answer {
    Answer::new(http::StatusCode::CREATED, "receipt").header(http::header::ETAG, "\"1\"".parse().unwrap())
}

async fn claims<St: Store>(store: &St, key: &str, ask: &Claim) -> Claimed {
    store.claim(&scope(key), ask).await.expect("a store that answers").claimed
}

async fn settles<St: Store>(store: &St, key: &str, fence: u64, settle: Settle) -> Settled {
    store.settle(&scope(key), Fence(fence), settle).await.expect("a store that answers")
}

async fn state<St: Store>(store: &St, key: &str) -> State {
    store.read(&scope(key)).await.unwrap().expect("a record").record.state
}

async fn one_run_and_its_replay<St: Store>(store: &St) {
    assert!(store.read(&scope("k")).await.unwrap().is_none());
    assert_eq!(claims(store, "k", &ask(1)).await, Claimed::Run { fence: Fence(1), taken_over: false });
    assert_eq!(
        claims(store, "k", &ask(1)).await,
        Claimed::Run { fence: Fence(1), taken_over: false },
        "the same claim"
    );
    assert_eq!(claims(store, "k", &ask(2)).await, Claimed::InProgress { lease_left: LEASE });
    assert_eq!(settles(store, "k", 1, Settle::Complete(answer())).await, Settled::Done);
    let other = Answer::new(http::StatusCode::OK, "another");
    assert_eq!(settles(store, "k", 1, Settle::Complete(other)).await, Settled::Already);
    assert_eq!(settles(store, "k", 1, Settle::Release).await, Settled::Otherwise(State::Completed));
    assert_eq!(settles(store, "none", 1, Settle::Release).await, Settled::Absent);
    let found = store.claim(&scope("k"), &ask(3)).await.unwrap();
    assert_eq!((found.claimed, found.answer), (Claimed::Completed, Some(answer())), "the first answer");
    let other_body = Claim { fingerprint: Fingerprint([8; 32]), ..ask(3) };
    assert_eq!(claims(store, "k", &other_body).await, Claimed::OtherFingerprint, "kept in every state");
    let kept = store.read(&scope("k")).await.unwrap().expect("a record");
    assert_eq!(
        (kept.record.fingerprint, kept.record.owner, kept.answer),
        (Fingerprint([7; 32]), Owner(1), Some(answer()))
    );
    let elsewhere = Scope { principal: "shop".into(), ..scope("k") };
    assert!(store.read(&elsewhere).await.unwrap().is_none(), "M8");
}

async fn one_of_many_claims_runs<St: Store>(store: &St) {
    let asked: Vec<Claim> = (0..64).map(ask).collect();
    let answers = join_all(asked.iter().map(|asked| claims(store, "k", asked))).await;
    assert_eq!(answers.iter().filter(|claimed| matches!(claimed, Claimed::Run { .. })).count(), 1, "{answers:?}");
}

async fn a_lapsed_lease_is_unknown_and_taken_over_only_if_safe<St: Store>(store: &St, passes: &impl Fn(Duration)) {
    claims(store, "k", &ask(1)).await;
    passes(LEASE);
    assert_eq!(state(store, "k").await, State::Unknown(Doubt::LeaseLapsed), "whoever reads it, written or not");
    assert_eq!(claims(store, "k", &ask(2)).await, Claimed::Unknown { doubt: Doubt::LeaseLapsed });
    let safe = Claim { takeover: Takeover::DeclaredSafe, ..ask(3) };
    assert_eq!(claims(store, "k", &safe).await, Claimed::Run { fence: Fence(2), taken_over: true });
    let late = settles(store, "k", 1, Settle::Complete(answer())).await;
    assert_eq!(late, Settled::Fenced { current: Fence(2) }, "M5");
    assert!(store.read(&scope("k")).await.unwrap().unwrap().answer.is_none());
    assert_eq!(settles(store, "k", 2, Settle::Doubt(Doubt::Panicked)).await, Settled::Done);
    assert_eq!(state(store, "k").await, State::Unknown(Doubt::Panicked));
    assert_eq!(settles(store, "k", 2, Settle::Complete(answer())).await, Settled::Done, "the truth, late");
}

async fn what_is_released_runs_again<St: Store>(store: &St) {
    claims(store, "k", &ask(1)).await;
    assert_eq!(settles(store, "k", 1, Settle::Release).await, Settled::Done);
    assert_eq!(claims(store, "k", &ask(2)).await, Claimed::Run { fence: Fence(2), taken_over: false });
}

fn to_queue(owner: u128) -> Enqueue {
    Enqueue { fingerprint: Fingerprint([7; 32]), owner: Owner(owner), made: None, retention: RETENTION }
}

async fn enqueues<St: Store>(store: &St, key: &str, owner: u128) -> Enqueued {
    store.enqueue(&scope(key), &to_queue(owner)).await.expect("a store that answers")
}

async fn what_is_queued_runs_for_whoever_claims_it<St: Store>(store: &St, passes: &impl Fn(Duration)) {
    let queued = enqueues(store, "k", 1).await;
    let Enqueued::Queued { fence: Fence(1), first_seen, now, is_new: true } = queued else { panic!("{queued:?}") };
    assert_eq!(first_seen, now);
    passes(LEASE * 2);
    assert_eq!(state(store, "k").await, State::Queued, "it has no lease");
    let again = Enqueued::Queued { fence: Fence(1), first_seen, now: now + LEASE * 2, is_new: false };
    assert_eq!(enqueues(store, "k", 2).await, again);
    assert_eq!(store.list(Which::All, None, 10).await.unwrap().len(), 1);
    assert_eq!(store.list(Which::Unknown, None, 10).await.unwrap().len(), 0);
    let other = Enqueue { fingerprint: Fingerprint([8; 32]), ..to_queue(3) };
    assert_eq!(store.enqueue(&scope("k"), &other).await.unwrap(), Enqueued::OtherFingerprint);
    assert_eq!(claims(store, "k", &ask(4)).await, Claimed::Run { fence: Fence(2), taken_over: false });
    assert_eq!(settles(store, "k", 1, Settle::Release).await, Settled::Fenced { current: Fence(2) }, "M5");
    assert!(matches!(enqueues(store, "k", 5).await, Enqueued::Stands { state: State::InProgress { .. }, .. }));
    assert_eq!(settles(store, "k", 2, Settle::Complete(answer())).await, Settled::Done);
    assert_eq!(enqueues(store, "k", 6).await, Enqueued::Stands { state: State::Completed, first_seen });
    assert_eq!(store.read(&scope("k")).await.unwrap().unwrap().answer, Some(answer()));

    enqueues(store, "old", 1).await;
    passes(RETENTION - Duration::from_nanos(1));
    assert_eq!(state(store, "old").await, State::Queued, "as long as records are kept");
    passes(Duration::from_nanos(1));
    assert_eq!(store.reap(10).await.unwrap(), 2);
    assert!(store.read(&scope("old")).await.unwrap().is_none());
}

async fn what_is_set_aside_says_why<St: Store>(store: &St, passes: &impl Fn(Duration)) {
    let why = |why: &'static str| Answer::new(http::StatusCode::SERVICE_UNAVAILABLE, why);
    let kept = async || store.read(&scope("k")).await.unwrap().map(|kept| (kept.record.state, kept.answer)).unwrap();
    let first = enqueues(store, "k", 1).await;
    assert_eq!(settles(store, "k", 1, Settle::SetAside(why("not published"))).await, Settled::Done);
    assert_eq!(kept().await, (State::FailedRetryable, Some(why("not published"))));
    assert_eq!(settles(store, "k", 1, Settle::SetAside(why("expired"))).await, Settled::Done, "the last reason");
    assert_eq!(kept().await, (State::FailedRetryable, Some(why("expired"))));
    passes(LEASE);
    let Enqueued::Queued { fence: Fence(2), first_seen, is_new: true, .. } = enqueues(store, "k", 2).await else {
        panic!("it may be tried again")
    };
    assert!(
        matches!(first, Enqueued::Queued { first_seen: first, .. } if first == first_seen),
        "Q1: and is no younger"
    );
    assert_eq!(kept().await, (State::Queued, None));
    assert_eq!(settles(store, "k", 2, Settle::Complete(why("discarded"))).await, Settled::Done);
    assert_eq!(kept().await, (State::Completed, Some(why("discarded"))));
    let set_aside = settles(store, "k", 2, Settle::SetAside(why("late"))).await;
    assert_eq!(set_aside, Settled::Otherwise(State::Completed));
}

/// Only a store that tells.
async fn who_waits_is_told<St: Store>(store: &St) {
    let Some(changes) = store.changes() else { return };
    let (mut watch, mut other) = (changes.watch(&scope("k")), changes.watch(&scope("other")));
    let told = async |watch: &mut Watch| futures_util::FutureExt::now_or_never(watch.changed()).is_some();
    enqueues(store, "k", 1).await;
    assert!(told(&mut watch).await, "queued");
    enqueues(store, "k", 2).await;
    assert!(!told(&mut watch).await, "as before");
    claims(store, "k", &ask(1)).await;
    assert!(told(&mut watch).await, "begun");
    settles(store, "k", 2, Settle::Complete(answer())).await;
    assert!(told(&mut watch).await, "done");
    settles(store, "k", 2, Settle::Complete(answer())).await;
    assert!(!told(&mut watch).await, "as before");
    assert!(!told(&mut other).await, "another");
}

async fn lists_in_pages<St: Store>(store: &St, passes: &impl Fn(Duration)) {
    for n in 0..7 {
        claims(store, &format!("k{n}"), &ask(n)).await;
    }
    settles(store, "k3", 1, Settle::Complete(answer())).await;
    assert_eq!(store.list(Which::Unknown, None, 10).await.unwrap().len(), 0);
    passes(LEASE);
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(Which::Unknown, after.as_ref(), 2).await.unwrap();
        assert!(page.iter().all(|(_, record)| record.state == State::Unknown(Doubt::LeaseLapsed)));
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        seen.extend(page.into_iter().map(|(scope, _)| scope.key.to_string()));
    }
    assert_eq!(seen, ["k0", "k1", "k2", "k4", "k5", "k6"]);
    assert_eq!(store.list(Which::All, None, 10).await.unwrap().len(), 7);
}

async fn reaps_what_is_settled_and_old<St: Store>(store: &St, passes: &impl Fn(Duration)) {
    for key in ["done", "free", "open"] {
        claims(store, key, &ask(1)).await;
    }
    settles(store, "done", 1, Settle::Complete(answer())).await;
    settles(store, "free", 1, Settle::Release).await;
    claims(store, "free", &ask(2)).await;
    settles(store, "free", 2, Settle::Release).await;
    passes(RETENTION - Duration::from_nanos(1));
    assert_eq!(store.reap(10).await.unwrap(), 0);
    passes(Duration::from_nanos(1));
    assert_eq!((store.reap(1).await.unwrap(), store.reap(10).await.unwrap(), store.reap(10).await.unwrap()), (1, 1, 0));
    assert!(store.read(&scope("done")).await.unwrap().is_none());
    assert!(matches!(state(store, "open").await, State::Unknown(_)), "never by itself");
    assert_eq!(
        claims(store, "done", &ask(5)).await,
        Claimed::Run { fence: Fence(3), taken_over: false },
        "fences grow"
    );
    let now = store.read(&scope("done")).await.unwrap().unwrap().record.since;
    let made = Wall::from_nanos(now.as_nanos() - u64::try_from(RETENTION.as_nanos()).unwrap());
    assert_eq!(claims(store, "old", &Claim { made: Some(made), ..ask(6) }).await, Claimed::KeyTooOld);
}

async fn any_bytes_come_back<St: Store>(store: &St) {
    let body: Vec<u8> = (0..=255).collect();
    let odd = Answer::new(http::StatusCode::OK, body.clone());
    let claim = Claim { owner: Owner(u128::MAX), fingerprint: Fingerprint([255; 32]), ..ask(0) };
    claims(store, r#"' "\%"#, &claim).await;
    settles(store, r#"' "\%"#, 1, Settle::Complete(odd.clone())).await;
    let kept = store.read(&scope(r#"' "\%"#)).await.unwrap().expect("a record");
    assert_eq!((kept.answer, kept.record.owner), (Some(odd), Owner(u128::MAX)));
}
