//! `cargo xtask scenarios`: the demo's scenarios under a real Prometheus, all of them, with their tables, and the one about a queue on a
//! real broker, with its figures. They take too long for every run of the tests, which have a short version. Decides nothing: the tests
//! do, in `tests/scenarios` and in the shop's `stale_queue`.

use std::path::Path;

use crate::run;
use crate::servers::{Servers, Use};

/// Runs all of them, one after the other, or those whose names contain one of these.
pub(crate) fn scenarios(root: &Path, names: &[String]) -> Result<(), String> {
    let servers = Servers::ready(root, Use::Running)?;
    let mut command = run::cargo(root);
    command.args(["test", "--package", "oneclock-tests", "--test", "scenarios", "--"]);
    // One at a time: their clock is a real one.
    command.args(["--include-ignored", "--nocapture", "--test-threads=1"]).args(names);
    servers.tell(&mut command);
    run::run(command)?;
    if names.is_empty() || names.iter().any(|name| QUEUE.contains(&**name)) {
        let mut command = run::cargo(root);
        command.args([
            "test",
            "--package",
            "oneclock-checkout",
            "--lib",
            QUEUE,
            "--",
            "--nocapture",
            "--test-threads=1",
        ]);
        servers.tell(&mut command);
        run::run(command)?;
    }
    Ok(())
}

/// The scenario that no Prometheus watches.
const QUEUE: &str = "stale_queue";
