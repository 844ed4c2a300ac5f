//! Rows: the caller leaves.

use h2::Reason;

use super::{Case, ms};
use crate::caller::Ask;
use crate::cell::Cell;
use crate::under::Under;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "leave-http1",
        sent: "HTTP/1.1: the caller closes its connection at 0.3 s; the work takes 0.9 s",
        right: "the work is cut when the caller leaves",
        rules: "X4, N3",
        measure: |under| Box::pin(http1(under)),
    },
    Case {
        name: "leave-http2",
        sent: "gRPC: the caller resets its stream with CANCEL at 0.3 s; the work takes 0.9 s",
        right: "the upstream's stream is reset, with CANCEL too: some servers heed no other code",
        rules: "X3, X4",
        measure: |under| Box::pin(http2(under)),
    },
];

const LEAVES: std::time::Duration = ms(300);
const WORK: &str = "sleep=900";

async fn http1(under: Under<'_>) -> Result<Cell, String> {
    let story = under.tell(&under.call(Ask::get("/plain").work(WORK)).leaving_after(LEAVES)).await?;
    Ok(Cell::judged(story.was_cut(), story.upstream()))
}

async fn http2(under: Under<'_>) -> Result<Cell, String> {
    let story = under.tell(&under.call(Ask::grpc().work(WORK)).leaving_after(LEAVES)).await?;
    // A connection that is closed leaves nobody in doubt either.
    let cut = story.was_cut() && story.code().is_none_or(|code| code == Reason::CANCEL);
    Ok(Cell::judged(cut, story.upstream()))
}
