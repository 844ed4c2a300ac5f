//! Rows about Envoy's own retries: what each attempt is told, and how much work is done for one caller.

use super::caller::Ask;
use super::row::{Measured, Row, at_most, holds, ms, same};
use super::world::World;

const EXPECTED: &str = "x-envoy-expected-rq-timeout-ms";
const REMAINING: &str = "x-remaining-ms";
const LONG: &str = "sleep=60000";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "R1",
        case: "`retry_on: 5xx`, `num_retries: 3`; a POST with `x-remaining-ms: 500` whose service fails after 200 ms",
        by_default: "the POST runs 4 times; each attempt is told 500, so 800 ms are spent of 500",
        kept: "it runs once",
        measure: |world| Box::pin(fails(world)),
    },
    Row {
        id: "R2",
        case: "the same; our own 504 `deadline` after `x-remaining-ms: 300`",
        by_default: "its time is up, and Envoy has it begin 3 times more, each time with 300 ms",
        kept: "it runs once, from inside and at the edge",
        measure: |world| Box::pin(out_of_time(world)),
    },
    Row {
        id: "R3",
        case: "the same for gRPC: `grpc-timeout: 300m`, our status 4",
        by_default: "`5xx` does not mean it; `retry_on: deadline-exceeded` does: 4 times, each told `300m`",
        kept: "it runs once",
        measure: |world| Box::pin(grpc_out_of_time(world)),
    },
    Row {
        id: "R4",
        case: "what an attempt is told under `per_try_timeout: 0.3s`, with `x-envoy-upstream-rq-timeout-ms: 800`, from inside",
        by_default: "`x-envoy-expected-rq-timeout-ms` is the only field that Envoy lowers: 300, 300, then what is left of 800",
        kept: "`outbound` writes it and `inbound` lets it pass, so it holds should you need retries in Envoy",
        measure: |world| Box::pin(per_try(world)),
    },
    Row {
        id: "R5",
        case: "a service sheds: 503 with `oneclock-reason: shed`",
        by_default: "passed on. With `retry_on: 5xx` tried 3 times more, as is every other error",
        kept: "at the edge tried once more, since it was not begun; from inside passed on: callers decide",
        measure: |world| Box::pin(shed(world)),
    },
    Row {
        id: "R6",
        case: "an absolute `x-request-deadline` in 500 ms beside `x-remaining-ms: 500`, under `retry_on: 5xx` with a service \
               that fails after 200 ms",
        by_default: "later attempts have less: nothing runs on past the 500 ms",
        kept: "it runs once",
        measure: |world| Box::pin(absolute(world)),
    },
];

async fn fails(world: &World) -> Result<Measured, String> {
    let ask = |path: &str| Ask::post(path).field(REMAINING, "500").field("x-work", "sleep=200;status=503");
    let plain = world.call(world.variants.at("inside"), ask("/retries/")).await?;
    same("told", plain.all(REMAINING), ["500"; 4])?;
    holds("the attempts took longer than 500 ms", plain.seen.took > ms(800))?;
    let kept = world.call(world.kept("inbound"), ask("/")).await?;
    same("told", kept.all(REMAINING), ["500"])?;
    let edge = world.call(world.kept("edge"), ask("/")).await?;
    same("told", edge.all(REMAINING), ["500"])?;
    Ok(Measured::default().by_default(&plain).kept(&kept).kept(&edge))
}

async fn out_of_time(world: &World) -> Result<Measured, String> {
    let ask = |path: &str| Ask::get(path).field(REMAINING, "300").field("x-work", LONG);
    let plain = world.call(world.variants.at("inside"), ask("/retries/")).await?;
    same("told", plain.all(REMAINING), ["300"; 4])?;
    let kept = world.call(world.kept("inbound"), ask("/")).await?;
    same("told", kept.all(REMAINING), ["300"])?;
    let edge = world.call(world.kept("edge"), ask("/")).await?;
    same("told", edge.all(REMAINING), ["300"])?;
    Ok(Measured::default().by_default(&plain).kept(&kept).kept(&edge))
}

async fn grpc_out_of_time(world: &World) -> Result<Measured, String> {
    let ask = |path: &str| Ask::grpc(path).field("grpc-timeout", "300m").field("x-work", LONG);
    let plain = world.call(world.variants.at("inside"), ask("/retries/Place")).await?;
    same("told", plain.all("grpc-timeout"), ["300m"])?;
    let on_grpc = world.call(world.variants.at("inside"), ask("/retries-grpc/Place")).await?;
    same("told", on_grpc.all("grpc-timeout"), ["300m"; 4])?;
    let kept = world.call(world.kept("inbound"), ask("/shop.Orders/Place")).await?;
    same("told", kept.all("grpc-timeout"), ["300m"])?;
    Ok(Measured::default().by_default(&plain).by_default(&on_grpc).kept(&kept))
}

async fn per_try(world: &World) -> Result<Measured, String> {
    let ask = |path: &str| Ask::get(path).field("x-envoy-upstream-rq-timeout-ms", "800").field("x-work", LONG);
    let plain = world.call(world.variants.at("inside"), ask("/per-try/")).await?;
    let told = plain.all(EXPECTED);
    same("first", told.first().copied(), Some("300"))?;
    let left: Vec<u64> = told.iter().filter_map(|told| told.parse().ok()).collect();
    holds("no attempt is told more than the one before", left.is_sorted_by(|one, next| one >= next))?;
    holds("the last is told less", left.len() >= 2 && left.last() < left.first())?;
    let kept = world.call(world.kept_to_kept(), ask("/")).await?;
    same("told", kept.all(EXPECTED), ["800"])?;
    Ok(Measured::default().by_default(&plain).kept(&kept))
}

async fn shed(world: &World) -> Result<Measured, String> {
    let ask = |path: &str| Ask::post(path).field("x-work", "shed=1");
    let plain = world.call(world.plain_to_naive(), ask("/")).await?;
    let retries = world.call(world.variants.at("inside"), ask("/naive/retries/")).await?;
    let edge = world.call(world.kept_to_naive("edge"), ask("/")).await?;
    let kept = world.call(world.kept_to_naive("inbound"), ask("/")).await?;
    let attempts = [&plain, &retries, &edge, &kept].map(|told| told.arrivals.len());
    same("attempts: default, 5xx, edge, inbound", attempts, [1, 4, 2, 1])?;
    same("reason", kept.seen.reason(), "shed")?;
    Ok(Measured::default().by_default(&plain).by_default(&retries).kept(&edge).kept(&kept))
}

async fn absolute(world: &World) -> Result<Measured, String> {
    let ask = |path: &str| -> Result<Ask, String> {
        let ask = Ask::post(path).field(REMAINING, "500").field("x-work", "sleep=200;status=503");
        Ok(ask.field("x-request-deadline", super::ending::deadline_in(ms(500))?))
    };
    let plain = world.call(world.variants.at("inside"), ask("/retries/")?).await?;
    holds("there was more than one attempt", plain.arrivals.len() > 1)?;
    let (Some(first), Some(last)) = (plain.arrivals.first(), plain.arrivals.last()) else {
        return Err("none".to_owned());
    };
    at_most("left to the first attempt", first.left(), ms(500))?;
    at_most("left to the last", last.left(), ms(300))?;
    let kept = world.call(world.kept("inbound"), ask("/")?).await?;
    same("attempts", kept.arrivals.len(), 1)?;
    Ok(Measured::default().by_default(&plain).kept(&kept))
}
