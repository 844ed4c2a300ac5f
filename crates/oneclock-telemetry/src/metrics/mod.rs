//! Metrics: every event in the series that it belongs to.
//!
//! Decides nothing about what happened; `count` decides what is counted where, `family` how many names there may be,
//! `builder` where buckets have their edges. The text that Prometheus reads is the exporter's.

mod builder;
mod count;
mod family;
mod sink;

use std::fmt;
use std::sync::Arc;

use metrics::Gauge;
use metrics_exporter_prometheus::PrometheusHandle;
use oneclock::events::RanOn;

pub use builder::{DEFAULT_NAMES, MOST_TIMEOUTS, MetricsBuilder, MetricsError, STANDARD_EDGES};
use count::Families;
use family::Handle;
use sink::Sink;

use crate::names;

/// An observer that counts. Cheap to clone; all clones write to the same series.
///
/// It is told by drop guards, so that a cancelled handler, a call that was cut off and a body that ended mid-stream are
/// counted like the rest (contract N1). It allocates when a series is
/// new, and a block for every 64 samples of a histogram.
///
/// ```
/// use oneclock::Operation;
/// use oneclock_telemetry::Metrics;
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (metrics, scrape) = Metrics::builder().build()?;
/// let job = Operation::begin("reconcile", Duration::from_secs(1)).observed_by(Arc::new(metrics));
/// let late = job.run(tokio::time::sleep(Duration::from_secs(5))).await;
/// drop(job);
/// assert!(late.is_err());
/// let counted = r#"oneclock_operations_total{operation="reconcile",route="none",cause="deadline"} 1"#;
/// assert!(scrape.render().contains(counted));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    sink: Sink,
    families: Families,
    zombies: [(RanOn, Gauge); 3],
}

/// What Prometheus reads: the classic text of everything that [`Metrics`] has counted. Cheap to clone.
///
/// ```
/// use axum::{Router, http::header::CONTENT_TYPE, routing::get};
/// use oneclock_telemetry::{Metrics, Scrape};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (metrics, scrape) = Metrics::builder().build()?;
/// oneclock::events::observe_globally(std::sync::Arc::new(metrics))?;
/// let admin: Router = Router::new()
///     .route("/metrics", get(move || async move { ([(CONTENT_TYPE, Scrape::CONTENT_TYPE)], scrape.render()) }));
/// # drop(admin); Ok(()) }
/// ```
#[derive(Clone)]
pub struct Scrape {
    metrics: Metrics,
    handle: PrometheusHandle,
}

// === Metrics ===

impl Metrics {
    /// Begins with the standard edges and at most [`DEFAULT_NAMES`] names for each metric.
    pub fn builder() -> MetricsBuilder {
        MetricsBuilder::new()
    }

    fn new(sink: Sink, names: usize) -> Self {
        sink.describe();
        let zombies = [RanOn::MustFinish, RanOn::Blocking, RanOn::Statement].map(|because| {
            let key =
                metrics::Key::from_parts(names::ZOMBIES.name, vec![metrics::Label::new("layer", because.as_str())]);
            (because, sink.with(|recorder| Gauge::register(recorder, &key)))
        });
        Self(Arc::new(Inner { sink, families: Families::new(names), zombies }))
    }

    /// Sets the gauges to what is true now. [`Scrape::render`] does it; with the recorder of the process, whoever renders
    /// calls it before.
    pub fn refresh(&self) {
        let now = oneclock::zombies();
        for (because, gauge) in &self.0.zombies {
            let running = match because {
                RanOn::MustFinish => now.must_finish,
                RanOn::Blocking => now.blocking,
                RanOn::Statement => now.statements,
                _ => 0, // not among those above
            };
            gauge.set(u32::try_from(running).unwrap_or(u32::MAX));
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Handle for Gauge {
    fn register(recorder: &dyn metrics::Recorder, key: &metrics::Key) -> Self {
        recorder.register_gauge(key, &sink::METADATA)
    }
}

// === Scrape ===

impl Scrape {
    /// The media type of the text.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    fn new(metrics: Metrics, handle: PrometheusHandle) -> Self {
        Self { metrics, handle }
    }

    /// The text, with the gauges as they are now.
    pub fn render(&self) -> String {
        self.metrics.refresh();
        self.handle.render()
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}
