//! Whether a queue stands.
//!
//! Decides by the shortest that it was in each span of 100 ms: a burst leaves a long queue and soon a short one; where even the
//! shortest would take too long to serve, more comes than goes. Over once the queue is empty.

use std::time::Duration;

use crate::Tick;

/// In how long a good queue is short once.
const SPAN: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    span: Option<(Tick, Duration)>, // when it began, and the shortest in it
    on: bool,
}

impl Standing {
    pub(super) fn is_on(self) -> bool {
        self.on
    }

    /// Somebody was served, and those that still wait take this long to serve.
    pub(super) fn takes(&mut self, takes: Duration, soon: Duration, now: Tick) {
        let (began, shortest) = self.span.unwrap_or((now, takes));
        let shortest = shortest.min(takes);
        if now.since(began) < SPAN {
            self.span = Some((began, shortest));
            return;
        }
        self.on |= shortest > soon;
        self.span = None;
    }

    pub(super) fn emptied(&mut self) {
        *self = Self::default();
    }
}
