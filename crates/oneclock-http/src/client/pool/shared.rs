//! The connections of HTTP/2: many calls at a time on each, as many as its peer allows.
//!
//! Decides who gets a stream, when another connection is opened (each stream of all others is taken), who is woken when there
//! may be one free, and when a connection takes no more calls. The oldest with room is used first, so that those that a rush
//! has left behind become idle.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::client::conn::http2;
use oneclock::clock;
use oneclock_core::{Deadline, Tick};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Exchanged, GOODBYE, Io, Kept, Pool, Turn, lock, said};
use crate::client::tasks::{Socket, Tasks};
use crate::client::upload::Sending;

type Http2 = std::pin::Pin<Box<http2::Connection<Io, Sending, Tasks>>>;

/// One HTTP/2 connection. When the last holder is gone, it ends.
pub(in crate::client) struct Shared {
    id: u64,
    sender: http2::SendRequest<Sending>,
    room: Arc<Room>,
    streams: AtomicUsize,
    used: Mutex<Tick>,
    pool: Weak<Pool>,
    _closing: DropGuard,
}

/// How many streams the peer allows, and the word that there may be one free.
struct Room {
    /// Locked by the connection's own task while it polls it, which runs code of others: nobody else waits for this lock.
    connection: Mutex<Option<Http2>>,
    /// As it was seen last. Hyper's task for the socket learns of another number without waking the connection's own task.
    max_streams: AtomicUsize,
    freed: Arc<Notify>, // the pool's
}

/// One call's place on an HTTP/2 connection.
pub(in crate::client) struct Stream {
    connection: Arc<Shared>,
    pub(in crate::client) reused: bool,
    _turn: Turn,
}

/// Why there is no place on an HTTP/2 connection.
pub(in crate::client) enum NoStream {
    /// There is no connection with a free stream, and there may be one more.
    NotConnected,
    /// Each stream is taken, and there are as many connections as there may be. Resolves when one may be free, or when a
    /// connection takes no new calls.
    Full(OwnedNotified),
}

// === Pool ===

impl Pool {
    /// A place on an HTTP/2 connection. Hands `turn` back with the reason why not.
    pub(in crate::client) fn stream(&self, turn: Turn) -> Result<Stream, (NoStream, Turn)> {
        let mut kept = self.kept();
        let dead = kept.take_closed();
        // Counted under the lock, so that nobody takes a connection for idle meanwhile.
        let found = kept.shared.iter().find(|shared| shared.has_room()).cloned();
        let Some(shared) = found else {
            let why = if kept.shared.len() < self.settings.max_connections {
                NoStream::NotConnected
            } else {
                // Made under the lock: `forget` takes the connection away under it, so its word cannot come too early for this.
                NoStream::Full(self.freed())
            };
            drop(kept);
            drop(dead);
            return Err((why, turn));
        };
        shared.streams.fetch_add(1, Ordering::AcqRel);
        let is_room_left = kept.shared.iter().any(|shared| shared.has_room());
        drop(kept);
        drop(dead);
        if is_room_left {
            self.freed.notify_one(); // words do not add up: whoever got one passes it on while there is room
        }
        Ok(Stream { connection: shared, reused: true, _turn: turn })
    }

    /// Resolves when a stream may be free, or when a connection takes no new calls.
    pub(in crate::client) fn freed(&self) -> OwnedNotified {
        Arc::clone(&self.freed).notified_owned()
    }

    pub(in crate::client) fn is_connected(&self) -> bool {
        self.kept().shared.iter().any(|shared| !shared.sender.is_closed())
    }

    /// Whether a further connection is of use: none has a free stream, and there may be one more.
    pub(in crate::client) fn needs_another(&self) -> bool {
        let mut kept = self.kept();
        let dead = kept.take_closed();
        let needs = kept.shared.len() < self.settings.max_connections && !kept.shared.iter().any(|one| one.has_room());
        drop(kept);
        drop(dead);
        needs
    }

    /// Speaks HTTP/2 over `io`, makes that a connection of this pool, and takes the first stream on it.
    pub(in crate::client) async fn share(self: &Arc<Self>, io: Io, turn: Turn) -> hyper::Result<Stream> {
        let tasks = Tasks::new();
        // Until it says how many it allows, what it allows on another one: what is too many is refused, and the call with it.
        let known = self.kept().shared.first().map(|shared| shared.room.max_streams());
        let mut builder = http2::Builder::new(tasks.clone());
        if let Some(known) = known {
            builder.initial_max_send_streams(known);
        }
        let (sender, connection) = builder.handshake(io).await?;
        let room = Arc::new(Room {
            max_streams: AtomicUsize::new(connection.current_max_send_streams()),
            connection: Mutex::new(Some(Box::pin(connection))),
            freed: Arc::clone(&self.freed),
        });
        let closing = CancellationToken::new();
        let id = self.next_id();
        let shared = Arc::new(Shared {
            id,
            sender,
            room: Arc::clone(&room),
            streams: AtomicUsize::new(1), // the one that is returned
            used: Mutex::new(clock::now()),
            pool: Arc::downgrade(self),
            _closing: closing.clone().drop_guard(),
        });
        let socket = tasks.take_socket();
        let driver = Driver { room, socket, closing, tasks, pool: Arc::downgrade(self), id };
        // It has no other owner than `closing`: it outlives the last holder by at most GOODBYE.
        tokio::spawn(drive_shared(driver, self.settings.idle_timeout));
        self.kept().shared.push(Arc::clone(&shared));
        self.freed.notify_one(); // there is room for more than one, mostly
        Ok(Stream { connection: shared, reused: false, _turn: turn })
    }

    /// No new calls on that connection.
    fn forget(&self, id: u64) {
        let forgotten = self.kept().take_shared(id);
        if forgotten.is_some() {
            self.freed.notify_waiters(); // whoever waits for a stream on it opens another
        }
    }

    /// Gives an HTTP/2 connection up if it has had no call for `idle`; else says when to ask again.
    fn forget_idle(&self, id: u64, idle: Duration) -> Option<Deadline> {
        let now = clock::now();
        let mut kept = self.kept();
        // Given up already; it ends with its last holder. Others have tasks of their own.
        let Some(shared) = kept.shared.iter().find(|shared| shared.id == id) else {
            return Some(Deadline::after(now, idle));
        };
        if shared.streams.load(Ordering::Acquire) > 0 {
            return Some(Deadline::after(now, idle));
        }
        let due = Deadline::after(*lock(&shared.used), idle);
        if !due.is_past(now) {
            return Some(due);
        }
        let forgotten = kept.take_shared(id);
        drop(kept);
        drop(forgotten);
        None
    }
}

impl Kept {
    /// To be dropped outside of the lock.
    fn take_shared(&mut self, id: u64) -> Option<Arc<Shared>> {
        let place = self.shared.iter().position(|shared| shared.id == id)?;
        Some(self.shared.remove(place))
    }

    /// Those that take no new calls. To be dropped outside of the lock.
    fn take_closed(&mut self) -> Vec<Arc<Shared>> {
        self.shared.extract_if(.., |shared| shared.sender.is_closed()).collect()
    }
}

// === Shared ===

impl Shared {
    fn has_room(&self) -> bool {
        self.streams.load(Ordering::Acquire) < self.room.max_streams()
    }
}

impl Room {
    /// Never waits.
    fn max_streams(&self) -> usize {
        let seen = match self.connection.try_lock() {
            Ok(connection) => connection.as_ref().map(|connection| connection.current_max_send_streams()),
            // Being polled, perhaps by whoever asks. What was seen last is from right before that.
            Err(_) => None,
        };
        if let Some(seen) = seen {
            self.max_streams.store(seen, Ordering::Release);
        }
        // A peer that allows none for now is waited for by hyper: nobody would wake us here.
        self.max_streams.load(Ordering::Acquire).max(1)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        let mut connection = lock(&self.connection);
        let Some(connection) = connection.as_mut() else { return Poll::Ready(Ok(())) };
        self.saw(connection.current_max_send_streams());
        let polled = connection.as_mut().poll(cx);
        self.saw(connection.current_max_send_streams());
        polled
    }

    fn saw(&self, max_streams: usize) {
        if self.max_streams.swap(max_streams, Ordering::AcqRel) < max_streams {
            self.freed.notify_one();
        }
    }
}

/// What the task of an HTTP/2 connection holds.
struct Driver {
    room: Arc<Room>,
    socket: Socket,
    closing: CancellationToken,
    tasks: Tasks,
    pool: Weak<Pool>,
    id: u64,
}

async fn drive_shared(driver: Driver, idle_timeout: Duration) {
    let Driver { room, mut socket, closing, tasks, pool, id } = driver;
    let mut due = Deadline::after(clock::now(), idle_timeout);
    loop {
        tokio::select! {
            biased;
            ended = socket.behind(poll_fn(|cx| room.poll(cx))) => {
                said(ended);
                break;
            }
            () = closing.cancelled() => break,
            () = tokio::time::sleep_until(clock::instant(due)) => {
                let Some(pool) = pool.upgrade() else { break };
                match pool.forget_idle(id, idle_timeout) {
                    Some(again) => due = again,
                    None => break,
                }
            }
        }
    }
    if let Some(pool) = pool.upgrade() {
        pool.forget(id);
    }
    // The calls that are still on it go on, each to its own deadline; then there is a moment for resets to leave.
    if !(closing.is_cancelled() || tasks.is_empty() && socket.is_closed()) {
        tokio::select! {
            () = closing.cancelled() => {}
            () = socket.to_its_end(tasks.ended()) => {}
        }
    }
    let connection = lock(&room.connection).take();
    drop(connection); // not under the lock
    tasks.end_within(GOODBYE, socket).await;
}

// === Stream ===

impl Stream {
    /// Sends. The future gives the request back if it was not written.
    pub(in crate::client) fn send(
        &mut self,
        request: http::Request<Sending>,
    ) -> impl Future<Output = Exchanged> + Send + 'static + use<> {
        self.connection.sender.clone().try_send_request(request)
    }

    /// No new calls on this connection; it ends with the last of those that are on it.
    pub(in crate::client) fn retire(&self) {
        if let Some(pool) = self.connection.pool.upgrade() {
            pool.forget(self.connection.id);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        *lock(&self.connection.used) = clock::now();
        self.connection.streams.fetch_sub(1, Ordering::AcqRel);
        self.connection.room.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::builder::{Offers, Settings};
    use crate::client::connect;
    use futures_util::FutureExt;
    use hyper_util::rt::TokioIo;
    use oneclock_test::{Protocol, peer};
    use tokio::net::TcpStream;

    /// A pool with one connection of HTTP/2 and `streams` streams on it, which is as many as the peer allows.
    async fn full(streams: usize) -> (Arc<Pool>, Vec<Stream>) {
        let peer = peer::stall(Protocol::Http2).expect("a peer");
        let pool = Pool::new(Settings { offers: Offers::Http2, max_connections: 1, ..Settings::default() });
        let io = connect::Io::Plain(TcpStream::connect(peer.addr()).await.expect("a connection"));
        let io = TokioIo::new(io);
        let turn = pool.turn(true).await;
        let mut taken = vec![pool.share(io, turn).await.expect("a handshake")];
        room(&taken).allows(streams);
        while taken.len() < streams {
            taken.push(stream(&pool).unwrap_or_else(|_| panic!("there is room for {streams}")));
        }
        (pool, taken)
    }

    fn stream(pool: &Pool) -> Result<Stream, NoStream> {
        let turn = Arc::clone(pool.turns(true)).try_acquire_owned().expect("a turn");
        pool.stream(turn).map_err(|(why, _)| why)
    }

    /// Without an `.await`: the connection's own task does not run meanwhile, and so tells nobody anything.
    fn is_told(freed: OwnedNotified) -> bool {
        freed.now_or_never().is_some()
    }

    fn wait(pool: &Pool) -> OwnedNotified {
        match stream(pool) {
            Err(NoStream::Full(freed)) => freed,
            Err(NoStream::NotConnected) | Ok(_) => panic!("it was to be full"),
        }
    }

    impl Room {
        /// As if its peer had said so. The connection is put away, so that it says nothing else.
        fn allows(&self, streams: usize) {
            std::mem::forget(lock(&self.connection).take());
            self.saw(streams);
        }
    }

    fn room(taken: &[Stream]) -> &Room {
        &taken[0].connection.room
    }

    #[tokio::test]
    async fn i4_a_call_that_is_about_to_wait_hears_that_its_connection_takes_no_more() {
        let (pool, taken) = full(1).await;
        let freed = wait(&pool);
        taken[0].retire(); // before the other has waited for anything
        assert!(is_told(freed));
        assert!(matches!(stream(&pool), Err(NoStream::NotConnected)));
    }

    #[tokio::test]
    async fn i4_two_streams_that_are_freed_at_once_are_for_two() {
        let (pool, taken) = full(2).await;
        let (one, other) = (wait(&pool), wait(&pool));
        drop(taken);
        assert!(is_told(one));
        let _stream = stream(&pool).unwrap_or_else(|_| panic!("there is room"));
        assert!(is_told(other));
    }

    #[tokio::test]
    async fn i4_a_peer_that_allows_more_is_believed_at_once() {
        let (pool, taken) = full(1).await;
        let freed = wait(&pool);
        room(&taken).allows(2);
        assert!(is_told(freed));
    }

    #[tokio::test]
    async fn an_old_connection_that_is_idle_does_not_take_the_new_one_away() {
        let (pool, taken) = full(1).await;
        let id = taken[0].connection.id;
        drop(taken);
        assert!(pool.forget_idle(id + 1, Duration::ZERO).is_some());
        assert!(pool.is_connected());
        assert!(pool.forget_idle(id, Duration::ZERO).is_none());
        assert!(!pool.is_connected());
    }
}
