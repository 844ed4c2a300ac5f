//! The table for people, and the same as JSON. Every figure is the median of the rounds.

use std::collections::BTreeMap;
use std::fmt;

use oneclock_bench::cpu;
use oneclock_bench::spread::Spread;
use serde::Serialize;
use serde_json::{Value, json};

use crate::run::{CONNECTIONS, RATE};
use crate::system::{Protocol, System};
use crate::targets;

/// One proxy in one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Round {
    /// Its processor time for a request, as many as it can.
    pub(crate) cpu_us: f64,
    /// How many that were in a second.
    pub(crate) per_second: f64,
    /// Its processor time for a request at the fixed rate.
    pub(crate) paced_cpu_us: f64,
    /// How long requests took at the fixed rate.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// How late requests started, the 99th of a hundred.
    pub(crate) late_us: f64,
}

/// Resident memory, in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Held {
    pub(crate) before: u64,
    pub(crate) with_connections: u64,
}

/// Everything of one invocation.
#[derive(Debug, Default)]
pub(crate) struct Report {
    command: String,
    rounds: u32,
    measured: BTreeMap<(Protocol, System), Vec<Option<Round>>>, // as many as rounds
    pub(crate) held: Vec<(System, Protocol, Held)>,
    /// What gave no figures, and why.
    pub(crate) failed: Vec<String>,
}

impl Report {
    pub(crate) fn new(command: String, rounds: u32) -> Self {
        Self { command, rounds, ..Self::default() }
    }

    pub(crate) fn rounds_of(&mut self, protocol: Protocol, system: System) -> &mut Vec<Option<Round>> {
        self.measured.entry((protocol, system)).or_default()
    }

    /// Over the rounds in which this one has a figure.
    pub(crate) fn of(&self, protocol: Protocol, system: System, is: impl Fn(&Round) -> f64) -> Option<Spread> {
        self.beside(protocol, system, system, |one, _| is(one))
    }

    /// Two of them, compared round by round.
    pub(crate) fn beside(
        &self,
        protocol: Protocol,
        one: System,
        other: System,
        is: impl Fn(&Round, &Round) -> f64,
    ) -> Option<Spread> {
        let (one, other) = (self.measured.get(&(protocol, one))?, self.measured.get(&(protocol, other))?);
        let pairs = one.iter().zip(other).filter_map(|(one, other)| Some(is(one.as_ref()?, other.as_ref()?)));
        let all: Vec<f64> = pairs.collect();
        (!all.is_empty()).then(|| Spread::of(all, true))
    }

    pub(crate) fn holds(&self, system: System, protocol: Protocol) -> Option<Held> {
        let found = self.held.iter().find(|(of, spoken, _)| (*of, *spoken) == (system, protocol));
        found.map(|(_, _, held)| *held)
    }

    pub(crate) fn missed(&self) -> Vec<String> {
        let mut missed = targets::missed(self);
        missed.extend(self.failed.iter().cloned());
        missed
    }

    pub(crate) fn json(&self) -> Value {
        let measured = self
            .measured
            .iter()
            .map(|((protocol, system), rounds)| json!({ "protocol": protocol, "system": system, "rounds": rounds }));
        let held = self.held.iter().map(|(system, protocol, held)| {
            json!({ "system": system, "protocol": protocol, "connections": CONNECTIONS, "resident_bytes": held })
        });
        json!({
            "cpu": cpu::machine(),
            "command": self.command,
            "rate": RATE,
            "measured": measured.collect::<Vec<_>>(),
            "memory": held.collect::<Vec<_>>(),
            "missed": self.missed(),
        })
    }

    fn line(&self, protocol: Protocol, system: System) -> Option<String> {
        let shown = |digits: usize, is: fn(&Round) -> f64| Some(self.of(protocol, system, is)?.shown(digits));
        let added = |is: fn(&Round) -> f64| {
            let added = self.beside(protocol, system, System::Direct, |one, direct| is(one) - is(direct))?;
            Some(added.shown(0))
        };
        let (p50, p99) = match system {
            System::Direct => (shown(0, |round| round.p50_us)?, shown(0, |round| round.p99_us)?),
            _ => (added(|round| round.p50_us)?, added(|round| round.p99_us)?),
        };
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let held = self.holds(system, protocol);
        let held =
            held.map_or_else(String::new, |held| format!("{:.1} {:.1}", mib(held.before), mib(held.with_connections)));
        Some(format!(
            "  {:<11} {:>15} {:>15} {:>8.0} {:>13} {:>15} {:>12}",
            system.name(),
            shown(1, |round| round.cpu_us)?,
            shown(1, |round| round.paced_cpu_us)?,
            self.of(protocol, system, |round| round.per_second)?.median,
            p50,
            p99,
            held,
        ))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}", cpu::machine(), self.command)?;
        writeln!(
            f,
            "\n  {:<11} {:>15} {:>15} {:>8} {:>13} {:>15} {:>12}",
            "", "CPU us, at most", "CPU us, 2000/s", "a second", "added p50 us", "added p99 us", "MiB: 0, 1000"
        )?;
        for protocol in Protocol::ALL {
            writeln!(f, "{}", protocol.name())?;
            for line in System::ALL.into_iter().filter_map(|system| self.line(protocol, system)) {
                writeln!(f, "{line}")?;
            }
            for other in [System::Bare, System::Envoy, System::Haproxy, System::Nginx] {
                let of = |is: fn(&Round) -> f64| {
                    self.beside(protocol, System::Ours, other, |ours, other| is(ours) / is(other))
                };
                if let (Some(most), Some(paced)) = (of(|round| round.cpu_us), of(|round| round.paced_cpu_us)) {
                    let (most, paced) = (most.shown(2), paced.shown(2));
                    writeln!(f, "    ours / {:<11} {most:>20} {paced:>20}", other.name())?;
                }
            }
        }
        let late = self.measured.values().flatten().flatten().map(|round| round.late_us).fold(0.0, f64::max);
        writeln!(
            f,
            "\nthe median of {} rounds, (the worst one); CPU: of all processes of the proxy, for a request, with 16 callers \
             that ask as fast as they are answered, and at 2000 a second; added: above the service alone, whose own are in its \
             row; MiB: resident after the start, and with {CONNECTIONS} open connections, each of which has asked once. \
             Requests started at most {late:.0} us late (p99).",
            self.rounds
        )?;
        for missed in self.missed() {
            writeln!(f, "missed: {missed}")?;
        }
        Ok(())
    }
}
