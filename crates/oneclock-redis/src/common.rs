//! The connection that everybody shares: opened once for all who wait for it, given up when it has stalled.
//!
//! Decides that one attempt to connect is under way at a time, bounded by itself and not by whoever asked first; that whoever
//! comes while the server cannot be reached is told at once; and that a connection that has stalled takes no new commands,
//! while those on it keep what is left of their own time.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::Tick;
use tokio::sync::watch;

use crate::health::Attempts;
use crate::line::{Line, Owned, Target};

/// What came of an attempt.
pub(crate) type Opened = Result<Arc<Line>, redis::RedisError>;

/// The shared connection of one client.
pub(crate) struct Common {
    target: Arc<Target>,
    connect_cap: Duration,
    slot: Mutex<Slot>,
    opened: AtomicUsize,
    stalled: AtomicUsize,
}

#[derive(Default)]
struct Slot {
    state: State,
    attempts: Attempts,
}

#[derive(Default)]
enum State {
    #[default]
    Nothing,
    Failed(redis::RedisError),
    Opening {
        opening: watch::Receiver<Option<Opened>>,
        _attempt: Owned,
    },
    Up(Arc<Line>),
}

/// What a caller gets.
enum Next {
    Up(Arc<Line>),
    /// An attempt that others may wait for as well.
    Opening(watch::Receiver<Option<Opened>>),
    /// The last attempt failed a moment ago, and the next one is not due.
    Failed(redis::RedisError),
}

/// A command on its way. Dropped before its answer, it was cut off, and the connection is looked at.
pub(crate) struct InFlight<'a> {
    common: &'a Common,
    line: Arc<Line>,
    answered: bool,
}

// === Common ===

impl Common {
    pub(crate) fn new(target: Arc<Target>, connect_cap: Duration) -> Arc<Self> {
        Arc::new(Self {
            target,
            connect_cap,
            slot: Mutex::default(),
            opened: AtomicUsize::new(0),
            stalled: AtomicUsize::new(0),
        })
    }

    /// The connection, or what there is instead.
    fn next(self: &Arc<Self>) -> Next {
        let now = clock::now();
        let mut slot = self.slot();
        match &slot.state {
            State::Up(line) if !line.watch().is_closed() => return Next::Up(Arc::clone(line)),
            // Its runtime may have gone away, and the attempt with it.
            State::Opening { opening, .. } if opening.has_changed().is_ok() => return Next::Opening(opening.clone()),
            State::Failed(error) if !slot.attempts.pause(now).is_zero() => return Next::Failed(error.clone()),
            State::Nothing | State::Failed(_) | State::Opening { .. } | State::Up(_) => {}
        }
        let (tell, opening) = watch::channel(None);
        let (common, target, cap) = (Arc::downgrade(self), Arc::clone(&self.target), self.connect_cap);
        let attempt = tokio::spawn(async move {
            let opened = match tokio::time::timeout(cap, target.connect()).await {
                Ok(opened) => opened.map(Arc::new),
                Err(_) => Err(too_slow(cap).into()),
            };
            let tell = move |opened| {
                tell.send_replace(Some(opened));
            };
            match common.upgrade() {
                Some(common) => common.settle(opened, tell),
                None => tell(opened),
            }
        });
        slot.state = State::Opening { opening: opening.clone(), _attempt: Owned::new(attempt) };
        Next::Opening(opening)
    }

    /// Sees to it that the connection is there when it is needed; nobody waits for it.
    pub(crate) fn prepare(self: &Arc<Self>) {
        self.next();
    }

    /// The connection, once it is open. Whoever waits here has a bound of its own.
    pub(crate) async fn opened(self: &Arc<Self>) -> Opened {
        match self.next() {
            Next::Up(line) => Ok(line),
            Next::Failed(error) => Err(error),
            Next::Opening(mut opening) => {
                match opening.wait_for(Option::is_some).await.ok().and_then(|opened| opened.clone()) {
                    Some(opened) => opened,
                    None => Err(io::Error::other("the attempt to connect was given up").into()),
                }
            }
        }
    }

    /// Keeps what came of the attempt, and tells everybody who waits.
    fn settle(&self, opened: Opened, tell: impl FnOnce(Opened)) {
        let mut slot = self.slot();
        let state = match &opened {
            Ok(line) => {
                slot.attempts.succeeded();
                self.opened.fetch_add(1, Ordering::AcqRel);
                State::Up(Arc::clone(line))
            }
            Err(error) => {
                slot.attempts.failed(clock::now(), random_bits());
                State::Failed(error.clone())
            }
        };
        let attempt = std::mem::replace(&mut slot.state, state);
        drop(slot);
        tell(opened);
        drop(attempt); // the task that runs this: it has nothing left to do
    }

    /// Hands a command over; from here on it may have been sent.
    pub(crate) fn begins(&self, line: Arc<Line>) -> InFlight<'_> {
        line.watch().health().sent(clock::now());
        InFlight { common: self, line, answered: false }
    }

    /// Takes no new commands on this connection. Those on it go on. False if it took none before.
    fn retire(&self, line: &Arc<Line>) -> bool {
        let mut slot = self.slot();
        let is_current = matches!(&slot.state, State::Up(current) if Arc::ptr_eq(current, line));
        if is_current {
            let state = std::mem::take(&mut slot.state);
            drop(slot);
            drop(state); // perhaps the last one: it closes the socket
        }
        is_current
    }

    /// Connections opened since the client was made, and how many of them were given up because they had stalled.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.opened.load(Ordering::Acquire), self.stalled.load(Ordering::Acquire))
    }

    /// The connection, if it is there.
    pub(crate) fn current(&self) -> Option<Arc<Line>> {
        match &self.slot().state {
            State::Up(line) if !line.watch().is_closed() => Some(Arc::clone(line)),
            State::Nothing | State::Failed(_) | State::Opening { .. } | State::Up(_) => None,
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn too_slow(cap: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("not connected within {cap:?}"))
}

/// Different for each process and each call, which is all that a pause needs.
fn random_bits() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(clock::now().since(Tick::default()).subsec_nanos().into());
    hasher.finish()
}

// === InFlight ===

impl InFlight<'_> {
    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Something came back for it, an error included.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let watch = self.line.watch();
        let has_stalled = if self.answered {
            watch.health().answered();
            false
        } else {
            watch.health().cut_off(clock::now())
        };
        if has_stalled {
            if self.common.retire(&self.line) {
                self.common.stalled.fetch_add(1, Ordering::AcqRel); // once, though many may see it
            }
        } else if watch.is_closed() {
            self.common.retire(&self.line);
        }
    }
}
