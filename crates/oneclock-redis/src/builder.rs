//! Building a client: its limits, and which of them contradict each other.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use oneclock::{Caps, WithoutOperation};
use oneclock_core::Name;
use redis::ConnectionAddr;
use tokio::sync::Semaphore;

use crate::call::Shared;
use crate::client::Redis;
use crate::common::Common;
use crate::error::BadRedis;
use crate::line::Target;
use crate::own::Own;

/// Builds a [`Redis`].
#[derive(Clone)]
#[must_use = "a client is made by `build`"]
pub struct RedisBuilder {
    address: Result<redis::ConnectionInfo, redis::RedisError>,
    max_in_flight: usize,
    max_waiting: usize,
    own_connections: usize,
    connect_cap: Duration,
    caps: Caps,
}

// === RedisBuilder ===

impl RedisBuilder {
    pub(crate) fn new(address: Result<redis::ConnectionInfo, redis::RedisError>) -> Self {
        Self {
            address,
            max_in_flight: 1_024,
            max_waiting: 1_024,
            own_connections: 16,
            connect_cap: Duration::from_secs(2),
            caps: Caps::new(),
        }
    }

    /// The most that one call named `name` may spend, all its waiting included. It can shorten, never extend (invariant
    /// I3). Calls of other names get what their operation leaves.
    pub fn cap(mut self, name: impl Into<Name>, cap: Duration) -> Self {
        self.caps.cap(name, cap);
        self
    }

    /// What operations keep back from each call: for their later steps and for the way home.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.caps.reserve(reserve);
        self
    }

    /// The least that is useful for a call; 5 ms unless said otherwise. With less left it is not begun.
    pub fn min_useful(mut self, min_useful: Duration) -> Self {
        self.caps.min_useful(min_useful);
        self
    }

    /// The most calls whose commands are on the shared connection at the same time; 1024 unless said otherwise. Others wait
    /// for a place.
    pub fn max_in_flight(mut self, calls: usize) -> Self {
        self.max_in_flight = calls;
        self
    }

    /// The most calls that may wait for a place; 1024 unless said otherwise. One more is refused at once, as shed for load
    /// ([`Reason::Shed`](oneclock_core::Reason::Shed)).
    pub fn max_waiting(mut self, calls: usize) -> Self {
        self.max_waiting = calls;
        self
    }

    /// The most connections of their own for blocking commands and subscriptions at the same time; 16 unless said otherwise.
    /// One that a command is done with serves the next.
    pub fn own_connections(mut self, connections: usize) -> Self {
        self.own_connections = connections;
        self
    }

    /// The most that opening the shared connection may take; 2 s unless said otherwise. It is opened for all who wait for it, so
    /// that no single budget bounds it; each caller's wait is bounded by its own.
    pub fn connect_cap(mut self, cap: Duration) -> Self {
        self.connect_cap = cap;
        self
    }

    /// Refuses calls where no operation is current. Unless this is said they get their cap, or 10 s, and a warning is
    /// logged once (contract C6).
    pub fn require_operation(mut self) -> Self {
        self.caps.without_operation(WithoutOperation::Require);
        self
    }

    /// The client. Connects to nothing yet: [`self_test`](Redis::self_test) does, when a service starts.
    ///
    /// # Errors
    /// [`BadRedis`], which names what contradicts what.
    pub fn build(self) -> Result<Redis, BadRedis> {
        let info = self.address.map_err(|source| BadRedis::Address { source })?;
        let place = info.addr().to_string();
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(BadRedis::Tls { place });
        }
        let limits = [
            ("max_in_flight", self.max_in_flight),
            ("max_waiting", self.max_waiting),
            ("own_connections", self.own_connections),
        ];
        if let Some((limit, _)) = limits.iter().find(|(_, value)| *value == 0) {
            return Err(BadRedis::Zero { limit });
        }
        if self.connect_cap.is_zero() {
            return Err(BadRedis::Zero { limit: "connect_cap" });
        }
        self.caps.check().map_err(|(call, source)| BadRedis::Cap { call, source })?;
        let max_in_flight = self.max_in_flight.min(Semaphore::MAX_PERMITS);
        let target = Arc::new(Target { info, queue: max_in_flight });
        Ok(Redis(Arc::new(Shared {
            place,
            connect_cap: self.connect_cap,
            common: Common::new(Arc::clone(&target), self.connect_cap),
            target,
            in_flight: Arc::new(Semaphore::new(max_in_flight)),
            max_in_flight,
            own: Own::new(self.own_connections.min(Semaphore::MAX_PERMITS)),
            max_waiting: self.max_waiting,
            waiting: AtomicUsize::new(0),
            caps: self.caps,
        })))
    }
}

impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder").field("caps", &self.caps).finish_non_exhaustive()
    }
}
