//! Other people's programs, run for a while.
//!
//! Decides that none of them outlives the bench, even if that is killed: a shell holds a pipe from here, and when it closes
//! the shell kills the program with all that it has started, and removes what it was told to.

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::process::{Child, Command};

use crate::Failed;

/// Kills `$1`, which leads a group of its own (nginx has workers), once the pipe from here closes, and removes `$2`.
const GUARDIAN: &str = r#"trap : INT TERM HUP; read -r _; kill -s KILL -- "-$1" 2>/dev/null; rm -rf "$2""#;

/// A program that runs. Killed when it is dropped.
#[derive(Debug)]
pub struct Guarded {
    /// Of the program.
    pub pid: u32,
    /// It, for its pipes.
    pub child: Child,
    _guardian: Child,
}

impl Guarded {
    /// Runs `command`, and removes `files` (a file, or a folder with everything in it) after it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(mut command: Command, files: &Path) -> Result<Self, Failed> {
        let named = command.as_std().get_program().to_owned();
        let child = command.stdin(Stdio::null()).process_group(0).kill_on_drop(true).spawn();
        let child = child.map_err(|error| format!("{}: {error}", named.display()))?;
        let pid = child.id().ok_or_else(|| format!("{} ended at once", named.display()))?;
        let mut guardian = Command::new("sh");
        guardian.args(["-c", GUARDIAN, "guardian", &pid.to_string()]).arg(files).stdin(Stdio::piped());
        Ok(Self { pid, child, _guardian: guardian.spawn()? })
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// Nobody knows.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Failed> {
        Ok(self.child.try_wait()?)
    }
}
