//! What a probe is told over HTTP.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use oneclock::Shutdown;
use oneclock_axum::PolicyExt as _;
use oneclock_telemetry::{Metrics, Readiness};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::support::{Count, order, orders, policy, secs};

async fn asked(admin: &Router, request: http::request::Builder) -> (Response<()>, String) {
    let answer = admin.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (head, body) = answer.into_parts();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    (Response::from_parts(head, ()), body)
}

fn admin(readiness: &Readiness) -> Router {
    Router::new().route_service("/readyz", readiness.readyz()).route_service("/status", readiness.status())
}

#[tokio::test(start_paused = true)]
async fn ready_is_200_and_not_ready_is_503_with_why() {
    let shutdown = Shutdown::new();
    let app = orders(&Count::default()).layer(policy().layer());
    let readiness = Readiness::builder().stack(app, order()).start(&shutdown).unwrap();
    let admin = admin(&readiness);

    let (head, body) = asked(&admin, Request::get("/readyz")).await;
    assert_eq!(head.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(head.headers()[header::CONTENT_TYPE], "application/json");
    assert_eq!(head.headers()[header::CACHE_CONTROL], "no-store");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["ready"], false);
    assert_eq!(body["why"], serde_json::json!(["stack GET /orders/0: the first run is not over"]));

    assert!(readiness.ready().await);
    tokio::time::sleep(secs(5)).await;
    let (head, body) = asked(&admin, Request::get("/readyz")).await;
    assert_eq!(head.status(), StatusCode::OK);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["ready"], &body["for_ms"], &body["why"]), (&true.into(), &5_000.into(), &serde_json::json!([])));
    assert!(body["since_unix_ms"].as_u64().unwrap() > 1_700_000_000_000);

    shutdown.signal();
    let (head, body) = asked(&admin, Request::get("/readyz").header("accept", "text/plain")).await;
    assert_eq!((head.status(), &*body), (StatusCode::SERVICE_UNAVAILABLE, "not ready: shutting down\n"));
}

/// Asked at each scrape, and not there unless the metrics are told.
#[tokio::test(start_paused = true)]
async fn a_scrape_has_what_a_probe_would_be_told() {
    let (metrics, scrape) = Metrics::builder().build().unwrap();
    let said = || scrape.render().lines().find(|line| line.starts_with("oneclock_ready ")).map(str::to_owned);
    let shutdown = Shutdown::new();
    let app = orders(&Count::default()).layer(policy().layer());
    let readiness = Readiness::builder().stack(app, order()).start(&shutdown).unwrap();
    assert_eq!(said(), None);
    metrics.tell_readiness(&readiness);
    assert_eq!(said().as_deref(), Some("oneclock_ready 0"), "the first run is not over");
    assert!(readiness.ready().await);
    assert_eq!(said().as_deref(), Some("oneclock_ready 1"));
    shutdown.signal();
    assert_eq!(said().as_deref(), Some("oneclock_ready 0"));
}

#[tokio::test(start_paused = true)]
async fn text_is_for_who_wants_nothing_else() {
    let app = orders(&Count::default()).layer(policy().layer());
    let readiness = Readiness::builder().stack(app, order()).start(&Shutdown::new()).unwrap();
    assert!(readiness.ready().await);
    let admin = admin(&readiness);
    for (accept, text) in [
        ("text/plain", true),
        ("text/plain;q=0.9, text/html", true),
        ("*/*", false),
        ("application/json, text/plain", false),
        ("text/plain, */*;q=0.1", false),
        ("nonsense", false),
    ] {
        let (head, body) = asked(&admin, Request::get("/readyz").header("accept", accept)).await;
        assert_eq!(head.status(), StatusCode::OK);
        assert_eq!(body == "ready\n", text, "{accept}: {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn status_has_the_errors_and_readyz_has_not() {
    let app = orders(&Count::default()).layer(policy().layer());
    let fails = || async { Err::<(), _>(std::io::Error::other("db-7.internal refused the connection")) };
    let readiness =
        Readiness::builder().stack(app, order()).self_test("postgres", fails).start(&Shutdown::new()).unwrap();
    crate::support::first(&readiness, "self_tests", "postgres").await;
    let admin = admin(&readiness);
    let (head, status) = asked(&admin, Request::get("/status")).await;
    assert_eq!(head.status(), StatusCode::OK, "a status is no verdict");
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["ready"], false);
    assert_eq!(status["self_tests"][0]["said"], "db-7.internal refused the connection");
    assert_eq!(status["stacks"][0]["shown"], "kept");
    assert_eq!(status["zombies"]["total"].as_u64(), Some(0));
    let (_, readyz) = asked(&admin, Request::get("/readyz")).await;
    assert!(!readyz.contains("db-7"), "{readyz}");
    assert!(readyz.contains("self-test postgres: not proven since the start"), "{readyz}");
}

#[tokio::test(start_paused = true)]
async fn only_questions_are_answered() {
    let app = orders(&Count::default()).layer(policy().layer());
    let readiness = Readiness::builder().stack(app, order()).start(&Shutdown::new()).unwrap();
    let admin = admin(&readiness);
    for path in ["/readyz", "/status"] {
        let (head, _) = asked(&admin, Request::post(path)).await;
        assert_eq!(
            (head.status(), &head.headers()[header::ALLOW]),
            (StatusCode::METHOD_NOT_ALLOWED, &"GET, HEAD".parse().unwrap())
        );
        let (head, _) = asked(&admin, Request::head(path)).await; // hyper leaves its body out
        assert_ne!(head.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}
