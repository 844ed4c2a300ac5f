//! Our own client in place of a channel, over real sockets: what it tells, and what is known of a call that gave no answer.
//! Contract E4, R8, S1, X2; invariant I4.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use oneclock::Operation;
use oneclock_core::wire::{Conventions, writes};
use oneclock_core::{Outcome, Stage, Trust};
use oneclock_http::{Client, serve};
use oneclock_tonic::{GrpcClient, call_error, outcome};
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::{Code, Request, Status};

use crate::support::{Caller, Peer, inside, ms, nothing, one, one_then_nothing, peer, silent};

async fn listening(service: Peer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let router = Routes::new(service).into_axum_router().layer(inside());
    tokio::spawn(serve(listener, router).trust(Trust::Inside).into_future());
    addr
}

fn client(addr: SocketAddr) -> GrpcClient {
    GrpcClient::new(Client::builder("pricing", format!("http://{addr}")).trust(Trust::Inside)).unwrap()
}

fn told() -> Peer {
    peer(|request| async move {
        let told = request.metadata().get("grpc-timeout").map_or("nothing", |told| told.to_str().unwrap()).to_owned();
        Ok(one(told))
    })
}

/// The value of a `grpc-timeout` of less than 100 s, which is written in microseconds or finer.
fn span(told: &[u8]) -> Duration {
    let (number, unit) = told.split_at(told.len() - 1);
    let number: u64 = std::str::from_utf8(number).unwrap().parse().unwrap();
    match unit {
        b"u" => Duration::from_micros(number),
        b"n" => Duration::from_nanos(number),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn e4_it_tells_what_is_left_and_a_timeout_of_the_request_only_shortens() {
    let client = client(listening(told()).await);
    let op = Operation::begin("order", ms(10_000));
    for (own, most) in [(None, ms(10_000)), (Some(ms(2_000)), ms(2_000)), (Some(ms(60_000)), ms(10_000))] {
        let mut request = Request::new("hello");
        if let Some(own) = own {
            request.set_timeout(own);
        }
        let answer = op.scope(Caller::of(client.clone()).unary(request)).await.unwrap();
        let told = span(answer.get_ref());
        assert!(told <= most && told > most / 4, "{own:?}: {told:?}");
    }
}

/// Neither the field nor the version has to be said, and what the builder says of fields does not take this one away.
#[tokio::test]
async fn e7_it_tells_grpc_timeout_whatever_its_builder_says() {
    let addr = listening(told()).await;
    let builder = || Client::builder("pricing", format!("http://{addr}"));
    for builder in [builder(), builder().tells(writes::plain_http()), builder().tells(Conventions::none())] {
        let op = Operation::begin("order", ms(10_000));
        let client = GrpcClient::new(builder).unwrap();
        let answer = op.scope(Caller::of(client).unary(Request::new("hello"))).await.unwrap();
        assert!(span(answer.get_ref()) <= ms(10_000));
    }
}

#[tokio::test]
async fn x2_s1_the_deadline_is_ours_before_the_head_and_in_a_stream() {
    let op = Operation::begin("order", ms(400));
    let status =
        op.scope(Caller::of(client(listening(silent()).await)).unary(Request::new("hello"))).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(matches!(outcome(&status), Some(Outcome::Unknown { .. })));

    let op = Operation::begin("order", ms(400));
    let client = client(listening(peer(|_| async { Ok(one_then_nothing("first")) })).await);
    let mut items = op.scope(Caller::of(client).stream(Request::new(nothing()))).await.unwrap().into_inner();
    assert_eq!(items.next().await.unwrap().unwrap(), "first");
    let status: Status = items.next().await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
}

#[tokio::test]
async fn r8_what_was_not_connected_was_not_sent() {
    let held = tokio::net::TcpSocket::new_v4().unwrap(); // a port that nobody listens on
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let client = client(held.local_addr().unwrap());
    let op = Operation::begin("order", ms(10_000));
    let status = op.scope(Caller::of(client).unary(Request::new("hello"))).await.unwrap_err();
    assert_eq!((status.code(), outcome(&status)), (Code::Unavailable, Some(Outcome::NotSent)), "{status}");
}

/// A channel says `wait` for all of it; here the ledger tells them apart.
#[tokio::test]
async fn i4_connecting_is_a_stage_of_its_own_and_proves_that_nothing_was_sent() {
    let full = full_queue();
    let client = client(full.addr);
    let op = Operation::begin("order", ms(400));
    let status = op.scope(Caller::of(client).unary(Request::new("hello"))).await.unwrap_err();
    assert_eq!((status.code(), outcome(&status)), (Code::DeadlineExceeded, Some(Outcome::NotSent)), "{status}");
    let stopped = call_error(&status).and_then(|call| call.stopped()).unwrap();
    let oneclock::Stopped::Ended(ended) = stopped else { panic!("{stopped}") };
    assert_eq!(ended.stage(), Stage::Connect, "{status}");
}

/// A listener that accepts nobody, and whose queue is full.
struct FullQueue {
    addr: SocketAddr,
    _listener: std::net::TcpListener,
    _fillers: Vec<std::net::TcpStream>,
}

fn full_queue() -> FullQueue {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    let mut fillers = Vec::new();
    while let Ok(filler) = std::net::TcpStream::connect_timeout(&addr, ms(100)) {
        fillers.push(filler);
        assert!(fillers.len() < 64, "the queue does not fill up");
    }
    FullQueue { addr, _listener: socket.into(), _fillers: fillers }
}
