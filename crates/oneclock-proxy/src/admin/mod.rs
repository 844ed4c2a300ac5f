//! The admin pages: what operators, their probes and their scrapers ask of a proxy, and the two things that they may change.
//!
//! Decides that they have a listener of their own, with few connections and small heads, which is there until the last request
//! of the others is over; and whether the proxy is ready: while every listener refuses a request with a spent budget.
//!
//! | file | decides |
//! |---|---|
//! | `pages` | which page, which method, the form of an answer |
//! | `guard` | who is turned away: names of others, pages of others |
//! | `probe`, `looks` | the request that a proxy sends to itself, how it is told from others; every listener there is |
//! | `policy` | what may be changed about a route |
//! | `show` | what is under way and what holds, as JSON |

mod guard;
mod looks;
mod pages;
mod policy;
mod probe;
mod show;

use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oneclock::Shutdown;
use oneclock::events::Event;
use oneclock_core::{Policy, Trust};
use oneclock_http::{IngressLayer, serve};
use oneclock_telemetry::Readiness;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower_layer::Layer;

use crate::StartFailed;
use crate::control::Control;
use crate::proxy;

pub(crate) use probe::{Probe, Probes};

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

/// The socket of the admin pages, before anything is served.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: TcpListener,
    address: SocketAddr,
}

/// The admin pages. Dropped, they end at once.
#[derive(Debug)]
pub(crate) struct Admin {
    address: SocketAddr,
    shutdown: Shutdown,
    looks: Looks,
    server: JoinSet<io::Result<()>>,
}

impl Admin {
    /// Listens, and serves nothing yet.
    pub(crate) async fn bind(address: SocketAddr) -> Result<Bound, StartFailed> {
        let failed = |source| StartFailed::Admin { address, source };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Bound { socket, address })
    }

    /// Where they are.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
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

impl Bound {
    /// Serves the pages of the proxy that `control` is of, whose listeners are looked at by `probes`.
    pub(crate) fn serve(self, control: &Control, probes: Vec<Probe>) -> Result<Admin, StartFailed> {
        let looks = Looks::at(probes);
        let readiness = readiness(&looks, control.shutdown())?;
        if let Some(telemetry) = control.telemetry() {
            telemetry.tell_readiness(&readiness);
        }
        let pages = Pages::new(control.clone(), readiness, looks.clone(), self.address);
        let policy = Policy::named("admin").when_absent(BUDGET).ceiling(BUDGET).build();
        let policy = policy.map_err(|source| StartFailed::Limits { route: "admin".into(), source })?;
        // Nothing of it is counted among the requests of the proxy, or told to the observer of the process.
        let layer = IngressLayer::new(policy).observed_by(Arc::new(|_: &Event<'_>| {}));
        let shutdown = Shutdown::new();
        let server = serve(self.socket, layer.layer(pages))
            .trust(Trust::Inside)
            .max_connections(CONNECTIONS)
            .max_header_list(HEAD)
            .max_concurrent_streams(16)
            .header_read_timeout(BUDGET)
            .write_progress(BUDGET)
            .idle(Duration::from_secs(30))
            .linger(Duration::from_secs(1), 64 * 1024)
            .with_shutdown(&shutdown);
        let mut serving = JoinSet::new();
        serving.spawn(server.into_future());
        Ok(Admin { address: self.address, shutdown, looks, server: serving })
    }
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
