//! The shop with one budget as a Prometheus sees it: each service and the app with metrics of its own, each served on a
//! socket of its own, all of them scraped while a scenario runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use oneclock::events::{Event, Observer};
use oneclock_checkout::Shop;
use oneclock_checkout::purchase::Service;
use oneclock_checkout::report::Side;
use oneclock_checkout::story::Story;
use oneclock_checkout::watched::{Moment, Observers};
use oneclock_telemetry::{Metrics, Scrape};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::prometheus::{EVERY, Prometheus};

/// The name under which the app is scraped; a service has its own.
pub(crate) const APP: &str = "app";

/// The shop's `/metrics`, and who scrapes them.
pub(crate) struct Scraping {
    pub(crate) prometheus: Prometheus,
    parts: Vec<Part>,
    _servers: JoinSet<()>,
}

/// A process of the shop, were it one.
struct Part {
    name: &'static str,
    metrics: Metrics,
    rendered: Arc<AtomicU64>,
}

/// A series of its own in each scrape: how many there were. It tells of a scrape that it began after a moment.
const RENDERED: &str = "scenario_rendered";

/// An observer that does not hear one event in so many.
struct Deaf {
    to: Metrics,
    one_in: u64,
    heard: AtomicU64,
}

// === Scraping ===

impl Scraping {
    /// With an edge at each limit of the story, as `docs/guide/metrics.md` advises.
    pub(crate) async fn begin(story: &Story) -> Self {
        let (mut parts, mut targets, mut servers) = (Vec::new(), Vec::new(), JoinSet::new());
        for name in [APP].into_iter().chain(Service::ALL.map(Service::name)) {
            let limits = [story.patience, story.limits.gateway, story.limits.services, story.within.absent];
            let metrics = limits.into_iter().fold(Metrics::builder(), |builder, limit| builder.timeout(limit));
            let (metrics, scrape) = metrics.build().unwrap();
            let rendered = Arc::default();
            targets.push((name, served(scrape, Arc::clone(&rendered), &mut servers).await));
            parts.push(Part { name, metrics, rendered });
        }
        let scraping = Self { prometheus: Prometheus::scraping(&targets), parts, _servers: servers };
        scraping.scraped().await; // it scrapes from the first tap on
        scraping
    }

    /// Runs a scenario under it. `at` sees the shop at rest, when all that it has counted is scraped.
    pub(crate) async fn run(
        &self,
        shop: &Shop,
        story: &Story,
        loses_one_in: u64,
        at: impl AsyncFn(Moment<'_>),
    ) -> Side {
        let mut observers = Observers::new();
        for part in &self.parts {
            let observer: Arc<dyn Observer> = match loses_one_in {
                0 => Arc::new(part.metrics.clone()),
                one_in => Arc::new(Deaf { to: part.metrics.clone(), one_in, heard: AtomicU64::new(0) }),
            };
            observers = match Service::ALL.into_iter().find(|service| service.name() == part.name) {
                Some(service) => observers.service(service, observer),
                None => observers.app(observer),
            };
        }
        let at_rest = async |moment: Moment<'_>| {
            self.at_rest().await;
            at(moment).await;
        };
        shop.run_watched(story, SEED, observers, at_rest).await.expect("the shop opens")
    }

    /// Until nothing goes on in the shop, and that is scraped.
    async fn at_rest(&self) {
        let over = async {
            while oneclock::live_operations() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, over).await.expect("every operation of the shop ends");
        self.scraped().await;
    }

    /// Until Prometheus has scraped each part once more: begun from now on, and written down.
    async fn scraped(&self) {
        let before: BTreeMap<_, _> =
            self.parts.iter().map(|part| (part.name, part.rendered.load(Ordering::SeqCst))).collect();
        let all = async {
            loop {
                let now = self.prometheus.by_label(RENDERED, "job").await;
                if before.iter().all(|(part, before)| now.get(*part).is_some_and(|now| *now > *before as f64)) {
                    return;
                }
                tokio::time::sleep(EVERY / 2).await;
            }
        };
        let all = tokio::time::timeout(PATIENCE, all).await;
        all.unwrap_or_else(|_| panic!("Prometheus does not scrape:\n{}", self.prometheus.log()));
    }
}

/// Whatever takes longer than that on two busy cores, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The taps of a scenario are the same each time.
const SEED: u64 = 1;

async fn served(scrape: Scrape, rendered: Arc<AtomicU64>, servers: &mut JoinSet<()>) -> SocketAddr {
    let text = async move || {
        let number = rendered.fetch_add(1, Ordering::SeqCst) + 1;
        let text = format!("{}# TYPE {RENDERED} gauge\n{RENDERED} {number}\n", scrape.render());
        ([(CONTENT_TYPE, Scrape::CONTENT_TYPE)], text)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let app = Router::new().route("/metrics", get(text));
    servers.spawn(async move { axum::serve(listener, app).await.unwrap() });
    addr
}

// === Deaf ===

impl Observer for Deaf {
    fn on(&self, event: &Event<'_>) {
        if self.heard.fetch_add(1, Ordering::Relaxed) % self.one_in != self.one_in - 1 {
            self.to.on(event);
        }
    }
}
