//! The layers in memory, under paused time: what is decided, in which order, and what is left behind.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests: to panic is how a test fails

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use oneclock::events::{Counting, Event};
use oneclock::{Operation, clock};
use oneclock_core::ingress::OnMalformed;
use oneclock_core::{Policy, Trust};
use oneclock_http::{BoundedBody, BoxError, CallError, Destination, EgressLayer, IngressLayer, Route, Upload};
use tower::{Service, ServiceBuilder, ServiceExt};

type Text = Full<Bytes>;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn layer() -> IngressLayer {
    let policy = Policy::named("order").when_absent(ms(800)).ceiling(ms(2_000)).build().expect("limits that fit");
    IngressLayer::new(policy).trust(Trust::Inside)
}

fn asking(fields: &[(&str, &str)]) -> Request<Text> {
    let mut request = Request::get("/orders");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(Text::default()).expect("a request")
}

fn done(text: &'static str) -> Result<Response<Text>, Infallible> {
    Ok(Response::new(Text::from(text)))
}

fn reason<B>(response: &Response<B>) -> &str {
    response.headers().get("oneclock-reason").map_or("", |reason| reason.to_str().expect("ASCII"))
}

/// Counts a handler's starts, and that each was dropped or done.
#[derive(Clone, Default)]
struct Runs {
    started: Arc<AtomicUsize>,
    over: Arc<AtomicUsize>,
}

struct Running(Arc<AtomicUsize>);

impl Runs {
    fn start(&self) -> Running {
        self.started.fetch_add(1, Ordering::SeqCst);
        Running(Arc::clone(&self.over))
    }

    fn counts(&self) -> (usize, usize) {
        (self.started.load(Ordering::SeqCst), self.over.load(Ordering::SeqCst))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A body of prepared frames; `None` stands for one that never comes.
#[derive(Default)]
struct Frames(std::collections::VecDeque<(Duration, Bytes)>, Option<Pin<Box<tokio::time::Sleep>>>);

impl Frames {
    fn new(frames: impl IntoIterator<Item = (u64, &'static [u8])>) -> Self {
        Self(frames.into_iter().map(|(after, data)| (ms(after), Bytes::from_static(data))).collect(), None)
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some((after, _)) = self.0.front() else { return Poll::Ready(None) };
        let after = *after;
        let sleep = self.1.get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
        if sleep.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.1 = None;
        Poll::Ready(self.0.pop_front().map(|(_, data)| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

// === Arrival ===

#[tokio::test(start_paused = true)]
async fn i1_a_request_without_a_deadline_gets_one() {
    let service = ServiceBuilder::new().layer(layer()).service_fn(|_: Request<Upload<Text>>| async {
        std::future::pending::<()>().await;
        done("never")
    });
    let began = clock::now();
    let response = service.oneshot(asking(&[])).await.expect("infallible");
    assert_eq!(response.status(), 504);
    assert_eq!(clock::now().since(began), ms(800));
}

#[tokio::test(start_paused = true)]
async fn p4_an_expired_request_never_reaches_its_handler() {
    let runs = Runs::default();
    let handler = runs.clone();
    let counting = Arc::new(Counting::default());
    let service = ServiceBuilder::new().layer(layer().observed_by(counting.clone())).service_fn(
        move |_: Request<Upload<Text>>| {
            let running = handler.start();
            async move {
                drop(running);
                done("ran")
            }
        },
    );
    let baseline = oneclock::live_operations();
    for zero in [("grpc-timeout", "0S"), ("x-remaining-ms", "0"), ("x-request-deadline", "1999-01-01T00:00:00Z")] {
        let response = service.clone().oneshot(asking(&[zero])).await.expect("infallible");
        assert_eq!((response.status().as_u16(), reason(&response)), (504, "expired_before_start"), "{zero:?}");
    }
    assert_eq!(runs.counts(), (0, 0));
    assert_eq!(counting.count("refused expired_before_start"), 3);
    assert_eq!(oneclock::live_operations(), baseline);
}

#[tokio::test(start_paused = true)]
async fn p3_malformed_is_400_or_the_default_and_never_unlimited() {
    let sleepy = |_: Request<Upload<Text>>| async {
        tokio::time::sleep(ms(60_000)).await;
        done("late")
    };
    let strict = ServiceBuilder::new().layer(layer()).service_fn(sleepy);
    let response = strict.oneshot(asking(&[("x-remaining-ms", "+5")])).await.expect("infallible");
    assert_eq!((response.status().as_u16(), reason(&response)), (400, "malformed_deadline"));
    let text = response.into_body().collect().await.expect("whole").to_bytes();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("malformed x-remaining-ms") && !text.contains("+5"), "{text}");

    let policy = Policy::named("order").when_absent(ms(800)).on_malformed(OnMalformed::Clamp).build().expect("fits");
    let clamping = ServiceBuilder::new().layer(IngressLayer::new(policy)).service_fn(sleepy);
    let began = clock::now();
    let response = clamping.oneshot(asking(&[("x-remaining-ms", "+5")])).await.expect("infallible");
    assert_eq!(response.status(), 504);
    assert_eq!(clock::now().since(began), ms(800));
}

#[tokio::test(start_paused = true)]
async fn c3_fields_of_outsiders_are_read_for_shortening_then_stripped() {
    let policy = Policy::named("order").when_absent(ms(800)).build().expect("fits");
    let service =
        ServiceBuilder::new().layer(IngressLayer::new(policy)).service_fn(|request: Request<Upload<Text>>| {
            let stripped = !request.headers().contains_key("x-remaining-ms");
            let left = oneclock::remaining().expect("in scope");
            async move {
                assert!(stripped);
                Ok::<_, Infallible>(Response::new(Text::from(left.as_millis().to_string())))
            }
        });
    for (asked, got) in [("300", "300"), ("5000", "800")] {
        let response = service.clone().oneshot(asking(&[("x-remaining-ms", asked)])).await.expect("infallible");
        assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), got);
    }
}

/// C3: what outsiders say of deadlines, attempts and hedges goes no further, known to this listener or not.
#[tokio::test(start_paused = true)]
async fn c3_nothing_that_outsiders_say_of_time_or_retries_reaches_the_handler() {
    const SAID: [(&str, &str); 8] = [
        ("l5d-timeout", "1d"),
        ("expect-within", "3600"),
        ("x-envoy-upstream-rq-timeout-ms", "0"),
        ("x-envoy-max-retries", "50"),
        ("x-envoy-hedge-on-per-try-timeout", "true"),
        ("grpc-previous-rpc-attempts", "0"),
        ("x-remaining-ms", "700"),
        ("accept", "*/*"),
    ];
    let policy = Policy::named("order").when_absent(ms(800)).build().expect("fits");
    let service =
        ServiceBuilder::new().layer(IngressLayer::new(policy)).service_fn(|request: Request<Upload<Text>>| {
            let names: Vec<_> = request.headers().keys().map(|name| name.as_str().to_owned()).collect();
            async move { Ok::<_, Infallible>(Response::new(Text::from(names.join(" ")))) }
        });
    let response = service.oneshot(asking(&SAID)).await.expect("infallible");
    assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "accept");
}

/// E7: a field that only this listener knows is not forwarded unreduced, by whichever way out.
#[tokio::test(start_paused = true)]
async fn e7_a_declared_field_is_not_passed_on_as_it_came() {
    use oneclock_core::wire::{Convention, Conventions, Declared};
    let declared = Convention::declared("x-deadline-seconds", Declared::RemainingSeconds).expect("a field name");
    let reads = Conventions::default_set().with(declared).expect("no such field yet");
    let service = ServiceBuilder::new().layer(layer().reads(reads)).service_fn(|request: Request<Upload<Text>>| {
        let stale = request.headers().contains_key("x-deadline-seconds");
        let left = oneclock::remaining().expect("in scope");
        async move { Ok::<_, Infallible>(Response::new(Text::from(format!("{stale} {}", left.as_millis())))) }
    });
    let response = service.oneshot(asking(&[("x-deadline-seconds", "1")])).await.expect("infallible");
    assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "false 1000");
}

/// What a handler asks of its environment must not depend on whether an outer layer was there.
#[tokio::test(start_paused = true)]
async fn an_inner_layer_can_only_shorten() {
    let outer = Policy::named("outer").when_absent(ms(300)).build().expect("fits");
    let service = ServiceBuilder::new().layer(IngressLayer::new(outer)).layer(layer()).service_fn(
        |_: Request<Upload<Upload<Text>>>| async {
            let left = oneclock::remaining().expect("in scope");
            Ok::<_, Infallible>(Response::new(Text::from(left.as_millis().to_string())))
        },
    );
    let response = service.oneshot(asking(&[])).await.expect("infallible");
    assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "300");
}

// === Ending ===

#[tokio::test(start_paused = true)]
async fn x1_a_head_before_the_deadline_is_delivered_and_a_whole_one_at_it_counts_as_late() {
    let counting = Arc::new(Counting::default());
    let service = ServiceBuilder::new().layer(layer().observed_by(counting.clone())).service_fn(
        |request: Request<Upload<Text>>| async move {
            let takes = request.headers()["takes"].to_str().expect("ASCII").parse().expect("a number");
            tokio::time::sleep(ms(takes)).await;
            done("done")
        },
    );
    let ask = |takes| service.clone().oneshot(asking(&[("x-remaining-ms", "300"), ("takes", takes)]));
    assert_eq!(ask("299").await.expect("infallible").status(), 200);
    assert_eq!(counting.count("late"), 0);
    // At the very moment: the work is polled first, and its answer is there as a whole.
    assert_eq!(ask("300").await.expect("infallible").status(), 200);
    assert_eq!(counting.count("late"), 1);
    assert_eq!(ask("301").await.expect("infallible").status(), 504);
    assert_eq!(counting.count("ended deadline"), 2);
}

#[tokio::test(start_paused = true)]
async fn x1_a_late_head_whose_body_goes_on_is_a_deadline_answer() {
    let service = ServiceBuilder::new().layer(layer()).service_fn(|_: Request<Upload<Text>>| async {
        tokio::time::sleep(ms(300)).await;
        Ok::<_, Infallible>(Response::new(Frames::new([(0, b"one".as_slice()), (10, b"two")])))
    });
    let response = service.oneshot(asking(&[("x-remaining-ms", "300")])).await.expect("infallible");
    assert_eq!((response.status().as_u16(), reason(&response)), (504, "deadline"));
}

#[tokio::test(start_paused = true)]
async fn no_progress_of_a_body_moves_its_deadline() {
    let counting = Arc::new(Counting::default());
    let service = ServiceBuilder::new().layer(layer().observed_by(counting.clone())).service_fn(
        |_: Request<Upload<Text>>| async {
            // A byte every 50 ms, for ever and a day.
            Ok::<_, Infallible>(Response::new(Frames::new(std::iter::repeat_n((50, b"x".as_slice()), 100_000))))
        },
    );
    let began = clock::now();
    let response = service.oneshot(asking(&[("x-remaining-ms", "320")])).await.expect("infallible");
    let mut body = response.into_body();
    let mut frames = 0;
    let error = loop {
        match body.frame().await.expect("not a clean end") {
            Ok(_) => frames += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(clock::now().since(began), ms(320));
    assert_eq!(frames, 6);
    assert!(error.downcast_ref::<oneclock_http::BodyCutOff>().is_some());
    assert_eq!(counting.count("ended deadline"), 1);
}

/// R8: a reason that a handler copied from somebody else's answer would make the whole look as if it had not begun.
#[tokio::test(start_paused = true)]
async fn a_copied_reason_goes_no_further_and_one_of_our_own_does() {
    let inner = Policy::named("inner").when_absent(ms(100)).build().expect("fits");
    let service = ServiceBuilder::new().layer(layer()).layer(IngressLayer::new(inner)).service_fn(
        |request: Request<Upload<Upload<Text>>>| async move {
            if request.headers().contains_key("slow") {
                tokio::time::sleep(ms(60_000)).await;
            }
            let copied = Response::builder().status(503).header("oneclock-reason", "shed");
            Ok::<_, Infallible>(copied.body(Text::from("from elsewhere")).expect("a response"))
        },
    );
    let copied = service.clone().oneshot(asking(&[])).await.expect("infallible");
    assert_eq!((copied.status().as_u16(), reason(&copied)), (503, ""));
    let ours = service.oneshot(asking(&[("slow", "1")])).await.expect("infallible");
    assert_eq!(
        (ours.status().as_u16(), reason(&ours)),
        (504, "deadline"),
        "of the layer inside, through the one outside"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_has_no_body_on_the_wire_is_done_at_its_head() {
    let counting = Arc::new(Counting::default());
    let service = ServiceBuilder::new().layer(layer().observed_by(counting.clone())).service_fn(
        |_: Request<Upload<Text>>| async { Ok::<_, Infallible>(Response::new(Frames::new([(5, b"x".as_slice())]))) },
    );
    let head = Request::head("/").body(Text::default()).expect("a request");
    drop(service.oneshot(head).await.expect("infallible")); // as hyper does with the body of an answer to HEAD
    assert_eq!((counting.count("ended ok"), counting.sum("ended ")), (1, 1), "{counting:?}");
}

/// X1: what is late and too large for one piece would be cut after its head; it is a deadline answer instead.
#[tokio::test(start_paused = true)]
async fn x1_a_large_late_answer_is_never_begun() {
    let service = ServiceBuilder::new().layer(layer()).service_fn(|_: Request<Upload<Text>>| async {
        tokio::time::sleep(ms(300)).await;
        Ok::<_, Infallible>(Response::new(Text::from(vec![b'x'; 1 << 20])))
    });
    let within = oneclock_http::Exchange::guard_stream(service.oneshot(asking(&[("x-remaining-ms", "300")])));
    let response = within.await.expect("not cut off").expect("infallible");
    assert_eq!((response.status().as_u16(), reason(&response)), (504, "deadline"));
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_fails_is_no_work_done() {
    let counting = Arc::new(Counting::default());
    let service = ServiceBuilder::new().layer(layer().observed_by(counting.clone())).service_fn(
        |_: Request<Upload<Text>>| async {
            let two = Frames::new([(0, b"x".as_slice()), (5, b"y")]);
            Ok::<_, Infallible>(Response::new(http_body_util::Limited::new(two, 1)))
        },
    );
    let response = service.oneshot(asking(&[])).await.expect("infallible");
    response.into_body().collect().await.expect_err("longer than its limit");
    assert_eq!(counting.count("ended called_off"), 1, "{counting:?}");
}

/// X8: nobody polls a body that cannot be written, so its producer must go without being polled.
#[tokio::test(start_paused = true)]
async fn x8_a_body_that_nobody_polls_loses_its_producer_at_the_deadline() {
    let runs = Runs::default();
    let handler = runs.clone();
    let service = ServiceBuilder::new().layer(layer()).service_fn(move |_: Request<Upload<Text>>| {
        let running = handler.start();
        async move {
            let body = Frames::new([(0, b"one".as_slice()), (0, b"two")]).map_frame(move |frame| {
                let _held = &running;
                frame
            });
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    let response = service.oneshot(asking(&[("x-remaining-ms", "300")])).await.expect("infallible");
    assert_eq!(runs.counts(), (1, 0), "alive before the deadline");
    tokio::time::sleep(ms(301)).await;
    assert_eq!(runs.counts(), (1, 1), "gone after it");
    let error = response.into_body().collect().await.expect_err("never looks complete");
    assert!(error.to_string().contains("out of time"), "{error}");
}

/// Keeps how operations ended: in which stage, and what they were answered with.
type Ends = Arc<std::sync::Mutex<Vec<(String, Option<oneclock_core::Stage>, Option<oneclock_core::Reason>)>>>;

fn keeps(ends: &Ends) -> Arc<dyn oneclock::events::Observer> {
    let ends = Arc::clone(ends);
    Arc::new(move |event: &Event<'_>| {
        if let Event::Ended(ended) = event {
            let stage = ended.ending.map(|ending| ending.stage);
            ends.lock().expect("not poisoned").push((ended.operation.to_string(), stage, ended.answered));
        }
    })
}

/// Once the head is out it is the body that is waited for, whatever the calls that make it said before.
#[tokio::test(start_paused = true)]
async fn i13_a_body_that_is_cut_off_was_in_stage_body() {
    for frames in [vec![(0, b"a".as_slice()), (5_000, b"b")], vec![(5_000, b"a".as_slice()), (0, b"b")]] {
        let ends = Ends::default();
        let service = ServiceBuilder::new().layer(layer().observed_by(keeps(&ends))).service_fn(
            move |_: Request<Upload<Text>>| {
                let mut calls = 0;
                let body = Frames::new(frames.clone()).map_frame(move |frame| {
                    calls += 1;
                    let op = Operation::current().expect("in scope");
                    drop(op.grant(format!("part-{calls}")).call().expect("time enough")); // leaves stage `work` behind
                    frame
                });
                async move { Ok::<_, Infallible>(Response::new(body)) }
            },
        );
        let response = service.oneshot(asking(&[("x-remaining-ms", "300")])).await.expect("infallible");
        let error = response.into_body().collect().await.expect_err("cut off");
        assert!(error.to_string().contains("out of time in stage body"), "{error}");
        assert_eq!(*ends.lock().expect("not poisoned"), [("order".to_owned(), Some(oneclock_core::Stage::Body), None)]);
    }
}

/// X8: nobody polls it, and its caller leaves.
#[tokio::test(start_paused = true)]
async fn i13_a_body_that_its_caller_leaves_was_in_stage_body() {
    let ends = Ends::default();
    let service =
        ServiceBuilder::new().layer(layer().observed_by(keeps(&ends))).service_fn(|_: Request<Upload<Text>>| async {
            Ok::<_, Infallible>(Response::new(Frames::new([(0, b"one".as_slice()), (0, b"two")])))
        });
    drop(service.oneshot(asking(&[])).await.expect("infallible"));
    assert_eq!(*ends.lock().expect("not poisoned"), [("order".to_owned(), Some(oneclock_core::Stage::Body), None)]);
}

/// Its work is done, and still an alert can tell it from a success.
#[tokio::test(start_paused = true)]
async fn the_event_of_a_request_says_what_it_was_answered_with() {
    let ends = Ends::default();
    let service =
        ServiceBuilder::new().layer(layer().observed_by(keeps(&ends))).service_fn(|_: Request<Upload<Text>>| async {
            let op = Operation::current().expect("in scope");
            let slow = op.grant("pricing").cap(ms(50)).run(|_| std::future::pending::<()>()).await;
            let problem = oneclock_http::Problem::of(slow.expect_err("its cap"));
            let mut response = problem.to_response(Trust::Outside).map(Text::new);
            response.extensions_mut().insert(problem);
            Ok::<_, Infallible>(response)
        });
    let response = service.oneshot(asking(&[])).await.expect("infallible");
    assert_eq!(reason(&response), "cap");
    let cap = Some(oneclock_core::Reason::Cap);
    let ends = ends.lock().expect("not poisoned").clone();
    let pricing = ("pricing".to_owned(), Some(oneclock_core::Stage::Work), None);
    assert_eq!(ends, [pricing, ("order".to_owned(), None, cap)]);
}

/// Contract S2: the budget covers the establishment; idle and total are clocks of their own.
mod s2_streams {
    use super::*;

    fn streaming() -> IngressLayer {
        let policy = Policy::named("events")
            .when_absent(ms(300))
            .route("/events", |limits| limits.streaming(ms(1_000), ms(5_000)))
            .build()
            .expect("fits");
        IngressLayer::new(policy).route_by(|_, _| Some(Route::Pattern("/events")))
    }

    /// When a stream with a frame each `every` ms ended, and with which error.
    async fn ends(every: u64) -> (Duration, String) {
        let service = ServiceBuilder::new().layer(streaming()).service_fn(move |_: Request<Upload<Text>>| async move {
            Ok::<_, Infallible>(Response::new(Frames::new(std::iter::repeat_n((every, b"x".as_slice()), 1_000))))
        });
        let began = clock::now();
        let response = service.oneshot(asking(&[])).await.expect("infallible");
        assert_eq!(response.status(), 200);
        let error = response.into_body().collect().await.expect_err("a stream without an end");
        (clock::now().since(began), error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_lively_stream_lives_to_its_total_limit() {
        let (after, error) = ends(400).await;
        assert_eq!(after, ms(5_000));
        assert!(error.contains("the total limit of the stream"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_ends_at_its_idle_limit() {
        let (after, error) = ends(1_500).await;
        assert_eq!(after, ms(1_000));
        assert!(error.contains("the idle limit of the stream"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_establishment_has_the_budget() {
        let service = ServiceBuilder::new().layer(streaming()).service_fn(|_: Request<Upload<Text>>| async {
            tokio::time::sleep(ms(400)).await;
            done("too late")
        });
        assert_eq!(service.oneshot(asking(&[])).await.expect("infallible").status(), 504);
    }

    #[tokio::test(start_paused = true)]
    async fn an_undeclared_event_stream_is_cut_and_the_error_says_how_to_declare_it() {
        let service = ServiceBuilder::new().layer(layer()).service_fn(|_: Request<Upload<Text>>| async {
            let mut response = Response::new(Frames::new(std::iter::repeat_n((50, b"x".as_slice()), 1_000)));
            response.headers_mut().insert("content-type", http::HeaderValue::from_static("text/event-stream"));
            Ok::<_, Infallible>(response)
        });
        let response = service.oneshot(asking(&[])).await.expect("infallible");
        let error = response.into_body().collect().await.expect_err("cut at 800 ms");
        assert!(error.to_string().contains("limits.streaming(idle, total)"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn i6_a_dropped_request_ends_its_children_with_its_cause() {
    let runs = Runs::default();
    let handler = runs.clone();
    let counting = Arc::new(Counting::default());
    let service = ServiceBuilder::new().layer(layer().observed_by(counting.clone())).service_fn(
        move |_: Request<Upload<Text>>| {
            let running = handler.start();
            async move {
                let op = Operation::current().expect("in scope");
                let _task = op.spawn("index", async move {
                    let _running = running;
                    std::future::pending::<()>().await;
                });
                std::future::pending::<()>().await;
                done("never")
            }
        },
    );
    let left = tokio::time::timeout(ms(100), service.oneshot(asking(&[]))).await;
    assert!(left.is_err(), "the caller left after 100 ms");
    tokio::time::sleep(ms(1)).await;
    assert_eq!(runs.counts(), (1, 1), "the spawned task is gone as well");
    assert_eq!(counting.count("ended caller_gone"), 2, "the request and its child: {counting:?}");
}

/// X4: nobody left. Whoever catches the panic, further out or hyper itself, it was our own code that ended the work.
#[tokio::test(start_paused = true)]
async fn a_panic_that_is_caught_outside_is_not_a_caller_that_left() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let counting = Arc::new(Counting::default());
    let service = ServiceBuilder::new().layer(layer().observed_by(counting.clone())).service_fn(
        |_: Request<Upload<Text>>| async {
            tokio::task::yield_now().await;
            if true {
                panic!("on purpose");
            }
            done("never")
        },
    );
    let mut request = Box::pin(service.oneshot(asking(&[])));
    let mut caught = false;
    std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(cx).map(|_| ()))) {
        Ok(polled) => polled,
        Err(_) => {
            caught = true;
            Poll::Ready(())
        }
    })
    .await;
    drop(request);
    assert!(caught);
    assert_eq!(counting.count("ended called_off"), 1, "{counting:?}");
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_does_not_come_is_408_and_a_slow_handler_is_not() {
    let service = ServiceBuilder::new().layer(layer()).service_fn(
        |request: Request<Upload<http_body_util::Either<Frames, Frames>>>| async {
            let slow = request.headers().contains_key("slow");
            // A handler that makes an answer of its own of the failed upload, as most do.
            if request.into_body().collect().await.is_err() {
                return done("could not read the body");
            }
            if slow {
                tokio::time::sleep(ms(60_000)).await;
            }
            done("got it")
        },
    );
    let upload = |slow: bool, frames: Frames| {
        let request = Request::post("/orders").header("x-remaining-ms", "300");
        let request = if slow { request.header("slow", "1") } else { request };
        service.clone().oneshot(request.body(http_body_util::Either::Left(frames)).expect("a request"))
    };
    let trickles = upload(false, Frames::new(std::iter::repeat_n((50, b"x".as_slice()), 1_000))).await;
    let trickles = trickles.expect("infallible");
    assert_eq!((trickles.status().as_u16(), reason(&trickles)), (408, "request_body"));
    let slow = upload(true, Frames::new([(10, b"x".as_slice())])).await.expect("infallible");
    assert_eq!((slow.status().as_u16(), reason(&slow)), (504, "deadline"));
    // It waited for the upload once, gave it up and worked on: the upload is not to blame.
    let policy = Policy::named("order").when_absent(ms(300)).build().expect("fits");
    let patient =
        ServiceBuilder::new().layer(IngressLayer::new(policy)).service_fn(|request: Request<Upload<Frames>>| async {
            let _gave_up = tokio::time::timeout(ms(20), request.into_body().collect()).await;
            std::future::pending::<()>().await;
            done("never")
        });
    let request = Request::post("/").body(Frames::new([(60_000, b"x".as_slice())])).expect("a request");
    let patient = patient.oneshot(request).await.expect("infallible");
    assert_eq!((patient.status().as_u16(), reason(&patient)), (504, "deadline"));
    let fine = upload(false, Frames::new([(10, b"x".as_slice())])).await.expect("infallible");
    assert_eq!(fine.status(), 200);
}

/// X7: a future that somebody held back until after its deadline was queued, whoever's queue it was.
#[tokio::test(start_paused = true)]
async fn x7_what_is_first_polled_after_its_deadline_is_not_started() {
    let runs = Runs::default();
    let handler = runs.clone();
    let mut service = ServiceBuilder::new().layer(layer()).service_fn(move |_: Request<Upload<Text>>| {
        let handler = handler.clone();
        async move {
            drop(handler.start());
            done("ran")
        }
    });
    let held_back = service.ready().await.expect("always ready").call(asking(&[("x-remaining-ms", "100")]));
    tokio::time::sleep(ms(200)).await;
    let response = held_back.await.expect("infallible");
    // It was called while there was time, and a service can begin in its call: so it is not said that it did not.
    assert_eq!((response.status().as_u16(), reason(&response)), (504, "deadline"));
    assert_eq!(runs.counts(), (0, 0));
}

/// Contract V2, with the naive way beside it: what waits for its turn spends its budget, and is not started after it.
mod v2_one_at_a_time {
    use super::*;
    use tower::limit::ConcurrencyLimitLayer;

    async fn four_calls<S, A>(service: S) -> (Vec<u16>, Vec<Duration>)
    where
        S: Service<Request<Text>, Response = Response<A>, Error = BoxError> + Clone + Send + 'static,
        S::Future: Send,
        A: Send + 'static,
    {
        let began = clock::now();
        let calls: Vec<_> = (0..4)
            .map(|_| {
                let mut service = service.clone();
                tokio::spawn(async move {
                    // As a server does: it waits for readiness, then calls.
                    let answer = match service.ready().await {
                        Ok(ready) => ready.call(asking(&[("x-remaining-ms", "1500")])).await,
                        Err(error) => Err(error),
                    };
                    (answer.map_or(599, |answer| answer.status().as_u16()), clock::now().since(began))
                })
            })
            .collect();
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.expect("no panic"));
        }
        answers.sort();
        answers.into_iter().unzip()
    }

    #[tokio::test(start_paused = true)]
    async fn ours_answers_one_and_starts_none_after_its_deadline() {
        let starts = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (handler, began) = (Arc::clone(&starts), clock::now());
        let service = ServiceBuilder::new().layer(layer()).layer(ConcurrencyLimitLayer::new(1)).service_fn(
            move |_: Request<Upload<Text>>| {
                handler.lock().expect("not poisoned").push(clock::now().since(began));
                async {
                    tokio::time::sleep(ms(1_000)).await;
                    done("done")
                }
            },
        );
        let service = service.map_err(|never: Infallible| match never {});
        let (statuses, ended) = four_calls(service).await;
        assert_eq!(statuses, [200, 504, 504, 504]);
        assert!(ended.iter().all(|at| *at <= ms(1_500)), "{ended:?}");
        assert!(starts.lock().expect("not poisoned").iter().all(|at| *at < ms(1_500)));
    }

    /// tower's `Timeout` starts its clock in `call`, after the wait for readiness: all four "succeed", the last at 4 s.
    #[tokio::test(start_paused = true)]
    async fn the_naive_way_answers_all_four_long_after_their_deadline() {
        let service = ServiceBuilder::new().timeout(ms(1_500)).layer(ConcurrencyLimitLayer::new(1)).service_fn(
            |_: Request<Text>| async {
                tokio::time::sleep(ms(1_000)).await;
                done("done")
            },
        );
        let (statuses, ended) = four_calls(service).await;
        assert_eq!(statuses, [200, 200, 200, 200]);
        assert!(ended.iter().any(|at| *at >= ms(4_000)), "{ended:?}");
    }
}

/// The naive way for bodies: tower-http's layer times the head only.
#[tokio::test(start_paused = true)]
async fn the_naive_way_leaves_bodies_unbounded() {
    let service = ServiceBuilder::new()
        .layer(tower_http::timeout::TimeoutLayer::with_status_code(http::StatusCode::GATEWAY_TIMEOUT, ms(300)))
        .service_fn(|_: Request<Text>| async {
            Ok::<_, Infallible>(Response::new(Frames::new([(2_000, b"one".as_slice()), (2_000, b"two")])))
        });
    let began = clock::now();
    let response = service.oneshot(asking(&[])).await.expect("infallible");
    response.into_body().collect().await.expect("a body that took four seconds under a limit of 300 ms");
    assert_eq!(clock::now().since(began), ms(4_000));
}

// === Calls ===

/// A service that says what it was told, after a while.
fn told(after: u64) -> impl Service<Request<()>, Response = Response<Text>, Error = Infallible, Future: Send> + Clone {
    tower::service_fn(move |request: Request<()>| async move {
        tokio::time::sleep(ms(after)).await;
        let told = request.headers().get("x-remaining-ms").map_or("nothing", |told| told.to_str().expect("ASCII"));
        Ok(Response::new(Text::from(told.to_owned())))
    })
}

async fn text(response: Response<BoundedBody<Text>>) -> String {
    String::from_utf8_lossy(&response.into_body().collect().await.expect("whole").to_bytes()).into_owned()
}

#[tokio::test(start_paused = true)]
async fn i2_a_call_is_told_no_more_than_its_operation_has_left() {
    let destination = Destination::named("inventory").cap(ms(600)).reserve(ms(50)).build().expect("fits");
    let client = ServiceBuilder::new().layer(EgressLayer::new(destination)).service(told(0));
    let op = Operation::begin("order", ms(800));
    op.run(async {
        assert_eq!(text(client.clone().oneshot(Request::new(())).await.expect("in time")).await, "600");
        tokio::time::sleep(ms(500)).await;
        assert_eq!(text(client.clone().oneshot(Request::new(())).await.expect("in time")).await, "250");
        // A stale field of the request is replaced, never forwarded (E7).
        let stale = Request::get("/").header("x-remaining-ms", "9000").body(()).expect("a request");
        assert_eq!(text(client.clone().oneshot(stale).await.expect("in time")).await, "250");
        tokio::time::sleep(ms(246)).await;
        let error = client.clone().oneshot(Request::new(())).await.expect_err("4 ms after the reserve are too little");
        assert_eq!(error.outcome(), oneclock_core::Outcome::NotSent);
    })
    .await
    .expect("within its own time");
}

/// I3: a request that is passed on carries the operation that it arrived with; the narrower one in force wins.
#[tokio::test(start_paused = true)]
async fn i3_a_carried_operation_does_not_outrank_the_current_one() {
    let destination = Destination::named("inventory").build().expect("fits");
    let client = ServiceBuilder::new().layer(EgressLayer::new(destination)).service(told(0));
    let op = Operation::begin("order", ms(800));
    let mut request = Request::new(());
    request.extensions_mut().insert(op.clone());
    let answer = op.grant("narrow").cap(ms(50)).run(|_| client.oneshot(request)).await.expect("in time").expect("told");
    assert_eq!(text(answer).await, "50");
}

/// I2: behind a worker there is no current operation; the request brings it along.
#[tokio::test(start_paused = true)]
async fn i2_a_call_behind_a_buffer_spends_from_the_operation_that_it_carries() {
    let destination = Destination::named("inventory").build().expect("fits");
    let client = ServiceBuilder::new()
        .layer(oneclock_http::CarryLayer)
        .buffer::<Request<()>>(4)
        .layer(EgressLayer::new(destination))
        .service(told(0));
    let op = Operation::begin("order", ms(100));
    let answer = op.run(client.oneshot(Request::new(()))).await.expect("in time").expect("told");
    assert_eq!(text(answer).await, "100");
}

/// Contract V5: 0.6 ms left and a field in milliseconds: no call.
#[tokio::test(start_paused = true)]
async fn v5_less_than_a_unit_is_not_sent_and_never_zero() {
    let destination = Destination::named("inventory").min_useful(Duration::ZERO).build().expect("fits");
    let runs = Runs::default();
    let started = runs.clone();
    let client = ServiceBuilder::new().layer(EgressLayer::new(destination)).service_fn(move |_: Request<()>| {
        drop(started.start());
        async { done("called") }
    });
    let op = Operation::begin("order", Duration::from_micros(600));
    let error = op.run(client.oneshot(Request::new(()))).await.expect("in time").expect_err("not called");
    assert!(error.to_string().contains("less than one unit"), "{error}");
    assert_eq!(error.outcome(), oneclock_core::Outcome::NotSent);
    assert_eq!(runs.counts().0, 0);
}

/// Contract V6: the far side fails just before our timer, after our deadline: still a deadline error.
#[tokio::test(start_paused = true)]
async fn v6_an_error_of_the_far_side_after_our_deadline_is_the_deadline_error() {
    let destination = Destination::named("inventory").cap(ms(100)).build().expect("fits");
    let client =
        ServiceBuilder::new().layer(EgressLayer::new(destination)).service_fn(|request: Request<()>| async move {
            let after = if request.headers().contains_key("early") { 99 } else { 100 };
            tokio::time::sleep(ms(after)).await;
            Err::<Response<Text>, _>(std::io::Error::other("connection reset"))
        });
    let op = Operation::begin("order", ms(800));
    let late = op.run(client.clone().oneshot(Request::new(()))).await.expect("in time").expect_err("fails");
    assert!(matches!(late, CallError::Stopped(_)), "{late}");
    let early = Request::get("/").header("early", "1").body(()).expect("a request");
    let early = op.run(client.oneshot(early)).await.expect("in time").expect_err("fails");
    assert!(matches!(early, CallError::Failed(_)), "{early}");
}

#[tokio::test(start_paused = true)]
async fn i13_the_error_says_which_bound_where_and_where_the_time_went() {
    let destination = Destination::named("inventory").cap(ms(300)).build().expect("fits");
    let client = ServiceBuilder::new().layer(EgressLayer::new(destination)).service(told(5_000));
    let op = Operation::begin("order", ms(800));
    let error = op.run(client.oneshot(Request::new(()))).await.expect("in time").expect_err("too slow");
    assert_eq!(
        error.to_string(),
        "order → inventory: out of time in stage wait (bound: cap) after 300ms of 300ms, \
         outcome: unknown (cut off in stage wait); spent: wait 300ms"
    );
}

#[tokio::test(start_paused = true)]
async fn c6_without_an_operation_a_call_gets_its_cap_and_never_for_ever() {
    let destination = Destination::named("inventory").cap(ms(300)).build().expect("fits");
    let client = ServiceBuilder::new().layer(EgressLayer::new(destination)).service(told(5_000));
    let began = clock::now();
    client.oneshot(Request::new(())).await.expect_err("too slow");
    assert_eq!(clock::now().since(began), ms(300));

    let strict = Destination::named("inventory").without_operation(oneclock_http::WithoutOperation::Require);
    let client = ServiceBuilder::new().layer(EgressLayer::new(strict.build().expect("fits"))).service(told(0));
    let error = client.oneshot(Request::new(())).await.expect_err("no operation");
    assert!(error.to_string().contains("no operation is current"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn v14_an_answer_that_stalls_after_its_head_is_cut_and_its_producer_is_dropped_unpolled() {
    let runs = Runs::default();
    let handler = runs.clone();
    let destination = Destination::named("inventory").cap(ms(300)).build().expect("fits");
    let client = ServiceBuilder::new().layer(EgressLayer::new(destination)).service_fn(move |_: Request<()>| {
        let running = handler.start();
        async move {
            let body = Frames::new([(0, b"one".as_slice()), (60_000, b"two")]).map_frame(move |frame| {
                let _held = &running;
                frame
            });
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    let op = Operation::begin("order", ms(800));
    let response = op.run(client.oneshot(Request::new(()))).await.expect("in time").expect("a head");
    tokio::time::sleep(ms(301)).await; // nobody polls it
    assert_eq!(runs.counts(), (1, 1));
    let error = response.into_body().collect().await.expect_err("never looks complete");
    assert!(error.to_string().contains("order → inventory"), "{error}");
}
