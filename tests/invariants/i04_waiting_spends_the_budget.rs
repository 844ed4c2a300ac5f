//! I4: waiting (queue, pool, connect, blocking threads) spends the same budget, and is cut off by it. Every wait is in
//! the ledger, under its stage. Contract V2, V3, X7, N5.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use futures_util::future::join_all;
use oneclock::{Carried, Operation, Stopped};
use oneclock_axum::{Op, Problem};
use oneclock_core::admission::Mode;
use oneclock_core::{BoundBy, Cause, Outcome, Policy, Stage, Trust};
use oneclock_http::{CallError, Destination, EgressLayer};
use oneclock_proxy::config::Concurrency;
use oneclock_test::caller::Caller;
use oneclock_test::{Probe, peer};
use oneclock_tonic::ClientLayer;
use tokio::time::Instant;
use tonic::transport::Server;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _};

use crate::naive::one_at_a_time_under_a_timeout;
use crate::out::{Terms, WayOut};
use crate::shop::{NOTICED, Shop, ample, ms};
use crate::ways::{Answer, Way};
use crate::witness::clock_now;

over_every_way_in! {
    without_a_sidecar:

    /// Contract V2: one at a time, 1 s each, four calls with 1500 ms: one answers, none starts after 1.5 s.
    async fn v2_a_queued_call_is_not_started_after_its_deadline(shop: Shop) {
        let probe = Probe::new();
        let one_at_a_time =
            ServiceBuilder::new().layer(shop.layer(ample("order"))).layer(GlobalConcurrencyLimitLayer::new(1));
        let app = shop.routes(sleeps(&probe, ms(1_000))).layer(one_at_a_time);
        let addr = shop.open_layered(app, |serve| serve.trust(Trust::Inside)).await;
        let answers = starts_in_time(&shop, addr, &probe, ms(1_500)).await.expect("nothing starts too late");

        let (answered, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
        assert_eq!((answered.len(), refused.len()), (1, 3));
        let because = |reason| refused.iter().filter(move |answer| answer.reason() == Some(reason));
        // The second is cut off in its middle. Whoever came some milliseconds after it may then begin for these.
        let begun = because("deadline").count();
        assert!(begun >= 1 && begun + because("expired_before_start").count() == 3, "{refused:?}");
        assert_eq!((probe.started_count(), probe.finished_count()), (1 + begun, 1));
        for answer in because("expired_before_start") {
            assert_eq!(answer.json()["stage"], "queue", "{answer:?}");
            assert!(spent_in(answer, "queue") >= 1_400.0, "{answer:?}");
        }
        for answer in because("deadline") {
            let queued = spent_in(answer, "queue");
            assert!((900.0..1_500.0).contains(&queued), "its queue counts as well: {answer:?}");
        }
    }

    async fn the_naive_way_of_a_timeout_behind_the_queue_starts_too_late(shop: Shop) {
        let probe = Probe::new();
        let app = one_at_a_time_under_a_timeout(sleeps(&probe, ms(250)), ms(375));
        let addr = shop.open_naively(app).await;
        starts_in_time(&shop, addr, &probe, ms(375)).await.expect_err("its clock starts with the handler");
    }

    async fn the_wait_for_a_connection_is_cut_off(shop: Shop) {
        let far_end = shop.stalls();
        let one = shop.out(shop.way_out(), far_end.addr(), Terms { one_at_a_time: true, ..Terms::default() });
        let calls = get(move || async move { one.get("/").await.map(drop) });
        let addr = shop.open(ample("order"), Router::new().route("/", calls)).await;

        let first = shop.get(addr, "/").within(ms(10_000)).send().await;
        far_end.await_request().await.unwrap();
        let second = shop.get(addr, "/").within(ms(300)).answer().await;
        assert_eq!(second.verdict(), (504, Some("deadline")));
        let json = second.json();
        let (stage, outcome) = waiting_for_a_turn(&shop);
        assert_eq!(json["stage"], stage.as_str(), "{json:#}");
        assert_eq!(json["outcome"], outcome.as_str(), "{json:#}");
        assert_eq!(json["bound"], "caller", "{json:#}");
        assert!(spent_in(&second, stage.as_str()) >= 250.0, "{json}");
        assert_eq!(far_end.requests(), 1, "the second was never sent");
        let called = shop.witness().called("pricing").await;
        assert_eq!(called.outcome, outcome);
        assert_eq!(called.ending.map(|ending| (ending.cause, ending.stage)), Some((Cause::Deadline, stage)));

        first.leave().await;
        far_end.caller_left().await.unwrap();
    }

    async fn a_place_in_the_pool_that_was_given_up_goes_to_the_next(shop: Shop) {
        let far_end = shop.slow(ms(400));
        let one = shop.out(shop.way_out(), far_end.addr(), Terms { one_at_a_time: true, ..Terms::default() });
        let (patient, hasty, next) = (op(5_000), op(100), op(5_000));
        let (first, given_up, third) = tokio::join!(
            patient.run(one.get("/1")),
            async {
                far_end.await_request().await.unwrap();
                hasty.run(one.get("/2")).await
            },
            async {
                far_end.await_request().await.unwrap();
                next.run(one.get("/3")).await
            },
        );
        for answer in [first, third] {
            assert_eq!(answer.expect("in time").expect("an answer"), "late");
        }
        assert!(!matches!(given_up, Ok(Ok(_))), "{given_up:?}");
        assert_eq!(far_end.await_requests(2).await.unwrap().target, shop.way().route("/3"));
    }

    /// Contract V3: a connector that takes for ever under a 200 ms budget gives an error at 200 ms.
    async fn v3_the_wait_for_a_connect_is_cut_off(shop: Shop) {
        for &way_out in shop.ways_out() {
            let far_end = peer::connect_hangs().await.unwrap();
            let out = shop.out(way_out, far_end.addr(), Terms::default());
            let op = op(200);
            // The error of the call, if that is looked at before the operation's own end.
            let fault = op.scope(out.get("/")).await.expect_err("nobody is there");
            let ended = fault.ended();
            assert_eq!((ended.ending.cause, ended.ending.bound), (Cause::Deadline, BoundBy::Cap), "{way_out:?}");
            assert!(ended.elapsed >= ms(190) && ended.elapsed < ms(200) + NOTICED, "{way_out:?}: {fault:?}");
            match way_out {
                WayOut::Client => assert_eq!((ended.stage(), fault.outcome), (Stage::Connect, Outcome::NotSent)),
                // None of them says how far it is: what is not known to be unsent may have been sent (contract R8).
                WayOut::Layer | WayOut::Reqwest | WayOut::Tonic => {
                    assert_eq!(fault.outcome, Outcome::Unknown { stage: Stage::Wait }, "{way_out:?}");
                }
            }
        }
    }

    async fn v3_the_ledger_of_a_service_says_that_it_was_connecting(shop: Shop) {
        let far_end = peer::connect_hangs().await.unwrap();
        let out = shop.out(shop.way_out(), far_end.addr(), Terms::default());
        let calls = get(move || async move { out.get("/").await.map(drop) });
        let addr = shop.open(ample("order"), Router::new().route("/", calls)).await;
        let answer = shop.get(addr, "/").within(ms(200)).answer().await;
        let stage = if shop.way() == Way::Grpc { "wait" } else { "connect" }; // a channel does not say how far it is
        assert_eq!(answer.status, 504);
        assert_eq!(answer.json()["stage"], stage);
        assert!(spent_in(&answer, stage) >= 150.0, "{answer:?}");
    }

    /// Our layer over a client that is not ready: the wait for it is a queue.
    async fn the_wait_for_a_client_that_is_not_ready_is_cut_off(shop: Shop) {
        let far_end = shop.stalls();
        let call = not_ready(shop.way(), far_end.addr());
        let (patient, hasty) = (op(10_000), op(200));
        let first = call(&patient);
        let second = async {
            far_end.await_request().await.unwrap();
            let fault = call(&hasty).await.expect_err("no turn");
            patient.call_off();
            fault
        };
        let (first, second) = tokio::join!(first, second);
        let Some(Stopped::Ended(ended)) = &second.0 else { panic!("{second:?}") };
        assert_eq!((ended.ending.cause, ended.stage()), (Cause::Deadline, Stage::Queue));
        assert_eq!(second.1, Outcome::NotSent);
        assert!(first.is_err());
        far_end.caller_left().await.unwrap();
        assert_eq!(far_end.requests(), 1);
    }

    /// Contract N5: a closure that got no thread before its deadline does not run.
    async fn n5_the_wait_for_a_blocking_thread_is_cut_off(shop: Shop) {
        let (busy, go_on) = mpsc::channel::<()>();
        let occupied = tokio::task::spawn_blocking(move || go_on.recv()); // the only thread there is
        let ran = Probe::new();
        let entered = ran.clone();
        let work = move |Op(op): Op| async move {
            let resized = op.spawn_blocking("resize", move |_| entered.enter().finish());
            resized.await.map_err(Problem::from)
        };
        let addr = shop.open(Policy::named("thumbnails"), Router::new().route("/", get(work))).await;
        let answer = shop.get(addr, "/").within(ms(200)).answer().await;
        assert_eq!(answer.verdict(), (504, Some("deadline")));
        assert_eq!(answer.json()["outcome"], "not_sent", "{answer:?}");
        let entries = answer.json()["ledger"]["entries"].as_array().cloned().unwrap_or_default();
        let queued = entries.iter().filter(|entry| entry["stage"] == "queue");
        let waited: f64 = queued.filter_map(|entry| entry["took_ms"].as_f64()).sum();
        assert!(waited >= 150.0, "the document says where the time went: {answer:?}");
        let over = shop.witness().ended("thumbnails").await;
        let waited: Duration = over
            .ledger
            .entries()
            .iter()
            .filter(|entry| entry.stage == Stage::Queue)
            .map(|entry| entry.ended.map_or(over.elapsed, |ended| ended.since(entry.began)))
            .sum();
        assert!(waited >= ms(150), "{}", over.ledger);

        drop(busy);
        occupied.await.unwrap().expect_err("nobody told it anything");
        tokio::task::spawn_blocking(|| ()).await.unwrap(); // whatever was queued before this has had its turn
        assert_eq!(ran.started_count(), 0);
    }

    async fn the_naive_way_of_a_blocking_closure_runs_after_its_deadline(shop: Shop) {
        let (busy, go_on) = mpsc::channel::<()>();
        let occupied = tokio::task::spawn_blocking(move || go_on.recv());
        let ran = Probe::new();
        let entered = ran.clone();
        let work = move || async move { drop(tokio::task::spawn_blocking(move || entered.enter().finish()).await) };
        let app = crate::naive::under_a_timeout_layer(Router::new().route("/", get(work)), ms(200));
        let addr = shop.open_naively(app).await;
        assert_eq!(shop.get(addr, "/").answer().await.status, 504);
        drop(busy);
        occupied.await.unwrap().expect_err("nobody told it anything");
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert_eq!(ran.started_count(), 1, "for nobody");
    }

    only_behind_a_sidecar:

    /// Contract V2 for a service that knows of no deadline: the line is before it.
    async fn v2_a_queued_request_does_not_reach_the_service_after_its_deadline(shop: Shop) {
        let probe = Probe::new();
        let naive = shop.open_naively(sleeps(&probe, ms(1_000))).await;
        let addr = shop
            .sidecar(naive, Trust::Inside, None, |route| {
                route.concurrency = Concurrency::Fixed(1);
                route.mode = Mode::Enforce;
            })
            .await;
        let answers = starts_in_time(&shop, addr, &probe, ms(1_500)).await.expect("nothing starts too late");
        let (answered, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
        assert_eq!((answered.len(), refused.len()), (1, 3), "{refused:?}");
        assert!(probe.started_count() <= 2 && probe.finished_count() == 1, "{probe}: {refused:?}");
        assert!(refused.iter().all(|answer| answer.status == 504), "{refused:?}");
    }
}

/// Where a call is that waits for its turn in a client of its own, and what is known of it then. A channel of tonic's waits
/// inside, where nobody can see how far it is.
fn waiting_for_a_turn(shop: &Shop) -> (Stage, Outcome) {
    match shop.way() {
        Way::Http1 | Way::Http2 => (Stage::Pool, Outcome::NotSent),
        Way::Grpc => (Stage::Wait, Outcome::Unknown { stage: Stage::Wait }),
    }
}

type Known = (Option<Stopped>, Outcome);

/// Calls in an operation through our layer over a client that takes one call at a time, and is not ready meanwhile.
fn not_ready(way: Way, addr: SocketAddr) -> impl AsyncFn(&Operation) -> Result<(), Known> {
    let one = GlobalConcurrencyLimitLayer::new(1);
    let known = |error: &CallError| (error.stopped().cloned(), error.outcome());
    let legacy = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .http2_only(way == Way::Http2)
        .build_http::<http_body_util::Empty<bytes::Bytes>>();
    let egress = EgressLayer::new(Destination::named("pricing").build().unwrap()).layer(one.layer(legacy));
    let destination = oneclock_tonic::destination("pricing").build().unwrap();
    let tonic = ClientLayer::new(destination).layer(one.layer(crate::grpc::out::channel(addr, false)));
    async move |op: &Operation| {
        if way == Way::Grpc {
            let request = tonic::Request::new(bytes::Bytes::new());
            let answer = op.scope(crate::grpc::out::unary(tonic.clone(), "/", request)).await;
            return answer.map(drop).map_err(|status| known(oneclock_tonic::call_error(&status).expect("a call")));
        }
        let request = http::Request::get(format!("http://{addr}")).body(http_body_util::Empty::new()).unwrap();
        op.scope(egress.clone().oneshot(request)).await.map(drop).map_err(|error| known(&error))
    }
}

fn op(budget: u64) -> Operation {
    Operation::begin("order", ms(budget))
}

over_plain_tonic! {
    /// Contract V2 again. The limit of tonic's server waits outside of its timeout.
    async fn the_naive_way_of_tonics_server_starts_too_late(shop: Shop) {
        let (probe, budget) = (Probe::new(), ms(375));
        let one_at_a_time = |server: Server| server.timeout(budget).concurrency_limit_per_connection(1);
        let addr = shop.open_plain_tonic(sleeps(&probe, ms(250)), one_at_a_time).await;
        let caller = Caller::h2(addr).connect().await.expect("it connects");
        let (method, begun) = (crate::grpc::method_of("/"), clock_now());
        let answers = (0..4).map(|_| async {
            let request = caller.grpc(method.as_str(), "").header(crate::grpc::METHOD, "GET");
            request.header("grpc-timeout", "375m").send().await.expect("it is sent").answer().await
        });
        join_all(answers).await;
        none_starts_after(&probe, begun, budget).await.expect_err("its clock starts with the handler");
    }
}

fn sleeps(probe: &Probe, span: Duration) -> Router {
    let probe = probe.clone();
    let handler = move || async move {
        let guard = probe.enter();
        tokio::time::sleep(span).await;
        guard.finish();
    };
    Router::new().route("/", get(handler))
}

/// Four calls at once. Whether none of them was begun after `budget`, and what came back.
async fn starts_in_time(shop: &Shop, addr: SocketAddr, probe: &Probe, budget: Duration) -> Result<Vec<Answer>, String> {
    let begun = clock_now();
    let answers = join_all((0..4).map(|_| shop.get(addr, "/").within(budget).answer())).await;
    none_starts_after(probe, begun, budget).await.map(|()| answers)
}

async fn none_starts_after(probe: &Probe, begun: Instant, budget: Duration) -> Result<(), String> {
    for nth in 1..=probe.started_count() {
        let after = probe.started(nth).await.unwrap() - begun;
        if after > budget + ms(100) {
            return Err(format!("handler {nth} started after {after:?} of {budget:?}"));
        }
    }
    Ok(())
}

/// How many milliseconds the ledger of a problem has under `stage`, at whatever depth.
#[track_caller]
fn spent_in(problem: &Answer, stage: &str) -> f64 {
    fn within(entries: &serde_json::Value, stage: &str) -> f64 {
        let entries = entries.as_array().into_iter().flatten();
        entries
            .map(|entry| {
                let own = if entry["stage"] == stage { entry["took_ms"].as_f64().unwrap() } else { 0.0 };
                own + within(&entry["parts"], stage)
            })
            .sum()
    }
    let json = problem.json();
    assert!(json["ledger"]["entries"].is_array(), "no ledger in {json}");
    within(&json["ledger"]["entries"], stage)
}

/// A value on its way through a channel waits in a queue as well. Contract X7.
#[tokio::test(start_paused = true)]
async fn x7_what_expired_in_a_channel_is_not_started() {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(8);
    let (hasty, patient) = (op(100), op(1_000));
    for op in [&hasty, &patient] {
        sender.send(Carried::new(op, "cart")).await.expect("there is room");
    }
    tokio::time::sleep(ms(400)).await;

    let late = receiver.recv().await.expect("a cart").open().expect_err("its deadline has passed");
    assert_eq!((late.ended.ending.cause, late.ended.stage(), late.value), (Cause::Deadline, Stage::Queue, "cart"));
    let (op, _) = receiver.recv().await.expect("a cart").open().expect("time is left");
    assert_eq!(op.remaining(), ms(600));
    let ledger = patient.ledger();
    let queued = &ledger.entries()[0];
    assert_eq!((queued.stage, queued.ended.expect("closed").since(queued.began)), (Stage::Queue, ms(400)));
}

/// The queue behind our layer to the millisecond, without sockets. Contract V2.
#[tokio::test(start_paused = true)]
async fn v2_in_memory_the_queue_is_cut_at_the_deadline_itself() {
    let probe = Probe::new();
    let handled = probe.clone();
    let policy = Policy::named("order").when_absent(ms(1_500)).build().unwrap();
    let service = ServiceBuilder::new()
        .layer(oneclock_http::IngressLayer::new(policy))
        .layer(GlobalConcurrencyLimitLayer::new(1))
        .service_fn(move |_: http::Request<oneclock_http::Upload<String>>| {
            let probe = handled.clone();
            async move {
                let guard = probe.enter();
                tokio::time::sleep(ms(1_000)).await;
                guard.finish();
                Ok::<_, std::convert::Infallible>(http::Response::new("done".to_owned()))
            }
        });
    let begun = clock_now();
    let call = || {
        let service = service.clone();
        async move {
            let answer = service.oneshot(http::Request::new(String::new())).await.expect("infallible");
            (answer.status().as_u16(), clock_now() - begun)
        }
    };
    let mut answers = join_all([call(), call(), call(), call()]).await;
    answers.sort();
    let cut = (504, ms(1_500));
    assert_eq!(answers, [(200, ms(1_000)), cut, cut, cut]);
    assert_eq!((probe.started_count(), probe.finished_count()), (2, 1));
}
