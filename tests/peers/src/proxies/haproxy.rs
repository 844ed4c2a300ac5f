//! HAProxy, as Debian has it.

use std::path::Path;

use tokio::process::Command;

pub(super) fn command(program: &Path, file: &Path) -> Command {
    super::command(program, ["-db", "-f"], file) // in the foreground
}
