//! The demo shop for a browser: a door in front of its gateway that lets pages of other origins in, and makes one purchase
//! for each key.
//!
//! `cargo run -p oneclock-checkout --example browser_shop` prints where it is, on one line, and stays open until it is
//! interrupted. `clients/typescript` taps on it.
//!
//! | path | is |
//! |---|---|
//! | `POST /checkout` | a purchase; with an `idempotency-key` it is made once, and whoever asks again gets its answer |
//! | `GET /quote` | the price alone: it only reads |
//! | `/independent/…` | both of the shop with independent timeouts |
//! | `/without-allow/…`, `/without-expose/…` | both behind a door whose CORS headers lack one of the two lists |
//! | `PUT /control/{service}` | makes trouble for a service of both shops ([`oneclock_checkout::trouble`]) |
//! | `GET /witness` | how much work each service has finished, from its own records |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{self, State};
use axum::http::{HeaderName, Method, Request, StatusCode, header};
use axum::routing::{get, post, put};
use hyper_util::client::legacy::Client as Plain;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use oneclock_axum::{Client, Policy, PolicyExt as _, Problem, Trust, serve, successful};
use oneclock_checkout::purchase::Service;
use oneclock_checkout::story::{Limits, Story, Within};
use oneclock_checkout::{Addresses, OpenShop, Shop};
use oneclock_idempotency::Idempotency;
use oneclock_sqlite::IdempotencyStore;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tower_http::cors::{Any, CorsLayer};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The most that a purchase may take, however much the page would give it.
const LONGEST: Duration = Duration::from_secs(10);

/// What a page of another origin may send.
const ALLOWED: [HeaderName; 3] =
    [header::CONTENT_TYPE, HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-remaining-ms")];

/// What it may read, beside what every page may.
const EXPOSED: [HeaderName; 5] = [
    HeaderName::from_static("idempotent-replayed"),
    header::LINK,
    HeaderName::from_static("oneclock-reason"),
    header::RETRY_AFTER,
    HeaderName::from_static("server-timing"),
];

/// What stands behind the door.
#[derive(Clone)]
struct Door {
    gateway: Client,
    pricing: Client,
    plain: Plain<HttpConnector, Body>,
    one_budget: Addresses,
    independent: Addresses,
    records: PathBuf,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    // The shops keep their records in folders of their own; this is where.
    tempfile::env::override_temp_dir(folder.path()).map_err(|other| format!("it is {} already", other.display()))?;
    let shop = Shop::on_sqlite().open(&story()).await?;

    let store = IdempotencyStore::builder(folder.path().join("purchases.sqlite")).build()?;
    let once = Idempotency::builder("purchase", store).one_principal().execution(LONGEST).monitor_at("/purchases");
    let app = app(Door::of(&shop, folder.path())?, once.axum_routes().build()?)?;

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("the shop is at http://{}", listener.local_addr()?);
    let mut terminated = signal(SignalKind::terminate())?;
    let interrupted = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated.recv() => {}
        }
    };
    serve(listener, app).trust(Trust::Outside).shutdown(interrupted, Duration::ZERO).await?;
    shop.close().await?;
    Ok(())
}

/// Nothing goes wrong by itself, and the shop gives whoever asks as much as the door does.
fn story() -> Story {
    let story = Story::default().with_patience(LONGEST);
    let limits = Limits { gateway: LONGEST, services: LONGEST, ..story.limits };
    Story { limits, within: Within { keys: true, inventory_database: LONGEST, ..story.within }, ..story }
}

fn app(door: Door, once: Idempotency<IdempotencyStore>) -> Result<Router, BoxError> {
    let clock = Policy::named("door").when_absent(LONGEST).ceiling(LONGEST).build()?;
    let shop = Router::new()
        .route("/checkout", post(checkout))
        .route_layer(once.clone())
        .route("/quote", get(quote))
        .route_service("/purchases/{handle}", once.monitor())
        .layer(clock.layer())
        // Outside of the clock: these know nothing of it.
        .route("/independent/checkout", post(independent_checkout))
        .route("/independent/quote", get(independent_quote))
        .with_state(door.clone());

    // Outside of everything that answers: a refusal without these headers is a refusal that the page cannot read.
    let any = CorsLayer::new().allow_origin(Any).allow_methods([Method::GET, Method::POST]);
    let cors = any.clone().allow_headers(ALLOWED).expose_headers(EXPOSED).max_age(Duration::from_secs(7_200));
    let behind_the_scenes =
        Router::new().route("/control/{service}", put(control)).route("/witness", get(witness)).with_state(door);
    Ok(Router::new()
        .nest("/without-allow", shop.clone().layer(any.clone().expose_headers(EXPOSED)))
        .nest("/without-expose", shop.clone().layer(any.allow_headers(ALLOWED)))
        .merge(shop.layer(cors))
        .merge(behind_the_scenes))
}

// === What a page asks for ===

/// Within the budget, and handed on as it comes.
async fn checkout(State(door): State<Door>) -> Result<Body, Problem> {
    let answer = door.gateway.post(Service::Gateway.path(), Bytes::new()).await?;
    Ok(Body::new(successful(answer).map_err(Problem::of)?.into_body()))
}

async fn quote(State(door): State<Door>) -> Result<Body, Problem> {
    let answer = door.pricing.post(Service::Pricing.path(), Bytes::new()).await?;
    Ok(Body::new(successful(answer).map_err(Problem::of)?.into_body()))
}

async fn independent_checkout(State(door): State<Door>) -> Result<Body, StatusCode> {
    door.ask_plainly(Method::POST, door.independent.of(Service::Gateway), Body::empty()).await
}

async fn independent_quote(State(door): State<Door>) -> Result<Body, StatusCode> {
    door.ask_plainly(Method::POST, door.independent.of(Service::Pricing), Body::empty()).await
}

// === Behind the scenes ===

async fn control(
    State(door): State<Door>,
    extract::Path(service): extract::Path<String>,
    trouble: Bytes,
) -> Result<Body, StatusCode> {
    let service = Service::ALL.into_iter().find(|known| known.name() == service).ok_or(StatusCode::NOT_FOUND)?;
    let _set = door.ask_plainly(Method::PUT, door.independent.control(service), Body::from(trouble.clone())).await?;
    door.ask_plainly(Method::PUT, door.one_budget.control(service), Body::from(trouble)).await
}

async fn witness(State(door): State<Door>) -> Result<axum::Json<Value>, StatusCode> {
    let seen = tokio::task::spawn_blocking(move || seen(&door.records)).await;
    let seen = seen.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(axum::Json(seen.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?))
}

/// What each service of each shop wrote down: one row for each time that it finished its work.
fn seen(records: &Path) -> Result<Value, BoxError> {
    let mut shops = BTreeMap::new();
    for folder in std::fs::read_dir(records)? {
        let folder = folder?.path();
        if !folder.is_dir() {
            continue;
        }
        let mut finished = BTreeMap::new();
        for service in Service::ALL {
            let file = folder.join(service.name()).with_extension("sqlite");
            let records = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            records.busy_timeout(Duration::from_secs(1))?;
            let count = records.query_row("SELECT count(*) FROM done", [], |row| row.get::<_, i64>(0))?;
            finished.insert(service.name(), count);
        }
        // Only the one with one budget keeps keys.
        let shop = if folder.join("keys.sqlite").exists() { "one_budget" } else { "independent" };
        shops.insert(shop, finished);
    }
    Ok(json!(shops))
}

// === Door ===

impl Door {
    fn of(shop: &OpenShop, records: &Path) -> Result<Self, BoxError> {
        let client = |service: Service| {
            Client::builder(service.name(), shop.propagated.base(service)).trust(Trust::Inside).build()
        };
        Ok(Self {
            gateway: client(Service::Gateway)?,
            pricing: client(Service::Pricing)?,
            plain: Plain::builder(TokioExecutor::new()).build_http(),
            one_budget: shop.propagated.clone(),
            independent: shop.independent.clone(),
            records: records.to_owned(),
        })
    }

    async fn ask_plainly(&self, method: Method, url: String, body: Body) -> Result<Body, StatusCode> {
        let request = Request::builder().method(method).uri(url).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(body).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        let answer = self.plain.request(request).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
        if answer.status().is_success() { Ok(Body::new(answer.into_body())) } else { Err(answer.status()) }
    }
}
