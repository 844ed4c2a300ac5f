//! The chain with one budget: the same services with the same number of places, and the same number of tries. Who would not be
//! done in time is refused at the door, who waits for nothing any more leaves the queue, and who works for nobody stops.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Request};
use axum::routing::post;
use oneclock::{Admission, Operation, Shutdown};
use oneclock_axum::{Op, PolicyExt as _, Problem};
use oneclock_core::admission::Settings;
use oneclock_core::retry::RetryPolicy;
use oneclock_core::{Policy, Trust};
use oneclock_http::{Client, serve};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::util::MapRequestLayer;

use super::Spike;
use super::load::{Answer, App};
use super::tier::{Tier, Tiers};
use crate::propagated::ask;
use crate::purchase::{Service, Try};
use crate::{BoxError, ShopClosed};

/// The services.
pub(super) struct Shop {
    shutdown: Shutdown,
    servers: JoinSet<()>,
}

/// One service.
struct Hop {
    tier: Arc<Tier>,
    below: Option<(Client, Service)>,
}

/// The app: one budget for the tap.
pub(super) struct Phone {
    gateway: Client,
    patience: Duration,
}

pub(super) async fn open(spike: &Spike, tiers: &Tiers) -> Result<(Shop, Phone), ShopClosed> {
    let mut shop = Shop { shutdown: Shutdown::new(), servers: JoinSet::new() };
    let mut below = None;
    // Callees first.
    for tier in tiers.all().iter().rev() {
        let service = tier.service;
        // All that anybody has to say of it: how many things it can do at once.
        let places = Admission::to(service.name(), Settings::fixed(spike.places)).map_err(ShopClosed::not_started)?;
        let policy = Policy::named(service.name()).when_absent(spike.patience).ceiling(spike.patience).build();
        let layer = policy.map_err(ShopClosed::not_started)?.layer().admission(&places);
        let arrived = Arc::clone(tier);
        let app = Router::new()
            .route(service.path(), post(handle))
            .with_state(Arc::new(Hop { tier: Arc::clone(tier), below: below.take() }))
            .layer(layer)
            .layer(MapRequestLayer::new(move |request: Request<_>| {
                arrived.arrives();
                request
            }));
        let url = shop.start(service, app).await?;
        let again = RetryPolicy::new().attempts(spike.tries).build().map_err(ShopClosed::not_started)?;
        let client = Client::builder(service.name(), url).trust(Trust::Inside).retry(again);
        let client = match service {
            // Each tap is on another phone, and none knows what others were told: this one client must not hold back either.
            Service::Gateway => client.unthrottled(),
            _ => client,
        };
        below = Some((client.build().map_err(ShopClosed::not_started)?, service));
    }
    let (gateway, _) = below.ok_or_else(|| ShopClosed::not_started("a chain of no services"))?;
    Ok((shop, Phone { gateway, patience: spike.patience }))
}

/// Does its own work, then has the next one do theirs; while it waits for that its place is another's.
async fn handle(Op(op): Op, State(hop): State<Arc<Hop>>, headers: HeaderMap) -> Result<&'static str, Problem> {
    let of = Try::of(&headers);
    hop.tier.work(of).await;
    op.vacate();
    if let Some((client, service)) = &hop.below {
        ask(client, *service, of).await.map_err(Problem::of)?;
    }
    Ok("done")
}

// === Shop ===

impl Shop {
    async fn start(&mut self, service: Service, app: Router) -> Result<String, ShopClosed> {
        let trust = if service == Service::Gateway { Trust::Outside } else { Trust::Inside };
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(ShopClosed::no_socket)?;
        let address = listener.local_addr().map_err(ShopClosed::no_socket)?;
        let server = serve(listener, app).trust(trust).with_shutdown(&self.shutdown);
        self.servers.spawn(async move {
            let _ = server.await; // until the shutdown
        });
        Ok(format!("http://{address}"))
    }

    pub(super) async fn close(mut self) {
        self.shutdown.signal();
        while self.servers.join_next().await.is_some() {}
    }
}

// === Phone ===

impl App for Phone {
    async fn tap(&self, of: Try, late: Duration) -> Answer {
        let tap = Operation::begin("tap", self.patience.saturating_sub(late));
        match tap.run(ask(&self.gateway, Service::Gateway, of)).await {
            Ok(Ok(())) => Answer::Done { number: of.number },
            _ => Answer::No,
        }
    }

    fn no_socket(&self) -> Option<BoxError> {
        None // it never has more of them than the way before it
    }
}
