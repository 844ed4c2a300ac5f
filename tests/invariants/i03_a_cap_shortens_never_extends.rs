//! I3: a local cap can shorten, never extend. Contract C1, V10, V12.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use oneclock::{Ended, Operation};
use oneclock_axum::Op;
use oneclock_core::{BoundBy, Cause, Policy, Stage, Trust};
use oneclock_http::{IngressLayer, Upload};
use oneclock_test::peer::Peer;
use tower::{ServiceBuilder, ServiceExt as _};

use crate::naive::{ten_times, under_a_timeout_layer};
use crate::out::Terms;
use crate::shop::{NOTICED, Shop, ample, ms};
use crate::witness::clock_now;

over_every_way_in! {
    /// Contract V12, two layers of one service: whichever is tighter holds, wherever it stands.
    async fn v12_two_layers_in_a_row_never_lengthen(shop: Shop) {
        for (outer, inner) in [(ms(200), ms(10_000)), (ms(10_000), ms(200))] {
            let app = Router::new()
                .route("/", get(std::future::pending::<()>))
                .route("/limit", get(|Op(op): Op| async move { op.bound().limit.as_millis().to_string() }));
            let app = shop
                .routes(app)
                .layer(shop.layer(Policy::named("inner").when_absent(inner).ceiling(inner)))
                .layer(shop.layer(Policy::named("outer").when_absent(outer).ceiling(outer)));
            let addr = shop.open_layered(app, |serve| serve.trust(Trust::Inside)).await;
            let limit = shop.get(addr, "/limit").within(ms(20_000)).answer().await;
            assert_eq!(limit.body, "200", "outer {outer:?}, inner {inner:?}");
            let since = clock_now();
            let answer = shop.get(addr, "/").answer().await;
            assert_eq!(answer.verdict(), (504, Some("deadline")), "outer {outer:?}, inner {inner:?}");
            assert!(clock_now() - since < ms(200) + NOTICED, "outer {outer:?}, inner {inner:?}");
        }
    }

    /// Contract V12, two services in a row.
    async fn v12_two_services_in_a_row_never_lengthen(shop: Shop) {
        let c = shop.echoes();
        let mut next = c.addr();
        for cap in [ms(9_000), ms(7_000)] {
            let out = shop.out(shop.way_out(), next, Terms { cap: Some(cap), ..Terms::default() });
            let pass_on = move || async move { out.get("/").await.expect("an answer") };
            next = shop.open(ample("proxy"), Router::new().route("/", get(pass_on))).await;
        }
        shop.get(next, "/").within(ms(3_000)).answer().await;
        assert!(told(&shop, &c).await <= ms(3_000));
        shop.get(next, "/").within(ms(30_000)).answer().await;
        assert!(told_in(&shop, &c, 2).await <= ms(7_000));
    }

    async fn the_platforms_limit_shortens_too(shop: Shop) {
        let layer = shop.layer(ample("lambda")).platform(|| Some(ms(200)));
        let app = shop.routes(Router::new().route("/", get(std::future::pending::<()>))).layer(layer);
        let addr = shop.open_layered(app, |serve| serve.trust(Trust::Inside)).await;
        let answer = shop.get(addr, "/").within(ms(10_000)).answer().await;
        assert_eq!(answer.status, 504);
        assert_eq!(answer.json()["bound"], "platform");
    }

    async fn c_is_left_in_time(shop: Shop) {
        let c = shop.stalls();
        let out = shop.out(shop.way_out(), c.addr(), Terms { cap: Some(ms(30_000)), ..Terms::default() });
        let call_c = move || async move { out.get("/").await.map(drop).map_err(|fault| fault.text) };
        let b = shop.open(ample("b"), Router::new().route("/", get(call_c))).await;
        is_left_in_time(&shop, b, &c).await.expect("B ends with A");
    }

    without_a_sidecar:

    async fn c1_a_cap_ends_a_call_before_its_operation(shop: Shop) {
        for &way_out in shop.ways_out() {
            let far_end = shop.stalls();
            let out = shop.out(way_out, far_end.addr(), Terms { cap: Some(ms(200)), ..Terms::default() });
            let op = Operation::begin("order", ms(10_000));
            let fault = op.run(out.get("/")).await.expect("the operation goes on").expect_err("no answer");
            let ended = fault.ended();
            assert_eq!((ended.ending.cause, ended.ending.bound), (Cause::Deadline, BoundBy::Cap), "{way_out:?}");
            assert_eq!(ended.bound.limit, ms(200), "{way_out:?}");
            assert!(told(&shop, &far_end).await <= ms(200), "{way_out:?}");
        }
    }

    /// Contract V10: A (1.5 s) → B (cap 3 s) → C.
    async fn v10_the_error_at_b_names_the_bound_of_a(shop: Shop) {
        let shop = &shop;
        join_all(shop.ways_out().iter().map(|&way_out| async move {
            let of_a = ms(1_500);
            let c = shop.stalls();
            let out = shop.out(way_out, c.addr(), Terms { cap: Some(ms(3_000)), ..Terms::default() });
            let at_b: Arc<Mutex<Option<Ended>>> = Arc::default();
            let kept = at_b.clone();
            let call_c = move || async move {
                let fault = out.get("/").await.expect_err("C never answers");
                *kept.lock().unwrap() = Some(fault.ended().clone());
                Err::<(), _>(fault)
            };
            let b = shop.open(ample("b"), Router::new().route("/", get(call_c))).await;

            let answer = shop.get(b, "/").within(of_a).answer().await;
            // Not `cap`, which would invite a repetition.
            assert_eq!(answer.verdict(), (504, Some("deadline")), "{way_out:?}");
            let ended = at_b.lock().unwrap().clone().expect("an error at B");
            assert_eq!((ended.ending.cause, ended.ending.bound), (Cause::Deadline, BoundBy::Caller), "{way_out:?}");
            let limit = ended.bound.limit; // what the call was granted of it
            assert!(limit <= of_a && limit > ms(1_000), "{way_out:?}: {limit:?}");
            assert!(ended.to_string().contains("(bound: caller)"), "{ended}");
            let json = answer.json();
            assert_eq!(json["bound"], "caller", "{json}");
            assert!(json["budget_ms"].as_f64().is_some_and(|limit| limit <= 1_500.0), "{json}");
            assert!(told(shop, &c).await <= of_a, "{way_out:?}");
        }))
        .await;
    }

    /// Every hop its own timeout, longer the further down: B goes on for an A that has given up.
    async fn the_naive_way_of_a_timeout_per_hop_outlasts_the_caller(shop: Shop) {
        let c = shop.stalls();
        let client = shop.plain(c.addr());
        let call_c = move || async move { client.get("/", Some(ms(30_000))).await.map(drop) };
        let b = under_a_timeout_layer(Router::new().route("/", get(call_c)), ms(30_000));
        let b = shop.open_naively(b).await;
        is_left_in_time(&shop, b, &c).await.expect_err("B has its own 30 s");
    }
}

/// Whether C's caller leaves C within ten times what A has given B. A stays, as a caller behind a proxy would.
async fn is_left_in_time(shop: &Shop, b: SocketAddr, c: &Peer) -> Result<(), String> {
    let of_a = ms(150);
    let _a = shop.get(b, "/").within(of_a).send().await;
    c.await_request().await.expect("B calls C");
    match tokio::time::timeout(ten_times(of_a), c.caller_left()).await {
        Ok(left) => left.map(drop).map_err(|missed| missed.to_string()),
        Err(_) => Err(format!("C still works after {:?} of {of_a:?}", ten_times(of_a))),
    }
}

async fn told(shop: &Shop, peer: &Peer) -> Duration {
    told_in(shop, peer, 1).await
}

async fn told_in(shop: &Shop, peer: &Peer, request: usize) -> Duration {
    let request = peer.await_requests(request).await.expect("a request");
    shop.way().told(&request.headers)
}

/// Contract V12 to the millisecond: two layers, no socket.
#[tokio::test(start_paused = true)]
async fn v12_two_layers_in_memory_end_with_the_tighter_one() {
    for (outer, inner, ends) in [(500, 5_000, 500), (5_000, 500, 500), (700, 700, 700)] {
        let layer = |limit| {
            let policy = Policy::named("order").when_absent(ms(limit)).ceiling(ms(limit)).build().unwrap();
            IngressLayer::new(policy).trust(Trust::Inside)
        };
        let service = ServiceBuilder::new().layer(layer(outer)).layer(layer(inner)).service_fn(
            |_: Request<Upload<Upload<Full<Bytes>>>>| async {
                std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
            },
        );
        let since = clock_now();
        let answer = service.oneshot(Request::new(Full::default())).await.expect("infallible");
        assert_eq!(answer.status(), 504);
        assert_eq!(clock_now() - since, ms(ends), "outer {outer} ms, inner {inner} ms");
    }
}

/// A chain of grants, each asking for more than the one before.
#[tokio::test(start_paused = true)]
async fn c1_a_chain_of_grants_never_exceeds_its_root() {
    let root = Operation::begin("root", ms(1_000));
    let mut op = root.clone();
    for depth in 1..=5u32 {
        op = op.grant("child").cap(ms(10_000)).reserve(ms(10)).operation().expect("time enough");
        assert_eq!(op.remaining(), ms(1_000) - ms(10) * depth);
        assert_eq!(op.bound().by, BoundBy::Cap, "a root that was begun is capped by whoever began it");
    }
    let ended = op.run(std::future::pending::<()>()).await.expect_err("nothing ends it");
    assert_eq!((root.remaining(), ended.stage()), (ms(50), Stage::Work));
}
