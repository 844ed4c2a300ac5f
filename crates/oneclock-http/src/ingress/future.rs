//! The future: polls the handler, then asks the clock.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body::Body;
use oneclock::admission::{NotAdmitted, Turn};
use oneclock::operation::Spending;
use oneclock::{Driver, EndOf, Ended, Operation, clock};
use oneclock_core::admission::{Refusal, Why};
use oneclock_core::ingress::Coverage;
use oneclock_core::{BoundBy, Cause, Deadline, Ending, Progress, Stage, Tick, Trust};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::told;
use crate::body::{BoundedBody, BoxError, LastWords};
use crate::problem::Problem;
use crate::protocol::Protocol;
use crate::upload::{Upload, Waits};
use crate::{grpc, marks, names, timing};

pin_project! {
    /// The future of [`Ingress`](super::Ingress).
    #[must_use = "futures do nothing unless polled"]
    pub struct IngressFuture<S, B, A>
    where
        S: Service<Request<Upload<B>>>,
    {
        #[pin]
        work: Work<S, S::Future, S::Error, B>,
        #[pin]
        end: Option<EndOf>, // made at the first poll that has to wait
        driver: Option<Driver>,
        begun: bool, // whether it was polled
        waited_for: Option<Arc<AtomicU8>>, // whether the handler waits for the upload
        asker: Asker,
        answer: PhantomData<fn() -> A>,
    }

    impl<S, B, A> PinnedDrop for IngressFuture<S, B, A>
    where
        S: Service<Request<Upload<B>>>,
    {
        fn drop(this: Pin<&mut Self>) {
            // Only if it was dropped before its end. The operation ends first, so that all below learns the cause.
            let mut this = this.project();
            if let Some(driver) = this.driver.take() {
                driver.abandon();
                driver.operation().sync_scope(|| this.work.set(Work::Over));
            }
        }
    }
}

pin_project! {
    #[project = WorkProjection]
    pub(super) enum Work<S, F, E, B> {
        Refused { answer: Option<Box<Response<Bytes>>> },
        Failed { error: Option<E> },
        Queued { queued: Box<Queued<S, B>> }, // boxed: rare, and the future is moved about

        Running { #[pin] handler: F },
        Over,
    }
}

/// A request that waits for the service below to become ready.
pub(super) struct Queued<S, B> {
    inner: S,
    request: Option<Request<Upload<B>>>,
    turn: Option<Turn>,       // before the service below is asked
    refused: Option<Refusal>, // it gets no turn
    waiting: Option<Spending>,
}

/// What is known of the caller, for the answer that the layer makes itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) trust: Trust,
    pub(super) protocol: Protocol,
    pub(super) coverage: Coverage,
    pub(super) asked: Option<Deadline>, // what the caller itself said, whether it was the shortest or not
    pub(super) bodiless: bool,          // a HEAD request
    pub(super) trailers: Trailers,
    pub(super) timing: bool, // whether a trusted caller is told where the time went
}

/// Which trailers reach the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trailers {
    /// All.
    All,
    /// Those that the head names (HTTP/1).
    Named,
    /// None: its caller did not say that it takes them (HTTP/1).
    Lost,
}

/// What a gRPC call may say behind its messages, for a head that has to name it.
const SAID_BEHIND: HeaderValue = HeaderValue::from_static(
    "grpc-status, grpc-message, grpc-status-details-bin, grpc-retry-pushback-ms, oneclock-reason, oneclock-retried",
);

/// In a response's extensions: its reason field is ours, of this process.
#[derive(Clone, Copy)]
struct OurReason;

/// In a response's extensions: it is what a service of ours answered to this very request, passed on as it came. Its reason
/// (`oneclock-reason`) is about this request, and stays. From any other response of a handler a reason is removed: it would be
/// copied from an answer to something else, and callers may repeat a call because of it (contract R8).
///
/// For a hop that asked once: after several attempts the last answer does not speak for those before it.
#[derive(Clone, Copy, Debug)]
pub struct PassedOn;

// === IngressFuture ===

impl<S, B, A> IngressFuture<S, B, A>
where
    S: Service<Request<Upload<B>>>,
{
    pub(super) fn refused(answer: Response<Bytes>) -> Self {
        Self {
            work: Work::Refused { answer: Some(Box::new(answer)) },
            end: None,
            driver: None,
            begun: false,
            waited_for: None,
            asker: Asker {
                trust: Trust::Outside,
                protocol: Protocol::Http,
                coverage: Coverage::Unary,
                asked: None,
                bodiless: false,
                trailers: Trailers::Lost,
                timing: false,
            },
            answer: PhantomData,
        }
    }

    pub(super) fn begun(
        work: Work<S, S::Future, S::Error, B>,
        driver: Driver,
        waited_for: Option<Arc<AtomicU8>>,
        asker: Asker,
    ) -> Self {
        Self { work, end: None, driver: Some(driver), begun: false, waited_for, asker, answer: PhantomData }
    }
}

impl<S, B, A> Future for IngressFuture<S, B, A>
where
    S: Service<Request<Upload<B>>, Response = Response<A>>,
    A: Body + Unpin + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Output = Result<Response<BoundedBody<A>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let WorkProjection::Refused { answer } = this.work.as_mut().project() {
            return match answer.take() {
                Some(answer) => Poll::Ready(Ok((*answer).map(BoundedBody::whole))),
                None => Poll::Pending, // polled after it was done
            };
        }
        let Some(driver) = this.driver.as_ref() else { return Poll::Pending };
        let operation = driver.operation().clone();

        // First the handler; a head that is ready at or after the deadline is looked at more closely (contract X1). But a
        // future that is polled only after its deadline was in a queue of somebody else's: it is not started (X7).
        let may_begin = *this.begun || !operation.is_ended();
        if may_begin {
            *this.begun = true;
            // One scope for the handler, for what it leaves behind, and for the first look at its body.
            let polled = operation.sync_scope(|| {
                let polled = {
                    let Some(driver) = this.driver.as_ref() else { return Poll::Pending };
                    let _polling = driver.polling(); // a panic that somebody catches is one
                    this.work.as_mut().poll(cx, driver)
                };
                let result = ready!(polled);
                let uploading = Waits::now(this.waited_for.as_ref());
                this.work.set(Work::Over);
                this.end.set(None);
                let Some(driver) = this.driver.take() else { return Poll::Pending };
                Poll::Ready(match result {
                    Ok(response) => {
                        let response = this.asker.deliver(response, driver, uploading, cx);
                        Ok(this.asker.marked(&operation, response))
                    }
                    Err(error) => {
                        driver.operation().end(Cause::CalledOff); // unless it had ended already: the work was not done
                        driver.finish();
                        Err(error)
                    }
                })
            });
            if polled.is_ready() {
                return polled;
            }
        }

        // Then the timer, which only wakes us. Whether time is up is asked of the clock (contract K3). Whoever waits for its turn
        // has one timer for both, the turn and the end.
        if let WorkProjection::Queued { queued } = this.work.as_mut().project()
            && queued.turn.is_some()
            && !operation.is_ended()
        {
            return Poll::Pending;
        }
        if this.end.is_none() {
            this.end.set(Some(EndOf::new(operation.clone())));
        }
        let Some(end) = this.end.as_mut().as_pin_mut() else { return Poll::Pending };
        let ending = ready!(end.poll(cx));
        this.end.set(None);
        // What was called may have begun in its call, polled or not: only what still waits for its turn has not started.
        let refused = match this.work.as_mut().project() {
            WorkProjection::Queued { queued } => queued.refused,
            _ => None,
        };
        let progress = if matches!(*this.work, Work::Queued { .. }) {
            Progress::NotStarted
        } else if Waits::now(this.waited_for.as_ref()) {
            Progress::AwaitingUpload
        } else {
            Progress::Working
        };
        // The handler goes first, so that its guards close what they opened before the ledger is read.
        operation.sync_scope(|| this.work.set(Work::Over));
        let Some(driver) = this.driver.take() else { return Poll::Pending };
        let answer = match refused.filter(|_| ending.cause == Cause::Shed) {
            Some(refusal) => this.asker.not_admitted(&driver, &refusal),
            None => this.asker.ended(&driver, ending, progress),
        };
        Poll::Ready(Ok(this.asker.marked(&operation, answer).map(BoundedBody::whole)))
    }
}

impl<S, B> Work<S, S::Future, S::Error, B>
where
    S: Service<Request<Upload<B>>>,
{
    /// The service below becomes ready, then works. Waiting for it is stage `queue`.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>, driver: &Driver) -> Poll<Result<S::Response, S::Error>> {
        let operation = driver.operation();
        loop {
            let handler = match self.as_mut().project() {
                WorkProjection::Running { handler } => {
                    let _awaiting = driver.awaiting_its_end(cx);
                    return handler.poll(cx);
                }
                WorkProjection::Failed { error } => {
                    return error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)));
                }
                WorkProjection::Refused { .. } | WorkProjection::Over => return Poll::Pending,
                WorkProjection::Queued { queued } => {
                    let Queued { inner, request, turn, refused, waiting } = &mut **queued;
                    if let Some(its) = turn {
                        waiting.get_or_insert_with(|| {
                            operation.set_stage(Stage::Queue);
                            operation.spend("queue", Stage::Queue)
                        });
                        let got = ready!(its.poll(operation, cx));
                        *turn = None;
                        match got {
                            Ok(place) => driver.hold(place),
                            Err(why) => {
                                if let NotAdmitted::Refused(refusal) = why {
                                    *refused = Some(refusal);
                                    if refusal.why != Why::Expired {
                                        operation.end(Cause::Shed);
                                    }
                                }
                                *request = None; // it is never started
                                return Poll::Pending;
                            }
                        }
                    }
                    match inner.poll_ready(cx) {
                        Poll::Ready(Ok(())) => {
                            *waiting = None;
                            if operation.is_ended() {
                                return Poll::Pending; // its turn came too late: it is not started (contract X7)
                            }
                        }
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => {
                            waiting.get_or_insert_with(|| {
                                operation.set_stage(Stage::Queue);
                                operation.spend("queue", Stage::Queue)
                            });
                            return Poll::Pending;
                        }
                    }
                    operation.set_stage(Stage::Work);
                    let Some(request) = request.take() else { return Poll::Pending };
                    inner.call(request)
                }
            };
            self.set(Work::Running { handler });
        }
    }
}

// === Queued ===

impl<S, B> Queued<S, B> {
    pub(super) fn new(inner: S, request: Request<Upload<B>>, turn: Option<Turn>) -> Self {
        Self { inner, request: Some(request), turn, refused: None, waiting: None }
    }
}

// === Asker ===

impl Asker {
    pub(super) fn problem(self, problem: &Problem) -> Response<Bytes> {
        let mut response = problem.to_answer(self.protocol, self.trust);
        response.extensions_mut().insert(OurReason); // for a layer of ours further out
        response
    }

    /// The handler's response: on its way, unless it is too late and not whole. In the operation's scope, since its body is
    /// looked at.
    fn deliver<A>(
        self,
        mut response: Response<A>,
        driver: Driver,
        uploading: bool,
        cx: &mut Context<'_>,
    ) -> Response<BoundedBody<A>>
    where
        A: Body + Unpin + Send + 'static,
        A::Error: Into<BoxError>,
    {
        if self.has_failed(&response) {
            driver.operation().unmeasured();
        }
        let now = clock::now();
        let ending = driver.operation().ending_at(now); // before it is finished: what is late has ended, whoever answers
        if let Some(ending) = ending
            && ending.cause == Cause::Deadline
            && uploading
        {
            // What the handler says now, it says because the upload was cut off.
            return self.ended(&driver, ending, Progress::AwaitingUpload).map(BoundedBody::whole);
        }
        if !response.extensions().is_empty()
            && let Some(problem) = response.extensions_mut().remove::<Problem>()
        {
            if let Some(reason) = problem.reason() {
                driver.operation().set_answered(reason);
            }
            let answer = self.rewritten(response.into_parts().0, problem);
            told::answered(&driver, answer.status(), answer.headers());
            driver.finish_at(now);
            return answer.map(BoundedBody::whole);
        }
        let mut event_stream = false;
        if !response.headers().is_empty() {
            event_stream = is_event_stream(response.headers());
            let extensions = response.extensions();
            if extensions.get::<OurReason>().is_none() && extensions.get::<PassedOn>().is_none() {
                response.headers_mut().remove(names::REASON); // copied from another answer: it would say what is not so
            }
        }
        if self.bodiless || has_no_body(response.status()) {
            told::answered(&driver, response.status(), response.headers());
            driver.finish_at(now);
            return response.map(BoundedBody::unread);
        }
        self.name_trailers(response.headers_mut());
        match (ending, self.coverage) {
            (None, Coverage::Unary) => {
                let last_words = self.last_words(response.headers());
                told::answered(&driver, response.status(), response.headers());
                response.map(|body| {
                    let body = BoundedBody::response(body, driver, self.trust, now, cx);
                    body.undeclared_stream(event_stream).ends_with(last_words)
                })
            }
            (None, Coverage::Streaming { idle, total }) => {
                let last_words = self.last_words(response.headers());
                told::answered(&driver, response.status(), response.headers());
                let operation = driver.operation();
                let (total, by) = match self.asked_of_a_stream(operation, now) {
                    Some(asked) if asked < total => (asked, BoundBy::Caller),
                    _ => (total, BoundBy::Cap),
                };
                let stream = operation.begin_stream(total, by);
                driver.finish_at(now); // the budget covered the establishment
                response.map(|body| {
                    let body = BoundedBody::response(body, stream, self.trust, now, cx);
                    body.declared_stream(idle, now).ends_with(last_words)
                })
            }
            // An error that a handler reports by now is that of its own end (contract X2).
            (Some(ending), _) if self.protocol.is_rpc() && grpc::is_failure(response.headers()) => {
                self.ended(&driver, ending, Progress::Working).map(BoundedBody::whole)
            }
            (Some(ending), _) => {
                let operation = driver.operation();
                let (head, body) = response.into_parts();
                let Some(mut body) = BoundedBody::whole_now(body, cx) else {
                    return self.ended(&driver, ending, Progress::Working).map(BoundedBody::whole);
                };
                if self.protocol.is_rpc() && body.trailers().is_some_and(grpc::is_failure) {
                    return self.ended(&driver, ending, Progress::Working).map(BoundedBody::whole);
                }
                if let Some(trailers) = body.trailers_mut() {
                    marks::strip_trailers(trailers, self.trust);
                }
                operation.tell_if_answer_is_late();
                told::answered(&driver, head.status, &head.headers);
                driver.finish_at(now);
                Response::from_parts(head, body)
            }
        }
    }

    /// Whether an answer says nothing of how long such work takes: it failed, perhaps at once. Of what ran out of time it is known
    /// that it takes at least as long.
    fn has_failed<A>(self, response: &Response<A>) -> bool {
        match response.status() {
            StatusCode::GATEWAY_TIMEOUT => false,
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::OK => self.protocol.is_rpc() && grpc::is_failure(response.headers()),
            status => status.is_server_error(),
        }
    }

    /// What is left of what the caller said, where that covers the whole of a stream (contract S1). A bound of ours that was
    /// shorter covers the establishment only.
    fn asked_of_a_stream(self, operation: &Operation, now: Tick) -> Option<Duration> {
        let asked = match operation.bound().by {
            BoundBy::Caller => Some(operation.deadline()), // also where an outer layer read it
            _ => self.asked,
        };
        asked.filter(|_| self.protocol.covers_streams()).map(|asked| asked.remaining(now))
    }

    /// HTTP/1 carries only those trailers that the head names, and gRPC without its status would end in order and say
    /// nothing.
    fn name_trailers(self, head: &mut HeaderMap) {
        if self.trailers == Trailers::Named
            && Protocol::Grpc.messages(head).is_some()
            && !head.contains_key(grpc::STATUS)
        {
            head.append(header::TRAILER, SAID_BEHIND);
        }
    }

    /// How the end is said to this caller once the head is out.
    fn last_words(self, head: &HeaderMap) -> Option<LastWords> {
        let messages = self.protocol.messages(head)?;
        let can_be_said = self.trailers != Trailers::Lost || self.protocol != Protocol::Grpc;
        Some(LastWords { protocol: self.protocol, trust: self.trust, messages, can_be_said })
    }

    /// A handler's problem, written for this caller. Everything else about the response stays as the layers below made it,
    /// unless that would make a success of it.
    fn rewritten(self, mut head: http::response::Parts, problem: Problem) -> Response<Bytes> {
        // A service of gRPC answers in its own words, whatever the request called itself.
        let of_grpc = self.protocol == Protocol::Http && head.headers.contains_key(grpc::STATUS);
        let protocol = if of_grpc { Protocol::Grpc } else { self.protocol };
        let is_failure = head.status.is_client_error() || head.status.is_server_error();
        let problem = if is_failure { problem.at_status(head.status) } else { problem };
        let (written, body) = Self { protocol, ..self }.problem(&problem).into_parts();
        let of_a_body = [header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::ETAG];
        for stale in of_a_body.into_iter().chain(grpc::OF_A_STATUS) {
            head.headers.remove(stale);
        }
        marks::strip(&mut head.headers);
        head.headers.extend(written.headers);
        head.extensions.extend(written.extensions);
        head.status = written.status;
        Response::from_parts(head, body)
    }

    /// Tells a trusted caller if trying again would only repeat what was tried here or below (contract R9), and where the time
    /// went, if the layer tells that.
    fn marked<A>(self, operation: &Operation, mut response: Response<A>) -> Response<A> {
        let status = response.status().as_u16();
        marks::mark_answer(response.headers_mut(), status, operation.gave_up_after(), self.trust);
        timing::tell(response.headers_mut(), operation, self.trust, self.timing);
        response
    }

    /// It waited, and gets no place.
    fn not_admitted(self, driver: &Driver, refusal: &Refusal) -> Response<Bytes> {
        driver.operation().set_answered(refusal.reason());
        let answer = self.problem(&Problem::not_admitted(refusal));
        told::answered(driver, answer.status(), answer.headers());
        answer
    }

    /// The end came first.
    fn ended(self, driver: &Driver, ending: Ending, progress: Progress) -> Response<Bytes> {
        let ended = Ended::of(driver.operation(), ending);
        let reason = ending.reason_for(progress);
        driver.operation().set_answered(reason);
        let answer = self.problem(&Problem::ended(&ended, reason));
        told::answered(driver, answer.status(), answer.headers());
        answer
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

/// Whether HTTP sends no body with this status, whatever the handler made.
fn has_no_body(status: StatusCode) -> bool {
    status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}

impl<S, B, A> fmt::Debug for IngressFuture<S, B, A>
where
    S: Service<Request<Upload<B>>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IngressFuture").field("driver", &self.driver).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_behind_the_messages_is_all_that_a_status_and_we_have_to_say() {
        let (named, of_a_status) = (SAID_BEHIND, grpc::OF_A_STATUS);
        let named: Vec<_> = named.to_str().expect("text").split(", ").collect();
        let of_a_status = of_a_status.each_ref().map(http::HeaderName::as_str);
        assert_eq!(named, [&of_a_status[..], &oneclock_core::wire::names::OURS_TO_SAY].concat());
    }
}
