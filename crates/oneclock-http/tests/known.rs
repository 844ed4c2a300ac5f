//! What is known of the far side after a call: never more than was proved. Contract R8, invariant I8.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use oneclock::events::{Event, Observer};
use oneclock::{NotConnected, Operation};
use oneclock_core::{Outcome, Stage, Trust};
use oneclock_http::{BoxError, CallError, Client, Destination, EgressLayer};
use oneclock_test::{Protocol, peer};
use tower::{ServiceBuilder, ServiceExt as _};

const AMPLE: Duration = Duration::from_secs(5);

/// What was told of calls, once each is over.
#[derive(Default)]
struct Outcomes(Mutex<Vec<Outcome>>);

impl Observer for Outcomes {
    fn on(&self, event: &Event<'_>) {
        if let Event::Called(call) = event {
            self.0.lock().unwrap().push(call.outcome);
        }
    }
}

fn destination(trust: Trust) -> EgressLayer {
    EgressLayer::new(Destination::named("pricing").trust(trust).build().unwrap())
}

fn refused() -> NotConnected {
    NotConnected::because(io::Error::from(io::ErrorKind::ConnectionRefused))
}

#[derive(Debug, thiserror::Error)]
#[error("the pricing service failed")]
struct Failed(#[source] NotConnected);

// === Not sent ===

/// A service that has called something itself says so with an error of its own: that there was no connection further down
/// proves nothing of this one.
#[tokio::test(start_paused = true)]
async fn r8_only_the_outermost_error_says_that_nothing_was_sent() {
    let cases: [(fn() -> BoxError, Outcome); 2] = [
        (|| refused().into(), Outcome::NotSent),
        (|| Failed(refused()).into(), Outcome::Unknown { stage: Stage::Wait }),
    ];
    for (error, want) in cases {
        let op = Operation::begin("order", AMPLE);
        let client = ServiceBuilder::new()
            .layer(destination(Trust::Inside))
            .service_fn(|_: Request<()>| std::future::ready(Err::<Response<String>, _>(error())));
        let failed = op.run(client.oneshot(Request::new(()))).await.unwrap().expect_err("no answer");
        assert_eq!(failed.outcome(), want, "{:?}", error());
        // The naive way, any error of the chain, takes both for proof.
        assert!(oneclock::not_connected_in(&*error()).is_some());
    }
}

/// What makes the upload can fail at a connection of its own: the head was on its way by then.
#[tokio::test]
async fn r8_whatever_an_uploads_producer_ran_into_it_is_no_proof_that_nothing_was_sent() {
    let errors: [fn() -> BoxError; 3] =
        [|| refused().into(), || Failed(refused()).into(), || h2::Error::from(h2::Reason::REFUSED_STREAM).into()];
    for protocol in [Protocol::Http1, Protocol::Http2] {
        for error in errors {
            let peer = peer::echo_headers(protocol).unwrap();
            let client = Client::builder("pricing", peer.url());
            let client = if protocol == Protocol::Http2 { client.http2_only() } else { client };
            let client = client.trust(Trust::Inside).build().unwrap();
            let pieces = stream::iter([Ok(Frame::data(Bytes::from_static(b"piece"))), Err(error())]);
            let upload = StreamBody::new(pieces).boxed_unsync();
            let op = Operation::begin("order", AMPLE);
            let request = Request::post("/orders").body(upload).unwrap();
            let failed = client.request_in(&op, request).await.expect_err("no answer");
            assert!(matches!(failed, CallError::Failed(_)), "{failed:?}");
            assert!(matches!(failed.outcome(), Outcome::Unknown { .. }), "{protocol:?} {:?}: {failed:?}", error());
        }
    }
}

// === gRPC: the status comes last ===

/// A far side with this content type, this in its head, and one message; then these trailers.
async fn answers(
    content_type: &'static str,
    head: Option<&'static str>,
    trailers: Option<&'static str>,
) -> Response<impl http_body::Body<Data = Bytes, Error = Infallible> + Unpin + Send + 'static> {
    let status = |status: &'static str| {
        let mut fields = HeaderMap::new();
        fields.insert("grpc-status", HeaderValue::from_static(status));
        fields
    };
    let message = Frame::data(Bytes::from_static(b"\0\0\0\0\x03one"));
    let frames = std::iter::once(message).chain(trailers.map(|of| Frame::trailers(status(of))));
    let body = StreamBody::new(stream::iter(frames.map(Ok).collect::<Vec<_>>()));
    let mut response = Response::builder().header("content-type", content_type).body(body).unwrap();
    response.headers_mut().extend(head.map(status).unwrap_or_default());
    response
}

const NOTHING_KNOWN: Outcome = Outcome::Unknown { stage: Stage::Body };

#[tokio::test(start_paused = true)]
async fn i8_a_grpc_call_is_unknown_until_its_status_came() {
    for (content_type, head, trailers, read, want) in [
        ("application/grpc", None, Some("0"), true, Outcome::Applied),
        ("application/grpc", None, Some("5"), true, Outcome::Failed),
        ("application/grpc", None, Some("0"), false, NOTHING_KNOWN),
        ("application/grpc", None, None, true, NOTHING_KNOWN), // an end without a status is none
        ("application/grpc+proto", None, Some("?"), true, NOTHING_KNOWN),
        ("application/grpc", Some("5"), None, false, Outcome::Failed),
        // HTTP says it in its head.
        ("application/json", None, None, false, Outcome::Applied),
    ] {
        let told = Arc::new(Outcomes::default());
        let client =
            ServiceBuilder::new().layer(destination(Trust::Inside)).service_fn(move |_: Request<()>| async move {
                Ok::<_, Infallible>(answers(content_type, head, trailers).await)
            });
        let op = Operation::begin("order", AMPLE).observed_by(told.clone());
        let answer = op.run(client.oneshot(Request::new(()))).await.unwrap().unwrap();
        assert_eq!(told.0.lock().unwrap().len(), 0, "a head is not the end of a call");
        let body = answer.into_body();
        if read {
            body.collect().await.unwrap();
        } else {
            drop(body);
        }
        assert_eq!(*told.0.lock().unwrap(), [want], "{content_type} {head:?} {trailers:?} read {read}");
    }
}

/// What is not theirs to give, also in trailers that say nothing of gRPC.
#[tokio::test(start_paused = true)]
async fn r8_a_reason_in_the_trailers_of_an_outsider_counts_for_nothing_and_goes_nowhere() {
    for (trust, kept) in [(Trust::Outside, false), (Trust::Inside, true)] {
        let client = ServiceBuilder::new().layer(destination(trust)).service_fn(|_: Request<()>| async {
            let mut trailers = HeaderMap::new();
            trailers.insert("oneclock-reason", HeaderValue::from_static("shed"));
            let frames = [Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x"))), Ok(Frame::trailers(trailers))];
            Ok::<_, Infallible>(Response::new(StreamBody::new(stream::iter(frames))))
        });
        let op = Operation::begin("order", AMPLE);
        let answer = op.run(client.oneshot(Request::new(()))).await.unwrap().unwrap();
        let whole = answer.into_body().collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap().contains_key("oneclock-reason"), kept, "{trust:?}");
    }
}
