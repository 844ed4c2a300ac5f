//! The soak: many callers at once, over both protocols, against a chain of two services that do everything a handler can
//! do; callers leave at random moments, deadlines and delays are random, and at the end nothing may be left and every
//! count has to agree with every other.
//!
//! ```text
//! plan.rs       what one request does, from its number alone
//! service.rs    the two services, which follow the plan and tell the witness
//! callers.rs    the callers, which follow it too
//! witness.rs    the two sides that have to agree: what handlers saw, and what the events say
//! ```

mod callers;
mod plan;
mod service;
mod witness;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oneclock::{live_operations, running_unguarded};
use oneclock_test::{Baseline, PATIENCE};

use self::callers::Callers;
use self::service::Chain;
use self::witness::Witness;

/// How much, and what of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) requests: u64,
    pub(crate) seed: u64,
    /// How many callers there are at a time.
    pub(crate) callers: usize,
    /// Loses one event of so many, to see that the counts notice. Zero loses none.
    pub(crate) loses_one_in: u64,
}

/// Two counts that have to be the same.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) seen: u64,
    pub(crate) told: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// What has to agree.
    pub(crate) rows: Vec<Row>,
    /// What the callers got, for whoever reads it.
    pub(crate) callers: Vec<(&'static str, u64)>,
    /// How much memory the process held after a quarter of the requests, and at the end, in KiB; where it can be known.
    pub(crate) memory: Option<(u64, u64)>,
}

/// Beyond what a quarter of the load had taken, the rest may take this much, in KiB: what the allocator keeps. A leak of a
/// kilobyte for each request would be more.
const GROWTH: u64 = 48 * 1024;

impl Settings {
    pub(crate) fn new(requests: u64, seed: u64) -> Self {
        Self { requests, seed, callers: 256, loses_one_in: 0 }
    }
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, seen: u64, told: u64) -> Self {
        Self { what: what.into(), seen, told }
    }

    pub(crate) fn agrees(&self) -> bool {
        self.seen == self.told
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.agrees() { "" } else { "  <- differs" };
        write!(f, "  {:<46}{:>10}{:>10}{mark}", self.what, self.seen, self.told)
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "what the callers got")?;
        for (what, count) in &self.callers {
            writeln!(f, "  {what:<46}{count:>10}")?;
        }
        if let Some((quarter, end)) = self.memory {
            writeln!(f, "  {:<46}{quarter:>10}", "KiB held after a quarter")?;
            writeln!(f, "  {:<46}{end:>10}", "KiB held at the end")?;
        }
        writeln!(f, "\n{:<48}{:>10}{:>10}", "what has to agree", "seen", "told")?;
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        Ok(())
    }
}

impl Report {
    pub(crate) fn mismatches(&self) -> Vec<&Row> {
        self.rows.iter().filter(|row| !row.agrees()).collect()
    }
}

/// Runs all of it. `done` is told how many requests are over.
///
/// The process must do nothing else meanwhile: it is counted what is left of the whole process.
///
/// # Errors
/// When a service or a client cannot be made.
pub(crate) async fn run(settings: Settings, done: impl Fn(u64) + Send + Sync + 'static) -> std::io::Result<Report> {
    let before = Baseline::take();
    let (live, unguarded) = (live_operations() as u64, running_unguarded() as u64);
    let witness = Arc::new(Witness::new(settings.loses_one_in));
    let chain = Chain::open(&witness).await?;
    let callers = Arc::new(Callers::new(chain.gateway, settings.seed));

    let next = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicU64::new(0));
    let done = Arc::new(done);
    let at_a_quarter = Arc::new(AtomicU64::new(0));
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..settings.callers {
        let (callers, next, over, done) =
            (Arc::clone(&callers), Arc::clone(&next), Arc::clone(&over), Arc::clone(&done));
        let at_a_quarter = Arc::clone(&at_a_quarter);
        crowd.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= settings.requests {
                    return;
                }
                if number == settings.requests / 4 {
                    at_a_quarter.store(resident().unwrap_or(0), Ordering::Relaxed);
                }
                callers.call(number).await;
                done(over.fetch_add(1, Ordering::Relaxed) + 1);
            }
        });
    }
    while let Some(ended) = crowd.join_next().await {
        ended.map_err(std::io::Error::other)?;
    }
    let memory = resident().map(|now| (at_a_quarter.load(Ordering::Relaxed), now));
    let outcomes = callers.outcomes();
    drop(callers);
    let open = chain.close().await?;

    let (tasks, files) = match before.back().await {
        Ok(()) => (0, 0),
        Err(leaked) => {
            ((leaked.tasks_now - leaked.tasks_before.min(leaked.tasks_now)) as u64, leaked.files.len() as u64)
        }
    };
    let mut rows = vec![
        Row::new("requests made, callers' outcomes", settings.requests, outcomes.iter().map(|(_, count)| count).sum()),
        Row::new("live operations, before and after", live, live_operations() as u64),
        Row::new("steps and closures running, before and after", unguarded, running_unguarded() as u64),
        Row::new("tasks of the services alive", 0, open as u64),
        Row::new("tasks beyond the baseline", 0, tasks),
        Row::new("descriptors beyond the baseline", 0, files),
    ];
    if let Some((quarter, end)) = memory {
        // Small editions have not warmed up at their quarter.
        let grown = if settings.requests < 20_000 { 0 } else { end.saturating_sub(quarter) };
        rows.push(Row::new("KiB of memory grown beyond bounds", 0, grown.saturating_sub(GROWTH)));
    }
    rows.extend(witness.rows());
    Ok(Report { rows, callers: outcomes, memory })
}

/// For how long anything may go on once it was told to stop.
const SHUT: Duration = PATIENCE;

/// How much memory the process holds, in KiB.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
