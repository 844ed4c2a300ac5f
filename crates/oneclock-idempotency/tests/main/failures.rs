//! What a run's own failure says, and what a store that fails at the wrong moment leaves.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http::Response;
use oneclock_core::wire::Wall;
use oneclock_core::{Outcome, Stage, Trust};
use oneclock_http::Problem;
use oneclock_idempotency::{MemoryStore, NothingHappened};

use crate::support::*;

fn store() -> MemoryStore {
    MemoryStore::with_clock(paused_wall)
}

fn answers(status: u16) -> Shop {
    Shop::new(move |n, _| async move { Response::builder().status(status).body(format!("answer {n}").into()).unwrap() })
}

#[tokio::test(start_paused = true)]
async fn m7_keys_that_are_missing_or_malformed() {
    let (layer, counting) = layer(store(), |l| l.required());
    let shop = answers(200);
    let mut none = post("x", "{}");
    none.headers_mut().remove("idempotency-key");
    assert!(send(&layer, &shop, none).await.is(400, "key_missing"));
    for bad in ["", "\"open", "a,b", &"k".repeat(256)] {
        assert!(send(&layer, &shop, post(bad, "{}")).await.is(400, "key_malformed"), "{bad:?}");
    }
    let mut two = post("a", "{}");
    two.headers_mut().append("idempotency-key", "a".parse().unwrap());
    assert!(send(&layer, &shop, two).await.is(400, "key_malformed"));
    assert_eq!((shop.begun(), counting.count("keyed refused key_malformed")), (0, 5));
    let get = http::Request::get("/charges").body("".into()).unwrap();
    assert_eq!(send(&layer, &shop, get).await.body, "answer 0", "other methods pass");
}

#[tokio::test(start_paused = true)]
async fn m8_quoted_and_bare_are_one_key() {
    let (layer, _) = layer(store(), |l| l);
    let shop = answers(200);
    assert!(!send(&layer, &shop, post("tap-7", "{}")).await.replayed);
    assert!(send(&layer, &shop, post("\"tap-7\"", "{}")).await.replayed);
}

#[tokio::test(start_paused = true)]
async fn without_a_key_the_layer_is_not_there() {
    let (layer, _) = layer(store(), |l| l);
    let shop = answers(200);
    for n in 0..2 {
        let mut none = post("x", "{}");
        none.headers_mut().remove("idempotency-key");
        assert_eq!(send(&layer, &shop, none).await.body, format!("answer {n}"));
    }
}

#[tokio::test(start_paused = true)]
async fn m4_a_definite_answer_is_kept_also_a_refusal() {
    for status in [200, 204, 303, 404, 422] {
        let (layer, _) = layer(store(), |l| l);
        let shop = answers(status);
        let first = send(&layer, &shop, post("k", "{}")).await;
        let again = send(&layer, &shop, post("k", "{}")).await;
        assert_eq!((first.status, again.status, &first.body, again.replayed), (status, status, &again.body, true));
        assert_eq!(shop.begun(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn m4_only_proof_lets_it_run_again() {
    let proof = Shop::new(|n, _| async move {
        let mut answer = Response::builder().status(503).body("".into()).unwrap();
        answer.extensions_mut().insert(NothingHappened);
        if n == 0 { answer } else { receipt(n) }
    });
    let (with_proof, _) = layer(store(), |l| l);
    assert_eq!(send(&with_proof, &proof, post("k", "{}")).await.status, 503);
    assert_eq!(send(&with_proof, &proof, post("k", "{}")).await.body, "receipt 1");

    let (limited, _) = layer(store(), |l| l);
    let busy = Shop::new(|n, _| async move {
        if n == 0 { Response::builder().status(429).body("".into()).unwrap() } else { receipt(n) }
    });
    assert_eq!(send(&limited, &busy, post("k", "{}")).await.status, 429);
    assert_eq!(send(&limited, &busy, post("k", "{}")).await.body, "receipt 1");

    for status in [500, 502, 503, 504] {
        let (layer, counting) = layer(store(), |l| l);
        let shop = answers(status);
        let first = send(&layer, &shop, post("k", "{}")).await;
        assert_eq!((first.status, first.body.as_str()), (status, "answer 0"), "its own caller sees its own answer");
        let again = send(&layer, &shop, post("k", "{}")).await;
        assert!(again.is(409, "outcome_unknown"), "{again:?}");
        assert_eq!((shop.begun(), counting.count("keyed unknown failed")), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn m3_a_panic_is_unknown_and_counted() {
    let (layer, counting) = layer(store(), |l| l);
    let shop = Shop::new(|_, _| async { panic!("on purpose") });
    assert_eq!(send(&layer, &shop, post("k", "{}")).await.status, 500);
    assert!(send(&layer, &shop, post("k", "{}")).await.is(409, "outcome_unknown"));
    assert_eq!((shop.begun(), counting.count("keyed unknown panicked")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn m1_the_claim_is_there_before_the_handler_begins() {
    let moody = Moody::new();
    moody.slow_ms.store(100, Ordering::SeqCst);
    let log = moody.log.clone();
    let (layer, _) = layer(moody, |l| l);
    let shop = Shop::new(move |n, _| {
        log.lock().unwrap().push("handler");
        async move { receipt(n) }
    });
    let log = layer.store().log.clone();
    send(&layer, &shop, post("k", "{}")).await;
    assert_eq!(*log.lock().unwrap(), ["claim", "handler", "settle"]);
}

#[tokio::test(start_paused = true)]
async fn m2_a_store_that_comes_back_in_time_is_told_all_the_same() {
    let moody = Moody::new();
    let (layer, counting) = layer(moody.clone(), |l| l);
    let gone = moody.gone.clone();
    let shop = Shop::new(move |n, _| {
        gone.store(true, Ordering::SeqCst);
        async move { receipt(n) }
    });
    let sending = tokio::spawn({
        let (layer, shop) = (layer.clone(), shop.clone());
        async move { send(&layer, &shop, post("k", "{}")).await }
    });
    tokio::time::sleep(ms(2_000)).await;
    moody.gone.store(false, Ordering::SeqCst);
    assert_eq!(sending.await.unwrap().body, "receipt 0");
    assert!(send(&layer, &shop, post("k", "{}")).await.replayed);
    assert_eq!((shop.begun(), counting.count("keyed not recorded")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn m2_a_store_that_stays_away_costs_the_replay_and_never_a_second_run() {
    let moody = Moody::new();
    moody.settles_fail.store(true, Ordering::SeqCst);
    let (layer, counting) = layer(moody.clone(), |l| l);
    let shop = answers(201);
    assert_eq!(send(&layer, &shop, post("k", "{}")).await.body, "answer 0", "who waits is told the truth");
    assert_eq!(counting.count("keyed not recorded"), 1);
    moody.settles_fail.store(false, Ordering::SeqCst);
    let early = send_within(&layer, &shop, ms(300), post("k", "{}")).await;
    assert!(early.is(409, "in_progress"), "its lease lasts: {early:?}");
    tokio::time::sleep(ms(30_000)).await;
    assert!(send(&layer, &shop, post("k", "{}")).await.is(409, "outcome_unknown"));
    assert_eq!(shop.begun(), 1);
}

/// A process that sleeps through its lease, and wakes up after another has taken over.
#[tokio::test(start_paused = true)]
async fn m5_a_late_completion_is_fenced_off_and_its_caller_gets_the_one_answer() {
    let shop = Shop::new(|n, _| async move {
        tokio::time::sleep(ms(if n == 0 { 200_000 } else { 10 })).await;
        receipt(n)
    });
    let nanos = Arc::new(AtomicU64::new(0)); // the store's clock goes on while the first process stands still
    let store = MemoryStore::with_clock({
        let nanos = nanos.clone();
        move || Wall::from_nanos(nanos.load(Ordering::SeqCst))
    });
    let of = |l: oneclock_idempotency::IdempotencyBuilder<MemoryStore>| {
        l.safe_to_repeat().execution(ms(300_000)).lease(ms(400_000))
    };
    let (asleep, counting) = layer(store.clone(), of);
    let (awake, took_over) = layer(store, of);
    let first = tokio::spawn({
        let shop = shop.clone();
        async move { send(&asleep, &shop, post("k", "{}")).await }
    });
    tokio::time::sleep(ms(100)).await;
    nanos.store(500_000_000_000, Ordering::SeqCst);
    let second = send(&awake, &shop, post("k", "{}")).await;
    assert_eq!((second.body.as_str(), took_over.count("keyed took over")), ("receipt 1", 1));
    let first = first.await.unwrap();
    assert_eq!((first.body.as_str(), first.replayed), ("receipt 1", true), "one answer for one key");
    assert_eq!(counting.count("keyed fenced"), 1);
    assert_eq!(send(&awake, &shop, post("k", "{}")).await.body, "receipt 1");
}

#[tokio::test(start_paused = true)]
async fn m7_a_key_that_outlived_its_record_is_412() {
    let store = MemoryStore::with_clock(oneclock::clock::wall);
    let (layer, _) = layer(store, |l| l.retention(ms(60_000)));
    let shop = answers(200);
    let old = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"; // of 2022
    assert!(send(&layer, &shop, post(old, "{}")).await.is(412, "key_too_old"));
    let future = "ffffffff-79b0-7cc3-98c4-dc0c0c07398f";
    let got = send(&layer, &shop, post(future, "{}")).await;
    assert!(got.is(400, "key_malformed") && got.body.contains("future"), "{got:?}");
    assert_eq!(shop.begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_second_run_after_proof_makes_the_same_keys_for_its_steps() {
    let (layer, _) = layer(store(), |l| l);
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = keys.clone();
    let shop = Shop::new(move |n, request| {
        let key = oneclock_idempotency::IdempotencyKey::of(request.extensions()).expect("the request's key");
        seen.lock().unwrap().push(key.for_step("charge").to_string());
        async move {
            let mut answer = receipt(n);
            if n == 0 {
                answer.extensions_mut().insert(NothingHappened);
            }
            answer
        }
    });
    send(&layer, &shop, post("tap-7", "{}")).await;
    send(&layer, &shop, post("tap-7", "{}")).await;
    let keys = keys.lock().unwrap();
    assert_eq!(keys[0], keys[1]);
    assert_eq!(keys.len(), 2);
}

/// What the naive way, the key's text and the step, gets wrong: the provider below replays one customer's charge to the other.
#[tokio::test(start_paused = true)]
async fn m8_two_customers_with_the_same_key_are_two_at_the_provider() {
    let header = |head: &http::request::Parts| head.headers.get("x-account")?.to_str().ok().map(str::to_owned);
    let (layer, _) = layer(store(), |l| l.principal(header));
    let provider: Arc<Mutex<HashMap<String, String>>> = Arc::default();
    for by_scope in [true, false] {
        let provider = provider.clone();
        let shop = Shop::new(move |_, request| {
            let key = oneclock_idempotency::IdempotencyKey::of(request.extensions()).expect("the request's key");
            let step = if by_scope { key.for_step("charge").to_string() } else { format!("{key}/charge") };
            let account = request.headers()["x-account"].to_str().unwrap().to_owned();
            let charged = provider.lock().unwrap().entry(step).or_insert(account).clone();
            async move { Response::new(format!("charged {charged}").into()) }
        });
        for account in ["a1", "a2"] {
            let mut request = post(if by_scope { "tap-7" } else { "tap-8" }, "{}");
            request.headers_mut().insert("x-account", account.parse().unwrap());
            let charged = if by_scope { account } else { "a1" };
            assert_eq!(send(&layer, &shop, request).await.body, format!("charged {charged}"));
        }
    }
    assert_eq!(provider.lock().unwrap().len(), 3);
}

/// A part that did not begin, in a handler that had begun.
fn not_sent() -> Response<http_body_util::Full<bytes::Bytes>> {
    let problem = Problem::of(std::io::Error::other("no connection")).with_outcome(Outcome::NotSent);
    answered_with(problem)
}

fn answered_with(problem: Problem) -> Response<http_body_util::Full<bytes::Bytes>> {
    let mut answer = problem.to_response(Trust::Outside).map(Into::into);
    answer.extensions_mut().insert(problem); // as `oneclock_axum::Problem` does
    answer
}

#[tokio::test(start_paused = true)]
async fn m4_a_parts_outcome_is_not_the_answers_when_the_record_says_unknown() {
    use tower::{Layer as _, ServiceExt as _};
    let (layer, _) = layer(store(), |l| l);
    let shop = Shop::new(|_, _| async { not_sent() });
    let first = layer.layer(shop.clone()).oneshot(post("k", "{}")).await.unwrap();
    let told = first.extensions().get::<Problem>().and_then(Problem::outcome);
    assert_eq!(told, Some(Outcome::Unknown { stage: Stage::Work }), "what the ingress layer writes for whom it trusts");
    assert!(send(&layer, &shop, post("k", "{}")).await.is(409, "outcome_unknown"));
}

#[tokio::test(start_paused = true)]
async fn m4_a_problem_can_say_that_nothing_happened() {
    let (layer, _) = layer(store(), |l| l);
    let shop = Shop::new(|n, _| async move {
        if n > 0 {
            return receipt(n);
        }
        answered_with(Problem::of(std::io::Error::other("rolled back")).nothing_happened())
    });
    let first = send(&layer, &shop, post("k", "{}")).await;
    assert_eq!((first.status, first.link), (500, None), "nothing is left open");
    assert_eq!(send(&layer, &shop, post("k", "{}")).await.body, "receipt 1");
}
