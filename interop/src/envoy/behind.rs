//! Rows about our own calls through Envoy: what our client tells it, what it does with that, and how its answers are judged.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use oneclock::{Operation, clock};
use oneclock_core::Outcome;
use oneclock_core::wire::{Convention, Conventions, writes};
use oneclock_http::Client;

use super::caller::Ask;
use super::client::{Call, post};
use super::row::{Measured, Row, SOON, at_most, ms, same};
use super::world::World;

const LONG: &str = "sleep=60000";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "B1",
        case: "our client, `x-remaining-ms` (its default), 400 ms, work without an end",
        by_default: "passes unchanged, with `x-envoy-expected-rq-timeout-ms: 15000` beside it for services that read that. At \
                     400 ms our client ends the call, and Envoy cancels the work",
        kept: "the same with 6000, `outbound`'s own timeout",
        measure: |world| Box::pin(tells_remaining(world)),
    },
    Row {
        id: "B2",
        case: "`.tells(…)` with `x-envoy-expected-rq-timeout-ms`",
        by_default: "overwritten with 15000",
        kept: "overwritten with 6000: it is for services, not for an Envoy",
        measure: |world| Box::pin(tells_expected(world)),
    },
    Row {
        id: "B3",
        case: "`.tells(…)` with `x-remaining-ms` and `x-envoy-upstream-rq-timeout-ms`",
        by_default: "the second is removed without effect",
        kept: "Envoy takes it as its own limit, and writes it on as `x-envoy-expected-rq-timeout-ms`: both have one deadline",
        measure: |world| Box::pin(tells_upstream(world)),
    },
    Row {
        id: "B4",
        case: "gRPC, `grpc-timeout: 400m`, a service without a clock of its own",
        by_default: "passes unchanged; Envoy lets it run until its caller leaves. With `grpc_timeout_header_max` Envoy ends \
                     it: status 4",
        kept: "passes unchanged: it is our client that ends it (G1). Envoy would be first by some milliseconds, and would \
               cut off streams without a status (G3)",
        measure: |world| Box::pin(tells_grpc(world)),
    },
    Row {
        id: "B5",
        case: "gRPC with `x-envoy-upstream-rq-timeout-ms` beside it",
        by_default: "removed without effect",
        kept: "Envoy ends it with status 14: do not tell it with gRPC",
        measure: |world| Box::pin(tells_grpc_both(world)),
    },
    Row {
        id: "B6",
        case: "less left than is useful (4 ms)",
        by_default: "the call is not made; our client never writes a zero",
        kept: "the same",
        measure: |world| Box::pin(never_zero(world)),
    },
    Row {
        id: "B7",
        case: "our operation ends while Envoy waits",
        by_default: "the work behind it is cancelled within milliseconds",
        kept: "the same",
        measure: |world| Box::pin(ends(world)),
    },
    Row {
        id: "B8",
        case: "Envoy's 504 (its limit is shorter than ours)",
        by_default: "outcome unknown: a POST is not repeated",
        kept: "the same",
        measure: |world| Box::pin(judges_timeout(world)),
    },
    Row {
        id: "B9",
        case: "Envoy's 503, no connection (`UF`)",
        by_default: "outcome unknown, although nothing was sent",
        kept: "`oneclock-reason: shed`: rejected, may be repeated by a client with `.trust(Trust::Inside)`",
        measure: |world| Box::pin(judges_dead(world)),
    },
    Row {
        id: "B10",
        case: "Envoy's 503, circuit breaker (`UO`, `x-envoy-overloaded: true`)",
        by_default: "outcome unknown, although nothing was sent",
        kept: "`oneclock-reason: shed`: rejected, as B9; the same for gRPC (14)",
        measure: |world| Box::pin(judges_full(world)),
    },
    Row {
        id: "B11",
        case: "Envoy's 503, the connection broke after the request was sent (`UC`)",
        by_default: "outcome unknown",
        kept: "the same: no reason is given for this one",
        measure: |world| Box::pin(judges_broken(world)),
    },
];

fn measured(by_default: &[&Call], kept: &[&Call]) -> Measured {
    let lines = |calls: &[&Call]| calls.iter().flat_map(|call| call.lines()).collect();
    Measured { by_default: lines(by_default), kept: lines(kept) }
}

fn remaining_and(convention: Convention) -> Result<Conventions, String> {
    writes::plain_http().with(convention).map_err(|error| error.to_string())
}

const EXPECTED: &str = "x-envoy-expected-rq-timeout-ms";

/// What our client writes into a field of milliseconds: rounded down, so at most this.
fn about_400(said: &str) -> Result<(), String> {
    match said.parse::<u64>() {
        Ok(300..=400) => Ok(()),
        _ => Err(format!("told {said:?} instead of a little less than 400")),
    }
}

async fn tells_remaining(world: &World) -> Result<Measured, String> {
    let ask = || (writes::plain_http(), ms(400), LONG);
    let plain = post(world, world.plain_to_naive(), "/", ask()).await?;
    let kept = post(world, world.kept_to_naive("outbound"), "/", ask()).await?;
    for (call, route) in [(&plain, "15000"), (&kept, "6000")] {
        about_400(call.one()?.said("x-remaining-ms"))?;
        same("told", call.one()?.said(EXPECTED), route)?;
        same("dropped", call.one()?.dropped(), true)?;
        same("outcome", call.outcome.map(Outcome::as_str), Some("unknown"))?;
    }
    Ok(measured(&[&plain], &[&kept]))
}

async fn tells_expected(world: &World) -> Result<Measured, String> {
    let ask = || Ok::<_, String>((remaining_and(Convention::X_ENVOY_EXPECTED_RQ_TIMEOUT_MS)?, ms(400), ""));
    let plain = post(world, world.plain_to_naive(), "/", ask()?).await?;
    same("told", plain.one()?.said(EXPECTED), "15000")?;
    let kept = post(world, world.kept_to_naive("outbound"), "/", ask()?).await?;
    same("told", kept.one()?.said(EXPECTED), "6000")?;
    Ok(measured(&[&plain], &[&kept]))
}

async fn tells_upstream(world: &World) -> Result<Measured, String> {
    let ask = || Ok::<_, String>((remaining_and(Convention::X_ENVOY_UPSTREAM_RQ_TIMEOUT_MS)?, ms(400), LONG));
    let plain = post(world, world.plain_to_naive(), "/", ask()?).await?;
    same("told", plain.one()?.said(EXPECTED), "15000")?;
    let kept = post(world, world.kept_to_naive("outbound"), "/", ask()?).await?;
    same("told", kept.one()?.said(EXPECTED), kept.one()?.said("x-remaining-ms"))?;
    about_400(kept.one()?.said(EXPECTED))?;
    same("outcome", kept.outcome.map(Outcome::as_str), Some("unknown"))?;
    Ok(measured(&[&plain], &[&kept]))
}

async fn tells_grpc(world: &World) -> Result<Measured, String> {
    let ask = |work: &str| Ask::grpc("/shop.Orders/Place").field("grpc-timeout", "400m").field("x-work", work);
    let mut measured = Measured::default();
    for (at, kept) in [(world.plain_to_naive(), false), (world.kept_to_naive("outbound"), true)] {
        let told = world.call(at, ask("sleep=900")).await?;
        same("told", told.one()?.said("grpc-timeout"), "400m")?;
        same("status", told.seen.grpc(), Some(0))?;
        measured = if kept { measured.kept(&told) } else { measured.by_default(&told) };
    }
    let max = world.call(world.variants.at("max"), ask(LONG)).await?;
    same("status", max.seen.grpc(), Some(4))?;
    same("dropped", max.one()?.dropped(), true)?;
    Ok(measured.by_default(&max))
}

async fn tells_grpc_both(world: &World) -> Result<Measured, String> {
    let ask = |work: &str| {
        let ask = Ask::grpc("/shop.Orders/Place").field("x-envoy-upstream-rq-timeout-ms", "400");
        ask.field("x-work", work)
    };
    let plain = world.call(world.plain_to_naive(), ask("sleep=900")).await?;
    same("status", plain.seen.grpc(), Some(0))?;
    let kept = world.call(world.kept_to_naive("outbound"), ask(LONG)).await?;
    same("status", kept.seen.grpc(), Some(14))?;
    Ok(Measured::default().by_default(&plain).kept(&kept))
}

async fn never_zero(world: &World) -> Result<Measured, String> {
    let ask = || Ok::<_, String>((remaining_and(Convention::X_ENVOY_UPSTREAM_RQ_TIMEOUT_MS)?, ms(4), ""));
    let plain = post(world, world.plain_to_naive(), "/", ask()?).await?;
    let kept = post(world, world.kept_to_naive("outbound"), "/", ask()?).await?;
    for call in [&plain, &kept] {
        same("arrived", call.arrivals.len(), 0)?;
        same("answered", call.status.is_ok(), false)?;
    }
    Ok(measured(&[&plain], &[&kept]))
}

async fn ends(world: &World) -> Result<Measured, String> {
    let mut seen = Measured::default();
    for (to, kept) in [(world.plain_to_naive()?, false), (world.kept_to_naive("outbound")?, true)] {
        for http2 in [false, true] {
            let case = world.case();
            let client = Client::builder("upstream", format!("http://{to}"));
            let client = if http2 { client.http2_only() } else { client };
            let client = client.build().map_err(|error| error.to_string())?;
            let request = Request::post("/").header("x-case", &case).header("x-work", LONG);
            let request = request.body(Full::<Bytes>::default()).map_err(|error| error.to_string())?;
            let operation = Operation::begin("row", ms(30_000));
            tokio::select! {
                answer = client.request_in(&operation, request) => {
                    return Err(format!("answered: {:?}", answer.map(|answer| answer.status())));
                }
                begun = world.naive.log.begun(&case) => { begun?; }
            }
            let left = clock::now(); // the call was dropped
            let arrivals = world.over(&case).await?;
            let [arrival] = arrivals.as_slice() else { return Err(format!("{} arrived", arrivals.len())) };
            same("dropped", arrival.dropped(), true)?;
            let after = arrival.ended.map_or(Duration::MAX, |(_, at)| at.since(left));
            at_most("until the work was dropped", after, SOON)?;
            let line =
                format!("HTTP/{}: dropped after {:.1} ms", if http2 { "2" } else { "1.1" }, after.as_secs_f64() * 1e3);
            if kept { &mut seen.kept } else { &mut seen.by_default }.push(line);
        }
    }
    Ok(seen)
}

async fn judges_timeout(world: &World) -> Result<Measured, String> {
    let ask = || (writes::plain_http(), ms(5000), LONG);
    let plain = post(world, world.variants.at("inside"), "/naive/short/", ask()).await?;
    let kept = post(world, world.kept_to_naive("outbound"), "/short/", ask()).await?;
    for call in [&plain, &kept] {
        same("status", call.status.clone(), Ok(504))?;
        same("outcome", call.outcome.map(Outcome::as_str), Some("unknown"))?;
    }
    Ok(measured(&[&plain], &[&kept]))
}

async fn judges_dead(world: &World) -> Result<Measured, String> {
    let ask = || (writes::plain_http(), ms(5000), "");
    let plain = post(world, world.variants.at("inside"), "/dead/", ask()).await?;
    same("answer, outcome", (plain.status.clone(), plain.outcome.map(Outcome::as_str)), (Ok(503), Some("unknown")))?;
    let kept = post(world, world.kept_to_naive("outbound"), "/dead/", ask()).await?;
    same("answer, reason", (kept.status.clone(), kept.reason.as_str()), (Ok(503), "shed"))?;
    same("outcome", kept.outcome, Some(Outcome::Rejected))?;
    Ok(measured(&[&plain], &[&kept]))
}

async fn judges_broken(world: &World) -> Result<Measured, String> {
    let ask = || (writes::plain_http(), ms(5000), "");
    let plain = post(world, world.variants.at("inside"), "/dies/", ask()).await?;
    let kept = post(world, world.kept_to_naive("outbound"), "/dies/", ask()).await?;
    for call in [&plain, &kept] {
        same("answer, reason", (call.status.clone(), call.reason.as_str()), (Ok(503), ""))?;
        same("outcome", call.outcome.map(Outcome::as_str), Some("unknown"))?;
    }
    Ok(measured(&[&plain], &[&kept]))
}

async fn judges_full(world: &World) -> Result<Measured, String> {
    let ask = || (writes::plain_http(), ms(5000), "");
    let plain = post(world, world.variants.at("inside"), "/full/", ask()).await?;
    same("answer, outcome", (plain.status.clone(), plain.outcome.map(Outcome::as_str)), (Ok(503), Some("unknown")))?;
    let kept = post(world, world.kept_to_naive("outbound"), "/full/", ask()).await?;
    same("answer, overloaded", (kept.status.clone(), kept.overloaded.as_str()), (Ok(503), "true"))?;
    same("outcome", kept.outcome, Some(Outcome::Rejected))?;
    let grpc = world.call(world.kept_to_naive("outbound"), Ask::grpc("/full/Place")).await?;
    same("gRPC", (grpc.seen.grpc(), grpc.seen.reason()), (Some(14), "shed"))?;
    Ok(measured(&[&plain], &[&kept]))
}
