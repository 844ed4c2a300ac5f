//! What really happened: every execution at pricing, and whether whoever wanted it was still there.
//!
//! It stands beside the services, not between them: neither mode can know or use what is written here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::Tick;

/// One try of the app: the tap it belongs to, and which try of that tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Try {
    pub(crate) tap: usize,
    pub(crate) number: u32,
    pub(crate) slow_article: bool,
}

/// Sees executions begin and end, and callers leave.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    load_began: Option<Tick>,
    executions: Vec<Execution>,
    left: BTreeMap<Try, Tick>,
}

/// Pricing at work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Execution {
    pub(crate) of: Try,
    pub(crate) began: Tick,
    pub(crate) ended: Option<Tick>,
    pub(crate) finished: bool, // ran to its end, as opposed to being stopped
}

/// An execution in progress; over when dropped, finished if it says so.
#[derive(Debug)]
pub(crate) struct Working {
    witness: Arc<Witness>,
    index: usize,
}

/// What the executions add up to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Zombies {
    pub(crate) finished: usize,
    pub(crate) time: Duration,
}

/// The header that tells the witness which try a request belongs to. The services pass it on and never look at it.
pub(crate) const TRY: &str = "x-demo-try";

// === Witness ===

impl Witness {
    /// The load begins `into` it: zero for the load itself, later for a single tap that is to meet the trouble.
    pub(crate) fn load_begins(&self, into: Duration) {
        self.seen().load_began = Some(clock::now().back(into));
    }

    /// How far into the load we are; before it, at its start.
    pub(crate) fn load_has_run(&self) -> Duration {
        let began = self.seen().load_began;
        began.map_or(Duration::ZERO, |began| clock::now().since(began))
    }

    /// Whoever wanted this try has gone.
    pub(crate) fn left(&self, of: Try) {
        self.seen().left.entry(of).or_insert_with(clock::now);
    }

    pub(crate) fn begins(self: &Arc<Self>, of: Try) -> Working {
        let mut seen = self.seen();
        seen.executions.push(Execution { of, began: clock::now(), ended: None, finished: false });
        Working { witness: Arc::clone(self), index: seen.executions.len() - 1 }
    }

    pub(crate) fn executions(&self) -> usize {
        self.seen().executions.len()
    }

    /// The work that ran to its end after its caller had left, and for how long it had gone on by then.
    pub(crate) fn zombies(&self) -> Zombies {
        let seen = self.seen();
        let mut zombies = Zombies::default();
        for execution in &seen.executions {
            let (Some(ended), Some(left)) = (execution.ended, seen.left.get(&execution.of)) else { continue };
            if execution.finished && *left < ended {
                zombies.finished += 1;
                zombies.time += ended.since(*left);
            }
        }
        zombies
    }

    /// How many executions for this tap were at work at this moment.
    pub(crate) fn at_work_for(&self, tap: usize, at: Tick) -> usize {
        let seen = self.seen();
        let at_work = |execution: &&Execution| {
            execution.of.tap == tap && execution.began <= at && execution.ended.is_none_or(|ended| ended > at)
        };
        seen.executions.iter().filter(at_work).count()
    }

    pub(crate) fn still_at_work(&self) -> usize {
        self.seen().executions.iter().filter(|execution| execution.ended.is_none()).count()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Working {
    pub(crate) fn finished(self) {
        self.witness.seen().executions[self.index].finished = true;
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.witness.seen().executions[self.index].ended = Some(clock::now());
    }
}

// === Try ===

impl Try {
    /// As the header carries it.
    pub(crate) fn to_field(self) -> String {
        format!("{}.{}.{}", self.tap, self.number, u8::from(self.slow_article))
    }

    /// From the header; a request that carries none belongs to tap 0.
    pub(crate) fn of(headers: &http::HeaderMap) -> Self {
        let field = headers.get(TRY).and_then(|field| field.to_str().ok()).unwrap_or_default();
        let mut numbers = field.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Self { tap: next() as usize, number: next(), slow_article: next() == 1 }
    }
}
