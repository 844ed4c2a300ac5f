//! The service that the outside meets: an axum router under one policy, served by `oneclock_http::serve`, with work of
//! every kind below its handlers, and a peer that it calls.

use std::convert::Infallible;
use std::future::{Future, IntoFuture, pending};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::{Request, State};
use axum::routing::any;
use bytes::Bytes;
use http_body::{Body, Frame};
use oneclock::{Operation, Shutdown};
use oneclock_axum::{ClockLayer, Op, PolicyExt as _};
use oneclock_core::{Cause, Outcome, Policy, Trust};
use oneclock_http::{Client, Serve, serve};
use oneclock_test::caller::{Caller, H1Outcome, H2Outcome};
use oneclock_test::peer::{self, Leaving, Peer};
use oneclock_test::{Baseline, End, Ended, PATIENCE, Probe, Protocol};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::ms;
use crate::told::{Said, Told};

/// A running service. Stop it, so that what it leaves behind is seen.
pub(crate) struct Service {
    pub(crate) addr: SocketAddr,
    pub(crate) told: Told,
    pub(crate) shutdown: Shutdown,
    task: JoinHandle<io::Result<()>>,
    before: Baseline,
}

/// Work of every kind, and who saw it. Shared by the handlers below.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) handler: Probe,
    pub(crate) child: Probe,
    pub(crate) grandchild: Probe,
    pub(crate) closure: Probe,
    client: Client,
}

/// [`Work`] behind a service, and the peer that it calls, which never answers.
pub(crate) struct Working {
    pub(crate) service: Service,
    pub(crate) work: Work,
    pub(crate) peer: Peer,
    protocol: Protocol,
}

/// A body that is always ready, without end.
pub(crate) struct Flood {
    frame: Bytes,
    _guard: oneclock_test::ProbeGuard,
}

// === Service ===

impl Service {
    /// Serves `app` with requests of at most `budget`, for callers of ours.
    pub(crate) async fn of(app: Router, budget: Duration) -> Self {
        Self::with(app, policy(budget), Duration::ZERO, |layer| layer, |serve| serve).await
    }

    pub(crate) async fn with(
        app: Router,
        policy: Policy,
        grace: Duration,
        layer: impl FnOnce(ClockLayer) -> ClockLayer,
        change: impl FnOnce(Serve<TcpListener, Router>) -> Serve<TcpListener, Router>,
    ) -> Self {
        let before = Baseline::tasks_only();
        let told = Told::new();
        let layer = layer(policy.layer().observed_by(std::sync::Arc::new(told.clone())));
        let app = app.route("/hello", any(|| async { "hello" })).layer(layer);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let signal = shutdown.clone();
        let server = serve(listener, app).trust(Trust::Inside).with_shutdown(&shutdown);
        let server = change(server.shutdown(async move { signal.signalled().await }, grace));
        Self { addr, told, shutdown, task: tokio::spawn(server.into_future()), before }
    }

    /// It still answers, over both protocols.
    pub(crate) async fn lives(&self) {
        let answer = Caller::h1(self.addr).get("/hello").answer().await.unwrap();
        assert!(matches!(&answer, H1Outcome::Complete { body, .. } if &body[..] == b"hello"), "{answer:?}");
        let caller = Caller::h2(self.addr).connect().await.unwrap();
        let answer = caller.get("/hello").send().await.unwrap().answer().await;
        assert!(matches!(&answer, H2Outcome::Complete { body, .. } if &body[..] == b"hello"), "{answer:?}");
    }

    /// Stops it. Afterwards every request has ended exactly once, and nothing of it is alive.
    pub(crate) async fn stop(self) -> Told {
        self.shutdown.signal();
        self.stopped().await
    }

    /// Waits until it has stopped by itself, having been told to. The same holds afterwards.
    pub(crate) async fn stopped(self) -> Told {
        timeout(PATIENCE, self.task).await.expect("it stops").unwrap().unwrap();
        self.before.assert_back().await;
        let arrived = self.told.count(Said::is_arrived);
        assert_eq!(self.told.count(Said::is_request_end), arrived, "one end each: {:#?}", self.told.all());
        self.told
    }
}

pub(crate) fn policy(budget: Duration) -> Policy {
    Policy::named("order").when_absent(budget).ceiling(budget).build().unwrap()
}

// === Work ===

impl Working {
    /// `/work` waits for its call and never looks at its request's body; `/produce/{bytes}` answers with frames of that
    /// size without end; `/stalls` answers with a head and a first piece; `/small` answers at once, whole.
    pub(crate) async fn of(protocol: Protocol, budget: Duration) -> Self {
        let peer = peer::stall(protocol).unwrap();
        let client = Client::builder("inventory", peer.url());
        let client = if protocol == Protocol::Http2 { client.http2_only() } else { client };
        let work = Work {
            handler: Probe::new(),
            child: Probe::new(),
            grandchild: Probe::new(),
            closure: Probe::new(),
            client: client.build().unwrap(),
        };
        let app = Router::new()
            .route("/work", any(waits))
            .route("/produce/{bytes}", any(produces))
            .route("/stalls", any(stalls))
            .route("/small", any(|| async { "small" }))
            .with_state(work.clone());
        Self { service: Service::of(app, budget).await, work, peer, protocol }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.service.addr
    }

    /// Waits until all of it runs.
    pub(crate) async fn begun(&self) -> Instant {
        let begun = self.work.handler.started(1).await.unwrap();
        for part in [&self.work.child, &self.work.grandchild, &self.work.closure] {
            part.started(1).await.unwrap();
        }
        self.peer.await_request().await.unwrap();
        begun
    }

    /// All of it stops within `limit` of `since`, for `cause`, and says so exactly once each.
    #[track_caller]
    pub(crate) fn stops(self, since: Instant, limit: Duration, cause: Cause) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            let Self { service, work, peer, protocol } = self;
            let parts = [
                ("handler", &work.handler),
                ("child", &work.child),
                ("grandchild", &work.grandchild),
                ("closure", &work.closure),
            ];
            for (name, part) in parts {
                let End { how, at: ended } = part.ended(1).await.unwrap();
                assert_eq!(how, Ended::Dropped, "{name}, {at}");
                let after = ended.saturating_duration_since(since);
                assert!(after <= limit, "the {name} ended {after:?} after, {at}");
            }
            let left = peer.caller_left().await.unwrap();
            let after = left.at.saturating_duration_since(since);
            assert!(after <= limit, "the call ended {after:?} after, {at}");
            match (protocol, left.how) {
                (Protocol::Http1, Leaving::Closed | Leaving::Reset) => {}
                (Protocol::Http2, Leaving::StreamReset(reason)) => assert_eq!(reason, oneclock_test::Reason::CANCEL),
                (_, other) => panic!("the peer saw {other:?}, {at}"),
            }
            service.told.await_count(1, Said::is_request_end).await;
            service.lives().await;
            drop(work);
            let told = service.stop().await;
            drop(peer);
            let endings: Vec<_> = told.endings().into_iter().filter(|(_, cause)| cause.is_some()).collect();
            let names: Vec<_> = endings.iter().map(|(name, _)| name.as_str()).collect();
            let with_asker = ["asker", "child", "closure", "grandchild", "order"];
            assert!(names == with_asker || names == with_asker[1..], "each once, {at}: {endings:?}");
            assert!(endings.iter().all(|(_, why)| *why == Some(cause)), "all for {cause}, {at}: {endings:?}");
            let calls: Vec<_> = told.all().into_iter().filter(Said::is_called).collect();
            match &calls[..] {
                [Said::Called { outcome: Outcome::Unknown { .. }, cause: why, .. }] => {
                    assert_eq!(*why, Some(cause), "{at}")
                }
                other => panic!("one call, {at}: {other:?}"),
            }
        }
    }
}

impl Work {
    fn parts(&self, op: &Operation) {
        let (child, grandchild, closure) = (self.child.clone(), self.grandchild.clone(), self.closure.clone());
        drop(op.spawn("child", async move {
            let below = Operation::current().expect("in its scope");
            drop(below.spawn("grandchild", async move { grandchild.never().await }));
            child.never().await;
        }));
        drop(op.spawn_blocking("closure", move |op| {
            let _guard = closure.enter();
            while op.checkpoint().is_ok() {
                std::thread::sleep(ms(2));
            }
        }));
    }

    async fn ask(&self) {
        if let Ok(answer) = self.client.get("/stock").await {
            let _ = oneclock_http::collect(answer.into_body(), 1024).await;
        }
    }
}

async fn waits(Op(op): Op, State(work): State<Work>, _unread: Request) {
    let _guard = work.handler.enter();
    work.parts(&op);
    work.ask().await;
    pending().await // it learns that its call ended, and goes on regardless
}

async fn produces(
    Op(op): Op,
    State(work): State<Work>,
    axum::extract::Path(bytes): axum::extract::Path<usize>,
) -> AxumBody {
    let guard = work.handler.enter();
    work.parts(&op);
    let asker = work.clone();
    drop(op.spawn("asker", async move { asker.ask().await }));
    AxumBody::new(Flood::new(bytes, guard))
}

async fn stalls(Op(op): Op, State(work): State<Work>) -> AxumBody {
    let guard = work.handler.enter();
    work.parts(&op);
    let first = Some((guard, work));
    let body = futures_util::stream::unfold((first, true), |(mut rest, first)| async move {
        if !first {
            let (_guard, work) = rest.take()?;
            work.ask().await;
            pending::<()>().await;
        }
        Some((Ok::<_, Infallible>(Bytes::from_static(b"a first piece")), (rest, false)))
    });
    AxumBody::from_stream(body)
}

// === Flood ===

impl Flood {
    pub(crate) fn new(bytes: usize, guard: oneclock_test::ProbeGuard) -> Self {
        Self { frame: Bytes::from(vec![b'x'; bytes]), _guard: guard }
    }
}

impl Body for Flood {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(self.frame.clone()))))
    }
}
