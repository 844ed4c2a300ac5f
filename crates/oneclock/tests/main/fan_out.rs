//! Parts at the same time: the reserve, siblings of a failed part, missing parts and their reasons.

use std::error::Error;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oneclock::{Operation, PartFailed, Stopped, TaskFailed, clock};
use oneclock_core::{Cause, Name, Outcome, Reason};

use crate::support::{Recorder, begun, endless, ms, request, settle, was_dropped};

async fn after(time: u64, value: u32) -> Result<u32, io::Error> {
    tokio::time::sleep(ms(time)).await;
    Ok(value)
}

async fn failing(time: u64) -> Result<u32, io::Error> {
    tokio::time::sleep(ms(time)).await;
    Err(io::Error::other("out of stock"))
}

#[tokio::test(start_paused = true)]
async fn parts_run_at_the_same_time_and_come_back_in_their_order() {
    let op = Operation::begin("order", ms(800));
    let began = clock::now();
    let (a, b, c) = op
        .fan_out()
        .required("a", |_| after(300, 1))
        .optional("b", |_| after(100, 2))
        .required("c", |_| after(200, 3))
        .await
        .unwrap();
    assert_eq!((a, b.unwrap(), c), (1, 2, 3));
    assert_eq!(clock::now().since(began).as_millis(), 300);
    let ledger = op.ledger();
    assert_eq!(ledger.to_string(), "a 300ms, b 100ms, c 200ms");
    assert_eq!(ledger.accounted(clock::now()).as_millis(), 300, "what ran in parallel counts once");
}

#[tokio::test(start_paused = true)]
async fn i2_the_reserve_is_left_for_putting_the_results_together() {
    let op = Operation::begin("order", ms(800));
    let (fast, slow) = op
        .fan_out()
        .reserve(ms(150))
        .required("inventory", |_| after(10, 3))
        .optional("recommendations", |op| async move {
            assert_eq!(op.remaining(), ms(650));
            after(5_000, 1).await
        })
        .await
        .unwrap();
    assert_eq!(fast, 3);
    assert_eq!(op.remaining(), ms(150));
    let missing = slow.unwrap_err();
    assert_eq!(missing.part, Name::from("recommendations"));
    assert_eq!(missing.to_string(), "optional part recommendations is missing");
    let text = missing.source().unwrap().to_string();
    assert_eq!(text, "recommendations: out of time in stage work (bound: cap) after 650ms of 650ms");
    assert!(matches!(missing.outcome(), Some(Outcome::Unknown { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_cap_is_for_the_parts_named_after_it() {
    let op = Operation::begin("order", ms(800));
    let left = |op: Operation| async move { Ok::<_, io::Error>(op.remaining()) };
    let (all, capped) = op.fan_out().required("a", left).cap(ms(100)).required("b", left).await.unwrap();
    assert_eq!((all, capped), (ms(800), ms(100)));
}

#[tokio::test(start_paused = true)]
async fn i6_a_failed_required_part_ends_its_siblings_at_once() {
    let recorder = Recorder::new();
    let op = begun("order", ms(800), &recorder);
    let (work, mut dropped) = endless();
    let (deep, mut deep_dropped) = endless();
    let began = clock::now();
    let failed = op
        .fan_out()
        .required("done", |_| after(10, 1))
        .optional("slow", |_| async move {
            work.await;
            Ok::<_, io::Error>(())
        })
        .required("inventory", |_| failing(50))
        .required("pricing", move |op| async move { op.spawn("deep", deep).await.map_err(io::Error::other) })
        .await
        .unwrap_err();
    assert_eq!(clock::now().since(began).as_millis(), 50);
    assert_eq!(failed.to_string(), "order: required part inventory failed");
    assert_eq!(failed.source().unwrap().to_string(), "out of stock");
    assert!(failed.stopped().is_none(), "an error of its own");
    assert!(was_dropped(&mut dropped));
    settle().await;
    assert!(was_dropped(&mut deep_dropped));
    assert_eq!(recorder.ends_of("done"), [None]);
    assert_eq!(recorder.ends_of("slow"), [Some(Cause::SiblingFailed)]);
    assert_eq!(recorder.ends_of("pricing"), [Some(Cause::SiblingFailed)]);
    assert_eq!(recorder.ends_of("deep"), [Some(Cause::SiblingFailed)], "and what is below them");
    assert_eq!(recorder.ends_of("inventory"), [None], "it ran to its end, with an error");
    assert_eq!(op.ending(), None, "the operation itself goes on");
}

/// The naive way: `try_join!` drops the siblings' futures, and what they spawned goes on.
#[tokio::test(start_paused = true)]
async fn i6_the_naive_join_leaves_the_siblings_children_running() {
    let (deep, mut deep_dropped) = endless();
    let slow = async move { tokio::spawn(deep).await.map_err(io::Error::other) };
    assert!(tokio::try_join!(failing(50), slow).is_err());
    tokio::time::sleep(ms(10_000)).await;
    assert!(!was_dropped(&mut deep_dropped));
}

#[tokio::test(start_paused = true)]
async fn a_failed_optional_part_is_missing_and_the_others_go_on() {
    let op = Operation::begin("order", ms(800));
    let (missing, value) =
        op.fan_out().optional("hints", |_| failing(10)).required("stock", |_| after(100, 3)).await.unwrap();
    assert_eq!(value, 3);
    let missing = missing.unwrap_err();
    assert_eq!((missing.source.to_string(), missing.outcome()), ("out of stock".to_owned(), None));
}

#[tokio::test(start_paused = true)]
async fn i5_a_required_part_without_time_fails_the_whole_before_another_has_begun() {
    let recorder = Recorder::new();
    let op = begun("order", ms(100), &recorder);
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    let failed = op
        .fan_out()
        .required("charge", move |_| async move {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, io::Error>(())
        })
        .reserve(ms(100))
        .required("stock", |_| after(1, 1))
        .await
        .unwrap_err();
    assert_eq!(failed.part, Name::from("stock"));
    assert!(matches!(failed.stopped(), Some(Stopped::NotBegun(_))));
    assert_eq!(begun.load(Ordering::Relaxed), 0);
    assert_eq!(recorder.ends_of("charge"), [Some(Cause::SiblingFailed)]);
    assert!(recorder.ends_of("stock").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_optional_part_without_time_is_missing_and_was_not_sent() {
    let op = Operation::begin("order", ms(100));
    let (value, missing) = op
        .fan_out()
        .required("stock", |_| after(10, 3))
        .reserve(ms(97))
        .optional("hints", |_| after(1, 1))
        .await
        .unwrap();
    assert_eq!(value, 3);
    let missing = missing.unwrap_err();
    assert_eq!(missing.outcome(), Some(Outcome::NotSent));
    assert_eq!(missing.stopped().unwrap().reason(), Reason::InsufficientBudget);
}

#[tokio::test(start_paused = true)]
async fn a_required_part_out_of_time_gives_the_reason_of_its_bound() {
    let driver = request("order", ms(100), &Recorder::new());
    let failed = driver.operation().fan_out().required("stock", |_| after(5_000, 1)).await.unwrap_err();
    assert_eq!(failed.reason(), Reason::Deadline);
    let driver = request("order", ms(1_000), &Recorder::new());
    let failed = driver.operation().fan_out().cap(ms(100)).required("stock", |_| after(5_000, 1)).await.unwrap_err();
    assert_eq!(failed.reason(), Reason::Cap);
}

/// However the end comes out of a part, the whole gives its reason and not that of a bug.
#[tokio::test(start_paused = true)]
async fn i13_the_reason_is_found_through_every_error_of_ours() {
    let driver = request("order", ms(100), &Recorder::new());
    let op = driver.operation();

    let checked: Result<(u32,), PartFailed> = op
        .fan_out()
        .reserve(ms(50))
        .required("checkpoint", |op| async move {
            let last = op.grant("step").cap(ms(10)).operation().map_err(Stopped::from)?;
            tokio::time::sleep(ms(10)).await;
            last.checkpoint().map_err(Stopped::from)?;
            Ok::<_, Stopped>(1)
        })
        .await;
    assert_eq!(checked.unwrap_err().reason(), Reason::Cap);

    let plain = op.fan_out().required("plain", |op| async move {
        let step = op.grant("step").cap(ms(10)).operation().expect("enough time");
        tokio::time::sleep(ms(10)).await;
        step.checkpoint()
    });
    let failed = plain.await.unwrap_err();
    assert_eq!(failed.reason(), Reason::Cap, "an Ended by itself");

    let refused = op.fan_out().required("refused", |op| async move { op.grant("step").reserve(ms(78)).remaining() });
    assert_eq!(refused.await.unwrap_err().reason(), Reason::InsufficientBudget, "a NotBegun by itself");

    let spawned = op.fan_out().required("spawned", |op| async move {
        let task = op.spawn("task", std::future::pending::<()>());
        op.grant("wait").cap(ms(10)).run(|_| async {}).await.map_err(TaskFailed::from)?;
        task.abort();
        task.await
    });
    let failed = spawned.await.unwrap_err();
    assert!(matches!(failed.stopped(), Some(Stopped::NotBegun(_))), "through a TaskFailed, before its first turn");
    assert_eq!(failed.reason(), Reason::CalledOff);

    let nested = op.fan_out().required("outer", |op| async move {
        op.fan_out().required("inner", |_| std::future::pending::<Result<(), io::Error>>()).await
    });
    assert_eq!(nested.await.unwrap_err().reason(), Reason::Deadline, "through a fan-out in a fan-out");
}

#[tokio::test(start_paused = true)]
async fn i6_dropping_the_fan_out_ends_its_parts() {
    let recorder = Recorder::new();
    let op = begun("order", ms(800), &recorder);
    let (deep, mut dropped) = endless();
    {
        let mut joined = pin!(
            op.fan_out()
                .required("a", |op| async move { op.spawn("deep", deep).await })
                .optional("b", |_| after(500, 1))
                .into_future()
        );
        assert!(futures_util::poll!(joined.as_mut()).is_pending());
        settle().await;
        assert!(!was_dropped(&mut dropped));
    }
    settle().await;
    assert!(was_dropped(&mut dropped));
    for part in ["a", "b", "deep"] {
        assert_eq!(recorder.ends_of(part), [Some(Cause::CallerGone)], "{part}");
    }
    drop(op.fan_out().required("never-awaited", |_| after(1, 1)));
    assert_eq!(recorder.ends_of("never-awaited").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn x4_parts_of_an_operation_that_ends_inherit_its_cause() {
    let recorder = Recorder::new();
    let op = begun("order", ms(800), &recorder);
    let fan_out = op.fan_out().required("a", |_| after(500, 1)).optional("b", |_| after(500, 1)).into_future();
    let task = op.clone();
    let call_off = async {
        tokio::time::sleep(ms(10)).await;
        task.end(Cause::CallerGone)
    };
    let (failed, first) = tokio::join!(fan_out, call_off);
    assert!(first);
    assert_eq!(failed.unwrap_err().reason(), Reason::CallerGone);
    assert_eq!(recorder.ends_of("a"), [Some(Cause::CallerGone)]);
}

#[tokio::test(start_paused = true)]
async fn the_parts_are_made_and_run_in_their_own_scope() {
    let op = Operation::begin("order", ms(800));
    let here = || Operation::current().map(|op| op.name().to_string());
    let ((made, run),) = op
        .fan_out()
        .required("part", |_| {
            let made = here();
            async move { Ok::<_, io::Error>((made, here())) }
        })
        .await
        .unwrap();
    assert_eq!((made.as_deref(), run.as_deref()), (Some("part"), Some("part")));
}

#[tokio::test(start_paused = true)]
async fn up_to_eight_parts() {
    let op = Operation::begin("order", ms(800));
    let (a, b, c, d, e, f, g, h) = op
        .fan_out()
        .required("a", |_| after(8, 1))
        .optional("b", |_| after(7, 2))
        .required("c", |_| after(6, 3))
        .optional("d", |_| after(5, 4))
        .required("e", |_| after(4, 5))
        .optional("f", |_| after(3, 6))
        .required("g", |_| after(2, 7))
        .optional("h", |_| failing(1))
        .await
        .unwrap();
    let all = [a, b.unwrap(), c, d.unwrap(), e, f.unwrap(), g];
    assert_eq!(all, [1, 2, 3, 4, 5, 6, 7]);
    assert!(h.is_err());
}

#[tokio::test(start_paused = true)]
async fn parts_may_borrow_from_whoever_awaits_them() {
    let op = Operation::begin("order", ms(800));
    let cart = [1, 2, 3];
    let (sum, most) = op
        .fan_out()
        .required("sum", |_| async { Ok::<_, io::Error>(cart.iter().sum::<u32>()) })
        .required("most", |_| async { Ok::<_, io::Error>(cart.iter().max().copied()) })
        .await
        .unwrap();
    assert_eq!((sum, most), (6, Some(3)));
}
