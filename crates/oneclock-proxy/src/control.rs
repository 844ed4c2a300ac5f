//! What can be done to a proxy that runs, by its owner and by its admin pages: another configuration, a change of one route, a
//! stop.
//!
//! Decides that such changes come one after another and are whole or nothing, that a refused one is remembered, and how long a
//! drain may take: as long as the longest deadline of what is under way, at most the grace (contract X10).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use oneclock::{Shutdown, clock};
use oneclock_core::Name;
use tokio_util::sync::CancellationToken;

use crate::StartFailed;
use crate::config::Config;
use crate::live::Live;
use crate::observe::Telemetry;
use crate::overrides::Change;
use crate::table::{Shared, Table};

/// A proxy that runs, to be changed. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Control(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    table: Shared,
    live: Live,
    shutdown: Shutdown,
    telemetry: Option<Telemetry>,
    changing: Mutex<()>,
    latest: Mutex<Reload>,
    stop: CancellationToken,
}

/// How the latest reload went; the start counts as one.
#[derive(Clone, Debug)]
pub(crate) struct Reload {
    /// When, by the wall clock: nanoseconds since 1970.
    pub(crate) at: u64,
    /// When the latest was that was taken.
    pub(crate) taken_at: u64,
    /// Why it was refused, if it was.
    pub(crate) refused: Option<String>,
}

impl Control {
    pub(crate) fn new(table: Table, telemetry: Option<Telemetry>) -> Self {
        if let Some(telemetry) = &telemetry {
            telemetry.watch(&table);
        }
        let now = clock::wall().as_nanos();
        Self(Arc::new(Inner {
            table: Arc::new(ArcSwap::from_pointee(table)),
            live: Live::default(),
            shutdown: Shutdown::new(),
            telemetry,
            changing: Mutex::default(),
            latest: Mutex::new(Reload { at: now, taken_at: now, refused: None }),
            stop: CancellationToken::new(),
        }))
    }

    pub(crate) fn table(&self) -> &Shared {
        &self.0.table
    }

    pub(crate) fn live(&self) -> &Live {
        &self.0.live
    }

    pub(crate) fn shutdown(&self) -> &Shutdown {
        &self.0.shutdown
    }

    pub(crate) fn telemetry(&self) -> Option<&Telemetry> {
        self.0.telemetry.as_ref()
    }

    pub(crate) fn latest_reload(&self) -> Reload {
        self.latest().clone()
    }

    /// Puts `table` in the place of `before`, and does `also` in the same moment. `None`, and nothing was done, if something
    /// else was put there meanwhile.
    pub(crate) fn replace<T>(&self, before: &Arc<Table>, table: Table, also: impl FnOnce() -> T) -> Option<T> {
        let _one_at_a_time = self.one_at_a_time();
        if !Arc::ptr_eq(&self.0.table.load_full(), before) {
            return None;
        }
        self.put(table);
        Some(also())
    }

    /// Remembers that there was a reload, and that what it brought holds.
    pub(crate) fn reload_taken(&self) {
        let now = clock::wall().as_nanos();
        *self.latest() = Reload { at: now, taken_at: now, refused: None };
        self.reopen_log();
    }

    /// Has the file of the access log opened anew, if there is one.
    fn reopen_log(&self) {
        if let Some(log) = &self.0.table.load().log {
            log.reopen();
        }
    }

    /// Returns once all lines of the access log are written, or after a while in which they could not be.
    pub(crate) async fn flush_log(&self) {
        let log = self.0.table.load().log.clone();
        if let Some(log) = log {
            log.flush().await;
        }
    }

    /// Remembers that there was one, and why it changed nothing.
    pub(crate) fn reload_refused(&self, why: &str) {
        {
            let mut latest = self.latest();
            latest.at = clock::wall().as_nanos();
            latest.refused = Some(why.to_owned());
        }
        self.reopen_log(); // whatever is wrong with the configuration, the file may have been moved away
    }

    /// Changes what holds of a route, from the next request on: of which, and how, `read` says by the configuration.
    ///
    /// # Errors
    /// What it says, or [`StartFailed`], and everything goes on as before.
    pub(crate) fn change_route<E: From<StartFailed>>(
        &self,
        read: impl FnOnce(&Config) -> Result<(Name, Change), E>,
    ) -> Result<Name, E> {
        self.change(|before| {
            let (route, change) = read(&before.config)?;
            let table = before.overridden(before.overrides.with(&route, change))?;
            Ok((route, table))
        })
    }

    fn change<T, E>(&self, make: impl FnOnce(&Table) -> Result<(T, Table), E>) -> Result<T, E> {
        let _one_at_a_time = self.one_at_a_time();
        let (made, table) = make(&self.0.table.load_full())?;
        self.put(table);
        Ok(made)
    }

    fn one_at_a_time(&self) -> MutexGuard<'_, ()> {
        self.0.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, table: Table) {
        let table = Arc::new(table);
        self.0.table.store(Arc::clone(&table));
        table.enforce_modes();
        if let Some(telemetry) = &self.0.telemetry {
            telemetry.watch(&table);
        }
    }

    /// Admits nothing more. How long what is under way may still take.
    pub(crate) fn begin_drain(&self) -> Duration {
        // First, so that nothing is admitted that the grace does not know of.
        self.0.shutdown.signal();
        self.0.live.longest(self.0.table.load().config.shutdown_grace, clock::now())
    }

    /// The same, and tells the owner to end it.
    pub(crate) fn ask_to_stop(&self) -> Duration {
        let grace = self.begin_drain();
        self.0.stop.cancel();
        grace
    }

    /// Returns once that was asked.
    pub(crate) fn asked_to_stop(&self) -> impl Future<Output = ()> + Send + use<> + 'static {
        self.0.stop.clone().cancelled_owned()
    }

    fn latest(&self) -> MutexGuard<'_, Reload> {
        self.0.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error with its sources, in one line.
pub(crate) fn said(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}
