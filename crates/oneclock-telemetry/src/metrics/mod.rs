//! Metrics: every event in the series that it belongs to.
//!
//! Decides nothing about what happened; `count` decides what is counted where, `family` how many names there may be,
//! `builder` where buckets have their edges. The text that Prometheus reads is the exporter's.

mod admissions;
mod builder;
mod count;
mod family;
mod healths;
mod sink;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use metrics::Gauge;
use metrics_exporter_prometheus::PrometheusHandle;
use oneclock::events::RanOn;
use oneclock::{Admission, Health};
use oneclock_core::Name;

use admissions::Admissions;
pub use builder::{DEFAULT_NAMES, MOST_TIMEOUTS, MetricsBuilder, MetricsError, STANDARD_EDGES};
use count::Families;
use family::Handle;
use healths::Healths;
use sink::Sink;

use crate::{Readiness, names};

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
    /// How many names each metric may have.
    names: Arc<AtomicUsize>,
    families: Families,
    zombies: [(RanOn, Gauge); 3],
    ready: OnceLock<(Readiness, Gauge)>,
    admissions: Admissions,
    healths: Healths,
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
        let names = Arc::new(AtomicUsize::new(names));
        let (families, ready) = (Families::new(&names), OnceLock::new());
        let (admissions, healths) = (Admissions::default(), Healths::default());
        Self(Arc::new(Inner { sink, names, families, zombies, ready, admissions, healths }))
    }

    /// From now on each metric may have so many names, if that is more than before, for a process whose configuration grows while
    /// it runs: see [`MetricsBuilder::names`]. What was counted as [`OVERFLOW`](names::OVERFLOW) stays there.
    ///
    /// ```
    /// # use oneclock::Operation; use std::{sync::Arc, time::Duration};
    /// use oneclock_telemetry::Metrics;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (metrics, scrape) = Metrics::builder().names(1).build()?;
    /// let observer = Arc::new(metrics.clone());
    /// let ends = |name: &'static str| drop(Operation::begin(name, Duration::from_secs(1)).observed_by(observer.clone()));
    /// ends("orders");
    /// ends("stock");
    /// metrics.at_least_names(2);
    /// ends("stock");
    /// let text = scrape.render();
    /// assert!(text.contains(r#"oneclock_operations_total{operation="overflow",route="overflow",cause="none"} 1"#));
    /// assert!(text.contains(r#"oneclock_operations_total{operation="stock",route="none",cause="none"} 1"#));
    /// # Ok(()) }
    /// ```
    pub fn at_least_names(&self, most: usize) {
        self.0.names.fetch_max(most, Ordering::Relaxed);
    }

    /// Tells whether the process is ready, too, in [`READY`](names::READY): without this there is no such series. The first
    /// readiness stays.
    ///
    /// ```
    /// use oneclock::Shutdown;
    /// use oneclock_telemetry::{Metrics, Readiness};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (metrics, scrape) = Metrics::builder().build()?;
    /// let readiness = Readiness::builder().without_stack().start(&Shutdown::new())?;
    /// metrics.tell_readiness(&readiness);
    /// assert!(scrape.render().contains("oneclock_ready 1"));
    /// # Ok(()) }
    /// ```
    pub fn tell_readiness(&self, readiness: &Readiness) {
        let gauge = || {
            let key = metrics::Key::from_static_name(names::READY.name);
            self.0.sink.with(|recorder| Gauge::register(recorder, &key))
        };
        self.0.ready.get_or_init(|| (readiness.clone(), gauge()));
    }

    /// Tells of the places of this admission, too: how many there are and are taken, who waits, what work is thought to need, and
    /// what is in force. Its name is the label; of two with one name the later one is told of.
    ///
    /// ```
    /// use oneclock::Admission;
    /// use oneclock_core::admission::Settings;
    /// use oneclock_telemetry::Metrics;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (metrics, scrape) = Metrics::builder().build()?;
    /// let connections = Admission::to("orders-database", Settings::fixed(8))?;
    /// metrics.watch_admission(&connections);
    /// assert!(scrape.render().contains(r#"oneclock_places{admission="orders-database"} 8"#));
    /// # Ok(()) }
    /// ```
    pub fn watch_admission(&self, admission: &Admission) {
        self.0.admissions.watch(&self.0.sink, admission);
    }

    /// Tells of the health of this destination, too: which share of its calls is held back, and whether its breaker lets any
    /// through. Its name is the label; of two with one name the later one is told of.
    ///
    /// ```
    /// use oneclock::Health;
    /// use oneclock_telemetry::Metrics;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (metrics, scrape) = Metrics::builder().build()?;
    /// let inventory = Health::of("inventory").build(); // of a client: `client.destination().health()`
    /// metrics.watch_health(&inventory);
    /// assert!(scrape.render().contains(r#"oneclock_throttled_ratio{destination="inventory"} 0"#));
    /// # Ok(()) }
    /// ```
    pub fn watch_health(&self, health: &Health) {
        self.0.healths.watch(&self.0.sink, health);
    }

    /// Tells no longer of admissions whose names are not `left`, for a process whose configuration changes while it runs: they
    /// are let go, and their series stay at 0, since a recorder forgets none.
    ///
    /// ```
    /// use oneclock::Admission;
    /// use oneclock_core::admission::Settings;
    /// use oneclock_telemetry::Metrics;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (metrics, scrape) = Metrics::builder().build()?;
    /// metrics.watch_admission(&Admission::to("orders", Settings::fixed(8))?);
    /// metrics.watch_admission(&Admission::to("reports", Settings::fixed(2))?);
    /// metrics.keep_admissions(|name| name.as_str() == "orders");
    /// let text = scrape.render();
    /// assert!(text.contains(r#"oneclock_places{admission="orders"} 8"#));
    /// assert!(text.contains(r#"oneclock_places{admission="reports"} 0"#));
    /// # Ok(()) }
    /// ```
    pub fn keep_admissions(&self, left: impl Fn(&Name) -> bool) {
        self.0.admissions.keep(&left);
    }

    /// The same for the health of destinations.
    pub fn keep_healths(&self, left: impl Fn(&Name) -> bool) {
        self.0.healths.keep(&left);
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
        if let Some((readiness, gauge)) = self.0.ready.get() {
            gauge.set(if readiness.now().ready { 1.0 } else { 0.0 });
        }
        self.0.admissions.refresh(&self.0.sink);
        self.0.healths.refresh();
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
