//! Over real sockets, under each of the three accept loops: tonic's own, ours, axum's. X3, K1, X2, S1, and the race between
//! tonic's timeout and ours.

use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use oneclock::{Operation, Shutdown};
use oneclock_core::{Stage, Trust};
use oneclock_tonic::{ClientLayer, ClientService, PolicyExt as _, call_error, destination};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request};
use tower::Layer;

use crate::support::{
    Caller, Peer, inside, ms, one, one_then_nothing, peer, policy, serve, serve_inside, serve_plain, silent,
    with_timeout,
};

#[derive(Clone, Copy, Debug)]
enum Loop {
    Tonic,
    Ours,
    Axum,
}

const LOOPS: [Loop; 3] = [Loop::Tonic, Loop::Ours, Loop::Axum];

/// A server that is gone when this is.
struct Serving(SocketAddr, #[allow(dead_code, reason = "held")] AbortOnDropHandle<()>);

async fn serving(by: Loop, service: Peer) -> Serving {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Routes::new(service.clone()).into_axum_router().layer(inside());
    let task = match by {
        Loop::Tonic => {
            let connections = stream::unfold(listener, |listener| async move {
                Some((listener.accept().await.map(|(socket, _)| socket), listener))
            });
            let server = Server::builder().layer(inside()).add_service(service);
            tokio::spawn(async move { server.serve_with_incoming(connections).await.unwrap() })
        }
        Loop::Ours => {
            let server = oneclock_http::serve(listener, router).trust(Trust::Inside).into_future();
            tokio::spawn(async move { server.await.unwrap() })
        }
        Loop::Axum => tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }),
    };
    Serving(address, AbortOnDropHandle::new(task))
}

impl Serving {
    fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.0)).unwrap().connect_lazy()
    }

    fn client(&self) -> ClientService<Channel> {
        ClientLayer::new(destination("peer").trust(Trust::Inside).build().unwrap()).layer(self.channel())
    }
}

#[tokio::test]
async fn x3_each_accept_loop_answers_and_keeps_the_deadline() {
    for by in LOOPS {
        let server = serving(
            by,
            peer(|request| async move {
                let op = oneclock_tonic::operation(&request)?;
                let first = request.into_inner().message().await?.unwrap();
                if first == "hurry" { std::future::pending().await } else { Ok(one(format!("{}", op.bound().by))) }
            }),
        )
        .await;
        let op = Operation::begin("order", Duration::from_secs(60));
        let mut caller = Caller::new(server.client());
        let answer = op.scope(caller.unary(Request::new("hello"))).await.unwrap();
        assert_eq!(answer.into_inner(), "ceiling", "{by:?}: a minute was told, and 20 s are the most there is");

        // The server's clock, not the caller's: this one has none.
        let hurry = with_timeout("300m").map(|_| stream::iter(["hurry".into()]).chain(stream::pending()));
        let mut caller = Caller::new(wire(&server).await);
        let status = timeout(ms(10_000), caller.stream(hurry)).await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{by:?}: {status:?}");
    }
}

/// A connection without tonic's timer.
async fn wire(server: &Serving) -> crate::support::Wire {
    crate::support::Wire::over(tokio::net::TcpStream::connect(server.0).await.unwrap()).await
}

/// Every kind of stream ends at the deadline, on the server's side and, where the server knows of none, on the caller's.
#[tokio::test]
async fn s1_client_server_and_bidirectional_streams_end_at_the_deadline() {
    // Echoes what comes; with nothing more to come, it waits for it.
    let echo = || {
        peer(|request| async move {
            Ok(request.into_inner().map(|message| message.map(|m| [b"<", &*m].concat().into())).boxed())
        })
    };
    let collect = || {
        peer(|request| async move {
            let mut messages = request.into_inner();
            while messages.message().await?.is_some() {}
            Ok(one("all"))
        })
    };
    let server_stream = || peer(|_| async { Ok(one_then_nothing("<first")) });
    for by in LOOPS {
        for (kind, service) in [("client", collect()), ("server", server_stream()), ("bidi", echo())] {
            let server = serving(by, service).await;
            let request = with_timeout("400m").map(|_| stream::iter(["first".into()]).chain(stream::pending()));
            let mut caller = Caller::new(wire(&server).await);
            let status = timeout(ms(20_000), async move {
                let mut messages = caller.stream(request).await?.into_inner();
                assert_eq!(messages.message().await?.unwrap(), "<first", "{by:?} {kind}");
                messages.message().await
            });
            let status = status.await.expect("it ends").unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{by:?} {kind}: {status:?}");
        }
    }
}

/// tonic's own timer has the same limit. It is made later than ours and asks the layers first, so what it finds is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_two_hundred_rounds_under_tonics_own_timer_answer_4_and_never_1() {
    let server = serving(Loop::Tonic, silent()).await;
    let wire = wire(&server).await;
    for _ in 0..4 {
        let rounds = (0..50).map(|round| {
            let mut caller = Caller::new(wire.clone());
            // Of many lengths, so that the timers' grain is met everywhere.
            let value: &'static str = Box::leak(format!("{}u", 20_000 + 137 * round).into_boxed_str());
            async move { caller.unary(with_timeout(value)).await.unwrap_err().code() }
        });
        assert_eq!(join_all(rounds).await, [Code::DeadlineExceeded; 50]);
    }
}

#[tokio::test(start_paused = true)]
async fn x3_at_the_very_same_moment_ours_answers() {
    let net = serve_inside(silent());
    for micros in [20_000, 20_001, 20_499, 20_500, 20_999, 21_000] {
        let value: &'static str = Box::leak(format!("{micros}u").into_boxed_str());
        let ours = Caller::new(net.wire().await).unary(with_timeout(value)).await.unwrap_err();
        assert_eq!(ours.code(), Code::DeadlineExceeded, "{micros}");
        let naive = Caller::new(serve_plain(silent()).wire().await).unary(with_timeout(value)).await.unwrap_err();
        assert_eq!(naive.code(), Code::Cancelled, "{micros}");
    }
}

#[tokio::test(start_paused = true)]
async fn x10_who_comes_during_a_shutdown_is_told_to_go_elsewhere() {
    let shutdown = Shutdown::new();
    let layer = inside().with_shutdown(&shutdown);
    let net = serve(|incoming| Server::builder().layer(layer).add_service(silent()).serve_with_incoming(incoming));
    let mut caller = Caller::new(net.wire().await);
    shutdown.signal();
    let status = caller.unary(with_timeout("5S")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.metadata().get("oneclock-reason").unwrap(), "shutdown");
}

/// The budget runs from when the head was read, under our accept loop: what waits above the layer is counted.
#[tokio::test]
async fn k1_under_our_accept_loop_the_budget_runs_from_the_head() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let left = peer(|request| async move {
        let op = oneclock_tonic::operation(&request)?;
        Ok(one(op.remaining().as_millis().to_string()))
    });
    let slow = axum::middleware::from_fn(|request: axum::extract::Request, next: axum::middleware::Next| async move {
        sleep(ms(500)).await;
        next.run(request).await
    });
    let router = Routes::new(left).into_axum_router().layer(policy().grpc_layer()).layer(slow);
    let server = oneclock_http::serve(listener, router).trust(Trust::Inside).into_future();
    let server = Serving(address, AbortOnDropHandle::new(tokio::spawn(async move { server.await.unwrap() })));
    let answer = Caller::new(wire(&server).await).unary(with_timeout("10S")).await.unwrap();
    let left: u64 = String::from_utf8(answer.into_inner().to_vec()).unwrap().parse().unwrap();
    assert!(left <= 9_500, "{left}");
}

#[tokio::test]
async fn v3_a_black_hole_is_left_at_the_deadline() {
    // A listener that accepts nothing, with its backlog full: connecting to it hangs.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let hole = socket.listen(1).unwrap();
    let address = hole.local_addr().unwrap();
    let fill = join_all((0..16).map(|_| timeout(ms(200), tokio::net::TcpStream::connect(address)))).await;
    assert!(fill.iter().any(Result::is_err), "the backlog is full");
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    let client = ClientLayer::new(destination("hole").build().unwrap()).layer(channel);
    let op = Operation::begin("order", ms(400));
    let mut caller = Caller::new(client);
    let status =
        timeout(ms(10_000), op.scope(caller.unary(Request::new("hello")))).await.expect("it ends").unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(call_error(&status).is_some(), "{status:?}");
    assert!(status.message().contains(Stage::Wait.as_str()), "{}", status.message());
}
