//! What must hold for ours.

use crate::report::Report;
use crate::system::{Protocol, System};

/// Of the processor time of bare hyper, and of Envoy's.
const OF_BARE: f64 = 1.6;
const OF_ENVOY: f64 = 0.5;
/// Resident bytes with 1000 connections.
const RESIDENT: u64 = 25_000_000;

/// Every target that is missed, in words. What did not run misses nothing.
pub(crate) fn missed(report: &Report) -> Vec<String> {
    let mut missed = Vec::new();
    for protocol in Protocol::ALL {
        for (other, most) in [(System::Bare, OF_BARE), (System::Envoy, OF_ENVOY)] {
            let ratio = report.beside(protocol, System::Ours, other, |ours, other| ours.cpu_us / other.cpu_us);
            if let Some(ratio) = ratio.filter(|ratio| ratio.median > most) {
                let (name, other) = (protocol.name(), other.name());
                missed
                    .push(format!("{name}: CPU for a request: {:.2} of {other}, must be at most {most}", ratio.median));
            }
        }
        let p99 = report.beside(protocol, System::Ours, System::Envoy, |ours, envoy| ours.p99_us - envoy.p99_us);
        if let Some(p99) = p99.filter(|p99| p99.median >= 0.0) {
            missed.push(format!("{}: p99: {:.0} us more than Envoy, must be less", protocol.name(), p99.median));
        }
    }
    // Over HTTP/2 each connection has more of its own, whoever serves it: shown, and not judged.
    let held = report.holds(System::Ours, Protocol::Http1).map_or(0, |held| held.with_connections);
    if held > RESIDENT {
        let (held, most) = (held as f64 / 1e6, RESIDENT as f64 / 1e6);
        missed.push(format!("HTTP/1.1: {held:.1} MB resident with 1000 connections, must be at most {most:.0}"));
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Held, Round};

    fn round(cpu_us: f64, p99_us: f64) -> Option<Round> {
        Some(Round { cpu_us, per_second: 1.0, paced_cpu_us: cpu_us, p50_us: 1.0, p99_us, late_us: 0.0 })
    }

    #[test]
    fn a_miss_is_named_and_what_did_not_run_misses_nothing() {
        let mut report = Report::default();
        assert!(missed(&report).is_empty());
        report.rounds_of(Protocol::Http1, System::Ours).extend([round(80.0, 9.0), None, round(82.0, 9.0)]);
        report.rounds_of(Protocol::Http1, System::Bare).extend([round(40.0, 1.0), round(1.0, 1.0), round(41.0, 1.0)]);
        report.rounds_of(Protocol::Http1, System::Envoy).extend([round(170.0, 8.0), None, None]);
        let held = Held { before: 1, with_connections: 26_000_000 };
        report.held.push((System::Ours, Protocol::Http1, held));
        report.held.push((System::Ours, Protocol::Http2, Held { with_connections: 50_000_000, ..held }));
        let missed = missed(&report);
        assert_eq!(missed.len(), 3, "{missed:?}");
        assert_eq!(missed[0], "HTTP/1.1: CPU for a request: 2.00 of bare hyper, must be at most 1.6");
        assert_eq!(missed[1], "HTTP/1.1: p99: 1 us more than Envoy, must be less");
        assert_eq!(missed[2], "HTTP/1.1: 26.0 MB resident with 1000 connections, must be at most 25");
    }
}
