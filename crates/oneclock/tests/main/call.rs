//! One call: its stages in the ledger, its outcome by stage, its one event.

use oneclock::{Operation, Stopped, clock};
use oneclock_core::{BoundBy, Cause, Outcome, Stage};

use crate::support::{Recorder, Told, begun, ms, request};

fn called(recorder: &Recorder) -> Vec<(Option<Cause>, Outcome)> {
    let of = |told| match told {
        Told::Called { ending, outcome, .. } => Some((ending.map(|ending| ending.cause), outcome)),
        _ => None,
    };
    recorder.told().into_iter().filter_map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn i13_stages_are_parts_of_the_call_s_ledger_entry() {
    let op = Operation::begin("order", ms(800));
    let mut call = op.grant("stock").call().unwrap();
    for (stage, takes) in [(Stage::Pool, 10), (Stage::Connect, 40), (Stage::Send, 1), (Stage::Wait, 49)] {
        call.enter(stage);
        tokio::time::advance(ms(takes)).await;
    }
    call.close(Outcome::Applied);
    tokio::time::advance(ms(20)).await;
    let ledger = op.ledger();
    assert_eq!(ledger.to_string(), "stock 100ms");
    let (stock, _) = ledger.parts_of(None).next().unwrap();
    assert_eq!(ledger.part(stock).to_string(), "pool 10ms, connect 40ms, send 1ms, wait 49ms");
    assert_eq!(ledger.unaccounted(clock::now()), ms(20));
    assert_eq!(op.stage(), Stage::Work);
}

#[tokio::test(start_paused = true)]
async fn i13_the_error_names_stage_bound_outcome_and_where_the_time_went() {
    let op = Operation::begin("order", ms(2_000));
    let mut call = op.grant("stock").cap(ms(300)).call().unwrap();
    call.enter(Stage::Pool);
    call.run(tokio::time::sleep(ms(120))).await.unwrap();
    call.enter(Stage::Connect);
    let ended = call.run(std::future::pending::<()>()).await.unwrap_err();
    let text = "order → stock: out of time in stage connect (bound: cap) after 300ms of 300ms, outcome: not sent; \
                spent: pool 120ms, connect 180ms";
    assert_eq!(ended.to_string(), text);
    assert_eq!(op.ending(), None, "the caller still has time");
}

/// A part of a fan-out and the client that it uses often have one name.
#[tokio::test(start_paused = true)]
async fn i13_a_part_that_calls_what_it_is_named_after_is_one_hop() {
    let op = Operation::begin("order", ms(2_000));
    let calls = |part: Operation| async move {
        let mut call = part.grant("pricing").cap(ms(300)).call().unwrap();
        call.enter(Stage::Wait);
        call.run(std::future::pending::<()>()).await
    };
    let failed = op.fan_out().required("pricing", calls).await.unwrap_err();
    assert_eq!(failed.to_string(), "order: required part pricing failed");
    let source = std::error::Error::source(&failed).unwrap().to_string();
    assert!(source.starts_with("pricing: out of time in stage wait (bound: cap) after 300ms of 300ms"), "{source}");
}

/// A driver that asks the far side afterwards knows more than the stage says, and everything that asks the error hears it.
#[tokio::test(start_paused = true)]
async fn i8_what_was_found_out_after_a_cut_off_counts() {
    let op = Operation::begin("order", ms(300));
    let mut call = op.grant("charge").call().unwrap();
    call.enter(Stage::Work);
    let ended = call.run(std::future::pending::<()>()).await.unwrap_err();
    assert!(matches!(ended.outcome(), Outcome::Unknown { .. }));
    let known = Stopped::from(ended).knowing(Outcome::Rejected);
    assert_eq!(known.outcome(), Outcome::Rejected);
    assert!(known.to_string().contains("outcome: rejected"), "{known}");
    let not_begun = Stopped::from(op.grant("charge").call().unwrap_err()).knowing(Outcome::Rejected);
    assert_eq!(not_begun.outcome(), Outcome::NotSent, "that is certain");
}

#[tokio::test(start_paused = true)]
async fn i8_the_outcome_of_a_call_that_was_cut_off_follows_from_its_stage() {
    use Stage::{Arrival, Backoff, Body, Connect, Pool, Queue, Resolve, Send, Tls, Wait, Work};
    for stage in [Arrival, Queue, Pool, Resolve, Connect, Tls] {
        cut_off_at(stage, Outcome::NotSent).await;
    }
    for stage in [Send, Wait, Body, Backoff, Work] {
        cut_off_at(stage, Outcome::Unknown { stage }).await;
    }
}

async fn cut_off_at(stage: Stage, want: Outcome) {
    let recorder = Recorder::new();
    let op = begun("order", ms(100), &recorder);
    let mut call = op.grant("stock").call().unwrap();
    call.enter(stage);
    let ended = call.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!((ended.outcome(), ended.stage()), (want, stage));
    drop(call);
    assert_eq!(called(&recorder), [(Some(Cause::Deadline), want)], "{stage}");
}

#[tokio::test(start_paused = true)]
async fn n1_one_event_for_each_way_in_which_a_call_ends() {
    let recorder = Recorder::new();
    let op = begun("order", ms(100), &recorder);

    let mut call = op.grant("answered").call().unwrap();
    call.enter(Stage::Wait);
    assert_eq!(call.run(async { 200 }).await.unwrap(), 200);
    call.close(Outcome::Applied);
    assert_eq!(called(&recorder).pop(), Some((None, Outcome::Applied)));

    let mut call = op.grant("lost-interest").call().unwrap();
    call.enter(Stage::Wait);
    drop(call);
    assert_eq!(called(&recorder).pop(), Some((Some(Cause::CalledOff), Outcome::Unknown { stage: Stage::Wait })));
    let Some(Told::Called { ending: Some(ending), .. }) = recorder.told().pop() else { panic!("a call") };
    assert_eq!(ending.bound, BoundBy::Cap, "what had made its deadline");

    let mut call = op.grant("caller-left").call().unwrap();
    call.enter(Stage::Send);
    op.end(Cause::CallerGone);
    drop(call);
    assert_eq!(called(&recorder).pop(), Some((Some(Cause::CallerGone), Outcome::Unknown { stage: Stage::Send })));
    assert_eq!(called(&recorder).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn x4_an_ending_before_the_call_s_deadline_is_kept_however_late_it_is_asked() {
    let op = Operation::begin("order", ms(1_000));
    let mut call = op.grant("stock").cap(ms(100)).call().unwrap();
    call.enter(Stage::Wait);
    tokio::time::advance(ms(10)).await;
    op.end(Cause::CallerGone);
    tokio::time::advance(ms(500)).await;
    assert_eq!(call.ending().map(|ending| ending.cause), Some(Cause::CallerGone));
    drop(call);

    let op = Operation::begin("order", ms(1_000));
    let call = op.grant("stock").cap(ms(100)).call().unwrap();
    tokio::time::advance(ms(500)).await;
    op.end(Cause::CallerGone);
    assert_eq!(call.ending().map(|ending| (ending.cause, ending.bound)), Some((Cause::Deadline, BoundBy::Cap)));
}

#[tokio::test(start_paused = true)]
async fn x1_the_work_of_a_call_is_polled_before_the_clock_is_asked_and_not_at_all_after_the_end() {
    let op = Operation::begin("order", ms(100));
    let mut call = op.grant("stock").call().unwrap();
    assert!(call.run(tokio::time::sleep(ms(100))).await.is_ok(), "ready in the same turn");
    let mut polled = false;
    assert!(call.run(async { polled = true }).await.is_err());
    assert!(!polled);
}

#[tokio::test(start_paused = true)]
async fn x6_a_call_of_an_operation_that_is_done_is_called_off() {
    let recorder = Recorder::new();
    let driver = request("order", ms(1_000), &recorder);
    let op = driver.operation().clone();
    let waiting = tokio::spawn(async move {
        let mut call = op.grant("stock").call().unwrap();
        call.enter(Stage::Wait);
        call.run(std::future::pending::<()>()).await
    });
    crate::support::settle().await;
    let began = clock::now();
    driver.finish();
    let ended = waiting.await.unwrap().unwrap_err();
    assert_eq!((ended.ending.cause, ended.ending.stage), (Cause::CalledOff, Stage::Wait));
    assert!(clock::now().since(began) < ms(1));
    assert_eq!(called(&recorder), [(Some(Cause::CalledOff), Outcome::Unknown { stage: Stage::Wait })]);
}
