//! Another configuration for a proxy that runs.
//!
//! Decides that a reload is whole or nothing, the order of it (what can fail comes first: files are read, clients made, stores
//! asked, sockets bound), and that a request keeps what held when its head was read.

use std::time::{Duration, SystemTime};

use crate::StartFailed;
use crate::config::Config;
use crate::control::said;
use crate::leaving::closed;
use crate::proxy::{Running, doors, looks, wanted};
use crate::watch::{ConfigFile, NotRead, blocking};

/// How the latest reload went; the start counts as one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LastReload {
    /// When it was asked for.
    pub at: SystemTime,
    /// When the one was that holds.
    pub taken_at: SystemTime,
    /// Why it was refused, so that what held before goes on; `None` if it was taken.
    pub refused: Option<String>,
    /// The hash of the configuration that holds, as the admin pages show it.
    pub hash: String,
}

impl Running {
    /// Runs with `config` from the next request on; what is in flight keeps what it began with. Upstreams and routes of which
    /// the new configuration says the same keep their connections, retry tokens and estimates. The file of the access log is
    /// opened anew, also where the configuration is refused: whatever moved it away asks for that with a reload.
    ///
    /// Listeners may come, go and change. Whoever is connected to one that goes, or is served otherwise (another `trust`,
    /// `maxConnections`, TLS or not, other roots of its peers), is told to go: its requests in flight end with their own deadlines;
    /// where the listener is gone, at the end of the grace of a shutdown at the latest. A certificate that was renewed is shown
    /// from the next handshake on, and nobody is told anything. An address that is listened on already cannot be taken by a
    /// wider one (`127.0.0.1:80`, then `0.0.0.0:80`): that is refused.
    ///
    /// # Errors
    /// [`StartFailed`], and everything goes on as before.
    ///
    /// # Cancel safety
    /// Dropped before `config` is taken, everything goes on as before and no reload is remembered; a new file for the access log
    /// and new tables in a store may be there. Dropped later, it holds and is remembered as taken; only that the sockets of
    /// listeners which are gone are closed is not waited for any more.
    pub async fn reload(&mut self, config: Config) -> Result<(), StartFailed> {
        let changed = self.change(config).await;
        if let Err(why) = &changed {
            self.control.reload_refused(&said(why));
        }
        changed
    }

    async fn change(&mut self, config: Config) -> Result<(), StartFailed> {
        loop {
            let before = self.control.table().load_full();
            if (before.config.admin, before.config.probes) != (config.admin, config.probes) {
                return Err(StartFailed::AdminChanged);
            }
            let (config, known) = (config.clone(), before.clone());
            // Files are read, and a store may be opened.
            let made = blocking(move || {
                let table = known.reloaded(config)?;
                let wanted = wanted(&table.config)?;
                Ok::<_, StartFailed>((table, wanted))
            });
            let (table, wanted) = made.await?;
            for store in table.stores() {
                store.prepare().await?;
            }
            let plan = self.listeners.plan(wanted).await?;
            let Self { control, listeners, probes, .. } = self;
            let grace = before.config.shutdown_grace;
            let (doors, root) = (doors(control, probes), control.shutdown());
            listeners.keep_for_who_leaves(Some(&before));
            let carry_out = || listeners.carry_out(plan, doors, root, grace);
            let Some(gone) = control.replace(&before, table, carry_out) else {
                listeners.keep_for_who_leaves(None);
                continue; // an operator changed a route meanwhile, which is not to be lost
            };
            control.reload_taken(); // at once: what comes behind an await may never run
            self.addresses = self.listeners.addresses();
            if let Some(admin) = &self.admin {
                admin.look_at(looks(&self.listeners, &self.control, &self.probes));
            }
            closed(gone).await;
            return Ok(());
        }
    }

    /// Reads `file` again and runs with what it says: see [`reload`](Self::reload).
    ///
    /// ```
    /// # use oneclock_proxy::{ConfigFile, Proxy};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("proxy.yaml");
    /// # std::fs::write(&path, "listeners: [{ address: 127.0.0.1:0 }]\nadmin: none\nupstreams: { app: { url: http://127.0.0.1:3000 } }\nroutes: [{ upstream: app }]\n")?;
    /// let (mut file, config) = ConfigFile::open(path.clone()).await?;
    /// let mut proxy = Proxy::start(config).await?;
    /// # std::fs::write(&path, "routes: [{ upstream: ap }]\n")?;
    /// file.changed().await;
    /// if let Err(why) = proxy.reload_file(&mut file).await {
    ///     println!("what held before goes on: {why}");
    /// }
    /// # assert!(proxy.last_reload().refused.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`NotRead`], or the reason of [`reload`](Self::reload) in it, and everything goes on as before.
    ///
    /// # Cancel safety
    /// That of [`reload`](Self::reload).
    pub async fn reload_file(&mut self, file: &mut ConfigFile) -> Result<(), NotRead> {
        match file.read().await {
            Ok(config) => self.reload(config).await.map_err(|why| file.cannot_run(why)),
            Err(why) => {
                self.reload_refused(&why.to_string());
                Err(why)
            }
        }
    }

    /// Remembers that a reload was asked for and its configuration could not even be read, and why: what
    /// [`reload`](Self::reload) and [`reload_file`](Self::reload_file) refuse is remembered already. The file of the access log is
    /// opened anew.
    pub fn reload_refused(&self, why: &str) {
        self.control.reload_refused(why);
    }

    /// How the latest reload went, and what holds.
    pub fn last_reload(&self) -> LastReload {
        let latest = self.control.latest_reload();
        let at = |nanos| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
        LastReload {
            at: at(latest.at),
            taken_at: at(latest.taken_at),
            refused: latest.refused,
            hash: self.control.table().load().hash.to_string(),
        }
    }
}
