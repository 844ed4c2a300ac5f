//! The shop with independent timeouts: axum, tower-http and hyper's client, as everybody puts them together.
//!
//! Nothing here is badly written. Each layer has a limit (the call to pricing has none, as is common), and hyper drops a
//! handler whose caller closed its connection. What is missing is that anybody downstream knows of the tap's time.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::get;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower_http::timeout::TimeoutLayer;

use crate::ShopClosed;
use crate::story::Story;
use crate::witness::{TRY, Try, Witness};

pub(crate) type PlainClient = Client<HttpConnector, Empty<Bytes>>;

/// The three services; closed when dropped.
pub(crate) struct Shop {
    pub(crate) gateway: String,
    _servers: JoinSet<()>,
}

#[derive(Clone)]
struct Next {
    client: PlainClient,
    url: String,
}

#[derive(Clone)]
struct Pricing {
    story: Story,
    witness: Arc<Witness>,
    workers: Arc<Semaphore>,
}

pub(crate) fn plain_client() -> PlainClient {
    Client::builder(TokioExecutor::new()).build_http()
}

pub(crate) async fn open(story: &Story, witness: &Arc<Witness>) -> Result<Shop, ShopClosed> {
    let mut servers = JoinSet::new();
    let pricing = Pricing {
        story: story.clone(),
        witness: Arc::clone(witness),
        workers: Arc::new(Semaphore::new(story.workers)),
    };
    let pricing = Router::new().route("/price", get(price)).with_state(pricing).layer(limit(story.services));
    let pricing = serve(&mut servers, pricing).await?;

    let next = Next { client: plain_client(), url: format!("{pricing}/price") };
    let order = Router::new().route("/order", get(pass_on)).with_state(next).layer(limit(story.services));
    let order = serve(&mut servers, order).await?;

    let next = Next { client: plain_client(), url: format!("{order}/order") };
    let gateway = Router::new().route("/checkout", get(pass_on)).with_state(next).layer(limit(story.gateway));
    let gateway = serve(&mut servers, gateway).await?;
    Ok(Shop { gateway: format!("{gateway}/checkout"), _servers: servers })
}

fn limit(limit: Duration) -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, limit)
}

async fn serve(servers: &mut JoinSet<()>, app: Router) -> Result<String, ShopClosed> {
    let closed = |source: std::io::Error| ShopClosed { what: "no loopback socket", source: source.into() };
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(closed)?;
    let address = listener.local_addr().map_err(closed)?;
    servers.spawn(async move {
        // Runs until the shop is dropped; there is nobody left to tell of an error then.
        let _ = axum::serve(listener, app).await;
    });
    Ok(format!("http://{address}"))
}

/// Gateway and order: ask the next service, pass its answer on.
async fn pass_on(State(next): State<Next>, headers: HeaderMap) -> Result<Bytes, StatusCode> {
    ask(&next.client, &next.url, Try::of(&headers)).await.ok_or(StatusCode::BAD_GATEWAY)
}

/// One plain call; no limit of its own.
pub(crate) async fn ask(client: &PlainClient, url: &str, of: Try) -> Option<Bytes> {
    let request = Request::get(url).header(TRY, of.to_field()).body(Empty::new()).ok()?;
    let response = client.request(request).await.ok()?;
    if response.status() != StatusCode::OK {
        return None;
    }
    Some(response.into_body().collect().await.ok()?.to_bytes())
}

/// Pricing: waits for a worker, then works on a blocking thread.
async fn price(State(pricing): State<Pricing>, headers: HeaderMap) -> Result<Body, StatusCode> {
    let of = Try::of(&headers);
    let closed = |_| StatusCode::SERVICE_UNAVAILABLE;
    let worker = Arc::clone(&pricing.workers).acquire_owned().await.map_err(closed)?;
    let takes = pricing.story.price_takes(pricing.witness.load_has_run(), of.slow_article);
    let working = pricing.witness.begins(of);
    let priced = tokio::task::spawn_blocking(move || {
        std::thread::sleep(takes); // a statement, a compression, a rule engine: nothing that can be dropped
        working.finished();
        drop(worker);
    });
    priced.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(Body::from("12.90"))
}
