//! An inventory in lines, so that a case is a file and what is found in it.

use oneclock_audit::inventory::{Inventory, On, Stated, To};

use crate::written::inventory;

/// In one file exactly these lines are found.
#[track_caller]
pub(crate) fn finds(path: &str, text: &str, want: &str) {
    finds_in(&[(path, text)], want);
}

/// In several files of one repository exactly these lines are found.
#[track_caller]
pub(crate) fn finds_in(files: &[(&str, &str)], want: &str) {
    let found = told(&inventory(files)).lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    let want = want.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    assert!(found == want, "found:\n{found}\n\nwanted:\n{want}\n");
}

/// What is found, line by line, for a test that is about some of it.
#[track_caller]
pub(crate) fn lines(files: &[(&str, &str)]) -> Vec<String> {
    told(&inventory(files)).lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Components with their names, calls, settings, methods of gRPC, and what was left out; a line each.
fn told(inventory: &Inventory) -> String {
    let mut lines = Vec::new();
    let name =
        |id| inventory.components.iter().enumerate().find(|(at, _)| format!("ComponentId({at})") == format!("{id:?}"));
    let name = |id| name(id).map_or(String::new(), |(_, component)| component.name.clone());
    for component in &inventory.components {
        let names: Vec<String> = component.names.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "{:?} {} [{}] answers to {}",
            component.role,
            component.name,
            component.product,
            names.join(", ")
        ));
    }
    let label = |edge: &oneclock_audit::inventory::Edge| {
        let to = match &edge.to {
            To::Name(name) => name.to_string(),
            To::Component(id) => name(*id),
        };
        format!("{} -> {to} ({})", name(edge.from), edge.label)
    };
    for edge in &inventory.edges {
        let methods = if edge.methods.is_empty() { String::new() } else { format!(" {}", edge.methods.join(",")) };
        let spares =
            edge.spares_unsafe.map_or("", |spares| if spares { ", spares unsafe" } else { ", repeats unsafe" });
        let streaming = if edge.streaming { ", streaming" } else { "" };
        lines.push(format!("call {}{methods}{spares}{streaming}", label(edge)));
    }
    for setting in &inventory.settings {
        let on = match &setting.on {
            On::Component(id) => name(*id),
            On::Edge(id) => inventory
                .edges
                .iter()
                .enumerate()
                .find(|(at, _)| format!("EdgeId({at})") == format!("{id:?}"))
                .map_or(String::new(), |(_, edge)| label(edge)),
            On::CallsTo(name) => format!("calls to {name}"),
        };
        let stated = match setting.stated {
            Stated::Explicit => String::new(),
            Stated::Default => " by default".to_owned(),
            Stated::Topology => " declared".to_owned(),
        };
        lines.push(format!("{on}: {} = {}{stated} at {}", setting.known.id, setting.amount, setting.place));
    }
    for service in &inventory.rpc_services {
        for method in &service.methods {
            let declared = method.declared.map_or("nothing".to_owned(), |declared| format!("{declared:?}"));
            lines.push(format!("rpc {}/{}: {declared} at {}", service.name, method.name, method.place));
        }
    }
    for left in &inventory.left_out {
        lines.push(format!("left out {}: {:?}, {}", left.place, left.why, left.says));
    }
    lines.join("\n")
}
