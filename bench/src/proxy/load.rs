//! The callers: in a closed loop, where each asks again once it has its answer, and in an open one, where requests start at
//! moments that were drawn before.
//!
//! Decides from when time runs in the open loop: from the moment at which the clock's thread hands a request over. A timer of
//! tokio's has a grain of 1 ms, which would be larger than what is measured; that thread sleeps to the moment.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand_distr::{Distribution as _, Exp};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use oneclock_bench::{Failed, cpu};

use crate::clock;
use crate::lines::Line;

/// What came of a closed loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(crate) answers: u64,
    pub(crate) took: Duration,
    /// The processor time of the proxy meanwhile.
    pub(crate) used: Duration,
}

/// What came of an open loop.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// How long each took, in nanoseconds, in order.
    pub(crate) took_ns: Vec<u64>,
    /// How late the later ones began, against the plan: the 99th of a hundred.
    pub(crate) late: Duration,
    pub(crate) used: Duration,
}

/// Asks on every line, again and again, for `span`, after a fifth of it has gone by.
pub(crate) async fn closed(lines: &mut Vec<Line>, span: Duration, pids: &[u32]) -> Result<Closed, Failed> {
    let (answers, over) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(false)));
    let tasks = LocalSet::new();
    let mut callers = Vec::new();
    for mut line in lines.drain(..) {
        let (answers, over) = (Rc::clone(&answers), Rc::clone(&over));
        callers.push(tasks.spawn_local(async move {
            while !over.get() {
                line.ask().await?;
                answers.set(answers.get() + 1);
            }
            Ok::<_, Failed>(line)
        }));
    }
    let (counted, warm) = (Rc::clone(&answers), span / 5);
    let measured = tasks.run_until(async move {
        sleep(warm).await;
        let (began, before, first) = (clock::now(), cpu::used(pids), counted.get());
        sleep(span).await;
        let measured = Closed {
            answers: counted.get() - first,
            took: clock::now() - began,
            used: cpu::used(pids).saturating_sub(before),
        };
        over.set(true);
        for caller in callers {
            lines.push(caller.await??);
        }
        Ok::<_, Failed>(measured)
    });
    measured.await
}

/// Asks so many times a second for `span`, on whichever line is free.
pub(crate) async fn open(
    lines: &mut Vec<Line>,
    rate: f64,
    span: Duration,
    seed: u64,
    pids: &[u32],
) -> Result<Open, Failed> {
    let (before, mut ticks) = (cpu::used(pids), ticking(plan(rate, span, seed)?));
    let (back, mut free) = mpsc::channel(lines.len().max(1));
    for line in lines.drain(..) {
        back.send(line).await?;
    }
    let tasks = LocalSet::new();
    let asked = tasks.run_until(async move {
        let (mut calls, mut late) = (Vec::new(), Vec::new());
        while let Some(tick) = ticks.recv().await {
            late.push(tick.late);
            let (mut line, back) = (free.recv().await.ok_or("no line is left")?, back.clone());
            calls.push(tokio::task::spawn_local(async move {
                line.ask().await?;
                let took = clock::now().saturating_duration_since(tick.at);
                back.send(line).await?;
                Ok::<_, Failed>(took)
            }));
        }
        drop(back);
        let mut took_ns = Vec::with_capacity(calls.len());
        for call in calls {
            took_ns.push(u64::try_from(call.await??.as_nanos()).unwrap_or(u64::MAX));
        }
        while let Some(line) = free.recv().await {
            lines.push(line);
        }
        took_ns.sort_unstable();
        late.sort_unstable();
        let late = late.get(late.len() * 99 / 100).copied().unwrap_or_default();
        Ok::<_, Failed>(Open { took_ns, late, used: cpu::used(pids).saturating_sub(before) })
    });
    asked.await
}

impl Closed {
    /// Microseconds of the proxy's for one answer.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.used.as_secs_f64() * 1e6 / self.answers.max(1) as f64
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.answers as f64 / self.took.as_secs_f64()
    }
}

impl Open {
    pub(crate) fn cpu_us(&self) -> f64 {
        self.used.as_secs_f64() * 1e6 / self.took_ns.len().max(1) as f64
    }

    /// The one below which so many of a hundred are, in microseconds.
    pub(crate) fn percentile_us(&self, percent: usize) -> f64 {
        self.took_ns.get(self.took_ns.len() * percent / 100).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
    }
}

// === the plan and its clock ===

#[derive(Clone, Copy, Debug)]
struct Tick {
    at: Instant,
    late: Duration,
}

/// Poisson arrivals.
fn plan(rate: f64, span: Duration, seed: u64) -> Result<Vec<Duration>, Failed> {
    let (mut random, gaps) = (StdRng::seed_from_u64(seed), Exp::new(rate)?);
    let mut at = Duration::ZERO;
    let mut plan = Vec::new();
    loop {
        at += Duration::from_secs_f64(gaps.sample(&mut random));
        if at >= span {
            return Ok(plan);
        }
        plan.push(at);
    }
}

/// A thread that says when each moment has come. It ends with the plan, or when nobody listens.
fn ticking(plan: Vec<Duration>) -> mpsc::Receiver<Tick> {
    let (says, hears) = mpsc::channel(plan.len().max(1));
    std::thread::spawn(move || {
        let began = clock::now();
        for moment in plan {
            let due = began + moment;
            std::thread::sleep(due.saturating_duration_since(clock::now()));
            let at = clock::now();
            if says.try_send(Tick { at, late: at.saturating_duration_since(due) }).is_err() {
                return;
            }
        }
    });
    hears
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_keeps_its_rate() {
        let plan = plan(2_000.0, Duration::from_secs(10), 1).unwrap();
        assert!((19_000..21_000).contains(&plan.len()), "{}", plan.len());
        assert!(plan.is_sorted());
    }

    #[test]
    fn a_percentile_is_taken_from_what_is_in_order() {
        let open =
            Open { took_ns: (1..=100).map(|us| us * 1_000).collect(), late: Duration::ZERO, used: Duration::ZERO };
        assert_eq!((open.percentile_us(50), open.percentile_us(99)), (51.0, 100.0));
    }
}
