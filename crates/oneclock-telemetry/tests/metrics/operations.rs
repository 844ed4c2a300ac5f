//! Requests, streams and what our own code begins: one each, under the cause that it had, cancelled ones too.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Empty, StreamBody};
use oneclock::Operation;
use oneclock_core::{Ask, Name, Policy, Reason};
use oneclock_http::{IngressLayer, Problem, Route, Upload};
use oneclock_telemetry::names::*;
use tower::{Layer as _, Service as _, service_fn};

use crate::support::{Counted, answer, get, handler, ingress, ms, poll_once, send};

#[tokio::test(start_paused = true)]
async fn a_request_that_is_done_is_one() {
    let counted = Counted::new();
    assert_eq!(send(&counted, &[("x-remaining-ms", "80")], || async { answer() }).await, 200);
    let seen = counted.seen();
    assert_eq!(seen.of(&OPERATIONS, &["order", "/orders", "none"]), 1.0);
    assert_eq!(seen.of(&OPERATION_SECONDS, &["order", "/orders", "none"]), 1.0);
    assert_eq!(seen.of(&BUDGET_AT_ARRIVAL, &["order", "/orders", "caller"]), 1.0);
    for metric in [OPERATIONS, OPERATION_SECONDS, BUDGET_AT_ARRIVAL] {
        assert_eq!(seen.sum(&metric), 1.0, "{}", metric.name);
    }
    for metric in [MISSING, CLAMPED, MALFORMED, EXPIRED, ANSWERED, DEADLINE_EXCEEDED, CANCELLED, CANCELLATIONS, LATE] {
        assert_eq!(seen.sum(&metric), 0.0, "{}", metric.name);
    }
}

/// Contract N1. A count behind the handler's `.await` sees nothing of it.
#[tokio::test(start_paused = true)]
async fn n1_a_handler_that_is_dropped_is_counted() {
    let counted = Counted::new();
    let naive = Arc::new(AtomicU32::new(0));
    let mut service = ingress(&counted).layer(handler({
        let naive = Arc::clone(&naive);
        move || {
            let naive = Arc::clone(&naive);
            async move {
                pending::<()>().await;
                naive.fetch_add(1, Ordering::Relaxed);
                answer()
            }
        }
    }));
    let mut request = Box::pin(service.call(get(&[])));
    assert!(poll_once(&mut request).is_pending());
    tokio::time::advance(ms(30)).await;
    drop(request);

    let seen = counted.seen();
    assert_eq!(naive.load(Ordering::Relaxed), 0, "what a naive count has");
    assert_eq!(seen.of(&OPERATIONS, &["order", "/orders", "caller_gone"]), 1.0);
    assert_eq!(seen.of(&CANCELLED, &["order", "/orders", "caller_gone", "work"]), 1.0);
    assert_eq!(seen.of(&CANCELLATIONS, &["handler"]), 1.0);
    assert_eq!(seen.of(&OPERATION_SECONDS, &["order", "/orders", "caller_gone"]), 1.0);
    assert_eq!(seen.of(&MISSING, &["order", "/orders"]), 1.0);
    assert_eq!(seen.of(&BUDGET_AT_ARRIVAL, &["order", "/orders", "absent"]), 1.0);
    assert_eq!(seen.sum(&OPERATIONS), 1.0);
    assert_eq!(seen.sum(&DEADLINE_EXCEEDED), 0.0);
    assert_eq!(seen.sum(&ANSWERED), 0.0, "nobody was there to be told");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_says_its_bound_and_its_stage() {
    let counted = Counted::new();
    assert_eq!(send(&counted, &[], || async { pending().await }).await, 504);
    let seen = counted.seen();
    assert_eq!(seen.of(&DEADLINE_EXCEEDED, &["order", "/orders", "absent", "work"]), 1.0);
    assert_eq!(seen.of(&OPERATIONS, &["order", "/orders", "deadline"]), 1.0);
    assert_eq!(seen.of(&ANSWERED, &["order", "/orders", "deadline"]), 1.0);
    assert_eq!(seen.of(&CANCELLATIONS, &["handler"]), 1.0);
    assert_eq!(seen.sum(&CANCELLED), 0.0);
    assert_eq!(seen.sum(&OPERATIONS), 1.0);
}

/// Its work was done in time to say that its part was not: no early end, and yet its answer is counted.
#[tokio::test(start_paused = true)]
async fn a_handler_that_answers_out_of_time_is_told_apart_by_its_answer() {
    let counted = Counted::new();
    let work = || async {
        let mut answer = answer();
        answer.extensions_mut().insert(Problem::new(Reason::Deadline));
        answer
    };
    assert_eq!(send(&counted, &[], work).await, 504);
    let seen = counted.seen();
    assert_eq!(seen.of(&OPERATIONS, &["order", "/orders", "none"]), 1.0);
    assert_eq!(seen.of(&ANSWERED, &["order", "/orders", "deadline"]), 1.0);
    assert_eq!(seen.of(&CANCELLATIONS, &["handler"]), 1.0);
    assert_eq!(seen.sum(&DEADLINE_EXCEEDED), 0.0);
}

/// Answers with a head and the first half of a body, of which there never comes more.
async fn half_a_body(
    _: Request<Upload<Empty<Bytes>>>,
) -> Result<Response<impl Body<Data = Bytes, Error = Infallible> + Unpin + Send>, Infallible> {
    let first = Ok(Frame::data(Bytes::from_static(b"half")));
    let frames = futures_util::stream::iter([first]).chain(futures_util::stream::pending());
    Ok(Response::new(StreamBody::new(Box::pin(frames))))
}

/// The head was out, and half the body: a count of statuses has a 200 for it.
#[tokio::test(start_paused = true)]
async fn a_body_that_is_cut_mid_stream_is_counted_as_such() {
    let counted = Counted::new();
    let mut service = ingress(&counted).layer(service_fn(half_a_body));
    let answer = service.call(get(&[])).await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    assert_eq!(counted.seen().sum(&OPERATIONS), 0.0, "it is not over with its head");
    assert!(body.frame().await.unwrap().is_err(), "visibly not whole");
    drop(body);
    let seen = counted.seen();
    assert_eq!(seen.of(&OPERATIONS, &["order", "/orders", "deadline"]), 1.0);
    assert_eq!(seen.of(&DEADLINE_EXCEEDED, &["order", "/orders", "absent", "body"]), 1.0);
    assert_eq!(seen.sum(&OPERATIONS), 1.0);
}

/// The budget covered the head; the stream behind it is an operation of its own, with an end of its own.
#[tokio::test(start_paused = true)]
async fn a_declared_stream_is_one_beside_its_request() {
    let counted = Counted::new();
    let policy = Policy::named("order").route("/events", |limits| limits.streaming(ms(9_000), ms(50))).build().unwrap();
    let layer = IngressLayer::new(policy).route_by(|_, _| Some(Route::Pattern("/events")));
    let mut service = layer.observed_by(counted.observer()).layer(service_fn(half_a_body));
    let mut body = service.call(get(&[])).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    assert_eq!(counted.seen().of(&OPERATIONS, &["order", "/events", "none"]), 1.0);
    assert!(body.frame().await.unwrap().is_err(), "its longest life is over");
    drop(body);
    let seen = counted.seen();
    assert_eq!(seen.of(&OPERATIONS, &["order", "/events", "none"]), 1.0);
    assert_eq!(seen.of(&OPERATIONS, &["order", "/events", "deadline"]), 1.0);
    assert_eq!(seen.sum(&BUDGET_AT_ARRIVAL), 1.0, "one arrived");
    assert_eq!(seen.sum(&OPERATIONS), 2.0);
}

/// The same where the caller leaves.
#[tokio::test(start_paused = true)]
async fn a_body_that_its_reader_drops_is_counted_as_such() {
    let counted = Counted::new();
    let mut service = ingress(&counted).layer(service_fn(half_a_body));
    let mut body = service.call(get(&[])).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    drop(body);
    let seen = counted.seen();
    assert_eq!(seen.of(&OPERATIONS, &["order", "/orders", "caller_gone"]), 1.0);
    assert_eq!(seen.of(&CANCELLED, &["order", "/orders", "caller_gone", "body"]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_no_operation_and_is_counted_where_it_was_found() {
    let counted = Counted::new();
    assert_eq!(send(&counted, &[("x-remaining-ms", "0")], || async { answer() }).await, 504);
    assert_eq!(send(&counted, &[("x-remaining-ms", "3")], || async { answer() }).await, 504);
    assert_eq!(send(&counted, &[("x-remaining-ms", "soon")], || async { answer() }).await, 400);
    let long_ago = [("x-request-deadline", "2001-01-01T00:00:00Z")];
    assert_eq!(send(&counted, &long_ago, || async { answer() }).await, 504);
    let seen = counted.seen();
    assert_eq!(seen.of(&ANSWERED, &["order", "/orders", "expired_before_start"]), 2.0);
    assert_eq!(seen.of(&ANSWERED, &["order", "/orders", "insufficient_budget"]), 1.0);
    assert_eq!(seen.of(&ANSWERED, &["order", "/orders", "malformed_deadline"]), 1.0);
    assert_eq!(seen.of(&EXPIRED, &["order", "/orders", "arrival"]), 3.0);
    assert_eq!(seen.of(&MALFORMED, &["order", "/orders"]), 1.0);
    assert_eq!(seen.of(&SKEW_SUSPECTED, &["order", "/orders"]), 1.0);
    for metric in [OPERATIONS, OPERATION_SECONDS, BUDGET_AT_ARRIVAL] {
        assert_eq!(seen.sum(&metric), 0.0, "{}", metric.name);
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_the_ceiling_is_clamped() {
    let counted = Counted::new();
    assert_eq!(send(&counted, &[("x-remaining-ms", "60000")], || async { answer() }).await, 200);
    let seen = counted.seen();
    assert_eq!(seen.of(&CLAMPED, &["order", "/orders"]), 1.0);
    assert_eq!(seen.of(&BUDGET_AT_ARRIVAL, &["order", "/orders", "ceiling"]), 1.0);
    assert_eq!(seen.sum(&MISSING), 0.0);
}

/// It waited for its turn until its time was up: not begun, found in the queue.
#[tokio::test(start_paused = true)]
async fn work_that_expires_in_a_queue_was_not_begun() {
    let counted = Counted::new();
    let turns = Arc::new(tokio::sync::Semaphore::new(0));
    let limited = tower::limit::ConcurrencyLimit::with_semaphore(handler(|| async { answer() }), turns);
    let mut service = ingress(&counted).layer(limited);
    assert_eq!(service.call(get(&[])).await.unwrap().status(), 504);
    let seen = counted.seen();
    assert_eq!(seen.of(&EXPIRED, &["order", "/orders", "queue"]), 1.0);
    assert_eq!(seen.of(&DEADLINE_EXCEEDED, &["order", "/orders", "absent", "queue"]), 1.0);
    assert_eq!(seen.of(&ANSWERED, &["order", "/orders", "expired_before_start"]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn parts_of_an_operation_are_not_operations_beside_it() {
    let counted = Counted::new();
    let job = counted.begin("reconcile", ms(1_000));
    job.run(async {
        let op = Operation::current().unwrap();
        op.grant("part").ask(Ask::new()).run(|_| async {}).await.unwrap();
        op.spawn("task", async {}).await.unwrap();
        op.must_finish("charge", ms(500), async { Ok::<_, std::io::Error>(()) }).await.unwrap();
    })
    .await
    .unwrap();
    drop(job.detach("mail", ms(500), "the receipt goes out"));
    drop(job);
    let seen = counted.seen();
    assert_eq!(seen.of(&OPERATIONS, &["reconcile", "none", "none"]), 1.0);
    assert_eq!(seen.of(&OPERATIONS, &["mail", "none", "none"]), 1.0);
    assert_eq!(seen.of(&DETACHED, &["reconcile"]), 1.0);
    assert_eq!(seen.sum(&OPERATIONS), 2.0);
}

#[tokio::test(start_paused = true)]
async fn late_panicked_and_keyed() {
    let counted = Counted::new();
    let job = counted.begin("reconcile", ms(100));
    job.spawn("task", async { panic!("on purpose") }).await.unwrap_err();
    let (give, given) = tokio::sync::oneshot::channel();
    let mut running = Box::pin(job.run(given));
    assert!(poll_once(&mut running).is_pending());
    give.send(7).unwrap();
    tokio::time::advance(ms(130)).await; // both are ready now: what is there is delivered (contract X1)
    assert!(matches!(poll_once(&mut running), Poll::Ready(Ok(Ok(7)))));
    drop(running);
    drop(job);
    let keyed =
        oneclock::events::Event::Keyed { route: &Name::literal("/orders"), what: oneclock::events::Keyed::Replayed };
    oneclock::events::Observer::on(&counted.metrics, &keyed);
    let seen = counted.seen();
    assert_eq!(seen.sum(&LATE), 0.0, "nobody was answered: only an event tells of it");
    assert_eq!(seen.of(&PANICKED, &["reconcile"]), 1.0);
    assert_eq!(seen.of(&KEYED, &["/orders", "replayed"]), 1.0);
}

#[tokio::test(start_paused = true)]
async fn only_what_answered_a_request_is_a_late_answer() {
    let counted = Counted::new();
    let given = Arc::new(tokio::sync::Notify::new());
    let mut service = ingress(&counted).layer(handler({
        let given = Arc::clone(&given);
        move || {
            let given = Arc::clone(&given);
            async move {
                given.notified().await;
                let op = Operation::current().unwrap();
                op.tell_if_late(op.deadline()); // as the driver of a call does
                answer()
            }
        }
    }));
    let mut request = Box::pin(service.call(get(&[])));
    assert!(poll_once(request.as_mut()).is_pending());
    given.notify_one();
    tokio::time::advance(ms(130)).await; // both are ready now
    let Poll::Ready(Ok(answer)) = poll_once(request.as_mut()) else { panic!("it is there") };
    assert_eq!(answer.status(), 200);
    let seen = counted.seen();
    assert_eq!((seen.of(&LATE, &["order", "/orders"]), seen.sum(&LATE)), (1.0, 1.0), "the step is none");
}
