//! Our own topology file: what is not understood of it is an error, since whoever wrote it relies on it. A call that has
//! a misspelled limit is one without a limit, and nothing would be said of it.

use std::collections::{HashMap, HashSet};

use super::{Finding, Rule, Severity};
use crate::graph::Graph;
use crate::inventory::To;
use crate::readers::{TOPOLOGY, topology};
use crate::source::Place;

/// Something in a topology file says nothing.
pub(super) const TOPOLOGY_NOT_UNDERSTOOD: Rule = Rule {
    id: "topology-not-understood",
    says: "something in a topology file is not understood, so it says nothing",
    page: include_str!("../../rules/topology-not-understood.md"),
    look: not_understood,
};

fn not_understood(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    for left in graph.inventory.left_out.iter().filter(|left| topology::is_topology(&left.place.file)) {
        let finding = Finding::new(&TOPOLOGY_NOT_UNDERSTOOD, Severity::Error, &left.place, left.says.clone())
            .consequence("what is not understood counts as not written: rules that need it are silent")
            .help("write it as docs/guide/audit.md has it; `oneclock audit --init` begins such a file");
        findings.push(finding);
    }
    nobody_answers(graph, findings);
    same_name(graph, findings);
}

/// A name that nobody has is a misspelled one, or a service that is not declared.
fn nobody_answers(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    let all = &graph.inventory.components;
    let hosts: HashSet<&str> =
        all.iter().flat_map(|component| &component.names).map(|name| name.host.as_str()).collect();
    let labels: HashSet<&str> = hosts.iter().map(|host| first_label(host)).collect();
    for hop in graph.hops.iter().filter(|hop| hop.to.is_none() && topology::is_topology(&hop.call.place.file)) {
        let To::Name(name) = &hop.call.to else { continue };
        // Of names that many have, none is meant: that is another thing.
        if labels.contains(first_label(&name.host)) {
            continue;
        }
        let hint = near(&name.host, &hosts).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let says = format!("{} calls `{name}`, and nothing here has that name{hint}", graph.name(hop.from));
        let finding = Finding::new(&TOPOLOGY_NOT_UNDERSTOOD, Severity::Warning, &hop.call.place, says)
            .along(graph, &[hop])
            .consequence("the call ends there: what lies behind it is compared with nothing")
            .help(format!("correct the name, or declare it: `- name: {name}`"));
        findings.push(finding);
    }
}

/// The name that is meant, if one differs in a letter or two. Nobody looks for it among thousands.
fn near<'h>(host: &str, hosts: &HashSet<&'h str>) -> Option<&'h str> {
    const MOST: usize = 200;
    let distance = |known: &str| strsim::damerau_levenshtein(known, host);
    let few = hosts.iter().copied().filter(|known| hosts.len() <= MOST && known.len().abs_diff(host.len()) <= 2);
    let near = few.min_by_key(|known| (distance(known), *known))?;
    (distance(near) <= 2 && distance(near) * 3 <= host.len()).then_some(near)
}

fn first_label(host: &str) -> &str {
    host.split('.').next().unwrap_or(host)
}

/// Two of one name in one file: a call to it means both, so nothing about it is certain.
fn same_name(graph: &Graph<'_>, findings: &mut Vec<Finding>) {
    let mut known: HashMap<(&str, String), &Place> = HashMap::new();
    for component in graph.inventory.components.iter().filter(|component| component.reader == TOPOLOGY) {
        let key = (&*component.place.file, component.name.to_ascii_lowercase());
        let Some(first) = known.get(&key) else {
            known.insert(key, &component.place);
            continue;
        };
        let says = format!("there are two services of the name {}", component.name);
        let finding = Finding::new(&TOPOLOGY_NOT_UNDERSTOOD, Severity::Warning, &component.place, says)
            .related(first, "the first")
            .consequence("a call to that name may mean either, so what is said of it is never an error")
            .help("write all its calls under one, or give it another name");
        findings.push(finding);
    }
}
