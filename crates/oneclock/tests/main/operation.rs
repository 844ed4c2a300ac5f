//! The cancel tree, and the one ending and one event of each operation.

use std::sync::Arc;

use oneclock::events::{Event, Observer};
use oneclock::operation::Kind;
use oneclock::{Operation, Shutdown, clock};
use oneclock_core::{BoundBy, Budget, Cause, Name, Stage};

use crate::support::{Recorder, Told, begun, cause, endless, ms, request, request_under, settle, was_dropped};

#[tokio::test(start_paused = true)]
async fn x4_the_first_ending_is_kept() {
    let op = Operation::begin("order", ms(100));
    tokio::time::advance(ms(10)).await;
    op.set_stage(Stage::Connect);
    assert!(op.call_off());
    op.set_stage(Stage::Body);
    assert!(!op.end(Cause::Shutdown), "it had ended");
    tokio::time::advance(ms(500)).await;
    let ending = op.ending().unwrap();
    assert_eq!((ending.cause, ending.stage, ending.bound), (Cause::CalledOff, Stage::Connect, BoundBy::Cap));
    let waited = clock::now().since(ending.at);
    assert!(waited >= ms(500) && waited < ms(501), "it ended when it was called off: {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn x4_a_child_inherits_the_cause_however_deep() {
    for why in [Cause::CallerGone, Cause::CalledOff, Cause::Shed, Cause::Shutdown, Cause::SiblingFailed] {
        let op = Operation::begin("a", ms(1_000));
        let child = op.grant("b").operation().unwrap();
        let grandchild = child.grant("c").operation().unwrap();
        op.end(why);
        assert_eq!(cause(&grandchild), Some(why));
        assert_eq!(cause(&child), Some(why));
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_s_end_is_not_its_parent_s() {
    let op = Operation::begin("a", ms(1_000));
    let child = op.grant("b").cap(ms(10)).operation().unwrap();
    let other = op.grant("c").operation().unwrap();
    tokio::time::advance(ms(10)).await;
    assert_eq!(cause(&child), Some(Cause::Deadline));
    assert_eq!((cause(&op), cause(&other)), (None, None));
}

/// A blocking closure asks at its checkpoints only: what it is told is what came first, not what it noticed last.
#[tokio::test(start_paused = true)]
async fn x4_the_parent_s_ending_that_came_before_the_deadline_wins_however_late_the_child_asks() {
    let op = Operation::begin("a", ms(1_000));
    let child = op.grant("b").cap(ms(100)).operation().unwrap();
    tokio::time::advance(ms(10)).await;
    op.end(Cause::CallerGone);
    tokio::time::advance(ms(500)).await;
    assert_eq!(cause(&child), Some(Cause::CallerGone));
}

#[tokio::test(start_paused = true)]
async fn x4_past_its_deadline_it_is_out_of_time_whoever_cancelled_a_moment_later() {
    let op = Operation::begin("a", ms(1_000));
    let child = op.grant("b").cap(ms(100)).operation().unwrap();
    tokio::time::advance(ms(150)).await;
    op.end(Cause::CallerGone);
    assert_eq!(cause(&child), Some(Cause::Deadline));
}

#[tokio::test(start_paused = true)]
async fn n5_what_a_finished_operation_left_behind_ends_as_called_off() {
    let recorder = Recorder::new();
    let driver = request("order", ms(1_000), &recorder);
    let child = driver.operation().grant("b").operation().unwrap();
    let (work, mut dropped) = endless();
    let task = driver.operation().spawn("index", work);
    settle().await;
    assert!(!was_dropped(&mut dropped));
    driver.finish();
    assert_eq!(cause(&child), Some(Cause::CalledOff));
    settle().await;
    assert!(was_dropped(&mut dropped), "long before the deadline");
    assert!(task.await.is_err());
    assert_eq!(recorder.ends_of("order"), [None]);
    assert_eq!(recorder.ends_of("index"), [Some(Cause::CalledOff)]);
}

/// The same for a future that runs in the operation itself, on somebody else's task.
#[tokio::test(start_paused = true)]
async fn n5_what_runs_in_a_finished_operation_ends_with_it() {
    let recorder = Recorder::new();
    let driver = request("order", ms(1_000), &recorder);
    let op = driver.operation().clone();
    let (work, mut dropped) = endless();
    let task = tokio::spawn(async move { op.run(work).await });
    settle().await;
    let began = clock::now();
    driver.finish();
    let ended = task.await.unwrap().unwrap_err();
    assert_eq!(ended.ending.cause, Cause::CalledOff);
    assert!(was_dropped(&mut dropped));
    assert!(clock::now().since(began) < ms(1), "not at the deadline");
}

#[tokio::test(start_paused = true)]
async fn x6_nothing_begins_in_a_finished_operation() {
    let recorder = Recorder::new();
    let driver = request("order", ms(1_000), &recorder);
    let op = driver.operation().clone();
    driver.finish();
    let mut polled = false;
    assert!(op.run(async { polled = true }).await.is_err());
    assert!(!polled);
    assert!(op.grant("b").operation().is_err());
    assert!(op.spawn("c", async {}).await.is_err());
    let text = op.grant("b").operation().unwrap_err().to_string();
    assert!(text.contains("called off"), "there was time, so it does not say that there was none: {text}");
}

#[tokio::test(start_paused = true)]
async fn ended_returns_at_the_deadline_at_a_cancel_and_never_for_work_that_is_done() {
    let op = Operation::begin("a", ms(100));
    let ((), began) = (tokio::time::advance(ms(1)).await, clock::now());
    assert_eq!(op.ended().await.cause, Cause::Deadline);
    assert_eq!(clock::now().since(began).as_millis(), 99);

    let op = Operation::begin("a", ms(100));
    let waiting = tokio::spawn({
        let op = op.clone();
        async move { op.ended().await.cause }
    });
    settle().await;
    op.call_off();
    assert_eq!(waiting.await.unwrap(), Cause::CalledOff);

    let driver = request("b", ms(100), &Recorder::new());
    let op = driver.operation().clone();
    driver.finish();
    assert!(tokio::time::timeout(ms(5_000), op.ended()).await.is_err(), "done is no early end");
}

#[tokio::test(start_paused = true)]
async fn i7_a_checkpoint_lets_pass_until_the_end_and_says_which_end() {
    let op = Operation::begin("sum", ms(100));
    assert!(op.checkpoint().is_ok());
    tokio::time::advance(ms(99)).await;
    assert!(op.checkpoint().is_ok());
    tokio::time::advance(ms(1)).await;
    let ended = op.checkpoint().unwrap_err();
    assert_eq!(ended.to_string(), "sum: out of time in stage work (bound: cap) after 100ms of 100ms");
}

// === One event for each operation, in every way of ending ===

#[tokio::test(start_paused = true)]
async fn one_event_for_work_that_is_done() {
    let recorder = Recorder::new();
    let op = begun("job", ms(100), &recorder);
    op.run(async {}).await.unwrap();
    let clone = op.clone();
    drop(op);
    assert!(recorder.ends_of("job").is_empty(), "it is over with its last clone");
    drop(clone);
    assert_eq!(recorder.ends_of("job"), [None]);

    let driver = request("order", ms(100), &recorder);
    let clone = driver.operation().clone();
    driver.finish();
    assert_eq!(recorder.ends_of("order"), [None], "its driver says when, not its clones");
    drop(clone);
    assert_eq!(recorder.ends_of("order"), [None]);
}

#[tokio::test(start_paused = true)]
async fn one_event_at_the_deadline_and_when_called_off() {
    let recorder = Recorder::new();
    let op = begun("late", ms(100), &recorder);
    assert!(op.run(std::future::pending::<()>()).await.is_err());
    op.call_off();
    drop(op);
    assert_eq!(recorder.ends_of("late"), [Some(Cause::Deadline)]);

    let op = begun("off", ms(100), &recorder);
    op.call_off();
    assert!(op.run(async {}).await.is_err());
    drop(op);
    assert_eq!(recorder.ends_of("off"), [Some(Cause::CalledOff)]);
}

#[tokio::test(start_paused = true)]
async fn x4_one_event_for_each_sort_of_drop() {
    let recorder = Recorder::new();
    let shutdown = Shutdown::new();

    drop(request_under("gone", ms(100), &recorder, Some(&shutdown)));
    assert_eq!(recorder.ends_of("gone"), [Some(Cause::CallerGone)]);

    let driver = request_under("past", ms(100), &recorder, Some(&shutdown));
    tokio::time::advance(ms(100)).await;
    drop(driver);
    assert_eq!(recorder.ends_of("past"), [Some(Cause::Deadline)]);

    let driver = request_under("down", ms(100), &recorder, Some(&shutdown));
    shutdown.signal();
    drop(driver);
    assert_eq!(recorder.ends_of("down"), [Some(Cause::Shutdown)]);

    let op = begun("half", ms(100), &recorder);
    assert!(tokio::time::timeout(ms(10), op.run(std::future::pending::<()>())).await.is_err());
    drop(op);
    assert_eq!(recorder.ends_of("half"), [Some(Cause::CallerGone)]);
}

#[tokio::test(start_paused = true)]
async fn one_event_when_the_work_panics() {
    let recorder = Recorder::new();
    let driver = request("order", ms(100), &recorder);
    let broken = tokio::spawn(async move {
        let op = driver.operation().clone();
        let _ = op.run(async { panic!("on purpose") }).await;
        driver.finish();
    });
    assert!(broken.await.is_err());
    assert_eq!(recorder.ends_of("order").len(), 1);
    assert_ne!(recorder.ends_of("order"), [None], "it was not done");

    let op = begun("parent", ms(100), &recorder);
    assert!(op.spawn("task", async { panic!("on purpose") }).await.is_err());
    assert_eq!(recorder.ends_of("task").len(), 1);
    drop(op);
    assert_eq!(recorder.ends_of("parent"), [None], "a part that panicked is not its whole");
}

#[tokio::test(start_paused = true)]
async fn one_event_for_an_abandoned_handle() {
    let recorder = Recorder::new();
    let driver = request("order", ms(100), &recorder);
    let (work, mut dropped) = endless();
    drop(driver.operation().spawn("index", work));
    settle().await;
    assert!(recorder.ends_of("index").is_empty(), "it goes on");
    tokio::time::sleep(ms(101)).await;
    assert!(was_dropped(&mut dropped));
    assert_eq!(recorder.ends_of("index"), [Some(Cause::Deadline)]);
    drop(driver);
    assert_eq!(recorder.ends_of("order"), [Some(Cause::Deadline)]);
}

#[tokio::test(start_paused = true)]
async fn the_event_names_kind_and_parent() {
    let recorder = Recorder::new();
    let driver = request("order", ms(100), &recorder);
    driver.operation().grant("stock").run(|_| async {}).await.unwrap();
    drop(driver.operation().detach("mail", ms(100), "may be slow"));
    driver.finish();
    let of = |name: &str| {
        recorder.told().into_iter().find_map(|told| match told {
            Told::Ended { name: whose, kind, parent, .. } if whose == name => Some((kind, parent)),
            _ => None,
        })
    };
    assert_eq!(of("stock"), Some((Kind::Child, Some("order".to_owned()))));
    assert_eq!(of("mail"), Some((Kind::Detached, None)));
    assert_eq!(of("order"), Some((Kind::Request, None)));
}

// === Limits and inheritance ===

#[tokio::test(start_paused = true)]
async fn i3_a_platform_limit_shortens_and_never_extends() {
    let op = Operation::begin("handler", ms(60_000)).platform(|| Some(ms(14_000)));
    assert_eq!((op.remaining(), op.bound().by), (ms(14_000), BoundBy::Platform));
    let op = Operation::begin("handler", ms(100)).platform(|| Some(ms(14_000)));
    assert_eq!((op.remaining(), op.bound().by), (ms(100), BoundBy::Cap));
    let op = Operation::begin("handler", ms(100)).platform(|| None);
    assert_eq!(op.remaining(), ms(100));

    // Shared already: the shortened one is a part of it, and the other clone stays as it was.
    let op = Operation::begin("handler", ms(60_000));
    let shortened = op.clone().platform(|| Some(ms(50)));
    assert_eq!((op.remaining(), shortened.remaining()), (ms(60_000), ms(50)));
    let ended = shortened.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(ended.to_string(), "handler: out of time in stage work (bound: platform) after 50ms of 50ms");
    assert_eq!(cause(&op), None);
}

#[tokio::test(start_paused = true)]
async fn an_inner_layer_s_operation_never_outlives_the_outer_one() {
    let recorder = Recorder::new();
    let shutdown = Shutdown::new();
    let outer = request_under("outer", ms(100), &recorder, Some(&shutdown));
    let now = clock::now();
    let longer = Budget::begin(BoundBy::Ceiling, ms(5_000), now);
    let arrive = || Operation::arrive(Name::from("inner"), now, longer, Some(outer.operation().clone()), None, None);

    let inner = arrive();
    assert_eq!((inner.operation().remaining(), inner.operation().bound().by), (ms(100), BoundBy::Caller));
    drop(inner);
    assert_eq!(recorder.ends_of("inner"), [Some(Cause::CallerGone)], "the outer one's observer hears of it");

    let inner = arrive();
    shutdown.signal();
    drop(inner);
    assert_eq!(recorder.ends_of("inner")[1..], [Some(Cause::Shutdown)], "the outer one's shutdown is its own");

    let inner = arrive();
    let op = inner.operation().clone();
    drop(outer);
    assert_eq!(cause(&op), Some(Cause::Shutdown));
}

#[tokio::test(start_paused = true)]
async fn the_innermost_operation_is_current_and_spawn_by_hand_has_none() {
    let op = Operation::begin("outer", ms(100));
    assert!(Operation::current().is_none());
    op.run(async {
        assert_eq!(Operation::current().unwrap().name(), &Name::from("outer"));
        let inner = Operation::current().unwrap().grant("inner").operation().unwrap();
        inner.scope(async { assert_eq!(Operation::current().unwrap().name(), &Name::from("inner")) }).await;
        inner.sync_scope(|| assert_eq!(Operation::current().unwrap().name(), &Name::from("inner")));
        assert_eq!(Operation::current().unwrap().name(), &Name::from("outer"));
        let by_hand = tokio::spawn(async { Operation::current().is_none() });
        assert!(by_hand.await.unwrap());
    })
    .await
    .unwrap();
}

#[test]
fn an_operation_with_an_endless_budget_does_not_panic() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let op = Operation::begin("long", std::time::Duration::MAX);
        let patient = op.run(std::future::pending::<()>());
        assert!(tokio::time::timeout(ms(10), patient).await.is_err());
    });
}

#[tokio::test(start_paused = true)]
async fn many_threads_see_one_ending() {
    let op = Arc::new(Operation::begin("raced", ms(1_000)));
    let wins: usize = std::thread::scope(|scope| {
        let causes = [Cause::CalledOff, Cause::Shed, Cause::CallerGone, Cause::SiblingFailed];
        let racers = causes.map(|why| {
            let op = Arc::clone(&op);
            scope.spawn(move || usize::from(op.end(why)))
        });
        racers.into_iter().map(|racer| racer.join().unwrap()).sum()
    });
    assert_eq!(wins, 1);
}

/// An inner layer with a shutdown of its own: whichever grace is over first ends it, asked or waited for.
#[tokio::test(start_paused = true)]
async fn x10_what_arrives_within_another_is_ended_by_its_own_shutdown_too() {
    for which in 0..3 {
        let shutdowns = [Shutdown::new(), Shutdown::new(), Shutdown::new()];
        let [outermost, middle, innermost] = &shutdowns;
        let outer = Operation::begin("outer", ms(10_000)).ended_by(outermost);
        let arrive = |name: &'static str, within: &Operation, shutdown| {
            let now = clock::now();
            let budget = Budget::begin(BoundBy::Caller, ms(5_000), now);
            Operation::arrive(name.into(), now, budget, Some(within.clone()), Some(shutdown), None)
        };
        let request = arrive("middle", &outer, middle);
        let inner = arrive("inner", request.operation(), innermost);
        let part = inner.operation().grant("part").operation().unwrap();
        let waiting = tokio::spawn({
            let part = part.clone();
            async move { part.ended().await.cause }
        });
        settle().await;
        let began = clock::now();
        shutdowns[which].end_grace();
        assert_eq!(cause(inner.operation()), Some(Cause::Shutdown));
        assert_eq!(waiting.await.unwrap(), Cause::Shutdown);
        assert!(clock::now().since(began) < ms(1), "long before the deadline");
        assert_eq!(cause(&part), Some(Cause::Shutdown));
        drop((inner, request));
        settle().await;
        assert_eq!([middle, innermost].map(Shutdown::tasks), [0, 0]);
    }
}

/// A line of parts may be as long as memory allows: asked, waited for, ended and dropped without a stack as deep.
#[test]
fn a_long_line_of_parts_needs_no_deep_stack() {
    const LENGTH: usize = 5_000;
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    let line = small.spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            for waited_for in [false, true] {
                let recorder = Recorder::new();
                let root = begun("root", ms(3_600_000), &recorder);
                let mut part = root.clone();
                for _ in 0..LENGTH {
                    part = part.grant("part").operation().unwrap();
                }
                assert!(!part.is_ended());
                if waited_for {
                    assert!(tokio::time::timeout(ms(1), part.ended()).await.is_err());
                }
                root.end(Cause::CallerGone);
                assert_eq!(cause(&part), Some(Cause::CallerGone));
                drop(root);
                drop(part);
                assert_eq!(recorder.ends_of("root"), [Some(Cause::CallerGone)], "with the last of its parts");
                assert_eq!(recorder.ends_of("part").len(), LENGTH);
            }
        });
    });
    line.unwrap().join().unwrap();
}

/// The observer is called without a lock of ours, from whichever guard ends the operation.
#[test]
fn n1_an_observer_may_ask_for_the_ledger_of_what_has_ended() {
    struct Reads(std::sync::mpsc::Sender<usize>);
    impl Observer for Reads {
        fn on(&self, event: &Event<'_>) {
            if let (Event::Ended(_), Some(op)) = (event, Operation::current()) {
                self.0.send(op.ledger().entries().len()).unwrap();
            }
        }
    }
    let (reads, read) = std::sync::mpsc::channel();
    let now = clock::now();
    let budget = Budget::begin(BoundBy::Caller, ms(60_000), now);
    let driver = Operation::arrive("order".into(), now, budget, None, None, Some(Arc::new(Reads(reads))));
    let op = driver.operation().clone();
    drop(op.spend("stock", Stage::Wait));
    let ending = std::thread::spawn(move || op.sync_scope(|| driver.finish()));
    assert_eq!(read.recv_timeout(std::time::Duration::from_secs(5)), Ok(1), "no deadlock");
    ending.join().unwrap();
}

/// What each accessor answers once the work is done, also past the deadline.
#[tokio::test(start_paused = true)]
async fn n5_an_operation_whose_work_is_done_has_no_ending_and_refuses_what_would_begin() {
    let driver = request("order", ms(100), &Recorder::new());
    let op = driver.operation().clone();
    driver.finish();
    for _ in 0..2 {
        assert_eq!((op.ending(), op.is_ended(), op.checkpoint().is_ok()), (None, false, true));
        assert!(op.grant("b").operation().is_err());
        assert_eq!(op.run(async {}).await.unwrap_err().ending.cause, Cause::CalledOff);
        tokio::time::advance(ms(200)).await;
    }
    assert_eq!(op.remaining(), ms(0));
}

/// What is built into an operation that somebody else has already would not be there: a shutdown that ends nothing.
#[test]
#[cfg(debug_assertions)]
fn what_is_built_in_too_late_is_no_silence() {
    fn is_said<T>(built: impl FnOnce() -> T) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(built)).is_err()
    }
    let (shutdown, recorder) = (Shutdown::new(), Recorder::new());
    let op = Operation::begin("tail", ms(60_000));
    let shared = op.clone();
    assert!(is_said(|| op.clone().ended_by(&shutdown)));
    assert!(is_said(|| op.clone().observed_by(recorder.clone())));
    drop(shared);
    assert!(!is_said(|| op.ended_by(&shutdown)), "alone");

    let driver = || request("order", ms(60_000), &recorder);
    let late = driver();
    let shared = late.operation().clone();
    assert!(is_said(|| late.serving_attempt(2)));
    let late = driver();
    let _shared = (shared, late.operation().clone());
    assert!(is_said(|| late.on_route("/orders/{id}".into())));
}

#[tokio::test(start_paused = true)]
async fn n5_a_job_says_that_it_is_done_while_clones_of_it_live_on() {
    let recorder = Recorder::new();
    let op = begun("job", ms(100), &recorder);
    let (work, mut dropped) = endless();
    let (clone, task) = (op.clone(), op.spawn("slow", work));
    settle().await;
    assert!(op.finish());
    assert_eq!(recorder.ends_of("job"), [None], "told at once");
    assert!(task.await.is_err());
    assert!(was_dropped(&mut dropped), "it is needed no longer");
    assert!(clone.grant("more").remaining().is_err(), "nothing of it begins any more");
    assert!(!clone.finish(), "it was said before");
    drop((op, clone));
    assert_eq!(recorder.ends_of("job"), [None], "told once");
}

#[tokio::test(start_paused = true)]
async fn x4_what_ended_early_is_not_done_because_somebody_says_so() {
    let recorder = Recorder::new();
    let (late, left) = (begun("late", ms(100), &recorder), begun("left", ms(900), &recorder));
    left.call_off();
    tokio::time::advance(ms(100)).await;
    assert!(!late.finish() && !left.finish());
    assert_eq!(recorder.ends_of("late"), [Some(Cause::Deadline)]);
    assert_eq!(recorder.ends_of("left"), [Some(Cause::CalledOff)]);
}

/// A handler that has its answer is not the end of its request: the answer is still to be written.
#[test]
#[cfg(debug_assertions)]
fn a_request_and_a_part_are_not_for_their_work_to_finish() {
    let recorder = Recorder::new();
    let driver = request("order", ms(60_000), &recorder);
    let part = driver.operation().grant("part").operation().unwrap();
    for op in [driver.operation(), &part] {
        let finished = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| op.finish()));
        assert!(finished.is_err());
        assert!(op.grant("more").remaining().is_ok(), "it goes on");
    }
}
