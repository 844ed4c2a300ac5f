//! Rows about two Envoys in a row: a caller's `outbound`, then a service's `inbound`.

use super::caller::Ask;
use super::row::{Measured, Row, SOON, at_most, same};
use super::world::World;

const EXPECTED: &str = "x-envoy-expected-rq-timeout-ms";
const LONG: &str = "sleep=60000";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "C1",
        case: "two Envoys in a row, `x-envoy-upstream-rq-timeout-ms: 400`",
        by_default: "the second one overwrites what the first one wrote: 15000",
        kept: "arrives as `x-envoy-expected-rq-timeout-ms: 400`, and all three end there",
        measure: |world| Box::pin(two_upstream(world)),
    },
    Row {
        id: "C2",
        case: "two Envoys in a row, `x-remaining-ms: 400`, `grpc-timeout: 400m`",
        by_default: "pass both unchanged; the reason comes back through both",
        kept: "the same",
        measure: |world| Box::pin(two_pass(world)),
    },
    Row {
        id: "C3",
        case: "two Envoys in a row, the caller leaves",
        by_default: "the work is cancelled within milliseconds",
        kept: "the same",
        measure: |world| Box::pin(two_leave(world)),
    },
    Row {
        id: "C4",
        case: "two Envoys in a row, nothing about time",
        by_default: "15000",
        kept: "6000, `outbound`'s timeout: for callers that say nothing it is the budget",
        measure: |world| Box::pin(two_nothing(world)),
    },
];

async fn two_upstream(world: &World) -> Result<Measured, String> {
    let ask = |work: &str| Ask::get("/").field("x-envoy-upstream-rq-timeout-ms", "400").field("x-work", work);
    let plain = world.call(world.plain_to_plain(), ask("")).await?;
    same("told", plain.one()?.said(EXPECTED), "15000")?;
    let kept = world.call(world.kept_to_kept(), ask(LONG)).await?;
    same("told", kept.one()?.said(EXPECTED), "400")?;
    same("status", kept.seen.code(), 504)?;
    same("dropped", kept.one()?.dropped(), true)?;
    Ok(Measured::default().by_default(&plain).kept(&kept))
}

async fn two_pass(world: &World) -> Result<Measured, String> {
    let mut measured = Measured::default();
    for (at, kept) in [(world.plain_to_plain(), false), (world.kept_to_kept(), true)] {
        let http = world.call(at.clone(), Ask::get("/").field("x-remaining-ms", "400").field("x-work", LONG)).await?;
        same("told", http.one()?.said("x-remaining-ms"), "400")?;
        same("answer", (http.seen.code(), http.seen.reason()), (504, "deadline"))?;
        let ask = Ask::grpc("/shop.Orders/Place").field("grpc-timeout", "400m").field("x-work", LONG);
        let grpc = world.call(at, ask).await?;
        same("told", grpc.one()?.said("grpc-timeout"), "400m")?;
        same("answer", (grpc.seen.grpc(), grpc.seen.reason()), (Some(4), "deadline"))?;
        measured = if kept { measured.kept(&http).kept(&grpc) } else { measured.by_default(&http).by_default(&grpc) };
    }
    Ok(measured)
}

async fn two_leave(world: &World) -> Result<Measured, String> {
    let mut measured = Measured::default();
    for (at, kept) in [(world.plain_to_plain(), false), (world.kept_to_kept(), true)] {
        for ask in [Ask::get("/"), Ask::grpc("/shop.Orders/Place")] {
            let ask = ask.field("x-remaining-ms", "4000").field("x-work", LONG);
            let (after, told) = world.leave(at.clone(), ask).await?;
            same("dropped", told.one()?.dropped(), true)?;
            at_most("until the work was dropped", after, SOON)?;
            let line = format!("dropped {:.1} ms after the caller left", after.as_secs_f64() * 1e3);
            if kept { &mut measured.kept } else { &mut measured.by_default }.push(line);
        }
    }
    Ok(measured)
}

async fn two_nothing(world: &World) -> Result<Measured, String> {
    let plain = world.call(world.plain_to_plain(), Ask::get("/")).await?;
    same("told", plain.one()?.said(EXPECTED), "15000")?;
    let kept = world.call(world.kept_to_kept(), Ask::get("/")).await?;
    same("told", kept.one()?.said(EXPECTED), "6000")?;
    Ok(Measured::default().by_default(&plain).kept(&kept))
}
