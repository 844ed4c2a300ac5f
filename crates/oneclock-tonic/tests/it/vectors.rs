//! The contract's vectors V2, V4, V6 and V13, each also over plain tonic, which shows that the test can fail.

use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use futures_util::stream;
use http::{Request as HttpRequest, Response as HttpResponse};
use oneclock::{Operation, clock};
use oneclock_core::{Outcome, Stage};
use oneclock_http::BoxError;
use oneclock_tonic::{ClientLayer, call_error, destination, outcome};
use tokio::time::{sleep, timeout};
use tonic::body::Body;
use tonic::transport::Server;
use tonic::{Code, Request, Status};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::support::{
    Caller, Net, Peer, inside, ms, one, one_then_nothing, peer, serve, serve_inside, serve_plain, silent, with_timeout,
};

/// A service that takes a second, and the moments at which it was begun.
fn takes_a_second() -> (Peer, Arc<Mutex<Vec<u128>>>) {
    let begun = Arc::new(Mutex::new(Vec::new()));
    let began = clock::now();
    let notes = Arc::clone(&begun);
    let service = peer(move |_| {
        notes.lock().unwrap().push(clock::now().since(began).as_millis());
        async {
            sleep(ms(1_000)).await;
            Ok(one("done"))
        }
    });
    (service, begun)
}

async fn four_calls(net: &Net) -> Vec<Code> {
    let wire = net.wire().await;
    let calls = (0..4).map(|_| {
        let mut caller = Caller::new(wire.clone());
        async move { caller.unary(with_timeout("1500m")).await.map_or_else(|status| status.code(), |_| Code::Ok) }
    });
    join_all(calls).await
}

#[tokio::test(start_paused = true)]
async fn v2_what_waits_for_its_turn_spends_its_budget_and_is_not_begun_after_it() {
    let (service, begun) = takes_a_second();
    let net = serve(|incoming| {
        let layers = ServiceBuilder::new().layer(inside()).layer(ConcurrencyLimitLayer::new(1)).into_inner();
        Server::builder().layer(layers).add_service(service).serve_with_incoming(incoming)
    });
    let began = clock::now();
    let mut codes = four_calls(&net).await;
    codes.sort_by_key(|code| *code as i32);
    assert_eq!(codes, [Code::Ok, Code::DeadlineExceeded, Code::DeadlineExceeded, Code::DeadlineExceeded]);
    assert_eq!(clock::now().since(began), ms(1_500));
    sleep(ms(10_000)).await;
    assert_eq!(*begun.lock().unwrap(), [0, 1_000], "none was begun after 1.5 s");
}

#[tokio::test(start_paused = true)]
async fn v2_naive_tonics_limit_stands_outside_of_layers_and_begins_all_of_them() {
    let (service, begun) = takes_a_second();
    let net = serve(|incoming| {
        let server = Server::builder().concurrency_limit_per_connection(1);
        server.layer(tower::layer::util::Identity::new()).add_service(service).serve_with_incoming(incoming)
    });
    assert_eq!(four_calls(&net).await, [Code::Ok; 4]);
    assert_eq!(*begun.lock().unwrap(), [0, 1_000, 2_000, 3_000]);
}

async fn streams_for_300_ms(net: &Net) -> (Option<Status>, u128) {
    let began = clock::now();
    let request = with_timeout("300m").map(|_| stream::pending());
    let answer = Caller::new(net.wire().await).stream(request).await;
    let mut messages = answer.unwrap().into_inner();
    assert_eq!(messages.message().await.unwrap().unwrap(), "first");
    let end = timeout(ms(3_000), messages.message()).await;
    (end.ok().map(Result::unwrap_err), clock::now().since(began).as_millis())
}

#[tokio::test(start_paused = true)]
async fn v4_a_server_stream_ends_with_status_4_at_its_deadline() {
    let net = serve_inside(peer(|_| async { Ok(one_then_nothing("first")) }));
    let (end, at) = streams_for_300_ms(&net).await;
    assert_eq!((end.expect("an end").code(), at), (Code::DeadlineExceeded, 300));
}

#[tokio::test(start_paused = true)]
async fn v4_naive_tonic_leaves_the_stream_open() {
    let net = serve_plain(peer(|_| async { Ok(one_then_nothing("first")) }));
    let (end, at) = streams_for_300_ms(&net).await;
    assert!(end.is_none(), "{end:?}");
    assert_eq!(at, 3_000);
}

/// What a peer does that gave up a moment before our timer fires.
#[derive(Clone, Copy, Debug)]
enum GivesUp {
    Status,
    Reset,
    Close,
}

type GaveUp = Result<HttpResponse<Body>, BoxError>;

/// A channel whose far side gives up like this, when the clock says so and before any timer of ours is looked at.
fn gives_up(
    how: GivesUp,
) -> impl Service<HttpRequest<Body>, Response = HttpResponse<Body>, Error = BoxError, Future: Send> + Clone + Send {
    service_fn(move |_| async move {
        sleep(ms(300)).await;
        let gave_up: GaveUp = match how {
            GivesUp::Status => Ok(Status::cancelled("gave up").into_http()),
            GivesUp::Reset => Err(h2::Error::from(h2::Reason::CANCEL).into()),
            GivesUp::Close => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
        };
        gave_up
    })
}

#[tokio::test(start_paused = true)]
async fn v6_a_peer_that_gives_up_at_our_deadline_makes_it_a_deadline_error() {
    for how in [GivesUp::Status, GivesUp::Reset, GivesUp::Close] {
        let channel = ClientLayer::new(destination("pricing").build().unwrap()).layer(gives_up(how));
        let op = Operation::begin("order", ms(300));
        let status = op.scope(Caller::new(channel).unary(Request::new("hello"))).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{how:?}: {status}");
        let error = call_error(&status).expect("a call of ours");
        assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Wait }, "{how:?}");
        assert!(status.message().starts_with("order → pricing"), "{}", status.message());
    }
}

#[tokio::test(start_paused = true)]
async fn v6_naive_tonic_says_whatever_the_peer_said() {
    for how in [GivesUp::Status, GivesUp::Reset, GivesUp::Close] {
        let mut request = Request::new("hello");
        request.set_timeout(ms(300));
        let status = Caller::new(gives_up(how)).unary(request).await.unwrap_err();
        assert_ne!(status.code(), Code::DeadlineExceeded, "{how:?}: {status}");
    }
}

/// While there is time, a peer that gives up is just that.
#[tokio::test(start_paused = true)]
async fn v6_before_our_deadline_the_peers_word_counts() {
    for (how, code) in
        [(GivesUp::Status, Code::Cancelled), (GivesUp::Reset, Code::Cancelled), (GivesUp::Close, Code::Unavailable)]
    {
        let channel = ClientLayer::new(destination("pricing").build().unwrap()).layer(gives_up(how));
        let op = Operation::begin("order", ms(301));
        let status = op.scope(Caller::new(channel).unary(Request::new("hello"))).await.unwrap_err();
        assert_eq!(status.code(), code, "{how:?}: {status}");
        assert!(matches!(outcome(&status), Some(Outcome::Unknown { .. })), "{how:?}");
    }
}

async fn head_at_expiry(net: &Net) -> HttpResponse<hyper::body::Incoming> {
    let request = HttpRequest::post("http://peer.test/test.Peer/Unary")
        .header("content-type", "application/grpc")
        .header("grpc-timeout", "300m");
    let request = request.body(Body::new(http_body_util::Full::from(&b"\0\0\0\0\0"[..]))).unwrap();
    let began = clock::now();
    let head = net.wire().await.oneshot(request).await.unwrap();
    assert_eq!(clock::now().since(began), ms(300));
    head
}

#[tokio::test(start_paused = true)]
async fn v13_at_expiry_http_200_with_status_4_in_the_head() {
    let head = head_at_expiry(&serve_inside(silent())).await;
    assert_eq!((head.status().as_u16(), &head.headers()["grpc-status"]), (200, &"4".parse().unwrap()));
    assert_eq!(head.headers()["oneclock-reason"], "deadline");
    assert!(http_body::Body::is_end_stream(head.body()), "trailers only");
}

#[tokio::test(start_paused = true)]
async fn v13_naive_tonic_answers_cancelled() {
    let head = head_at_expiry(&serve_plain(silent())).await;
    assert_eq!((head.status().as_u16(), &head.headers()["grpc-status"]), (200, &"1".parse().unwrap()));
}
