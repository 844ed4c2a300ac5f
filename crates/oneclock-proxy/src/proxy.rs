//! The running proxy: its listeners, its table of routes, its end.
//!
//! Decides the order of a start (everything is made and bound before anything is served, so that a configuration which cannot
//! run answers nobody), that a reload is whole or nothing, and how long a drain takes: as long as the longest deadline of what
//! is under way, at most the grace (contract X10).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use oneclock::{Shutdown, clock};
use oneclock_core::Name;
use oneclock_http::{Serve, serve};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::StartFailed;
use crate::config::{Config, Listener};
use crate::live::Live;
use crate::route::Dispatch;
use crate::table::{Shared, Table};
use crate::tls;

/// Starts proxies.
#[derive(Clone, Copy, Debug)]
pub struct Proxy;

/// A proxy that runs. Dropped, it ends at once, without a grace: use [`shutdown`](Self::shutdown).
#[must_use = "dropping it ends the proxy"]
#[derive(Debug)]
pub struct Running {
    table: Shared,
    live: Live,
    shutdown: Shutdown,
    servers: JoinSet<io::Result<()>>,
    addresses: Vec<(Name, SocketAddr)>,
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// How long live work was given: the longest deadline among it, at most the configured grace.
    pub grace: Duration,
    /// How long it took, until the last connection was closed.
    pub took: Duration,
}

// === Proxy ===

impl Proxy {
    /// Binds every listener of `config` and serves its routes.
    ///
    /// ```
    /// use oneclock_proxy::{Proxy, config::Config};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = Config::simple("127.0.0.1:0".parse()?, "http://127.0.0.1:3000")?;
    /// let proxy = Proxy::start(config).await?;
    /// for (listener, address) in proxy.addresses() {
    ///     println!("{listener} listens on {address}");
    /// }
    /// proxy.shutdown().await;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`StartFailed`]: what cannot be run. Nothing listens then.
    ///
    /// # Cancel safety
    /// Dropped, nothing listens.
    pub async fn start(config: Config) -> Result<Running, StartFailed> {
        let table = Table::of(config, None)?;
        let mut bound = Vec::new();
        for listener in &table.config.listeners {
            let failed =
                |source| StartFailed::Bind { listener: listener.name.clone(), address: listener.address, source };
            let tls = listener.tls.as_ref().map(|tls| tls::server(&listener.name, tls)).transpose()?;
            let socket = TcpListener::bind(listener.address).await.map_err(failed)?;
            let address = socket.local_addr().map_err(failed)?;
            bound.push((listener.clone(), socket, address, tls));
        }
        let table = Arc::new(ArcSwap::from_pointee(table));
        let (live, shutdown) = (Live::default(), Shutdown::new());
        let (mut servers, mut addresses) = (JoinSet::new(), Vec::new());
        for (listener, socket, address, tls) in bound {
            let dispatch = Dispatch { table: Arc::clone(&table), listener: listener.name.clone(), live: live.clone() };
            match tls {
                Some(tls) => servers
                    .spawn(under(serve(oneclock_http::tls(socket, tls), dispatch), &listener, &shutdown).into_future()),
                None => servers.spawn(under(serve(socket, dispatch), &listener, &shutdown).into_future()),
            };
            addresses.push((listener.name, address));
        }
        Ok(Running { table, live, shutdown, servers, addresses })
    }

    /// Whether `config` could be run, without listening anywhere and without asking any upstream. The files of TLS are read.
    ///
    /// # Errors
    /// [`StartFailed`]: what cannot be run.
    pub fn check(config: &Config) -> Result<(), StartFailed> {
        Table::of(config.clone(), None)?;
        for listener in &config.listeners {
            listener.tls.as_ref().map(|tls| tls::server(&listener.name, tls)).transpose()?;
        }
        Ok(())
    }
}

fn under<L, S>(server: Serve<L, S>, listener: &Listener, shutdown: &Shutdown) -> Serve<L, S> {
    server.trust(listener.trust).max_connections(listener.max_connections).with_shutdown(shutdown)
}

// === Running ===

impl Running {
    /// Where it listens, by listener, in the order of the configuration: with the port that was found where 0 was asked for.
    pub fn addresses(&self) -> &[(Name, SocketAddr)] {
        &self.addresses
    }

    /// What it runs with.
    pub fn config(&self) -> Config {
        self.table.load().config.clone()
    }

    /// Runs with `config` from the next request on. What is in flight keeps what it began with. Upstreams and routes of which
    /// the new configuration says the same keep their connections, retry tokens and estimates.
    ///
    /// # Errors
    /// [`StartFailed`], and everything goes on as before. A change of listeners is
    /// [`ListenersChanged`](StartFailed::ListenersChanged).
    pub fn reload(&self, config: Config) -> Result<(), StartFailed> {
        let before = self.table.load_full();
        same_listeners(&before.config.listeners, &config.listeners)?;
        let table = Table::of(config, Some(&before))?;
        self.table.store(Arc::new(table));
        Ok(())
    }

    /// Returns once a listener is broken for good, and why; never while all of them work.
    ///
    /// # Cancel safety
    /// Waits only.
    pub async fn broken(&mut self) -> io::Error {
        match self.servers.join_next().await {
            Some(Ok(Err(broken))) => broken,
            Some(Err(panicked)) => io::Error::other(panicked),
            Some(Ok(Ok(()))) | None => std::future::pending().await, // it was shut down
        }
    }

    /// Accepts nothing more, lets what is under way live until its own deadline, at most for the configured grace, and closes
    /// everything (contract X10). Upgraded connections count with what is left of their total limit.
    ///
    /// # Cancel safety
    /// Dropped, it ends at once.
    pub async fn shutdown(mut self) -> Drained {
        let began = clock::now();
        // First, so that nothing is admitted that the grace does not know of.
        self.shutdown.signal();
        let grace = self.live.longest(self.table.load().config.shutdown_grace, began);
        self.shutdown.drain(grace).await;
        while let Some(ended) = self.servers.join_next().await {
            if let Ok(Err(error)) = ended {
                tracing::warn!(%error, "a listener had broken");
            }
        }
        Drained { grace, took: clock::now().since(began) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.end_grace(); // what its shutdown spawned ends, too
    }
}

/// What is said in the same words is the same.
fn same_listeners(before: &[Listener], now: &[Listener]) -> Result<(), StartFailed> {
    let changed = |what| Err(StartFailed::ListenersChanged { what });
    for listener in now {
        match before.iter().find(|known| known.name == listener.name) {
            None => return changed(format!("listener {} is new", listener.name)),
            Some(known) if format!("{known:?}") != format!("{listener:?}") => {
                return changed(format!("listener {} is changed", listener.name));
            }
            Some(_) => {}
        }
    }
    match before.iter().find(|known| !now.iter().any(|listener| listener.name == known.name)) {
        Some(gone) => changed(format!("listener {} is gone", gone.name)),
        None => Ok(()),
    }
}
