//! What the world asks of whoever stands before a tier's slots. The baselines and the core's admission answer it alike.

use std::time::Duration;

use oneclock_core::{Importance, Tick};

/// One attempt at one tier, by the number that the world gave it.
pub(crate) type Id = usize;

/// What an arriving attempt says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) id: Id,
    pub(crate) class: usize,
    pub(crate) peer: u64,
    pub(crate) importance: Importance,
    /// Absent where no deadline travels.
    pub(crate) deadline: Option<Tick>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    /// It has a slot.
    Run,
    /// It waits; at the moment given, if it waits still, the control wants to look at it again.
    Wait(Option<Tick>),
    Refuse,
}

/// What becomes of one that waited.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    Start(Id),
    /// Answered without having been started.
    Drop(Id),
}

/// How a run came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Served,
    /// What it called did not answer as it should.
    Failed,
    /// Nobody waited for it any more: it was stopped in the middle.
    Cut,
}

pub(crate) trait Control {
    /// An attempt is there. Others that it drives out go into `next`.
    fn arrive(&mut self, asked: &Asked, now: Tick, next: &mut Vec<Next>) -> Verdict;

    /// The slot of `id`, held for `ran`, is free again. In a chain its answer is still to come.
    fn freed(&mut self, id: Id, ran: Duration, how: How, now: Tick, next: &mut Vec<Next>);

    /// The answer of `id` is there, `took` after it was started, with all that it called.
    fn answered(&mut self, _id: Id, _took: Duration, _how: How, _now: Tick) {}

    /// Whoever asked for `id`, which waits, has gone.
    fn left(&mut self, id: Id, now: Tick, next: &mut Vec<Next>);

    /// The moment that [`Verdict::Wait`] named, and `id` waits still. Another moment, if it should be looked at again.
    fn look(&mut self, _id: Id, _now: Tick, _next: &mut Vec<Next>) -> Option<Tick> {
        None
    }

    /// What it did, for whoever looks into a run.
    fn told(&self) -> String {
        String::new()
    }
}
