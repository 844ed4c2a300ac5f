//! Rows about what arrives behind Envoy: each field that a caller may send, and none.

use super::caller::Ask;
use super::row::{Measured, Row, at_least, at_most, ms, same};
use super::service::{CEILING, WHEN_ABSENT};
use super::world::World;

const EXPECTED: &str = "x-envoy-expected-rq-timeout-ms";
const UPSTREAM: &str = "x-envoy-upstream-rq-timeout-ms";
const REMAINING: &str = "x-remaining-ms";
const GRPC: &str = "grpc-timeout";
/// Longer than anything here lasts: it is cut off, or the row fails.
const LONG: &str = "sleep=60000";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "T1",
        case: "nothing about time",
        by_default: "arrives as `x-envoy-expected-rq-timeout-ms: 15000`, the route's timeout, as if the caller had asked for \
                     it: the service gives its ceiling (5 s), not its `when_absent` (800 ms)",
        kept: "nothing arrives: `when_absent`. (Envoy's `x-envoy-upstream-service-time` is gone from the answer, too)",
        measure: |world| Box::pin(nothing(world)),
    },
    Row {
        id: "T2",
        case: "`x-remaining-ms: 400`, work without an end",
        by_default: "arrives unchanged; our 504 with `oneclock-reason` and problem document comes back unchanged",
        kept: "the same",
        measure: |world| Box::pin(remaining(world)),
    },
    Row {
        id: "T3",
        case: "`x-remaining-ms: 0`, and malformed",
        by_default: "arrive unchanged; our 504 `expired_before_start` and 400 `malformed_deadline` come back unchanged",
        kept: "the same",
        measure: |world| Box::pin(remaining_is_no_time(world)),
    },
    Row {
        id: "T4",
        case: "`x-envoy-expected-rq-timeout-ms: 400`",
        by_default: "overwritten with 15000: the caller's budget is lost",
        kept: "from inside: arrives, and Envoy ends there too; from outside (`edge`): removed",
        measure: |world| Box::pin(expected(world)),
    },
    Row {
        id: "T5",
        case: "`x-envoy-upstream-rq-timeout-ms: 400`",
        by_default: "removed without effect: by default nobody is inside",
        kept: "from inside: removed; Envoy ends there with its own 504, the service is not told but cancelled; from outside: \
               removed without effect",
        measure: |world| Box::pin(upstream(world)),
    },
    Row {
        id: "T6",
        case: "`x-envoy-upstream-rq-timeout-ms: 0` on a route with 300 ms, from inside",
        by_default: "no limit at all: 1.2 s of work go through",
        kept: "only our service bounds it (`when_absent`): never send a zero",
        measure: |world| Box::pin(endless(world)),
    },
    Row {
        id: "T7",
        case: "`grpc-timeout: 400m`",
        by_default: "arrives unchanged, Envoy does not look at it; our status 4 with `oneclock-reason` comes back unchanged",
        kept: "the same",
        measure: |world| Box::pin(grpc(world)),
    },
    Row {
        id: "T8",
        case: "`grpc-timeout: 0m`",
        by_default: "arrives unchanged: our status 4. With `max_grpc_timeout: 5s` it becomes `5000m`, and the work runs",
        kept: "arrives unchanged: our status 4",
        measure: |world| Box::pin(grpc_zero(world)),
    },
    Row {
        id: "T9",
        case: "`grpc-timeout: 300`, which is malformed",
        by_default: "arrives unchanged: our status 13. With `max_grpc_timeout: 5s`, or with `max_stream_duration: 5s`, it \
                     becomes `5000m`, and the work runs",
        kept: "arrives unchanged: our status 13",
        measure: |world| Box::pin(grpc_malformed(world)),
    },
    Row {
        id: "T10",
        case: "gRPC without `grpc-timeout`",
        by_default: "as T1. With `max_grpc_timeout: 5s` or `max_stream_duration: 5s`, `grpc-timeout: 5000m` is added",
        kept: "nothing arrives: `when_absent`",
        measure: |world| Box::pin(grpc_nothing(world)),
    },
    Row {
        id: "T11",
        case: "`grpc-timeout: 399900u`, `9S`",
        by_default: "arrive unchanged. With `grpc_timeout_header_max: 5s` as `400m`, which is more than the caller has, and \
                     `5000m`",
        kept: "arrive unchanged. Where you need `grpc_timeout_header_max`, `grpc_timeout_header_offset: 0.001s` makes it \
               `399m`, and `4999m`",
        measure: |world| Box::pin(grpc_rewritten(world)),
    },
    Row {
        id: "T12",
        case: "`x-envoy-attempt-count: 7`",
        by_default: "arrives unchanged, from anybody",
        kept: "the same. Our services read it from inside only, so that who serves a retry does not retry",
        measure: |world| Box::pin(attempt(world)),
    },
    Row {
        id: "T13",
        case: "`x-envoy-expected-rq-timeout-ms: 400` from inside, with two addresses in `x-forwarded-for`",
        by_default: "as T4",
        kept: "removed: for Envoy the caller is outside then. So `outbound` must not add its address (`skip_xff_append`)",
        measure: |world| Box::pin(forwarded(world)),
    },
    Row {
        id: "T14",
        case: "nothing about time; our service does not read `x-envoy-expected-rq-timeout-ms`",
        by_default: "arrives as 15000 and is not read: `when_absent`. For those who cannot change Envoy",
        kept: "not needed",
        measure: |world| Box::pin(deaf(world)),
    },
    Row {
        id: "T15",
        case: "`x-envoy-expected-rq-timeout-ms: 0`, `abc`, `60000`, from inside",
        by_default: "as T4",
        kept: "arrive unchanged: our 504 `expired_before_start`, our 400, our ceiling",
        measure: |world| Box::pin(expected_is_odd(world)),
    },
];

async fn nothing(world: &World) -> Result<Measured, String> {
    let plain = world.call(world.plain(), Ask::get("/")).await?;
    same("told", plain.one()?.said(EXPECTED), "15000")?;
    at_least("left", plain.one()?.left(), ms(3000))?;
    let kept = world.call(world.kept("inbound"), Ask::get("/")).await?;
    same("told", kept.one()?.said(EXPECTED), "")?;
    at_most("left", kept.one()?.left(), WHEN_ABSENT)?;
    let edge = world.call(world.kept("edge"), Ask::get("/")).await?;
    same("told", edge.one()?.said(EXPECTED), "")?;
    let timed = [&plain, &kept].map(|told| told.seen.head.contains_key("x-envoy-upstream-service-time"));
    same("x-envoy-upstream-service-time is there", timed, [true, false])?;
    Ok(Measured::default().by_default(&plain).kept(&kept).kept(&edge))
}

async fn deaf(world: &World) -> Result<Measured, String> {
    let told = world.call(world.variants.at("inside"), Ask::get("/deaf/")).await?;
    same("told", told.one()?.said(EXPECTED), "15000")?;
    at_most("left", told.one()?.left(), WHEN_ABSENT)?;
    Ok(Measured::default().by_default(&told))
}

async fn remaining(world: &World) -> Result<Measured, String> {
    let mut measured = Measured::default();
    for (at, kept) in [(world.plain(), false), (world.kept("inbound"), true), (world.kept("edge"), true)] {
        for ask in [Ask::get("/"), Ask::get("/").http2()] {
            let told = world.call(at.clone(), ask.field(REMAINING, "400").field("x-work", LONG)).await?;
            same("told", told.one()?.said(REMAINING), "400")?;
            same("status", told.seen.code(), 504)?;
            same("reason", told.seen.reason(), "deadline")?;
            same("type", told.seen.header("content-type"), "application/problem+json")?;
            measured = if kept { measured.kept(&told) } else { measured.by_default(&told) };
        }
    }
    Ok(measured)
}

async fn remaining_is_no_time(world: &World) -> Result<Measured, String> {
    let mut measured = Measured::default();
    for (at, kept) in [(world.plain(), false), (world.kept("inbound"), true)] {
        for (value, status, reason) in [("0", 504, "expired_before_start"), ("4s", 400, "malformed_deadline")] {
            let told = world.call(at.clone(), Ask::get("/").field(REMAINING, value)).await?;
            same("told", told.one()?.said(REMAINING), value)?;
            same("answer", (told.seen.code(), told.seen.reason()), (status, reason))?;
            same("begun", told.one()?.began, false)?;
            measured = if kept { measured.kept(&told) } else { measured.by_default(&told) };
        }
    }
    Ok(measured)
}

async fn expected(world: &World) -> Result<Measured, String> {
    let ask = || Ask::get("/").field(EXPECTED, "400");
    let plain = world.call(world.plain(), ask()).await?;
    same("told", plain.one()?.said(EXPECTED), "15000")?;
    let kept = world.call(world.kept_to_naive("inbound"), ask().field("x-work", LONG)).await?;
    same("told", kept.one()?.said(EXPECTED), "400")?;
    same("status, of Envoy", kept.seen.code(), 504)?;
    same("dropped", kept.one()?.dropped(), true)?;
    at_most("until the answer", kept.seen.took, ms(4000))?; // the route's timeout is 6 s
    let edge = world.call(world.kept("edge"), ask()).await?;
    same("told", edge.one()?.said(EXPECTED), "")?;
    Ok(Measured::default().by_default(&plain).kept(&kept).kept(&edge))
}

async fn upstream(world: &World) -> Result<Measured, String> {
    let ask = || Ask::get("/").field(UPSTREAM, "400");
    let plain = world.call(world.plain(), ask()).await?;
    same("told", (plain.one()?.said(UPSTREAM), plain.one()?.said(EXPECTED)), ("", "15000"))?;
    let kept = world.call(world.kept_to_naive("inbound"), ask().field("x-work", LONG)).await?;
    same("told", (kept.one()?.said(UPSTREAM), kept.one()?.said(EXPECTED)), ("", ""))?;
    same("answer", (kept.seen.code(), kept.seen.body.as_str()), (504, "upstream request timeout"))?;
    same("dropped", kept.one()?.dropped(), true)?;
    at_most("until the answer", kept.seen.took, ms(4000))?; // the route's timeout is 6 s
    let edge = world.call(world.kept("edge"), ask()).await?;
    same("told", (edge.one()?.said(UPSTREAM), edge.one()?.said(EXPECTED)), ("", ""))?;
    same("status", edge.seen.code(), 200)?;
    Ok(Measured::default().by_default(&plain).kept(&kept).kept(&edge))
}

async fn endless(world: &World) -> Result<Measured, String> {
    let ask = |path: &str, work: &str| Ask::get(path).field(UPSTREAM, "0").field("x-work", work);
    let plain = world.call(world.variants.at("inside"), ask("/naive/short/", "sleep=1200")).await?;
    same("status", plain.seen.code(), 200)?;
    let kept = world.call(world.kept("inbound"), ask("/", LONG)).await?;
    same("answer", (kept.seen.code(), kept.seen.reason()), (504, "deadline"))?;
    at_most("left", kept.one()?.left(), WHEN_ABSENT)?;
    Ok(Measured::default().by_default(&plain).kept(&kept))
}

async fn grpc(world: &World) -> Result<Measured, String> {
    let ask = || Ask::grpc("/shop.Orders/Place").field(GRPC, "400m").field("x-work", LONG);
    let plain = world.call(world.plain(), ask()).await?;
    same("told", plain.one()?.said(GRPC), "400m")?;
    same("answer", (plain.seen.grpc(), plain.seen.reason()), (Some(4), "deadline"))?;
    let kept = world.call(world.kept("inbound"), ask()).await?;
    same("told", kept.one()?.said(GRPC), "400m")?;
    same("answer", (kept.seen.grpc(), kept.seen.reason()), (Some(4), "deadline"))?;
    Ok(Measured::default().by_default(&plain).kept(&kept))
}

async fn grpc_zero(world: &World) -> Result<Measured, String> {
    let ask = |path: &str| Ask::grpc(path).field(GRPC, "0m");
    let plain = world.call(world.plain(), ask("/shop.Orders/Place")).await?;
    same("answer", (plain.seen.grpc(), plain.seen.reason()), (Some(4), "expired_before_start"))?;
    let old = world.call(world.variants.at("inside"), ask("/grpc-max/Place")).await?;
    same("told", old.one()?.said(GRPC), "5000m")?;
    same("status", old.seen.grpc(), Some(0))?;
    let kept = world.call(world.kept("inbound"), ask("/shop.Orders/Place")).await?;
    same("answer", (kept.seen.grpc(), kept.seen.reason()), (Some(4), "expired_before_start"))?;
    Ok(Measured::default().by_default(&plain).by_default(&old).kept(&kept))
}

async fn grpc_malformed(world: &World) -> Result<Measured, String> {
    let ask = |path: &str| Ask::grpc(path).field(GRPC, "300");
    let refused = (Some(13), "malformed_deadline");
    let plain = world.call(world.plain(), ask("/shop.Orders/Place")).await?;
    same("answer", (plain.seen.grpc(), plain.seen.reason()), refused)?;
    let mut measured = Measured::default().by_default(&plain);
    for path in ["/grpc-max/Place", "/stream-max/Place"] {
        let old = world.call(world.variants.at("inside"), ask(path)).await?;
        same("told", old.one()?.said(GRPC), "5000m")?;
        same("status", old.seen.grpc(), Some(0))?;
        measured = measured.by_default(&old);
    }
    let kept = world.call(world.kept("inbound"), ask("/shop.Orders/Place")).await?;
    same("answer", (kept.seen.grpc(), kept.seen.reason()), refused)?;
    Ok(measured.kept(&kept))
}

async fn grpc_nothing(world: &World) -> Result<Measured, String> {
    let plain = world.call(world.plain(), Ask::grpc("/shop.Orders/Place")).await?;
    same("told", plain.one()?.said(EXPECTED), "15000")?;
    let mut measured = Measured::default().by_default(&plain);
    for path in ["/grpc-max/Place", "/stream-max/Place"] {
        let old = world.call(world.variants.at("inside"), Ask::grpc(path)).await?;
        same("told", old.one()?.said(GRPC), "5000m")?;
        measured = measured.by_default(&old);
    }
    let kept = world.call(world.kept("inbound"), Ask::grpc("/shop.Orders/Place")).await?;
    same("told", (kept.one()?.said(GRPC), kept.one()?.said(EXPECTED)), ("", ""))?;
    at_most("left", kept.one()?.left(), WHEN_ABSENT)?;
    Ok(measured.kept(&kept))
}

async fn grpc_rewritten(world: &World) -> Result<Measured, String> {
    let mut measured = Measured::default();
    for (value, by_max, less_one) in [("399900u", "400m", "399m"), ("9S", "5000m", "4999m")] {
        let ask = |path: &str| Ask::grpc(path).field(GRPC, value);
        let inside = || world.variants.at("inside");
        let plain = world.call(world.plain(), ask("/shop.Orders/Place")).await?;
        let max = world.call(inside(), ask("/header-max/Place")).await?;
        let inbound = world.call(world.kept("inbound"), ask("/shop.Orders/Place")).await?;
        let outbound = world.call(world.kept_to_naive("outbound"), ask("/shop.Orders/Place")).await?;
        let offset = world.call(inside(), ask("/header-offset/Place")).await?;
        let told = [&plain, &max, &inbound, &outbound, &offset].map(|told| told.all(GRPC).concat());
        same("default, max, inbound, outbound, offset", told, [value, by_max, value, value, less_one])?;
        measured = measured.by_default(&plain).by_default(&max).kept(&inbound).kept(&outbound).kept(&offset);
    }
    Ok(measured)
}

async fn attempt(world: &World) -> Result<Measured, String> {
    let ask = || Ask::get("/").field("x-envoy-attempt-count", "7");
    let plain = world.call(world.plain(), ask()).await?;
    same("told", plain.one()?.said("x-envoy-attempt-count"), "7")?;
    let kept = world.call(world.kept("inbound"), ask()).await?;
    same("told", kept.one()?.said("x-envoy-attempt-count"), "7")?;
    let edge = world.call(world.kept("edge"), ask()).await?;
    same("told", edge.one()?.said("x-envoy-attempt-count"), "7")?;
    Ok(Measured::default().by_default(&plain).kept(&kept).kept(&edge))
}

async fn forwarded(world: &World) -> Result<Measured, String> {
    let ask = || Ask::get("/").field(EXPECTED, "400").field("x-forwarded-for", "127.0.0.1, 127.0.0.1");
    let plain = world.call(world.plain(), ask()).await?;
    same("told", plain.one()?.said(EXPECTED), "15000")?;
    let kept = world.call(world.kept("inbound"), ask()).await?;
    same("told", kept.one()?.said(EXPECTED), "")?;
    Ok(Measured::default().by_default(&plain).kept(&kept))
}

async fn expected_is_odd(world: &World) -> Result<Measured, String> {
    let mut measured = Measured::default();
    for (value, status, reason) in
        [("0", 504, "expired_before_start"), ("abc", 400, "malformed_deadline"), ("60000", 200, "")]
    {
        let ask = || Ask::get("/").field(EXPECTED, value);
        let plain = world.call(world.plain(), ask()).await?;
        same("told", plain.one()?.said(EXPECTED), "15000")?;
        let kept = world.call(world.kept("inbound"), ask()).await?;
        same("told", kept.one()?.said(EXPECTED), value)?;
        same("answer", (kept.seen.code(), kept.seen.reason()), (status, reason))?;
        at_most("left", kept.one()?.left(), CEILING)?;
        measured = measured.by_default(&plain).kept(&kept);
    }
    Ok(measured)
}
