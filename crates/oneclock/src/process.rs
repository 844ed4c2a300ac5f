//! Child processes that end with their operation: the whole process group, not just its leader.
//!
//! Killing only the process that was started leaves its own children running for nobody. Decides the order: the group is
//! killed before its leader is waited for. Once the leader was reaped its number may belong to somebody else's group.

use std::io;
use std::pin::Pin;
use std::process::{ExitStatus, Output, Stdio};
use std::task::{Context, Poll, ready};

use oneclock_core::{Name, Stage};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use crate::Operation;
use crate::grant::Stopped;

/// A child process did not finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessFailed {
    /// It was not begun, or it was killed with its process group because the operation ended.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// It could not be started, or could not be waited for.
    #[error("{command}: {source}")]
    Io {
        /// What was to be run.
        command: Name,
        /// What the system said.
        source: io::Error,
    },
}

pin_project! {
    /// Waits for a leader to be reaped. Dropped before that, it kills the group first and lets go of the leader after it:
    /// in the order of these fields.
    struct Reaped<F> {
        group: GroupGuard,
        #[pin]
        wait: F, // owns the `Child`, whose drop may reap
    }
}

/// Kills a process group when dropped, unless its leader is known to have ended.
#[derive(Debug)]
struct GroupGuard(Option<rustix::process::Pid>);

impl Operation {
    /// Runs a child process in a process group of its own, and kills the group when the operation ends.
    ///
    /// ```
    /// # use oneclock::Operation; use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let op = Operation::begin("convert", Duration::from_millis(50));
    /// let mut sleep = tokio::process::Command::new("sleep");
    /// sleep.arg("60");
    /// assert!(op.process("sleep", sleep).await.is_err());
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ProcessFailed`]. A process that ran and failed is no error here: ask its [`ExitStatus`].
    ///
    /// # Cancel safety
    /// Dropping it kills the process group.
    pub async fn process(&self, name: impl Into<Name>, mut command: Command) -> Result<ExitStatus, ProcessFailed> {
        let name = name.into();
        self.with_process(name, &mut command, |mut child| async move { child.wait().await }).await
    }

    /// The same, and collects what the process wrote to its standard output and error.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    ///
    /// # Cancel safety
    /// Dropping it kills the process group.
    pub async fn process_output(&self, name: impl Into<Name>, mut command: Command) -> Result<Output, ProcessFailed> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = name.into();
        self.with_process(name, &mut command, output_of).await
    }

    async fn with_process<T, F>(
        &self,
        name: Name,
        command: &mut Command,
        wait: impl FnOnce(Child) -> F,
    ) -> Result<T, ProcessFailed>
    where
        F: Future<Output = io::Result<T>>,
    {
        let mut call = self.grant(name.clone()).call().map_err(Stopped::from)?;
        let io = |source| ProcessFailed::Io { command: name.clone(), source };
        call.enter(Stage::Work);
        let child = match command.process_group(0).kill_on_drop(true).spawn() {
            Ok(child) => child,
            Err(source) => {
                call.close(oneclock_core::Outcome::NotSent);
                return Err(io(source));
            }
        };
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        let group = GroupGuard(pid);
        let ended = call.run(Reaped { group, wait: wait(child) }).await.map_err(Stopped::from)?.map_err(io)?;
        call.close(oneclock_core::Outcome::Applied);
        Ok(ended)
    }
}

impl<F: Future<Output = io::Result<T>>, T> Future for Reaped<F> {
    type Output = io::Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let ended = ready!(this.wait.poll(cx))?;
        this.group.0 = None;
        Poll::Ready(Ok(ended))
    }
}

/// Reads what a process writes until nobody can write more, and only then reaps it: a leader that ended may have left
/// others of its group behind that still write, and its number stays its own until they are done or killed.
async fn output_of(mut child: Child) -> io::Result<Output> {
    drop(child.stdin.take());
    let (out, err) = tokio::try_join!(all_of(child.stdout.take()), all_of(child.stderr.take()))?;
    Ok(Output { status: child.wait().await?, stdout: out, stderr: err })
}

async fn all_of(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut all).await?;
    }
    Ok(all)
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // The group may be gone already; then there is nothing left to kill.
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}
