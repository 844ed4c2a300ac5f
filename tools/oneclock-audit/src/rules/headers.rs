//! One header, two units: `x-request-timeout: 30` is half a minute for one and 30 ms for the other.

use std::collections::HashSet;

use super::{Finding, Rule, Severity, words};
use crate::amount::Unit;
use crate::graph::Graph;
use crate::inventory::HeaderUnit;

/// A header means seconds to one and milliseconds to another.
pub(super) const HEADER_UNITS: Rule = Rule {
    id: "header-units",
    says: "one header has two units",
    page: include_str!("../../rules/header-units.md"),
    look: header_units,
};

const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Micros => "microseconds",
        Unit::Millis => "milliseconds",
        Unit::Seconds => "seconds",
        Unit::Minutes => "minutes",
        Unit::Times | Unit::Refused => "no time",
    }
}

fn header_units(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    let all = &graph.inventory.header_units;
    let mut told = HashSet::new();
    for hop in &graph.hops {
        let of = |one: &&HeaderUnit| graph.stands_for(one.component) == hop.from && one.writes;
        let at = |one: &HeaderUnit| Some(graph.stands_for(one.component)) == hop.to && !one.writes;
        for written in all.iter().filter(of) {
            let read = all.iter().find(|one| at(one) && one.header == written.header && one.unit != written.unit);
            let Some(read) = read.filter(|_| told.insert((hop.from, hop.to, &written.header))) else { continue };
            let severity = if hop.others == 0 { Severity::Error } else { Severity::Warning };
            let says = format!(
                "{}: {} is written in {} and read in {}",
                words::hop(graph, hop),
                written.header,
                unit(written.unit),
                unit(read.unit),
            );
            let finding = Finding::new(&HEADER_UNITS, severity, &written.place, says)
                .label(format!("written in {}", unit(written.unit)))
                .related(&read.place, format!("read in {}", unit(read.unit)))
                .along(graph, &[hop])
                .consequence("a thousand times too long, or a thousandth of what was meant")
                .help(
                    "use a header whose unit is fixed (grpc-timeout, x-envoy-expected-rq-timeout-ms), or agree on one",
                );
            findings.push(finding);
        }
    }
    for (at, one) in all.iter().enumerate() {
        let other = all.iter().skip(at + 1).find(|other| other.header == one.header && other.unit != one.unit);
        let Some(other) = other.filter(|_| !told.iter().any(|(_, _, header)| **header == one.header)) else { continue };
        let says = format!("{} is in {} here and in {} elsewhere", one.header, unit(one.unit), unit(other.unit));
        let finding = Finding::new(&HEADER_UNITS, Severity::Warning, &one.place, says)
            .label(unit(one.unit))
            .related(&other.place, unit(other.unit))
            .consequence("as soon as one calls the other, a limit is a thousand times off")
            .help("agree on one unit for the header");
        findings.push(finding);
    }
}
