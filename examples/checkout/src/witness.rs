//! What really happened: every execution at every service, and whether whoever wanted it was still there.
//!
//! It stands beside the services, not between them: neither way of keeping time knows or uses what is written here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::Tick;

use crate::purchase::{Service, Try};

/// Sees executions begin and end, and callers leave.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    executions: Vec<Execution>,
    left: BTreeMap<Try, Tick>,
}

/// A service at work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Execution {
    pub(crate) service: Service,
    pub(crate) of: Try,
    pub(crate) began: Tick,
    pub(crate) ended: Option<Tick>,
    pub(crate) end: End,
}

/// How an execution ended, as far as one can see from beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It ran to its end.
    Finished,
    /// It was stopped.
    Stopped,
    /// Whoever waited for it let go of it, and nobody told the server: it runs to its end there.
    Abandoned,
}

/// An execution in progress; over when dropped, finished if it says so.
#[derive(Debug)]
pub(crate) struct Working {
    witness: Arc<Witness>,
    index: usize,
    end: End,                   // unless it says otherwise
    at_least: Option<Duration>, // it runs on a server, whatever becomes of whoever waits for it
}

/// Work that was finished for nobody.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Zombies {
    pub(crate) finished: usize,
    pub(crate) time: Duration,
}

// === Witness ===

impl Witness {
    /// Whoever wanted this try has gone.
    pub(crate) fn left(&self, of: Try) {
        self.seen().left.entry(of).or_insert_with(clock::now);
    }

    pub(crate) fn has_left(&self, of: Try) -> bool {
        self.seen().left.contains_key(&of)
    }

    /// When whoever wanted this try went.
    pub(crate) fn left_at(&self, of: Try) -> Option<Tick> {
        self.seen().left.get(&of).copied()
    }

    pub(crate) fn begins(self: &Arc<Self>, service: Service, of: Try) -> Working {
        let mut seen = self.seen();
        seen.executions.push(Execution { service, of, began: clock::now(), ended: None, end: End::Stopped });
        Working { witness: Arc::clone(self), index: seen.executions.len() - 1, end: End::Stopped, at_least: None }
    }

    /// How often this service went to work.
    pub(crate) fn executions_at(&self, service: Service) -> usize {
        self.seen().executions.iter().filter(|execution| execution.service == service).count()
    }

    /// How often it finished that work.
    pub(crate) fn finished_at(&self, service: Service) -> usize {
        let finished = |execution: &&Execution| execution.service == service && execution.end == End::Finished;
        self.seen().executions.iter().filter(finished).count()
    }

    /// Everything that was done for this tap, in the order in which it began.
    pub(crate) fn executions_for(&self, tap: usize) -> Vec<Execution> {
        self.seen().executions.iter().filter(|execution| execution.of.tap == tap).copied().collect()
    }

    /// The work that ran to its end after its caller had left, and for how long it had gone on by then.
    pub(crate) fn zombies(&self) -> Zombies {
        let seen = self.seen();
        let mut zombies = Zombies::default();
        for execution in &seen.executions {
            let (Some(ended), Some(left)) = (execution.ended, seen.left.get(&execution.of)) else { continue };
            if execution.end != End::Stopped && *left < ended {
                zombies.finished += 1;
                zombies.time += ended.since((*left).max(execution.began));
            }
        }
        zombies
    }

    /// How many executions for this visit of a tap were at work at this moment.
    pub(crate) fn at_work_for(&self, tap: usize, visit: u32, at: Tick) -> usize {
        let at_work = |execution: &&Execution| {
            (execution.of.tap, execution.of.visit) == (tap, visit)
                && execution.began <= at
                && execution.ended.is_none_or(|ended| ended > at)
        };
        self.seen().executions.iter().filter(at_work).count()
    }

    pub(crate) fn still_at_work(&self) -> usize {
        let now = clock::now();
        let at_work = |execution: &&Execution| execution.ended.is_none_or(|ended| ended > now);
        self.seen().executions.iter().filter(at_work).count()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Working {
    /// Its statement was sent to a server that nobody will tell of an end, and takes as long as this: at least, for it may
    /// wait behind others there.
    pub(crate) fn sent_for(mut self, takes: Duration) -> Self {
        (self.end, self.at_least) = (End::Abandoned, Some(takes));
        self
    }

    pub(crate) fn finished(mut self) {
        (self.end, self.at_least) = (End::Finished, None);
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut seen = self.witness.seen();
        let execution = &mut seen.executions[self.index];
        let now = clock::now();
        execution.ended = Some(self.at_least.map_or(now, |takes| now.max(execution.began + takes)));
        execution.end = self.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: Try = Try { tap: 1, visit: 1, number: 1, article: 0 };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_after_its_caller_left_was_finished_for_nobody_and_what_was_stopped_was_not() {
        let witness = Arc::new(Witness::default());
        let (finished, stopped) = (witness.begins(Service::Pricing, OF), witness.begins(Service::Payment, OF));
        let in_time = witness.begins(Service::Order, Try { tap: 2, ..OF });
        tokio::time::advance(ms(100)).await;
        in_time.finished();
        witness.left(OF);
        witness.left(Try { tap: 2, ..OF });
        let over = clock::now();
        tokio::time::advance(ms(70)).await;
        assert_eq!(witness.still_at_work(), 2);
        finished.finished();
        drop(stopped);
        let zombies = witness.zombies();
        assert_eq!((zombies.finished, zombies.time), (1, ms(70)));
        assert_eq!(witness.at_work_for(1, 1, over + ms(50)), 2);
        assert_eq!(witness.at_work_for(1, 1, over + ms(71)), 0);
        assert_eq!(witness.at_work_for(1, 2, over + ms(50)), 0, "another visit");
        assert_eq!(witness.still_at_work(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_statement_that_was_let_go_of_runs_on_at_its_server() {
        let witness = Arc::new(Witness::default());
        let sent = witness.begins(Service::Inventory, OF).sent_for(ms(1_000));
        tokio::time::advance(ms(100)).await;
        witness.left(OF);
        drop(sent);
        assert_eq!(witness.still_at_work(), 1);
        assert_eq!((witness.zombies().finished, witness.zombies().time), (1, ms(900)));
        tokio::time::advance(ms(901)).await;
        assert_eq!(witness.still_at_work(), 0);
    }
}
