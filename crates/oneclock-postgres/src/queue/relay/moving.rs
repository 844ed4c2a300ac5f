//! How a relay moves what it took together.
//!
//! Decides when each job's expiry is looked at (before it is published, contract Q3: what is certainly of no use any more ends here,
//! counted, and all else is published, since whoever takes it looks again), that nothing begins after the lease, and what is said
//! of each: that it is over, that it comes again, or that somebody has to look at it.

use std::collections::VecDeque;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use oneclock::{Operation, Outcome, Stage, clock};
use oneclock_core::Tick;
use oneclock_core::expiry::{Judged, Lease, Why, judge};
use oneclock_queue::{Broker, Dead, Message, Settle};

use super::{Flow, NAME, Relay, add, pause_after};
use crate::error::PgError;
use crate::queue::table::{self, Mine, Taken};

/// What was taken together, and how far it is.
struct Batch {
    lease: Lease,
    /// Not begun, in order.
    ahead: VecDeque<Taken>,
    /// Being published.
    under_way: Vec<Mine>,
    /// Over, and not written yet.
    over: Vec<Mine>,
}

/// What came of one job.
enum Moved {
    /// It is over: the broker has it, or it is of no use any more.
    Over,
    /// Somebody has to look at it.
    Dead(Why, Option<String>),
    /// The broker answers, and did not take it.
    Refused,
    /// The broker is away.
    Away,
}

/// The batch cannot go on.
pub(super) enum Halt {
    /// The broker did not take this one, and nothing may overtake it.
    Refused { mine: Mine, attempt: u32 },
    /// The broker is away.
    Away,
    /// Somebody else may have the jobs by now.
    Lost,
    /// The outbox could not be told.
    Outbox(PgError),
    /// It is to stop.
    Stopped,
}

impl<B: Broker> Relay<B> {
    /// Moves what was taken, as far as it goes, and says what became of it.
    pub(super) async fn move_all(
        &self,
        me: &str,
        (asked, taken): (Tick, Vec<Taken>),
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Halt> {
        let lease = Lease::new(self.from.0.lease, asked);
        let mut batch = Batch { lease, ahead: taken.into(), under_way: Vec::new(), over: Vec::new() };
        let mut publishing = FuturesUnordered::new();
        let mut halted = None;
        loop {
            while halted.is_none() && publishing.len() < self.flow.at_most() {
                let Some(next) = batch.ahead.front() else { break };
                // What was tried before goes alone: in company it might fail for another's sake, and nobody would know for whose.
                let alone = next.attempt > 1;
                if alone && !publishing.is_empty() {
                    break;
                }
                if stop.as_mut().now_or_never().is_some() {
                    halted = Some(Halt::Stopped);
                } else if let Err(halt) = self.keep(me, &mut batch).await {
                    halted = Some(halt);
                } else if let Some(next) = batch.ahead.pop_front() {
                    batch.under_way.push(next.mine);
                    publishing.push(self.move_one(next, batch.lease.until()));
                }
                if alone {
                    break;
                }
            }
            let Some((taken, moved)) = publishing.next().await else { break };
            batch.under_way.retain(|mine| *mine != taken.mine);
            if let Err(halt) = self.became(taken, moved, &mut batch).await {
                halted.get_or_insert(halt);
            }
        }
        if matches!(halted, Some(Halt::Lost)) {
            return Err(Halt::Lost); // nothing is said of what is not ours
        }
        self.write(&mut batch.over).await?;
        let Some(halt) = halted else { return Ok(()) };
        if let Halt::Refused { mine, .. } = halt {
            self.give_back(&[mine], Duration::ZERO, true).await?;
        }
        let rest: Vec<Mine> = batch.ahead.iter().map(|taken| taken.mine).collect();
        self.give_back(&rest, Duration::ZERO, false).await?; // in their old places
        Err(halt)
    }

    /// What is said of a job whose publication came to an end.
    async fn became(&self, taken: Taken, moved: Moved, batch: &mut Batch) -> Result<(), Halt> {
        match moved {
            Moved::Over => batch.over.push(taken.mine),
            Moved::Dead(why, detail) => self.bury(&taken, why, detail).await?,
            Moved::Refused => match self.flow {
                Flow::InOrder => return Err(Halt::Refused { mine: taken.mine, attempt: taken.attempt }),
                Flow::AtATime(_) => self.give_back(&[taken.mine], pause_after(taken.attempt), true).await?,
            },
            Moved::Away => {
                batch.ahead.push_front(taken);
                return Err(Halt::Away);
            }
        }
        Ok(())
    }

    /// Renews the leases when that is due. What is over is written before, so that little is published twice after a crash.
    async fn keep(&self, me: &str, batch: &mut Batch) -> Result<(), Halt> {
        let now = clock::now();
        if !batch.lease.holds(now) {
            return Err(Halt::Lost);
        }
        if now < batch.lease.heartbeat_at() {
            return Ok(());
        }
        self.write(&mut batch.over).await?;
        let ours = batch.ahead.iter().map(|taken| taken.mine).chain(batch.under_way.iter().copied());
        let ours: Vec<Mine> = ours.collect();
        let (queue, lease) = (&self.from.0, self.from.0.lease);
        let renewed = async {
            let mut client = self.from.client("renew").await?;
            let is_ours = table::renew_relay(&mut client, queue.name.as_str(), me, lease).await?;
            Ok(is_ours && table::renew(&mut client, &ours, lease).await? == ours.len())
        };
        match renewed.await {
            Ok(true) => {
                batch.lease.renewed(now);
                Ok(())
            }
            Ok(false) => Err(Halt::Lost),
            Err(error) => Err(Halt::Outbox(error)),
        }
    }

    /// Publishes one job before `until`, or sees that it is over.
    async fn move_one(&self, taken: Taken, until: Tick) -> (Taken, Moved) {
        let message = &taken.message;
        match judge(&message.stamp, clock::wall(), self.uncertainty.get(), Duration::ZERO) {
            Judged::Discard(why) => {
                add(&self.totals.discarded);
                self.told(message, why, "discarded");
                return (taken, Moved::Over);
            }
            // One that cannot be understood would be left out of the message, which then never expires.
            Judged::DeadLetter(why @ (Why::Expired | Why::ExpiryUnreadable)) => {
                return (taken, Moved::Dead(why, None));
            }
            // What may have expired is looked at again by whoever takes it: publishing it does nothing irreversible.
            Judged::Run(_) | Judged::Hold { .. } | Judged::DeadLetter(_) => {}
        }
        let within = self.within.min(until.since(clock::now()));
        let published = Operation::begin(NAME, within).run(self.to.publish(message)).await;
        let (outcome, said) = match published {
            Ok(Ok(())) => {
                self.totals.was_published();
                return (taken, Moved::Over);
            }
            Ok(Err(error)) => (error.outcome, in_full(&error)),
            Err(ended) => (Outcome::Unknown { stage: Stage::Wait }, in_full(&ended)),
        };
        if outcome == Outcome::Failed {
            return (taken, Moved::Dead(Why::Rejected, Some(said)));
        }
        add(&self.totals.failed);
        let is_there = match outcome {
            Outcome::NotSent => false,
            Outcome::Rejected => true,
            // It, or the broker? Something else is asked to know.
            _ => tokio::time::timeout(self.within, self.to.answers()).await.unwrap_or(false),
        };
        if is_there && taken.attempt >= self.attempts && self.gives_up() {
            return (taken, Moved::Dead(Why::AttemptsExhausted, Some(said)));
        }
        tracing::warn!(
            outbox = %self.from.0.name, to = %self.to.name(), message = %message.id, attempt = taken.attempt, counts = is_there,
            "a job could not be published, and is tried again: {said}"
        );
        (taken, if is_there { Moved::Refused } else { Moved::Away })
    }

    async fn bury(&self, taken: &Taken, why: Why, detail: Option<String>) -> Result<(), Halt> {
        let detail = detail.map(|detail| Dead::detail_of(&detail));
        let dead = Dead { why, detail, at: clock::wall(), attempts: taken.attempt };
        let buried = self.from.settle(&[taken.mine], &Settle::Dead(dead)).await.map_err(Halt::Outbox)?;
        if buried == 0 {
            return Err(Halt::Lost);
        }
        add(&self.totals.dead);
        self.told(&taken.message, why, "put into the dead lane");
        Ok(())
    }

    async fn write(&self, over: &mut Vec<Mine>) -> Result<(), Halt> {
        if !over.is_empty() {
            self.from.settle(over, &Settle::Gone).await.map_err(Halt::Outbox)?;
            over.clear();
        }
        Ok(())
    }

    async fn give_back(&self, mine: &[Mine], after: Duration, counted: bool) -> Result<(), Halt> {
        if !mine.is_empty() {
            self.from.settle(mine, &Settle::Again { after, counted }).await.map_err(Halt::Outbox)?;
        }
        Ok(())
    }

    fn told(&self, message: &Message, why: Why, end: &str) {
        tracing::info!(
            outbox = %self.from.0.name, message = %message.id, kind = %message.kind, reason = why.as_str(),
            owner = message.stamp.owner.as_deref(), "a job of the outbox was {end}: {why}"
        );
    }
}

/// An error with all that is behind it: who reads a dead letter has nothing else.
fn in_full(error: &dyn Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let text = source.to_string();
        if !said.contains(&text) {
            said.push_str(": ");
            said.push_str(&text);
        }
        next = source.source();
    }
    said
}
