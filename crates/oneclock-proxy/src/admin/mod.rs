//! The admin pages: what operators, their probes and their scrapers ask of a proxy, and the two things that they may change.
//!
//! Decides that they have a listener of their own, with few connections and small heads, which is there until the last request
//! of the others is over; and whether the proxy is ready: while every listener refuses a request with a spent budget.
//!
//! | file | decides |
//! |---|---|
//! | `pages` | which page, which method, the form of an answer |
//! | `health` | the two that probes are answered with elsewhere, and nothing else |
//! | `guard` | who is turned away: names of others, pages of others |
//! | `probe`, `looks` | the request that a proxy sends to itself, how it is told from others; every listener there is |
//! | `policy` | what may be changed about a route |
//! | `show` | what is under way and what holds, as JSON |

mod guard;
mod health;
mod looks;
mod pages;
mod policy;
mod probe;
mod show;

use std::convert::Infallible;
use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use oneclock::Shutdown;
use oneclock::events::Event;
use oneclock_core::{Policy, Trust};
use oneclock_http::{Ingress, IngressLayer, Upload, serve};
use oneclock_telemetry::Readiness;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower_layer::Layer;
use tower_service::Service;

use crate::StartFailed;
use crate::control::Control;
use crate::proxy;

pub(crate) use probe::{Probe, Probes};

use health::Health;
use looks::Looks;
use pages::Pages;

/// How many connections are open at once: probes, scrapers, a few people.
const CONNECTIONS: usize = 64;

/// How large a head may be, in bytes.
const HEAD: u32 = 16 * 1024;

/// What one request may take, the reading of its body included.
const BUDGET: Duration = Duration::from_secs(5);

/// How long an answer that is on its way at the end may still take.
const GOODBYE: Duration = Duration::from_secs(1);

/// How much lies between two looks at the listeners, how long one may take, and how soon one that proved nothing yet is repeated.
const EVERY: Duration = Duration::from_secs(5);
const BOUND: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_secs(1);

/// The sockets of the admin pages and of the probes, before anything is served.
#[derive(Debug)]
pub(crate) struct Bound {
    pages: Option<Socket>,
    probes: Option<Socket>,
}

/// What one of them does until it is told to end.
type Serving = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

#[derive(Debug)]
struct Socket {
    listener: TcpListener,
    address: SocketAddr,
}

/// The admin pages, and what answers probes beside them. Dropped, they end at once.
#[derive(Debug)]
pub(crate) struct Admin {
    pages: Option<SocketAddr>,
    probes: Option<SocketAddr>,
    shutdown: Shutdown,
    looks: Looks,
    server: JoinSet<io::Result<()>>,
}

impl Admin {
    /// Listens where that is wanted, and serves nothing yet; `None` where it is wanted nowhere.
    pub(crate) async fn bind(
        pages: Option<SocketAddr>,
        probes: Option<SocketAddr>,
    ) -> Result<Option<Bound>, StartFailed> {
        let pages = match pages {
            Some(address) => {
                Some(Socket::bind(address).await.map_err(|source| StartFailed::Admin { address, source })?)
            }
            None => None,
        };
        let probes = match probes {
            Some(address) => {
                Some(Socket::bind(address).await.map_err(|source| StartFailed::Probes { address, source })?)
            }
            None => None,
        };
        Ok((pages.is_some() || probes.is_some()).then_some(Bound { pages, probes }))
    }

    /// Where the pages are.
    pub(crate) const fn pages(&self) -> Option<SocketAddr> {
        self.pages
    }

    /// Where probes are answered, and nothing else is.
    pub(crate) const fn probes(&self) -> Option<SocketAddr> {
        self.probes
    }

    /// Looks at these listeners from now on.
    pub(crate) fn look_at(&self, probes: Vec<Probe>) {
        self.looks.at_others(probes);
    }

    /// Returns once their listener is broken for good, and why.
    pub(crate) async fn broken(&mut self) -> io::Error {
        proxy::broken(&mut self.server).await
    }

    /// Ends them, in order.
    pub(crate) async fn end(mut self) {
        self.shutdown.drain(GOODBYE).await;
        while self.server.join_next().await.is_some() {}
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.shutdown.end_grace(); // what its server spawned ends, too
    }
}

impl Socket {
    async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }
}

impl Bound {
    /// Serves the pages of the proxy that `control` is of, whose listeners are looked at by `probes`.
    pub(crate) fn serve(self, control: &Control, probes: Vec<Probe>) -> Result<Admin, StartFailed> {
        let looks = Looks::at(probes);
        let readiness = readiness(&looks, control.shutdown())?;
        if let Some(telemetry) = control.telemetry() {
            telemetry.tell_readiness(&readiness);
        }
        let policy = Policy::named("admin").when_absent(BUDGET).ceiling(BUDGET).build();
        let policy = policy.map_err(|source| StartFailed::Limits { route: "admin".into(), source })?;
        // Nothing of it is counted among the requests of the proxy, or told to the observer of the process.
        let layer = IngressLayer::new(policy).observed_by(Arc::new(|_: &Event<'_>| {}));
        let shutdown = Shutdown::new();
        let mut server = JoinSet::new();
        let Self { pages, probes } = self;
        let addresses = (pages.as_ref().map(|socket| socket.address), probes.as_ref().map(|socket| socket.address));
        if let Some(Socket { listener, address }) = pages {
            let pages = Pages::new(control.clone(), readiness.clone(), looks.clone(), address);
            server.spawn(served(listener, layer.layer(pages), &shutdown));
        }
        if let Some(Socket { listener, .. }) = probes {
            server.spawn(served(listener, layer.layer(Health::of(readiness)), &shutdown));
        }
        Ok(Admin { pages: addresses.0, probes: addresses.1, shutdown, looks, server })
    }
}

/// Few connections, small heads, and nobody who stays for nothing.
fn served<S>(listener: TcpListener, service: Ingress<S>, shutdown: &Shutdown) -> Serving
where
    S: Service<Request<Upload<Incoming>>, Response = Response<Full<Bytes>>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    serve(listener, service)
        .trust(Trust::Inside)
        .max_connections(CONNECTIONS)
        .max_header_list(HEAD)
        .max_concurrent_streams(16)
        .header_read_timeout(BUDGET)
        .write_progress(BUDGET)
        .idle(Duration::from_secs(30))
        .linger(Duration::from_secs(1), 64 * 1024)
        .with_shutdown(shutdown)
        .into_future()
}

/// What is known of the proxy's readiness: that its listeners refuse, and nothing else. An upstream that is away, or a breaker
/// that is open, is no reason to send the requests elsewhere: the others have the same one.
fn readiness(looks: &Looks, shutdown: &Shutdown) -> Result<Readiness, StartFailed> {
    let looks = looks.clone();
    let builder = Readiness::builder().interval(EVERY).retry(AGAIN).bound(BOUND).without_stack();
    let builder = builder.proof("listeners", move || {
        let looks = looks.clone();
        async move { looks.look().await }
    });
    Ok(builder.start(shutdown)?)
}

#[cfg(test)]
mod tests;
