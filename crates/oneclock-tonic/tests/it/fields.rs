//! What callers say: `grpc-timeout`, read by the layer and written by ours. Contract P2 to P8, E1, E7, C1, I3.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oneclock::{Operation, clock};
use oneclock_core::wire::{Convention, Conventions, writes};
use oneclock_core::{Policy, Trust};
use oneclock_http::Destination;
use oneclock_tonic::{ClientLayer, PolicyExt as _, call_error, destination};
use tokio::time::timeout;
use tonic::transport::Server;
use tonic::{Code, Request};
use tower::Layer;

use crate::support::{
    Caller, Peer, inside, ms, one, peer, policy, serve, serve_inside, serve_plain, silent, with_timeout,
};

/// A service that counts what it was begun for, and never answers.
fn counting() -> (Peer, Arc<AtomicUsize>) {
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let service = peer(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::pending()
    });
    (service, begun)
}

#[tokio::test(start_paused = true)]
async fn p3_what_cannot_be_read_is_refused_and_never_unlimited() {
    let (service, begun) = counting();
    let net = serve_inside(service);
    for value in ["+1S", "-1S", "1s", "1", "S", "1 S", "1.5S", "9a1S", "123456789S", "000000000S"] {
        let status = Caller::new(net.wire().await).unary(with_timeout(value)).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{value}: {status}");
        assert!(status.message().contains("grpc-timeout"), "{value}: {status}");
    }
    assert_eq!(begun.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn p3_naive_tonic_takes_it_for_no_limit() {
    let (service, begun) = counting();
    let net = serve_plain(service);
    let mut caller = Caller::new(net.wire().await);
    timeout(Duration::from_secs(3_600), caller.unary(with_timeout("1.5S"))).await.expect_err("it has no end");
    assert_eq!(begun.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn p4_zero_is_expired_and_begins_nothing() {
    let (service, begun) = counting();
    let (net, began) = (serve_inside(service), clock::now());
    for value in ["0S", "0n", "00000000S"] {
        let status = Caller::new(net.wire().await).unary(with_timeout(value)).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{value}: {status}");
        assert_eq!(status.metadata().get("oneclock-reason").unwrap(), "expired_before_start", "{value}");
    }
    assert_eq!((begun.load(Ordering::Relaxed), clock::now()), (0, began));
}

#[tokio::test(start_paused = true)]
async fn p4_naive_tonic_begins_it() {
    let (service, begun) = counting();
    let status = Caller::new(serve_plain(service).wire().await).unary(with_timeout("0S")).await.unwrap_err();
    assert_eq!((status.code(), begun.load(Ordering::Relaxed)), (Code::Cancelled, 1));
}

fn twice() -> Request<&'static str> {
    let mut request = with_timeout("5S");
    request.metadata_mut().append("grpc-timeout", "100m".parse().unwrap());
    request
}

#[tokio::test(start_paused = true)]
async fn p8_of_two_fields_the_smallest_counts() {
    let (net, began) = (serve_inside(silent()), clock::now());
    let status = Caller::new(net.wire().await).unary(twice()).await.unwrap_err();
    assert_eq!((status.code(), clock::now().since(began)), (Code::DeadlineExceeded, ms(100)));
}

#[tokio::test(start_paused = true)]
async fn p8_naive_tonic_takes_the_first() {
    let (net, began) = (serve_plain(silent()), clock::now());
    Caller::new(net.wire().await).unary(twice()).await.unwrap_err();
    assert_eq!(clock::now().since(began), ms(5_000));
}

#[tokio::test(start_paused = true)]
async fn i1_whoever_says_nothing_gets_the_policys_value() {
    let (net, began) = (serve_inside(silent()), clock::now());
    let status = Caller::new(net.wire().await).unary(Request::new("hello")).await.unwrap_err();
    assert_eq!((status.code(), clock::now().since(began)), (Code::DeadlineExceeded, ms(10_000)));
}

#[tokio::test(start_paused = true)]
async fn the_method_is_the_route_of_the_policy() {
    let policy = Policy::named("shop")
        .when_absent(ms(1_000))
        .route("/test.Peer", |limits| limits.when_absent(ms(600)))
        .route("/test.Peer/Unary", |limits| limits.when_absent(ms(300)))
        .build()
        .unwrap();
    let layer = policy.grpc_layer().trust(Trust::Inside);
    let net = serve(|incoming| Server::builder().layer(layer).add_service(silent()).serve_with_incoming(incoming));
    let began = clock::now();
    Caller::new(net.wire().await).unary(Request::new("hello")).await.unwrap_err();
    assert_eq!(clock::now().since(began), ms(300), "of the method");
    let requests = Request::new(crate::support::nothing());
    Caller::new(net.wire().await).stream(requests).await.unwrap_err();
    assert_eq!(clock::now().since(began), ms(900), "of the service");
}

/// What the far side of a call is told.
async fn told(op: &Operation, request: Request<&'static str>) -> String {
    // Outside of our own layer, so that it is what came over the wire.
    let net = serve_plain(peer(|request| async move {
        let told = request.metadata().get_all("grpc-timeout").iter();
        Ok(one(told.map(|value| value.to_str().unwrap()).collect::<Vec<_>>().join(" and ")))
    }));
    let channel = ClientLayer::new(destination("pricing").build().unwrap()).layer(net.channel());
    let answer = op.scope(Caller::new(channel).unary(request)).await.unwrap().into_inner();
    String::from_utf8(answer.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn e7_every_call_is_told_what_is_left_with_no_code_in_handlers() {
    let op = Operation::begin("order", ms(800));
    assert_eq!(told(&op, Request::new("hello")).await, "800000u");
    tokio::time::advance(ms(300)).await;
    assert_eq!(told(&op, Request::new("hello")).await, "500000u");
}

/// A destination that was begun elsewhere does not say that it understands gRPC's field.
#[tokio::test(start_paused = true)]
async fn e7_the_far_side_is_told_grpc_timeout_whoever_made_the_destination() {
    let op = Operation::begin("order", ms(800));
    let net = serve_plain(peer(|request| async move {
        let told = ["grpc-timeout", "x-remaining-ms", "x-request-timeout-ms"]
            .map(|field| request.metadata().get(field).map_or("nothing", |value| value.to_str().unwrap()).to_owned());
        Ok(one(told.join(" ")))
    }));
    let own = Conventions::new([Convention::X_REQUEST_TIMEOUT_MS]).unwrap();
    for (destination, want) in [
        (Destination::named("pricing"), "800000u nothing nothing"),
        (Destination::named("pricing").tells(own.clone()), "800000u nothing 800"),
        (destination("pricing").also_tells(&own), "800000u nothing 800"),
        (destination("pricing").also_tells(&writes::grpc()), "800000u nothing nothing"),
    ] {
        let channel = ClientLayer::new(destination.build().unwrap()).layer(net.channel());
        let answer = op.scope(Caller::new(channel).unary(Request::new("hello"))).await.unwrap().into_inner();
        assert_eq!(std::str::from_utf8(&answer).unwrap(), want);
    }

    // The naive way, the destination as it was given: tonic's server would work without a limit.
    let plain = Destination::named("pricing").build().unwrap();
    let (call, mut told) = (plain.begin(Some(op)).unwrap(), http::HeaderMap::new());
    plain.write_head(&call, &mut told).unwrap();
    assert!(told.contains_key("x-remaining-ms") && !told.contains_key("grpc-timeout"));
}

#[tokio::test(start_paused = true)]
async fn i3_a_timeout_of_the_requests_own_only_shortens() {
    let op = Operation::begin("order", ms(800));
    let own = |span| {
        let mut request = Request::new("hello");
        request.set_timeout(span);
        request
    };
    assert_eq!(told(&op, own(ms(200))).await, "200000u");
    assert_eq!(told(&op, own(ms(5_000))).await, "800000u");
    assert_eq!(told(&op, with_timeout("5 minutes")).await, "800000u", "not readable: absent, and not sent on");
    assert_eq!(told(&op, twice()).await, "100000u", "of two the smallest");
}

#[tokio::test(start_paused = true)]
async fn i3_a_timeout_of_the_requests_own_ends_its_call_and_not_the_operation() {
    let net = serve_plain(silent());
    let channel = ClientLayer::new(destination("pricing").build().unwrap()).layer(net.channel());
    let op = Operation::begin("order", ms(800));
    let mut request = Request::new("hello");
    request.set_timeout(ms(200));
    let began = clock::now();
    let status = op.scope(Caller::new(channel.clone()).unary(request)).await.unwrap_err();
    assert_eq!((status.code(), clock::now().since(began)), (Code::DeadlineExceeded, ms(200)));
    assert!(call_error(&status).is_some() && !op.is_ended());

    let mut request = Request::new("hello");
    request.set_timeout(Duration::ZERO);
    let status = op.scope(Caller::new(channel).unary(request)).await.unwrap_err();
    assert_eq!((status.code(), clock::now().since(began)), (Code::DeadlineExceeded, ms(200)), "at once");
    assert!(matches!(call_error(&status).unwrap().outcome(), oneclock_core::Outcome::NotSent));
}

/// A handler that waits for messages learns why no more come.
#[tokio::test(start_paused = true)]
async fn x6_the_messages_of_a_request_end_with_a_deadline_error() {
    let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let net = serve_inside(peer(move |request| {
        let sender = sender.clone();
        async move {
            let status = request.into_inner().message().await.unwrap_err();
            let _ = sender.send(status.code());
            Err(status)
        }
    }));
    let request = with_timeout("300m").map(|_| crate::support::nothing());
    let status = Caller::new(net.wire().await).stream(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(ended.recv().await.unwrap(), Code::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn c2_an_outsider_only_shortens() {
    let net = serve(|incoming| {
        Server::builder().layer(policy().grpc_layer()).add_service(silent()).serve_with_incoming(incoming)
    });
    for (asked, got) in [("15S", 10_000), ("300m", 300)] {
        let began = clock::now();
        Caller::new(net.wire().await).unary(with_timeout(asked)).await.unwrap_err();
        assert_eq!(clock::now().since(began), ms(got), "{asked}");
    }
    let inside =
        serve(|incoming| Server::builder().layer(inside()).add_service(silent()).serve_with_incoming(incoming));
    let began = clock::now();
    Caller::new(inside.wire().await).unary(with_timeout("15S")).await.unwrap_err();
    assert_eq!(clock::now().since(began), ms(15_000));
}
