//! A destination's health as its callers see it: what is held back, what that is decided by, and that every way in which a call
//! can end is told. Contract R8 to R10, N1.

#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of a test are a test")]

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use oneclock::events::{AnswerHead, CallBegan, Counting, Event, Observer, Slot};
use oneclock::{HeldBack, NotBegun, Operation, Stopped, WhyNot, clock};
use oneclock_core::breaker::{Asked, Breaker, BreakerPolicy};
use oneclock_core::retry::RetryPolicy;
use oneclock_core::throttle::Told;
use oneclock_core::{Outcome, Reason, Tick, Trust};
use oneclock_http::{BoxError, CallError, Destination, DestinationBuilder, EgressLayer, RetryLayer, collect};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const AMPLE: Duration = Duration::from_secs(1);

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

fn full(status: u16) -> Response<Body> {
    let response = Response::builder().status(status).body(Full::<Bytes>::default().boxed());
    response.expect("a response")
}

/// What a far side does with a call.
#[derive(Clone, Copy, Debug)]
enum Does {
    Answers(u16),
    /// After this time.
    Needs(Duration),
    /// Says with its head, or behind it, that the call has this status of gRPC.
    Grpc(&'static str, bool),
    Fails,
    NeverAnswers,
}

impl Does {
    async fn it(self) -> Result<Response<Body>, BoxError> {
        match self {
            Self::Answers(status) => Ok(full(status)),
            Self::Needs(time) => {
                tokio::time::sleep(time).await;
                Ok(full(200))
            }
            Self::Grpc(status, with_the_head) => {
                let mut fields = HeaderMap::new();
                fields.insert("grpc-status", status.parse()?);
                let message = Ok(Frame::data(Bytes::from_static(b"\0\0\0\0\0")));
                let mut response = if with_the_head {
                    let mut response = full(200);
                    response.headers_mut().extend(fields);
                    response
                } else {
                    let frames = [message, Ok(Frame::trailers(fields))];
                    Response::new(BodyExt::boxed(StreamBody::new(futures_util::stream::iter(frames))))
                };
                response.headers_mut().insert("content-type", "application/grpc".parse()?);
                Ok(response)
            }
            Self::Fails => Err("it broke".into()),
            Self::NeverAnswers => pending().await,
        }
    }
}

/// One call of an operation with this budget, read to its end.
async fn call(destination: &Destination, budget: Duration, does: Does) -> Result<u16, CallError> {
    call_of(Operation::begin("order", budget), destination, does).await
}

async fn call_of(op: Operation, destination: &Destination, does: Does) -> Result<u16, CallError> {
    let service = EgressLayer::new(destination.clone()).layer(service_fn(move |_: Request<()>| does.it()));
    let answer = op.scope(service.oneshot(Request::new(()))).await?;
    let status = answer.status().as_u16();
    let _ = collect(answer.into_body(), 1024).await;
    Ok(status)
}

fn held_back(error: &CallError) -> Option<HeldBack> {
    match error.stopped() {
        Some(Stopped::NotBegun(NotBegun { why: WhyNot::HeldBack(held_back), .. })) => Some(*held_back),
        _ => None,
    }
}

fn destination() -> DestinationBuilder {
    Destination::named("inventory").cap(ms(300))
}

/// With some history: it usually answers after 50 ms.
async fn used_to_50_ms(builder: DestinationBuilder) -> Destination {
    let destination = builder.build().expect("a destination");
    for _ in 0..40 {
        call(&destination, AMPLE, Does::Needs(ms(50))).await.expect("an answer");
    }
    destination
}

/// `calls` that all come to this.
async fn calls(destination: &Destination, calls: usize, budget: Duration, does: Does) -> usize {
    let mut made = 0;
    for _ in 0..calls {
        let result = call(destination, budget, does).await;
        made += usize::from(!result.is_err_and(|error| held_back(&error).is_some()));
    }
    made
}

/// The far side can do 20 a second, and 200 a second come.
#[tokio::test(start_paused = true)]
async fn a_far_side_that_refuses_gets_twice_what_it_accepts() {
    for throttled in [true, false] {
        let builder = destination();
        let destination = if throttled { builder } else { builder.unthrottled() }.build().expect("a destination");
        let (asked, accepted) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
        let in_this_second = Arc::new(Mutex::new((Tick::default(), 0)));
        let service = EgressLayer::new(destination.clone()).layer(service_fn(move |_: Request<()>| {
            asked.fetch_add(1, Ordering::Relaxed);
            let mut second = in_this_second.lock().expect("no panic");
            if clock::now().since(second.0) >= ms(1_000) {
                *second = (clock::now(), 0);
            }
            second.1 += 1;
            let status = if second.1 <= 20 { 200 } else { 503 };
            async move { Ok::<_, Infallible>(full(status)) }
        }));
        let (mut reached, mut held) = (0, 0);
        for n in 0..200 * 90 {
            let op = Operation::begin("order", AMPLE);
            let counts = n >= 200 * 60;
            match op.scope(service.clone().oneshot(Request::new(()))).await {
                Ok(answer) if counts => {
                    reached += 1;
                    accepted.fetch_add(u64::from(answer.status() == 200), Ordering::Relaxed);
                }
                Err(error) if counts => {
                    assert!(matches!(held_back(&error), Some(HeldBack::Throttled(_))), "{error}");
                    assert_eq!((error.outcome(), error.reason()), (Outcome::NotSent, Some(Reason::Shed)));
                    held += 1;
                }
                _ => {}
            }
            tokio::time::sleep(ms(5)).await;
        }
        let accepted = accepted.into_inner();
        let multiple = f64::from(reached) / accepted as f64;
        assert!(accepted > 500, "it can do 600: {accepted}");
        if throttled {
            assert!((1.6..2.6).contains(&multiple), "{reached} reached it, {accepted} were accepted, {held} held back");
        } else {
            assert!(multiple > 8.0 && held == 0, "{multiple}");
        }
    }
}

/// Whoever observes a call hears how it went, also where that stands in the trailers.
#[tokio::test(start_paused = true)]
async fn an_observer_hears_the_status_of_the_trailers() {
    #[derive(Default)]
    struct Heard(Mutex<Vec<(u16, Option<String>)>>);
    impl Observer for Heard {
        fn on(&self, _: &Event<'_>) {}

        fn begun(&self, _: &CallBegan<'_>) -> Slot {
            Slot::of(())
        }

        fn answered(&self, _: &Slot, answer: &AnswerHead<'_>) {
            let status = answer.fields.get("grpc-status").map(str::to_owned);
            self.0.lock().expect("no panic").push((answer.status, status));
        }
    }

    for (does, want) in [
        (Does::Grpc("14", false), vec![None, Some("14")]),
        (Does::Grpc("0", false), vec![None, Some("0")]),
        (Does::Grpc("14", true), vec![Some("14")]),
        (Does::Answers(200), vec![None]),
    ] {
        let (destination, heard) = (destination().build().expect("a destination"), Arc::new(Heard::default()));
        let op = Operation::begin("order", AMPLE).observed_by(heard.clone());
        call_of(op, &destination, does).await.expect("an answer");
        let want: Vec<_> = want.into_iter().map(|status| (200, status.map(str::to_owned))).collect();
        assert_eq!(*heard.0.lock().expect("no panic"), want, "{does:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_refusal_for_load_is() {
    for (does, is_one) in [
        (Does::Answers(503), true),
        (Does::Answers(429), true),
        (Does::Grpc("14", true), true),
        (Does::Grpc("14", false), true),
        (Does::Grpc("8", false), true),
        (Does::Answers(404), false),
        (Does::Answers(500), false),
        (Does::Grpc("13", true), false),
        (Does::Grpc("0", false), false),
    ] {
        let destination = destination().build().expect("a destination");
        let made = calls(&destination, 200, AMPLE, does).await;
        assert_eq!(made < 100, is_one, "{does:?}: {made} of 200 calls were made");
        assert_eq!(destination.health().is_well(), !is_one, "{does:?}");
    }
}

/// Half of the callers have 20 ms and the destination needs 50. A breaker that counts what those give up opens, and refuses
/// the others; ours does not. Then the destination is silent for everybody.
#[tokio::test(start_paused = true)]
async fn callers_in_a_hurry_open_a_naive_breaker_only() {
    let destination = used_to_50_ms(destination().breaker(BreakerPolicy::default())).await;
    let naive = Breaker::new(BreakerPolicy::default());
    let mut refused_by_the_naive = 0;
    for n in 0..200 {
        let result = call(&destination, if n % 2 == 0 { ms(20) } else { AMPLE }, Does::Needs(ms(50))).await;
        assert_eq!(result.is_ok(), n % 2 == 1);
        assert!(result.as_ref().err().and_then(held_back).is_none());
        match naive.ask(clock::now()) {
            Asked::Pass(pass) => {
                let told = if result.is_ok() { Told::Well } else { Told::TimedOut };
                let _ = naive.end(pass, told, 0, clock::now());
            }
            Asked::Open { .. } => refused_by_the_naive += 1,
        }
    }
    assert!(refused_by_the_naive > 100, "{refused_by_the_naive}");
    assert!(!destination.health().is_broken() && destination.health().throttled() <= 0.0);

    let made = calls(&destination, 400, ms(200), Does::NeverAnswers).await;
    assert!(destination.health().is_broken(), "200 ms are four times what it usually needs");
    assert!(made < 300, "{made}");
}

/// Nobody has ever had an answer, and all are in a hurry.
#[tokio::test(start_paused = true)]
async fn a_far_side_that_answers_nobody_is_throttled() {
    let destination = destination().build().expect("a destination");
    let made = calls(&destination, 1_000, ms(20), Does::NeverAnswers).await;
    assert!(made < 300, "{made} of 1000");
}

/// The same for a breaker, also where no cap says how much time is enough.
#[tokio::test(start_paused = true)]
async fn a_far_side_that_answers_nobody_opens_a_breaker() {
    let builder = Destination::named("inventory").unthrottled().breaker(BreakerPolicy::default());
    let destination = builder.build().expect("a destination");
    let made = calls(&destination, 1_000, ms(20), Does::NeverAnswers).await;
    assert!(destination.health().is_broken() && made < 60, "{made} of 1000");
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_dropped_are_told() {
    let destination = used_to_50_ms(destination().breaker(BreakerPolicy::default())).await;
    for waits in [ms(20), ms(100)] {
        for _ in 0..60 {
            let _ = tokio::time::timeout(waits, call(&destination, AMPLE, Does::NeverAnswers)).await;
        }
        assert_eq!(destination.health().is_broken(), waits > ms(50), "their callers left after {waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cut_off_or_left_is_no_failure() {
    let destination = used_to_50_ms(destination().breaker(BreakerPolicy::default())).await;
    let body = || {
        let message = futures_util::stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"\0\0\0\0\0")))]);
        BodyExt::boxed(StreamBody::new(futures_util::StreamExt::chain(message, futures_util::stream::pending())))
    };
    let service = EgressLayer::new(destination.clone()).layer(service_fn(move |_: Request<()>| async move {
        let response = Response::builder().header("content-type", "application/grpc").body(body());
        Ok::<_, Infallible>(response.expect("a response"))
    }));
    for n in 0..100 {
        let op = Operation::begin("watch", AMPLE);
        let answer = op.scope(service.clone().oneshot(Request::new(()))).await.expect("a head");
        if n % 2 == 0 {
            let _ = collect(answer.into_body(), 1024).await; // until its deadline
        }
    }
    assert!(!destination.health().is_broken() && destination.health().is_well());
}

/// What is held back is final: no attempt follows, and no head of ours says anything else than why.
#[tokio::test(start_paused = true)]
async fn r9_a_call_that_is_held_back_is_not_tried_again() {
    let policy = RetryPolicy::new().attempts(3).backoff(ms(1), ms(1)).build().expect("a policy");
    let destination = destination().retry(policy).breaker(BreakerPolicy::default()).build().expect("a destination");
    calls(&destination, 40, AMPLE, Does::Fails).await;
    assert!(destination.health().is_broken());
    let service = ServiceBuilder::new()
        .layer(RetryLayer::new(destination.clone()))
        .layer(EgressLayer::new(destination.clone()))
        .service_fn(|_| Does::Answers(200).it());
    let counting = Arc::new(Counting::default());
    let op = Operation::begin("order", AMPLE).observed_by(counting.clone());
    let request = || Request::get("/").body(Full::<Bytes>::default()).expect("a request");
    let error = op.scope(service.clone().oneshot(request())).await.expect_err("held back");
    assert_eq!((error.outcome(), error.reason()), (Outcome::NotSent, Some(Reason::Shed)));
    assert!(
        error.to_string().contains("inventory not begun: too many calls to it failed: its breaker is open"),
        "{error}"
    );
    assert_eq!((counting.count("not called shed"), counting.count("retried")), (1, 0));
    assert_eq!((counting.count("gave up held_back"), counting.sum("called ")), (1, 0));
    assert_eq!(op.gave_up_after(), Some(1), "so that callers do not try again either");

    destination.health().switch_off();
    assert_eq!(op.scope(service.oneshot(request())).await.expect("an answer").status(), 200, "at run time");
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_closes_after_its_probes() {
    let destination = destination().unthrottled().breaker(BreakerPolicy::default()).build().expect("a destination");
    let counting = Arc::new(Counting::default());
    let calls = async |calls: usize, does| {
        let mut made = 0;
        for _ in 0..calls {
            let op = Operation::begin("order", AMPLE).observed_by(counting.clone());
            made += usize::from(!call_of(op, &destination, does).await.is_err_and(|error| held_back(&error).is_some()));
        }
        made
    };
    let told = || ["opened", "half_open", "closed"].map(|change| counting.count(&format!("breaker {change}")));
    calls(40, Does::Fails).await;
    assert_eq!(calls(10, Does::Answers(200)).await, 0);
    assert_eq!(told(), [1, 0, 0]);
    tokio::time::sleep(ms(1_100)).await;
    assert_eq!(calls(10, Does::Answers(200)).await, 10);
    assert!(!destination.health().is_broken());
    assert_eq!(told(), [1, 3, 1]);
}

/// One of ours says that it would not be done in time. With as much time as it usually needs that is load; with less it is its
/// caller's haste.
#[tokio::test(start_paused = true)]
async fn a_doomed_call_is_load_if_its_time_is_usually_enough() {
    for (budget, is_load) in [(ms(200), true), (ms(30), false)] {
        let destination = used_to_50_ms(destination().trust(Trust::Inside)).await;
        let service = EgressLayer::new(destination.clone()).layer(service_fn(|_: Request<()>| async {
            let mut response = full(504);
            response.headers_mut().insert("oneclock-reason", "insufficient_budget".parse()?);
            Ok::<_, BoxError>(response)
        }));
        for _ in 0..200 {
            let op = Operation::begin("order", budget);
            let _ = op.scope(service.clone().oneshot(Request::new(()))).await;
        }
        assert_eq!(destination.health().throttled() > 0.0, is_load, "{budget:?}");
    }
}
