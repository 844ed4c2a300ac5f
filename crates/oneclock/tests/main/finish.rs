//! Outliving a parent: steps that must finish, and detached operations. Contract N2, N4, N5, X6, V11.

use std::io;
use std::pin::pin;

use oneclock::events::RanOn;
use oneclock::{Operation, Shutdown, Unfinished, clock};
use oneclock_core::{Cause, Outcome, Reason};
use tokio::sync::oneshot;

use crate::support::{Recorder, Told, begun, cause, ms, request_under, settle};

/// A step that takes `time`, and the news that it came to its end.
pub(crate) fn step(
    time: u64,
) -> (impl Future<Output = Result<u32, io::Error>> + Send + 'static, oneshot::Receiver<()>) {
    let (done, is_done) = oneshot::channel();
    let work = async move {
        tokio::time::sleep(ms(time)).await;
        let _ = done.send(()); // nobody may listen
        Ok(7)
    };
    (work, is_done)
}

#[tokio::test(start_paused = true)]
async fn n2_a_step_in_time_gives_its_result_and_its_own_error() {
    let recorder = Recorder::new();
    let op = begun("order", ms(800), &recorder);
    let (work, _) = step(100);
    assert_eq!(op.must_finish("charge", ms(5_000), work).await.unwrap(), 7);
    let error = op.must_finish("charge", ms(5_000), async { Err::<(), _>(io::Error::other("declined")) }).await;
    let error = error.unwrap_err();
    assert!(matches!(&error, Unfinished::Failed(error) if error.to_string() == "declined"));
    assert_eq!(error.outcome(), None, "its own error says it");
    assert_eq!(recorder.ran_on(), [], "nothing outlived anything");
    assert_eq!(recorder.ends_of("charge"), [None, None]);
    assert_eq!(op.ledger().entries().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn n2_i14_past_the_deadline_the_wait_ends_and_the_step_goes_on_and_is_counted() {
    let recorder = Recorder::new();
    let shutdown = Shutdown::new();
    let driver = request_under("order", ms(100), &recorder, Some(&shutdown));
    let (work, done) = step(300);
    let began = clock::now();
    let error = driver.operation().must_finish("charge", ms(5_000), work).await.unwrap_err();
    assert_eq!(clock::now().since(began).as_millis(), 100);
    let text = "order → charge: the wait ended (out of time in stage work (bound: caller)) and the step goes on \
                under its own bound of 5s, outcome: unknown";
    assert_eq!(error.to_string(), text);
    assert!(matches!(error.outcome(), Some(Outcome::Unknown { .. })));
    assert_eq!(error.reason(), Reason::Deadline);
    drop(driver);
    done.await.unwrap();
    settle().await;
    assert_eq!(clock::now().since(began).as_millis(), 300);
    assert_eq!(recorder.ran_on().len(), 1);
    let (work, because, for_) = recorder.ran_on().remove(0);
    assert_eq!((work.as_str(), because, for_.as_millis()), ("charge", RanOn::MustFinish, 200));
    assert_eq!(recorder.ends_of("charge"), [None], "it was done");
    assert_eq!(shutdown.tasks(), 0);
}

/// N2: the naive way, a future that is merely awaited, is dropped with its caller.
#[tokio::test(start_paused = true)]
async fn n2_the_caller_leaves_and_the_step_goes_on_where_the_naive_way_is_cut() {
    let recorder = Recorder::new();
    let driver = request_under("order", ms(1_000), &recorder, Some(&Shutdown::new()));
    let (naive, naive_done) = step(300);
    let (work, done) = step(300);
    let began = clock::now();
    {
        let op = driver.operation().clone();
        let mut handler = pin!(op.run(async { tokio::join!(naive, op.must_finish("charge", ms(5_000), work)) }));
        assert!(futures_util::poll!(handler.as_mut()).is_pending());
        tokio::time::sleep(ms(50)).await;
    }
    drop(driver); // the caller left at 50 ms
    assert_eq!(recorder.ends_of("order"), [Some(Cause::CallerGone)]);
    assert!(naive_done.await.is_err(), "cut in the middle");
    done.await.unwrap();
    settle().await;
    assert_eq!(clock::now().since(began).as_millis(), 300);
    let (work, _, for_) = recorder.ran_on().remove(0);
    assert_eq!((work.as_str(), for_.as_millis()), ("charge", 250));
}

#[tokio::test(start_paused = true)]
async fn n2_the_step_ends_at_its_own_bound() {
    let recorder = Recorder::new();
    let op = begun("order", ms(5_000), &recorder);
    let (work, done) = step(4_000);
    let error = op.must_finish("charge", ms(200), work).await.unwrap_err();
    let Unfinished::CutOff(ended) = &error else { panic!("{error}") };
    assert_eq!(ended.to_string(), "charge: out of time in stage work (bound: cap) after 200ms of 200ms");
    assert!(matches!(error.outcome(), Some(Outcome::Unknown { .. })));
    assert_eq!(error.reason(), Reason::Cap);
    assert!(done.await.is_err());
    assert_eq!(recorder.ends_of("charge"), [Some(Cause::Deadline)]);
    assert_eq!(cause(&op), None);
}

#[tokio::test(start_paused = true)]
async fn n2_a_step_that_panics_says_so_whether_or_not_anybody_waits() {
    let recorder = Recorder::new();
    let shutdown = Shutdown::new();
    let op = begun("order", ms(5_000), &recorder).ended_by(&shutdown);
    let broken = async {
        tokio::time::sleep(ms(10)).await;
        if true {
            panic!("on purpose");
        }
        Ok::<_, io::Error>(())
    };
    let error = op.must_finish("charge", ms(200), broken).await.unwrap_err();
    assert!(matches!(error, Unfinished::Panicked { .. }));
    assert!(matches!(error.outcome(), Some(Outcome::Unknown { .. })));
    assert_eq!((recorder.panics(), recorder.ends_of("charge").len()), (1, 1));

    let broken = async {
        tokio::time::sleep(ms(10)).await;
        if true {
            panic!("on purpose");
        }
        Ok::<_, io::Error>(())
    };
    {
        let mut waiting = pin!(op.must_finish("abandoned", ms(200), broken));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    }
    shutdown.drain(ms(1_000)).await;
    let panicked = Told::Panicked { operation: "order".into(), work: "abandoned".into() };
    assert_eq!(recorder.count(|told| *told == panicked), 1, "told from a guard (contract N1)");
    assert_eq!(recorder.ends_of("abandoned").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn x6_a_step_is_not_begun_once_the_operation_has_ended() {
    let recorder = Recorder::new();
    let op = begun("order", ms(100), &recorder);
    op.end(Cause::CallerGone);
    let (work, done) = step(1);
    let error = op.must_finish("charge", ms(200), work).await.unwrap_err();
    assert!(matches!(error, Unfinished::NotBegun(_)));
    assert_eq!((error.outcome(), error.reason()), (Some(Outcome::NotSent), Reason::CallerGone));
    assert!(done.await.is_err());
    assert_eq!(recorder.told(), [Told::NotCalled { call: "charge".into(), reason: Reason::CallerGone }]);
}

#[tokio::test(start_paused = true)]
async fn n2_a_step_that_was_never_polled_was_not_begun() {
    let recorder = Recorder::new();
    let op = begun("order", ms(100), &recorder);
    let (work, done) = step(1);
    drop(op.must_finish("charge", ms(200), work));
    assert!(done.await.is_err());
    assert!(recorder.told().is_empty());
}

/// X1: the step is asked before the clock, so a result that is there is delivered, however late it is looked at.
#[tokio::test(start_paused = true)]
async fn x1_the_result_of_a_step_that_is_done_is_delivered_and_counted_late() {
    let recorder = Recorder::new();
    let op = begun("order", ms(100), &recorder);
    let (work, done) = step(50);
    let mut waiting = pin!(op.must_finish("charge", ms(5_000), work));
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    done.await.unwrap();
    settle().await;
    tokio::time::advance(ms(80)).await;
    assert_eq!(waiting.await.unwrap(), 7);
    assert_eq!(recorder.count(|told| matches!(told, Told::Late { by } if *by == ms(30))), 1);
}

// === Detach ===

#[tokio::test(start_paused = true)]
async fn v11_a_detached_operation_outlives_its_parent_and_ends_at_its_own_deadline() {
    let recorder = Recorder::new();
    let op = begun("order", ms(100), &recorder);
    let mail = op.detach("mail", ms(300), "the order is placed; the mail may be slow");
    let began = clock::now();
    let waiting = mail.spawn("send", std::future::pending::<()>());
    op.call_off();
    drop(op);
    assert_eq!(recorder.ends_of("order"), [Some(Cause::CalledOff)]);
    tokio::time::advance(ms(200)).await;
    assert_eq!(cause(&mail), None);
    assert!(waiting.await.is_err());
    assert_eq!(clock::now().since(began).as_millis(), 300);
    assert_eq!(cause(&mail), Some(Cause::Deadline));
    let detached = Told::Detached {
        from: "order".into(),
        operation: "mail".into(),
        reason: "the order is placed; the mail may be slow".into(),
    };
    assert_eq!(recorder.count(|told| *told == detached), 1);
}

#[tokio::test(start_paused = true)]
async fn x6_a_compensation_may_be_detached_after_the_end() {
    let op = Operation::begin("order", ms(100));
    op.call_off();
    let refund = op.detach("refund", ms(300), "the charge went through and the order did not");
    assert!(refund.run(async { 7 }).await.is_ok());
}
