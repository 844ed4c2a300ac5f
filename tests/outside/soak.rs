//! A small edition of the soak, for every day; and one that loses events, to see that the counts would notice.

use crate::alone;
use crate::load::{self, Report, Settings};

async fn run(settings: Settings) -> Report {
    load::run(settings, |_| {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n1_i14_after_two_thousand_requests_nothing_is_left_and_every_count_agrees() {
    if !alone::or_elsewhere("soak::n1_i14_after_two_thousand_requests_nothing_is_left_and_every_count_agrees") {
        return;
    }
    let report = run(Settings::new(2_000, 1)).await;
    assert!(report.mismatches().is_empty(), "{report}");
    for kind in ["answered", "refused (400, 504)", "ended (408, 503, 504)", "cut off", "left"] {
        assert!(report.callers.iter().any(|(name, count)| *name == kind && *count > 0), "{kind}: {report}");
    }
    assert!(!report.callers.iter().any(|(name, count)| *name == "hung" && *count > 0), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_event_would_be_noticed() {
    if !alone::or_elsewhere("soak::a_lost_event_would_be_noticed") {
        return;
    }
    let report = run(Settings { loses_one_in: 100, ..Settings::new(500, 2) }).await;
    assert!(report.mismatches().len() > 3, "{report}");
}
