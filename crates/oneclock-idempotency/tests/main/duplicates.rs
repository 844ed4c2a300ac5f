//! Requests with one key at the same time, with the same body and with others.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use oneclock_idempotency::MemoryStore;

use crate::support::*;

fn store() -> MemoryStore {
    MemoryStore::with_clock(paused_wall)
}

#[tokio::test(start_paused = true)]
async fn m10_64_duplicates_are_one_run_and_63_replays() {
    let (layer, counting) = layer(store(), |l| l);
    let shop = Shop::that_takes(ms(200));
    let answers = join_all((0..64).map(|_| send(&layer, &shop, post("tap-7", "{}")))).await;
    assert_eq!(shop.begun(), 1);
    assert!(answers.iter().all(|got| (got.status, got.body.as_str()) == (201, "receipt 0")), "{answers:?}");
    assert_eq!(answers.iter().filter(|got| got.replayed).count(), 63);
    assert_eq!((counting.count("keyed ran"), counting.count("keyed replayed")), (1, 63));
    assert_eq!(layer.runs(), 0);
}

/// The same without a claim before the work: look, work, remember.
#[tokio::test(start_paused = true)]
async fn naive_a_cache_of_answers_runs_every_duplicate() {
    let cache: Arc<Mutex<BTreeMap<&str, String>>> = Arc::default();
    let shop = Shop::that_takes(ms(200));
    let sends = (0..64).map(|_| async {
        if let Some(known) = cache.lock().unwrap().get("tap-7").cloned() {
            return known;
        }
        let answer = tower::ServiceExt::oneshot(shop.clone(), post("tap-7", "{}")).await.unwrap();
        let body = format!("{:?}", answer.into_body());
        cache.lock().unwrap().insert("tap-7", body.clone());
        body
    });
    join_all(sends).await;
    assert_eq!(shop.begun(), 64);
}

#[tokio::test(start_paused = true)]
async fn m7_duplicates_with_other_bodies_are_422_at_once_and_later() {
    let (layer, _) = layer(store(), |l| l);
    let shop = Shop::that_takes(ms(200));
    let sends = (0..64).map(|n| send(&layer, &shop, post("tap-7", if n % 2 == 0 { "{}" } else { r#"{"cents":1}"# })));
    let answers = join_all(sends).await;
    assert_eq!(shop.begun(), 1);
    assert_eq!(answers.iter().filter(|got| got.status == 201).count(), 32);
    assert_eq!(answers.iter().filter(|got| got.is(422, "key_reused")).count(), 32);
    let later = send(&layer, &shop, post("tap-7", r#"{"cents":1}"#)).await;
    assert!(later.is(422, "key_reused"), "{later:?}");
    assert_eq!(later.retry_after, None);
}

#[tokio::test(start_paused = true)]
async fn m6_64_duplicates_while_the_store_is_gone_are_503_and_nothing_runs() {
    let moody = Moody::new();
    moody.gone.store(true, Ordering::SeqCst);
    let (layer, _) = layer(moody.clone(), |l| l);
    let shop = Shop::that_takes(ms(200));
    let answers = join_all((0..64).map(|_| send(&layer, &shop, post("tap-7", "{}")))).await;
    assert_eq!(shop.begun(), 0);
    assert!(answers.iter().all(|got| got.is(503, "store_unreachable") && got.retry_after.is_some()), "{answers:?}");
    moody.gone.store(false, Ordering::SeqCst);
    assert_eq!(send(&layer, &shop, post("tap-7", "{}")).await.status, 201, "nothing stands in its way");
}

#[tokio::test(start_paused = true)]
async fn m6_a_store_too_slow_for_a_claim_is_503_and_one_that_is_just_slow_is_waited_for() {
    let moody = Moody::new();
    moody.slow_ms.store(300, Ordering::SeqCst);
    let (layer, _) = layer(moody.clone(), |l| l.claim_within(ms(500)));
    let shop = Shop::that_takes(ms(20));
    let answers = join_all((0..64).map(|_| send(&layer, &shop, post("tap-7", "{}")))).await;
    assert_eq!((shop.begun(), answers.iter().filter(|got| got.status == 201).count()), (1, 64));

    moody.slow_ms.store(600, Ordering::SeqCst);
    let answers = join_all((0..64).map(|_| send(&layer, &shop, post("tap-8", "{}")))).await;
    assert_eq!(shop.begun(), 1);
    assert!(answers.iter().all(|got| got.is(503, "store_unreachable")), "{answers:?}");

    // Its claim may have arrived all the same; it is withdrawn, so that the key is free again at once.
    tokio::time::sleep(ms(3_000)).await;
    moody.slow_ms.store(0, Ordering::SeqCst);
    assert_eq!(send(&layer, &shop, post("tap-8", "{}")).await.body, "receipt 1");
}

#[tokio::test(start_paused = true)]
async fn m1_a_claim_whose_answer_was_lost_is_withdrawn() {
    let moody = Moody::new();
    moody.answers_lost.store(1, Ordering::SeqCst);
    let (layer, _) = layer(moody.clone(), |l| l);
    let shop = Shop::that_takes(ms(20));
    assert!(send(&layer, &shop, post("tap-7", "{}")).await.is(503, "store_unreachable"));
    assert_eq!(moody.inner.len(), 1, "it had arrived");
    tokio::time::sleep(ms(100)).await;
    let again = send(&layer, &shop, post("tap-7", "{}")).await;
    assert_eq!((again.status, again.replayed, shop.begun()), (201, false, 1));
}

#[tokio::test(start_paused = true)]
async fn m4_that_a_second_run_did_nothing_says_nothing_of_the_first() {
    let store = store();
    let (layer, _) = layer(store.clone(), |l| l.safe_to_repeat());
    let shop = Shop::new(|n, _| async move {
        let status = if n == 0 { 500 } else { 429 };
        http::Response::builder().status(status).body("".into()).unwrap()
    });
    for status in [500, 429] {
        assert_eq!(send(&layer, &shop, post("tap-7", "{}")).await.status, status);
    }
    let (no_takeover, _) = strict(store);
    assert!(send(&no_takeover, &shop, post("tap-7", "{}")).await.is(409, "outcome_unknown"));
}

fn strict(store: MemoryStore) -> (oneclock_idempotency::Idempotency<MemoryStore>, Arc<oneclock::events::Counting>) {
    layer(store, |l| l)
}

#[tokio::test(start_paused = true)]
async fn m10_duplicates_in_two_processes_are_one_run() {
    let store = store();
    let (one, _) = layer(store.clone(), |l| l);
    let (two, _) = layer(store, |l| l);
    let shop = Shop::that_takes(ms(700));
    let sends = (0..64).map(|n| send(if n % 2 == 0 { &one } else { &two }, &shop, post("tap-7", "{}")));
    let answers = join_all(sends).await;
    assert_eq!(shop.begun(), 1);
    assert!(answers.iter().all(|got| (got.status, got.body.as_str()) == (201, "receipt 0")), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn m7_who_waits_longer_than_its_budget_is_told_when_to_come_again() {
    let store = store();
    let (one, _) = layer(store.clone(), |l| l);
    let (two, _) = layer(store, |l| l);
    let shop = Shop::that_takes(ms(3_000));
    let first = tokio::spawn({
        let (one, shop) = (one.clone(), shop.clone());
        async move { send(&one, &shop, post("tap-7", "{}")).await }
    });
    tokio::time::sleep(ms(100)).await;
    for layer in [&one, &two] {
        let early = send_within(layer, &shop, ms(400), post("tap-7", "{}")).await;
        assert!(early.is(409, "in_progress"), "{early:?}");
        assert!(early.retry_after.is_some() && early.link.unwrap().contains("rel=\"monitor\""));
    }
    assert_eq!(first.await.unwrap().status, 201);
    assert_eq!(shop.begun(), 1);
}

#[tokio::test(start_paused = true)]
async fn m8_the_key_of_one_principal_is_not_that_of_another() {
    let store = store();
    let (layer, _) =
        layer(store, |l| l.principal(|head| head.headers.get("x-shop").map(|shop| shop.to_str().unwrap().to_owned())));
    let shop = Shop::that_takes(ms(1));
    let of = |who: &'static str| {
        let mut request = post("1", "{}");
        request.headers_mut().insert("x-shop", http::HeaderValue::from_static(who));
        request
    };
    assert_eq!(send(&layer, &shop, of("a")).await.body, "receipt 0");
    assert_eq!(send(&layer, &shop, of("b")).await.body, "receipt 1");
    assert_eq!(send(&layer, &shop, of("a")).await.body, "receipt 0");
    assert_eq!(send(&layer, &shop, post("1", "{}")).await.status, 401, "nobody's key");
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_place_is_shed_before_its_claim() {
    let moody = Moody::new();
    let (layer, _) = layer(moody.clone(), |l| l.max_runs(2));
    let shop = Shop::that_takes(ms(200));
    let keys = ["a", "b", "c"];
    let answers = join_all(keys.map(|key| send(&layer, &shop, post(key, "{}")))).await;
    assert_eq!(answers.iter().map(|got| got.status).collect::<Vec<_>>(), [201, 201, 503]);
    assert_eq!(answers[2].headers["oneclock-reason"], "shed");
    assert_eq!(moody.inner.len(), 2, "no record for what did not run");
}

/// Another body that asks the slow store first does not make the key's own request a stranger.
#[tokio::test(start_paused = true)]
async fn m7_a_replay_is_not_422_because_another_body_asks_the_store_at_the_same_time() {
    let store = Moody::new();
    let (layer, _) = layer(store.clone(), |l| l);
    let shop = Shop::that_takes(ms(20));
    assert_eq!(send(&layer, &shop, post("tap-7", "{}")).await.status, 201);
    store.slow_ms.store(200, Ordering::SeqCst);
    let sends = (0..8).map(|n| send(&layer, &shop, post("tap-7", if n % 2 == 0 { r#"{"cents":1}"# } else { "{}" })));
    let answers = join_all(sends).await;
    for (n, answer) in answers.iter().enumerate() {
        assert!(if n % 2 == 0 { answer.is(422, "key_reused") } else { answer.replayed }, "{n}: {answer:?}");
    }
    assert_eq!(shop.begun(), 1);
}
