//! The shop with one budget: the same services, the same work, the same threads; every layer spends from the tap's time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::get;
use bytes::Bytes;
use oneclock::events::{Event, Observer};
use oneclock::{Ended, Shutdown};
use oneclock_axum::{Op, PolicyExt as _, Problem};
use oneclock_core::{Ledger, Name, Policy, Stage, Trust};
use oneclock_http::{Client, collect, serve};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::report::Node;
use crate::story::Story;
use crate::witness::{TRY, Try, Witness};
use crate::{BoxError, ShopClosed, app};

/// The three services.
pub(crate) struct Shop {
    pub(crate) app: Client,
    ledgers: Arc<Ledgers>,
    shutdown: Shutdown,
    servers: JoinSet<()>,
}

#[derive(Clone)]
struct Next {
    client: Client,
    path: &'static str,
}

#[derive(Clone)]
struct Pricing {
    story: Story,
    witness: Arc<Witness>,
    workers: Arc<Semaphore>,
}

/// Keeps the last ledger of each service, and how its last call ended.
#[derive(Default)]
struct Ledgers(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    accounts: Vec<(Name, Account)>,
    cut_off: Vec<(Name, String)>, // calls, by what was called
}

struct Account {
    ledger: Ledger,
    took: Duration,
    budget: Duration,
    ended: Option<String>,
}

pub(crate) async fn open(story: &Story, witness: &Arc<Witness>) -> Result<Shop, ShopClosed> {
    let ledgers = Arc::new(Ledgers::default());
    let shutdown = Shutdown::new();
    let mut servers = JoinSet::new();
    let mut start = async |name: &'static str, app: Router, trust: Trust, limit: Duration| {
        let policy = Policy::named(name).when_absent(story.patience).ceiling(limit).build()?;
        let app = app.layer(policy.layer().observed_by(ledgers.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let server = serve(listener, app).trust(trust).with_shutdown(&shutdown);
        servers.spawn(async move {
            // Runs until the shutdown; there is nobody left to tell of an error then.
            let _ = server.await;
        });
        Ok::<_, BoxError>(url)
    };
    let shop = async {
        let pricing = Pricing {
            story: story.clone(),
            witness: Arc::clone(witness),
            workers: Arc::new(Semaphore::new(story.workers)),
        };
        let pricing = Router::new().route("/price", get(price)).with_state(pricing);
        let pricing = start("pricing", pricing, Trust::Inside, story.services).await?;

        let next = Next { client: client("pricing", &pricing)?, path: "/price" };
        let order = Router::new().route("/order", get(pass_on)).with_state(next);
        let order = start("order", order, Trust::Inside, story.services).await?;

        let next = Next { client: client("order", &order)?, path: "/order" };
        let gateway = Router::new().route("/checkout", get(pass_on)).with_state(next);
        let gateway = start("gateway", gateway, Trust::Outside, story.gateway).await?;
        client("gateway", &gateway)
    };
    let app = shop.await.map_err(|source| ShopClosed { what: "a service did not start", source })?;
    Ok(Shop { app, ledgers, shutdown, servers })
}

fn client(name: &'static str, url: &str) -> Result<Client, BoxError> {
    Ok(Client::builder(name, url).trust(Trust::Inside).build()?)
}

/// Gateway and order: ask the next service, pass its answer on.
async fn pass_on(Op(_op): Op, State(next): State<Next>, headers: HeaderMap) -> Result<Bytes, Problem> {
    ask(&next.client, next.path, Try::of(&headers)).await
}

/// One call within the current operation's budget.
pub(crate) async fn ask(client: &Client, path: &str, of: Try) -> Result<Bytes, Problem> {
    let request = http::Request::get(path).header(TRY, of.to_field()).body(http_body_util::Empty::<Bytes>::new());
    let request = request.map_err(Problem::of)?;
    let response = client.request(request).await?;
    if !response.status().is_success() {
        return Err(oneclock_http::Problem::call_failed().into());
    }
    Ok(collect(response.into_body(), 1_024).await?)
}

/// Pricing: waits for a worker within the budget, then works on a blocking thread, and looks up between its steps.
async fn price(Op(op): Op, State(pricing): State<Pricing>, headers: HeaderMap) -> Result<&'static str, Problem> {
    let of = Try::of(&headers);
    let waiting = op.spend("workers", Stage::Pool);
    let worker = Arc::clone(&pricing.workers).acquire_owned().await.map_err(Problem::of)?;
    drop(waiting);
    let takes = pricing.story.price_takes(pricing.witness.load_has_run(), of.slow_article);
    let working = pricing.witness.begins(of);
    let priced = op.spawn_blocking("rules", move |op| {
        let _worker = worker;
        let step = Duration::from_millis(2);
        let mut left = takes;
        while !left.is_zero() {
            op.checkpoint()?;
            std::thread::sleep(step.min(left));
            left = left.saturating_sub(step);
        }
        working.finished();
        Ok::<_, Ended>("12.90")
    });
    Ok(priced.await??)
}

// === Shop ===

impl Shop {
    /// One more tap while pricing is slow, alone, so that its ledger can be told as a tree.
    pub(crate) async fn typical_ledger(&self, story: &Story, witness: &Witness) -> Option<Node> {
        witness.load_begins(story.slow_from);
        *self.ledgers.lock() = Kept::default();
        app::one_typical_tap(story, self).await;
        // The services end a little after the app has left.
        for _ in 0..50 {
            if self.ledgers.lock().accounts.len() >= 3 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        node_of(&self.ledgers.lock(), "gateway")
    }

    pub(crate) async fn close(mut self) {
        self.shutdown.signal();
        while self.servers.join_next().await.is_some() {}
    }
}

/// The account of a service, with those of the services that it called in their places.
fn node_of(kept: &Kept, service: &str) -> Option<Node> {
    let (_, account) = kept.accounts.iter().find(|(name, _)| *name == service)?;
    let ledger = &account.ledger;
    let until = ledger.began() + account.took;
    let mut node = Node::new(service, account.took);
    node.budget = Some(account.budget);
    // Its own end, or that of the call that waited for it: whichever clock was first.
    let cut_off = || kept.cut_off.iter().find(|(call, _)| *call == service).map(|(_, ended)| ended.clone());
    node.ended = account.ended.clone().or_else(cut_off);
    for (_, entry) in ledger.parts_of(None) {
        let ended = entry.ended.unwrap_or(until);
        let called = node_of(kept, entry.name.as_str());
        let mut part =
            called.unwrap_or_else(|| Node::new(&format!("{} ({})", entry.name, entry.stage), Duration::ZERO));
        part.took = ended.since(entry.began);
        part.left = Some(account.budget.saturating_sub(ended.since(ledger.began())));
        node.parts.push(part);
    }
    Some(node)
}

// === Ledgers ===

impl Ledgers {
    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Ledgers {
    fn on(&self, event: &Event<'_>) {
        if let Event::Called(called) = event
            && let Some(ending) = called.ending
        {
            self.lock().cut_off.push((called.call.clone(), ending.to_string()));
        }
        let Event::Ended(ended) = event else { return };
        if ended.kind != oneclock::operation::Kind::Request {
            return;
        }
        let account = Account {
            ledger: ended.ledger.clone(),
            took: ended.elapsed,
            budget: ended.bound.limit,
            ended: ended.ending.map(|ending| ending.to_string()),
        };
        let accounts = &mut self.lock().accounts;
        accounts.retain(|(name, _)| name != ended.operation);
        accounts.push((ended.operation.clone(), account));
    }
}
