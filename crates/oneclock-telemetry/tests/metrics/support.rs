//! Reading a scrape, and a service in memory.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Empty, Full};
use oneclock::Operation;
use oneclock_core::{Policy, Trust};
use oneclock_http::{IngressLayer, Route, Upload};
use oneclock_telemetry::names::{Kind, Metric};
use oneclock_telemetry::{Metrics, Scrape};
use tower::{Layer, Service, service_fn};

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Metrics and what renders them.
pub(crate) struct Counted {
    pub(crate) metrics: Metrics,
    pub(crate) scrape: Scrape,
}

/// One scrape.
pub(crate) struct Seen(String);

// === Counted ===

impl Counted {
    pub(crate) fn new() -> Self {
        let (metrics, scrape) = Metrics::builder().build().unwrap();
        Self { metrics, scrape }
    }

    pub(crate) fn observer(&self) -> Arc<Metrics> {
        Arc::new(self.metrics.clone())
    }

    pub(crate) fn begin(&self, name: &'static str, budget: Duration) -> Operation {
        Operation::begin(name, budget).observed_by(self.observer())
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen(self.scrape.render())
    }
}

// === Seen ===

impl Seen {
    /// The value of one series; zero where there is none, as for `increase`.
    #[track_caller]
    pub(crate) fn of(&self, metric: &Metric, values: &[&str]) -> f64 {
        let suffix = if metric.kind == Kind::Histogram { "_count" } else { "" };
        assert_eq!(values.len(), metric.labels.len(), "{} has the labels {:?}", metric.name, metric.labels);
        let labels: Vec<String> =
            metric.labels.iter().zip(values).map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let series = format!("{}{suffix}{{{}}}", metric.name, labels.join(","));
        self.lines().find_map(|(name, value)| (name == series).then_some(value)).unwrap_or(0.0)
    }

    /// The sum over all series of a metric; of a histogram, how many samples.
    pub(crate) fn sum(&self, metric: &Metric) -> f64 {
        self.all(metric).map(|(_, value)| value).sum()
    }

    /// How many series a metric has.
    pub(crate) fn series(&self, metric: &Metric) -> usize {
        self.all(metric).count()
    }

    /// All of it.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    fn all(&self, metric: &Metric) -> impl Iterator<Item = (&str, f64)> {
        let suffix = if metric.kind == Kind::Histogram { "_count{" } else { "{" };
        let prefix = format!("{}{suffix}", metric.name);
        self.lines().filter(move |(name, _)| name.starts_with(&prefix))
    }

    fn lines(&self) -> impl Iterator<Item = (&str, f64)> {
        let lines = self.0.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.rsplit_once(' ')).map(|(name, value)| (name, value.parse().unwrap()))
    }
}

// === A service in memory ===

pub(crate) type Answer = Response<Full<Bytes>>;

/// The layer of a policy that gives 100 ms, for one of ours, on route `/orders`.
pub(crate) fn ingress(counted: &Counted) -> IngressLayer {
    let policy = Policy::named("order").when_absent(ms(100)).ceiling(ms(200)).min_useful(ms(5)).build().unwrap();
    IngressLayer::new(policy)
        .trust(Trust::Inside)
        .route_by(|_, _| Some(Route::Pattern("/orders")))
        .observed_by(counted.observer())
}

/// A handler that does `work` and answers.
pub(crate) fn handler<F: Future<Output = Answer>>(
    work: impl Fn() -> F + Clone,
) -> impl Service<Request<Upload<Empty<Bytes>>>, Response = Answer, Error = Infallible, Future: Sized> + Clone {
    service_fn(move |_: Request<Upload<Empty<Bytes>>>| {
        let work = work();
        async move { Ok(work.await) }
    })
}

pub(crate) fn get(fields: &[(&str, &str)]) -> Request<Empty<Bytes>> {
    let request = fields.iter().fold(Request::get("/orders"), |request, (name, value)| request.header(*name, *value));
    request.body(Empty::new()).unwrap()
}

/// Sends one request to a handler below the layer, and waits for its answer; the status.
pub(crate) async fn send<F: Future<Output = Answer>>(
    counted: &Counted,
    fields: &[(&str, &str)],
    work: impl Fn() -> F + Clone,
) -> u16 {
    let mut service = ingress(counted).layer(handler(work));
    let answer = service.call(get(fields)).await.unwrap();
    let status = answer.status().as_u16();
    let _ = http_body_util::BodyExt::collect(answer.into_body()).await;
    status
}

pub(crate) fn answer() -> Answer {
    Response::new(Full::new(Bytes::from_static(b"done")))
}

/// Polls once.
pub(crate) fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let future = pin!(future);
    future.poll(&mut Context::from_waker(Waker::noop()))
}
