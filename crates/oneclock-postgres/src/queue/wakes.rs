//! Waiting for jobs: one connection listens, whoever waits is woken.
//!
//! Decides who looks at that connection: one of those who wait, for all of them, so that there is no task. It stands beside the
//! pool's places, is opened when somebody waits for the first time, and goes with the queue's last clone. And who tells them, of
//! those who publish: one at a time, for all. A notification is only a hint to look; that none gets lost is not relied upon, since
//! everybody looks again after a while anyhow.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as Guarded, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use oneclock::clock;
use oneclock_core::Tick;
use tokio::sync::{Mutex, Notify};

use super::table::CHANNEL;
use crate::Pool;
use crate::link::Conn;

/// The pause before a server that gives no listening connection is asked for one again, doubled each time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_AT_MOST: Duration = Duration::from_secs(30);

/// For how long consumers that were seen to be behind are taken to be.
const BEHIND: Duration = Duration::from_millis(100);

/// Who listens, and who is woken.
#[derive(Default)]
pub(super) struct Wakes {
    listening: Mutex<Option<Arc<Conn>>>,
    not_before: Guarded<Option<(Tick, Duration)>>,
    behind_until: Guarded<Option<Tick>>,
    telling: Mutex<()>,
    is_told_next: AtomicBool,
    pub(super) woken: Notify,
}

/// Somebody waits for his turn to tell, until he has it or leaves.
struct Next<'a>(&'a AtomicBool);

// === Wakes ===

impl Wakes {
    /// Begins to listen, where nobody does. True if it has just begun: what came before was not heard, so look once more.
    pub(super) async fn begin(&self, pool: &Pool, queue: &str, within: Duration) -> bool {
        let Ok(mut listening) = self.listening.try_lock() else { return false };
        let is_there = listening.as_ref().is_some_and(|conn| !conn.is_closed());
        if is_there || self.is_too_early() {
            return false;
        }
        *listening = None;
        let listened = tokio::time::timeout(within, listen(pool, queue)).await;
        if let Ok(Some(conn)) = listened {
            *listening = Some(conn);
            self.pause(None);
            return true;
        }
        let pause = self.pauses().map_or(PAUSE, |(_, pause)| (pause * 2).min(PAUSE_AT_MOST));
        self.pause(Some((clock::now() + pause, pause)));
        tracing::warn!(queue, "no connection listens for new jobs: they are looked for again and again instead");
        false
    }

    /// Forgets what was heard until now, before a look; whoever else waits looks too.
    pub(super) fn forget(&self) {
        let Ok(listening) = self.listening.try_lock() else { return };
        let Some(conn) = &*listening else { return };
        let mut was_told = false;
        while let Some(Some(_)) = conn.inbox.next().now_or_never() {
            was_told = true;
        }
        if was_told {
            self.woken.notify_waiters();
        }
    }

    /// Waits for a notification, for all who wait. Never over where nobody listens.
    pub(super) async fn next(&self) {
        let mut listening = self.listening.lock().await;
        let Some(conn) = listening.clone() else {
            drop(listening);
            return std::future::pending().await;
        };
        if conn.inbox.next().await.is_some() {
            conn.inbox.clear();
        } else {
            *listening = None; // its connection is gone
        }
        self.woken.notify_waiters();
    }

    /// Tells whoever waits of what was just published, by `tell`. One at a time, and whatever is published before somebody begins
    /// to is told by him: where many publish at once, few tell.
    pub(super) async fn tell(&self, tell: impl AsyncFnOnce()) {
        if self.is_told_next.swap(true, Ordering::AcqRel) {
            return;
        }
        let next = Next(&self.is_told_next);
        let _turn = self.telling.lock().await;
        drop(next); // what is published from here on is told by somebody else
        tell().await;
    }

    /// Whether consumers were behind a moment ago, so that nobody needs to be told, nor the server be asked.
    pub(super) fn are_behind(&self) -> bool {
        let until = *self.behind_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| clock::now() < until)
    }

    pub(super) fn were_behind(&self) {
        *self.behind_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock::now() + BEHIND);
    }

    fn is_too_early(&self) -> bool {
        self.pauses().is_some_and(|(until, _)| clock::now() < until)
    }

    fn pauses(&self) -> Option<(Tick, Duration)> {
        *self.not_before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause(&self, until: Option<(Tick, Duration)>) {
        *self.not_before.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

async fn listen(pool: &Pool, queue: &str) -> Option<Arc<Conn>> {
    let conn = pool.shared().aside().await.ok()?;
    let channel: String = conn.client.query_one(CHANNEL, &[&queue]).await.ok()?.try_get(0).ok()?;
    conn.client.batch_execute(&format!("LISTEN \"{channel}\"")).await.ok()?;
    Some(Arc::new(conn))
}
