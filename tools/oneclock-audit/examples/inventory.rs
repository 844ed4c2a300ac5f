//! What the audit finds in a folder, before anything is judged: `cargo run -p oneclock-audit --example inventory -- PATH`.

use oneclock_audit::inventory::Stated;
use oneclock_audit::walk::{Repository, walk};

fn main() {
    let path = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let inventory = walk(&Repository::new(path), |_| ());
    for setting in &inventory.settings {
        let stated = if setting.stated == Stated::Default { " (by default)" } else { "" };
        println!("{}: {} = {}{stated}", setting.place, setting.known.id, setting.amount);
    }
    for left in &inventory.left_out {
        println!("{}: left out, {:?}: {}", left.place, left.why, left.says);
    }
    let (components, edges) = (inventory.components.len(), inventory.edges.len());
    println!("{} files, {components} components, {edges} calls, {} settings", inventory.files.len(), inventory.settings.len());
}
