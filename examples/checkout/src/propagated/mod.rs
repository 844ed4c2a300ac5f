//! The shop with one budget: the same services and the same statements; every layer spends from the tap's time.

mod callee;
mod database;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request};
use axum::routing::post;
use bytes::Bytes;
use http_body_util::Full;
use oneclock::events::Observer;
use oneclock::{Operation, Shutdown};
use oneclock_axum::{Op, PolicyExt as _, Problem, successful};
use oneclock_core::{Policy, Trust};
use oneclock_http::{Client, collect, serve};
use oneclock_idempotency::{Idempotency, IdempotencyKey};
use oneclock_sqlite::IdempotencyStore;
use oneclock_tonic::{OrStatus as _, PolicyExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use callee::Callee;
use database::Database;

use crate::independent::Lines;
use crate::ledgers::Ledgers;
use crate::purchase::{Service, TRY, Try};
use crate::rpc;
use crate::stand::Stand;
use crate::story::{Mistake, Story};
use crate::transport::Transport;
use crate::trouble::Trouble;
use crate::watched::Observers;
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
    pricing: Callee,
    recommendations: Client,
    payment: Callee,
    keys: bool,
    reserve: std::time::Duration,
    silent: Lines,
}

#[derive(Clone)]
struct Gateway {
    timed: Timed,
    order: Client,
}

pub(crate) async fn open(
    story: &Story,
    transport: Transport,
    stands: &Stands,
    observers: &Observers,
) -> Result<Shop, ShopClosed> {
    let shop = Shop {
        app: client(Service::Gateway, "http://127.0.0.1:9")?, // until it is open
        addresses: Addresses::default(),
        ledgers: Arc::default(),
        databases: Vec::new(),
        shutdown: Shutdown::new(),
        servers: JoinSet::new(),
    };
    shop.opened(story, transport, stands, observers).await
}

fn client(service: Service, url: &str) -> Result<Client, ShopClosed> {
    Client::builder(service.name(), url).trust(Trust::Inside).build().map_err(ShopClosed::not_started)
}

/// One call within the current operation's budget.
pub(crate) async fn ask(client: &Client, service: Service, of: Try) -> Result<(), BoxError> {
    send(client, Request::post(service.path()).header(TRY, of.to_field())).await
}

async fn send(client: &Client, request: http::request::Builder) -> Result<(), BoxError> {
    let answer = successful(client.request(request.body(Full::<Bytes>::default())?).await?)?;
    collect(answer.into_body(), 1_024).await?;
    Ok(())
}

/// Inventory, pricing, recommendations, payment: the statements, then the answer.
async fn leaf(Op(op): Op, State(timed): State<Timed>, headers: HeaderMap) -> Result<Body, Problem> {
    timed.serve(&op, Try::of(&headers)).await.map_err(Problem::of)
}

/// Pricing and payment over gRPC: the same.
async fn called(Op(op): Op, State(timed): State<Timed>, request: Request<Body>) -> http::Response<tonic::body::Body> {
    let work = async |of| timed.work(&op, of).await.or_status();
    rpc::answer(timed.stand.service, request, work).await
}

/// Order: asks the three, has the money taken, writes the order down.
async fn order(Op(op): Op, State(order): State<Order>, headers: HeaderMap) -> Result<Body, Problem> {
    let of = Try::of(&headers);
    order.timed.ledgers.belongs(&op, of);
    if order.timed.stand.control.forwards_nothing() {
        place_silently(order.silent.clone(), of).await?;
    } else {
        let (_kept, _price, _extras) = op
            .fan_out()
            .reserve(order.reserve) // for the payment, and for the way home
            .required("inventory", |_| ask(&order.inventory, Service::Inventory, of))
            .required("pricing", |_| order.pricing.ask(of, None))
            .optional("recommendations", |_| ask(&order.recommendations, Service::Recommendations, of))
            .await?;
        order.pay(of).await.map_err(Problem::of)?;
    }
    order.timed.serve(&op, of).await.map_err(Problem::of)
}

/// Gateway: writes down that somebody asked, asks the order service, passes its answer on.
async fn checkout(Op(op): Op, State(gateway): State<Gateway>, headers: HeaderMap) -> Result<Body, Problem> {
    let of = Try::of(&headers);
    let trouble = gateway.timed.work(&op, of).await.map_err(Problem::of)?;
    ask(&gateway.order, Service::Order, of).await.map_err(Problem::of)?;
    Ok(gateway.timed.stand.answer(trouble))
}

/// While the order service forwards nothing it calls plainly, and from a task that nobody ends.
async fn place_silently(lines: Lines, of: Try) -> Result<(), Problem> {
    let work = tokio::spawn(async move {
        let (inventory, pricing, _extras) = tokio::join!(
            lines.ask(Service::Inventory, of),
            lines.ask(Service::Pricing, of),
            lines.ask(Service::Recommendations, of),
        );
        inventory.and(pricing)?;
        lines.ask(Service::Payment, of).await
    });
    let done = work.await.map_err(Problem::of)?;
    done.map_err(|_| oneclock_http::Problem::call_failed().into())
}

/// One charge for each key, in a run of its own that nobody's leaving ends; whoever asks again gets its answer.
fn keys(
    story: &Story,
    stands: &Stands,
    observer: Arc<dyn Observer>,
) -> Result<Idempotency<IdempotencyStore>, ShopClosed> {
    let store = IdempotencyStore::builder(stands.keys()).build().map_err(ShopClosed::not_started)?;
    let once = Idempotency::builder("charge", store).one_principal().execution(story.limits.services).required();
    once.axum_routes().observed_by(observer).build().map_err(ShopClosed::not_started)
}

// === Shop ===

impl Shop {
    /// Callees first: a service is told where they are when it opens.
    async fn opened(
        mut self,
        story: &Story,
        transport: Transport,
        stands: &Stands,
        observers: &Observers,
    ) -> Result<Self, ShopClosed> {
        for service in Service::ALL.into_iter().rev() {
            let cap = (service == Service::Inventory).then_some(story.within.inventory_database);
            let observer = observers.of_service(service, self.ledgers.clone());
            let mut database = Database::open(stands.place(service), story.connections_of(service), cap)?;
            if service == Service::Inventory && story.mistake == Some(Mistake::DatabaseNotTold) {
                database = database.not_told(Arc::clone(&observer));
            }
            let timed = Timed { stand: stands.stand(service).clone(), database, ledgers: Arc::clone(&self.ledgers) };
            self.databases.push(timed.database.clone());
            let control = timed.stand.control.routes();
            let method = transport.method_of(service);
            let app = match service {
                Service::Gateway => {
                    let order = client(Service::Order, self.addresses.base(Service::Order))?;
                    Router::new().route(service.path(), post(checkout)).with_state(Gateway { timed, order })
                }
                Service::Order => {
                    let state = self.order(story, transport, timed)?;
                    Router::new().route(service.path(), post(order)).with_state(state)
                }
                _ => {
                    let leaf = match method {
                        Some(method) => Router::new().route(method, post(called)),
                        None => Router::new().route(service.path(), post(leaf)),
                    };
                    let leaf = leaf.with_state(timed);
                    if service == Service::Payment && story.within.keys {
                        leaf.layer(keys(story, stands, Arc::clone(&observer))?)
                    } else {
                        leaf
                    }
                }
            };
            let policy = self.policy(story, service)?;
            let app = match method {
                Some(_) => rpc::or_unimplemented(app).layer(policy.grpc_layer().observed_by(observer)),
                None => app.layer(policy.layer().observed_by(observer)),
            };
            self.start(service, app.merge(control)).await?;
        }
        self.app = client(Service::Gateway, self.addresses.base(Service::Gateway))?;
        Ok(self)
    }

    fn order(&self, story: &Story, transport: Transport, timed: Timed) -> Result<Order, ShopClosed> {
        let recommendations = Service::Recommendations;
        Ok(Order {
            timed,
            inventory: client(Service::Inventory, self.addresses.base(Service::Inventory))?,
            pricing: Callee::pricing(transport, &self.addresses)?,
            // Optional, so its limit is short, as it is with independent timeouts. It covers the body, too.
            recommendations: Client::builder(recommendations.name(), self.addresses.base(recommendations))
                .trust(Trust::Inside)
                .cap(story.limits.recommendations)
                .build()
                .map_err(ShopClosed::not_started)?,
            payment: Callee::payment(story, transport, &self.addresses)?,
            keys: story.within.keys,
            reserve: story.within.reserve,
            silent: Lines::to(&self.addresses, transport, None)?,
        })
    }

    fn policy(&self, story: &Story, service: Service) -> Result<Policy, ShopClosed> {
        let limit = if service == Service::Gateway { story.limits.gateway } else { story.limits.services };
        let absent = if service == Service::Pricing { story.within.absent } else { story.patience };
        let policy = Policy::named(service.name()).when_absent(absent.min(limit)).ceiling(limit).build();
        policy.map_err(ShopClosed::not_started)
    }

    async fn start(&mut self, service: Service, app: Router) -> Result<(), ShopClosed> {
        // The gateway's callers are outside; a service's are services of ours.
        let trust = if service == Service::Gateway { Trust::Outside } else { Trust::Inside };
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
    async fn pay(&self, of: Try) -> Result<(), BoxError> {
        let key = self.keys.then(IdempotencyKey::new); // one for this charge, the same for each of its attempts
        self.payment.ask(of, key).await
    }
}

// === Timed ===

impl Timed {
    async fn serve(&self, op: &Operation, of: Try) -> Result<Body, BoxError> {
        let trouble = self.work(op, of).await?;
        Ok(self.stand.answer(trouble))
    }

    async fn work(&self, op: &Operation, of: Try) -> Result<Trouble, BoxError> {
        self.ledgers.belongs(op, of);
        let trouble = self.stand.control.trouble_for(of);
        if trouble.fail {
            let status = http::StatusCode::INTERNAL_SERVER_ERROR;
            return Err(oneclock_http::Problem::with_status(status, "told to fail").into());
        }
        self.database.work(op, &self.stand, of, trouble).await?;
        Ok(trouble)
    }
}
