//! The connections of one destination: who may use one, which are kept, and what ends each.
//!
//! Every connection has one task, and every task an end: it is idle and its time is up, it is idle and the last client is
//! gone, its call was cut off, or the answer on it is over, which the call's deadline bounds.
//!
//! Code of others (bodies, wakers) is polled and dropped by connections, and may come back here: the body of an upload may
//! be the answer of another call of the same client. So none of it is polled or dropped under a lock that somebody waits
//! for.
//!
//! hyper-util's `client::pool` was tried on paper and does not fit: its cache keeps whatever it is given (dirty, closed,
//! without limit), lets go of a race it lost only into an executor without bound, and hides whether a caller is waiting
//! for a connection or for a connect, which the ledger has to tell apart.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::TokioIo;
use oneclock::clock;
use oneclock_core::{Deadline, Tick};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::builder::{Offers, Settings};
use super::connect;
use super::upload::Sending;

/// How long a connection that is given up may take to say goodbye, and one whose answer is past its deadline to settle.
const GOODBYE: Duration = Duration::from_secs(1);

type Io = TokioIo<connect::Io>;
type Http2 = std::pin::Pin<Box<http2::Connection<Io, Sending, Tasks>>>;

/// What a connection made of a request.
pub(super) type Exchanged = Result<http::Response<Incoming>, TrySendError<http::Request<Sending>>>;

/// The connections of one destination.
pub(super) struct Pool {
    settings: Settings,
    /// For calls over HTTP/1.1, and for calls over HTTP/2.
    turns: [Arc<Semaphore>; 2],
    /// What the two sides agreed on last, where they are free to: [`NOBODY_KNOWS`], or what is offered.
    agreed: AtomicU8,
    /// Held by whoever opens the one connection of HTTP/2, or the first one, which tells what is spoken.
    pub(super) opening: tokio::sync::Mutex<()>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    idle: Vec<Line>, // the latest last
    shared: Option<Arc<Shared>>,
    ids: u64,
}

const NOBODY_KNOWS: u8 = 0;
const HTTP1: u8 = 1;
const HTTP2: u8 = 2;

/// The right to one call at a time.
pub(super) type Turn = OwnedSemaphorePermit;

/// One HTTP/1.1 connection without a call, or with the one of its holder. Dropping it closes the socket.
pub(super) struct Line {
    id: u64,
    sender: http1::SendRequest<Sending>,
    back: mpsc::Sender<Answering>,
    pub(super) reused: bool,
    _driver: AbortOnDropHandle<()>,
}

/// A line on which an answer is under way. Its own task holds it until the answer is over.
struct Answering {
    line: Line,
    turn: Turn,
    until: Instant,
}

/// One HTTP/2 connection. When the last holder is gone, it ends.
pub(super) struct Shared {
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
    freed: Arc<Notify>,
}

/// One call's place on an HTTP/2 connection.
pub(super) struct Stream {
    connection: Arc<Shared>,
    pub(super) reused: bool,
    _turn: Turn,
}

/// Why there is no place on the HTTP/2 connection.
pub(super) enum NoStream {
    /// There is no connection.
    NotConnected,
    /// Each of its streams is taken. Resolves when one may be free, or when the connection takes no new calls.
    Full(OwnedNotified),
}

/// Spawns what hyper spawns for one HTTP/2 connection, so that it ends with the connection.
#[derive(Clone)]
pub(super) struct Tasks {
    cut: CancellationToken,
    tracker: TaskTracker,
}

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

    /// Waits for a turn, first come, first served.
    pub(super) async fn turn(&self, shared: bool) -> Turn {
        match Arc::clone(self.turns(shared)).acquire_owned().await {
            Ok(turn) => turn,
            // Nobody closes the semaphore. Were it closed, waiting would be the safe side: the deadline ends it.
            Err(_closed) => std::future::pending().await,
        }
    }

    /// The line that was used last, of those that still stand.
    pub(super) fn idle(&self) -> Option<Line> {
        let mut dead = Vec::new(); // dropped outside the lock
        let mut kept = self.kept();
        while let Some(mut line) = kept.idle.pop() {
            if !line.sender.is_closed() {
                drop(kept);
                line.reused = true;
                return Some(line);
            }
            dead.push(line);
        }
        None
    }

    /// Keeps `line` for a later call, unless there are enough.
    fn keep(&self, line: Line) {
        let surplus = {
            let mut kept = self.kept();
            kept.idle.push(line);
            (kept.idle.len() > self.settings.max_idle).then(|| kept.idle.remove(0))
        };
        drop(surplus);
    }

    fn remove_idle(&self, id: u64) -> Option<Line> {
        let mut kept = self.kept();
        let at = kept.idle.iter().position(|line| line.id == id)?;
        Some(kept.idle.remove(at))
    }

    /// Speaks HTTP/1.1 over `io`.
    pub(super) async fn line(self: &Arc<Self>, io: Io) -> hyper::Result<Line> {
        let (sender, connection) = http1::handshake(io).await?;
        let id = self.next_id();
        let (back, answering) = mpsc::channel(1);
        let driver = drive_line(connection, answering, Arc::downgrade(self), id, self.settings.idle_timeout);
        Ok(Line { id, sender, back, reused: false, _driver: AbortOnDropHandle::new(tokio::spawn(driver)) })
    }

    /// A place on the HTTP/2 connection. Hands `turn` back with the reason why not.
    pub(super) fn stream(&self, turn: Turn) -> Result<Stream, (NoStream, Turn)> {
        let mut kept = self.kept();
        let Some(shared) = kept.shared.clone().filter(|shared| !shared.sender.is_closed()) else {
            let dead = kept.shared.take();
            drop(kept);
            drop(dead);
            return Err((NoStream::NotConnected, turn));
        };
        // Counted under the lock, so that nobody takes the connection for idle meanwhile.
        let room = &shared.room;
        let taken = shared.streams.load(Ordering::Acquire);
        let max_streams = room.max_streams();
        if taken >= max_streams {
            // Made under the lock: `forget` takes the connection away under it, so its word cannot come too early for this.
            return Err((NoStream::Full(Arc::clone(&room.freed).notified_owned()), turn));
        }
        shared.streams.fetch_add(1, Ordering::AcqRel);
        drop(kept);
        if taken + 1 < max_streams {
            room.freed.notify_one(); // words do not add up: whoever got one passes it on while there is room
        }
        Ok(Stream { connection: shared, reused: true, _turn: turn })
    }

    pub(super) fn is_connected(&self) -> bool {
        self.kept().shared.as_ref().is_some_and(|shared| !shared.sender.is_closed())
    }

    /// Speaks HTTP/2 over `io`, makes that the connection of this pool, and takes the first stream on it.
    pub(super) async fn share(self: &Arc<Self>, io: Io, turn: Turn) -> hyper::Result<Stream> {
        let tasks = Tasks { cut: CancellationToken::new(), tracker: TaskTracker::new() };
        let (sender, connection) = http2::Builder::new(tasks.clone()).handshake(io).await?;
        let room = Arc::new(Room {
            max_streams: AtomicUsize::new(connection.current_max_send_streams()),
            connection: Mutex::new(Some(Box::pin(connection))),
            freed: Arc::default(),
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
        let driver = Driver { room, closing, tasks, pool: Arc::downgrade(self), id };
        // It has no other owner than `closing`: it outlives the last holder by at most GOODBYE.
        tokio::spawn(drive_shared(driver, self.settings.idle_timeout));
        let before = self.kept().shared.replace(Arc::clone(&shared));
        drop(before);
        Ok(Stream { connection: shared, reused: false, _turn: turn })
    }

    /// No new calls on that connection.
    fn forget(&self, id: u64) {
        let forgotten = {
            let mut kept = self.kept();
            if kept.shared.as_ref().is_some_and(|shared| shared.id == id) { kept.shared.take() } else { None }
        };
        if let Some(shared) = forgotten {
            shared.room.freed.notify_waiters(); // whoever waits for a stream on it opens another
        }
    }

    /// Gives the HTTP/2 connection up if it has had no call for `idle`; else says when to ask again.
    fn forget_idle(&self, id: u64, idle: Duration) -> Option<Deadline> {
        let now = clock::now();
        let mut kept = self.kept();
        // Given up already; it ends with its last holder. The one in its place has a task of its own.
        let Some(shared) = kept.shared.as_ref().filter(|shared| shared.id == id) else {
            return Some(Deadline::after(now, idle));
        };
        if shared.streams.load(Ordering::Acquire) > 0 {
            return Some(Deadline::after(now, idle));
        }
        let due = Deadline::after(*lock(&shared.used), idle);
        if !due.is_past(now) {
            return Some(due);
        }
        let forgotten = kept.shared.take();
        drop(kept);
        drop(forgotten);
        None
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

// === Line ===

impl Line {
    /// Sends. The future gives the request back if it was not written.
    pub(super) fn send(
        &mut self,
        request: http::Request<Sending>,
    ) -> impl Future<Output = Exchanged> + Send + 'static + use<> {
        self.sender.try_send_request(request)
    }

    /// The head of an answer is there: the line's own task waits for the end of it, which `deadline` bounds, and keeps
    /// the line if it is clean then. One whose answer is not read to its end, hyper closes.
    pub(super) fn answering(self, turn: Turn, deadline: Deadline) {
        let back = self.back.clone();
        let until = clock::instant(deadline) + GOODBYE;
        // Its task is gone if this fails, and so is the connection.
        let _ = back.try_send(Answering { line: self, turn, until });
    }
}

async fn drive_line(
    connection: http1::Connection<Io, Sending>,
    mut answering: mpsc::Receiver<Answering>,
    pool: Weak<Pool>,
    id: u64,
    idle_timeout: Duration,
) {
    let mut connection = pin!(connection);
    let mut idle_until = None;
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                said(ended);
                break;
            }
            Some(Answering { mut line, turn, until }) = answering.recv() => {
                let settled = timeout_at(until, poll_fn(|cx| line.sender.poll_ready(cx)));
                tokio::select! {
                    biased;
                    ended = &mut connection => {
                        said(ended);
                        break;
                    }
                    settled = settled => {
                        let (Ok(Ok(())), Some(pool)) = (settled, pool.upgrade()) else { break };
                        pool.keep(line);
                        idle_until = Some(clock::instant(Deadline::after(clock::now(), idle_timeout)));
                        drop(turn); // only now, so that who is next finds it
                    }
                }
            }
            () = until(idle_until) => {
                idle_until = None;
                if pool.upgrade().and_then(|pool| pool.remove_idle(id)).is_some() {
                    break;
                }
            }
        }
    }
    drop(pool.upgrade().and_then(|pool| pool.remove_idle(id)));
}

/// Waits until then, or for good.
async fn until(then: Option<Instant>) {
    match then {
        Some(then) => tokio::time::sleep_until(then).await,
        None => std::future::pending().await,
    }
}

fn said(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

// === Shared ===

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
    closing: CancellationToken,
    tasks: Tasks,
    pool: Weak<Pool>,
    id: u64,
}

async fn drive_shared(driver: Driver, idle_timeout: Duration) {
    let Driver { room, closing, tasks, pool, id } = driver;
    let mut due = Deadline::after(clock::now(), idle_timeout);
    loop {
        tokio::select! {
            biased;
            ended = poll_fn(|cx| room.poll(cx)) => {
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
    if !closing.is_cancelled() && !tasks.tracker.is_empty() {
        tokio::select! {
            () = closing.cancelled() => {}
            () = wait_for(&tasks.tracker) => {}
        }
    }
    let connection = lock(&room.connection).take();
    drop(connection); // not under the lock
    let _ = timeout(GOODBYE, wait_for(&tasks.tracker)).await;
    tasks.cut.cancel();
}

async fn wait_for(tracker: &TaskTracker) {
    tracker.close();
    tracker.wait().await;
}

// === Stream ===

impl Stream {
    /// Sends. The future gives the request back if it was not written.
    pub(super) fn send(
        &mut self,
        request: http::Request<Sending>,
    ) -> impl Future<Output = Exchanged> + Send + 'static + use<> {
        self.connection.sender.clone().try_send_request(request)
    }

    /// No new calls on this connection; it ends with the last of those that are on it.
    pub(super) fn retire(&self) {
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

// === Tasks ===

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, work: F) {
        let cut = self.cut.clone();
        self.tracker.spawn(async move {
            let _ = cut.run_until_cancelled_owned(work).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use oneclock_test::{Protocol, peer};
    use tokio::net::TcpStream;

    /// A pool with one connection of HTTP/2 and `streams` streams on it, which is as many as the peer allows.
    async fn full(streams: usize) -> (Arc<Pool>, Vec<Stream>) {
        let peer = peer::stall(Protocol::Http2).expect("a peer");
        let pool = Pool::new(Settings { offers: Offers::Http2, ..Settings::default() });
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
