//! How metrics are made: which timeouts get an edge, and how many names there may be.
//!
//! Decides the edges of buckets. A histogram is cut off at the timeouts in force, so each of them needs an edge: without one
//! the share of what was cut off cannot be read from it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use oneclock::events::AlreadyObserved;
use oneclock_core::Policy;
use oneclock_core::ingress::{Coverage, Limits};

use super::sink::Sink;
use super::{Metrics, Scrape};

/// The edges that OpenTelemetry advises for HTTP and RPC, in seconds, and one below them: a lookup in a database or a cache
/// is often done within a millisecond.
pub const STANDARD_EDGES: [f64; 15] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// How many names one metric may have unless something else is said.
pub const DEFAULT_NAMES: usize = 200;

/// At most so many timeouts get an edge beside the standard ones: every edge is a series of its own for every series of a histogram.
pub const MOST_TIMEOUTS: usize = 50;

/// Builds [`Metrics`].
///
/// ```
/// # use oneclock_core::Policy; use oneclock_telemetry::Metrics; use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let policy = Policy::named("order").when_absent(Duration::from_millis(800)).build()?;
/// let builder = Metrics::builder()
///     .policy(&policy)
///     .timeout(Duration::from_millis(300)); // the cap of a destination, or of a statement
/// assert!(builder.edges().contains(&0.8) && builder.edges().contains(&0.3));
/// let (metrics, scrape) = builder.build()?;
/// # drop((metrics, scrape)); Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "metrics are made by `observe_globally`, `build` or `build_global`"]
pub struct MetricsBuilder {
    timeouts: BTreeSet<Duration>,
    names: usize,
}

/// Metrics cannot be made like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// More timeouts than buckets should have edges.
    #[error(
        "{timeouts} different timeouts would each get an edge in every histogram, {MOST_TIMEOUTS} is the most; let routes \
         share limits, or name fewer timeouts"
    )]
    TooManyTimeouts {
        /// How many there are, without those that have a standard edge.
        timeouts: usize,
    },
    /// This process has an observer already.
    #[error("this process has an observer already: observe by `Several`, which holds as many as there are")]
    AlreadyObserved,
    /// What the exporter did not take.
    #[error("the exporter does not take these buckets: {0}")]
    Exporter(String),
}

impl MetricsBuilder {
    pub(super) fn new() -> Self {
        Self { timeouts: BTreeSet::new(), names: DEFAULT_NAMES }
    }

    /// Gives every limit of a policy an edge: what is used when nothing is said, the ceiling, and the longest life of a
    /// stream, of the service and of each route.
    pub fn policy(mut self, policy: &Policy) -> Self {
        let of = |limits: &Limits| {
            let stream = if let Coverage::Streaming { total, .. } = limits.coverage() { Some(total) } else { None };
            [Some(limits.when_absent_value()), Some(limits.ceiling_value()), stream].into_iter().flatten()
        };
        self.timeouts.extend(of(policy.limits(None)));
        self.timeouts.extend(policy.routes().flat_map(|(_, limits)| of(limits)));
        self
    }

    /// Gives another timeout an edge: the cap of a destination, of a pool, of a statement, the budget of a job. Zero is none.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.insert(timeout);
        self
    }

    /// How many names a metric may have, [`DEFAULT_NAMES`] unless set: operations with their routes, or dependencies. Each has
    /// a series for every combination of words that occurs. Past that, what is new is counted under the name
    /// [`OVERFLOW`](crate::names::OVERFLOW), and a warning is logged, once for each metric.
    pub fn names(mut self, most: usize) -> Self {
        self.names = most;
        self
    }

    /// The edges of every histogram, in seconds, ascending. For whoever builds the recorder of the process.
    pub fn edges(&self) -> Vec<f64> {
        let timeouts = self.timeouts.iter().filter(|timeout| !timeout.is_zero()).map(Duration::as_secs_f64);
        let mut edges: Vec<f64> = STANDARD_EDGES.into_iter().chain(timeouts).collect();
        edges.sort_by(f64::total_cmp);
        edges.dedup();
        edges
    }

    /// Metrics with a recorder of their own, and what renders it.
    ///
    /// # Errors
    /// [`MetricsError`].
    pub fn build(self) -> Result<(Metrics, Scrape), MetricsError> {
        self.check()?;
        let recorder = PrometheusBuilder::new()
            .set_buckets(&self.edges())
            .map_err(|error| MetricsError::Exporter(error.to_string()))?
            .build_recorder();
        let handle = recorder.handle();
        let metrics = Metrics::new(Sink::own(recorder), self.names);
        Ok((metrics.clone(), Scrape::new(metrics, handle)))
    }

    /// Metrics with a recorder of their own that are told of everything in this process, and what renders them: all that a
    /// process needs whose only observer they are. Beside others, in [`Several`](crate::Several), use
    /// [`build`](Self::build).
    ///
    /// ```
    /// # use oneclock::Operation; use oneclock_telemetry::{Metrics, MetricsError}; use std::time::Duration;
    /// # fn main() -> Result<(), MetricsError> {
    /// let scrape = Metrics::builder().timeout(Duration::from_secs(300)).observe_globally()?;
    /// drop(Operation::begin("nightly", Duration::from_secs(300)));
    /// assert!(scrape.render().contains(r#"oneclock_operations_total{operation="nightly""#));
    /// assert!(Metrics::builder().observe_globally().is_err(), "there is an observer already");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`MetricsError`].
    pub fn observe_globally(self) -> Result<Scrape, MetricsError> {
        let (metrics, scrape) = self.build()?;
        oneclock::events::observe_globally(Arc::new(metrics))
            .map_err(|AlreadyObserved { .. }| MetricsError::AlreadyObserved)?;
        Ok(scrape)
    }

    /// Metrics that are written through the recorder of the process, the facade's: install that one first, with
    /// [`edges`](Self::edges) for everything that begins with `oneclock_`. A series that is new before it is there
    /// stays lost. The gauges are set by [`Metrics::refresh`], before each scrape.
    ///
    /// ```
    /// use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
    /// # use oneclock_telemetry::Metrics;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Metrics::builder();
    /// let recorder = PrometheusBuilder::new()
    ///     .set_buckets_for_metric(Matcher::Prefix("oneclock_".to_owned()), &builder.edges())?
    ///     .install_recorder()?;
    /// let metrics = builder.build_global()?;
    /// metrics.refresh();
    /// assert!(recorder.render().contains("oneclock_zombie_work"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`MetricsError`].
    pub fn build_global(self) -> Result<Metrics, MetricsError> {
        self.check()?;
        Ok(Metrics::new(Sink::Global, self.names))
    }

    fn check(&self) -> Result<(), MetricsError> {
        let timeouts = self.edges().len() - STANDARD_EDGES.len(); // zero, and what is a standard edge, add none
        if timeouts > MOST_TIMEOUTS { Err(MetricsError::TooManyTimeouts { timeouts }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn every_limit_of_a_policy_has_an_edge() {
        let policy = Policy::named("order")
            .when_absent(ms(800))
            .ceiling(ms(2_200))
            .route("/reports/{id}", |limits| limits.ceiling(ms(30_000)).when_absent(ms(20_000)))
            .route("/events", |limits| limits.streaming(ms(15_000), ms(600_000)))
            .build()
            .expect("fits");
        let edges = Metrics::builder().policy(&policy).timeout(ms(300)).timeout(Duration::ZERO).edges();
        for edge in [0.3, 0.8, 2.2, 20.0, 30.0, 600.0].into_iter().chain(STANDARD_EDGES) {
            assert_eq!(edges.iter().filter(|there| **there == edge).count(), 1, "{edge} in {edges:?}");
        }
        assert!(edges.is_sorted());
        assert!(!edges.contains(&0.0));
    }

    #[test]
    fn an_edge_that_is_there_already_is_not_there_twice() {
        assert_eq!(Metrics::builder().timeout(ms(10_000)).edges(), STANDARD_EDGES);
    }

    #[test]
    fn too_many_timeouts_are_refused_and_the_way_out_is_said() {
        let standard = [0, 1, 5, 10, 1_000, 10_000]; // they add no edge
        let most = (101..=150).chain(standard).fold(Metrics::builder(), |builder, n| builder.timeout(ms(n)));
        assert_eq!(most.edges().len(), STANDARD_EDGES.len() + MOST_TIMEOUTS);
        assert!(most.clone().build().is_ok());
        let refused = most.timeout(ms(151)).build().map(|_| ()).expect_err("51");
        assert_eq!(
            refused.to_string(),
            "51 different timeouts would each get an edge in every histogram, 50 is the most; let routes share limits, or \
             name fewer timeouts"
        );
    }
}
