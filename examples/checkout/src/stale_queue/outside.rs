//! Who is outside of the shop: the payment provider and the mail server, plain servers that know of nobody's deadline. The same both
//! ways.
//!
//! | path | does |
//! |---|---|
//! | `POST /charges/{order}` | charges the card, once; of some it never answers |
//! | `GET /charges/{order}` | says whether it did: 200, or 404 |
//! | `POST /mails/{order}` | sends a mail; under an `idempotency-key` one for each |

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use oneclock_core::idempotency::FIELD;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::books::Books;
use super::{Card, Outage, Tap};
use crate::ShopClosed;

/// Both of them; closed when dropped.
pub(super) struct Outside {
    pub(super) url: String,
    world: Arc<World>,
    _servers: JoinSet<()>,
}

struct World {
    taps: Arc<[Tap]>,
    books: Arc<Books>,
    in_trouble: AtomicBool,
    deaths: [usize; 2],
}

/// How long a mail takes.
const MAIL: Duration = Duration::from_millis(3);

impl Outside {
    pub(super) async fn open(outage: &Outage, taps: &Arc<[Tap]>, books: &Arc<Books>) -> Result<Self, ShopClosed> {
        let world = Arc::new(World {
            taps: Arc::clone(taps),
            books: Arc::clone(books),
            in_trouble: AtomicBool::new(true),
            deaths: outage.deaths,
        });
        let app = Router::new()
            .route("/charges/{order}", post(charge).get(look_up))
            .route("/mails/{order}", post(mail))
            .with_state(Arc::clone(&world));
        let mut servers = JoinSet::new();
        let url = serve(&mut servers, app).await?;
        Ok(Self { url, world, _servers: servers })
    }

    /// From now on all is well.
    pub(super) fn recovers(&self) {
        self.world.in_trouble.store(false, Ordering::Relaxed);
    }
}

/// Serves on a loopback socket until the set is dropped; where.
pub(super) async fn serve(servers: &mut JoinSet<()>, app: Router) -> Result<String, ShopClosed> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(ShopClosed::no_socket)?;
    let address = listener.local_addr().map_err(ShopClosed::no_socket)?;
    servers.spawn(async move {
        let _ = axum::serve(listener, app).await; // there is nobody left to tell of an error then
    });
    Ok(format!("http://{address}"))
}

async fn charge(State(world): State<Arc<World>>, Path(order): Path<usize>) -> StatusCode {
    match world.taps.get(order).map(|tap| tap.card) {
        Some(Card::Charged) => {
            world.books.charged(order);
            StatusCode::OK
        }
        Some(Card::Unknown { charged }) => {
            if charged {
                world.books.charged(order);
            }
            pending().await // until whoever asked has gone
        }
        None => StatusCode::NOT_FOUND,
    }
}

async fn look_up(State(world): State<Arc<World>>, Path(order): Path<usize>) -> StatusCode {
    match (world.in_trouble.load(Ordering::Relaxed), world.books.is_charged(order)) {
        (true, _) => StatusCode::INTERNAL_SERVER_ERROR,
        (false, true) => StatusCode::OK,
        (false, false) => StatusCode::NOT_FOUND,
    }
}

async fn mail(State(world): State<Arc<World>>, Path(order): Path<usize>, headers: HeaderMap) -> StatusCode {
    let is_refused = world.taps.get(order).is_none_or(|tap| tap.refused && world.in_trouble.load(Ordering::Relaxed));
    if is_refused {
        return StatusCode::UNPROCESSABLE_ENTITY;
    }
    tokio::time::sleep(MAIL).await;
    let sent = world.books.mail(order, headers.get(FIELD).and_then(|key| key.to_str().ok()));
    if sent.is_some_and(|count| world.deaths.contains(&count)) {
        // With this one the consumer dies: it is sent, and nobody hears of it.
        return pending().await;
    }
    StatusCode::OK
}
