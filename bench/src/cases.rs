//! The services that are compared, and how one request is driven through each: head and body, to the end.
//!
//! Every case has a bare counterpart that is sent the same request and answers the same bytes, so that the difference is
//! the layer's cost alone. A request is polled until it is done without going back to the runtime, whose own work would
//! only add noise; timers are made, registered and cancelled as usual.

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body::Body;
use http_body_util::{Empty, Full};
use oneclock::events::Event;
use oneclock::{Admission, Operation, Shutdown};
use oneclock_core::admission::Settings;
use oneclock_core::{Policy, Trust};
use oneclock_http::{Arrival, Destination, EgressLayer, Exchange, IngressLayer, Route};
use oneclock_telemetry::trace::{SpanLayer, Spans};
use oneclock_telemetry::{Metrics, Several};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::{Layer, Service, ServiceExt, service_fn};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::turn::Round;

/// What a case fails with: an answer that was not the expected one must not count as a fast one.
pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// One thing to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// One request.
    Request(Run),
    /// One place that is asked for, held and given back.
    Turn(Round),
    /// One look at the clock of the current operation, or the empty loop around it.
    Ask(Ask),
}

/// One request: through what, with which fields, answered how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) stack: Stack,
    pub(crate) fields: Fields,
    pub(crate) served: Served,
    pub(crate) answers: Answers,
}

/// What stands around the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    Bare,
    Tower,
    /// `ConcurrencyLimit`
    TowerLimit,
    /// `LoadShed`
    TowerShed,
    /// `LoadShed` over `ConcurrencyLimit` over `Timeout`
    TowerAll,
    TowerHttp,
    Ingress,
    /// The same on a route.
    IngressRouted,
    /// The same, with a place to be given for each request.
    IngressAdmitting,
    /// The same on a route, told to an observer that does nothing.
    IngressObserved,
    /// The same on a route, counted.
    IngressCounted,
    /// The same on a route, counted, and in a span that an OpenTelemetry tracer records and nobody exports.
    IngressTraced,
    /// The handler makes one call to another bare service.
    BareCalling,
    /// The same call through `Egress`, below `Ingress`.
    IngressCalling,
    /// The same on a route, counted.
    IngressCallingCounted,
}

/// What the request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fields {
    None,
    /// Six ordinary fields.
    Ordinary,
    /// The same, and `x-remaining-ms`.
    Remaining,
    /// gRPC's usual fields, and `grpc-timeout`.
    Grpc,
}

/// Under which accept loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// Somebody else's.
    Elsewhere,
    /// Ours: stamped with its arrival, in an exchange of its own. Both are counted as ours.
    ByUs,
}

/// When the handler's answer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    AtOnce,
    /// At the second poll: timers are needed.
    AfterAWait,
}

/// A look at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Nothing,
    CurrentRemaining,
    Remaining,
}

/// A body that arrives with its head, as a GET's does.
type Upload = Empty<Bytes>;
type Answer = Response<Full<Bytes>>;

const BUDGET: Duration = Duration::from_secs(2);
const PLACES: usize = 8;
const BODY: &[u8] = b"{\"reserved\":true}";

// === Case ===

impl Case {
    /// Every case, each bare one before those that are compared with it.
    pub(crate) fn all() -> Vec<Self> {
        let asks = [Ask::Nothing, Ask::CurrentRemaining, Ask::Remaining].map(Self::Ask);
        Run::all().into_iter().map(Self::Request).chain(asks).chain(Round::ALL.map(Self::Turn)).collect()
    }

    pub(crate) fn label(self) -> String {
        format!("{self:?}").chars().filter(|c| c.is_alphanumeric()).collect()
    }

    pub(crate) fn named(label: &str) -> Option<Self> {
        Self::all().into_iter().find(|case| case.label() == label)
    }

    /// Makes what a process has once. Only what comes after it is counted: the exporter looks at the clock until it knows its
    /// pace, which takes another number of looks each time.
    pub(crate) fn prepare(self) -> Result<(), Failed> {
        if let Self::Request(Run {
            stack: Stack::IngressCounted | Stack::IngressTraced | Stack::IngressCallingCounted,
            ..
        }) = self
        {
            metrics()?;
        }
        Ok(())
    }

    /// Does it `times` times. Kept a function of its own, since its name says what is counted.
    #[inline(never)]
    pub(crate) fn drive(self, times: u32) -> Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        // Unconstrained: tokio's own budget would make timers wait for a return to the runtime.
        runtime.block_on(tokio::task::unconstrained(async {
            match self {
                Self::Request(run) => run.drive(times).await,
                Self::Turn(round) => round.drive(times),
                Self::Ask(ask) => {
                    ask.drive(times).await;
                    Ok(())
                }
            }
        }))
    }
}

// === Run ===

impl Run {
    fn all() -> Vec<Self> {
        let rows = [
            (Stack::Bare, Fields::None),
            (Stack::Bare, Fields::Ordinary),
            (Stack::Bare, Fields::Remaining),
            (Stack::Bare, Fields::Grpc),
            (Stack::BareCalling, Fields::Remaining),
            (Stack::Tower, Fields::None),
            (Stack::TowerLimit, Fields::None),
            (Stack::TowerShed, Fields::None),
            (Stack::TowerAll, Fields::None),
            (Stack::TowerHttp, Fields::None),
            (Stack::Ingress, Fields::None),
            (Stack::Ingress, Fields::Ordinary),
            (Stack::Ingress, Fields::Remaining),
            (Stack::Ingress, Fields::Grpc),
            (Stack::IngressRouted, Fields::Remaining),
            (Stack::IngressAdmitting, Fields::Remaining),
            (Stack::IngressObserved, Fields::Remaining),
            (Stack::IngressCounted, Fields::Remaining),
            (Stack::IngressTraced, Fields::Remaining),
            (Stack::IngressCalling, Fields::Remaining),
            (Stack::IngressCallingCounted, Fields::Remaining),
        ];
        let mut all = Vec::new();
        for answers in [Answers::AtOnce, Answers::AfterAWait] {
            for (stack, fields) in rows {
                all.push(Self { stack, fields, served: Served::Elsewhere, answers });
                if matches!(stack, Stack::Ingress | Stack::IngressCalling) {
                    all.push(Self { stack, fields, served: Served::ByUs, answers });
                }
            }
        }
        all
    }

    /// What this one is compared with.
    pub(crate) fn bare(self) -> Self {
        let stack = match self.stack {
            Stack::IngressCalling | Stack::IngressCallingCounted | Stack::BareCalling => Stack::BareCalling,
            Stack::Bare
            | Stack::Tower
            | Stack::TowerLimit
            | Stack::TowerShed
            | Stack::TowerAll
            | Stack::TowerHttp
            | Stack::Ingress
            | Stack::IngressRouted
            | Stack::IngressAdmitting
            | Stack::IngressObserved
            | Stack::IngressCounted
            | Stack::IngressTraced => Stack::Bare,
        };
        Self { stack, served: Served::Elsewhere, ..self }
    }

    async fn drive(self, times: u32) -> Result<(), Failed> {
        let answers = self.answers;
        match self.stack {
            Stack::Bare => self.through(handler::<Upload>(answers), times).await,
            Stack::Tower => self.through(tower::timeout::Timeout::new(handler::<Upload>(answers), BUDGET), times).await,
            Stack::TowerLimit => self.through(ConcurrencyLimit::new(handler::<Upload>(answers), PLACES), times).await,
            Stack::TowerShed => self.through(LoadShed::new(handler::<Upload>(answers)), times).await,
            Stack::TowerAll => {
                let timeout = tower::timeout::Timeout::new(handler::<Upload>(answers), BUDGET);
                self.through(LoadShed::new(ConcurrencyLimit::new(timeout, PLACES)), times).await
            }
            Stack::TowerHttp => {
                let timeout = tower_http::timeout::TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, BUDGET);
                self.through(timeout.layer(handler::<Upload>(answers)), times).await
            }
            Stack::Ingress => self.through(ingress()?.layer(handler(answers)), times).await,
            Stack::IngressRouted => self.through(routed()?.layer(handler(answers)), times).await,
            Stack::IngressAdmitting => {
                let admission = Admission::to("pool", Settings::fixed(8))?;
                self.through(routed()?.admission(&admission).layer(handler(answers)), times).await
            }
            Stack::IngressObserved => {
                let observer = Arc::new(|_: &Event<'_>| {});
                self.through(routed()?.observed_by(observer).layer(handler(answers)), times).await
            }
            Stack::IngressCounted => {
                self.through(routed()?.observed_by(metrics()?).layer(handler(answers)), times).await
            }
            Stack::IngressTraced => {
                let observers = Several::new().and((*metrics()?).clone()).and(Spans::new());
                let traced = SpanLayer::new().layer(handler(answers));
                let service = routed()?.observed_by(Arc::new(observers)).layer(traced);
                let _tracing = tracing::subscriber::set_default(recording()); // for this row alone
                self.through(service, times).await
            }
            Stack::BareCalling => {
                let caller = caller::<Upload, _, _>(handler(answers));
                self.through(caller, times).await
            }
            Stack::IngressCalling => self.through(ingress()?.layer(through_egress(answers)?), times).await,
            Stack::IngressCallingCounted => {
                self.through(routed()?.observed_by(metrics()?).layer(through_egress(answers)?), times).await
            }
        }
    }

    async fn through<S, A>(self, mut service: S, times: u32) -> Result<(), Failed>
    where
        S: Service<Request<Upload>, Response = Response<A>>,
        S::Error: Into<Failed>,
        A: Body<Data = Bytes> + Unpin,
        A::Error: Into<Failed>,
    {
        let shutdown = Shutdown::new();
        let request = self.request()?;
        for _ in 0..times {
            let mut request = request.clone();
            match self.served {
                Served::Elsewhere => until_done(pin!(exchange(&mut service, request))).await?,
                Served::ByUs => {
                    let at = oneclock::clock::now();
                    request.extensions_mut().insert(Arrival::new(at, Trust::Inside, None, shutdown.clone()));
                    let guarded = Exchange::guard_stream(exchange(&mut service, request));
                    until_done(pin!(guarded)).await.map_err(|ending| ending.to_string())??;
                }
            }
        }
        Ok(())
    }

    fn request(self) -> Result<Request<Upload>, Failed> {
        let ordinary = Request::get("/orders/17")
            .header("host", "order.internal")
            .header("user-agent", "gateway/1.4")
            .header("accept", "application/json")
            .header("accept-encoding", "gzip")
            .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            .header("x-request-id", "7b1c9c7e-1d3a-4b39-a3f2-6f5b7c0f7a11");
        let request = match self.fields {
            Fields::None => Request::get("/orders/17"),
            Fields::Ordinary => ordinary,
            Fields::Remaining => ordinary.header("x-remaining-ms", "1500"),
            Fields::Grpc => Request::post("/orders.Orders/Get")
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .header("user-agent", "grpc-go/1.70")
                .header("grpc-accept-encoding", "gzip")
                .header("grpc-timeout", "1500m"),
        };
        Ok(request.body(Upload::new())?)
    }
}

fn ingress() -> Result<IngressLayer, Failed> {
    Ok(IngressLayer::new(Policy::named("order").when_absent(BUDGET).build()?).trust(Trust::Inside))
}

fn routed() -> Result<IngressLayer, Failed> {
    Ok(ingress()?.route_by(|_, _| Some(Route::Pattern("/orders/{id}"))))
}

/// Of the process, as in a service: making them costs what a request should not be blamed for.
fn metrics() -> Result<Arc<Metrics>, Failed> {
    static METRICS: OnceLock<Arc<Metrics>> = OnceLock::new();
    if let Some(metrics) = METRICS.get() {
        return Ok(Arc::clone(metrics));
    }
    let (metrics, _) = Metrics::builder().build()?;
    Ok(Arc::clone(METRICS.get_or_init(|| Arc::new(metrics))))
}

/// Records every span and gives it to nobody.
fn recording() -> impl tracing::Subscriber + Send + Sync {
    let tracer = SdkTracerProvider::builder().build().tracer("bench");
    let layer = tracing_opentelemetry::layer().with_location(false).with_threads(false).with_tracked_inactivity(false);
    tracing_subscriber::registry().with(layer.with_tracer(tracer))
}

/// A handler that makes one call through `Egress`.
fn through_egress<B>(
    answers: Answers,
) -> Result<impl Service<Request<B>, Response = Answer, Error = Failed> + Clone, Failed> {
    let destination = Destination::named("inventory").cap(Duration::from_millis(300)).build()?;
    Ok(caller(EgressLayer::new(destination).layer(handler(answers))))
}

/// Answers at once or after a wait, and does nothing else.
fn handler<B>(answers: Answers) -> impl Service<Request<B>, Response = Answer, Error = Failed, Future: Send> + Clone {
    service_fn(move |_: Request<B>| Handling { waits: answers == Answers::AfterAWait })
}

struct Handling {
    waits: bool,
}

impl Future for Handling {
    type Output = Result<Answer, Failed>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if std::mem::take(&mut self.waits) {
            return Poll::Pending; // nobody needs to be woken: whoever drives it polls again at once
        }
        Poll::Ready(Ok(Response::new(Full::new(Bytes::from_static(BODY)))))
    }
}

/// Makes one call, reads its answer to the end, and answers.
fn caller<B, S, A>(callee: S) -> impl Service<Request<B>, Response = Answer, Error = Failed> + Clone
where
    S: Service<Request<Upload>, Response = Response<A>> + Clone,
    S::Error: Into<Failed>,
    A: Body<Data = Bytes> + Unpin,
    A::Error: Into<Failed>,
{
    let uri = Uri::from_static("/stock/9");
    service_fn(move |_: Request<B>| {
        let mut callee = callee.clone();
        let call = call(uri.clone());
        async move {
            exchange(&mut callee, call).await?;
            Ok(Response::new(Full::new(Bytes::from_static(BODY))))
        }
    })
}

/// The call's request, made anew as clients do, with room left in its header map.
fn call(uri: Uri) -> Request<Upload> {
    let mut request = Request::new(Upload::new());
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("inventory.internal"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static("order/1.4"));
    request
}

/// One request and its answer to the last byte, as hyper would poll them.
async fn exchange<S, A>(service: &mut S, request: Request<Upload>) -> Result<(), Failed>
where
    S: Service<Request<Upload>, Response = Response<A>>,
    S::Error: Into<Failed>,
    A: Body<Data = Bytes> + Unpin,
    A::Error: Into<Failed>,
{
    let future = service.ready().await.map_err(Into::into)?.call(request);
    let response = future.await.map_err(Into::into)?;
    let (head, mut body) = response.into_parts();
    let mut read = 0;
    while !body.is_end_stream() {
        let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await else { break };
        read += black_box(frame.map_err(Into::into)?).data_ref().map_or(0, Bytes::len);
    }
    if head.status == StatusCode::OK && read == BODY.len() {
        Ok(())
    } else {
        Err(format!("answered {} with {read} bytes", head.status).into())
    }
}

async fn until_done<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
        }
    })
    .await
}

// === Ask ===

impl Ask {
    async fn drive(self, times: u32) {
        let operation = Operation::begin("order", BUDGET);
        operation
            .scope(async {
                for _ in 0..times {
                    black_box(match self {
                        Self::Nothing => None,
                        Self::CurrentRemaining => Operation::current().map(|operation| operation.remaining()),
                        Self::Remaining => oneclock::remaining(),
                    });
                }
            })
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_does_what_it_counts() {
        for case in Case::all() {
            let done = case.drive(3);
            assert!(done.is_ok(), "{}: {done:?}", case.label());
            assert_eq!(Case::named(&case.label()), Some(case));
        }
        assert_eq!(oneclock::live_operations(), 0);
    }
}
