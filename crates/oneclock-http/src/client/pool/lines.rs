//! The connections of HTTP/1.1: one call at a time on each, kept between calls.
//!
//! Decides when one is clean enough to be kept, and when its time without a call is up.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Poll, ready};
use std::time::Duration;

use hyper::client::conn::http1;
use oneclock::clock;
use oneclock_core::Deadline;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::{Exchanged, GOODBYE, Io, Pool, Turn, said};
use crate::client::upload::Sending;

/// One HTTP/1.1 connection without a call, or with the one of its holder. Dropping it closes the socket.
pub(in crate::client) struct Line {
    id: u64,
    sender: http1::SendRequest<Sending>,
    back: mpsc::Sender<Busy>,
    pub(in crate::client) reused: bool,
    _driver: AbortOnDropHandle<()>,
}

/// A line on which an answer is under way. Its own task holds it until the answer is over.
struct Busy {
    line: Line,
    turn: Turn,
    until: Instant,
}

// === Pool ===

impl Pool {
    /// The line that was used last, of those that still stand.
    pub(in crate::client) fn idle(&self) -> Option<Line> {
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
    pub(in crate::client) async fn line(self: &Arc<Self>, io: Io) -> hyper::Result<Line> {
        let (sender, connection) = http1::handshake(io).await?;
        let id = self.next_id();
        let (back, answering) = mpsc::channel(1);
        let driver = drive_line(connection, answering, Arc::downgrade(self), id, self.settings.idle_timeout);
        Ok(Line { id, sender, back, reused: false, _driver: AbortOnDropHandle::new(tokio::spawn(driver)) })
    }
}

// === Line ===

impl Line {
    /// Sends. The future gives the request back if it was not written.
    pub(in crate::client) fn send(
        &mut self,
        request: http::Request<Sending>,
    ) -> impl Future<Output = Exchanged> + Send + 'static + use<> {
        self.sender.try_send_request(request)
    }

    /// The head of an answer is there: the line's own task waits for the end of it, which `deadline` bounds, and keeps
    /// the line if it is clean then. One whose answer is not read to its end, hyper closes.
    pub(in crate::client) fn answering(self, turn: Turn, deadline: Deadline) {
        let back = self.back.clone();
        let until = clock::instant(deadline) + GOODBYE;
        // Its task is gone if this fails, and so is the connection.
        let _ = back.try_send(Busy { line: self, turn, until });
    }
}

/// Keeps one timer for both limits, of an answer and of the time without a call: it is moved only when it would fire too
/// late; too early, it is asked again. So most calls do not touch it.
async fn drive_line(
    connection: http1::Connection<Io, Sending>,
    mut answering: mpsc::Receiver<Busy>,
    pool: Weak<Pool>,
    id: u64,
    idle_timeout: Duration,
) {
    let mut connection = pin!(connection);
    let mut timer = pin!(sleep_until(clock::instant(Deadline::after(clock::now(), idle_timeout))));
    let (mut answer, mut idle_until): (Option<Busy>, Option<Instant>) = (None, None);
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                said(ended);
                return Poll::Ready(());
            }
            let settled = answer.as_mut().map(|busy| busy.line.sender.poll_ready(cx));
            match settled {
                Some(Poll::Ready(settled)) => {
                    let (Ok(()), Some(Busy { line, turn, .. }), Some(pool)) = (settled, answer.take(), pool.upgrade())
                    else {
                        return Poll::Ready(());
                    };
                    pool.keep(line);
                    idle_until = Some(clock::instant(Deadline::after(clock::now(), idle_timeout)));
                    drop(turn); // only now, so that who is next finds it
                    continue;
                }
                Some(Poll::Pending) => {}
                None => {
                    if let Poll::Ready(Some(busy)) = answering.poll_recv(cx) {
                        answer = Some(busy);
                        continue;
                    }
                }
            }
            let Some(due) = answer.as_ref().map(|busy| busy.until).or(idle_until) else { return Poll::Pending };
            if timer.deadline() > due {
                timer.as_mut().reset(due);
            }
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() < due {
                timer.as_mut().reset(due);
                continue;
            }
            idle_until = None;
            if answer.is_some() || pool.upgrade().and_then(|pool| pool.remove_idle(id)).is_some() {
                return Poll::Ready(());
            }
        }
    })
    .await;
    drop(pool.upgrade().and_then(|pool| pool.remove_idle(id)));
}
