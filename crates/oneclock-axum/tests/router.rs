//! A router under a policy: in memory, with paused time.

#![allow(clippy::expect_used)] // helpers of tests: to panic is how a test fails

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use axum::routing::get;
use http_body_util::BodyExt;
use oneclock_axum::{Op, PolicyExt as _, Problem};
use oneclock_core::{Policy, Trust};
use tower::ServiceExt;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

async fn forever() -> &'static str {
    std::future::pending().await
}

async fn left(Op(op): Op) -> String {
    format!("{}", op.remaining().as_millis())
}

async fn needs_too_much(Op(op): Op) -> Result<String, Problem> {
    let left = op.grant("report").min_useful(Duration::from_secs(60)).remaining()?;
    Ok(format!("{left:?}"))
}

async fn stalls_after_its_head() -> Body {
    Body::from_stream(futures_util::stream::pending::<Result<&'static str, std::io::Error>>())
}

fn router(trust: Trust) -> Router {
    let policy = Policy::named("order")
        .when_absent(ms(800))
        .ceiling(ms(2_000))
        .route("/reports/{id}", |limits| limits.when_absent(ms(800)).ceiling(ms(30_000)))
        .route_for(Method::POST, "/left", |limits| limits.when_absent(ms(300)))
        .build()
        .expect("limits that fit together");
    Router::new()
        .route("/forever", get(forever))
        .route("/left", get(left).post(left))
        .route("/reports/{id}", get(left))
        .route("/needs-too-much", get(needs_too_much))
        .route("/stalls", get(stalls_after_its_head))
        .layer(policy.layer().trust(trust))
}

async fn ask(router: Router, path: &str, field: Option<(&str, &str)>) -> Response<Body> {
    let mut request = Request::get(path);
    if let Some((name, value)) = field {
        request = request.header(name, value);
    }
    router.oneshot(request.body(Body::empty()).expect("a request")).await.expect("infallible")
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.expect("a whole body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[tokio::test(start_paused = true)]
async fn i1_every_request_has_a_finite_deadline() {
    let start = oneclock::clock::now();
    let response = ask(router(Trust::Outside), "/forever", None).await;
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(oneclock::clock::now().since(start), ms(800));
    assert_eq!(response.headers()["oneclock-reason"], "deadline");
    assert!(!text(response).await.contains("insight"), "an outsider learns nothing of our insides");
}

#[tokio::test(start_paused = true)]
async fn the_matched_route_decides() {
    let inside = |path| ask(router(Trust::Inside), path, Some(("x-remaining-ms", "9000")));
    assert_eq!(text(inside("/left").await).await, "2000");
    assert_eq!(text(inside("/reports/7").await).await, "9000");
}

#[tokio::test(start_paused = true)]
async fn so_does_the_method_where_the_policy_tells_methods_apart() {
    let left_to = |method| async move {
        let request = Request::builder().method(method).uri("/left").body(Body::empty()).expect("a request");
        text(router(Trust::Outside).oneshot(request).await.expect("infallible")).await
    };
    assert_eq!(left_to(Method::POST).await, "300");
    assert_eq!(left_to(Method::GET).await, "800");
}

/// Limits go by what the router matched. A path counts only below a pattern that mounts one service; below any other its callers
/// would choose their limits themselves.
#[tokio::test(start_paused = true)]
async fn a_path_that_looks_like_a_procedure_chooses_no_limits() {
    for (pattern, path, want) in [
        ("/shop.Pricing/{*rest}", "/shop.Pricing/Price", "9000"),
        ("/{tenant}/{*rest}", "/shop.Pricing/Price", "2000"),
        ("/shop.Pricing/{method}", "/shop.Pricing/Price", "2000"),
        ("/{*rest}", "/shop.Pricing/Price", "2000"),
        ("/files/{*rest}", "/files/a", "2000"), // as a service without a package would be
        ("/v1.0/files/{*rest}", "/v1.0/files/a", "2000"),
    ] {
        let (service, _) = path.rsplit_once('/').expect("a path");
        let policy = Policy::named("order")
            .when_absent(ms(800))
            .ceiling(ms(2_000))
            .route(service, |limits| limits.when_absent(ms(800)).ceiling(ms(30_000)))
            .route(path, |limits| limits.when_absent(ms(800)).ceiling(ms(30_000)))
            .build()
            .expect("limits that fit together");
        let app = Router::new().route(pattern, get(left)).layer(policy.layer().trust(Trust::Inside));
        let answer = ask(app, path, Some(("x-remaining-ms", "9000"))).await;
        assert_eq!(text(answer).await, want, "{pattern}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_problem_from_a_handler_is_written_in_full_for_a_trusted_caller() {
    let inside = ask(router(Trust::Inside), "/needs-too-much", None).await;
    assert_eq!(inside.status(), StatusCode::GATEWAY_TIMEOUT);
    // The handler had begun: it must not say that it had not.
    assert_eq!(inside.headers()["oneclock-reason"], "deadline");
    assert!(text(inside).await.contains("order → report not begun"));

    let outside = ask(router(Trust::Outside), "/needs-too-much", None).await;
    assert!(!text(outside).await.contains("report"));
}

/// Whatever wraps it, a step that our clock stopped makes a 504, and never a 502 or a 500.
mod a_stop_is_found_behind_any_wrapper {
    use super::*;
    use oneclock::{Ended, Operation};

    #[derive(Debug, thiserror::Error)]
    enum App {
        #[error(transparent)]
        Stopped(#[from] Ended),
    }

    #[derive(Debug, thiserror::Error)]
    #[error("could not price the cart")]
    struct WithContext(#[source] Box<dyn std::error::Error + Send + Sync>);

    async fn ended() -> Ended {
        let op = Operation::begin("step", ms(1));
        op.run(std::future::pending::<()>()).await.expect_err("for ever")
    }

    #[tokio::test(start_paused = true)]
    async fn by_itself_transparent_or_with_context() {
        let ended = ended().await;
        let boxed = |error: Ended| -> Box<dyn std::error::Error + Send + Sync> { Box::new(error) };
        let problems = [
            Problem::from(ended.clone()),
            Problem::of(App::from(ended.clone())),
            Problem::of(WithContext(boxed(ended.clone()))),
            Problem::of(WithContext(Box::new(App::from(ended)))),
            Problem::of(std::io::Error::other("disk full")),
        ];
        assert_eq!(problems.map(|problem| problem.0.status()), [504, 504, 504, 504, 500]);
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_part_and_in_a_step() {
        let op = Operation::begin("order", ms(1_000));
        let part = op.fan_out().required("a", |_| async { Err::<(), _>(App::from(ended().await)) }).await;
        assert_eq!(Problem::from(part.expect_err("failed")).0.status(), 504);
        let step = op.must_finish("b", ms(500), async { Err::<(), _>(App::from(ended().await)) }).await;
        assert_eq!(Problem::from(step.expect_err("failed")).0.status(), 504);
        let boxed = async { Err::<(), Box<dyn std::error::Error + Send + Sync>>("no".into()) };
        let step = op.must_finish("c", ms(500), boxed).await;
        assert_eq!(Problem::from(step.expect_err("failed")).0.status(), 500);
    }
}

/// A callee that rounds the budget down is out of time a moment before we are; what it says is passed on as what it is. It
/// has no reason of ours: nobody may take it for proof that nothing happened.
#[test]
fn an_answer_of_504_makes_a_504_that_claims_nothing_and_any_other_failure_a_502() {
    let problem = |status: u16| {
        let answer = Response::builder().status(status).header("oneclock-reason", "expired_before_start").body(());
        let failed = oneclock_axum::successful(answer.expect("an answer")).expect_err("no success");
        Problem::from(failed).0
    };
    assert_eq!((problem(504).status(), problem(504).reason()), (504, None));
    assert!(matches!(problem(504).outcome(), Some(oneclock_core::Outcome::Unknown { .. })));
    assert_eq!([503, 500, 404].map(|status| problem(status).status()), [502, 502, 502]);
}

/// A step or a part can say it in the words of a problem already.
#[tokio::test(start_paused = true)]
async fn a_problem_of_a_part_or_a_step_is_the_problem_of_the_whole() {
    let op = oneclock::Operation::begin("order", ms(1_000));
    let declined = || Problem::with_status(StatusCode::PAYMENT_REQUIRED, "the card was declined");
    let part = op.fan_out().required("a", |_| async { Err::<(), _>(declined()) }).await;
    assert_eq!(Problem::from(part.expect_err("failed")).0.status(), 402);
    let step = op.must_finish("b", ms(500), async move { Err::<(), _>(declined()) }).await;
    assert_eq!(Problem::from(step.expect_err("failed")).0.status(), 402);
}

/// The answer of a call whose body was cut off, read as a whole: a deadline, however deep.
#[tokio::test(start_paused = true)]
async fn a_body_that_was_cut_off_while_it_was_collected_is_504() {
    use oneclock_http::{Destination, EgressLayer, collect};
    let destination = Destination::named("inventory").cap(ms(100)).build().expect("fits");
    let stalls = tower::service_fn(|_: Request<()>| async {
        let body = Body::from_stream(futures_util::stream::pending::<Result<&'static str, std::io::Error>>());
        Ok::<_, std::convert::Infallible>(Response::new(body))
    });
    let client = tower::ServiceBuilder::new().layer(EgressLayer::new(destination)).service(stalls);
    let op = oneclock::Operation::begin("order", ms(1_000));
    let answer = op.run(client.oneshot(Request::new(()))).await.expect("in time").expect("a head");
    let error = collect(answer.into_body(), 99).await.expect_err("cut off");
    assert_eq!(oneclock::reason_in(&error), Some(oneclock_core::Reason::Cap));
    assert_eq!(Problem::from(error).0.status(), 504);
}

/// What the layers below made of the head stays: cookies, CORS, a status of their own.
#[tokio::test(start_paused = true)]
async fn a_rewritten_problem_keeps_the_rest_of_its_head() {
    let policy = Policy::named("order").build().expect("fits");
    let handler = || async {
        let problem = Problem::with_status(StatusCode::NOT_FOUND, "no such cart").detail("cart 7 was emptied");
        (StatusCode::GONE, [("set-cookie", "a=b"), ("retry-after", "9")], problem)
    };
    let app = Router::new().route("/", get(handler)).layer(policy.layer().trust(Trust::Inside));
    let response = ask(app, "/", None).await;
    assert_eq!(response.status(), StatusCode::GONE);
    assert_eq!(response.headers()["set-cookie"], "a=b");
    assert_eq!(response.headers()["retry-after"], "9");
    let text = text(response).await;
    assert!(text.contains("\"status\":410") && text.contains("cart 7 was emptied"), "{text}");
}

/// axum's own middleware stands below the layer, and optional extraction works on both sides of it.
#[tokio::test(start_paused = true)]
async fn middleware_from_a_function_works_below_the_layer() {
    use axum::middleware::{Next, from_fn};
    let policy = Policy::named("order").when_absent(ms(800)).build().expect("fits");
    let left =
        |op: Option<Op>| async move { op.map_or("none".to_owned(), |op| op.remaining().as_millis().to_string()) };
    let pass = async |request: axum::extract::Request, next: Next| next.run(request).await;
    let stack = tower::ServiceBuilder::new().layer(policy.layer()).layer(from_fn(pass));
    let app = Router::new().route("/", get(left)).layer(stack);
    assert_eq!(text(ask(app, "/", None).await).await, "800");
    assert_eq!(text(ask(Router::new().route("/", get(left)), "/", None).await).await, "none");
}

#[tokio::test(start_paused = true)]
async fn v14_a_body_that_stalls_is_cut_at_the_deadline_and_never_looks_complete() {
    let start = oneclock::clock::now();
    let response = ask(router(Trust::Outside), "/stalls", None).await;
    assert_eq!(response.status(), StatusCode::OK);
    let error = response.into_body().collect().await.expect_err("cut off");
    assert_eq!(oneclock::clock::now().since(start), ms(800));
    assert!(error.to_string().contains("cut off"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_route_without_a_layer_does_not_run_a_handler_that_asks_for_its_operation() {
    let bare = Router::new().route("/left", get(left));
    let response = ask(bare, "/left", None).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
}
