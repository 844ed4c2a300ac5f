//! Whether work really stops at its deadline, asked of any `tower` service, in memory and under paused time.
//!
//! Asks from outside: a request with a budget goes in, and by the end of that budget there has to be an answer, the
//! handler has to be gone, and a body has to have ended as an error. It knows nothing of how the layers do it.
//! Contract X1, X3, X8, N1.

#![allow(clippy::panic, reason = "these are test assertions")]

use std::fmt::{Debug, Display};
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::time::Duration;

use bytes::Buf;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use tokio::time::Instant;
use tower_service::Service;

use crate::bound::now;
use crate::probe::{Ended, Probe};

/// The budget that the assertions give, in the request's `x-remaining-ms`.
pub const BUDGET: Duration = Duration::from_millis(200);

/// How long after the deadline an end may be seen: timers have a grain of about 1 ms (contract K3).
pub const SLACK: Duration = Duration::from_millis(10);

/// How long before the deadline an end may be seen: what a service may keep back for the way home. A 504 before that was
/// for something else.
pub const RESERVE: Duration = Duration::from_millis(50);

/// Of an answer that was not expected, how much the message shows, in bytes.
const SHOWN: usize = 512;

/// What the assertions saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The status of the answer.
    pub status: StatusCode,
    /// How long after the request the head of the answer came.
    pub head_after: Duration,
    /// How long after the request the body ended.
    pub body_after: Duration,
    /// How many bytes of a body came.
    pub bytes_read: usize,
}

/// Asserts that a handler which never finishes is stopped at its deadline, and answered for with a 504.
///
/// Sends `request` with `x-remaining-ms: 200` to `service`, in memory. `probe`, if there is one, is the one that the
/// handler entered ([`Probe::never`] is such a handler); without it, that the handler is gone is not checked. The
/// service must read that field: wrap it with a listener's trust in which it does.
///
/// A handler that calls a real [`peer`](crate::peer) is stopped like any other, and that is all this can say of it: paused
/// time runs on to the next timer whenever nothing but the kernel has something to do, so the call may be cut off while it
/// still connects, and the peer may never see it. How far a call got, and that its peer was told, is a question for real
/// time (`#[tokio::test]` without `start_paused`), with [`Caller`](crate::caller::Caller) and
/// [`Peer::caller_left`](crate::peer::Peer::caller_left). Under paused time those would miss their event at once.
///
/// # Panics
/// With the place of the call and what was seen, when
/// - the time is not paused,
/// - no answer has come by [`BUDGET`] and [`SLACK`], or one with another status (its body is shown),
/// - the 504 came more than [`RESERVE`] before the deadline: it was for something else,
/// - the body of the 504 has not ended properly by then,
/// - the handler never began, ran to its end, or is still there by then.
///
/// # Cancel safety
/// Dropping the future drops the request.
///
/// # Example
/// ```
/// use oneclock_test::{Probe, assert_stops_at_deadline};
/// # use std::time::Duration;
/// # use axum::{Router, body::Body, http::{Request, StatusCode}, middleware::{Next, from_fn}, routing::get};
/// # // A stand-in for the layer that is judged.
/// # async fn deadline(request: axum::extract::Request, next: Next) -> Result<axum::response::Response, StatusCode> {
/// #     let budget = Duration::from_millis(request.headers()["x-remaining-ms"].to_str().unwrap().parse().unwrap());
/// #     tokio::time::timeout(budget, next.run(request)).await.map_err(|_| StatusCode::GATEWAY_TIMEOUT)
/// # }
/// # fn layered(router: Router) -> Router { router.layer(from_fn(deadline)) }
/// #[tokio::main(flavor = "current_thread", start_paused = true)] // in a test: #[tokio::test(start_paused = true)]
/// async fn main() {
///     let probe = Probe::new();
///     let handler = { let probe = probe.clone(); async move || probe.never().await };
///     let router = layered(Router::new().route("/report", get(handler)));
///     let request = Request::get("/report").body(Body::empty()).unwrap();
///     assert_stops_at_deadline(router, request, &probe).await;
/// }
/// ```
#[track_caller]
pub fn assert_stops_at_deadline<'p, S, B, R>(
    mut service: S,
    request: Request<B>,
    probe: impl Into<Option<&'p Probe>>,
) -> impl Future<Output = Stopped>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Debug,
    R: Body,
    R::Error: Debug,
{
    let (check, probe) = (Check::begin(Location::caller()), probe.into());
    async move {
        check.time_is_paused();
        let (started, deadline) = (now(), now() + BUDGET);
        // Pinned here, so that what has not stopped is still there while the message is made.
        let mut call = pin!(check.call(&mut service, request));
        let answered = before(deadline, &mut call).await;
        let (head, body) = match answered {
            Some(Ok(response)) => response.into_parts(),
            Some(Err(error)) => check.fail(format!("the service failed instead of answering 504: {error:?}")),
            None => check.fail(match probe {
                Some(probe) => format!("no answer {SLACK:?} after the deadline ({probe}): nothing stops the handler"),
                None => format!("no answer {SLACK:?} after the deadline: nothing stops the handler"),
            }),
        };
        let head_after = now() - started;
        if head.status != StatusCode::GATEWAY_TIMEOUT {
            let status = head.status.as_u16();
            check.fail(format!("answered {status} after {head_after:?}, not 504: {}", shown(body).await));
        }
        if head_after + RESERVE < BUDGET {
            if let Some(probe) = probe {
                check.handler_began(probe);
            }
            check.fail(format!(
                "answered 504 after {head_after:?}, long before the deadline: another limit ended it, or the service does \
                 not read x-remaining-ms as {BUDGET:?}: {}",
                shown(body).await
            ));
        }
        let bytes_read = match before(deadline, read(body)).await {
            Some((bytes_read, Ok(()))) => bytes_read,
            Some((_, Err(error))) => check.fail(format!("the body of the 504 failed: {error:?}")),
            None => check.fail(format!("the body of the 504 had not ended {SLACK:?} after the deadline")),
        };
        let body_after = now() - started;
        if let Some(probe) = probe {
            check.handler_is_gone(probe, deadline).await;
        }
        Stopped { status: head.status, head_after, body_after, bytes_read }
    }
}

/// Asserts that a response body which stalls, or goes on for ever, is ended at its deadline, and as an error: a
/// truncated body must not look whole (contract X3, V14).
///
/// Sends `request` like [`assert_stops_at_deadline`], to a handler that answers in time with a body that does not end.
/// `probe`, if there is one, is the one that the *producer of the body* entered.
///
/// # Panics
/// With the place of the call and what was seen, when
/// - the time is not paused,
/// - the head of the answer comes too late, or is a 504: there was no body to stop,
/// - the body has not ended by [`BUDGET`] and [`SLACK`], or has ended properly,
/// - the producer never began, ran to its end, or is still there by then.
///
/// # Cancel safety
/// Dropping the future drops the request.
///
/// # Example
/// ```
/// use oneclock_test::assert_body_stops_at_deadline;
/// # use std::{convert::Infallible, task::{Context, Poll}, pin::Pin, time::Duration};
/// # use bytes::Bytes; use http::{Request, Response}; use http_body::{Body, Frame};
/// # // A stand-in for the body under a layer that is judged: nothing comes, and at the deadline an error.
/// # struct Cut(Pin<Box<tokio::time::Sleep>>);
/// # impl Body for Cut {
/// #     type Data = Bytes;
/// #     type Error = &'static str;
/// #     fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
/// #         self.0.as_mut().poll(cx).map(|()| Some(Err("out of time in stage body")))
/// #     }
/// # }
/// # use std::future::Future;
/// # struct Layered;
/// # impl tower_service::Service<Request<String>> for Layered {
/// #     type Response = Response<Cut>;
/// #     type Error = Infallible;
/// #     type Future = std::future::Ready<Result<Response<Cut>, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> { Poll::Ready(Ok(())) }
/// #     fn call(&mut self, _: Request<String>) -> Self::Future {
/// #         std::future::ready(Ok(Response::new(Cut(Box::pin(tokio::time::sleep(Duration::from_millis(200)))))))
/// #     }
/// # }
/// #[tokio::main(flavor = "current_thread", start_paused = true)] // in a test: #[tokio::test(start_paused = true)]
/// async fn main() {
///     let service = Layered; // yours: a stream that stalls, under our layer
///     let stopped = assert_body_stops_at_deadline(service, Request::new(String::new()), None).await;
///     assert_eq!(stopped.status, 200);
/// }
/// ```
#[track_caller]
pub fn assert_body_stops_at_deadline<'p, S, B, R>(
    mut service: S,
    request: Request<B>,
    probe: impl Into<Option<&'p Probe>>,
) -> impl Future<Output = Stopped>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Debug,
    R: Body,
    R::Error: Debug,
{
    let (check, probe) = (Check::begin(Location::caller()), probe.into());
    async move {
        check.time_is_paused();
        let (started, deadline) = (now(), now() + BUDGET);
        // Pinned here, so that what has not stopped is still there while the message is made.
        let mut call = pin!(check.call(&mut service, request));
        let answered = before(deadline, &mut call).await;
        let (head, body) = match answered {
            Some(Ok(response)) => response.into_parts(),
            Some(Err(error)) => check.fail(format!("the service failed before the head of an answer: {error:?}")),
            None => check.fail("no head of an answer before the deadline: this is about a body that does not end"),
        };
        let head_after = now() - started;
        if head.status == StatusCode::GATEWAY_TIMEOUT {
            check.fail(format!(
                "answered 504 after {head_after:?}: this is about a body, the handler has to answer first: {}",
                shown(body).await
            ));
        }
        let (bytes_read, ended) = match before(deadline, read(body)).await {
            Some(ended) => ended,
            None => {
                check.fail(format!("the body had not ended {SLACK:?} after the deadline: only the head was bounded"))
            }
        };
        let body_after = now() - started;
        if ended.is_ok() {
            check.fail(format!(
                "the body ended properly after {body_after:?}, {bytes_read} bytes: it looks whole, and is not"
            ));
        }
        if let Some(probe) = probe {
            check.handler_is_gone(probe, deadline).await;
        }
        Stopped { status: head.status, head_after, body_after, bytes_read }
    }
}

/// One assertion, and where it stands: the place of a panic in here would tell nobody anything.
#[derive(Clone, Copy)]
struct Check(&'static Location<'static>);

impl Check {
    fn begin(place: &'static Location<'static>) -> Self {
        Self(place)
    }

    fn fail(self, why: impl Display) -> ! {
        panic!("{why} (budget {BUDGET:?}, asserted at {})", self.0)
    }

    /// Paused time does not go on while a thread sleeps.
    fn time_is_paused(self) {
        let before = now();
        std::thread::sleep(Duration::from_millis(1));
        if now() != before {
            self.fail("the time is not paused: use #[tokio::test(start_paused = true)]");
        }
    }

    async fn call<S, B>(self, service: &mut S, mut request: Request<B>) -> Result<S::Response, S::Error>
    where
        S: Service<Request<B>>,
    {
        request.headers_mut().insert("x-remaining-ms", HeaderValue::from(BUDGET.as_millis() as u64));
        poll_fn(|cx| service.poll_ready(cx)).await?;
        service.call(request).await
    }

    fn handler_began(self, probe: &Probe) {
        if probe.started_count() == 0 {
            self.fail("the handler never began: does it enter this probe, and does the request reach it?");
        }
    }

    async fn handler_is_gone(self, probe: &Probe, deadline: Instant) {
        self.handler_began(probe);
        // Whoever drops the handler may do it from a task of its own, so it has until the slack is over as well.
        let Some(end) = before(deadline, probe.ended(1)).await else {
            self.fail(format!("the handler was still there {SLACK:?} after the deadline ({probe})"));
        };
        match end {
            Ok(end) if end.how == Ended::Finished => {
                self.fail(format!("the handler ran to its end ({probe}): it is to be one that never does"));
            }
            Ok(_) if probe.running() > 0 => self.fail(format!("not every run of the handler was dropped ({probe})")),
            Ok(_) => {}
            Err(missed) => self.fail(missed),
        }
    }
}

/// Runs `work` until the deadline and its slack.
async fn before<F: Future>(deadline: Instant, work: F) -> Option<F::Output> {
    tokio::time::timeout_at(deadline + SLACK, work).await.ok()
}

/// Reads a body to its end or its failure, and counts its bytes.
async fn read<R: Body>(body: R) -> (usize, Result<(), R::Error>) {
    let mut body = pin!(body);
    let mut bytes_read = 0;
    loop {
        match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            Some(Ok(frame)) => {
                bytes_read += frame.data_ref().map_or(0, Buf::remaining);
                // Paused time goes on only when nothing is ready. A producer that always is would stop it for good.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Some(Err(error)) => return (bytes_read, Err(error)),
            None => return (bytes_read, Ok(())),
        }
    }
}

/// The beginning of a body, for a message, and why there is no more.
async fn shown<R: Body>(body: R) -> String
where
    R::Error: Debug,
{
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    let reading = async {
        while bytes.len() < SHOWN {
            match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                Some(Ok(frame)) => {
                    if let Ok(mut data) = frame.into_data() {
                        let wanted = data.remaining().min(SHOWN - bytes.len());
                        bytes.extend_from_slice(&data.copy_to_bytes(wanted));
                    }
                }
                Some(Err(error)) => return format!(" and then it failed: {error:?}"),
                None => return String::new(),
            }
        }
        " and more".to_owned()
    };
    let end = tokio::time::timeout(BUDGET, reading).await;
    let end = end.unwrap_or_else(|_elapsed| " and then nothing".to_owned());
    format!("{:?}{end}", String::from_utf8_lossy(&bytes))
}
