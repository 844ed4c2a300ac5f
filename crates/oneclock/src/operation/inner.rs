//! The life of one operation: which ending counts, who is woken by it, and when its one event is sent.
//!
//! Decides that the first ending wins, its own, that of what it is a part of, or the clock's (contract X4), asked lazily and
//! in loops: a line of thousands must not become a stack of thousands.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use oneclock_core::ending::Dropped;
use oneclock_core::{Cause, Ending, Stage, Tick};
use tokio_util::sync::CancellationToken;

use super::{Inner, Kind, LIVE, Operation};
use crate::clock;
use crate::events::{self, Event, OperationEnded, Slot};
use crate::shutdown::Shutdown;

impl Inner {
    /// The shutdown whose grace ends it, besides what ends the operation it is a part of. What our own code begins belongs
    /// to the process's unless it was given another; a step that must finish, and so its parts, only remembers its
    /// shutdown, for who owns its tasks (contract X10).
    pub(super) fn ending_shutdown(&self) -> Option<&Shutdown> {
        match self.kind {
            Kind::Request | Kind::Stream => self.context.shutdown.as_ref(),
            Kind::Begun | Kind::Detached => Some(self.context.shutdown.as_ref().unwrap_or_else(|| Shutdown::process())),
            Kind::Child | Kind::MustFinish => None,
        }
    }

    /// The operations above it, the nearest first.
    pub(super) fn above(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(self.parent.as_ref(), |above| above.0.parent.as_ref()).map(|above| &*above.0)
    }

    /// What an observer put beside it, else beside the nearest of those above it, else of what that was begun from.
    pub(super) fn nearest_slot(&self) -> &Slot {
        let mut all = std::iter::once(self).chain(self.above());
        all.find_map(|inner| inner.slot.get()).unwrap_or(&self.context.begun_from)
    }

    /// Where it is: what a call or a layer said last; where that is no more than work, a value on its way through a queue.
    pub(super) fn stage(&self) -> Stage {
        match self.stage_said() {
            Stage::Work if self.on_the_way.load(Ordering::Relaxed) > 0 => Stage::Queue,
            stage => stage,
        }
    }

    pub(super) fn stage_said(&self) -> Stage {
        Stage::from_code(self.stage.load(Ordering::Relaxed))
    }

    pub(super) fn is_over(&self) -> bool {
        !self.life.is_live()
    }

    /// Whether what it belongs to is over: an operation above it, or the grace of a shutdown, its own or one of theirs.
    pub(super) fn is_cancelled(&self) -> bool {
        let is_grace_over = |inner: &Self| inner.ending_shutdown().is_some_and(Shutdown::is_grace_over);
        is_grace_over(self) || self.above().any(|above| above.is_over() || is_grace_over(above))
    }

    /// Whether what it belongs to was told to shut down.
    pub(super) fn is_shutting_down(&self) -> bool {
        std::iter::once(self).chain(self.above()).any(|inner| {
            let shutdown = inner.ending_shutdown().or(inner.context.shutdown.as_ref());
            shutdown.is_some_and(Shutdown::is_signalled)
        })
    }

    pub(super) fn ending_at(&self, now: Tick) -> Option<Ending> {
        if !self.life.is_live() {
            return self.life.ending(); // read after: what is not live does not change any more
        }
        // Asked together: what is past its deadline is past it, unless what is above is known to have ended before that.
        let past = self.budget.deadline.is_past(now);
        let cancelled = self.is_cancelled();
        if !past && !cancelled {
            return None;
        }
        if cancelled {
            // From above to below, in a loop: a line of thousands must not become a stack of thousands.
            let live: Vec<&Self> = self.above().take_while(|above| !above.is_over()).collect();
            for above in live.into_iter().rev() {
                above.end_by_what_is_above(now);
            }
        }
        self.end_by_what_is_above(now);
        self.life.ending()
    }

    /// Ends it if it must: for the reason of the operation above it, which knows its own, or by its deadline, or by the
    /// grace of its shutdown.
    pub(super) fn end_by_what_is_above(&self, now: Tick) {
        let deadline = self.budget.deadline;
        let parent = self.parent.as_ref().map(|parent| &*parent.0);
        let (cause, at) = match parent.and_then(|parent| parent.life.ending()) {
            Some(ending) if !deadline.is_past(now) || ending.at < deadline.tick() => (ending.cause, ending.at),
            _ if deadline.is_past(now) => (Cause::Deadline, now),
            _ if parent.is_some_and(Self::is_over) => (Cause::CalledOff, now), // it is needed no longer (contract N5)
            _ if self.ending_shutdown().is_some_and(Shutdown::is_grace_over) => (Cause::Shutdown, now),
            _ => return,
        };
        self.end_at(cause, at);
    }

    pub(super) fn end_at(&self, cause: Cause, at: Tick) -> bool {
        self.end(Ending { cause, bound: self.budget.bound.by, stage: self.stage(), at })
    }

    pub(super) fn end(&self, ending: Ending) -> bool {
        let first = self.life.end(ending);
        if first {
            self.wake();
            self.run_left(Some(ending));
        }
        first
    }

    /// Ends it with the cause that being dropped before its end has (contract X4). Nothing if it is over.
    pub(super) fn end_as_dropped(&self) {
        if self.is_over() {
            return; // the usual case, which needs no clock
        }
        let now = clock::now();
        if self.ending_at(now).is_some() {
            return;
        }
        let dropped = Dropped {
            panicking: std::thread::panicking() || self.panicked.load(Ordering::Acquire),
            shutting_down: self.is_shutting_down(),
            remaining: self.budget.deadline.remaining(now),
            bound: self.budget.bound.by,
        };
        self.end_at(dropped.cause(), now);
    }

    /// The hooks that were left here run if they are due, and go.
    pub(super) fn run_left(&self, ending: Option<Ending>) {
        let Some(left) = self.left.get() else { return };
        let hooks = std::mem::take(&mut *left.lock().unwrap_or_else(PoisonError::into_inner));
        for hook in hooks {
            hook.over(ending);
        }
    }

    /// Cancelled once it is over, ended early or done. For whoever waits for that.
    pub(super) fn token(&self) -> &CancellationToken {
        if self.token.get().is_none() {
            // Those above the parent first, in a loop: a line of thousands must not become a stack of thousands.
            let without: Vec<&Self> = self.above().skip(1).take_while(|above| above.token.get().is_none()).collect();
            for above in without.into_iter().rev() {
                above.made_token();
            }
        }
        self.made_token()
    }

    pub(super) fn made_token(&self) -> &CancellationToken {
        let token = self.token.get_or_init(|| match (&self.parent, self.ending_shutdown()) {
            (Some(parent), own) => {
                let token = parent.0.made_token().child_token();
                if let Some(own) = own.filter(|own| !parent.0.is_ended_by(own)) {
                    own.also_ends(&token);
                }
                token
            }
            (None, Some(shutdown)) => shutdown.child_token(),
            (None, None) => CancellationToken::new(),
        });
        // Asked after the swap, not before: of two that swap, the second sees what the first did.
        self.told_when_over.swap(true, Ordering::AcqRel);
        if self.is_over() {
            token.cancel();
        }
        token
    }

    /// Whether the grace of `shutdown` ends it or something above it.
    pub(super) fn is_ended_by(&self, shutdown: &Shutdown) -> bool {
        std::iter::once(self).chain(self.above()).any(|inner| inner.ending_shutdown().is_some_and(|it| it.is(shutdown)))
    }

    /// It is over: whoever waits on its token is woken. Who makes one only now finds out by itself.
    pub(super) fn wake(&self) {
        if self.told_when_over.swap(true, Ordering::AcqRel)
            && let Some(token) = self.token.get()
        {
            token.cancel();
        }
    }

    /// It is over: nothing below it goes on, and its one event is sent.
    pub(super) fn close(&self, now: impl FnOnce() -> Tick) {
        if self.told.swap(true, Ordering::AcqRel) {
            return;
        }
        LIVE.fetch_sub(1, Ordering::Relaxed);
        self.wake();
        self.run_left(self.life.ending());
        if events::is_observed(self.context.observer.as_ref()) {
            // A copy, so that the observer is called without the lock and may ask for the ledger itself.
            let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let nothing = Slot::default();
            let ended = OperationEnded {
                operation: &self.name,
                kind: self.kind,
                parent: self.parent.as_ref().map(Operation::name),
                route: self.context.route.as_ref(),
                deadline: self.budget.deadline,
                bound: self.budget.bound,
                ending: self.life.ending(),
                answered: self.answered.get().copied(),
                importance: self.context.importance,
                elapsed: now().since(self.began),
                ledger: &ledger,
                goes_on: self.goes_on.load(Ordering::Acquire),
                slot: self.slot.get().unwrap_or(&nothing),
                nearest_slot: self.nearest_slot(),
            };
            events::send(self.context.observer.as_ref(), &Event::Ended(&ended));
        }
    }

    /// Its last clone goes. One without a driver is over here: it was done, unless somebody ended it, its time was up, or
    /// its work had been dropped unfinished.
    pub(super) fn let_go(&self) {
        if self.life.is_live() {
            if self.unfinished.load(Ordering::Acquire) {
                self.end_as_dropped();
            }
            let now = clock::now();
            if self.budget.deadline.is_past(now) {
                self.end_at(Cause::Deadline, now);
            }
            self.life.finish(now);
        }
        self.close(clock::now);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.let_go();
        // Those above that go with it, in a loop: a line of thousands must not become a stack of thousands.
        let mut parent = self.parent.take();
        while let Some(mut above) = parent.and_then(|parent| Arc::into_inner(parent.0)) {
            above.let_go();
            parent = above.parent.take();
        }
    }
}
