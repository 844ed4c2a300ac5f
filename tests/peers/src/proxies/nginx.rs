//! nginx, as Debian has it. Its file says that it stays in the foreground, and where its own files are.

use std::path::Path;

use tokio::process::Command;

pub(super) fn command(program: &Path, file: &Path) -> Command {
    super::command(program, ["-e", "stderr", "-c"], file) // else it looks for a log that is root's
}
