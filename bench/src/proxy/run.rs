//! Rounds in which every proxy is measured once, one after another, so that whatever happens to the machine happens to all;
//! then the memory of each, started anew.
//!
//! Decides where processes run: the proxies on the first processor, callers and service on the second, so that what a proxy
//! does in turn with its callers is not its own.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use oneclock_bench::{Failed, cpu, process};

use crate::lines::Line;
use crate::load;
use crate::peers::{Programs, Running};
use crate::report::{Held, Report, Round};
use crate::system::{Protocol, System};

/// As many as ask at a time.
const CALLERS: usize = 16;
/// So many a second in the open loop: below what any of the proxies can do with one thread.
pub(crate) const RATE: f64 = 2_000.0;
const OPEN: Duration = Duration::from_millis(2_400);
const CLOSED: Duration = Duration::from_millis(1_500);
/// Before the open loop.
const WARM: Duration = Duration::from_millis(300);
/// Of these, in a run that only shows that everything works.
const SMOKE: u32 = 5;
/// Open connections, each of which has asked once.
pub(crate) const CONNECTIONS: usize = 1_000;

/// How to run.
#[derive(Clone, Debug)]
pub(crate) struct How<'a> {
    pub(crate) programs: Programs<'a>,
    pub(crate) systems: Vec<System>,
    pub(crate) smoke: bool,
    pub(crate) rounds: u32,
}

pub(crate) async fn all(how: &How<'_>, report: &mut Report) -> Result<(), Failed> {
    let origin = Running::origin().await?;
    place(&origin.pids, false);
    place(&[std::process::id()], false);
    let app = origin.at(Protocol::Http1);
    let steps = how.rounds as usize * how.systems.len() * Protocol::ALL.len() + how.systems.len() * Protocol::ALL.len();
    let bar = ProgressBar::new(steps as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed_precise} left {eta_precise} {msg}")?;
    bar.set_style(style); // hidden where there is no terminal

    {
        let mut running = Vec::new();
        for system in &how.systems {
            let one = Running::start(*system, how.programs, app).await?;
            place(&one.pids, *system != System::Direct);
            running.push((*system, one));
        }
        for round in 0..how.rounds {
            for protocol in Protocol::ALL {
                for (system, one) in &running {
                    bar.set_message(format!("round {}, {}, {}", round + 1, protocol.name(), system.name()));
                    match measured(one, protocol, round, how.smoke).await {
                        Ok(measured) => report.rounds_of(protocol, *system).push(Some(measured)),
                        Err(error) => {
                            report.rounds_of(protocol, *system).push(None);
                            report.failed.push(format!("{}, {}: {error}", system.name(), protocol.name()));
                        }
                    }
                    bar.inc(1);
                }
            }
        }
    }
    for system in &how.systems {
        for protocol in Protocol::ALL {
            bar.set_message(format!("memory, {}, {}", protocol.name(), system.name()));
            match held(*system, how.programs, app, protocol).await {
                Ok(held) => report.held.push((*system, protocol, held)),
                Err(error) => {
                    report.failed.push(format!("{}, memory, {}: {error}", system.name(), protocol.name()));
                }
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

async fn measured(one: &Running, protocol: Protocol, round: u32, smoke: bool) -> Result<Round, Failed> {
    let part = if smoke { SMOKE } else { 1 };
    let mut lines = Line::several(CALLERS, one.at(protocol), protocol).await?;
    load::open(&mut lines, RATE, WARM / part, u64::from(round), &one.pids).await?;
    let open = load::open(&mut lines, RATE, OPEN / part, 1_000 + u64::from(round), &one.pids).await?;
    let closed = load::closed(&mut lines, CLOSED / part, &one.pids).await?;
    Ok(Round {
        cpu_us: closed.cpu_us(),
        per_second: closed.per_second(),
        paced_cpu_us: open.cpu_us(),
        p50_us: open.percentile_us(50),
        p99_us: open.percentile_us(99),
        late_us: open.late.as_secs_f64() * 1e6,
    })
}

/// What a fresh one holds before anybody came, and with all those connections open.
async fn held(
    system: System,
    programs: Programs<'_>,
    app: std::net::SocketAddr,
    protocol: Protocol,
) -> Result<Held, Failed> {
    let one = Running::start(system, programs, app).await?;
    let before = process::resident(&one.pids);
    let mut lines = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let mut line = Line::connect(one.at(protocol), protocol).await?;
        line.ask().await?;
        lines.push(line);
    }
    let with_connections = process::resident(&one.pids);
    Ok(Held { before, with_connections })
}

/// On the processor of the proxies, or on the other one. Where there is one only, all of them are there.
fn place(pids: &[u32], proxy: bool) {
    let core = if proxy || cpu::cores() == 1 { "0" } else { "1" };
    pids.iter().for_each(|pid| cpu::pin(*pid, core));
}
