//! Admission before a service: who starts, who waits, who is refused, and what they are told.

#![allow(clippy::expect_used, reason = "the helpers of a test are a test")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use oneclock::events::Counting;
use oneclock::{Admission, Operation, clock};
use oneclock_core::admission::{Mode, Settings};
use oneclock_core::{Policy, Trust};
use oneclock_http::{BoundedBody, IngressLayer, Upload};
use tower::{Layer, Service, ServiceExt};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A service whose requests take as many milliseconds as their path says.
fn service(
    admission: &Admission,
    counting: &Arc<Counting>,
) -> impl Service<Request<Full<Bytes>>, Response = Response<BoundedBody<Full<Bytes>>>, Error = Infallible, Future: Send>
+ Clone
+ use<> {
    let policy = Policy::named("order").when_absent(ms(500)).build().expect("valid");
    let layer = IngressLayer::new(policy).trust(Trust::Inside).admission(admission).observed_by(counting.clone());
    layer.layer(tower::service_fn(|request: Request<Upload<Full<Bytes>>>| async move {
        let takes: u64 = request.uri().path()[1..].parse().expect("a number");
        tokio::time::sleep(ms(takes)).await;
        Ok::<_, Infallible>(Response::new(Full::from("done")))
    }))
}

fn request(takes: u64, remaining: u64) -> Request<Full<Bytes>> {
    Request::get(format!("/{takes}")).header("x-remaining-ms", remaining).body(Full::default()).expect("valid")
}

async fn text(response: Response<BoundedBody<Full<Bytes>>>) -> String {
    let bytes = response.into_body().collect().await.expect("whole").to_bytes();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test(start_paused = true)]
async fn one_place_serves_one_at_a_time_and_a_wait_is_cut_off() {
    let (admission, counting) =
        (Admission::to("pool", Settings::fixed(1)).expect("valid"), Arc::new(Counting::default()));
    let service = service(&admission, &counting);
    let began = clock::now();
    let (first, second, third) = tokio::join!(
        service.clone().oneshot(request(100, 400)),
        service.clone().oneshot(request(100, 400)),
        service.clone().oneshot(request(100, 50)),
    );
    assert_eq!(first.expect("answered").status(), 200);
    assert_eq!(second.expect("answered").status(), 200);
    let third = third.expect("answered");
    assert_eq!(
        (third.status().as_u16(), &third.headers()["oneclock-reason"]),
        (504, &"expired_before_start".parse().expect("text"))
    );
    assert_eq!(clock::now().since(began), ms(200));
    assert_eq!((admission.busy(), admission.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_doomed_is_told_when_it_becomes_so() {
    let (admission, counting) =
        (Admission::to("pool", Settings::fixed(1)).expect("valid"), Arc::new(Counting::default()));
    let service = service(&admission, &counting);
    for _ in 0..40 {
        service.clone().oneshot(request(100, 400)).await.expect("answered");
    }
    // The place is taken for 300 ms; who has 260 ms left, and needs 100 of them, is told at 160.
    let busy = tokio::spawn(service.clone().oneshot(request(300, 400)));
    tokio::task::yield_now().await;
    let began = clock::now();
    let doomed = service.clone().oneshot(request(100, 260)).await.expect("answered");
    let told = clock::now().since(began);
    assert!((ms(130)..ms(180)).contains(&told), "{told:?}");
    assert_eq!(
        (doomed.status().as_u16(), &doomed.headers()["oneclock-reason"]),
        (504, &"insufficient_budget".parse().expect("text"))
    );
    let told = text(doomed).await;
    assert!(told.contains("such work needs") && told.contains("not started"), "{told}");
    assert_eq!(counting.count("ended shed"), 1);
    // And who has less than it needs is not let in at all.
    for _ in 0..3 {
        let _ = service.clone().oneshot(request(100, 60)).await.expect("answered");
    }
    assert!(counting.sum("refused insufficient_budget") >= 1);
    busy.await.expect("no panic").expect("answered");
    assert_eq!((admission.busy(), admission.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_is_out_of_the_queue_at_once() {
    let (admission, counting) =
        (Admission::to("pool", Settings::fixed(1)).expect("valid"), Arc::new(Counting::default()));
    let service = service(&admission, &counting);
    let busy = tokio::spawn(service.clone().oneshot(request(100, 400)));
    tokio::task::yield_now().await;
    let waiting = tokio::spawn(service.clone().oneshot(request(100, 400)));
    tokio::task::yield_now().await;
    assert_eq!((admission.busy(), admission.waiting()), (1, 1));
    waiting.abort();
    assert!(waiting.await.is_err());
    assert_eq!((admission.busy(), admission.waiting()), (1, 0));
    busy.abort();
    assert!(busy.await.is_err());
    assert_eq!((admission.busy(), admission.waiting()), (0, 0));
    assert_eq!(counting.count("ended caller_gone"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_needs_no_place_any_more_lets_the_next_one_in() {
    let admission = Admission::to("pool", Settings::fixed(1)).expect("valid");
    let running = Arc::new(AtomicUsize::new(0));
    let policy = Policy::named("order").build().expect("valid");
    let seen = Arc::clone(&running);
    let service = IngressLayer::new(policy).admission(&admission).layer(tower::service_fn(
        move |_: Request<Upload<Full<Bytes>>>| {
            let running = Arc::clone(&seen);
            async move {
                tokio::time::sleep(ms(10)).await; // its own work
                Operation::current().expect("in a request").vacate();
                running.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(ms(500)).await; // somebody else's
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
            }
        },
    ));
    let began = clock::now();
    let both = tokio::join!(service.clone().oneshot(request(0, 2_000)), service.clone().oneshot(request(0, 2_000)));
    assert_eq!((both.0.expect("answered").status().as_u16(), both.1.expect("answered").status().as_u16()), (200, 200));
    assert_eq!((clock::now().since(began), running.load(Ordering::Relaxed)), (ms(520), 2));
    assert!(admission.held() < ms(20), "{admission:?}");
}

#[tokio::test(start_paused = true)]
async fn in_shadow_everything_runs_and_what_would_not_is_told() {
    let settings = Settings::fixed(1).mode(Mode::Shadow);
    let (admission, counting) = (Admission::to("pool", settings).expect("valid"), Arc::new(Counting::default()));
    let service = service(&admission, &counting);
    for _ in 0..40 {
        service.clone().oneshot(request(100, 400)).await.expect("answered");
    }
    let both = tokio::join!(service.clone().oneshot(request(100, 400)), service.clone().oneshot(request(100, 120)));
    assert_eq!((both.0.expect("answered").status().as_u16(), both.1.expect("answered").status().as_u16()), (200, 200));
    assert_eq!(counting.sum("would refuse"), 1);
}

#[tokio::test(start_paused = true)]
async fn c7_what_is_optional_says_so_and_outsiders_cannot_make_more_of_it() {
    let policy = Policy::named("order").build().expect("valid");
    let service =
        IngressLayer::new(policy).layer(tower::service_fn(|request: Request<Upload<Full<Bytes>>>| async move {
            let importance = Operation::current().expect("in a request").importance();
            let left = request.headers().contains_key("oneclock-importance");
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(format!("{importance} {left}"))))
        }));
    for (said, want) in
        [(None, "required false"), (Some("optional"), "optional false"), (Some("required"), "required false")]
    {
        let mut request = Request::get("/").body(Full::default()).expect("valid");
        if let Some(said) = said {
            request.headers_mut().insert("oneclock-importance", said.parse().expect("text"));
        }
        assert_eq!(text(service.clone().oneshot(request).await.expect("answered")).await, want);
    }
}
