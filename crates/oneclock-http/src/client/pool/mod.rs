//! The connections of one destination: who may use one, which are kept, and what ends each.
//!
//! Every connection has one task, and every task an end: it is idle and its time is up, it is idle and the last client is
//! gone, its call was cut off, or the answer on it is over, which the call's deadline bounds.
//!
//! Code of others (bodies, wakers) is polled and dropped by connections, and may come back here: the body of an upload may
//! be the answer of another call of the same client. So none of it is polled or dropped under a lock that somebody waits
//! for.
//!
//! Here is what both have in common; `lines` are the connections of HTTP/1.1, `shared` are those of HTTP/2.
//!
//! hyper-util's `client::pool` was tried on paper and does not fit: its cache keeps whatever it is given (dirty, closed,
//! without limit), lets go of a race it lost only into an executor without bound, and hides whether a caller is waiting
//! for a connection or for a connect, which the ledger has to tell apart.

mod lines;
mod shared;

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper_util::rt::TokioIo;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use self::shared::Shared;
use super::builder::{Offers, Settings};
use super::connect;
use super::upload::Sending;

pub(super) use self::lines::Line;
pub(super) use self::shared::{NoStream, Stream};

/// How long a connection that is given up may take to say goodbye, and one whose answer is past its deadline to settle.
const GOODBYE: Duration = Duration::from_secs(1);

type Io = TokioIo<connect::Io>;

/// What a connection made of a request.
pub(super) type Exchanged = Result<http::Response<Incoming>, TrySendError<http::Request<Sending>>>;

/// The connections of one destination.
pub(super) struct Pool {
    settings: Settings,
    /// For calls over HTTP/1.1, and for calls over HTTP/2.
    turns: [Arc<Semaphore>; 2],
    /// What the two sides agreed on last, where they are free to: [`NOBODY_KNOWS`], or what is offered.
    agreed: AtomicU8,
    /// Held by whoever opens a connection of HTTP/2, or the first one, which tells what is spoken.
    pub(super) opening: tokio::sync::Mutex<()>,
    /// The word that a stream may be free.
    freed: Arc<Notify>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    idle: Vec<Line>,          // the latest last
    shared: Vec<Arc<Shared>>, // the oldest first
    ids: u64,
}

const NOBODY_KNOWS: u8 = 0;
const HTTP1: u8 = 1;
const HTTP2: u8 = 2;

/// The right to one call at a time.
pub(super) type Turn = OwnedSemaphorePermit;

// === Pool ===

impl Pool {
    pub(super) fn new(settings: Settings) -> Arc<Self> {
        let turns = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let agreed = match settings.offers {
            Offers::Http1 => HTTP1,
            Offers::Http2 => HTTP2,
            Offers::Either => NOBODY_KNOWS,
        };
        Arc::new(Self {
            turns: [turns(settings.max_connections), turns(settings.max_streams)],
            agreed: AtomicU8::new(agreed),
            settings,
            opening: tokio::sync::Mutex::new(()),
            freed: Arc::default(),
            kept: Mutex::default(),
        })
    }

    /// Whether calls share one connection: over HTTP/2, and for as long as nobody knows whether that is spoken, so that
    /// one connection finds out.
    pub(super) fn shares(&self) -> bool {
        self.agreed.load(Ordering::Acquire) != HTTP1
    }

    /// What was found on a connection of which nobody knew.
    pub(super) fn agreed(&self, http2: bool) {
        self.agreed.store(if http2 { HTTP2 } else { HTTP1 }, Ordering::Release);
    }

    fn turns(&self, shared: bool) -> &Arc<Semaphore> {
        let [http1, http2] = &self.turns;
        if shared { http2 } else { http1 }
    }

    /// Whether `turn` is one among calls that share one connection, or that do not.
    pub(super) fn is_turn(&self, turn: &Turn, shared: bool) -> bool {
        Arc::ptr_eq(turn.semaphore(), self.turns(shared))
    }

    /// A turn, if nobody waits for one.
    pub(super) fn free_turn(&self, shared: bool) -> Option<Turn> {
        Arc::clone(self.turns(shared)).try_acquire_owned().ok()
    }

    /// Waits for a turn, first come, first served.
    pub(super) async fn turn(&self, shared: bool) -> Turn {
        match Arc::clone(self.turns(shared)).acquire_owned().await {
            Ok(turn) => turn,
            // Nobody closes the semaphore. Were it closed, waiting would be the safe side: the deadline ends it.
            Err(_closed) => std::future::pending().await,
        }
    }

    fn next_id(&self) -> u64 {
        let mut kept = self.kept();
        kept.ids += 1;
        kept.ids
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("turns", &self.turns(self.shares()).available_permits())
            .field("idle", &self.kept().idle.len())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn said(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}
