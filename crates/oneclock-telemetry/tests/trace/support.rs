//! Two services, and an exporter that can be waited for.

use std::collections::BTreeMap;
use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use http::HeaderMap;
use oneclock::events::Observer;
use oneclock_axum::{Policy, PolicyExt as _};
use oneclock_core::Trust;
use oneclock_http::{Client, serve};
use oneclock_telemetry::trace::{SpanLayer, Spans};
use oneclock_test::PATIENCE;
use oneclock_test::caller::{Caller, H1Caller, H1Outcome};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt as _;

pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
pub(crate) const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Keeps what is exported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exported {
    spans: Arc<Mutex<Vec<SpanData>>>,
    more: Arc<Notify>,
}

impl SpanExporter for Exported {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.spans.lock().unwrap().extend(batch);
        self.more.notify_waiters();
        Ok(())
    }
}

impl Exported {
    /// All spans, once there are as many as this.
    pub(crate) async fn all(&self, count: usize) -> Vec<SpanData> {
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let more = self.more.notified();
                tokio::pin!(more);
                more.as_mut().enable();
                if self.spans.lock().unwrap().len() >= count {
                    return;
                }
                more.await;
            }
        });
        let waited = waited.await;
        let spans = self.spans.lock().unwrap().clone();
        assert!(waited.is_ok(), "{count} spans wanted, these came: {:?}", names(&spans));
        spans
    }

    /// The one with this name, once it is there.
    pub(crate) async fn named(&self, name: &str, count: usize) -> SpanData {
        let spans = self.all(count).await;
        let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name} among {:?}", names(&spans));
        found[0].clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.spans.lock().unwrap().len()
    }
}

fn names(spans: &[SpanData]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_ref()).collect()
}

/// A tracer for this thread, which all that a test of one thread starts runs on.
pub(crate) fn tracer(provider: &SdkTracerProvider) -> DefaultGuard {
    use opentelemetry::trace::TracerProvider as _;
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    tracing::subscriber::set_default(tracing_subscriber::registry().with(layer))
}

/// A tracer that samples all.
pub(crate) fn tracing_all() -> (Exported, SdkTracerProvider, DefaultGuard) {
    let exported = Exported::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
    let guard = tracer(&provider);
    (exported, provider, guard)
}

/// A service on a port of its own, with our layers around it.
pub(crate) async fn service(name: &'static str, routes: Router, observer: impl Observer) -> SocketAddr {
    let policy = Policy::named(name).when_absent(ms(5_000)).build().unwrap();
    let app = routes.layer(SpanLayer::new()).layer(policy.layer().server_timing().observed_by(Arc::new(observer)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, app).trust(Trust::Inside).into_future());
    addr
}

pub(crate) async fn traced(name: &'static str, routes: Router) -> SocketAddr {
    service(name, routes, Spans::new()).await
}

pub(crate) fn client(name: &'static str, addr: SocketAddr) -> Client {
    Client::builder(name, format!("http://{addr}")).trust(Trust::Inside).build().unwrap()
}

pub(crate) fn asking(addr: SocketAddr, path: &str, fields: &[(&str, &str)]) -> H1Caller {
    fields.iter().fold(Caller::h1(addr).get(path), |caller, (name, value)| caller.header(*name, *value))
}

/// The status and the text of a whole answer.
#[track_caller]
pub(crate) fn whole(answer: H1Outcome) -> (u16, String) {
    match answer {
        H1Outcome::Complete { status, body, .. } => (status.as_u16(), String::from_utf8_lossy(&body).into_owned()),
        other => panic!("no whole answer: {other:?}"),
    }
}

/// The trace context that a service was sent.
pub(crate) fn context(headers: &HeaderMap) -> String {
    let text = |name: &str| headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
    format!("{} {}", text("traceparent"), text("tracestate"))
}

pub(crate) fn attributes(span: &SpanData) -> BTreeMap<String, String> {
    let all = span.attributes.iter();
    let map: BTreeMap<_, _> = all.map(|one| (one.key.to_string(), one.value.to_string())).collect();
    assert_eq!(map.len(), span.attributes.len(), "none twice: {:?}", span.attributes);
    map
}

#[track_caller]
pub(crate) fn has(span: &SpanData, wanted: &[(&str, &str)]) {
    let attributes = attributes(span);
    for (name, value) in wanted {
        assert_eq!(attributes.get(*name).map(String::as_str), Some(*value), "{name} of {}: {attributes:?}", span.name);
    }
}

#[track_caller]
pub(crate) fn has_none(span: &SpanData, unwanted: &[&str]) {
    let attributes = attributes(span);
    for name in unwanted {
        assert!(!attributes.contains_key(*name), "{name} of {}: {attributes:?}", span.name);
    }
}
