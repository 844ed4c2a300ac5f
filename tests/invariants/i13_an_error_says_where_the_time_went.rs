//! I13: a deadline error says which bound, where, and where the time went, to callers inside the trust boundary, across
//! hops; and nothing of that to outsiders. Contract section 5.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, Method, StatusCode};
use oneclock_axum::Op;
use oneclock_core::{Stage, Trust};
use serde_json::Value;

use crate::naive::under_a_timeout_layer;
use crate::out::Terms;
use crate::shop::{Shop, ample, ms};
use crate::ways::{Answer, Way};

const BUDGET: Duration = ms(800);
/// What the services of this module work before they call.
const WORK: Duration = ms(100);
/// What may lie between two readings of the clock on a loaded machine, in milliseconds.
const TOLERANCE: f64 = 75.0;

/// Whether `problem` says which bound, where, how much of what, and where that went.
fn explains(problem: &Answer) -> Result<Value, String> {
    let json: Value = serde_json::from_slice(&problem.body).map_err(|error| format!("{error}: {problem:?}"))?;
    explains_itself(&json).map(|()| json.clone()).map_err(|why| format!("{why}: {json:#}"))
}

fn explains_itself(json: &Value) -> Result<(), String> {
    let number = |field: &str| json[field].as_f64().ok_or(format!("no {field}"));
    let word = |field: &str| json[field].as_str().map(str::to_owned).ok_or(format!("no {field}"));
    if json["type"] != "urn:oneclock:deadline" || json["status"] != 504 {
        return Err("no deadline problem".to_owned());
    }
    let (bound, stage, budget, elapsed) = (word("bound")?, word("stage")?, number("budget_ms")?, number("elapsed_ms")?);
    if elapsed + 1.0 < budget {
        return Err(format!("over after {elapsed} ms of {budget} ms"));
    }
    if bound != "caller" || !Stage::ALL.iter().any(|known| known.as_str() == stage) {
        return Err(format!("bound {bound}, stage {stage}"));
    }
    let entries = json["ledger"]["entries"].as_array().ok_or("no ledger")?;
    let unaccounted = json["ledger"]["unaccounted_ms"].as_f64().ok_or("no rest")?;
    adds_up("the ledger", elapsed, sum(entries) + unaccounted)?;
    for entry in entries {
        // The stages of a call follow each other without a gap.
        if let Some(parts) = entry["parts"].as_array() {
            let took = entry["took_ms"].as_f64().ok_or("an entry without its time")?;
            adds_up(&format!("entry {}", entry["name"]), took, sum(parts))?;
        }
    }
    Ok(())
}

/// The services here do one thing after another, so their entries add up.
fn sum(entries: &[Value]) -> f64 {
    entries.iter().filter_map(|entry| entry["took_ms"].as_f64()).sum()
}

fn adds_up(what: &str, whole: f64, parts: f64) -> Result<(), String> {
    if (whole - parts).abs() <= TOLERANCE {
        return Ok(());
    }
    Err(format!("{what} has {parts} ms of {whole} ms"))
}

over_every_way_in! {
    async fn outsiders_see_none_of_it(shop: Shop) {
        let far_end = shop.stalls();
        let out = shop.out(shop.way_out(), far_end.addr(), Terms::default());
        let app = Router::new().route("/forever", get(std::future::pending::<()>)).route(
            "/call",
            get(move || async move {
                out.get("/").await.map(drop)
            }),
        );
        let addr = shop.open_to(Trust::Outside, ample("order"), app).await;
        for (target, budget) in [("/forever", ms(300)), ("/call", ms(300)), ("/forever", ms(0)), ("/forever", ms(1))] {
            let answer = shop.get(addr, target).within(budget).answer().await;
            assert_eq!(answer.status, 504, "{target}");
            let json = answer.json();
            let mut keys: Vec<_> = json.as_object().expect("an object").keys().map(String::as_str).collect();
            keys.sort_unstable();
            assert_eq!(keys, ["status", "title", "type"], "{target}: {json:#}");
            let everything = format!("{answer:?}");
            for word in ["ledger", "insight", "pricing", "budget_ms", "elapsed", "stage", "127.0.0.1"] {
                assert!(!everything.contains(word), "{target}: {word} in {everything}");
            }
        }
    }

    without_a_sidecar:

    async fn the_handler_itself_took_too_long(shop: Shop) {
        let app = Router::new().route(
            "/",
            get(|Op(op): Op| async move {
                {
                    let _parsing = op.spend("parsing", Stage::Work);
                    tokio::time::sleep(WORK).await;
                }
                std::future::pending::<()>().await;
            }),
        );
        let addr = shop.open(ample("order"), app).await;
        let json = explains(&shop.get(addr, "/").within(BUDGET).answer().await).unwrap();
        assert_eq!((&json["stage"], &json["budget_ms"]), (&"work".into(), &800.into()), "{json:#}");
        let parsing = &json["ledger"]["entries"][0];
        assert_eq!(parsing["name"], "parsing", "{json:#}");
        assert!(parsing["took_ms"].as_f64().is_some_and(|took| took >= 99.0), "{json:#}");
    }

    async fn the_service_that_it_called_took_too_long(shop: Shop) {
        let shop = &shop;
        join_all(shop.ways_out().iter().map(|&way_out| async move {
            let far_end = shop.stalls();
            let out = shop.out(way_out, far_end.addr(), Terms::default());
            let app = Router::new().route(
                "/",
                get(move || async move {
                    tokio::time::sleep(WORK).await;
                    out.get("/").await.map(drop)
                }),
            );
            let addr = shop.open(ample("order"), app).await;
            let json = explains(&shop.get(addr, "/").within(BUDGET).answer().await).unwrap();
            assert_eq!(
                (&json["stage"], &json["outcome"]),
                (&"wait".into(), &"unknown".into()),
                "{way_out:?}: {json:#}"
            );
            let insight = json["insight"].as_str().expect("a sentence");
            for word in ["order → pricing", "out of time in stage wait", "bound: caller", "outcome: unknown"] {
                assert!(insight.contains(word), "{way_out:?}: {insight}");
            }
        }))
        .await;
    }

    /// Caller → gateway → order → pricing, and pricing never answers. Order keeps some time back, and tells.
    async fn across_two_hops_each_says_its_part(shop: Shop) {
        let pricing = shop.stalls();
        let to_pricing = Terms { reserve: ms(250), ..Terms::default() };
        let to_pricing = shop.out(shop.way_out(), pricing.addr(), to_pricing);
        let order = shop
            .open(
                ample("order"),
                Router::new().route(
                    "/",
                    get(move || async move {
                        tokio::time::sleep(WORK).await;
                        to_pricing.get("/").await.map(drop)
                    }),
                ),
            )
            .await;
        let to_order = shop.out(shop.way_out(), order, Terms { name: "order", ..Terms::default() });
        let gateway = shop
            .open(
                ample("gateway"),
                Router::new().route(
                    "/",
                    get(move |Op(op): Op| async move {
                        {
                            let _parsing = op.spend("parsing", Stage::Work);
                            tokio::time::sleep(WORK).await;
                        }
                        to_order.ask(Method::GET, "/", HeaderMap::new(), Bytes::new()).await // handed on as it is
                    }),
                ),
            )
            .await;

        let answer = shop.get(gateway, "/").within(ms(1_200)).answer().await;
        let most = 1_200.0 - 100.0 - 250.0; // what was left after both hops' work, less the reserve
        let elapsed = match shop.way() {
            Way::Http1 | Way::Http2 => {
                let json = explains(&answer).unwrap();
                assert_eq!(json["stage"], "wait", "{json:#}");
                assert!(json["budget_ms"].as_f64().is_some_and(|granted| granted <= most), "{json:#}");
                Duration::from_secs_f64(json["elapsed_ms"].as_f64().unwrap() / 1_000.0)
            }
            // A status is one service's word on one call, which the next does not make its own: it says that its call was
            // out of time, and what it was told of that.
            Way::Grpc => {
                let json = answer.json();
                assert_eq!(answer.verdict(), (504, None), "{json:#}");
                assert_eq!(json["type"], "urn:oneclock:call_timed_out", "{json:#}");
                let insight = json["insight"].as_str().expect("a sentence");
                for word in ["order", "pricing", "out of time in stage wait"] {
                    assert!(insight.contains(word), "{word} not in: {insight}");
                }
                let called = shop.witness().called("pricing").await;
                assert_eq!(called.ending.map(|ending| ending.stage), Some(Stage::Wait));
                called.elapsed
            }
        };

        // What the gateway knows of the same request.
        let over = shop.witness().ended("gateway").await;
        assert_eq!(over.bound.limit, ms(1_200));
        let entries: Vec<_> = over.ledger.parts_of(None).collect();
        let names: Vec<_> = entries.iter().map(|(_, entry)| entry.name.as_str()).collect();
        assert_eq!(names, ["parsing", "order"], "{}", over.ledger);
        let (id, order) = entries[1];
        let stages: Vec<_> = over.ledger.parts_of(Some(id)).map(|(_, part)| part.stage).collect();
        let first = if shop.way() == Way::Grpc { Stage::Wait } else { Stage::Pool };
        assert_eq!(stages.first(), Some(&first), "{}", over.ledger);
        assert!(stages.contains(&Stage::Wait), "{}", over.ledger);
        let took = order.ended.expect("closed").since(order.began);
        assert!(took >= elapsed, "it contains order's part");
        let end = over.ledger.began() + over.elapsed;
        let whole = over.ledger.accounted(end) + over.ledger.unaccounted(end);
        assert_eq!(whole, over.elapsed);
    }

    /// The gateway runs out first: its own document says so.
    async fn across_two_hops_the_first_says_its_own(shop: Shop) {
        let pricing = shop.stalls();
        let mut next = pricing.addr();
        for name in ["order", "gateway"] {
            let out = shop.out(shop.way_out(), next, Terms::default());
            next = shop
                .open(
                    ample(name),
                    Router::new().route(
                        "/",
                        get(move || async move {
                            tokio::time::sleep(WORK).await;
                            drop(out.get("/").await);
                            std::future::pending::<()>().await;
                        }),
                    ),
                )
                .await;
        }
        let json = explains(&shop.get(next, "/").within(BUDGET).answer().await).unwrap();
        assert_eq!((&json["bound"], &json["budget_ms"]), (&"caller".into(), &800.into()), "{json:#}");
        let call = &json["ledger"]["entries"][0];
        assert!(call["took_ms"].as_f64().is_some_and(|took| took > 400.0), "most of it was the call: {json:#}");
        assert!(json["ledger"]["unaccounted_ms"].as_f64().is_some_and(|rest| rest >= 95.0), "its own work: {json:#}");
    }

    async fn the_naive_way_of_a_timeout_layer_says_nothing(shop: Shop) {
        let app = Router::new().route("/", get(std::future::pending::<StatusCode>));
        let addr = shop.open_naively(under_a_timeout_layer(app, BUDGET)).await;
        let answer = shop.get(addr, "/").within(BUDGET).answer().await;
        assert_eq!(answer.status, 504);
        explains(&answer).expect_err("an empty body");
    }

    async fn the_check_notices_a_sum_that_does_not_add_up(shop: Shop) {
        let addr = shop.open(ample("order"), Router::new().route("/", get(std::future::pending::<()>))).await;
        let mut json = explains(&shop.get(addr, "/").within(ms(300)).answer().await).unwrap();
        json["ledger"]["unaccounted_ms"] = 0.into();
        explains_itself(&json).expect_err("300 ms are missing");
    }

    only_behind_a_sidecar:

    /// Of a service that says nothing the sidecar knows what it did itself, and how long it waited.
    async fn the_service_that_knows_of_no_deadline_took_too_long(shop: Shop) {
        let naive = shop.open_naively(Router::new().route("/", get(std::future::pending::<StatusCode>))).await;
        let addr = shop.sidecar(naive, Trust::Inside, None, |_| {}).await;
        let json = explains(&shop.get(addr, "/").within(BUDGET).answer().await).unwrap();
        assert_eq!((&json["stage"], &json["outcome"]), (&"wait".into(), &"unknown".into()), "{json:#}");
        assert_eq!(json["bound"], "caller", "{json:#}");
        assert!(json["budget_ms"].as_f64().is_some_and(|granted| granted <= 800.0 && granted > 400.0), "{json:#}");
    }
}
