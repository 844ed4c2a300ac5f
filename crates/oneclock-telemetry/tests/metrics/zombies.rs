//! I14: work for nobody is a gauge while it runs, and a counter with its time when it is over.

use std::sync::mpsc;

use oneclock::events::RanOn;
use oneclock::{MayRunOn, Operation};
use oneclock_telemetry::names::*;

use crate::support::{Counted, ms};

#[tokio::test(start_paused = true)]
async fn a_step_that_must_finish_runs_on_and_its_seconds_add_up() {
    let counted = Counted::new();
    for round in 1..=4 {
        let job = counted.begin("order", ms(100));
        let step = async {
            tokio::time::sleep(ms(850)).await;
            Ok::<_, std::io::Error>(())
        };
        let error = job.must_finish("charge", ms(5_000), step).await.unwrap_err();
        assert!(error.outcome().is_some());
        assert_eq!(counted.seen().of(&ZOMBIES, &["must_finish"]), 1.0);
        assert_eq!(counted.seen().of(&RAN_ON, &["order", "must_finish"]), f64::from(round - 1));
        tokio::time::sleep(ms(1_000)).await; // of the paused clock: past the step's end
    }
    let seen = counted.seen();
    assert_eq!(seen.of(&ZOMBIES, &["must_finish"]), 0.0);
    assert_eq!(seen.of(&RAN_ON, &["order", "must_finish"]), 4.0);
    assert_eq!(seen.of(&RAN_ON_SECONDS, &["order", "must_finish"]), 3.0, "4 times 750 ms, none of which is a second");
    assert_eq!(seen.of(&OPERATIONS, &["order", "none", "deadline"]), 4.0);
    assert_eq!(seen.sum(&OPERATIONS), 4.0, "a step is none");
}

/// A blocking thread takes part, so time is real, and nothing waits for it.
#[tokio::test]
async fn a_blocking_closure_is_a_zombie_until_it_returns() {
    let counted = Counted::new();
    let job = counted.begin("report", ms(60_000));
    let (began, has_begun) = tokio::sync::oneshot::channel();
    let (release, released) = mpsc::channel::<()>();
    let closure = job.spawn_blocking("pdf", move |_: &Operation| {
        began.send(()).unwrap();
        released.recv().unwrap();
    });
    has_begun.await.unwrap();
    assert_eq!(counted.seen().of(&ZOMBIES, &["blocking"]), 0.0, "somebody waits for it");
    job.call_off();
    assert!(closure.await.is_err());
    assert_eq!(counted.seen().of(&ZOMBIES, &["blocking"]), 1.0);
    assert_eq!(counted.seen().of(&RAN_ON, &["report", "blocking"]), 0.0);
    release.send(()).unwrap();
    let over = async {
        while counted.seen().of(&RAN_ON, &["report", "blocking"]) < 1.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(oneclock_test::PATIENCE, over).await.expect("it is told when the closure returns");
    assert_eq!(counted.seen().of(&ZOMBIES, &["blocking"]), 0.0);
}

#[test]
fn a_statement_is_a_zombie_of_its_own() {
    let counted = Counted::new();
    let job = counted.begin("lookup", ms(60_000));
    let running = MayRunOn::new(&job, RanOn::Statement);
    assert_eq!(counted.seen().of(&ZOMBIES, &["statement"]), 0.0);
    job.call_off();
    assert_eq!(counted.seen().of(&ZOMBIES, &["statement"]), 1.0);
    drop(running);
    assert_eq!(counted.seen().of(&ZOMBIES, &["statement"]), 0.0);
}
