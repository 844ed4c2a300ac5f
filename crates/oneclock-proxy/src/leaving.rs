//! The end of one server: by that of the process, or because its listener goes or changes.
//!
//! Decides the order. It accepts nothing more; what was accepted a moment before may still say something, and hears over HTTP/1.1
//! that its answer is the last one of its connection, as whoever asks again hears; then connections without a request are closed,
//! so that it is those that have been quiet for a while, while what comes on the others is still let in, since nobody else could
//! take it; and what is under way lives until its own deadlines, or until the grace is over.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use oneclock::{Shutdown, clock};
use oneclock_core::Deadline;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::table::Table;

/// How long connections of a server that is to end are not closed, so that what was accepted a moment before can say something,
/// and whoever asks one thing after another is told by an answer and does not find a closed connection.
const SETTLE: Duration = Duration::from_secs(1);

/// As good as for ever: what is waited for has a bound of its own.
const FOREVER: Duration = Duration::from_secs(86_400 * 365);

/// How long the task that waits on a socket may take to let go of it. It has nothing else to do.
const LETTING_GO: Duration = Duration::from_secs(1);

/// What a server hears of its end, but for that of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaving {
    /// It accepts nothing more.
    told: CancellationToken,
    /// The same, for whoever asks at each answer.
    leaves: Arc<AtomicBool>,
    /// It holds its socket no more.
    gone: CancellationToken,
    /// What is under way on it has so long; without, until its own deadlines.
    grace: Arc<OnceLock<Duration>>,
    /// What holds for requests that it still gets, where its listener is not in the table any more.
    table: Arc<ArcSwapOption<Table>>,
}

/// The socket of a server, until that is told to leave it.
pub(crate) struct Gate {
    socket: Weak<TcpListener>,
    told: CancellationToken,
    gone: Option<DropGuard>, // until it is told to
}

/// A socket that nobody needs any more.
pub(crate) struct Closing {
    socket: Weak<TcpListener>,
    gone: CancellationToken,
}

/// What ends with a server, also if its task is dropped.
pub(crate) struct Ends {
    pub(crate) connections: Shutdown,
    pub(crate) work: Shutdown,
}

/// Serves until the end of the process or of the listener, and until all that lived on it is over.
pub(crate) async fn run(
    server: impl Future<Output = io::Result<()>>,
    ends: Ends,
    leaving: Leaving,
    root: Shutdown,
) -> io::Result<()> {
    let orders = async {
        let of_the_process = async {
            root.signalled().await;
            ends.connections.signal();
            ends.work.signal();
            root.grace_over().await;
        };
        let of_the_listener = async {
            leaving.told.cancelled().await;
            let end = leaving.grace.get().map(|grace| Deadline::after(clock::now(), *grace));
            let settled = Deadline::after(clock::now(), SETTLE);
            tokio::time::sleep_until(clock::instant(end.map_or(settled, |end| settled.earliest(end)))).await;
            ends.connections.signal(); // work goes on being let in: nobody else can take what comes on these connections
            match end {
                Some(end) => tokio::time::sleep_until(clock::instant(end)).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = of_the_process => {}
            () = of_the_listener => {}
        }
        ends.work.end_grace();
        ends.connections.end_grace();
        pending::<Infallible>().await
    };
    let served = async {
        server.await?;
        ends.work.drain(FOREVER).await; // upgraded connections, steps that must finish
        Ok(())
    };
    tokio::select! {
        biased;
        served = served => served,
        never = orders => match never {},
    }
}

/// Waits until these sockets are closed, so that their addresses are free for others.
pub(crate) async fn closed(sockets: Vec<Closing>) {
    for Closing { socket, gone } in sockets {
        // A server that waits for a place among its connections does not wait on its socket, and holds none.
        if socket.strong_count() > 0 && tokio::time::timeout(LETTING_GO, gone.cancelled()).await.is_err() {
            tracing::warn!("the socket of a listener that is gone is still held");
        }
    }
}

// === Leaving ===

impl Leaving {
    /// The socket, as long as it may be accepted on.
    pub(crate) fn gate(&self, socket: &Arc<TcpListener>) -> Gate {
        let gone = Some(self.gone.clone().drop_guard());
        Gate { socket: Arc::downgrade(socket), told: self.told.clone(), gone }
    }

    /// The socket once it is to be closed.
    pub(crate) fn closing(&self, socket: &Arc<TcpListener>) -> Closing {
        Closing { socket: Arc::downgrade(socket), gone: self.gone.clone() }
    }

    /// What holds for what it still gets if its listener goes; nothing if it stays.
    pub(crate) fn keep(&self, table: Option<Arc<Table>>) {
        self.table.store(table);
    }

    /// It is to end. What is under way on it has `grace`; without, until its own deadlines.
    pub(crate) fn leave(&self, grace: Option<Duration>) {
        if let Some(grace) = grace {
            let _ = self.grace.set(grace); // it leaves once
        }
        self.leaves.store(true, Ordering::Relaxed);
        self.told.cancel();
    }

    /// Whether it is to end, but for the end of the process.
    pub(crate) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::Relaxed)
    }

    /// What held when its listener went.
    pub(crate) fn table(&self) -> Option<Arc<Table>> {
        self.table.load_full()
    }
}

// === Gate ===

impl oneclock_http::Listener for Gate {
    type Io = <Arc<TcpListener> as oneclock_http::Listener>::Io;

    async fn accept(&mut self) -> io::Result<(Self::Io, Option<SocketAddr>)> {
        // Held while it is waited for, so that it is closed the moment that the proxy lets go of it otherwise.
        if let Some(mut socket) = self.socket.upgrade() {
            tokio::select! {
                biased;
                () = self.told.cancelled() => {}
                accepted = oneclock_http::Listener::accept(&mut socket) => return accepted,
            }
        }
        self.gone = None;
        pending().await // until its server ends
    }

    fn peer_left(io: &Self::Io, half_close: bool) -> impl Future<Output = ()> + Send + use<> + 'static {
        <Arc<TcpListener> as oneclock_http::Listener>::peer_left(io, half_close)
    }

    fn reset(io: &Self::Io) {
        <Arc<TcpListener> as oneclock_http::Listener>::reset(io);
    }
}

// === Ends ===

impl Drop for Ends {
    fn drop(&mut self) {
        self.work.end_grace(); // what they spawned ends, too
        self.connections.end_grace();
    }
}
