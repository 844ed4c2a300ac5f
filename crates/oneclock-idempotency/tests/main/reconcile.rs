//! The monitor, the reconciler, compensation and reaping.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Request, StatusCode};
use oneclock::Shutdown;
use oneclock_core::idempotency::{Handle, Key, Scope};
use oneclock_idempotency::*;
use tower::ServiceExt as _;

use crate::support::*;

/// A layer with one unknown record under each of these keys.
async fn unknown(keys: &[&str]) -> Idempotency<MemoryStore> {
    let (layer, _) = layer(MemoryStore::with_clock(paused_wall), |l| l);
    let shop = Shop::new(|_, _| async { http::Response::builder().status(500).body("".into()).unwrap() });
    for key in keys {
        assert_eq!(send(&layer, &shop, post(key, "{}")).await.status, 500);
    }
    layer
}

async fn asks(layer: &Idempotency<MemoryStore>, link: &str) -> (u16, serde_json::Value) {
    let path = link.trim_start_matches('<').split('>').next().unwrap().to_owned();
    let answer = layer.monitor().oneshot(Request::get(path).body(()).unwrap()).await.unwrap();
    let got = got(answer).await;
    (got.status, serde_json::from_str(&got.body).unwrap())
}

#[tokio::test(start_paused = true)]
async fn m7_the_monitor_says_what_is_known() {
    let layer = unknown(&["k"]).await;
    let shop = Shop::that_takes(ms(1));
    let refused = send(&layer, &shop, post("k", "{}")).await;
    let link = refused.link.unwrap();
    let (status, document) = asks(&layer, &link).await;
    assert_eq!((status, &document["state"], &document["because"]), (200, &"unknown".into(), &"failed".into()));

    let pass = Reconciler::builder(layer.store().clone())
        .probe(|_| async { Probed::Applied(Answer::new(StatusCode::CREATED, "receipt 9")) })
        .build()
        .pass()
        .await
        .unwrap();
    assert_eq!((pass.seen, pass.completed), (1, 1));
    let (_, document) = asks(&layer, &link).await;
    assert_eq!((&document["state"], &document["status"]), (&"completed".into(), &201.into()));
    assert_eq!(send(&layer, &shop, post("k", "{}")).await.body, "receipt 9");
    assert_eq!(shop.begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn m7_the_monitor_shows_nobody_elses() {
    let store = MemoryStore::with_clock(paused_wall);
    let (layer, _) =
        layer(store, |l| l.principal(|head| head.headers.get("x-shop").map(|shop| shop.to_str().unwrap().to_owned())));
    let shop = Shop::that_takes(ms(1));
    let mut charge = post("k", "{}");
    charge.headers_mut().insert("x-shop", "a".parse().unwrap());
    send(&layer, &shop, charge).await;
    let scope =
        Scope { principal: "a".into(), method: "POST".into(), route: "charge".into(), key: Key::new("k").unwrap() };
    let asks = |who: Option<&'static str>, segment: String, method: &'static str| {
        let mut request = Request::builder().method(method).uri(format!("/operations/{segment}"));
        if let Some(who) = who {
            request = request.header("x-shop", who);
        }
        let request = request.body(()).unwrap();
        let monitor = layer.monitor();
        async move { monitor.oneshot(request).await.unwrap().status().as_u16() }
    };
    let handle = Handle::of(&scope).to_string();
    assert_eq!(asks(Some("a"), handle.clone(), "GET").await, 200);
    assert_eq!(asks(Some("b"), handle.clone(), "GET").await, 404);
    assert_eq!(asks(None, handle.clone(), "GET").await, 404);
    assert_eq!(asks(Some("a"), "zz".into(), "GET").await, 404);
    assert_eq!(asks(Some("a"), handle, "POST").await, 405);
    let old = Scope { key: Key::new("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").unwrap(), ..scope };
    assert_eq!(asks(Some("a"), Handle::of(&old).to_string(), "GET").await, 410, "it may have been");
}

#[tokio::test(start_paused = true)]
async fn m4_what_is_proven_absent_runs_again_and_what_is_not_stays_unknown() {
    let layer = unknown(&["absent", "open"]).await;
    tokio::time::sleep(ms(5_000)).await;
    let reconciler = Reconciler::builder(layer.store().clone())
        .probe(|unresolved| async move {
            if unresolved.scope.key.as_str() == "absent" { Probed::Absent } else { std::future::pending().await }
        })
        .within(ms(200))
        .build();
    let pass = reconciler.pass().await.unwrap();
    assert_eq!((pass.seen, pass.retryable, pass.still_unknown), (2, 1, 1));
    let shop = Shop::that_takes(ms(1));
    assert_eq!(send(&layer, &shop, post("absent", "{}")).await.body, "receipt 0");
    assert!(send(&layer, &shop, post("open", "{}")).await.is(409, "outcome_unknown"));
}

#[tokio::test(start_paused = true)]
async fn n2_a_proven_duplicate_is_compensated_under_its_own_key_until_that_went_through() {
    let layer = unknown(&["twice"]).await;
    let keys = Arc::new(Mutex::new(Vec::new()));
    let tries = Arc::new(AtomicUsize::new(0));
    let (seen, tried) = (keys.clone(), tries.clone());
    let reconciler = Reconciler::builder(layer.store().clone())
        .probe(|_| async { Probed::AppliedTwice(Answer::new(StatusCode::CREATED, "receipt 1")) })
        .compensate(move |unresolved, key| {
            assert_eq!(key, unresolved.key().for_step("compensate"));
            seen.lock().unwrap().push(key.to_string());
            let n = tried.fetch_add(1, Ordering::SeqCst);
            async move { if n == 0 { Err(std::io::Error::other("refund service away")) } else { Ok(()) } }
        })
        .build();
    let pass = reconciler.pass().await.unwrap();
    assert_eq!((pass.compensated, pass.still_unknown), (0, 1), "not settled before it went through");
    let pass = reconciler.pass().await.unwrap();
    assert_eq!((pass.compensated, pass.still_unknown), (1, 0));
    assert_eq!(reconciler.pass().await.unwrap().seen, 0);
    let again = keys.lock().unwrap().clone();
    assert!(again.len() == 2 && again[0] == again[1], "{again:?}");
    assert_eq!(send(&layer, &Shop::that_takes(ms(1)), post("twice", "{}")).await.body, "receipt 1");
}

#[tokio::test(start_paused = true)]
async fn m9_old_records_go_and_unknown_ones_do_not() {
    let layer = unknown(&["open"]).await;
    let shop = Shop::that_takes(ms(1));
    send(&layer, &shop, post("done", "{}")).await;
    let reconciler = Reconciler::builder(layer.store().clone()).build();
    assert_eq!(reconciler.pass().await.unwrap().reaped, 0);
    tokio::time::sleep(ms(86_400_000 * 2)).await;
    let pass = reconciler.pass().await.unwrap();
    assert_eq!((pass.reaped, pass.still_unknown), (1, 1));
    assert_eq!(layer.store().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_reconciler_goes_on_until_the_shutdown() {
    let layer = unknown(&["k"]).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counting = asked.clone();
    let reconciler = Reconciler::builder(layer.store().clone())
        .probe(move |_| {
            counting.fetch_add(1, Ordering::SeqCst);
            async { Probed::StillUnknown }
        })
        .build();
    let shutdown = Shutdown::new();
    let signal = shutdown.clone();
    let task = shutdown.spawn(async move { reconciler.run(ms(1_000), &signal).await });
    tokio::time::sleep(ms(3_500)).await;
    shutdown.drain(ms(10_000)).await;
    task.await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn x10_a_pass_under_way_does_not_hold_up_a_shutdown() {
    let keys: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
    let layer = unknown(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (probe_takes, drained_after) in [(ms(4_000), ms(4_000)), (ms(60_000), ms(5_000))] {
        let reconciler = Reconciler::builder(layer.store().clone())
            .within(ms(60_000))
            .probe(move |_| async move {
                tokio::time::sleep(probe_takes).await;
                Probed::StillUnknown
            })
            .build();
        let shutdown = Shutdown::new();
        let signal = shutdown.clone();
        let task = shutdown.spawn(async move { reconciler.run(ms(1_000), &signal).await });
        tokio::task::yield_now().await;
        let began = oneclock::clock::now();
        shutdown.drain(ms(5_000)).await;
        task.await.unwrap();
        let took = oneclock::clock::now().since(began);
        assert!(took >= drained_after && took < drained_after + ms(1_000), "{took:?}");
    }
}
