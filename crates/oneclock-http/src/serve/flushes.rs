//! When what an answer has handed over is on its way, so that the answer may break off.
//!
//! Decides that this is behind one whole turn of the connection that began afterwards, and left nothing that the socket does not
//! take. A reset throws away whatever h2 still holds of its stream, the head too, and over HTTP/1 hyper flushes nothing once a
//! body has failed: the caller would get an end without an answer, and could not tell it from a request that nobody looked at.
//! To poll once more would not do: the connection may be in the middle of a turn on another thread.

use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

use super::link::Flag;

/// Those on one connection that wait for a flush: at most one for each of its streams.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    wanted: Flag, // so that a turn that nobody waits for costs no lock
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
}

/// Told when it is flushed, or when the connection is gone.
pub(super) type Flushed = oneshot::Receiver<()>;

/// Those that wait for the end of one turn.
#[must_use = "they wait for its end"]
pub(super) struct Turn(Vec<oneshot::Sender<()>>);

impl Flushes {
    /// Waits for the next turn to begin, and to end with nothing left. Whoever asks sees to it that there is one.
    pub(super) fn next(&self) -> Flushed {
        let (sender, flushed) = oneshot::channel();
        self.wait(vec![sender]);
        flushed
    }

    /// The connection is about to be polled.
    pub(super) fn begin(&self) -> Turn {
        if !self.wanted.is_set() {
            return Turn(Vec::new());
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.wanted.set(false);
        Turn(std::mem::take(&mut *waiting))
    }

    /// It was polled. What the socket did not take is waited for, which its own limit bounds.
    pub(super) fn end(&self, Turn(waited): Turn, stalled: bool) {
        if stalled && !waited.is_empty() {
            return self.wait(waited);
        }
        for sender in waited {
            let _ = sender.send(()); // or its stream is gone
        }
    }

    fn wait(&self, mut more: Vec<oneshot::Sender<()>>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.append(&mut more);
        self.wanted.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_before_is_no_flush_and_neither_is_what_stalls() {
        let flushes = Flushes::default();
        let under_way = flushes.begin();
        let mut flushed = flushes.next();
        flushes.end(under_way, false);
        assert!(flushed.try_recv().is_err(), "that turn may have been past its stream");
        let stalls = flushes.begin();
        flushes.end(stalls, true);
        assert!(flushed.try_recv().is_err(), "the socket took no more");
        let next = flushes.begin();
        flushes.end(next, false);
        assert_eq!(flushed.try_recv(), Ok(()));
        assert!(flushes.begin().0.is_empty());
    }
}
