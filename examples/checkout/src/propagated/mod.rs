//! The shop with one budget: the same services and the same statements; every layer spends from the tap's time.

mod database;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use bytes::Bytes;
use http_body_util::Full;
use oneclock::{Operation, Shutdown};
use oneclock_axum::{Op, PolicyExt as _, Problem, successful};
use oneclock_core::retry::RetryPolicy;
use oneclock_core::{Policy, Trust};
use oneclock_http::{Client, collect, serve};
use oneclock_idempotency::{Idempotency, IdempotencyKey, names};
use oneclock_sqlite::IdempotencyStore;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use database::Database;

use crate::independent::{PlainClient, ask as ask_plainly, plain_client};
use crate::ledgers::Ledgers;
use crate::purchase::{Service, TRY, Try};
use crate::stand::Stand;
use crate::story::Story;
use crate::trouble::Trouble;
use crate::{Addresses, BoxError, ShopClosed, Stands};

/// The services.
pub(crate) struct Shop {
    pub(crate) app: Client,
    pub(crate) addresses: Addresses,
    pub(crate) ledgers: Arc<Ledgers>,
    databases: Vec<Database>,
    shutdown: Shutdown,
    servers: JoinSet<()>,
}

/// One service with its database.
#[derive(Clone)]
struct Timed {
    stand: Stand,
    database: Database,
    ledgers: Arc<Ledgers>,
}

#[derive(Clone)]
struct Order {
    timed: Timed,
    inventory: Client,
    pricing: Client,
    recommendations: Client,
    payment: Client,
    keys: bool,
    reserve: std::time::Duration,
    silent: Silent,
}

#[derive(Clone)]
struct Gateway {
    timed: Timed,
    order: Client,
}

/// How the order service calls while it forwards nothing: plainly, and from a task that nobody ends.
#[derive(Clone)]
struct Silent {
    client: PlainClient,
    addresses: Addresses,
}

pub(crate) async fn open(story: &Story, stands: &Stands) -> Result<Shop, ShopClosed> {
    let shop = Shop {
        app: client(Service::Gateway, "http://127.0.0.1:9")?, // until it is open
        addresses: Addresses::default(),
        ledgers: Arc::default(),
        databases: Vec::new(),
        shutdown: Shutdown::new(),
        servers: JoinSet::new(),
    };
    shop.opened(story, stands).await
}

fn client(service: Service, url: &str) -> Result<Client, ShopClosed> {
    Client::builder(service.name(), url).trust(Trust::Inside).build().map_err(ShopClosed::not_started)
}

/// One call within the current operation's budget.
pub(crate) async fn ask(client: &Client, service: Service, of: Try) -> Result<Bytes, BoxError> {
    send(client, http::Request::post(service.path()).header(TRY, of.to_field())).await
}

async fn send(client: &Client, request: http::request::Builder) -> Result<Bytes, BoxError> {
    let answer = successful(client.request(request.body(Full::<Bytes>::default())?).await?)?;
    Ok(collect(answer.into_body(), 1_024).await?)
}

/// Inventory, pricing, recommendations, payment: the statements, then the answer.
async fn leaf(Op(op): Op, State(timed): State<Timed>, headers: HeaderMap) -> Result<Body, Problem> {
    timed.serve(&op, Try::of(&headers)).await
}

/// Order: asks the three, has the money taken, writes the order down.
async fn order(Op(op): Op, State(order): State<Order>, headers: HeaderMap) -> Result<Body, Problem> {
    let of = Try::of(&headers);
    order.timed.ledgers.belongs(&op, of);
    if order.timed.stand.control.forwards_nothing() {
        order.silent.place(of).await?;
    } else {
        let (_kept, _price, _extras) = op
            .fan_out()
            .reserve(order.reserve) // for the payment, and for the way home
            .required("inventory", |_| ask(&order.inventory, Service::Inventory, of))
            .required("pricing", |_| ask(&order.pricing, Service::Pricing, of))
            .optional("recommendations", |_| ask(&order.recommendations, Service::Recommendations, of))
            .await?;
        order.pay(of).await.map_err(Problem::of)?;
    }
    order.timed.serve(&op, of).await
}

/// Gateway: writes down that somebody asked, asks the order service, passes its answer on.
async fn checkout(Op(op): Op, State(gateway): State<Gateway>, headers: HeaderMap) -> Result<Body, Problem> {
    let of = Try::of(&headers);
    let trouble = gateway.timed.work(&op, of).await?;
    ask(&gateway.order, Service::Order, of).await.map_err(Problem::of)?;
    Ok(gateway.timed.stand.answer(trouble))
}

/// The client for payment: with keys it may try again, as often and as long as with independent timeouts.
fn payment(story: &Story, url: &str) -> Result<Client, ShopClosed> {
    let mut client = Client::builder(Service::Payment.name(), url).trust(Trust::Inside);
    if story.within.keys {
        let policy = RetryPolicy::new().attempts(story.limits.payment_tries).per_try(story.limits.payment);
        client = client.retry(policy.enforces_keys().build().map_err(ShopClosed::not_started)?);
    }
    client.build().map_err(ShopClosed::not_started)
}

/// One charge for each key, in a run of its own that nobody's leaving ends; whoever asks again gets its answer.
fn keys(story: &Story, stands: &Stands) -> Result<Idempotency<IdempotencyStore>, ShopClosed> {
    let store = IdempotencyStore::builder(stands.keys()).build().map_err(ShopClosed::not_started)?;
    let once = Idempotency::builder("charge", store).one_principal().execution(story.limits.services).required();
    once.build().map_err(ShopClosed::not_started)
}

// === Shop ===

impl Shop {
    /// Callees first: a service is told where they are when it opens.
    async fn opened(mut self, story: &Story, stands: &Stands) -> Result<Self, ShopClosed> {
        for service in Service::ALL.into_iter().rev() {
            let cap = (service == Service::Inventory).then_some(story.within.inventory_database);
            let timed = Timed {
                stand: stands.stand(service).clone(),
                database: Database::open(stands.place(service), story.connections_of(service), cap)?,
                ledgers: Arc::clone(&self.ledgers),
            };
            self.databases.push(timed.database.clone());
            let control = timed.stand.control.routes();
            let app = match service {
                Service::Gateway => {
                    let order = client(Service::Order, self.addresses.base(Service::Order))?;
                    Router::new().route(service.path(), post(checkout)).with_state(Gateway { timed, order })
                }
                Service::Order => {
                    let state = self.order(story, timed)?;
                    Router::new().route(service.path(), post(order)).with_state(state)
                }
                Service::Payment if story.within.keys => {
                    let once = keys(story, stands)?;
                    Router::new().route(service.path(), post(leaf)).with_state(timed).layer(once)
                }
                _ => Router::new().route(service.path(), post(leaf)).with_state(timed),
            };
            self.start(story, service, app, control).await?;
        }
        self.app = client(Service::Gateway, self.addresses.base(Service::Gateway))?;
        Ok(self)
    }

    fn order(&self, story: &Story, timed: Timed) -> Result<Order, ShopClosed> {
        let client = |service| client(service, self.addresses.base(service));
        let recommendations = Service::Recommendations;
        Ok(Order {
            timed,
            inventory: client(Service::Inventory)?,
            pricing: client(Service::Pricing)?,
            // Optional, so its limit is short, as it is with independent timeouts. It covers the body, too.
            recommendations: Client::builder(recommendations.name(), self.addresses.base(recommendations))
                .trust(Trust::Inside)
                .cap(story.limits.recommendations)
                .build()
                .map_err(ShopClosed::not_started)?,
            payment: payment(story, self.addresses.base(Service::Payment))?,
            keys: story.within.keys,
            reserve: story.within.reserve,
            silent: Silent { client: plain_client(), addresses: self.addresses.clone() },
        })
    }

    async fn start(&mut self, story: &Story, service: Service, app: Router, control: Router) -> Result<(), ShopClosed> {
        // The gateway's callers are outside; a service's are services of ours.
        let (trust, limit) = match service {
            Service::Gateway => (Trust::Outside, story.limits.gateway),
            _ => (Trust::Inside, story.limits.services),
        };
        let absent = if service == Service::Pricing { story.within.absent } else { story.patience };
        let policy = Policy::named(service.name()).when_absent(absent.min(limit)).ceiling(limit).build();
        let layer = policy.map_err(ShopClosed::not_started)?.layer().observed_by(self.ledgers.clone());
        let app = app.layer(layer).merge(control);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(ShopClosed::no_socket)?;
        let address = listener.local_addr().map_err(ShopClosed::no_socket)?;
        let server = serve(listener, app).trust(trust).with_shutdown(&self.shutdown);
        self.servers.spawn(async move {
            // Runs until the shutdown; there is nobody left to tell of an error then.
            let _ = server.await;
        });
        self.addresses.insert(service, format!("http://{address}"));
        Ok(())
    }

    pub(crate) async fn close(mut self) {
        self.shutdown.signal();
        while self.servers.join_next().await.is_some() {}
        for database in &self.databases {
            database.close().await;
        }
    }
}

// === Order ===

impl Order {
    async fn pay(&self, of: Try) -> Result<Bytes, BoxError> {
        let mut request = http::Request::post(Service::Payment.path()).header(TRY, of.to_field());
        if self.keys {
            let key = IdempotencyKey::new(); // one for this charge, the same for each of its attempts
            request = request.header(names::KEY, key.as_str());
        }
        send(&self.payment, request).await
    }
}

// === Timed ===

impl Timed {
    async fn serve(&self, op: &Operation, of: Try) -> Result<Body, Problem> {
        let trouble = self.work(op, of).await?;
        Ok(self.stand.answer(trouble))
    }

    async fn work(&self, op: &Operation, of: Try) -> Result<Trouble, Problem> {
        self.ledgers.belongs(op, of);
        let trouble = self.stand.control.trouble_for(of);
        if trouble.fail {
            return Err(Problem::with_status(http::StatusCode::INTERNAL_SERVER_ERROR, "told to fail"));
        }
        self.database.work(op, &self.stand, of, trouble).await.map_err(Problem::of)?;
        Ok(trouble)
    }
}

// === Silent ===

impl Silent {
    async fn place(&self, of: Try) -> Result<(), Problem> {
        let silent = self.clone();
        let work = tokio::spawn(async move {
            let ask = async |service| ask_plainly(&silent.client, &silent.addresses.of(service), of).await;
            let (inventory, pricing, _extras) =
                tokio::join!(ask(Service::Inventory), ask(Service::Pricing), ask(Service::Recommendations));
            inventory.and(pricing)?;
            ask(Service::Payment).await
        });
        let done = work.await.map_err(Problem::of)?;
        done.map(drop).ok_or_else(|| oneclock_http::Problem::call_failed().into())
    }
}
