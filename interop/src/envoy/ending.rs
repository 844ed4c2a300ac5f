//! Rows about the end: who answers, what is cut off, what the caller sees of it, and what happens when the caller leaves.

use std::time::Duration;

use h2::Reason;
use oneclock::clock;
use oneclock_core::wire::Convention;

use super::caller::Ask;
use super::row::{Measured, Row, SOON, at_least, at_most, holds, ms, same};
use super::world::World;

const LONG: &str = "sleep=60000";
const STREAM: &str = "stream=50";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "E1",
        case: "a route's `timeout` passes before the service answers",
        by_default: "HTTP: Envoy's 504, no reason. gRPC: status 14 UNAVAILABLE, which callers repeat. The work is cancelled",
        kept: "HTTP: `timeout` lies above the ceiling, so the service answers first. gRPC: `timeout: 0s`, the \
               service's status 4",
        measure: |world| Box::pin(route_timeout(world)),
    },
    Row {
        id: "E2",
        case: "200 ms in Envoy (a filter), `x-remaining-ms: 500`",
        by_default: "arrives as 500: the service works on for 200 ms after the caller's time",
        kept: "the same: no setting subtracts it. With `x-request-deadline` beside it the service has about 300",
        measure: |world| Box::pin(http_in_envoy(world)),
    },
    Row {
        id: "E3",
        case: "200 ms in Envoy (a filter), `grpc-timeout: 500m`",
        by_default: "arrives as `500m`: the service answers 200 ms after the caller's time. With `grpc_timeout_header_max` \
                     too, but Envoy counts from its own arrival: status 4 at 500 ms, and cancels the work",
        kept: "arrives as `500m`. gRPC callers have a clock of their own, and leave (E8)",
        measure: |world| Box::pin(grpc_in_envoy(world)),
    },
    Row {
        id: "E4",
        case: "1.6 s of upload, a route with 1 s",
        by_default: "Envoy begins to count after the upload: a service without oneclock answers 200. Ours was told 1000 with \
                     the head: 408 `request_body` after 1 s, which reaches the uploading caller",
        kept: "ours is told nothing of the route; with `x-remaining-ms: 400` its 408 comes at 400 ms",
        measure: |world| Box::pin(upload(world)),
    },
    Row {
        id: "E5",
        case: "an HTTP/1.1 answer that is cut off in its body at 400 ms",
        by_default: "never looks complete; the caller learns of it 1 s late (`delayed_close_timeout`)",
        kept: "the caller learns of it after 50 ms",
        measure: |world| Box::pin(cut_http1(world)),
    },
    Row {
        id: "E6",
        case: "an HTTP/2 answer that is cut off in its body at 400 ms (we reset with CANCEL)",
        by_default: "the caller sees a reset with INTERNAL_ERROR",
        kept: "the same",
        measure: |world| Box::pin(cut_http2(world)),
    },
    Row {
        id: "E7",
        case: "a gRPC stream that ends with status 4 in its trailers",
        by_default: "the trailers arrive: status 4",
        kept: "the same",
        measure: |world| Box::pin(trailers(world)),
    },
    Row {
        id: "E8",
        case: "the caller leaves (HTTP/1.1, HTTP/2, gRPC; while waiting, in the body)",
        by_default: "the work is cancelled within milliseconds",
        kept: "the same",
        measure: |world| Box::pin(leaves(world)),
    },
    Row {
        id: "E9",
        case: "with which code Envoy resets the HTTP/2 stream behind it: the caller leaves; a `timeout` passes",
        by_default: "both times INTERNAL_ERROR",
        kept: "the same: a service must not wait for CANCEL. Ours does not",
        measure: |world| Box::pin(codes(world)),
    },
    Row {
        id: "E10",
        case: "what becomes of our 499",
        by_default: "it is in our events only. Envoy counts `downstream_rq_rx_reset`, and no answer",
        kept: "the same",
        measure: |world| Box::pin(caller_gone(world)),
    },
    Row {
        id: "E11",
        case: "six requests in a row that run out of their own time, `outlier_detection` with `consecutive_5xx: 5`",
        by_default: "the healthy host is ejected",
        kept: "it stays",
        measure: |world| Box::pin(outliers(world)),
    },
];

async fn route_timeout(world: &World) -> Result<Measured, String> {
    let inside = || world.variants.at("inside");
    let http = world.call(inside(), Ask::get("/naive/short/").field("x-work", LONG)).await?;
    same(
        "answer",
        (http.seen.code(), http.seen.reason(), http.seen.body.as_str()),
        (504, "", "upstream request timeout"),
    )?;
    same("dropped", http.one()?.dropped(), true)?;
    let grpc = world.call(inside(), Ask::grpc("/naive/short/Place").field("x-work", LONG)).await?;
    same("status", grpc.seen.grpc(), Some(14))?;
    same("dropped", grpc.one()?.dropped(), true)?;
    let http_kept = world.call(world.kept("inbound"), Ask::get("/").field("x-work", LONG)).await?;
    same("answer", (http_kept.seen.code(), http_kept.seen.reason()), (504, "deadline"))?;
    let ask = Ask::grpc("/shop.Orders/Place").field("grpc-timeout", "400m").field("x-work", LONG);
    let grpc_kept = world.call(world.kept("inbound"), ask).await?;
    same("answer", (grpc_kept.seen.grpc(), grpc_kept.seen.reason()), (Some(4), "deadline"))?;
    Ok(Measured::default().by_default(&http).by_default(&grpc).kept(&http_kept).kept(&grpc_kept))
}

async fn http_in_envoy(world: &World) -> Result<Measured, String> {
    let ask = || {
        let ask = Ask::get("/").field("x-remaining-ms", "500").field("x-work", LONG);
        ask.field("x-envoy-fault-delay-request", "200")
    };
    let mut measured = Measured::default();
    for (at, kept) in [(world.variants.at("inside"), false), (world.kept("inbound"), true)] {
        let told = world.call(at, ask()).await?;
        same("told", told.one()?.said("x-remaining-ms"), "500")?;
        at_least("until the answer", told.seen.took, ms(695))?;
        measured = if kept { measured.kept(&told) } else { measured.by_default(&told) };
    }
    let ask = ask().field("x-request-deadline", deadline_in(ms(500))?);
    let absolute = world.call(world.kept("inbound"), ask).await?;
    same("told", absolute.one()?.said("x-remaining-ms"), "500")?;
    at_most("left", absolute.one()?.left(), ms(350))?;
    Ok(measured.kept(&absolute))
}

async fn grpc_in_envoy(world: &World) -> Result<Measured, String> {
    let ask = |path: &str| {
        let ask = Ask::grpc(path).field("grpc-timeout", "500m").field("x-work", LONG);
        ask.field("x-envoy-fault-delay-request", "200")
    };
    let plain = world.call(world.variants.at("inside"), ask("/shop.Orders/Place")).await?;
    same("told", plain.one()?.said("grpc-timeout"), "500m")?;
    same("answer", (plain.seen.grpc(), plain.seen.reason()), (Some(4), "deadline"))?;
    at_least("until the answer", plain.seen.took, ms(695))?;
    let max = world.call(world.variants.at("inside"), ask("/header-max/Place")).await?;
    same("told", max.one()?.said("grpc-timeout"), "500m")?;
    same("answer, of Envoy", (max.seen.grpc(), max.seen.reason()), (Some(4), ""))?;
    same("dropped", max.one()?.dropped(), true)?;
    let kept = world.call(world.kept("inbound"), ask("/shop.Orders/Place")).await?;
    same("told", kept.one()?.said("grpc-timeout"), "500m")?;
    Ok(Measured::default().by_default(&plain).by_default(&max).kept(&kept))
}

async fn upload(world: &World) -> Result<Measured, String> {
    let ask = |path: &str| Ask::post(path).upload(8, ms(200)).field("x-work", "read=1");
    let naive = world.call(world.variants.at("inside"), ask("/naive/second/")).await?;
    same("status", naive.seen.code(), 200)?;
    at_least("until the answer", naive.seen.took, ms(1600))?;
    let plain = world.call(world.variants.at("inside"), ask("/second/")).await?;
    same("told", plain.one()?.said("x-envoy-expected-rq-timeout-ms"), "1000")?;
    same("answer", (plain.seen.code(), plain.seen.reason()), (408, "request_body"))?;
    let kept = world.call(world.kept("inbound"), ask("/").field("x-remaining-ms", "400")).await?;
    same("told", kept.one()?.said("x-envoy-expected-rq-timeout-ms"), "")?;
    same("answer", (kept.seen.code(), kept.seen.reason()), (408, "request_body"))?;
    Ok(Measured::default().by_default(&naive).by_default(&plain).kept(&kept))
}

async fn cut_http1(world: &World) -> Result<Measured, String> {
    let ask = || Ask::get("/").field("x-remaining-ms", "400").field("x-work", STREAM);
    let plain = world.call(world.plain(), ask()).await?;
    let kept = world.call(world.kept("inbound"), ask()).await?;
    for told in [&plain, &kept] {
        same("status", told.seen.code(), 200)?;
        holds("the caller sees that it was cut off", told.seen.cut.is_some())?;
    }
    at_least("until the caller knew", plain.seen.took, ms(1390))?;
    at_most("until the caller knew", kept.seen.took, ms(1390))?;
    Ok(Measured::default().by_default(&plain).kept(&kept))
}

async fn cut_http2(world: &World) -> Result<Measured, String> {
    let mut measured = Measured::default();
    for (at, kept) in [(world.plain(), false), (world.kept("inbound"), true)] {
        let told = world.call(at, Ask::get("/").http2().field("x-remaining-ms", "400").field("x-work", STREAM)).await?;
        same("status", told.seen.code(), 200)?;
        same("cut", told.seen.cut.as_deref(), Some("INTERNAL_ERROR"))?;
        measured = if kept { measured.kept(&told) } else { measured.by_default(&told) };
    }
    Ok(measured)
}

async fn trailers(world: &World) -> Result<Measured, String> {
    let ask = || Ask::grpc("/shop.Orders/Watch").field("x-work", "stream=50;pieces=3;grpc=4");
    let mut measured = Measured::default();
    for (at, kept) in [(world.plain_to_naive(), false), (world.kept_to_naive("inbound"), true)] {
        let told = world.call(at, ask()).await?;
        same("cut", told.seen.cut.as_deref(), None)?;
        holds("the status stands in the trailers", told.seen.trailers.contains_key("grpc-status"))?;
        same("status", told.seen.grpc(), Some(4))?;
        measured = if kept { measured.kept(&told) } else { measured.by_default(&told) };
    }
    Ok(measured)
}

async fn leaves(world: &World) -> Result<Measured, String> {
    let mut measured = Measured::default();
    for (at, kept) in [(world.plain(), false), (world.kept("inbound"), true)] {
        for work in [LONG, STREAM] {
            for ask in [Ask::get("/"), Ask::get("/").http2(), Ask::grpc("/shop.Orders/Place")] {
                let ask = ask.field("x-remaining-ms", "4000").field("x-work", work);
                let (after, told) = world.leave(at.clone(), ask).await?;
                same("dropped", told.one()?.dropped(), true)?;
                at_most("until the work was dropped", after, SOON)?;
                let line = format!("{work}: dropped {:.1} ms after the caller left", after.as_secs_f64() * 1e3);
                if kept { &mut measured.kept } else { &mut measured.by_default }.push(line);
            }
        }
    }
    Ok(measured)
}

async fn codes(world: &World) -> Result<Measured, String> {
    let mut measured = Measured::default();
    let mut resets = world.resets.lock().await;
    for (at, kept) in [(world.variants.at("inside")?, false), (world.kept_to_resets()?, true)] {
        let ask = || Ask::post("/resets/").http2();
        ask().leave_at(at, resets.began()).await?;
        let left = resets.code().await?;
        let seen = ask().field("x-envoy-upstream-rq-timeout-ms", "300").send(at).await?;
        same("status", seen.code(), 504)?;
        resets.began().await;
        let timed_out = resets.code().await?;
        same(
            "code when the caller left, at a timeout",
            (left, timed_out),
            (Reason::INTERNAL_ERROR, Reason::INTERNAL_ERROR),
        )?;
        let line = format!("caller left: {left:?}; timeout: {timed_out:?}");
        if kept { &mut measured.kept } else { &mut measured.by_default }.push(line);
    }
    Ok(measured)
}

async fn caller_gone(world: &World) -> Result<Measured, String> {
    let mut measured = Measured::default();
    for (envoy, listener, kept) in [(&world.variants, "inside", false), (&world.contract, "inbound", true)] {
        let (left, client_errors) =
            (format!("http.{listener}.downstream_rq_rx_reset"), format!("http.{listener}.downstream_rq_4xx"));
        let before = (envoy.stat(&left).await?, envoy.stat(&client_errors).await?);
        let ask = Ask::get("/").field("x-remaining-ms", "4000").field("x-work", LONG);
        world.leave(envoy.at(listener), ask).await?;
        let after = (envoy.stat_becomes(&left, before.0 + 1).await?, envoy.stat(&client_errors).await?);
        same("callers that left, answers with 4xx", after, (before.0 + 1, before.1))?;
        let line = format!("{left}: 1 more; {client_errors}: none more");
        if kept { &mut measured.kept } else { &mut measured.by_default }.push(line);
    }
    Ok(measured)
}

async fn outliers(world: &World) -> Result<Measured, String> {
    let expired = |path: &str| Ask::get(path).field("x-remaining-ms", "0");
    for _ in 0..6 {
        Ask::send(&expired("/watched/"), world.variants.at("inside")?).await?;
        let kept = Ask::send(&expired("/"), world.kept("inbound")?).await?;
        same("answer", (kept.code(), kept.reason()), (504, "expired_before_start"))?;
    }
    let plain = world.variants.stat_becomes("cluster.watched.outlier_detection.ejections_enforced_total", 1).await?;
    let kept = world.contract.stat("cluster.service.outlier_detection.ejections_enforced_total").await?;
    same("ejected by default, with the settings", (plain, kept), (1, 0))?;
    Ok(Measured { by_default: vec![format!("{plain} ejected")], kept: vec![format!("{kept} ejected")] })
}

/// The wall clock's time after this, as `x-request-deadline` has it.
pub(super) fn deadline_in(after: Duration) -> Result<String, String> {
    let written = Convention::X_REQUEST_DEADLINE.codec().encode(after, clock::wall());
    written.map(|written| written.as_str().to_owned()).ok_or_else(|| "nothing to write".to_owned())
}
