//! The chain with independent timeouts. Every call has a limit and is tried again, every service has one for its answers, and
//! what a handler works on is handed to a pool with a queue: a thread pool's, an executor's, that of `spawn_blocking`.
//!
//! Nobody is told how long the tap's user will wait, and what is in the queue of a pool is run when its turn comes.

use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::util::MapRequestLayer;
use tower_http::timeout::TimeoutLayer;

use super::Spike;
use super::load::{Answer, App};
use super::tier::{Tier, Tiers};
use crate::independent::{PlainClient, plain_client};
use crate::purchase::{Service, TRY, Try};
use crate::{BoxError, ShopClosed};

/// The services; closed when dropped.
pub(super) struct Shop {
    pools: Vec<Arc<Semaphore>>,
    servers: JoinSet<()>,
}

/// One service.
struct Hop {
    tier: Arc<Tier>,
    pool: Arc<Semaphore>,
    below: Option<Below>,
}

/// Whom it asks.
struct Below {
    client: PlainClient,
    url: String,
    limit: Duration,
    tries: u32,
}

/// The app: its own limit for each try, and so many tries.
pub(super) struct Phone {
    below: Below,
    no_socket: Mutex<Option<BoxError>>,
}

/// What a service allows itself for an answer: beyond what anybody waits, as most do.
const SERVICES: Duration = Duration::from_secs(1);

pub(super) async fn open(spike: &Spike, tiers: &Tiers) -> Result<(Shop, Phone), ShopClosed> {
    let mut shop = Shop { pools: Vec::new(), servers: JoinSet::new() };
    let client = plain_client();
    let below = |url: &str, limit| Below { client: client.clone(), url: url.to_owned(), limit, tries: spike.tries };
    let mut url = String::new();
    // Callees first.
    for tier in tiers.all().iter().rev() {
        let pool = Arc::new(Semaphore::new(spike.places as usize));
        shop.pools.push(Arc::clone(&pool));
        let below = match tier.service {
            Service::Gateway => Some(below(&url, spike.order_limit)),
            Service::Order => Some(below(&url, spike.pricing_limit)),
            _ => None,
        };
        let arrived = Arc::clone(tier);
        let app = Router::new()
            .route(tier.service.path(), post(serve))
            .with_state(Arc::new(Hop { tier: Arc::clone(tier), pool, below }))
            .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, SERVICES))
            .layer(MapRequestLayer::new(move |request| {
                arrived.arrives();
                request
            }));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(ShopClosed::no_socket)?;
        let address = listener.local_addr().map_err(ShopClosed::no_socket)?;
        shop.servers.spawn(async move {
            let _ = axum::serve(listener, app).await; // until the shop is dropped
        });
        url = format!("http://{address}{}", tier.service.path());
    }
    Ok((shop, Phone { below: below(&url, spike.patience), no_socket: Mutex::default() }))
}

/// Does its own work, then has the next one do theirs.
async fn serve(State(hop): State<Arc<Hop>>, headers: HeaderMap) -> Result<&'static str, StatusCode> {
    let of = Try::of(&headers);
    hop.work(of).await.ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    if let Some(below) = &hop.below {
        below.tries(of).await.ok_or(StatusCode::BAD_GATEWAY)?;
    }
    Ok("done")
}

// === Hop ===

impl Hop {
    /// In the pool: whoever asked may go, it stays in the queue, and is done. `None` if the shop closes.
    async fn work(&self, of: Try) -> Option<()> {
        let (tier, pool) = (Arc::clone(&self.tier), Arc::clone(&self.pool));
        let work = tokio::spawn(async move {
            let _place = pool.acquire_owned().await.ok()?;
            tier.work(of).await;
            Some(())
        });
        work.await.ok()?
    }
}

// === Below ===

impl Below {
    async fn tries(&self, of: Try) -> Option<()> {
        for _ in 0..self.tries {
            if let Ok(Ok(())) = timeout(self.limit, self.ask(of)).await {
                return Some(());
            }
        }
        None
    }

    async fn ask(&self, of: Try) -> Result<(), BoxError> {
        let request = Request::post(&self.url).header(TRY, of.to_field()).body(Full::<Bytes>::default())?;
        let answer = self.client.request(request).await?;
        if answer.status() != StatusCode::OK {
            return Err(answer.status().to_string().into());
        }
        answer.into_body().collect().await?;
        Ok(())
    }
}

// === Phone ===

impl App for Phone {
    async fn tap(&self, first: Try, late: Duration) -> Answer {
        for number in 1..=self.below.tries {
            // Its user has waited since the tap should have come.
            let limit = if number == 1 { self.below.limit.saturating_sub(late) } else { self.below.limit };
            match timeout(limit, self.below.ask(Try { number, ..first })).await {
                Ok(Ok(())) => return Answer::Done { number },
                Ok(Err(error)) => self.failed(error),
                Err(_) => {}
            }
        }
        Answer::No
    }

    fn no_socket(&self) -> Option<BoxError> {
        self.no_socket.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Phone {
    /// Without a socket nothing was asked, and the figures would tell of this process's limits.
    fn failed(&self, error: BoxError) {
        let connecting = error.downcast_ref::<hyper_util::client::legacy::Error>().filter(|error| error.is_connect());
        if let Some(connecting) = connecting {
            let causes = std::iter::successors(connecting.source(), |cause| (*cause).source());
            let why = causes.last().map_or_else(|| connecting.to_string(), ToString::to_string);
            let why = format!(
                "{why}; every try that waits takes two open files, some 900 for users of 300 ms, and `ulimit -n` says how many \
                 there may be"
            );
            *self.no_socket.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.into());
        }
    }
}

// === Shop ===

impl Drop for Shop {
    /// What waits in the queues ends; what has a place ends with its work.
    fn drop(&mut self) {
        for pool in &self.pools {
            pool.close();
        }
    }
}
