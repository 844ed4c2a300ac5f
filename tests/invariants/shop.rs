//! A small shop of real services: axum routers or tonic's services, under our layer and our accept loop, on loopback
//! sockets.
//!
//! When a test is over its shop is closed, and everything has to be gone again: tasks, sockets, operations.

use std::future::{Future, IntoFuture};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use http::Method;
use oneclock::operation::Kind;
use oneclock_axum::PolicyExt as _;
use oneclock_core::ingress::PolicyBuilder;
use oneclock_core::{Policy, Trust};
use oneclock_http::{Serve, serve};
use oneclock_test::Baseline;
use oneclock_tonic::PolicyExt as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cover::Cover;
use crate::grpc;
use crate::ways::{Ask, Way};
use crate::witness::{Seen, Witness};

/// No test takes as long, unless it hangs.
const TOO_LONG: Duration = Duration::from_secs(60);

/// When a caller's leaving is noticed, at the latest: ten times the 50 ms of the promise.
pub(crate) const NOTICED: Duration = Duration::from_millis(500);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The services of one test, what they send events to, and the way in.
#[derive(Clone)]
pub(crate) struct Shop {
    way: Way,
    behind_a_sidecar: bool,
    all: Arc<Inner>,
}

struct Inner {
    witness: Arc<Witness>,
    services: Mutex<Vec<Running>>,
    leaves_work_behind: AtomicBool,
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

/// Runs `test` in a shop of its own, closes that, and wants everything back where it was.
///
/// One blocking thread is enough, and makes waiting for it easy to have.
pub(crate) fn run<F: Future<Output = ()>>(way: Way, test: impl FnOnce(Shop) -> F) {
    run_in(|| Shop::new(way), test);
}

/// The same with a sidecar before each service that the shop opens.
pub(crate) fn run_behind_a_sidecar<F: Future<Output = ()>>(way: Way, test: impl FnOnce(Shop) -> F) {
    run_in(|| Shop { behind_a_sidecar: true, ..Shop::new(way) }, test);
}

fn run_in<F: Future<Output = ()>>(shop: impl FnOnce() -> Shop, test: impl FnOnce(Shop) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        // Descriptors belong to the process: they can be compared only where that runs one test.
        let alone = std::env::var_os("NEXTEST").is_some();
        let before = if alone { Baseline::take() } else { Baseline::tasks_only() };
        let shop = shop();
        tokio::time::timeout(TOO_LONG, test(shop.clone())).await.expect("the test comes to its end");
        shop.close(&before).await;
    });
    runtime.shutdown_timeout(Duration::from_secs(1)); // of naive ways only something may be left
}

impl Shop {
    fn new(way: Way) -> Self {
        let all =
            Inner { witness: Arc::default(), services: Mutex::default(), leaves_work_behind: AtomicBool::new(false) };
        Self { way, behind_a_sidecar: false, all: Arc::new(all) }
    }

    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Whether a sidecar stands before each service. What a service is told is then what is left there, rounded down.
    pub(crate) fn is_behind_a_sidecar(&self) -> bool {
        self.behind_a_sidecar
    }

    /// The same shop, for those of its services that speak something else.
    pub(crate) fn speaking(&self, way: Way) -> Self {
        Self { way, ..self.clone() }
    }

    pub(crate) fn witness(&self) -> &Witness {
        &self.all.witness
    }

    /// Where the events of this shop go.
    pub(crate) fn observer(&self) -> Arc<Witness> {
        self.all.witness.clone()
    }

    /// Our layer, with its events sent to this shop's witness.
    pub(crate) fn layer(&self, clock: PolicyBuilder) -> Cover {
        let (clock, witness) = (clock.build().unwrap(), self.observer());
        match self.way {
            Way::Http1 | Way::Http2 => Cover::Http(clock.layer().observed_by(witness)),
            Way::Grpc => Cover::Grpc(clock.grpc_layer().observed_by(witness)),
        }
    }

    /// What stands below our layer: the router itself, or the services of tonic's that it is the handlers of.
    pub(crate) fn routes(&self, app: Router) -> Router {
        match self.way {
            Way::Http1 | Way::Http2 => app,
            Way::Grpc => grpc::bridge::routes(app).into_axum_router(),
        }
    }

    /// Opens a service for callers inside the trust boundary.
    pub(crate) async fn open(&self, clock: PolicyBuilder, app: Router) -> SocketAddr {
        self.open_to(Trust::Inside, clock, app).await
    }

    pub(crate) async fn open_to(&self, trust: Trust, clock: PolicyBuilder, app: Router) -> SocketAddr {
        let limits = clock.clone().build().unwrap();
        let app = self.routes(app).layer(self.layer(clock));
        let addr = self.serve_layered(app, |serve| serve.trust(trust)).await;
        if self.behind_a_sidecar { self.sidecar(addr, trust, Some(&limits), |_| {}).await } else { addr }
    }

    /// Opens a service whose layers are its own affair, over its [`routes`](Self::routes). A sidecar before it gives everybody a
    /// lot of time.
    pub(crate) async fn open_layered(
        &self,
        app: Router,
        change: impl FnOnce(Serve<TcpListener, Router>) -> Serve<TcpListener, Router>,
    ) -> SocketAddr {
        let addr = self.serve_layered(app, change).await;
        if self.behind_a_sidecar { self.sidecar(addr, Trust::Inside, None, |_| {}).await } else { addr }
    }

    async fn serve_layered(
        &self,
        app: Router,
        change: impl FnOnce(Serve<TcpListener, Router>) -> Serve<TcpListener, Router>,
    ) -> SocketAddr {
        let (listener, addr) = listen().await;
        let (stop, stopped) = oneshot::channel();
        let serve = change(serve(listener, app)).shutdown(stopped, Duration::ZERO);
        self.keep(stop, tokio::spawn(serve.into_future()));
        addr
    }

    /// Opens a service the naive way: `axum::serve`, and nothing of ours.
    pub(crate) async fn open_naively(&self, app: Router) -> SocketAddr {
        let (listener, addr) = listen().await;
        let (stop, stopped) = oneshot::channel();
        let app = self.routes(app);
        let task = tokio::spawn(async move {
            tokio::select! {
                served = axum::serve(listener, app).into_future() => served,
                _ = stopped => Ok(()),
            }
        });
        self.keep_naive(stop, task);
        addr
    }

    pub(crate) fn get(&self, addr: SocketAddr, target: &str) -> Ask {
        Ask::new(self.way, addr, Method::GET, target)
    }

    pub(crate) fn post(&self, addr: SocketAddr, target: &str) -> Ask {
        Ask::new(self.way, addr, Method::POST, target)
    }

    /// Of what is served naively something may be left when it is stopped.
    pub(crate) fn keep_naive(&self, stop: oneshot::Sender<()>, task: JoinHandle<io::Result<()>>) {
        self.keep(stop, task);
        self.all.leaves_work_behind.store(true, Ordering::Relaxed);
    }

    pub(crate) fn keep(&self, stop: oneshot::Sender<()>, task: JoinHandle<io::Result<()>>) {
        self.all.services.lock().unwrap().push(Running { stop, task });
    }

    /// Stops every service; then nothing may be left, and everything that arrived has ended.
    async fn close(self, before: &Baseline) {
        let services = std::mem::take(&mut *self.all.services.lock().unwrap());
        for Running { stop, task } in services {
            drop(stop);
            tokio::time::timeout(TOO_LONG, task).await.expect("it stops").unwrap().unwrap();
        }
        let count = |wanted: fn(&Seen) -> bool| self.witness().all(|seen| wanted(seen).then_some(())).len();
        let arrived = count(|seen| matches!(seen, Seen::Arrived));
        let ended = count(|seen| matches!(seen, Seen::Ended(over) if over.kind == Kind::Request));
        assert_eq!(ended, arrived, "every request that arrived has one end");
        let panicked = |seen: &Seen| match seen {
            Seen::Panicked(work) => Some(work.to_string()),
            _ => None,
        };
        assert_eq!(self.witness().all(panicked), Vec::<String>::new());
        if !self.all.leaves_work_behind.load(Ordering::Relaxed) {
            before.assert_back().await;
        }
    }
}

pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// A policy that gives everybody a lot of time: what a test is about comes from elsewhere.
pub(crate) fn ample(name: &'static str) -> PolicyBuilder {
    Policy::named(name).when_absent(ms(20_000)).ceiling(ms(30_000))
}
