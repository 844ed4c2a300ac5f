//! The callers: open loop. Every request starts when it was planned to, whatever became of those before it, and its time
//! runs from then.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::caller::{Call, Caller, Came};
use crate::pool::Pool;
use crate::scenario::{Phase, Planned, Scenario};
use crate::system::System;
use crate::tag::Tag;
use crate::{Failed, clock, cpu};

/// Until the first request, so that all of them are waiting for their time by then.
const LEAD: Duration = Duration::from_millis(200);

/// One request, and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) planned: Planned,
    pub(crate) id: u32,
    pub(crate) call: Call,
    /// From when it was planned to start, in microseconds.
    pub(crate) took_us: u64,
    /// How much later than planned it started.
    pub(crate) late_us: u64,
}

/// Everything seen from outside.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) seen: Vec<Seen>,
    /// The servers' processor time in each phase.
    pub(crate) cpu: Vec<Duration>,
}

/// Sends all of `plan` to `to`.
pub(crate) async fn send(
    scenario: Scenario,
    system: System,
    to: SocketAddr,
    plan: Vec<Planned>,
    phases: &[Phase],
    pids: &[u32],
) -> Load {
    let caller = Arc::new(Caller::new(Pool::new(to, system.speaks()), scenario.manners(system)));
    let mut requests = JoinSet::new();
    let start = clock::now() + LEAD;
    for (id, planned) in (0..).zip(plan) {
        let caller = Arc::clone(&caller);
        requests.spawn(async move {
            let due = start + planned.at;
            sleep_until(due).await;
            let late_us = clock::us(clock::now().saturating_duration_since(due));
            let tag = Tag { id, until_us: u64::MAX, work_us: planned.work_us };
            let path = scenario.classes()[planned.class].path;
            let call = caller.call(path, tag, due + planned.budget, || {}).await;
            let took_us = clock::us(clock::now().saturating_duration_since(due));
            Seen { planned, id, call, took_us, late_us }
        });
    }
    let (seen, cpu) = tokio::join!(requests.join_all(), watch(start, phases, pids));
    Load { seen, cpu }
}

/// Reads the processor time at the edges of the phases.
async fn watch(start: Instant, phases: &[Phase], pids: &[u32]) -> Vec<Duration> {
    sleep_until(start).await;
    let (mut before, mut edge) = (cpu::used(pids), start);
    let mut used = Vec::new();
    for phase in phases {
        edge += Duration::from_secs_f64(phase.seconds);
        sleep_until(edge).await;
        let now = cpu::used(pids);
        used.push(now.saturating_sub(before));
        before = now;
    }
    used
}

/// How many requests a second are answered when `callers` ask one after another for `span`: the capacity, if they are
/// enough.
pub(crate) async fn closed(scenario: Scenario, to: SocketAddr, callers: usize, span: Duration) -> Result<f64, Failed> {
    let pool = Pool::new(to, System::None.speaks());
    let manners = crate::caller::Manners { tries: 1, per_try: None, ..scenario.manners(System::None) };
    let caller = Arc::new(Caller::new(pool, manners));
    let warm = clock::now() + span / 4;
    let end = warm + span;
    let mut tasks = JoinSet::new();
    for number in 0..callers {
        let caller = Arc::clone(&caller);
        tasks.spawn(async move {
            let mut random = StdRng::seed_from_u64(number as u64);
            let mut answered = 0_u32;
            while clock::now() < end {
                let planned = scenario.draw(&mut random, 0, 1.0, Duration::ZERO);
                let tag = Tag { id: 0, until_us: u64::MAX, work_us: planned.work_us };
                let path = scenario.classes()[planned.class].path;
                let call = caller.call(path, tag, clock::now() + Duration::from_secs(10), || {}).await;
                let now = clock::now();
                answered += u32::from(call.came == Came::InTime && now >= warm && now < end);
            }
            answered
        });
    }
    let answered: u32 = tasks.join_all().await.into_iter().sum();
    Ok(f64::from(answered) / span.as_secs_f64())
}
