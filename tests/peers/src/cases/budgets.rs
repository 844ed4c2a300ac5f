//! Rows: the caller says how much time it has.

use std::time::Duration;

use oneclock_core::wire::names;

use super::{Case, LIMIT, ms};
use crate::caller::{Ask, Seen};
use crate::cell::{Cell, seconds};
use crate::under::{SLACK, Story, Under, left};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "budget",
        sent: "0.1 s, in the field that the proxy itself writes; a route with 1 s, work of 0.8 s",
        right: "the upstream is told at most 0.1 s; the call ends then, and the work is cut",
        rules: "C1, E5",
        measure: |under| Box::pin(budget(under)),
    },
    Case {
        name: "budget-grpc",
        sent: "`grpc-timeout: 200m`; a route with 1 s, work of 0.8 s",
        right: "the upstream is told at most that; status 4 at 0.2 s, and the work is cut",
        rules: "C1, E5, X3",
        measure: |under| Box::pin(grpc(under)),
    },
    Case {
        name: "zero",
        sent: "0 ms in the field that the proxy itself writes",
        right: "504, and the upstream is not asked: nothing is left, which is not the same as no limit",
        rules: "P4",
        measure: |under| Box::pin(zero(under)),
    },
    Case {
        name: "zero-grpc",
        sent: "`grpc-timeout: 0m`",
        right: "status 4, and the upstream is not asked",
        rules: "P4",
        measure: |under| Box::pin(zero_grpc(under)),
    },
    Case {
        name: "malformed",
        sent: "`1e3` in the field that the proxy itself writes",
        right: "400, and the upstream is not asked: what cannot be read is not what nobody said",
        rules: "P2, P3",
        measure: |under| Box::pin(malformed(under)),
    },
    Case {
        name: "malformed-grpc",
        sent: "`grpc-timeout: 1.5S`",
        right: "status 13, INTERNAL, and the upstream is not asked",
        rules: "P1, P3",
        measure: |under| Box::pin(malformed_grpc(under)),
    },
    Case {
        name: "queue-told",
        sent: "one at a time; the second request says that it has 1 s, and waits 0.4 s in the proxy: what is the upstream told?",
        right: "at most what is left, 0.6 s",
        rules: "E4",
        measure: |under| Box::pin(queue_told(under)),
    },
    Case {
        name: "queue-expired",
        sent: "one at a time; the second request has 0.3 s, and waits for one that takes 0.8 s",
        right: "504 at 0.3 s, and it never begins",
        rules: "X7",
        measure: |under| Box::pin(queue_expired(under)),
    },
];

const WORK: &str = "sleep=800";
/// How often what must not get through is tried.
const TIMES: usize = 5;
/// Before the work ends by itself.
const BEFORE_ITS_END: Duration = ms(700);

async fn budget(under: Under<'_>) -> Result<Cell, String> {
    let field = under.knows.field();
    let story = under.tell(&under.call(Ask::get("/plain").field(field, "100").work(WORK))).await?;
    let ended = story.seen.code() == 504 && story.seen.took < BEFORE_ITS_END && story.was_cut();
    let right = ended && told_at_most(&story, field, ms(100));
    Ok(judged_if_known(under, right, told_and_answer(&story, field)))
}

async fn grpc(under: Under<'_>) -> Result<Cell, String> {
    let field = names::GRPC_TIMEOUT;
    let story = under.tell(&under.call(Ask::grpc().field(field, "200m").work(WORK))).await?;
    let ended = story.seen.grpc() == Some(4) && story.seen.took < BEFORE_ITS_END && story.was_cut();
    Ok(Cell::judged(ended && told_at_most(&story, field, ms(200)), told_and_answer(&story, field)))
}

async fn zero(under: Under<'_>) -> Result<Cell, String> {
    let field = under.knows.field();
    let ask = || Ask::get("/plain").field(field, "0");
    let (refused, said) = refused(under, ask, |seen| seen.code() == 504, field).await?;
    Ok(judged_if_known(under, refused, said))
}

async fn zero_grpc(under: Under<'_>) -> Result<Cell, String> {
    let field = names::GRPC_TIMEOUT;
    let ask = || Ask::grpc().field(field, "0m");
    let (refused, said) = refused(under, ask, |seen| seen.grpc() == Some(4), field).await?;
    Ok(Cell::judged(refused, said))
}

async fn malformed(under: Under<'_>) -> Result<Cell, String> {
    let field = under.knows.field();
    let ask = || Ask::get("/plain").field(field, "1e3");
    let (refused, said) = refused(under, ask, |seen| seen.code() == 400, field).await?;
    Ok(judged_if_known(under, refused, said))
}

async fn malformed_grpc(under: Under<'_>) -> Result<Cell, String> {
    let field = names::GRPC_TIMEOUT;
    let ask = || Ask::grpc().field(field, "1.5S");
    let (refused, said) = refused(under, ask, |seen| seen.grpc() == Some(13), field).await?;
    Ok(Cell::judged(refused, said))
}

/// Whether all of several calls are refused with the right answer, and none of them reaches the upstream; what became of one
/// that does, else of the last. Several, since a timer of zero may win or lose against a connection that is there.
async fn refused(
    under: Under<'_>,
    ask: impl Fn() -> Ask,
    is_right: fn(&Seen) -> bool,
    field: &str,
) -> Result<(bool, String), String> {
    let mut stories = Vec::new();
    for _ in 0..TIMES {
        stories.push(under.tell(&under.call(ask())).await?);
    }
    let right = stories.iter().all(|story| is_right(&story.seen) && story.arrivals.is_empty());
    let (asked, not_asked): (Vec<_>, Vec<_>) = stories.iter().partition(|story| !story.arrivals.is_empty());
    let often = if not_asked.is_empty() { String::new() } else { format!(" {} of {TIMES} times", asked.len()) };
    let said = match (asked.last(), not_asked.last()) {
        (Some(story), _) => format!("{}; upstream asked{often}, {}", story.answer(), told(story, field)),
        (None, story) => story.map(|story| reached(story, field)).unwrap_or_default(),
    };
    Ok((right, said))
}

async fn queue_told(under: Under<'_>) -> Result<Cell, String> {
    if !under.knows.queue {
        return Ok(Cell::no_such_notion(""));
    }
    let first = under.call(Ask::get("/queue").work("sleep=400"));
    let field = under.knows.field();
    let second = under.call(Ask::get("/queue").field(field, "1000"));
    let (before, story) = tokio::try_join!(under.tell(&first), under.tell_behind(&first, &second))?;
    let arrival = story.arrivals.first().ok_or("the second request was not passed on")?;
    let waited = story.after(arrival.at);
    let until = before.arrivals.first().and_then(|first| first.ended).ok_or("the first request did not end")?;
    if arrival.at < until.1 {
        return Err("the second request did not wait".to_owned());
    }
    let told = arrival.said(field).and_then(|told| left(field, told));
    let said = format!("waits {}, told {}", seconds(waited), told.map_or("nothing".into(), seconds));
    Ok(judged_if_known(under, told.is_some_and(|told| told + waited <= LIMIT + 2 * SLACK), said))
}

async fn queue_expired(under: Under<'_>) -> Result<Cell, String> {
    if !under.knows.queue {
        return Ok(Cell::no_such_notion(""));
    }
    let field = under.knows.field();
    let first = under.call(Ask::get("/queue").work(WORK));
    let second = under.call(Ask::get("/queue").field(field, "300"));
    let (_, story) = tokio::try_join!(under.tell(&first), under.tell_behind(&first, &second))?;
    let right = story.arrivals.is_empty() && story.seen.code() == 504 && story.seen.took < BEFORE_ITS_END;
    Ok(judged_if_known(under, right, reached(&story, field)))
}

/// Who knows no field for time is not to blame for what it does with one.
fn judged_if_known(under: Under<'_>, right: bool, said: String) -> Cell {
    if under.knows.budget.is_some() { Cell::judged(right, said) } else { Cell::no_such_notion(said) }
}

/// Whether every attempt was told something, and not more than this.
fn told_at_most(story: &Story, field: &str, most: Duration) -> bool {
    let told = story.told(field);
    !told.is_empty() && told.iter().all(|told| told.and_then(|told| left(field, told)).is_some_and(|left| left <= most))
}

fn told_and_answer(story: &Story, field: &str) -> String {
    format!("{}; {}; {}", told(story, field), story.answer(), story.upstream())
}

fn told(story: &Story, field: &str) -> String {
    let told: Vec<_> = story.told(field).into_iter().map(|told| told.unwrap_or("nothing")).collect();
    match told.as_slice() {
        [] => "upstream not asked".to_owned(),
        told => format!("told `{}`", told.join("`, `")),
    }
}

/// Whether it reached the upstream, and with which word.
fn reached(story: &Story, field: &str) -> String {
    if story.arrivals.is_empty() {
        return format!("{}; upstream not asked", story.answer());
    }
    format!("{}; upstream asked, {}", story.answer(), told(story, field))
}
