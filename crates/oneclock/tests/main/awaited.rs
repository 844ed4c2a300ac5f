//! What waits inside the poll of whoever waits for the same end has no timer of its own, and no other way to be woken is lost.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use oneclock::{EndOf, Operation, clock};
use oneclock_core::Cause;
use tokio::time::timeout;

const BUDGET: Duration = Duration::from_millis(800);
const LONG: Duration = Duration::from_secs(60);

/// Polls its future only when that was woken, as `FuturesUnordered` does.
struct Apart<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
}

struct Bell {
    rang: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl<F> Apart<F> {
    fn new(future: F) -> Self {
        let bell = Arc::new(Bell { rang: AtomicBool::new(true), task: Mutex::new(None) });
        Self { future: Box::pin(future), bell }
    }
}

impl<F: Future> Future for Apart<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        *self.bell.task.lock().expect("no panic") = Some(cx.waker().clone());
        if !self.bell.rang.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let waker = Waker::from(Arc::clone(&self.bell));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rang.store(true, Ordering::Release);
        if let Some(task) = self.task.lock().expect("no panic").take() {
            task.wake();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn x1_work_hears_of_its_end_before_it_is_dropped() {
    let op = Operation::begin("order", BUDGET);
    let end = EndOf::new(op.clone());
    let ending = op.run(end).await.expect("the work was polled first");
    assert_eq!((ending.cause, ending.at), (Cause::Deadline, op.deadline().tick()));
}

#[tokio::test(start_paused = true)]
async fn what_is_polled_only_when_it_is_woken_itself_is_woken() {
    let op = Operation::begin("order", BUDGET);
    let end = Apart::new(EndOf::new(op.clone()));
    let ending = op.run(end).await.expect("the work was woken");
    assert_eq!(ending.cause, Cause::Deadline);
}

/// Waits for `op` once inside a run of it, and gives back what waits.
async fn begun_inside(op: &Operation) -> Pin<Box<EndOf>> {
    let mut end = Box::pin(EndOf::new(op.clone()));
    let begun = op.run(poll_fn(|cx| {
        assert!(end.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    }));
    begun.await.expect("there is time");
    end
}

#[tokio::test(start_paused = true)]
async fn what_began_to_wait_inside_waits_on_outside() {
    let op = Operation::begin("order", BUDGET);
    let ending = timeout(LONG, begun_inside(&op).await).await.expect("it has a timer now");
    assert_eq!((ending.cause, clock::now()), (Cause::Deadline, op.deadline().tick()));
}

#[tokio::test(start_paused = true)]
async fn what_began_to_wait_inside_hears_in_another_task_that_it_was_called_off() {
    let op = Operation::begin("order", LONG);
    let end = begun_inside(&op).await;
    let waiting = tokio::spawn(end);
    tokio::task::yield_now().await;
    let before = clock::now();
    op.call_off();
    let ending = timeout(LONG * 2, waiting).await.expect("it was woken").expect("no panic");
    assert_eq!((ending.cause, clock::now()), (Cause::CalledOff, before));
}

/// A grant that is shorter than its operation has a timer, wherever it waits.
#[tokio::test(start_paused = true)]
async fn a_shorter_limit_inside_is_kept() {
    let op = Operation::begin("order", LONG);
    let until = oneclock_core::Deadline::after(clock::now(), BUDGET);
    op.run(EndOf::or_at(op.clone(), until)).await.expect("by its own limit");
    assert_eq!(clock::now(), until.tick());
}
