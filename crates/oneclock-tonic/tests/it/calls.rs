//! Calls through a channel: what is waited for is counted and cut, and what comes of it is a status. I4, V3, V10, X2.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use oneclock::{Operation, clock};
use oneclock_core::effect::Effect;
use oneclock_core::retry::RetryPolicy;
use oneclock_core::{Outcome, Reason, Trust};
use oneclock_tonic::{ClientLayer, ClientService, answered, call_error, destination, outcome};
use tokio::sync::oneshot;
use tokio::time::{Duration, sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tower::Layer;

use crate::support::{Caller, ms, nothing, one, one_then_nothing, peer, serve_inside, serve_plain, silent};

type Client = ClientService<Channel>;

fn client(channel: Channel) -> Client {
    ClientLayer::new(destination("pricing").build().unwrap()).layer(channel)
}

async fn call(op: &Operation, client: Client) -> (Status, u128) {
    let began = clock::now();
    let status = op.scope(Caller::new(client).unary(Request::new("hello"))).await.unwrap_err();
    (status, clock::now().since(began).as_millis())
}

#[tokio::test(start_paused = true)]
async fn v3_connecting_is_counted_and_cut() {
    let begun = Arc::new(Mutex::new(0));
    let count = Arc::clone(&begun);
    let net = serve_plain(peer(move |_| {
        *count.lock().unwrap() += 1;
        async { Ok(one("done")) }
    }));
    let (status, at) = call(&Operation::begin("order", ms(200)), client(net.slow_channel(ms(2_000)))).await;
    assert_eq!((status.code(), at), (Code::DeadlineExceeded, 200));

    let never = client(net.slow_channel(Duration::from_secs(100_000_000)));
    let (status, at) = call(&Operation::begin("order", ms(200)), never).await;
    assert_eq!((status.code(), at), (Code::DeadlineExceeded, 200), "a black hole");
    assert!(status.message().contains("order → pricing") && status.message().contains("200ms"), "{}", status.message());
    sleep(ms(10_000)).await;
    assert_eq!(*begun.lock().unwrap(), 0, "nor is it sent when the connection is there");
}

#[tokio::test(start_paused = true)]
async fn v3_naive_tonic_does_not_count_connecting() {
    let net = serve_plain(silent());
    let mut request = Request::new("hello");
    request.set_timeout(ms(200));
    let began = clock::now();
    Caller::new(net.slow_channel(ms(2_000))).unary(request).await.unwrap_err();
    assert_eq!(clock::now().since(began), ms(2_200));
}

#[tokio::test(start_paused = true)]
async fn i4_waiting_for_the_channels_own_limit_is_counted_and_cut() {
    let net = serve_plain(silent());
    let endpoint = Endpoint::from_static("http://peer.test").concurrency_limit(1);
    let client = client(net.of_endpoint(&endpoint, Duration::ZERO));
    let first = Operation::begin("first", ms(5_000));
    let (first, second) = (call(&first, client.clone()), async {
        sleep(ms(10)).await; // after the first
        call(&Operation::begin("second", ms(200)), client.clone()).await
    });
    let ((_, first), (status, second)) = tokio::join!(first, second);
    assert_eq!((status.code(), first, second), (Code::DeadlineExceeded, 5_000, 200));
}

#[tokio::test]
async fn a_refused_connect_is_unavailable() {
    // A port that was free a moment ago, and that nobody else gets while it is held without listening.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let channel = Endpoint::from_shared(url).unwrap().connect_lazy();
    let (status, _) = call(&Operation::begin("order", ms(10_000)), client(channel)).await;
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(oneclock::not_connected_in(&status).is_some(), "{status:?}");
    assert_eq!(outcome(&status), Some(Outcome::NotSent));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_the_channels_own_is_a_deadline_error() {
    let net = serve_plain(silent());
    let endpoint = Endpoint::from_static("http://peer.test").timeout(ms(100));
    let channel = net.of_endpoint(&endpoint, Duration::ZERO);
    let (status, at) = call(&Operation::begin("order", ms(800)), client(channel.clone())).await;
    assert_eq!((status.code(), at), (Code::DeadlineExceeded, 100));
    assert!(matches!(outcome(&status), Some(Outcome::Unknown { .. })), "the far side knows nothing of it");
    let naive = Caller::new(channel).unary(Request::new("hello")).await.unwrap_err();
    assert_eq!(naive.code(), Code::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn x6_after_the_end_nothing_is_called() {
    let net = serve_plain(peer(|_| async { Ok(one("called")) }));
    let op = Operation::begin("order", ms(100));
    sleep(ms(100)).await;
    let (status, at) = call(&op, client(net.channel())).await;
    assert_eq!((status.code(), at, outcome(&status)), (Code::DeadlineExceeded, 0, Some(Outcome::NotSent)));
    // 3 ms are too little for anything (contract K4).
    let (status, _) = call(&Operation::begin("order", ms(3)), client(net.channel())).await;
    assert_eq!((status.code(), outcome(&status)), (Code::DeadlineExceeded, Some(Outcome::NotSent)));
}

/// A call ends for what its operation ended for.
#[tokio::test(start_paused = true)]
async fn x4_a_caller_that_left_is_cancelled_and_no_deadline() {
    let net = serve_plain(silent());
    let op = Operation::begin("order", ms(800));
    let calling = call(&op, client(net.channel()));
    let ending = async {
        sleep(ms(50)).await;
        op.end(oneclock_core::Cause::CallerGone);
    };
    let ((status, at), ()) = tokio::join!(calling, ending);
    assert_eq!((status.code(), at), (Code::Cancelled, 50));
    assert_eq!(call_error(&status).unwrap().reason(), Some(Reason::CallerGone));
}

#[tokio::test(start_paused = true)]
async fn i6_dropping_a_call_drops_the_handler() {
    let (sender, gone) = oneshot::channel::<()>();
    let sender = Mutex::new(Some(sender));
    let net = serve_inside(peer(move |_| {
        let held = sender.lock().unwrap().take(); // dropped with the handler
        async move {
            let _held = held;
            std::future::pending().await
        }
    }));
    let op = Operation::begin("order", ms(60_000));
    timeout(ms(1_000), call(&op, client(net.channel()))).await.expect_err("it is waiting");
    timeout(ms(1_000), gone).await.expect("the handler is gone").expect_err("it sent nothing");
}

#[tokio::test(start_paused = true)]
async fn s1_streams_are_bounded_as_a_whole_by_the_caller() {
    // A peer that knows nothing of deadlines.
    let net = serve_plain(peer(|_| async { Ok(one_then_nothing("first")) }));
    let op = Operation::begin("order", ms(300));
    let began = clock::now();
    let ended = op
        .scope(async {
            let mut stream = Caller::new(client(net.channel())).stream(Request::new(nothing())).await?.into_inner();
            assert_eq!(stream.message().await?.unwrap(), "first");
            stream.message().await
        })
        .await;
    let status = ended.unwrap_err();
    assert_eq!((status.code(), clock::now().since(began)), (Code::DeadlineExceeded, ms(300)), "{status}");
    assert!(status.message().contains("order → pricing"), "{}", status.message());
    assert!(matches!(outcome(&status), Some(Outcome::Unknown { .. })));
}

#[tokio::test(start_paused = true)]
async fn s1_trailers_after_the_deadline_lose_to_it() {
    let net = serve_plain(peer(|_| async {
        let late = futures_util::stream::once(async {
            sleep(ms(300)).await;
            Err(Status::not_found("late"))
        });
        Ok(one("first").chain(late).boxed())
    }));
    for (budget, code) in [(300, Code::DeadlineExceeded), (400, Code::NotFound)] {
        let op = Operation::begin("order", ms(budget));
        let ended = op
            .scope(async {
                let requests = Request::new(nothing());
                let mut stream = Caller::new(client(net.channel())).stream(requests).await?.into_inner();
                stream.message().await?;
                stream.message().await
            })
            .await;
        assert_eq!(ended.unwrap_err().code(), code, "{budget}");
    }
}

/// The attempts that arrive: what each was told, and which it says to be.
type Attempts = Arc<Mutex<Vec<(String, Option<String>)>>>;

#[tokio::test(start_paused = true)]
async fn r1_an_attempt_is_told_what_is_left_then_and_says_which_it_is() {
    let attempts = Attempts::default();
    let seen = Arc::clone(&attempts);
    let net = serve_plain(peer(move |request| {
        let field = |name| request.metadata().get(name).map(|value| value.to_str().unwrap().to_owned());
        seen.lock().unwrap().push((field("grpc-timeout").unwrap(), field("grpc-previous-rpc-attempts")));
        let refused = seen.lock().unwrap().len() < 2;
        async move {
            sleep(ms(100)).await;
            let message = request.into_inner().message().await?.unwrap();
            if refused { Err(Status::unavailable("once")) } else { Ok(one(message)) }
        }
    }));
    let policy = RetryPolicy::new().attempts(3).build().unwrap();
    let pricing = destination("pricing").retry(policy).build().unwrap();
    let client = ClientLayer::new(pricing).layer(net.channel());
    let mut request = Request::new("hello");
    request.extensions_mut().insert(Effect::ReadOnly);
    let op = Operation::begin("order", ms(5_000));
    let answer = op.scope(Caller::new(client.clone()).unary(request)).await.unwrap();
    assert_eq!(answer.into_inner(), "hello", "the body was sent again");
    {
        let attempts = attempts.lock().unwrap();
        assert_eq!((attempts[0].0.as_str(), &attempts[0].1), ("5000000u", &None));
        let micros: u64 = attempts[1].0.trim_end_matches('u').parse().unwrap();
        assert!(micros <= 4_900_000, "{micros}");
        assert_eq!(attempts[1].1.as_deref(), Some("1"));
    }
    // What repeating a call does is not known unless somebody says so.
    attempts.lock().unwrap().clear();
    let status = op.scope(Caller::new(client).unary(Request::new("hello"))).await.unwrap_err();
    assert_eq!((status.code(), attempts.lock().unwrap().len()), (Code::Unavailable, 1));
    assert!(answered(&status).is_some_and(|answered| answered.gave_up.is_some()), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn c1_a_timeout_of_the_requests_own_bounds_all_its_attempts_together() {
    let net = serve_plain(peer(|_| async {
        sleep(ms(80)).await;
        Err(Status::unavailable("always"))
    }));
    let policy = RetryPolicy::new().attempts(9).backoff(ms(1), ms(1)).effect(Effect::ReadOnly).build().unwrap();
    let pricing = destination("pricing").retry(policy).build().unwrap();
    let mut request = Request::new("hello");
    request.set_timeout(ms(200));
    let op = Operation::begin("order", ms(5_000));
    let began = clock::now();
    let status =
        op.scope(Caller::new(ClientLayer::new(pricing).layer(net.channel())).unary(request)).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Unavailable), "{status}");
    let took = clock::now().since(began);
    assert!(took > ms(100) && took <= ms(200), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_far_side_answers_is_known_and_nothing_of_it_is_lost() {
    let net = serve_plain(peer(|_| async {
        let mut status = Status::with_details(Code::NotFound, "no such cart", b"\x08\x05".as_slice().into());
        status.metadata_mut().insert("cart", "7".parse().unwrap());
        Err(status)
    }));
    let (status, _) = call(&Operation::begin("order", ms(800)), client(net.channel())).await;
    assert_eq!((status.code(), status.message(), status.details()), (Code::NotFound, "no such cart", &b"\x08\x05"[..]));
    assert_eq!(status.metadata().get("cart").unwrap(), "7");
    assert_eq!(outcome(&status), Some(Outcome::Failed));
    assert!(call_error(&status).is_none() && answered(&status).unwrap().reason.is_none());
}

#[tokio::test(start_paused = true)]
async fn r8_the_reason_of_one_of_ours_is_known_to_whoever_called() {
    let net = serve_inside(silent());
    let inside = destination("pricing").trust(Trust::Inside).min_useful(Duration::ZERO).build().unwrap();
    let outside = destination("pricing").min_useful(Duration::ZERO).build().unwrap();
    for (destination, reason) in [(inside, Some(Reason::InsufficientBudget)), (outside, None)] {
        let client = ClientLayer::new(destination).layer(net.channel());
        // Enough for the caller, too little for the far side.
        let (status, _) = call(&Operation::begin("order", ms(4)), client).await;
        assert_eq!(status.code(), Code::DeadlineExceeded);
        let answered = answered(&status).expect("it answered");
        assert_eq!(answered.reason, reason);
        assert_eq!(answered.outcome == Outcome::Rejected, reason.is_some(), "{status:?}");
        assert!(status.metadata().get("oneclock-reason").is_none(), "not to be passed on");
    }
}

#[tokio::test(start_paused = true)]
async fn c6_where_an_operation_is_required_and_none_is_there_it_is_our_mistake() {
    let net = serve_plain(silent());
    let strict = destination("pricing").without_operation(oneclock_http::WithoutOperation::Require).build().unwrap();
    let status = Caller::new(ClientLayer::new(strict).layer(net.channel())).unary(Request::new("x")).await.unwrap_err();
    assert_eq!((status.code(), outcome(&status)), (Code::Internal, Some(Outcome::NotSent)));
}
