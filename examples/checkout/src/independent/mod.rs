//! The shop with independent timeouts: axum, tower-http, hyper's client, tonic, rusqlite on blocking threads or
//! deadpool-postgres, as everybody puts them together.
//!
//! Nothing here is badly written. Each layer has a limit (the call to pricing has none over HTTP, as is common; over gRPC
//! payment is even told that of its call), and hyper drops a handler whose caller closed its connection. What is missing is
//! that anybody downstream knows of the tap's time, and that a statement knows of anything.

mod database;
mod lines;

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
use tonic::Status;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tower_http::timeout::TimeoutLayer;

use database::Database;
pub(crate) use lines::Lines;

use crate::purchase::{Service, TRY, Try};
use crate::rpc;
use crate::stand::Stand;
use crate::story::{Limits, Story};
use crate::transport::Transport;
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
    lines: Lines,
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

pub(crate) async fn open(story: &Story, transport: Transport, stands: &Stands) -> Result<Shop, ShopClosed> {
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
                lines: Lines::to(&addresses, transport, Some(story.limits.services))?,
                limits: story.limits,
            }),
            _ => match transport.method_of(service) {
                Some(method) => Router::new().route(method, post(called)).with_state(plain),
                None => Router::new().route(service.path(), post(leaf)).with_state(plain),
            },
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(ShopClosed::no_socket)?;
        let address = listener.local_addr().map_err(ShopClosed::no_socket)?;
        if transport.method_of(service).is_some() {
            serve_grpc(&mut servers, listener, rpc::or_unimplemented(app).merge(control), limit);
        } else {
            let timeout = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, limit);
            serve(&mut servers, listener, app.layer(timeout).merge(control));
        }
        addresses.insert(service, format!("http://{address}"));
    }
    Ok(Shop { addresses, _servers: servers })
}

fn serve(servers: &mut JoinSet<()>, listener: TcpListener, app: Router) {
    servers.spawn(async move {
        // Runs until the shop is dropped; there is nobody left to tell of an error then.
        let _ = axum::serve(listener, app).await;
    });
}

/// With HTTP/1 for the control endpoint.
fn serve_grpc(servers: &mut JoinSet<()>, listener: TcpListener, app: Router, limit: Duration) {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().timeout(limit).accept_http1(true).add_routes(Routes::from(app));
    servers.spawn(async move {
        let _ = server.serve_with_incoming(incoming).await; // as above
    });
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

/// Pricing and payment over gRPC: the same.
async fn called(State(plain): State<Plain>, request: Request<Body>) -> http::Response<tonic::body::Body> {
    let failed = |status: StatusCode| Status::internal(status.to_string());
    rpc::answer(plain.stand.service, request, async |of| plain.work(of).await.map_err(failed)).await
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
            self.lines.ask_within(self.limits.services, Service::Inventory, of),
            // Somebody forgot its limit; over gRPC the channel has one.
            self.lines.ask(Service::Pricing, of),
            async { Ok(self.recommendations(of).await) },
        )?;
        self.pay(of).await?;
        self.plain.serve(of).await
    }

    /// Tries as often as somebody has configured: payment is important.
    async fn pay(&self, of: Try) -> Result<(), StatusCode> {
        for _ in 1..self.limits.payment_tries {
            if self.lines.ask_within(self.limits.payment, Service::Payment, of).await.is_ok() {
                return Ok(());
            }
        }
        self.lines.ask_within(self.limits.payment, Service::Payment, of).await
    }

    /// Optional, so its limit is short. It covers the head, as the timeouts of most clients and middlewares do.
    async fn recommendations(&self, of: Try) -> Option<Bytes> {
        let answer =
            timeout(self.limits.recommendations, self.lines.head(Service::Recommendations, of)).await.ok()??;
        Some(answer.collect().await.ok()?.to_bytes())
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
