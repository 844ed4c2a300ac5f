//! The service: one line per step, each a call into `oneclock-core` or the runtime.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version, header};
use http_body::Body;
use oneclock::events::{Arrived, Event, Refusal};
use oneclock::{Admission, Driver, Operation, clock, events};
use oneclock_core::ingress::{Arriving, Decision};
use oneclock_core::wire::Read;
use oneclock_core::{Deadline, Name, Reason};
use tower_service::Service;

use super::admission::{self, Admitted};
use super::future::{Asker, IngressFuture, Queued, Trailers, Work};
use super::layer::{Config, FindRoute, Route};
use super::told;
use crate::Arrival;
use crate::body::{BoundedBody, BoxError};
use crate::problem::Problem;
use crate::upload::Upload;

/// The service of an [`IngressLayer`](super::IngressLayer). Always ready: the readiness of the service below is awaited
/// inside the future, where it is counted and cut.
#[derive(Clone)]
pub struct Ingress<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> Ingress<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }
}

impl<S, B, A> Service<Request<B>> for Ingress<S>
where
    S: Service<Request<Upload<B>>, Response = Response<A>> + Clone,
    B: Body,
    A: Body + Unpin + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Response<BoundedBody<A>>;
    type Error = S::Error; // a refusal is an answer, so the error type of the service below stays as it is
    type Future = IngressFuture<S, B, A>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let now = clock::now();
        let config = &*self.config;
        let arrival = request.extensions().get::<Arrival>();
        let trust = config.trust.or(arrival.map(|arrival| arrival.trust)).unwrap_or_default();
        let arrived = arrival.map_or(now, |arrival| arrival.at);
        let shutdown = arrival.map(|arrival| &arrival.shutdown).or(config.shutdown.as_ref());
        let end = arrival.and_then(|arrival| arrival.upload.clone());

        let said = config.fields.read(request.method(), request.uri(), request.headers(), trust);
        let route = match &config.route {
            FindRoute::Nowhere => None,
            FindRoute::In(find) => find(request.extensions(), request.uri()),
            FindRoute::Here(pattern) => Some(Route::Pattern(pattern.as_str())),
        };
        let observed = events::is_observed(config.observer.as_ref());
        let label = match (&config.route, route.filter(|_| observed)) {
            (FindRoute::Here(pattern), Some(_)) => Some(pattern.clone()), // known to all: no copy for each request
            // The path itself is the caller's to choose.
            (_, Some(Route::Method(path))) => config.policy.name_of_method(path).map(named),
            (_, route) => route.and_then(Route::pattern).map(named),
        };
        let limits = match route {
            Some(Route::Pattern(pattern)) => config.policy.limits_for(request.method().as_str(), Some(pattern)),
            Some(Route::Method(path)) => config.policy.limits_of_method(path),
            Some(Route::Mounted { pattern, path }) => config.policy.limits_of_mounted(pattern, path),
            None => config.policy.limits(None),
        };
        let platform = config.platform.as_ref().and_then(|limit| limit()).map(|left| Deadline::after(now, left));
        let bodiless = *request.method() == Method::HEAD;
        let trailers = match request.version() {
            Version::HTTP_09 | Version::HTTP_10 | Version::HTTP_11 => trailers_over_http1(request.headers()),
            _ => Trailers::All,
        };
        let asked = match said.reading.read {
            Read::Valid(asked) => Some(Deadline::after(arrived, asked)),
            _ => None,
        };
        let coverage = limits.coverage();
        let timing = config.server_timing;
        let asker = Asker { trust, protocol: said.protocol, coverage, asked, bodiless, trailers, timing };
        let rpc = said.protocol.is_rpc();
        let decision = limits.decide(&Arriving { reading: said.reading, rpc, trust, arrived, now, platform });

        let accepted = match decision {
            Decision::Accepted(accepted) => accepted,
            Decision::Refused(refused) => {
                let answer = unread(&request, asker.problem(&Problem::refused(&refused)));
                if observed {
                    let field = refused.malformed.map(|malformed| malformed.field.clone());
                    let refusal = self.refusal(label, refused.reason, refused.remaining, field, refused.skew_suspected);
                    told::refused(
                        &request,
                        (arrived, said.attempt, said.protocol, refused.source),
                        refusal.bounded_by(refused.bound.by),
                        &answer,
                        config.observer.as_ref(),
                    );
                }
                return IngressFuture::refused(answer);
            }
        };
        if shutdown.is_some_and(oneclock::Shutdown::is_signalled) {
            let remaining = accepted.budget.deadline.remaining(now);
            let answer = unread(&request, asker.problem(&Problem::shutting_down(remaining)));
            if observed {
                let refusal = self.refusal(label, Reason::Shutdown, remaining, None, accepted.skew_suspected);
                let refusal = refusal.bounded_by(accepted.budget.bound.by);
                told::refused(
                    &request,
                    (arrived, said.attempt, said.protocol, accepted.source),
                    refusal,
                    &answer,
                    config.observer.as_ref(),
                );
            }
            return IngressFuture::refused(answer);
        }

        let within = Operation::current(); // an outer layer decided already, or a caller in this process: only shorten
        let deadline = accepted.budget.deadline;
        let deadline = within.as_ref().map_or(deadline, |outer| deadline.earliest(outer.deadline()));
        let importance = within.as_ref().map_or(said.importance, |outer| said.importance.at_most(outer.importance()));
        let is_in = |admission: &Admission| within.as_ref().is_some_and(|outer| outer.has_place_before(admission));
        let before = config.admission.as_ref().filter(|admission| limits.is_admitted() && !is_in(admission));
        let class = || admission::Class::of(request.method(), route, |path| config.policy.name_of_method(path));
        let admitted = match admission::ask(before, class, deadline, importance, arrival, now) {
            Ok(admitted) => admitted,
            Err(why) => {
                let answer = unread(&request, asker.problem(&Problem::not_admitted(&why)));
                if observed {
                    let refusal = self.refusal(label, why.reason(), why.remaining, None, accepted.skew_suspected);
                    let refusal = refusal.by_admission(why).bounded_by(accepted.budget.bound.by);
                    told::refused(
                        &request,
                        (arrived, said.attempt, said.protocol, accepted.source),
                        refusal,
                        &answer,
                        config.observer.as_ref(),
                    );
                }
                return IngressFuture::refused(answer);
            }
        };
        let name = config.policy.name().clone();
        let driver = Operation::arrive(name, arrived, accepted.budget, within, shutdown, config.observer.clone())
            .serving_attempt(said.attempt)
            .of_importance(said.importance);
        let driver = label.into_iter().fold(driver, Driver::on_route);
        let (driver, turn, would_refuse) = match admitted {
            Admitted::Free => (driver, None, None),
            Admitted::Has(place, would_refuse) => (driver.holding(place), None, would_refuse),
            Admitted::Waits(turn) => (driver, Some(turn), None),
        };
        let operation = driver.operation();
        if operation.is_observed() {
            told::accepted(&mut request, operation, &accepted, said.protocol);
            operation.tell(&Event::Arrived(&Arrived::new(operation, &accepted)));
            if let Some(refusal) = &would_refuse {
                operation.tell(&Event::WouldRefuse { operation: operation.name(), route: operation.route(), refusal });
            }
        }
        config.fields.strip(request.headers_mut(), trust);
        let mut waited_for = None;
        let request = request.map(|body| {
            let (upload, waits) = Upload::new(body, operation, end);
            waited_for = waits;
            upload
        });

        // A service below that is ready, as nearly every one is, is called at once; what has to wait waits in the future.
        let inner = &mut self.inner;
        if turn.is_some() {
            let next = inner.clone();
            let queued = Queued::new(std::mem::replace(inner, next), request, turn);
            return IngressFuture::begun(Work::Queued { queued: Box::new(queued) }, driver, waited_for, asker);
        }
        let work = operation.sync_scope(|| match inner.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => Work::Running { handler: inner.call(request) },
            Poll::Ready(Err(error)) => Work::Failed { error: Some(error) },
            Poll::Pending => {
                let next = inner.clone();
                let inner = std::mem::replace(inner, next); // the one that has begun to become ready
                Work::Queued { queued: Box::new(Queued::new(inner, request, None)) }
            }
        });
        IngressFuture::begun(work, driver, waited_for, asker)
    }
}

fn named(label: &str) -> Name {
    Name::from(Arc::<str>::from(label))
}

/// Over HTTP/1 only whoever says so gets trailers. What translates gRPC-Web for us does, and reads them in this process.
fn trailers_over_http1(headers: &HeaderMap) -> Trailers {
    let mut tokens = headers.get_all(header::TE).iter().flat_map(|te| te.as_bytes().split(|byte| *byte == b','));
    let takes = tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"trailers"));
    if takes { Trailers::Named } else { Trailers::Lost }
}

/// The answer to a request whose upload nobody will read. Over HTTP/1 its connection ends with it, unless all of the upload is
/// there by chance: the caller is told, so that it sends nothing more there. An accept loop of ours knows whether it is there.
fn unread<B: Body>(request: &Request<B>, mut answer: Response<Bytes>) -> Response<Bytes> {
    let is_told = request.extensions().get::<Arrival>().is_some_and(|arrival| arrival.upload.is_some());
    if !is_told && request.version() < Version::HTTP_2 && !request.body().is_end_stream() {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

impl<S> Ingress<S> {
    fn refusal(
        &self,
        route: Option<Name>,
        reason: Reason,
        remaining: Duration,
        field: Option<Name>,
        skew_suspected: bool,
    ) -> Refusal {
        Refusal::new(self.config.policy.name().clone(), reason, remaining, field)
            .on_route(route)
            .suspecting_skew(skew_suspected)
    }
}

impl<S> fmt::Debug for Ingress<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingress").field("policy", self.config.policy.name()).finish_non_exhaustive()
    }
}
