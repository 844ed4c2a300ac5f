//! What a callee tells of its ledger, who sees it, and whose is believed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::convert::Infallible;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use oneclock::events::Event;
use oneclock::{Operation, operation::Kind};
use oneclock_core::wire::server_timing::Account;
use oneclock_core::{Policy, Stage, Trust};
use oneclock_http::{Client, IngressLayer, Upload, serve};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt as _};

const COPIED: &str = "db;dur=53, oneclock;desc=below;dur=8, queue;dur=5, unaccounted;dur=3, left;dur=2, app;dur=1";

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn layer(name: &'static str, trust: Trust) -> IngressLayer {
    IngressLayer::new(Policy::named(name).when_absent(ms(800)).build().unwrap()).trust(trust)
}

/// The head of the answer of a handler under this layer, in memory.
async fn head<F>(
    layer: IngressLayer,
    content_type: Option<&str>,
    handler: impl Fn() -> F + Clone,
) -> http::response::Parts
where
    F: Future<Output = Response<Full<Bytes>>>,
{
    let service = ServiceBuilder::new().layer(layer).service_fn(move |_: Request<Upload<Full<Bytes>>>| {
        let answer = handler();
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut request = Request::post("/shop.Stock/Look").version(http::Version::HTTP_2).body(Full::default()).unwrap();
    if let Some(content_type) = content_type {
        request.headers_mut().insert("content-type", content_type.parse().unwrap());
    }
    service.oneshot(request).await.unwrap().into_parts().0
}

fn timings(headers: &HeaderMap) -> Vec<String> {
    headers.get_all("server-timing").iter().map(|value| value.to_str().unwrap().to_owned()).collect()
}

/// 180 ms for a turn, 20 ms of its own.
async fn works() -> Response<Full<Bytes>> {
    let op = Operation::current().unwrap();
    {
        let _turn = op.spend("turn", Stage::Queue);
        tokio::time::sleep(ms(180)).await;
    }
    tokio::time::sleep(ms(20)).await;
    Response::builder().header("server-timing", COPIED).body(Full::default()).unwrap()
}

async fn stalls() -> Response<Full<Bytes>> {
    works().await;
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn a_trusted_caller_is_told_where_the_time_went_if_the_layer_tells() {
    let told = head(layer("stock", Trust::Inside).server_timing(), None, works).await;
    assert_eq!(
        timings(&told.headers),
        ["db;dur=53, app;dur=1", "oneclock;desc=stock;dur=200, turn;dur=180, unaccounted;dur=20, left;dur=600"]
    );
    let late = head(layer("stock", Trust::Inside).server_timing(), None, stalls).await;
    assert_eq!(late.status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(timings(&late.headers), ["oneclock;desc=stock;dur=800, turn;dur=180, unaccounted;dur=620, left;dur=0"]);
    let rpc = head(layer("stock", Trust::Inside).server_timing(), Some("application/grpc"), stalls).await;
    assert_eq!((rpc.status, rpc.headers["grpc-status"].as_bytes()), (StatusCode::OK, &b"4"[..]));
    assert_eq!(timings(&rpc.headers), timings(&late.headers));
    let silent = head(layer("stock", Trust::Inside), None, works).await;
    assert_eq!(timings(&silent.headers), ["db;dur=53, app;dur=1"], "what a child told is no account of this service");
}

#[tokio::test(start_paused = true)]
async fn an_outsider_is_told_nothing_also_nothing_that_was_copied() {
    for layer in [layer("stock", Trust::Outside).server_timing(), layer("stock", Trust::Outside)] {
        let answer = head(layer.clone(), None, works).await;
        assert_eq!(timings(&answer.headers), ["db;dur=53, app;dur=1"], "a handler's own entries are its own business");
        let late = head(layer, None, stalls).await;
        assert_eq!((late.status, timings(&late.headers)), (StatusCode::GATEWAY_TIMEOUT, Vec::new()));
    }
}

/// A parent and its child over real sockets: what the child told stands in the parent's event, ledger and error.
async fn parent_and_child(
    destination: Trust,
    child: IngressLayer,
    path: &'static str,
) -> (Vec<Option<Account>>, String, Vec<String>) {
    let handler = |path: http::Uri| async move {
        let op = Operation::current().unwrap();
        drop(op.spend("rows", Stage::Work));
        if path.path() == "/stalls" {
            std::future::pending::<()>().await;
        }
        "some"
    };
    let child = listening(Router::new().fallback(any(handler)).layer(AxumLayer(child))).await;
    let seen: Arc<Mutex<(Vec<Option<Account>>, String)>> = Arc::default();
    let observer = {
        let seen = seen.clone();
        move |event: &Event<'_>| {
            let mut seen = seen.lock().unwrap();
            match event {
                Event::Called(called) => seen.0.push(called.below.clone()),
                Event::Ended(ended) if ended.kind == Kind::Begun => seen.1 = ended.to_string(),
                _ => {}
            }
        }
    };
    let op = Operation::begin("order", ms(5_000)).observed_by(Arc::new(observer));
    let stock = Client::builder("stock", format!("http://{child}")).cap(ms(300)).trust(destination).build().unwrap();
    let answer = op.run(stock.get(path)).await.unwrap();
    let headers = match answer {
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            body.collect().await.unwrap();
            timings(&head.headers)
        }
        Err(error) => panic!("{error}"),
    };
    drop(op);
    let seen = seen.lock().unwrap().clone();
    (seen.0, seen.1, headers)
}

async fn listening(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, app).into_future());
    addr
}

/// An ingress layer for a router, whose services take axum's body.
#[derive(Clone)]
struct AxumLayer(IngressLayer);

impl<S> tower_layer::Layer<S> for AxumLayer
where
    S: Clone,
{
    type Service = oneclock_http::Ingress<tower::util::MapRequest<S, fn(Request<Upload<Body>>) -> Request<Body>>>;

    fn layer(&self, inner: S) -> Self::Service {
        let map: fn(Request<Upload<Body>>) -> Request<Body> = |request| request.map(Body::new);
        self.0.layer(tower::util::MapRequest::new(inner, map))
    }
}

#[tokio::test]
async fn a_parent_reads_its_childs_ledger_with_no_tracing_at_all() {
    let (below, ended, _) = parent_and_child(Trust::Inside, layer("stock", Trust::Inside).server_timing(), "/").await;
    let [Some(account)] = &below[..] else { panic!("{below:?}") };
    assert_eq!((account.operation.as_str(), account.spent[0].name.as_str()), ("stock", "rows"));
    assert!(account.took + account.left <= ms(300) + ms(1), "{account}");
    assert!(ended.contains("spent: stock ") && ended.contains("(stock ") && ended.contains("rows "), "{ended}");
}

#[tokio::test]
async fn a_504_of_a_child_says_where_its_time_went() {
    let layer = IngressLayer::new(Policy::named("stock").when_absent(ms(60)).ceiling(ms(60)).build().unwrap());
    let layer = layer.trust(Trust::Inside).server_timing();
    let (below, ended, _) = parent_and_child(Trust::Inside, layer, "/stalls").await;
    let [Some(account)] = &below[..] else { panic!("{below:?}") };
    assert!(account.left.is_zero() && account.took >= ms(60), "{account}");
    assert!(ended.contains("left 0ns)"), "{ended}");
}

#[tokio::test]
async fn what_an_outsider_tells_is_neither_believed_nor_passed_on() {
    let (below, ended, headers) =
        parent_and_child(Trust::Outside, layer("stock", Trust::Inside).server_timing(), "/").await;
    assert_eq!((below, headers), (vec![None], Vec::<String>::new()));
    assert!(!ended.contains("rows"), "{ended}");
}
