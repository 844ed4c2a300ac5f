//! Building a pool: what each setting means, and what contradicts what.

use std::time::Duration;

use oneclock::{Caps, WithoutOperation};
use oneclock_core::Name;
use tokio::sync::Semaphore;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, NoTls};

use crate::connect::{Connector, Database};
use crate::error::BadPool;
use crate::flight::SETTLE;
use crate::pool::{Pool, Shared};
use crate::socket::Socket;

/// Builds a [`Pool`].
#[derive(Clone, Debug)]
#[must_use = "a pool is made by `build`"]
pub struct PoolBuilder {
    database: Result<Config, String>,
    pub(crate) size: usize,
    pub(crate) max_waiting: usize,
    pub(crate) caps: Caps,
    pub(crate) slack: Duration,
    pub(crate) grace: Duration,
    pub(crate) commit_bound: Duration,
    pub(crate) cancels_in_flight: usize,
    pub(crate) statements_kept: usize,
}

// === PoolBuilder ===

impl PoolBuilder {
    pub(crate) fn new(database: Result<Config, String>) -> Self {
        let mut caps = Caps::new();
        caps.way_home(SETTLE);
        Self {
            database,
            size: 10,
            max_waiting: 1_024,
            caps,
            slack: Duration::from_millis(250),
            grace: Duration::from_secs(2),
            commit_bound: Duration::from_secs(5),
            cancels_in_flight: 8,
            statements_kept: 256,
        }
    }

    /// The most connections that are open at the same time; 10 unless said otherwise. They are opened when needed.
    pub fn size(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// The most calls that may wait for a connection; 1024 unless said otherwise. One more is refused at once, as shed
    /// for load ([`Reason::Shed`](oneclock_core::Reason::Shed)).
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = max_waiting;
        self
    }

    /// The most that one call named `name` may spend, all its waiting included. It can shorten, never extend (invariant
    /// I3). Calls of other names get what their operation leaves.
    pub fn cap(mut self, name: impl Into<Name>, cap: Duration) -> Self {
        self.caps.cap(name, cap);
        self
    }

    /// What operations keep back from each call: for their later steps and for the way home. Unless this is said, an eighth of
    /// what they have left, and at most 25 ms: in that time the server answers what was cancelled, and that answer is the proof
    /// behind [`Outcome::Rejected`](oneclock_core::Outcome::Rejected).
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.caps.reserve(reserve);
        self
    }

    /// The least that is useful for a call; 5 ms unless said otherwise. With less left it is not begun.
    pub fn min_useful(mut self, min_useful: Duration) -> Self {
        self.caps.min_useful(min_useful);
        self
    }

    /// How much later than our own cut the server's bound comes; 250 ms unless said otherwise. The cancel is the exact cut;
    /// the server's `statement_timeout` is for the case that this process dies or stalls (contract D1).
    pub fn slack(mut self, slack: Duration) -> Self {
        self.slack = slack;
        self
    }

    /// How long a connection may take to be free again after its statement was cut off; 2 s unless said otherwise. Then it is
    /// closed and replaced.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long a COMMIT may take once it was sent; 5 s unless said otherwise. It is never cut off by an operation's end
    /// (contract D5).
    pub fn commit_bound(mut self, bound: Duration) -> Self {
        self.commit_bound = bound;
        self
    }

    /// The most cancels that are on their way at the same time; 8 unless said otherwise. Each is a connection and a
    /// process on the server (contract D3).
    pub fn cancels_in_flight(mut self, cancels: usize) -> Self {
        self.cancels_in_flight = cancels;
        self
    }

    /// How many prepared statements each connection keeps; 256 unless said otherwise. Beyond that all of them are forgotten
    /// and prepared anew.
    pub fn statements_kept(mut self, statements: usize) -> Self {
        self.statements_kept = statements;
        self
    }

    /// Refuses calls where no operation is current. Unless this is said they get their cap, or 10 s, and a warning is
    /// logged once (contract C6).
    pub fn require_operation(mut self) -> Self {
        self.caps.without_operation(WithoutOperation::Require);
        self
    }

    /// The pool, without TLS. It opens nothing yet; [`Pool::self_test`] does, and tells whether the server keeps what the
    /// pool promises.
    ///
    /// # Errors
    /// [`BadPool`], which names what contradicts what.
    pub fn build(self) -> Result<Pool, BadPool> {
        if self.database.as_ref().is_ok_and(|config| config.get_ssl_mode() == SslMode::Require) {
            return Err(BadPool::NoTls);
        }
        self.build_with(NoTls)
    }

    /// The pool, with TLS made by `tls` where the connection string asks for it (`sslmode=prefer` is the default). Cancels
    /// go through the same TLS.
    ///
    /// The connector must work over [`Socket`], as those that are generic over the socket do.
    ///
    /// # Errors
    /// [`BadPool`], which names what contradicts what.
    pub fn build_with<T>(self, tls: T) -> Result<Pool, BadPool>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let config = self.check()?;
        let connector: Box<dyn Connector> = Box::new(Database { config, tls });
        Ok(Pool::of(Shared::new(self, connector)))
    }

    fn check(&self) -> Result<Config, BadPool> {
        let config = match &self.database {
            Ok(config) => config.clone(),
            Err(dsn) => dsn.parse().map_err(BadPool::Dsn)?,
        };
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(BadPool::NoHost);
        }
        if self.size == 0 {
            return Err(BadPool::NoConnections);
        }
        if self.size > Semaphore::MAX_PERMITS {
            return Err(BadPool::TooManyConnections { size: self.size, most: Semaphore::MAX_PERMITS });
        }
        if self.max_waiting == 0 {
            return Err(BadPool::NoPlaces);
        }
        if self.cancels_in_flight == 0 {
            return Err(BadPool::NoCancels);
        }
        self.caps.check().map_err(|(call, source)| BadPool::Cap { call, source })?;
        Ok(config)
    }
}
