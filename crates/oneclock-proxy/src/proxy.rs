//! The running proxy: its listeners, its table of routes, its end.
//!
//! Decides the order of a start (everything is made and bound before anything is served, so that a configuration which cannot
//! run answers nobody), and how long a drain takes: as long as the longest deadline of what is under way, at most the grace
//! (contract X10). What a reload changes is `reload`'s decision.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oneclock::{Shutdown, clock};
use oneclock_core::{Deadline, Name};
use tokio::task::JoinSet;

use crate::StartFailed;
use crate::admin::{Admin, Probe, Probes};
use crate::config::{Config, Listener};
use crate::control::Control;
use crate::keyed;
use crate::leaving::Leaving;
use crate::listeners::Listeners;
use crate::observe::Telemetry;
use crate::route::{Dispatch, Door};
use crate::table::Table;
use crate::tls::Secured;
use crate::watch::blocking;

/// Starts proxies.
#[derive(Clone, Copy, Debug)]
pub struct Proxy;

/// A proxy that runs. Dropped, it ends at once, without a grace: use [`shutdown`](Self::shutdown).
#[must_use = "dropping it ends the proxy"]
#[derive(Debug)]
pub struct Running {
    pub(crate) control: Control,
    pub(crate) listeners: Listeners,
    pub(crate) addresses: Vec<(Name, SocketAddr)>,
    pub(crate) probes: Probes,
    pub(crate) admin: Option<Admin>,
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
    /// let mut config = Config::simple("127.0.0.1:0".parse()?, "http://127.0.0.1:3000")?;
    /// config.admin = Some("127.0.0.1:0".parse()?);
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
        let telemetry = config.admin.map(|_| Telemetry::of(&config)); // else nobody could read it
        let observer = telemetry.as_ref().map(Telemetry::observer);
        // Files are read, and a store may be opened.
        let made = blocking(move || {
            let table = Table::of(config, observer)?;
            let wanted = wanted(&table.config)?;
            Ok::<_, StartFailed>((table, wanted))
        });
        let (table, wanted) = made.await?;
        for store in table.stores() {
            store.prepare().await?;
        }
        let listeners = Listeners::default();
        let plan = listeners.plan(wanted).await?;
        let admin = Admin::bind(table.config.admin, table.config.probes).await?;
        let control = Control::new(table, telemetry);
        // From here on dropped as a whole: whatever runs already ends if something cannot.
        let mut running = Running { control, listeners, addresses: Vec::new(), probes: Probes::default(), admin: None };
        let Running { control, listeners, probes, .. } = &mut running;
        listeners.carry_out(plan, doors(control, probes), control.shutdown(), Duration::ZERO);
        let looks = looks(listeners, control, probes);
        let admin = admin.map(|bound| bound.serve(control, looks)).transpose()?;
        control.shutdown().spawn(keyed::tend(Arc::clone(control.table()), control.shutdown().clone()));
        running.addresses = running.listeners.addresses();
        running.admin = admin;
        Ok(running)
    }

    /// Whether `config` could be run, without listening anywhere and without asking any upstream. The files of TLS are read;
    /// stores of idempotency keys are not opened.
    ///
    /// # Errors
    /// [`StartFailed`]: what cannot be run.
    pub fn check(config: &Config) -> Result<(), StartFailed> {
        Table::check(config.clone())?;
        wanted(config).map(drop)
    }
}

/// The listeners of `config`, with what their files say.
pub(crate) fn wanted(config: &Config) -> Result<Vec<(Listener, Option<Secured>)>, StartFailed> {
    let wanted = config.listeners.iter().map(|listener| {
        let tls = listener.tls.as_ref().map(|tls| Secured::of(&listener.name, tls)).transpose()?;
        Ok((listener.clone(), tls))
    });
    wanted.collect()
}

/// What makes the entrance to a server of `control`'s proxy.
pub(crate) fn doors(control: &Control, probes: &Probes) -> impl Fn(&Name, &Shutdown, &Leaving) -> Dispatch {
    move |listener, work, leaving| {
        Dispatch::through(Door {
            table: Arc::clone(control.table()),
            listener: listener.clone(),
            live: control.live().clone(),
            probes: probes.clone(),
            process: control.shutdown().clone(),
            work: work.clone(),
            leaving: leaving.clone(),
        })
    }
}

/// What asks each listener whether it refuses.
pub(crate) fn looks(listeners: &Listeners, control: &Control, probes: &Probes) -> Vec<Probe> {
    let looks = listeners.serving().iter().map(|serving| {
        let own_peer = serving.tls.as_ref().map(Secured::own_peer);
        Probe::new(&serving.listener, serving.address, own_peer, control.table(), probes)
    });
    looks.collect()
}

// === Running ===

impl Running {
    /// Where it listens, by listener, in the order of the configuration: with the port that was found where 0 was asked for.
    pub fn addresses(&self) -> &[(Name, SocketAddr)] {
        &self.addresses
    }

    /// Where its admin pages are, with the port that was found where 0 was asked for; `None` if there are none.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(Admin::pages)
    }

    /// Where `/live` and `/ready` are served beside its admin pages; `None` if that is nowhere.
    pub fn probes_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(Admin::probes)
    }

    /// What it runs with, as it was given: what an operator changed for now does not count.
    pub fn config(&self) -> Config {
        self.control.table().load().config.clone()
    }

    /// Returns once an operator has asked it to stop, with `POST /drain` of its admin pages: nothing is accepted any more, and
    /// whoever owns it calls [`shutdown`](Self::shutdown). It does not borrow the proxy.
    ///
    /// # Cancel safety
    /// Waits only.
    pub fn asked_to_stop(&self) -> impl Future<Output = ()> + Send + use<> + 'static {
        self.control.asked_to_stop()
    }

    /// Returns once a listener is broken for good, and why; never while all of them work.
    ///
    /// # Cancel safety
    /// Waits only.
    pub async fn broken(&mut self) -> io::Error {
        let Self { listeners, admin, .. } = self;
        let admin = async {
            match admin {
                Some(admin) => admin.broken().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            broken = listeners.broken() => broken,
            broken = admin => broken,
        }
    }

    /// Accepts nothing more, lets what is under way live until its own deadline, at most for the configured grace, and closes
    /// everything (contract X10). Upgraded connections count with what is left of their total limit. The admin pages are there
    /// until that is over.
    ///
    /// # Cancel safety
    /// Dropped, it ends at once.
    pub async fn shutdown(mut self) -> Drained {
        let began = clock::now();
        let grace = self.control.begin_drain();
        self.listeners.close();
        let end = Deadline::after(began, grace);
        if tokio::time::timeout_at(clock::instant(end), self.listeners.ended()).await.is_err() {
            self.control.shutdown().end_grace();
            self.listeners.ended().await;
        }
        self.control.shutdown().drain(end.remaining(clock::now())).await; // what belongs to no listener
        let took = clock::now().since(began);
        self.control.flush_log().await;
        if let Some(admin) = self.admin.take() {
            admin.end().await;
        }
        Drained { grace, took }
    }
}

/// Returns once one of them is broken for good; never while all of them work, or were shut down.
pub(crate) async fn broken(servers: &mut JoinSet<io::Result<()>>) -> io::Error {
    loop {
        match servers.join_next().await {
            Some(Ok(Err(broken))) => return broken,
            Some(Err(panicked)) => return io::Error::other(panicked),
            Some(Ok(Ok(()))) => {} // it was shut down, and others may still break
            None => return std::future::pending().await,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.shutdown().end_grace(); // what its shutdown spawned ends, too
    }
}
