//! Rows: up to three attempts after the first, each with 0.4 s, all of them with 1 s.

use std::time::Duration;

use super::{Case, LIMIT, ms};
use crate::caller::Ask;
use crate::cell::{Cell, seconds};
use crate::under::{SLACK, Story, Under, left};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "retry-told",
        sent: "GET, 3 retries of 0.4 s each within 1 s; the service answers 503 after 0.35 s: what is each attempt told?",
        right: "at most 0.4 s and at most what is left of the second; the call ends within it",
        rules: "R3, E4, V1",
        measure: |under| Box::pin(told(under)),
    },
    Case {
        name: "retry-doomed",
        sent: "the same, and the route says that each takes 0.35 s, where it can: is one begun with less left?",
        right: "no: the last real answer at once",
        rules: "R1",
        measure: |under| Box::pin(doomed(under)),
    },
    Case {
        name: "retry-post",
        sent: "POST to a route with retries; the service has worked 50 ms and answers 503",
        right: "reaches the service once: nobody knows what it did",
        rules: "R7, R8",
        measure: |under| Box::pin(post(under)),
    },
    Case {
        name: "retry-after",
        sent: "GET with 1 s; the service answers 503 at once, with `retry-after: 5`",
        right: "503 at once: it is asked no more, and nobody waits for what cannot come",
        rules: "R2",
        measure: |under| Box::pin(retry_after(under)),
    },
];

const PATH: &str = "/retry";
/// The same; where it can be said, how much time is the least that is useful.
const USEFUL: &str = "/retry/useful";
const PER_TRY: Duration = ms(400);
/// How long each attempt takes.
const TAKES: Duration = ms(350);
const WORK: &str = "sleep=350;status=503";

async fn told(under: Under<'_>) -> Result<Cell, String> {
    let story = under.tell(&under.call(Ask::get(PATH).work(WORK))).await?;
    let in_time = took(&story) <= LIMIT + 2 * SLACK;
    let Some(field) = under.knows.budget else {
        let said = format!("{}, told nothing; {}", attempts(&story), story.answer());
        // Who has a limit for all attempts has to keep it.
        let late = under.knows.total && !in_time;
        return Ok(if late { Cell::judged(false, said) } else { Cell::no_such_notion(said) });
    };
    let told = story.told(field);
    let told: Vec<Option<Duration>> = told.iter().map(|told| told.and_then(|told| left(field, told))).collect();
    let fits = story.arrivals.iter().zip(&told).all(|(arrival, told)| {
        told.is_some_and(|told| told <= PER_TRY && told + story.after_first(arrival.at) <= LIMIT + SLACK)
    });
    let told: Vec<String> = told.iter().map(|told| told.map_or("nothing".into(), seconds)).collect();
    let said = format!("{}, told {}; {}", attempts(&story), told.join(", "), story.answer());
    Ok(Cell::judged(fits && in_time && !story.arrivals.is_empty(), said))
}

async fn doomed(under: Under<'_>) -> Result<Cell, String> {
    let story = under.tell(&under.call(Ask::get(USEFUL).work(WORK))).await?;
    if !under.knows.total {
        return Ok(Cell::no_such_notion(format!("{}; {}", attempts(&story), story.answer())));
    }
    let had = |arrival: &crate::log::Arrival| LIMIT.saturating_sub(story.after_first(arrival.at));
    let worst = story.arrivals.iter().map(had).min().unwrap_or_default();
    let said = format!("{}, the last with {} left; {}", attempts(&story), seconds(worst), story.answer());
    // An attempt arrives a little later than it begins, and on a busy machine it meets its own limit instead of the answer.
    let at_once = matches!(story.seen.code(), 503 | 504) && took(&story) < LIMIT - ms(50);
    Ok(Cell::judged(worst + ms(30) >= TAKES && at_once, said))
}

async fn post(under: Under<'_>) -> Result<Cell, String> {
    let story = under.tell(&under.call(Ask::post(PATH).work("sleep=50;status=503"))).await?;
    let said = match story.arrivals.len() {
        1 => format!("once; {}", story.answer()),
        times => format!("{times} times; {}", story.answer()),
    };
    Ok(Cell::judged(story.arrivals.len() == 1, said))
}

async fn retry_after(under: Under<'_>) -> Result<Cell, String> {
    let story = under.tell(&under.call(Ask::get(PATH).work("status=503;retry-after=5"))).await?;
    let right = story.arrivals.len() == 1 && story.seen.code() == 503 && story.seen.took < LIMIT / 2;
    Ok(Cell::judged(right, format!("{}; {}", attempts(&story), story.answer())))
}

/// From the first attempt to the end of the answer.
fn took(story: &Story) -> Duration {
    story.after_first(story.seen.began + story.seen.took)
}

fn attempts(story: &Story) -> String {
    match story.arrivals.len() {
        1 => "1 attempt".to_owned(),
        several => format!("{several} attempts"),
    }
}
