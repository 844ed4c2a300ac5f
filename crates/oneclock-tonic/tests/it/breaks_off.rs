//! Answers that break off below: what is known of the far side then, and what the callers of whoever made the call are told.
//! And a status that leaves towards somebody who did not say that he speaks gRPC. Contract R8, invariant I8.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use oneclock::Operation;
use oneclock_core::{Outcome, Stage, Trust};
use oneclock_tonic::{ClientLayer, ClientService, OrStatus as _, PolicyExt as _, destination, outcome, problem};
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Code, Request, Status};
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _};

use crate::support::{Caller, Messages, Net, Peer, ms, one, peer, policy, serve};

type Far = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Infallible>;

/// A far side whose connection breaks with this after one message.
fn breaking(with: h2::Reason) -> ClientService<Far> {
    let far = tower::service_fn(move |_: http::Request<Body>| async move {
        let message = Frame::data(Bytes::from_static(b"\0\0\0\0\x03one"));
        let pieces = stream::iter([Ok(message), Err(h2::Error::from(with))]);
        let response = http::Response::builder().header("content-type", "application/grpc");
        Ok::<_, Infallible>(response.body(Body::new(StreamBody::new(pieces))).unwrap())
    });
    ClientLayer::new(destination("stock").trust(Trust::Inside).build().unwrap()).layer(Far::new(far))
}

const BREAKS: [(h2::Reason, Code); 3] = [
    (h2::Reason::PROTOCOL_ERROR, Code::Internal),
    (h2::Reason::CANCEL, Code::Cancelled),
    (h2::Reason::HTTP_1_1_REQUIRED, Code::Unknown),
];

async fn messages(far: ClientService<Far>) -> Result<Messages, Status> {
    Ok(Caller::new(far).stream(Request::new(stream::empty())).await?.into_inner().boxed())
}

#[tokio::test(start_paused = true)]
async fn i8_of_an_answer_that_broke_off_is_known_that_it_may_have_happened() {
    for (reason, code) in BREAKS {
        let op = Operation::begin("order", ms(5_000));
        let status = op.scope(async { messages(breaking(reason)).await?.try_collect::<Vec<_>>().await }).await;
        let status = status.expect_err("broken off");
        assert_eq!(outcome(&status), Some(Outcome::Unknown { stage: Stage::Body }), "{status:?}");
        assert_eq!(status.code(), code, "what tonic says of it");
        assert!(status.message().contains("h2"), "whoever made the call learns why: {status}");
        let problem = problem(&status);
        assert_eq!(problem.status(), 502, "{problem}");
        assert!(problem.to_string().contains("h2"), "{problem}");
    }
}

/// A handler that reads a stream from below, and passes on its error with `?` or as the end of its own stream.
fn passes_on(reason: h2::Reason, after_the_head: bool) -> Peer {
    peer(move |_| async move {
        let below = messages(breaking(reason)).await?;
        if after_the_head {
            return Ok(below);
        }
        let read: Vec<_> = below.try_collect().await?;
        Ok(one(read.concat()))
    })
}

fn serve_as(trust: Trust, service: Peer) -> Net {
    let layer = policy().grpc_layer().trust(trust);
    serve(|incoming| Server::builder().layer(layer).add_service(service).serve_with_incoming(incoming))
}

#[tokio::test(start_paused = true)]
async fn what_a_connection_below_said_is_not_for_outsiders() {
    for (reason, _) in BREAKS {
        for (trust, after_the_head) in [(Trust::Outside, false), (Trust::Outside, true), (Trust::Inside, false)] {
            let net = serve_as(trust, passes_on(reason, after_the_head));
            let mut caller = Caller::new(net.wire().await);
            let answer = caller.stream(Request::new(stream::empty())).await;
            let seen = match answer {
                Err(status) => status,
                Ok(answer) => answer.into_inner().try_collect::<Vec<_>>().await.expect_err("broken off"),
            };
            assert_eq!(seen.code(), Code::Unavailable, "a call failed: {seen:?}");
            assert!(seen.metadata().get("oneclock-part").is_none(), "{seen:?}");
            assert_eq!(seen.message().contains("h2"), trust == Trust::Inside, "{seen:?}");
        }
    }
}

/// A status that one layer of ours made keeps its meaning through another.
#[tokio::test(start_paused = true)]
async fn i8_a_second_layer_around_the_first_knows_no_less() {
    let twice = ClientLayer::new(destination("stock").build().unwrap()).layer(
        ServiceBuilder::new()
            .map_response(|response: http::Response<_>| response.map(Body::new))
            .service(breaking(h2::Reason::CANCEL)),
    );
    let op = Operation::begin("order", ms(5_000));
    let status = op
        .scope(async {
            let answer = Caller::new(twice).stream(Request::new(stream::empty())).await?;
            answer.into_inner().try_collect::<Vec<_>>().await
        })
        .await
        .expect_err("broken off");
    assert_eq!(outcome(&status), Some(Outcome::Unknown { stage: Stage::Body }), "{status:?}");
}

/// tonic answers requests whatever they call themselves.
#[tokio::test(start_paused = true)]
async fn a_status_never_becomes_a_problem_document_that_looks_like_a_success() {
    for content_type in [None, Some("application/json"), Some("text/plain")] {
        for trust in [Trust::Inside, Trust::Outside] {
            let failing = peer(|_| async { Err(std::io::Error::other("disk full")).or_status() });
            let routes = Routes::new(failing);
            let service = ServiceBuilder::new().layer(policy().grpc_layer().trust(trust)).service(routes);
            let mut request = http::Request::post("/test.Peer/Unary");
            if let Some(content_type) = content_type {
                request = request.header("content-type", content_type);
            }
            let request = request.body(Full::new(Bytes::from_static(b"\0\0\0\0\0"))).unwrap();
            let (head, body) = service.oneshot(request).await.unwrap().into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            assert_eq!(head.headers["content-type"], "application/grpc", "{content_type:?}: {body:?}");
            assert_eq!((head.status.as_u16(), &head.headers["grpc-status"]), (200, &"13".parse().unwrap()));
            assert!(body.is_empty(), "{body:?}");
            let message = head.headers["grpc-message"].to_str().unwrap();
            assert_eq!(message.contains("disk full"), trust == Trust::Inside, "{message}");
        }
    }
}
