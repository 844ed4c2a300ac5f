//! An exporter for spans: OTLP over HTTP, in protobuf, to a collector.
//!
//! Decides how the pieces are put together: the SDK's batches, on a thread of their own; the connection, on a small runtime of
//! its own, so that no export waits for the runtime that it reports on, and no end of that runtime loses the last batch; and
//! that what ran out of time is exported although its trace was not sampled. It speaks no TLS: the collector is a neighbour,
//! and whoever needs more builds a provider of their own and keeps [`Spans`](crate::trace::Spans).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider};
use tokio::runtime::{Builder, Runtime};
use tracing::Subscriber;
use tracing::subscriber::NoSubscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::registry::LookupSpan;

use crate::trace::{KeepEnded, RecordAll};

/// How long one export may take.
const EXPORT: Duration = Duration::from_secs(10);

/// Sends spans to a collector. Made by [`Otlp::to`].
///
/// Batches that could not be sent are counted, and told by [`finish`](Self::finish). Two losses are not:
///
/// - **Spans that the SDK's queue has no room for**, which are dropped before there is a batch: the queue holds 2048 spans
///   (`OTEL_BSP_MAX_QUEUE_SIZE`), and more than it can send may end at once. The SDK logs that, with its own crate's name.
/// - **Partial success**: a collector that takes a batch, with a 200, may say in its answer that it rejected some of its spans.
///   Its answer is not read for that. Ask the collector: it counts what it refuses.
///
/// ```no_run
/// use oneclock_telemetry::otlp::Otlp;
/// use tracing_subscriber::filter::{LevelFilter, Targets};
/// use tracing_subscriber::layer::{Layer, SubscriberExt};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let otlp = Otlp::to("http://127.0.0.1:4318").service("order").sampled(0.1).build()?;
/// // Without a filter the spans of h2 and hyper go out too, a hundred for each call.
/// let informative = Targets::new().with_default(LevelFilter::INFO);
/// let subscriber = tracing_subscriber::registry().with(otlp.layer().with_filter(informative));
/// tracing::subscriber::set_global_default(subscriber)?;
/// // … serve …
/// otlp.finish(std::time::Duration::from_secs(5))?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "spans are sent as long as it lives"]
pub struct Otlp {
    provider: SdkTracerProvider,
    lost: Arc<AtomicU64>,
}

/// Builds an [`Otlp`].
#[derive(Clone, Debug)]
#[must_use = "an exporter is made by `build`"]
pub struct OtlpBuilder {
    collector: String,
    service: Option<String>,
    sampled: f64,
}

/// The exporter cannot be made, or could not send all.
#[derive(Debug)]
#[non_exhaustive]
pub enum OtlpError {
    /// It speaks plain HTTP only.
    NotHttp,
    /// It has a path: the exporter adds `/v1/traces` itself.
    HasPath,
    /// It has a query or a fragment, which would swallow the path.
    HasQuery,
    /// The share of traces to sample is none.
    NotAShare(f64),
    /// Its thread or its client could not be made, or the end was not reached in time.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

/// Sends on a runtime of its own: the SDK calls it from a thread that has none.
struct Sender {
    client: HyperClient,
    runtime: Option<Runtime>, // there until it is dropped
    lost: Arc<AtomicU64>,     // batches that could not be sent
}

// === Otlp ===

impl Otlp {
    /// To the collector at this address, without a path: `http://127.0.0.1:4318`.
    pub fn to(collector: impl Into<String>) -> OtlpBuilder {
        OtlpBuilder { collector: collector.into(), service: None, sampled: 1.0 }
    }

    /// The layer for a `tracing` subscriber.
    pub fn layer<S>(&self) -> OpenTelemetryLayer<S, SdkTracer>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        // Seven attributes of every span less: where in the source it was made, by which thread, how long it was entered.
        tracing_opentelemetry::layer()
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_tracer(self.provider.tracer("oneclock"))
    }

    /// Sends what is not sent yet, and ends. Blocks for as long as `bound`: call it last, after `serve` has come back, and from
    /// async code in `spawn_blocking`. Left out, as by a `?` out of `main`, the last batch is lost.
    ///
    /// # Errors
    /// [`OtlpError::Failed`], if the end was not reached in time, or if a batch could not be sent, now or before.
    pub fn finish(self, bound: Duration) -> Result<(), OtlpError> {
        self.provider.shutdown_with_timeout(bound).map_err(|error| OtlpError::Failed(error.into()))?;
        // The SDK drops what became of a batch.
        match self.lost.load(Ordering::Relaxed) {
            0 => Ok(()),
            lost => Err(OtlpError::Failed(format!("{lost} batches of spans could not be sent").into())),
        }
    }
}

// === OtlpBuilder ===

impl OtlpBuilder {
    /// The name of this service; what `OTEL_SERVICE_NAME` says unless said otherwise.
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.service = Some(name.into());
        self
    }

    /// Which share of the traces that begin here is sampled, from 0 to 1; all unless said otherwise. A trace that came with a
    /// request was decided where it began. What runs out of time is exported in any case.
    pub fn sampled(mut self, share: f64) -> Self {
        self.sampled = share;
        self
    }

    /// Makes the exporter. Needs no runtime.
    ///
    /// # Errors
    /// [`OtlpError`], for an address that is not `http://…`, for a share outside of 0 to 1, and where the thread or the client
    /// could not be made.
    pub fn build(self) -> Result<Otlp, OtlpError> {
        if !self.collector.starts_with("http://") {
            return Err(OtlpError::NotHttp);
        }
        if !(0.0..=1.0).contains(&self.sampled) {
            return Err(OtlpError::NotAShare(self.sampled));
        }
        if self.collector.contains(['?', '#']) {
            return Err(OtlpError::HasQuery);
        }
        let collector = self.collector.trim_end_matches('/');
        if collector.trim_start_matches("http://").contains('/') {
            return Err(OtlpError::HasPath);
        }
        let endpoint = format!("{collector}/v1/traces");
        let resource = Resource::builder();
        let resource = match self.service {
            Some(name) => resource.with_attribute(KeyValue::new("service.name", name)),
            None => resource,
        };
        let lost = Arc::new(AtomicU64::new(0));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Sender::new(Arc::clone(&lost))?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .with_timeout(EXPORT)
            .build()
            .map_err(|error| OtlpError::Failed(error.into()))?;
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(self.sampled)));
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_sampler(RecordAll(sampler))
            .with_span_processor(KeepEnded(BatchSpanProcessor::builder(exporter).build()))
            .build();
        Ok(Otlp { provider, lost })
    }
}

// === Sender ===

impl Sender {
    fn new(lost: Arc<AtomicU64>) -> Result<Self, OtlpError> {
        // What sending does is not traced: it would be sent in turn, without end.
        let untraced = || std::mem::forget(tracing::subscriber::set_default(NoSubscriber::new()));
        let mut runtime = Builder::new_multi_thread();
        let runtime =
            runtime.worker_threads(1).thread_name("oneclock-otlp").on_thread_start(untraced).enable_all().build();
        let runtime = runtime.map_err(|error| OtlpError::Failed(error.into()))?;
        Ok(Self { client: HyperClient::with_default_connector(EXPORT, None), runtime: Some(runtime), lost })
    }
}

impl HttpClient for Sender {
    // As the trait's own macro writes it, which is not worth a dependency.
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'a: 'f,
        Self: 'f,
    {
        let client = self.client.clone();
        let runtime = self.runtime.as_ref();
        let sending = runtime.map(|runtime| runtime.spawn(async move { client.send_bytes(request).await }));
        let lost = Arc::clone(&self.lost);
        Box::pin(async move {
            let sent = async { sending.ok_or("the exporter is over")?.await? }.await;
            if !matches!(&sent, Ok(answer) if answer.status().is_success()) && lost.fetch_add(1, Ordering::Relaxed) == 0
            {
                tracing::warn!("spans could not be sent to the collector; said once, and counted for the end");
            }
            sent
        })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background(); // it may be dropped in async code, where a runtime may not wait
        }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

// === OtlpError ===

impl fmt::Display for OtlpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHttp => f.write_str(
                "the collector's address does not begin with http://: this exporter speaks no TLS; send to a collector \
                 beside this process, or build a provider of your own",
            ),
            Self::HasPath => f.write_str(
                "the collector's address has a path; write it without one, such as http://127.0.0.1:4318: `/v1/traces` is added",
            ),
            Self::HasQuery => f.write_str(
                "the collector's address has a query or a fragment; write it without one, such as http://127.0.0.1:4318: \
                 `/v1/traces` is added behind it",
            ),
            Self::NotAShare(share) => write!(f, "sampled({share}): the share of traces is a number from 0 to 1"),
            Self::Failed(_) => f.write_str("the exporter could not be made, or could not send everything"),
        }
    }
}

impl std::error::Error for OtlpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(source) => Some(&**source),
            Self::NotHttp | Self::HasPath | Self::HasQuery | Self::NotAShare(_) => None,
        }
    }
}
