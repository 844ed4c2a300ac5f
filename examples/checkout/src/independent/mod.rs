//! The shop with independent timeouts: axum, tower-http, hyper's client, rusqlite on blocking threads or
//! deadpool-postgres, as everybody puts them together.
//!
//! Nothing here is badly written. Each layer has a limit (the call to pricing has none, as is common), and hyper drops a
//! handler whose caller closed its connection. What is missing is that anybody downstream knows of the tap's time, and
//! that a statement knows of anything.

mod database;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower_http::timeout::TimeoutLayer;

use database::Database;

use crate::purchase::{Service, TRY, Try};
use crate::stand::Stand;
use crate::story::{Limits, Story};
use crate::trouble::Trouble;
use crate::{Addresses, ShopClosed, Stands};

pub(crate) type PlainClient = Client<HttpConnector, Full<Bytes>>;

/// The services; closed when dropped.
pub(crate) struct Shop {
    pub(crate) addresses: Addresses,
    _servers: JoinSet<()>,
}

/// One service with its database.
#[derive(Clone)]
struct Plain {
    stand: Stand,
    database: Database,
}

#[derive(Clone)]
struct Order {
    plain: Plain,
    client: PlainClient,
    addresses: Addresses,
    limits: Limits,
}

#[derive(Clone)]
struct Gateway {
    plain: Plain,
    client: PlainClient,
    order: String,
}

pub(crate) fn plain_client() -> PlainClient {
    Client::builder(TokioExecutor::new()).build_http()
}

pub(crate) async fn open(story: &Story, stands: &Stands) -> Result<Shop, ShopClosed> {
    let mut servers = JoinSet::new();
    let mut addresses = Addresses::default();
    let client = plain_client();
    // Callees first: a service is told where they are when it opens.
    for service in Service::ALL.into_iter().rev() {
        let plain = Plain {
            stand: stands.stand(service).clone(),
            database: Database::open(stands.place(service), story.connections_of(service))?,
        };
        let control = plain.stand.control.routes();
        let limit = match service {
            Service::Gateway => story.limits.gateway,
            Service::Pricing => story.limits.pricing,
            _ => story.limits.services,
        };
        let app = match service {
            Service::Gateway => Router::new().route(service.path(), post(checkout)).with_state(Gateway {
                plain,
                client: client.clone(),
                order: addresses.of(Service::Order),
            }),
            Service::Order => Router::new().route(service.path(), post(order)).with_state(Order {
                plain,
                client: client.clone(),
                addresses: addresses.clone(),
                limits: story.limits,
            }),
            _ => Router::new().route(service.path(), post(leaf)).with_state(plain),
        };
        let app = app.layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, limit)).merge(control);
        addresses.insert(service, serve(&mut servers, app).await?);
    }
    Ok(Shop { addresses, _servers: servers })
}

async fn serve(servers: &mut JoinSet<()>, app: Router) -> Result<String, ShopClosed> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(ShopClosed::no_socket)?;
    let address = listener.local_addr().map_err(ShopClosed::no_socket)?;
    servers.spawn(async move {
        // Runs until the shop is dropped; there is nobody left to tell of an error then.
        let _ = axum::serve(listener, app).await;
    });
    Ok(format!("http://{address}"))
}

/// One plain call; no limit of its own.
pub(crate) async fn ask(client: &PlainClient, url: &str, of: Try) -> Option<Bytes> {
    let answer = head(client, url, of).await?;
    Some(answer.collect().await.ok()?.to_bytes())
}

async fn head(client: &PlainClient, url: &str, of: Try) -> Option<hyper::body::Incoming> {
    let request = Request::post(url).header(TRY, of.to_field()).body(Full::default()).ok()?;
    let answer = client.request(request).await.ok()?;
    (answer.status() == StatusCode::OK).then(|| answer.into_body())
}

/// Inventory, pricing, recommendations, payment: the statements, then the answer.
async fn leaf(State(plain): State<Plain>, headers: HeaderMap) -> Result<Body, StatusCode> {
    plain.serve(Try::of(&headers)).await
}

/// Order: asks the three, has the money taken, writes the order down.
async fn order(State(order): State<Order>, headers: HeaderMap) -> Result<Body, StatusCode> {
    let of = Try::of(&headers);
    if order.plain.stand.control.forwards_nothing() {
        // An older service, that does its work in tasks of their own: whoever asked may go, they do not.
        let work = tokio::spawn(async move { order.place(of).await });
        return work.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    }
    order.place(of).await
}

/// Gateway: writes down that somebody asked, asks the order service, passes its answer on.
async fn checkout(State(gateway): State<Gateway>, headers: HeaderMap) -> Result<Body, StatusCode> {
    let of = Try::of(&headers);
    let trouble = gateway.plain.work(of).await?;
    ask(&gateway.client, &gateway.order, of).await.ok_or(StatusCode::BAD_GATEWAY)?;
    Ok(gateway.plain.stand.answer(trouble))
}

// === Order ===

impl Order {
    async fn place(&self, of: Try) -> Result<Body, StatusCode> {
        tokio::try_join!(
            async {
                self.ask_within(self.limits.services, Service::Inventory, of).await.ok_or(StatusCode::BAD_GATEWAY)
            },
            // Somebody forgot its limit.
            async { self.ask(Service::Pricing, of).await.ok_or(StatusCode::BAD_GATEWAY) },
            async { Ok(self.recommendations(of).await) },
        )?;
        self.pay(of).await.ok_or(StatusCode::BAD_GATEWAY)?;
        self.plain.serve(of).await
    }

    /// Tries as often as somebody has configured: payment is important.
    async fn pay(&self, of: Try) -> Option<Bytes> {
        for _ in 1..self.limits.payment_tries {
            if let Some(paid) = self.ask_within(self.limits.payment, Service::Payment, of).await {
                return Some(paid);
            }
        }
        self.ask_within(self.limits.payment, Service::Payment, of).await
    }

    /// Optional, so its limit is short. It covers the head, as the timeouts of most clients and middlewares do.
    async fn recommendations(&self, of: Try) -> Option<Bytes> {
        let url = self.addresses.of(Service::Recommendations);
        let answer = timeout(self.limits.recommendations, head(&self.client, &url, of)).await.ok()??;
        Some(answer.collect().await.ok()?.to_bytes())
    }

    async fn ask_within(&self, limit: Duration, service: Service, of: Try) -> Option<Bytes> {
        timeout(limit, self.ask(service, of)).await.ok()?
    }

    async fn ask(&self, service: Service, of: Try) -> Option<Bytes> {
        ask(&self.client, &self.addresses.of(service), of).await
    }
}

// === Plain ===

impl Plain {
    async fn serve(&self, of: Try) -> Result<Body, StatusCode> {
        let trouble = self.work(of).await?;
        Ok(self.stand.answer(trouble))
    }

    async fn work(&self, of: Try) -> Result<Trouble, StatusCode> {
        let trouble = self.stand.control.trouble_for(of);
        if trouble.fail {
            return Err(StatusCode::INTERNAL_SERVER_ERROR);
        }
        let done = self.database.work(&self.stand, of, trouble).await;
        done.map(|()| trouble).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
    }
}
