//! The demo shop: a phone app taps "buy", and gateway → order → {inventory, pricing, recommendations} → payment work for
//! it, each a real service with its own server, clients and SQLite database on loopback sockets.
//!
//! The same shop runs in two ways. With **independent timeouts** every layer has a limit that looks reasonable alone.
//! With **one budget** every layer spends from the tap's.
//!
//! | module | is |
//! |---|---|
//! | [`story`] | the scenarios: how slow, how patient, what goes wrong and when |
//! | [`purchase`] | the services, and who asks for what |
//! | [`transport`] | whether pricing and payment speak HTTP or gRPC; all else is the same |
//! | `rpc` | the calls over gRPC, as `proto/shop.proto` has them |
//! | [`trouble`] | what can be wrong with a service, and the control endpoint that makes it so |
//! | `stand` | what a service does for one request: the same statements both ways |
//! | `postgres` | the same in PostgreSQL, where it is asked for |
//! | `stands` | the services of one shop, their databases, their addresses |
//! | `independent` | the shop with independent timeouts: axum, hyper, tower-http, tonic, rusqlite as everybody uses them |
//! | `propagated` | the shop with one budget |
//! | `app` | the phone app: the seeded taps, and how long their users wait |
//! | `witness` | what really happened: every execution, and whether its caller was still there |
//! | [`watched`] | the shop with one budget under observers from outside, metrics for example |
//! | `ledgers` | the services' own accounts of one tap, as a tree |
//! | [`report`] | the figures, as they are printed |
//! | [`overload`] | a spike: a chain of three with only so many places, and what is answered in time, second by second |
//! | [`stale_queue`] | what a purchase leaves to be done goes through a queue, which nobody reads for hours |

mod app;
mod independent;
mod ledgers;
#[cfg(test)]
mod over_grpc;
pub mod overload;
mod postgres;
mod propagated;
pub mod purchase;
pub mod report;
mod rpc;
pub mod stale_queue;
mod stand;
mod stands;
pub mod story;
pub mod transport;
pub mod trouble;
pub mod watched;
mod witness;

use std::sync::Arc;
use std::time::Duration;

use app::{App, see_the_end};
use axum::http::{Request, header};
use http_body_util::Full;
use independent::{PlainClient, plain_client};
use oneclock::clock;
use postgres::{Schema, Server};
use report::{Backends, Node, Scenario, Side, Typical};
pub use stands::Addresses;
use stands::Stands;
use story::{Story, Tap};
use transport::Transport;
use trouble::Trouble;
use watched::{Moment, Observers, Truth};
use witness::Witness;

/// What can go wrong before anything is shown.
#[derive(Debug, thiserror::Error)]
#[error("the shop could not open: {what}")]
pub struct ShopClosed {
    what: &'static str,
    source: BoxError,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The shop: where it keeps its records, and what its services speak.
#[derive(Clone, Debug, Default)]
pub struct Shop {
    postgres: Option<Server>,
    transport: Transport,
}

/// The shop, open both ways, for whoever wants to try it by hand.
pub struct OpenShop {
    /// Where the services with independent timeouts are.
    pub independent: Addresses,
    /// Where the services with one budget are.
    pub propagated: Addresses,
    shops: (independent::Shop, propagated::Shop),
    stands: (Stands, Stands),
}

// === Shop ===

impl Shop {
    /// On SQLite, in files that go with it.
    pub fn on_sqlite() -> Self {
        Self::default()
    }

    /// With inventory, order and payment on the PostgreSQL server at this address, in schemas that are made when a shop
    /// opens and dropped when it closes.
    ///
    /// # Errors
    /// [`ShopClosed`], if it is no address.
    pub fn on_postgres(url: &str) -> Result<Self, ShopClosed> {
        Ok(Self { postgres: Some(Server::at(url)?), ..Self::default() })
    }

    /// The same with pricing and payment over `transport`; HTTP unless said otherwise.
    #[must_use]
    pub fn over(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// The scenarios that it can run.
    pub fn stories(&self) -> Vec<Story> {
        Story::all().into_iter().filter(|story| self.postgres.is_some() || !story.needs_postgres).collect()
    }

    /// Runs a scenario both ways under the same seeded load, and reports what happened.
    ///
    /// `progress` is told how much of the whole is done, from 0 to 1.
    ///
    /// # Errors
    /// [`ShopClosed`], if a service could not be started.
    ///
    /// # Cancel safety
    /// Dropping it closes the shop; what it has on a PostgreSQL server is left to [`sweep`](Self::sweep).
    pub async fn run(
        &self,
        story: &Story,
        seed: u64,
        progress: impl Fn(f64) + Send + Sync,
    ) -> Result<Scenario, ShopClosed> {
        let taps = story.taps(seed);
        let independent = self.independently(story, &taps, |done| progress(done / 2.0)).await?;
        let progress = |done: f64| progress(0.5 + done / 2.0);
        let propagated = self.within_one_budget(story, &taps, progress, Observers::new(), async |_| ()).await?;
        Ok(Scenario {
            name: story.name,
            scale: story.scale,
            counted: story.counted.name(),
            hopeless: story.hopeless(&taps),
            patience_ms: u64::try_from(story.patience.as_millis()).unwrap_or(u64::MAX),
            independent,
            propagated,
        })
    }

    /// Opens the shop both ways, with nothing wrong.
    ///
    /// # Errors
    /// [`ShopClosed`], if a service could not be started.
    ///
    /// # Cancel safety
    /// Dropping it closes the shop; what it has on a PostgreSQL server is left to [`sweep`](Self::sweep).
    pub async fn open(&self, story: &Story) -> Result<OpenShop, ShopClosed> {
        let stands = (
            self.stands(story, INDEPENDENT, &Arc::new(Witness::default())).await?,
            self.stands(story, PROPAGATED, &Arc::new(Witness::default())).await?,
        );
        let independent = independent::open(story, self.transport, &stands.0).await?;
        let propagated = propagated::open(story, self.transport, &stands.1, &Observers::new()).await?;
        Ok(OpenShop {
            independent: independent.addresses.clone(),
            propagated: propagated.addresses.clone(),
            shops: (independent, propagated),
            stands,
        })
    }

    /// Drops what runs that were dropped on the way have left on the PostgreSQL server.
    ///
    /// # Errors
    /// [`ShopClosed`], if the server does not let it.
    ///
    /// # Cancel safety
    /// What is not dropped yet is tried again by the next call.
    pub async fn sweep(&self) -> Result<(), ShopClosed> {
        match &self.postgres {
            Some(server) => server.sweep().await,
            None => Ok(()),
        }
    }

    async fn stands(&self, story: &Story, way: &str, witness: &Arc<Witness>) -> Result<Stands, ShopClosed> {
        Stands::set_up(story, way, self.postgres.as_ref(), witness).await
    }

    async fn independently(&self, story: &Story, taps: &[Tap], progress: impl Fn(f64)) -> Result<Side, ShopClosed> {
        let witness = Arc::new(Witness::default());
        let stands = self.stands(story, INDEPENDENT, &witness).await?;
        let shop = independent::open(story, self.transport, &stands).await?;
        let app = App::Independent {
            client: Box::new(plain_client()),
            url: shop.addresses.of(purchase::Service::Gateway),
            tries: story.tries,
        };
        let open = Open { story, app, addresses: &shop.addresses, stands: &stands, witness: &witness };
        let told = open.tell(taps, progress, async |_, _| ()).await;
        drop(shop);
        stands.close().await?;
        let (mut side, visits) = told?;
        side.ledger = visits.last().map(|visit| Node::as_seen(visit, &witness));
        Ok(side)
    }

    async fn within_one_budget(
        &self,
        story: &Story,
        taps: &[Tap],
        progress: impl Fn(f64),
        observers: Observers,
        at: impl AsyncFn(Moment<'_>),
    ) -> Result<Side, ShopClosed> {
        let witness = Arc::new(Witness::default());
        let stands = self.stands(story, PROPAGATED, &witness).await?;
        let shop = propagated::open(story, self.transport, &stands, &observers).await?;
        let app = App::OneBudget { client: shop.app.clone(), observer: observers.of_app() };
        let after_load = async |side: &Side, visits: &[app::Visit]| {
            at(Moment::AfterLoad(side, &Truth::of(visits, &witness))).await;
            shop.ledgers.watch(taps.len());
        };
        let open = Open { story, app, addresses: &shop.addresses, stands: &stands, witness: &witness };
        let told = open.tell(taps, progress, after_load).await;
        // The services end a little after the app has left.
        for _ in 0..100 {
            if shop.ledgers.are_complete() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if let Ok((side, visits)) = &told {
            at(Moment::AfterTypical(side, &Truth::of(visits, &witness))).await;
        }
        let ledgers = Arc::clone(&shop.ledgers);
        shop.close().await;
        stands.close().await?;
        let (mut side, visits) = told?;
        side.ledger = visits.last().map(|visit| {
            let mut ledger = Node::of_visit(story, visit);
            ledgers.add_to(&mut ledger, purchase::Service::Gateway.name());
            ledger
        });
        Ok(side)
    }
}

const INDEPENDENT: &str = "independent";
const PROPAGATED: &str = "propagated";

/// An open shop, and an app to tap in.
struct Open<'a> {
    story: &'a Story,
    app: App,
    addresses: &'a Addresses,
    stands: &'a Stands,
    witness: &'a Arc<Witness>,
}

impl Open<'_> {
    /// The load with its trouble, then one tap that meets it. The visits of both, the latter's last.
    async fn tell(
        &self,
        taps: &[Tap],
        progress: impl Fn(f64),
        after_load: impl AsyncFnOnce(&Side, &[app::Visit]),
    ) -> Result<(Side, Vec<app::Visit>), ShopClosed> {
        let Self { story, app, witness, .. } = self;
        let director = Director { client: plain_client(), addresses: self.addresses };
        if let Some(hop) = story.silent_hop {
            director.set(hop, Trouble { forward_nothing: true, ..Trouble::default() }).await?;
        }
        let trouble = async {
            tokio::time::sleep(story.trouble_from).await;
            director.set(story.troubled, story.trouble).await?;
            tokio::time::sleep(story.trouble_until.saturating_sub(story.trouble_from)).await;
            director.set(story.troubled, Trouble::default()).await
        };
        let load = app::load(app, story, taps, witness, |done| progress(done * 0.7));
        let (mut visits, told) = tokio::join!(load, trouble);
        told?;
        let backends = match self.stands.schema() {
            Some(schema) => Some(Backends::after_everybody_left(schema).await?),
            None => None,
        };
        see_the_end(story, witness).await;
        let charges = self.stands.charges().await?;
        let mut side = Side::of_load(story, taps.len(), &visits, witness, charges);
        side.backends = backends;
        after_load(&side, &visits).await;
        progress(0.8);

        director.set(story.troubled, story.trouble).await?;
        let visit = app.typical(story, taps.len(), witness).await;
        progress(0.9);
        see_the_end(story, witness).await;
        side.typical = Typical::of(story, &visit, witness);
        progress(1.0);
        visits.push(visit);
        Ok((side, visits))
    }
}

impl Backends {
    /// Asks the server until it has nothing to do for this shop, at most for [`BACKENDS_WATCHED`].
    async fn after_everybody_left(schema: &Schema) -> Result<Self, ShopClosed> {
        let left = clock::now();
        tokio::time::sleep(report::A_LITTLE).await;
        let at_work_50ms_after = schema.at_work().await?;
        if at_work_50ms_after == 0 {
            return Ok(Self { at_work_50ms_after, idle_after_ms: Some(0) });
        }
        while clock::now().since(left) < BACKENDS_WATCHED {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if schema.at_work().await? == 0 {
                let idle_after_ms = u64::try_from(clock::now().since(left).as_millis()).ok();
                return Ok(Self { at_work_50ms_after, idle_after_ms });
            }
        }
        Ok(Self { at_work_50ms_after, idle_after_ms: None })
    }
}

const BACKENDS_WATCHED: Duration = Duration::from_secs(10);

/// Sets the trouble of the services, as anybody could.
struct Director<'a> {
    client: PlainClient,
    addresses: &'a Addresses,
}

impl Director<'_> {
    async fn set(&self, service: purchase::Service, trouble: Trouble) -> Result<(), ShopClosed> {
        let body = serde_json::to_vec(&trouble).map_err(ShopClosed::not_told)?;
        let request = Request::put(self.addresses.control(service)).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Full::from(body)).map_err(ShopClosed::not_told)?;
        let answer = self.client.request(request).await.map_err(ShopClosed::not_told)?;
        if answer.status().is_success() { Ok(()) } else { Err(ShopClosed::not_told("the control endpoint refused")) }
    }
}

// === OpenShop ===

impl OpenShop {
    /// Closes it, and drops what it has on a PostgreSQL server.
    ///
    /// # Errors
    /// [`ShopClosed`], if the server does not let it.
    ///
    /// # Cancel safety
    /// Dropping it closes the rest at once.
    pub async fn close(self) -> Result<(), ShopClosed> {
        drop(self.shops.0);
        self.shops.1.close().await;
        self.stands.0.close().await?;
        self.stands.1.close().await
    }
}

// === ShopClosed ===

impl ShopClosed {
    fn no_socket(source: std::io::Error) -> Self {
        Self { what: "no loopback socket", source: source.into() }
    }

    fn no_sockets(source: BoxError) -> Self {
        Self { what: "not enough loopback sockets", source }
    }

    fn no_folder(source: std::io::Error) -> Self {
        Self { what: "no temporary folder for its databases", source: source.into() }
    }

    fn no_database(source: rusqlite::Error) -> Self {
        Self { what: "a database did not open", source: source.into() }
    }

    fn no_postgres(source: tokio_postgres::Error) -> Self {
        Self { what: "PostgreSQL would not", source: source.into() }
    }

    fn no_broker(source: impl Into<BoxError>) -> Self {
        Self { what: "no RabbitMQ at that address", source: source.into() }
    }

    fn no_queue(source: impl Into<BoxError>) -> Self {
        Self { what: "a queue would not", source: source.into() }
    }

    fn not_started(source: impl Into<BoxError>) -> Self {
        Self { what: "a service did not start", source: source.into() }
    }

    fn not_told(source: impl Into<BoxError>) -> Self {
        Self { what: "a service could not be told its trouble", source: source.into() }
    }
}
