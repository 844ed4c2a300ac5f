//! Runs cells one after another, each for every seed: starts its servers, sends its load, asks what was done, stops them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::cells::Cell;
use crate::figures::Figures;
use crate::load;
use crate::origin::Origin;
use crate::report::{Report, Row};
use crate::scenario::Scenario;
use crate::system::System;
use crate::systems::envoy::{Doors, Envoy};
use crate::systems::grpcio;
use crate::tier::Model;
use crate::{Failed, cpu};

/// For how long the capacity is measured: what is drawn as work differs by 1 % from one such time to the next.
const CALIBRATE: Duration = Duration::from_secs(10);
/// Callers for each slot: it is always busy. Measured once, since the larger of several would be more than there is.
const CALLERS: usize = 4;

/// How to run.
#[derive(Clone, Debug)]
pub(crate) struct How<'a> {
    pub(crate) tools: &'a Path,
    pub(crate) smoke: bool,
    pub(crate) seeds: u64,
}

/// The servers of one run.
struct Servers {
    origin: Origin,
    envoy: Option<Envoy>,
    front: SocketAddr,
}

/// Runs all of `cells`. One that fails is written down, and the others go on.
pub(crate) async fn all(cells: &[Cell], how: &How<'_>, report: &mut Report) -> Result<(), Failed> {
    let bar = ProgressBar::new(cells.len() as u64 * how.seeds);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed_precise} left {eta_precise} {msg}")?;
    bar.set_style(style); // hidden where there is no terminal
    for cell in cells {
        let as_which = cell.scenario.calibrated_as();
        if let std::collections::btree_map::Entry::Vacant(entry) = report.capacity.entry(as_which) {
            bar.set_message(format!("capacity, as {}", as_which.name()));
            entry.insert(capacity(as_which, how).await?);
        }
        let mut row = Row { cell: *cell, runs: Vec::new() };
        for seed in 1..=how.seeds {
            bar.set_message(format!("{} {seed}", cell.name()));
            match one(*cell, report.capacity[&as_which], seed, how).await {
                Ok(figures) => row.runs.push(figures),
                Err(error) => report.failed.push(format!("{} {seed}: {error}", cell.name())),
            }
            bar.inc(1);
        }
        if !row.runs.is_empty() {
            report.rows.push(row);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// The most that the slots can do, without any control.
async fn capacity(scenario: Scenario, how: &How<'_>) -> Result<f64, Failed> {
    let span = if how.smoke { CALIBRATE / 3 } else { CALIBRATE };
    let origin = Origin::bare(scenario).await?;
    place(scenario, &[origin.pid]);
    let front = origin.tiers.first().copied().ok_or("the origin has no tier")?;
    let capacity = load::closed(scenario, front, CALLERS * scenario.slots(), span).await?;
    if capacity == 0.0 {
        return Err("nothing was answered while the capacity was measured".into());
    }
    Ok(capacity)
}

async fn one(cell: Cell, capacity: f64, seed: u64, how: &How<'_>) -> Result<Figures, Failed> {
    let mut servers = Servers::start(cell, how).await?;
    let phases = cell.scenario.phases(how.smoke);
    let plan = cell.scenario.plan(&phases, capacity, seed);
    let load = load::send(cell.scenario, cell.system, servers.front, plan, &phases, &servers.pids()).await;
    let done = servers.origin.done().await?;
    Ok(Figures::of(cell.scenario, &phases, capacity, &load, &done))
}

/// Where the work takes the processor, the servers are on one and the callers on the other: refusing must not take time from
/// asking.
fn place(scenario: Scenario, servers: &[u32]) {
    let spins = scenario.model() == Model::Spin;
    if spins {
        servers.iter().for_each(|pid| cpu::pin(*pid, "0"));
    }
    cpu::pin(std::process::id(), &if spins { "1".to_owned() } else { format!("0-{}", cpu::cores() - 1) });
}

impl Servers {
    fn pids(&self) -> Vec<u32> {
        [Some(self.origin.pid), self.envoy.as_ref().map(|envoy| envoy.pid)].into_iter().flatten().collect()
    }

    async fn start(cell: Cell, how: &How<'_>) -> Result<Self, Failed> {
        let Cell { scenario, system } = cell;
        let doors = system.envoy().map(|variant| Ok::<_, Failed>((variant, Doors::find()?))).transpose()?;
        let via = doors.as_ref().map_or(&[][..], |(_, doors)| doors.tiers(scenario.tiers()));
        let origin = match system {
            System::Grpcio => grpcio::start(how.tools, scenario).await?,
            _ => Origin::start(scenario, system, via).await?,
        };
        let front = via.first().or(origin.tiers.first()).copied().ok_or("the origin has no tier")?;
        let envoy = match &doors {
            Some((variant, doors)) => Some(Envoy::start(how.tools, variant, scenario, doors, &origin.tiers).await?),
            None => None,
        };
        let servers = Self { origin, envoy, front };
        place(scenario, &servers.pids());
        Ok(servers)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn capacities_are_shared_by_scenarios_with_the_same_work() {
        let mut of = BTreeMap::new();
        for scenario in Scenario::ALL {
            of.entry(scenario.calibrated_as()).or_insert_with(Vec::new).push(scenario.slots());
        }
        assert_eq!(of.len(), 4);
        assert!(of.values().all(|slots| slots.iter().all(|one| *one == slots[0])));
    }
}
