//! A place and a turn without any request around them: what waiting costs beside not waiting.
//!
//! Decides what is one round: one place is asked for, held and given back. Where it waits, the place was somebody else's, who
//! gives it back then; with so many others waiting before it.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use oneclock::admission::{Asked, Turn, Wants};
use oneclock::{Admission, Operation, Place, clock};
use oneclock_core::admission::Settings;
use oneclock_core::{Deadline, Importance};

use crate::cases::Failed;

/// One round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// A place is free.
    Free,
    /// It waits, and is handed the place.
    Waits,
    /// The same, with a hundred that wait beside it.
    WaitsInLine,
    /// Tokio's semaphore, free.
    SemaphoreFree,
    /// Tokio's semaphore, waited for.
    SemaphoreWaits,
}

impl Round {
    pub(crate) const ALL: [Self; 5] =
        [Self::Free, Self::Waits, Self::WaitsInLine, Self::SemaphoreFree, Self::SemaphoreWaits];

    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Free => "Admission: a free place",
            Self::Waits => "Admission: a place that is waited for",
            Self::WaitsInLine => "Admission: the same, a hundred others wait",
            Self::SemaphoreFree => "tokio Semaphore: free",
            Self::SemaphoreWaits => "tokio Semaphore: waited for",
        }
    }

    pub(crate) fn drive(self, times: u32) -> Result<(), Failed> {
        let admission = Admission::to("pool", Settings::fixed(1))?;
        let operation = Operation::begin("order", Duration::from_secs(3_600));
        let semaphore = tokio::sync::Semaphore::new(1);
        let mut others = Vec::new();
        let mut held = match self {
            Self::Waits | Self::WaitsInLine => Some(place(ask(&admission))?),
            Self::Free | Self::SemaphoreFree | Self::SemaphoreWaits => None,
        };
        if self == Self::WaitsInLine {
            others = (0..100).map(|_| turn(ask(&admission))).collect::<Result<_, _>>()?;
        }
        let mut earliest = 0;
        for _ in 0..times {
            match self {
                Self::Free => drop(black_box(place(ask(&admission))?)),
                Self::Waits | Self::WaitsInLine => {
                    let mut turn = turn(ask(&admission))?;
                    if turn.poll(&operation, &mut nobody()).is_ready() {
                        return Err("the place was taken".into());
                    }
                    drop(held.take());
                    // The earliest deadline is first: one of the line, whose place in it this one takes. As in a runtime, each is
                    // polled when it begins to wait and when it is woken.
                    if let Some(other) = others.get_mut(earliest) {
                        std::mem::swap(other, &mut turn);
                        earliest = (earliest + 1) % 100;
                    }
                    let got = turn.poll(&operation, &mut nobody());
                    match got {
                        Poll::Ready(Ok(place)) => held = Some(black_box(place)),
                        Poll::Ready(Err(why)) => return Err(format!("{why:?}").into()),
                        Poll::Pending => return Err("the place was given back".into()),
                    }
                }
                Self::SemaphoreFree => drop(black_box(semaphore.try_acquire()?)),
                Self::SemaphoreWaits => {
                    let taken = semaphore.try_acquire()?;
                    let mut waits = pin!(semaphore.acquire());
                    if waits.as_mut().poll(&mut nobody()).is_ready() {
                        return Err("the permit was taken".into());
                    }
                    drop(taken);
                    if waits.as_mut().poll(&mut nobody()).is_pending() {
                        return Err("the permit was given back".into());
                    }
                }
            }
        }
        Ok(())
    }
}

fn nobody() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn ask(admission: &Admission) -> Asked {
    let now = clock::now();
    let deadline = Deadline::after(now, Duration::from_secs(60));
    admission.ask(&Wants { class: Some("/orders/{id}"), deadline, importance: Importance::Required, peer: 7 }, now)
}

fn place(asked: Asked) -> Result<Place, Failed> {
    match asked {
        Asked::Has(place, _) => Ok(place),
        other => Err(format!("no place: {other:?}").into()),
    }
}

fn turn(asked: Asked) -> Result<Turn, Failed> {
    match asked {
        Asked::Waits(turn) => Ok(turn),
        other => Err(format!("no turn: {other:?}").into()),
    }
}
