//! Stopping with work under way (contract X10): what is live answers within the grace, what comes new is told to go
//! elsewhere, what is left at the end of the grace is ended and answered, what must finish is waited for, and then there
//! is nothing.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::routing::any;
use bytes::Bytes;
use oneclock::operation::Kind;
use oneclock_axum::Op;
use oneclock_core::Cause;
use oneclock_test::caller::{Caller, H1Outcome, H2Outcome, How};
use oneclock_test::{Ended, PATIENCE, Probe, Reason};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::service::{Service, policy};
use crate::told::Said;
use crate::{NOTICED, ms, now};

const LONG: Duration = Duration::from_secs(8);

/// `/slow` takes 300 ms; `/hang` never answers; `/trickle` never ends its body; `/charge` has a step that must finish and
/// takes 500 ms.
fn routes(probe: &Probe, step: &Probe) -> Router {
    let (slow, hang, trickle, charge, step) =
        (probe.clone(), probe.clone(), probe.clone(), probe.clone(), step.clone());
    Router::new()
        .route("/slow", {
            any(move || async move {
                let guard = slow.enter();
                tokio::time::sleep(ms(300)).await;
                guard.finish();
                "slow"
            })
        })
        .route("/hang", any(move || async move { hang.never().await }))
        .route(
            "/trickle",
            any(move || async move {
                AxumBody::from_stream(futures_util::stream::unfold(trickle.enter(), |guard| async move {
                    tokio::time::sleep(ms(20)).await;
                    Some((Ok::<_, Infallible>(Bytes::from_static(b".")), guard))
                }))
            }),
        )
        .route(
            "/charge",
            any(move |Op(op): Op| async move {
                let _guard = charge.enter();
                let step = step.clone();
                let work = async move {
                    let guard = step.enter();
                    tokio::time::sleep(ms(500)).await;
                    guard.finish();
                    Ok::<_, Infallible>(())
                };
                let _ = op.must_finish("charge", LONG, work).await;
                std::future::pending::<()>().await;
            }),
        )
}

async fn service(probe: &Probe, step: &Probe, budget: Duration, grace: Duration) -> Service {
    Service::with(routes(probe, step), policy(budget), grace, |layer| layer, |serve| serve).await
}

/// The status, the reason, and whether the caller may come again and when.
type Refusal = (u16, Option<String>, Option<String>);

#[track_caller]
fn h1_refusal(outcome: H1Outcome) -> Refusal {
    match outcome {
        H1Outcome::Complete { status, headers, .. } => refusal(status.as_u16(), &headers),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn h2_refusal(outcome: H2Outcome) -> Refusal {
    match outcome {
        H2Outcome::Complete { status, headers, .. } => refusal(status.as_u16(), &headers),
        other => panic!("{other:?}"),
    }
}

fn refusal(status: u16, headers: &http::HeaderMap) -> Refusal {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    (status, text("oneclock-reason"), text("retry-after"))
}

#[tokio::test]
async fn x10_live_work_answers_within_the_grace() {
    let (probe, step) = (Probe::new(), Probe::new());
    let service = service(&probe, &step, LONG, LONG).await;
    let h1 = Caller::h1(service.addr).get("/slow").send(How::Close).await.unwrap();
    let caller = Caller::h2(service.addr).connect().await.unwrap();
    let h2 = caller.get("/slow").send().await.unwrap();
    probe.started(2).await.unwrap();
    let since = now();
    service.shutdown.signal();
    match h1.answer().await {
        H1Outcome::Complete { status, body, .. } => assert_eq!((status.as_u16(), &body[..]), (200, &b"slow"[..])),
        other => panic!("{other:?}"),
    }
    match h2.answer().await {
        H2Outcome::Complete { status, body, .. } => assert_eq!((status.as_u16(), &body[..]), (200, &b"slow"[..])),
        other => panic!("{other:?}"),
    }
    let told = service.stopped().await;
    assert!(now() - since < LONG, "it does not wait for the end of the grace: {:?}", now() - since);
    assert_eq!(told.endings(), [("order".to_owned(), None), ("order".to_owned(), None)]);
    assert_eq!(probe.finished_count(), 2);
}

#[tokio::test]
async fn x10_at_the_end_of_the_grace_live_work_is_ended_and_answered() {
    let (probe, step) = (Probe::new(), Probe::new());
    let service = service(&probe, &step, LONG, ms(200)).await;
    let h1 = Caller::h1(service.addr).get("/hang").send(How::Close).await.unwrap();
    let h1_body = Caller::h1(service.addr).get("/trickle").send(How::Close).await.unwrap();
    let caller = Caller::h2(service.addr).connect().await.unwrap();
    let h2 = caller.get("/hang").send().await.unwrap();
    let h2_body = caller.get("/trickle").send().await.unwrap();
    probe.started(4).await.unwrap();
    let since = now();
    service.shutdown.signal();
    let midway = (503, Some("shutdown_midway".to_owned()), None);
    assert_eq!(h1_refusal(h1.answer().await), midway, "what happened is not known: no word of coming again");
    assert_eq!(h2_refusal(h2.answer().await), midway);
    match h1_body.answer().await {
        H1Outcome::Truncated { .. } | H1Outcome::NoAnswer(_) => {}
        other => panic!("a body that was under way never looks whole: {other:?}"),
    }
    match h2_body.answer().await {
        H2Outcome::Reset { reason, .. } => assert_eq!(reason, Reason::CANCEL),
        other => panic!("a body that was under way never looks whole: {other:?}"),
    }
    let told = service.stopped().await;
    let after = now() - since;
    assert!(after >= ms(150) && after <= ms(200) + ms(500) + NOTICED, "{after:?}");
    assert!(told.endings().iter().all(|(_, cause)| *cause == Some(Cause::Shutdown)), "{:?}", told.endings());
    assert_eq!((told.endings().len(), probe.dropped_count()), (4, 4));
}

#[tokio::test]
async fn x10_an_earlier_deadline_still_counts_in_the_grace() {
    let (probe, step) = (Probe::new(), Probe::new());
    let service = service(&probe, &step, LONG, LONG).await;
    let h1 = Caller::h1(service.addr).get("/hang").header("x-remaining-ms", "300").send(How::Close).await.unwrap();
    probe.started(1).await.unwrap();
    service.shutdown.signal();
    assert_eq!(h1_refusal(h1.answer().await), (504, Some("deadline".to_owned()), None));
    let told = service.stopped().await;
    assert_eq!(told.endings(), [("order".to_owned(), Some(Cause::Deadline))]);
}

/// A connection that hides from its caller, for as long as it holds, that the server is about to close it. Without it a
/// client library sends no more once it has read the GOAWAY.
struct Relay {
    addr: SocketAddr,
    hold: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Relay {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (hold, held) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (caller, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(server).await.unwrap();
            caller.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let ((from_caller, to_caller), (from_server, to_server)) = (caller.into_split(), server.into_split());
            let never = watch::channel(false);
            tokio::join!(copy(from_caller, to_server, never.1.clone()), copy(from_server, to_caller, held));
        });
        Self { addr, hold, _tasks: tasks }
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut held: watch::Receiver<bool>) {
    let mut piece = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        if *held.borrow() && held.wait_for(|held| !held).await.is_err() {
            return;
        }
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn x10_new_requests_on_a_kept_connection_are_told_to_go_elsewhere() {
    let (probe, step) = (Probe::new(), Probe::new());
    let service = service(&probe, &step, LONG, LONG).await;
    let relay = Relay::to(service.addr).await;
    let caller = Caller::h2(relay.addr).connect().await.unwrap();
    let live = caller.get("/slow").send().await.unwrap();
    probe.started(1).await.unwrap();

    relay.hold.send_replace(true);
    service.shutdown.signal();
    let with_time = caller.get("/slow").send().await.unwrap();
    let without = caller.get("/slow").header("x-remaining-ms", "900").send().await.unwrap();
    let refused = |said: &Said| matches!(said, Said::Refused { reason: oneclock_core::Reason::Shutdown, .. });
    service.told.await_count(2, refused).await;
    relay.hold.send_replace(false);

    let shutdown = Some("shutdown".to_owned());
    assert_eq!(h2_refusal(with_time.answer().await), (503, shutdown.clone(), Some("1".to_owned())));
    assert_eq!(h2_refusal(without.answer().await), (503, shutdown, None), "a second does not fit into 900 ms");
    match live.answer().await {
        H2Outcome::Complete { body, .. } => assert_eq!(&body[..], b"slow"),
        other => panic!("{other:?}"),
    }
    drop((caller, relay));
    let told = service.stopped().await;
    assert_eq!(told.count(refused), 2);
    assert_eq!(probe.started_count(), 1, "nothing new began");
}

/// On HTTP/1.1 there is no room for a new request: the answer under way says that it is the last, an idle connection is
/// closed in order.
#[tokio::test]
async fn x10_http1_connections_close_after_the_answer_under_way() {
    let (probe, step) = (Probe::new(), Probe::new());
    let service = service(&probe, &step, LONG, LONG).await;
    let mut idle = TcpStream::connect(service.addr).await.unwrap();
    idle.write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        assert!(idle.read_buf(&mut answer).await.unwrap() > 0);
    }
    // The second request waits behind the first.
    let mut busy = TcpStream::connect(service.addr).await.unwrap();
    let twice = b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\nGET /slow HTTP/1.1\r\nhost: a\r\n\r\n";
    busy.write_all(twice).await.unwrap();
    probe.started(1).await.unwrap();

    service.shutdown.signal();
    let closed = timeout(PATIENCE, idle.read(&mut [0; 16])).await.expect("closed at once").unwrap();
    assert_eq!(closed, 0, "in order");
    let mut answer = Vec::new();
    timeout(PATIENCE, busy.read_to_end(&mut answer)).await.expect("closed after its answer").unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("slow"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    service.stopped().await;
    assert_eq!(probe.started_count(), 1, "the second never began");
}

#[tokio::test]
async fn x10_what_must_finish_is_waited_for() {
    let (probe, step) = (Probe::new(), Probe::new());
    let service = service(&probe, &step, LONG, ms(100)).await;
    let h1 = Caller::h1(service.addr).get("/charge").send(How::Close).await.unwrap();
    step.started(1).await.unwrap();
    service.shutdown.signal();
    assert_eq!(h1_refusal(h1.answer().await), (503, Some("shutdown_midway".to_owned()), None));
    assert_eq!(step.running(), 1, "the caller has its answer, the step goes on");
    let told = service.stopped().await;
    assert_eq!(step.ended(1).await.unwrap().how, Ended::Finished);
    assert_eq!(told.endings(), [("charge".to_owned(), None), ("order".to_owned(), Some(Cause::Shutdown))]);
    let finished = |said: &Said| matches!(said, Said::Ended { kind: Kind::MustFinish, cause: None, .. });
    assert_eq!(told.count(finished), 1);
}

/// The naive way: `axum::serve` shuts down gracefully, that is, when its slowest caller likes.
#[tokio::test]
async fn naive_graceful_shutdown_waits_without_end() {
    let (probe, step) = (Probe::new(), Probe::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = axum::serve(listener, routes(&probe, &step)).with_graceful_shutdown(async move {
        let _ = stopped.await;
    });
    let mut server = tokio::spawn(async move { server.await });
    let h1 = Caller::h1(addr).get("/hang").send(How::Close).await.unwrap();
    probe.started(1).await.unwrap();
    drop(stop);
    assert!(timeout(ms(1_000), &mut server).await.is_err(), "it still waits");
    assert_eq!(probe.running(), 1);
    drop(h1);
    server.abort();
}

/// Two servers share no shutdown unless they are told to.
#[tokio::test]
async fn x10_a_shutdown_ends_its_own_server_only() {
    let (probe, step) = (Probe::new(), Probe::new());
    let first = service(&probe, &step, LONG, ms(0)).await;
    let second = service(&probe, &step, LONG, ms(0)).await;
    second.stop().await;
    first.lives().await;
    first.stop().await;
}
