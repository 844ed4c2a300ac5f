//! The clock that a declared stream has beside its total limit: how long it may be quiet.
//!
//! Decides when it was quiet for too long, and how the error says which limit it was, or how to declare a stream (contract S2).

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::{BoundBy, Deadline, Tick};
use tokio::time::Sleep;

/// Whether a body is a stream, and with which clock of its own.
pub(super) enum Stream {
    /// No stream, or none that anybody knows of.
    No,
    /// It looks like one, and its route was not declared streaming (contract S2).
    Undeclared,
    /// It ends when nothing came for this long.
    Declared(Box<Quiet>),
}

/// How long a stream may be quiet, and since when it is.
pub(super) struct Quiet {
    limit: Duration,
    since: Tick,
    timer: Option<Pin<Box<Sleep>>>,
}

// === Stream ===

impl Stream {
    /// One that may be quiet for `limit`.
    pub(super) fn declared(limit: Duration, now: Tick) -> Self {
        Self::Declared(Box::new(Quiet { limit, since: now, timer: None }))
    }

    /// Ready when nothing came for too long.
    pub(super) fn poll_quiet(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self::Declared(quiet) = self else { return Poll::Pending };
        let end = Deadline::after(quiet.since, quiet.limit);
        let due = clock::instant(end);
        let timer = quiet.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        while !end.is_past(clock::now()) {
            ready!(timer.as_mut().poll(cx));
            timer.as_mut().reset(due); // fired within its grain
        }
        Poll::Ready(())
    }

    /// A frame came.
    pub(super) fn went_on(&mut self) {
        if let Self::Declared(quiet) = self {
            quiet.since = clock::now();
            quiet.timer = None;
        }
    }

    /// How long it may be quiet, if it was for that long.
    pub(super) fn idle_limit(&self) -> Option<Duration> {
        match self {
            Self::Declared(quiet) => Some(quiet.limit).filter(|limit| clock::now().since(quiet.since) >= *limit),
            Self::No | Self::Undeclared => None,
        }
    }

    /// How to change what ended it; `total` is what made its other limit, which does not move.
    pub(super) fn hint(&self, total: BoundBy) -> Option<String> {
        match self {
            Self::No => None,
            Self::Undeclared => Some(
                "an event stream needs a route that is declared so: .route(\"/events\", |limits| limits.streaming(idle, \
                 total))"
                    .to_owned(),
            ),
            Self::Declared(_) => {
                let limit = match total {
                    _ if self.idle_limit().is_some() => "it was the idle limit of the stream",
                    BoundBy::Caller => "it was the caller's deadline, which covers the stream",
                    _ => "it was the total limit of the stream",
                };
                Some(limit.to_owned())
            }
        }
    }
}
