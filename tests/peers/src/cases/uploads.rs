//! Rows: an upload that takes longer than the route has.

use std::time::Duration;

use super::{Case, LIMIT, ms};
use crate::backend::WORK;
use crate::caller::Ask;
use crate::cell::{Cell, seconds};
use crate::under::Under;
use crate::uploader::{self, Saw};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "slow-upload",
        sent: "a route with 1 s; an upload that takes 2 s, then work of 0.7 s",
        right: "ends at 1 s, counted from the head (408: the body did not come; or 504), and nothing is worked on to its end",
        rules: "K1, X3",
        measure: |under| Box::pin(slow(under)),
    },
    Case {
        name: "upload-answer",
        sent: "the same, by a caller that writes its whole upload before it reads",
        right: "it can write to the end, and reads the answer: no reset on the way",
        rules: "X9",
        measure: |under| Box::pin(answer(under)),
    },
];

const PIECES: u32 = 10;
const EVERY: Duration = ms(200);
const WORKS: &str = "sleep=700";

async fn slow(under: Under<'_>) -> Result<Cell, String> {
    let story = under.tell(&under.call(Ask::post("/plain").upload(PIECES, EVERY).work(WORKS))).await?;
    let early = story.seen.took < EVERY * PIECES && story.seen.took + ms(50) >= LIMIT;
    let right = early && matches!(story.seen.code(), 408 | 504) && (story.arrivals.is_empty() || story.was_cut());
    Ok(Cell::judged(right, format!("{}; {}", story.answer(), story.upstream())))
}

async fn answer(under: Under<'_>) -> Result<Cell, String> {
    let saw = uploader::post(under.proxy.http, "/plain", &[(WORK, WORKS)], PIECES, EVERY).await?;
    Ok(match saw {
        Saw::Answer(status @ (408 | 504)) => Cell::judged(true, format!("{status} read after the upload")),
        // The row before this one says what is wrong with it.
        Saw::Answer(status) => Cell::no_such_notion(format!("{status}: nothing ends an upload here")),
        Saw::BrokenPipe(at) => Cell::judged(false, format!("cannot write on after {}", seconds(at))),
        Saw::Nothing => Cell::judged(false, "no answer after the upload"),
    })
}
