//! A small edition of the soak, for every day; and one that loses events, to see that the counts would notice.

use std::time::Duration;

use oneclock::Operation;

use crate::alone;
use crate::load::{self, Report, Settings};
use crate::told::{Said, Told};

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

/// What the soak counts as told as made and as not made: too little is left to be told once the call has begun.
#[tokio::test]
async fn e2_a_call_that_is_not_made_is_told_once() {
    let peer = oneclock_test::peer::echo_headers(oneclock_test::Protocol::Http1).unwrap();
    let client = oneclock_http::Client::builder("inventory", peer.url());
    let client = client.min_useful(Duration::ZERO).cap(Duration::from_micros(600)).build().unwrap();
    let told = Told::new();
    let op = Operation::begin("order", Duration::from_secs(1)).observed_by(std::sync::Arc::new(told.clone()));
    op.run(client.get("/stock")).await.unwrap().expect_err("below one unit of its field");
    let about_it = told.all().into_iter().filter(|said| said.is_called() || *said == Said::NotCalled).count();
    assert_eq!((about_it, peer.connections()), (1, 0), "{:#?}", told.all());
}
