//! What the audit finds in a folder, before anything is judged: `cargo run -p oneclock-audit --example inventory -- PATH`.
//! With `--findings` behind it, what the rules say instead.

use oneclock_audit::graph::Graph;
use oneclock_audit::inventory::Stated;
use oneclock_audit::rules::judge;
use oneclock_audit::walk::{Repository, walk};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| ".".to_owned());
    let inventory = walk(&Repository::new(path), |_| ());
    if arguments.next().as_deref() == Some("--findings") {
        for finding in judge(&Graph::of(&inventory)) {
            println!("{:?} {} {}: {}", finding.severity, finding.rule, finding.place, finding.says);
            for related in &finding.related {
                println!("    {}: {}", related.place, related.says);
            }
        }
        return;
    }
    for setting in &inventory.settings {
        let stated = if setting.stated == Stated::Default { " (by default)" } else { "" };
        println!("{}: {} = {}{stated}", setting.place, setting.known.id, setting.amount);
    }
    for left in &inventory.left_out {
        println!("{}: left out, {:?}: {}", left.place, left.why, left.says);
    }
    let (components, edges) = (inventory.components.len(), inventory.edges.len());
    println!(
        "{} files, {components} components, {edges} calls, {} settings",
        inventory.files.len(),
        inventory.settings.len()
    );
}
