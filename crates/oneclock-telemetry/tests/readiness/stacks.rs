//! A spent budget through real stacks: ready exactly if it is refused, and then no handler ever runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use axum::routing::get;
use oneclock::Shutdown;
use oneclock::events::Event;
use oneclock_axum::PolicyExt as _;
use oneclock_core::readiness::{Answer, HeldBack, Judged, judge};
use oneclock_core::wire::{Convention, Conventions};
use oneclock_telemetry::Readiness;
use oneclock_telemetry::readiness::{NotReadiness, WhyNot, WithoutProbes};
use oneclock_tonic::PolicyExt as _;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower::{Service, ServiceExt as _};

use crate::support::{Count, first, of, order, orders, policy, secs, until};

const ORDER: &str = "GET /orders/0";

/// What is said of a stack after its first run, and that its handler ran so often.
#[track_caller]
fn not_ready(readiness: &Readiness, stack: &serde_json::Value, sentence: &str) {
    let verdict = readiness.now();
    assert!(!verdict.ready);
    assert!(matches!(&*verdict.why, [WhyNot::Stack { held: HeldBack::Broken, .. }]), "{verdict}");
    let said = stack["said"].as_str().unwrap();
    assert!(said.contains(sentence), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_router_with_its_layer_is_ready_and_no_handler_ever_runs() {
    let ran = Count::default();
    let app = orders(&ran).layer(policy().layer());
    let readiness = Readiness::builder().stack(app.clone(), order()).start(&Shutdown::new()).unwrap();
    assert_eq!(readiness.now().to_string(), "not ready: stack GET /orders/0: the first run is not over");
    assert!(readiness.ready().await);
    tokio::time::sleep(secs(3600)).await;
    assert!(readiness.now().ready);
    assert!(readiness.now().lasts > secs(3500));
    let stack = of(&readiness, "stacks", ORDER);
    assert!(stack["age_ms"].as_u64().unwrap() <= 37_500, "it looks again and again: {stack}");
    let said = stack["said"].as_str().unwrap();
    for convention in Conventions::default_set().iter() {
        assert!(said.contains(convention.name().as_str()), "{said}");
    }
    assert_eq!(ran.get(), 0);
    app.oneshot(order()).await.unwrap();
    assert_eq!(ran.get(), 1, "the count counts");
}

#[tokio::test(start_paused = true)]
async fn a_router_without_a_layer_is_not_ready() {
    let ran = Count::default();
    let readiness = Readiness::builder().stack(orders(&ran), order()).start(&Shutdown::new()).unwrap();
    let stack = first(&readiness, "stacks", ORDER).await;
    not_ready(&readiness, &stack, "answered with 200: no layer of oneclock covers this route");
    assert_eq!(readiness.now().to_string(), "not ready: stack GET /orders/0: a promise is broken");
    assert_eq!(ran.get(), 1, "that is how it was found out, and it was asked once");
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_was_added_before_the_route_does_not_cover_it() {
    let ran = Count::default();
    let app: Router = Router::new().route("/other", get(|| async {})).layer(policy().layer()).merge(orders(&ran));
    let readiness = Readiness::builder()
        .stack(app.clone(), order())
        .stack(app, Request::get("/other").body(Body::empty()).unwrap())
        .start(&Shutdown::new())
        .unwrap();
    let stack = first(&readiness, "stacks", ORDER).await;
    assert_eq!(first(&readiness, "stacks", "GET /other").await["shown"], "kept");
    not_ready(&readiness, &stack, "no layer of oneclock covers this route");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_somebody_elses_is_no_proof() {
    let slow: Router = Router::new().route("/orders/{id}", get(|| async { StatusCode::GATEWAY_TIMEOUT }));
    let readiness = Readiness::builder().stack(slow, order()).start(&Shutdown::new()).unwrap();
    let stack = first(&readiness, "stacks", ORDER).await;
    not_ready(&readiness, &stack, "has no oneclock-reason");
}

#[tokio::test(start_paused = true)]
async fn what_stands_outside_of_the_layer_is_named() {
    async fn nobody(_: Request<Body>, _: Next) -> Response<Body> {
        StatusCode::UNAUTHORIZED.into_response()
    }
    let app = || orders(&Count::default());
    let outside = app().layer(policy().layer()).layer(from_fn(nobody));
    let readiness = Readiness::builder().stack(outside, order()).start(&Shutdown::new()).unwrap();
    let stack = first(&readiness, "stacks", ORDER).await;
    not_ready(&readiness, &stack, "answered with 401, by something that stands outside of the layer of oneclock");

    let inside = app().layer(from_fn(nobody)).layer(policy().layer());
    let readiness = Readiness::builder().stack(inside, order()).start(&Shutdown::new()).unwrap();
    assert!(readiness.ready().await);
}

#[tokio::test(start_paused = true)]
async fn each_field_that_the_layer_is_said_to_read_is_tried() {
    let only_grpc = Conventions::new([Convention::GRPC_TIMEOUT]).unwrap();
    let app = || orders(&Count::default()).layer(policy().layer().reads(only_grpc.clone()));
    let readiness = Readiness::builder().stack(app(), order()).start(&Shutdown::new()).unwrap();
    let stack = first(&readiness, "stacks", ORDER).await;
    not_ready(&readiness, &stack, "connect-timeout-ms: a request with nothing left was answered with 200");

    let told = Readiness::builder().stack_reading(app(), order(), only_grpc.clone()).start(&Shutdown::new()).unwrap();
    assert!(told.ready().await);

    let all = Conventions::new(Convention::ALL).unwrap();
    let app = orders(&Count::default()).layer(policy().layer().reads(all.clone()));
    let readiness = Readiness::builder().stack_reading(app, order(), all).start(&Shutdown::new()).unwrap();
    assert!(readiness.ready().await);
    let said = of(&readiness, "stacks", ORDER)["said"].as_str().unwrap().to_owned();
    assert_eq!(said.split(", ").count(), Convention::ALL.len() - 2, "zero says nothing in two of Envoy's: {said}");
}

/// A gateway that has no layer, and passes on what the service behind it says of the deadline that it passes on.
#[tokio::test(start_paused = true)]
async fn what_a_service_behind_it_refuses_is_not_taken_for_a_layer_of_its_own() {
    let behind = orders(&Count::default()).layer(policy().layer());
    let gateway: Router = Router::new().fallback(async move |request: Request<Body>| {
        // What goes over a socket and no more: no extensions.
        let mut onwards = Request::new(Body::empty());
        *onwards.uri_mut() = request.uri().clone();
        *onwards.headers_mut() = request.headers().clone();
        let (head, body) = behind.clone().oneshot(onwards).await.unwrap().into_parts();
        (head.status, head.headers, body).into_response()
    });
    let mut spent = order();
    spent.headers_mut().insert("x-remaining-ms", "0".parse().unwrap());
    let answer = gateway.clone().oneshot(spent).await.unwrap();
    let reason = answer.headers()["oneclock-reason"].to_str().ok();
    let alone = judge(Answer { status: answer.status().as_u16(), reason, ..Answer::default() });
    assert_eq!(alone, Judged::Refused, "by its answer alone it is taken for one that refuses");

    let readiness = Readiness::builder().stack(gateway, order()).start(&Shutdown::new()).unwrap();
    let stack = first(&readiness, "stacks", ORDER).await;
    not_ready(&readiness, &stack, "not by this process");
}

/// Answers with this status once it is set; before, the service does.
#[derive(Clone)]
struct Front<S>(S, Arc<AtomicU16>);

impl<S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>>
    Service<Request<Body>> for Front<S>
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = futures_util::future::Either<S::Future, std::future::Ready<Result<Response<Body>, Infallible>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self.1.load(Ordering::SeqCst) {
            0 => futures_util::future::Either::Left(self.0.call(request)),
            status => {
                let status = StatusCode::from_u16(status).unwrap();
                futures_util::future::Either::Right(std::future::ready(Ok(status.into_response())))
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn load_is_no_reason_until_the_proof_is_old() {
    let status = Arc::new(AtomicU16::new(0));
    let app = Front(orders(&Count::default()).layer(policy().layer()), Arc::clone(&status));
    let readiness = Readiness::builder().stack(app, order()).start(&Shutdown::new()).unwrap();
    assert!(readiness.ready().await);
    status.store(503, Ordering::SeqCst);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(of(&readiness, "stacks", ORDER)["shown"], "unclear");
    assert!(readiness.now().ready, "shed for load: {}", readiness.now());
    tokio::time::sleep(secs(3 * 30 + 15)).await;
    let verdict = readiness.now();
    assert!(matches!(&*verdict.why, [WhyNot::Stack { held: HeldBack::Outdated { .. }, .. }]), "{verdict}");
    status.store(0, Ordering::SeqCst);
    assert!(readiness.ready().await);
}

#[tokio::test(start_paused = true)]
async fn a_stack_that_lets_a_spent_budget_through_later_is_taken_out_at_the_next_look() {
    let status = Arc::new(AtomicU16::new(0));
    let app = Front(orders(&Count::default()).layer(policy().layer()), Arc::clone(&status));
    let readiness = Readiness::builder().stack(app, order()).start(&Shutdown::new()).unwrap();
    assert!(readiness.ready().await);
    status.store(200, Ordering::SeqCst);
    tokio::time::sleep(secs(38)).await;
    assert!(!readiness.now().ready);
    status.store(503, Ordering::SeqCst); // now it cannot be asked: what was shown stands
    tokio::time::sleep(secs(38)).await;
    assert_eq!(readiness.now().to_string(), "not ready: stack GET /orders/0: a promise is broken");
}

#[tokio::test(start_paused = true)]
async fn a_stack_that_panics_or_hangs_is_not_proven() {
    let panics: Router =
        Router::new().route("/orders/{id}", get(async || if true { panic!("on purpose") } else { "never" }));
    let readiness = Readiness::builder().stack(panics, order()).start(&Shutdown::new()).unwrap();
    let stack = first(&readiness, "stacks", ORDER).await;
    not_ready(&readiness, &stack, "it panicked");

    let hangs: Router = Router::new().route("/orders/{id}", get(std::future::pending::<()>));
    let readiness = Readiness::builder().stack(hangs, order()).start(&Shutdown::new()).unwrap();
    let stack = first(&readiness, "stacks", ORDER).await;
    assert_eq!(stack["said"], "it was not over after 15s, which is its bound");
    assert_eq!(readiness.now().to_string(), "not ready: stack GET /orders/0: not proven since the start");
}

#[tokio::test(start_paused = true)]
async fn the_checks_can_be_kept_out_of_what_is_counted() {
    let (all, rest) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counting = |into: &Arc<AtomicUsize>| {
        let into = Arc::clone(into);
        move |event: &Event<'_>| {
            if matches!(event, Event::Refused(_)) {
                into.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    let observed = oneclock_telemetry::Several::new().and(counting(&all)).and(WithoutProbes::new(counting(&rest)));
    let app = orders(&Count::default()).layer(policy().layer().observed_by(Arc::new(observed)));
    let readiness = Readiness::builder().stack(app.clone(), order()).start(&Shutdown::new()).unwrap();
    assert!(readiness.ready().await);
    assert_eq!(all.load(Ordering::SeqCst), Conventions::default_set().iter().count() + 1);
    assert_eq!(rest.load(Ordering::SeqCst), 0);
    let mut spent = order();
    spent.headers_mut().insert("x-remaining-ms", "0".parse().unwrap());
    app.oneshot(spent).await.unwrap();
    assert_eq!(rest.load(Ordering::SeqCst), 1, "what a caller sent counts");
}

/// A method that counts.
#[derive(Clone)]
struct Pricing(Count);

impl NamedService for Pricing {
    const NAME: &'static str = "shop.Pricing";
}

impl Service<Request<tonic::body::Body>> for Pricing {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<tonic::body::Body>) -> Self::Future {
        self.0.one_more();
        let mut answer = Response::new(tonic::body::Body::empty());
        answer.headers_mut().insert(header::CONTENT_TYPE, "application/grpc".parse().unwrap());
        answer.headers_mut().insert("grpc-status", "0".parse().unwrap());
        std::future::ready(Ok(answer))
    }
}

fn price<B: Default>(path: &str) -> Request<B> {
    Request::post(path).header(header::CONTENT_TYPE, "application/grpc").body(B::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn routes_of_tonic_with_their_layer_are_ready() {
    let ran = Count::default();
    let routes = Routes::new(Pricing(ran.clone())).into_axum_router().layer(policy().grpc_layer());
    let around = tower::ServiceBuilder::new().layer(policy().grpc_layer()).service(Routes::new(Pricing(ran.clone())));
    let readiness = Readiness::builder()
        .stack(routes, price::<Body>("/shop.Pricing/Price"))
        .stack(around, price::<tonic::body::Body>("/shop.Pricing/Other"))
        .start(&Shutdown::new())
        .unwrap();
    assert!(readiness.ready().await);
    assert_eq!(ran.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn routes_of_tonic_without_a_layer_are_not() {
    let ran = Count::default();
    let routes = Routes::new(Pricing(ran.clone()));
    let readiness = Readiness::builder()
        .stack(routes, price::<tonic::body::Body>("/shop.Pricing/Price"))
        .start(&Shutdown::new())
        .unwrap();
    let stack = first(&readiness, "stacks", "POST /shop.Pricing/Price").await;
    not_ready(&readiness, &stack, "no layer of oneclock covers this route");
    assert_eq!(ran.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn at_the_shutdown_it_is_not_ready_at_once_and_nothing_is_left_running() {
    let shutdown = Shutdown::new();
    let app = orders(&Count::default()).layer(policy().layer());
    let readiness = Readiness::builder().stack(app, order()).start(&shutdown).unwrap();
    assert!(readiness.ready().await);
    shutdown.signal();
    assert_eq!(readiness.now().why, [WhyNot::ShuttingDown], "nothing had to run for that");
    assert!(!readiness.ready().await);
    until("over", || shutdown.tasks() == 0).await;
}

#[test]
fn what_makes_no_sense_is_refused_before_it_starts() {
    let app = || orders(&Count::default()).layer(policy().layer());
    let shutdown = Shutdown::new();
    let none = Readiness::builder().self_test("cache", || async { Ok::<_, std::io::Error>(()) });
    assert_eq!(none.start(&shutdown).unwrap_err(), NotReadiness::NoStack);
    let blind = Readiness::builder().stack_reading(app(), order(), Conventions::none());
    assert_eq!(blind.start(&shutdown).unwrap_err(), NotReadiness::NoField { name: ORDER.into() });
    let twice = Readiness::builder().stack(app(), order()).stack(app(), order());
    assert_eq!(twice.start(&shutdown).unwrap_err(), NotReadiness::SameName { name: ORDER.into() });
    let hasty = Readiness::builder().stack(app(), order()).interval(secs(0));
    assert_eq!(hasty.start(&shutdown).unwrap_err(), NotReadiness::Zero { what: "the interval" });
    let guarded = Readiness::builder().stack(app(), order()).fleet_guard(|| true);
    assert_eq!(guarded.start(&shutdown).unwrap_err(), NotReadiness::GuardWithoutMarks);
    assert_eq!(Readiness::builder().stack(app(), order()).start(&shutdown).unwrap_err(), NotReadiness::NoRuntime);
}
