//! Rows: the route's own second passes.

use super::{Case, LIMIT, ms};
use crate::caller::{Ask, End};
use crate::cell::Cell;
use crate::under::{Story, Under};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "timeout",
        sent: "a route with 1 s; the work takes 2 s",
        right: "504 at 1 s, and the work is cut",
        rules: "X3",
        measure: |under| Box::pin(timeout(under)),
    },
    Case {
        name: "timeout-reason",
        sent: "the same: can a program tell from the answer why?",
        right: "`application/problem+json` with a reason",
        rules: "X3, X4",
        measure: |under| Box::pin(reason(under)),
    },
    Case {
        name: "timeout-grpc",
        sent: "gRPC: the same",
        right: "HTTP 200 with status 4, DEADLINE_EXCEEDED: 14 or a bare 504 has clients try again",
        rules: "X3, X5",
        measure: |under| Box::pin(timeout_grpc(under)),
    },
    Case {
        name: "trickle",
        sent: "a route with 1 s; the answer begins at once, and a piece of it comes each 50 ms without an end",
        right: "cut off at 1 s, and never looks complete",
        rules: "X1, X3, S3",
        measure: |under| Box::pin(trickle(under)),
    },
    Case {
        name: "trickle-grpc",
        sent: "gRPC: a stream of messages without an end",
        right: "ends at 1 s with status 4 in its trailers",
        rules: "X3, S1",
        measure: |under| Box::pin(trickle_grpc(under)),
    },
];

const WORK: &str = "sleep=2000";
const TRICKLE: &str = "trickle=50";
/// When callers have seen enough of an answer that trickles.
const ENOUGH: std::time::Duration = ms(2500);

async fn timeout(under: Under<'_>) -> Result<Cell, String> {
    let story = under.tell(&under.call(Ask::get("/plain").work(WORK))).await?;
    let right = story.seen.code() == 504 && story.was_cut() && at_the_limit(&story);
    Ok(Cell::judged(right, both(&story)))
}

async fn reason(under: Under<'_>) -> Result<Cell, String> {
    let story = under.tell(&under.call(Ask::get("/plain").work(WORK))).await?;
    let kind = story.seen.field("content-type");
    let problem: serde_json::Value = serde_json::from_str(&story.seen.body).unwrap_or_default();
    let word = problem["type"].as_str().unwrap_or_default();
    let said = match (kind, word) {
        ("", _) => "no body".to_owned(),
        (kind, "") => format!("`{kind}`, no reason"),
        (kind, word) => format!("`{kind}`, `{word}`"),
    };
    Ok(Cell::judged(kind == "application/problem+json" && !word.is_empty(), said))
}

async fn timeout_grpc(under: Under<'_>) -> Result<Cell, String> {
    let story = under.tell(&under.call(Ask::grpc().work(WORK))).await?;
    let right = is_status_4(&story) && story.was_cut() && at_the_limit(&story);
    Ok(Cell::judged(right, both(&story)))
}

async fn trickle(under: Under<'_>) -> Result<Cell, String> {
    let story = under.tell(&under.call(Ask::get("/plain").work(TRICKLE)).leaving_after(ENOUGH)).await?;
    let right = matches!(story.seen.end, End::Cut(_)) && story.seen.code() == 200 && story.was_cut();
    Ok(Cell::judged(right && at_the_limit(&story), both(&story)))
}

async fn trickle_grpc(under: Under<'_>) -> Result<Cell, String> {
    let story = under.tell(&under.call(Ask::grpc().work(TRICKLE)).leaving_after(ENOUGH)).await?;
    let right = is_status_4(&story) && story.was_cut() && at_the_limit(&story);
    let said = match &story.seen.end {
        End::Cut(how) if story.seen.code() != 0 => format!("{}, {how}", story.answer()),
        _ => story.answer(),
    };
    Ok(Cell::judged(right, said))
}

/// Neither before the limit nor at the end of what came after it.
fn at_the_limit(story: &Story) -> bool {
    story.seen.took + ms(50) >= LIMIT && story.seen.took < LIMIT + ms(900)
}

fn is_status_4(story: &Story) -> bool {
    story.seen.end == End::Whole && story.seen.code() == 200 && story.seen.grpc() == Some(4)
}

fn both(story: &Story) -> String {
    format!("{}; {}", story.answer(), story.upstream())
}
