//! In a router: below a clock, with the key as an extractor and the route as axum matched it.

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::post;
use oneclock_idempotency::{Idempotency, IdempotencyKey, MemoryStore, NoKey, Store as _, Which};
use tower::ServiceExt as _;

use crate::support::{Names, names_told};

#[tokio::test]
async fn m8_a_router_with_keys() {
    let once = Idempotency::builder("shop", MemoryStore::new())
        .one_principal()
        .axum_routes()
        .required()
        .monitor_at("/operations")
        .build()
        .unwrap();
    let app: Router = Router::new()
        .route("/carts/{id}/pay", post(|key: IdempotencyKey| async move { format!("paid with {key}") }))
        .route("/carts/{id}/cancel", post(|key: Option<IdempotencyKey>| async move { format!("{key:?}") }))
        .route_layer(once.clone())
        .route_service("/operations/{handle}", once.monitor());
    let send = |path: &'static str| {
        let request = Request::post(path).header("idempotency-key", "tap-7").body(Body::empty()).unwrap();
        let app = app.clone();
        async move { crate::support::got(app.oneshot(request).await.unwrap().map(boxed)).await }
    };
    assert_eq!(send("/carts/1/pay").await.body, "paid with tap-7");
    assert!(send("/carts/1/pay").await.replayed);
    assert_eq!(send("/carts/2/pay").await.status, 422, "the same route, another cart");
    assert_eq!(send("/carts/1/cancel").await.body, "Some(\"tap-7\")", "another route");
    let scope = once.store().clone();
    let records = scope.list(Which::All, None, 9).await.unwrap();
    let routes: Vec<_> = records.iter().map(|(scope, _)| scope.route.to_string()).collect();
    assert_eq!(routes, ["/carts/{id}/cancel", "/carts/{id}/pay"]);
    let handle = oneclock_core::idempotency::Handle::of(&records[1].0).to_string();
    let request = Request::get(format!("/operations/{handle}")).body(Body::empty()).unwrap();
    let told = crate::support::got(app.clone().oneshot(request).await.unwrap().map(boxed)).await;
    assert!(told.body.contains("\"completed\""), "{told:?}");
}

type Once = Idempotency<MemoryStore>;

fn once() -> Once {
    Idempotency::builder("shop", MemoryStore::new()).one_principal().axum_routes().build().unwrap()
}

async fn posts(app: &Router, path: &str, key: Option<&str>) -> crate::support::Got {
    let mut request = Request::post(path);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let answer = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    crate::support::got(answer.map(boxed)).await
}

/// What a gateway serves by its fallback must not lose its protection in silence, so the layer does not pass it on by itself.
#[tokio::test]
async fn m1_a_route_layer_keeps_no_record_of_paths_that_nobody_serves_and_a_layer_does() {
    let routes = || Router::new().route("/charges", post(|| async { "charged" }));
    let (on_routes, on_all) = (once(), once());
    let app = routes().route_layer(on_routes.clone());
    assert_eq!(posts(&app, "/charges", Some("a")).await.body, "charged");
    assert_eq!(posts(&app, "/whatever", Some("b")).await.status, 404);
    assert_eq!(posts(&app, "/else", Some("b")).await.status, 404);
    assert_eq!(on_routes.store().len(), 1);

    let gateway = routes().fallback(|| async { "handed on" }).layer(on_all.clone());
    assert!(!posts(&gateway, "/whatever", Some("b")).await.replayed);
    assert!(posts(&gateway, "/whatever", Some("b")).await.replayed);
    assert_eq!(on_all.store().len(), 1);
}

#[tokio::test]
async fn a_handler_that_wants_a_key_without_a_layer_is_our_mistake_and_not_its_callers() {
    let needs = || post(|key: IdempotencyKey| async move { key.to_string() });
    let may = || post(|key: Option<IdempotencyKey>| async move { format!("{key:?}") });
    let app = Router::new()
        .route("/covered", needs())
        .route("/covered/may", may())
        .route_layer(once())
        .route("/bare/{id}", needs())
        .route("/bare/may", may());
    assert!(posts(&app, "/covered", None).await.is(400, "key_missing"));
    assert_eq!(posts(&app, "/covered/may", None).await.body, "None");
    for path in ["/bare/7", "/bare/may"] {
        for key in [None, Some("tap-7")] {
            assert!(posts(&app, path, key).await.is(500, "internal"), "{path} {key:?}");
        }
    }
    let no_layer = NoKey::NoLayer { method: http::Method::POST, route: "/bare/{id}".into() };
    assert!(no_layer.to_string().starts_with("no idempotency: no layer covers POST /bare/{id}, "), "{no_layer}");
}

/// An extractor's refusal is a definite answer to these bytes. Who fixed them asks for something else, under another key.
#[tokio::test]
async fn m7_a_refusal_of_an_extractor_is_kept_and_the_fixed_request_needs_a_key_of_its_own() {
    let pay = post(|Json(cents): Json<u32>| async move { format!("paid {cents}") });
    let app: Router = Router::new().route("/pay", pay).route_layer(once());
    let send = async |key: &str, body: &'static str| {
        let request = Request::post("/pay").header("idempotency-key", key).header("content-type", "application/json");
        let answer = app.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        crate::support::got(answer.map(boxed)).await
    };
    assert_eq!(send("tap-7", "4a9").await.status, 400);
    let again = send("tap-7", "4a9").await;
    assert_eq!((again.status, again.replayed), (400, true));
    assert!(send("tap-7", "499").await.is(422, "key_reused"));
    assert_eq!(send("tap-8", "499").await.body, "paid 499");
}

/// A layer, and the names under which its events were told.
fn told_of() -> (Once, Names) {
    let (observer, told) = names_told();
    let builder = Idempotency::builder("shop", MemoryStore::new()).one_principal().axum_routes().observed_by(observer);
    (builder.build().unwrap(), told)
}

async fn routes_of(once: &Once) -> Vec<String> {
    let records = once.store().list(Which::All, None, 99).await.unwrap();
    records.into_iter().map(|(scope, _)| scope.route.to_string()).collect()
}

fn speaking(path: &str, content_type: &str, key: &str) -> Request<Body> {
    let request = Request::post(path).header("content-type", content_type).header("idempotency-key", key);
    request.body(Body::from("{}")).unwrap()
}

/// What a request claims to speak is its caller's to choose. The path taken for it would be another scope for one endpoint, and
/// the charge would be made twice.
#[tokio::test]
async fn m8_the_scope_is_of_the_matched_route_whatever_the_request_claims_to_speak() {
    let (once, told) = told_of();
    let app: Router = Router::new().route("/carts/{id}/pay", post(|| async { "paid" })).route_layer(once.clone());
    for content_type in ["application/json", "application/grpc", "application/grpc-web", "application/connect+json"] {
        app.clone().oneshot(speaking("/carts/1/pay", content_type, "tap-7")).await.unwrap();
    }
    assert_eq!(routes_of(&once).await, ["/carts/{id}/pay"]);
    assert_eq!(*told.lock().unwrap(), ["/carts/{id}/pay".to_owned()].into());
}

/// Features are those of the whole build: another crate that has `axum` must not change what a key is for.
#[tokio::test]
async fn m8_a_feature_changes_no_scope() {
    let once = Idempotency::builder("shop", MemoryStore::new()).one_principal().build().unwrap();
    let app = Router::new().route("/pay", post(|| async { "paid" })).route("/cancel", post(|| async { "cancelled" }));
    let app = app.route_layer(once.clone());
    assert_eq!(posts(&app, "/pay", Some("tap-7")).await.body, "paid");
    assert!(
        posts(&app, "/cancel", Some("tap-7")).await.is(422, "key_reused"),
        "one scope, and nothing runs twice in it"
    );
    assert_eq!(routes_of(&once).await, ["shop"]);
}

/// A name is a label: nobody may make new ones by asking for what is not there, with a key or with one that is malformed.
#[tokio::test]
async fn a_path_that_matched_nothing_is_no_name() {
    let (once, told) = told_of();
    let gateway = Router::new().fallback(|| async { "handed on" }).layer(once.clone());
    for n in 0..3 {
        for (content_type, key) in [("text/plain", "a"), ("application/grpc", "b"), ("application/grpc", "\"open")] {
            gateway.clone().oneshot(speaking(&format!("/any/{n}"), content_type, key)).await.unwrap();
        }
    }
    assert_eq!(*told.lock().unwrap(), ["shop".to_owned()].into());
    assert_eq!(routes_of(&once).await, ["shop", "shop"]);
}

fn boxed(body: Body) -> oneclock_idempotency::Body {
    use http_body_util::BodyExt as _;
    body.map_err(Into::into).boxed_unsync()
}
