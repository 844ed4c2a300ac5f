//! Whether everything that a test began is gone again: tasks, open files and sockets.
//!
//! Counts what the runtime and the kernel count, so a leak shows whoever made it. Deliberately absent: timers, of which
//! tokio publishes no number; a timer is held by a task or by a future that a task holds.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::bound::{PATIENCE, now};

/// What was open and alive at one moment, to come back to.
///
/// # Example
/// ```
/// # use oneclock_test::Baseline;
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let before = Baseline::take();
/// let work = tokio::spawn(std::future::pending::<()>());
/// work.abort();
/// before.assert_back().await;
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Baseline {
    tasks: usize,
    files: Option<BTreeMap<String, usize>>,
}

/// What is left over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaked {
    /// Alive tasks at the baseline.
    pub tasks_before: usize,
    /// Alive tasks now.
    pub tasks_now: usize,
    /// What the open descriptors beyond the baseline refer to, as the kernel names it (`socket:[4711]`).
    pub files: Vec<String>,
    /// How long the way back was awaited.
    pub waited: Duration,
}

/// Counts how often a future asked to be polled again: a future that waits well is woken once, not in a circle.
///
/// # Example
/// ```
/// # use oneclock_test::Wakes; use std::{pin::pin, task::Poll};
/// let wakes = Wakes::new();
/// let (send, receive) = tokio::sync::oneshot::channel();
/// let mut receive = pin!(receive);
/// assert_eq!(wakes.poll(receive.as_mut()), Poll::Pending);
/// assert_eq!(wakes.count(), 0, "it waits quietly");
/// send.send("done").unwrap();
/// assert_eq!(wakes.count(), 1);
/// assert_eq!(wakes.poll(receive.as_mut()), Poll::Ready(Ok("done")));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Wakes(Arc<WakeCount>);

#[derive(Debug, Default)]
struct WakeCount(AtomicUsize);

// === Baseline ===

impl Baseline {
    /// What is open and alive now, in this runtime and (on Linux) in this whole process.
    ///
    /// Descriptors belong to the process: where other tests run beside this one in threads of the same process, use
    /// [`tasks_only`](Self::tasks_only), or a runner with a process per test.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn take() -> Self {
        Self { tasks: alive_tasks(), files: open_files() }
    }

    /// The tasks that are alive now in this runtime, and nothing else.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn tasks_only() -> Self {
        Self { tasks: alive_tasks(), files: None }
    }

    /// Whether nothing is left beyond the baseline, at this moment.
    ///
    /// # Errors
    /// [`Leaked`], with what is left.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn back_now(&self) -> Result<(), Leaked> {
        self.compare(Duration::ZERO)
    }

    /// Waits until nothing is left beyond the baseline.
    ///
    /// # Errors
    /// [`Leaked`], with what is left, after [`PATIENCE`](crate::PATIENCE).
    ///
    /// # Cancel safety
    /// Reads only; dropping the future changes nothing.
    pub async fn back(&self) -> Result<(), Leaked> {
        let since = now();
        loop {
            let Err(leaked) = self.compare(now() - since) else { return Ok(()) };
            if leaked.waited >= PATIENCE {
                return Err(leaked);
            }
            // There is no event for "a task is gone", so this looks again. First it only lets other tasks run: enough
            // for what was just aborted, and it does not move a paused clock.
            for _ in 0..32 {
                tokio::task::yield_now().await;
            }
            if self.back_now().is_err() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// Waits until nothing is left beyond the baseline.
    ///
    /// # Panics
    /// With what is left, after [`PATIENCE`](crate::PATIENCE).
    ///
    /// # Cancel safety
    /// Reads only; dropping the future changes nothing.
    #[allow(clippy::panic, reason = "it is a test assertion")]
    pub async fn assert_back(&self) {
        if let Err(leaked) = self.back().await {
            panic!("{leaked}");
        }
    }

    fn compare(&self, waited: Duration) -> Result<(), Leaked> {
        let tasks_now = alive_tasks();
        let files = match (&self.files, open_files()) {
            (Some(before), Some(after)) => beyond(before, after),
            _ => Vec::new(),
        };
        if tasks_now <= self.tasks && files.is_empty() {
            return Ok(());
        }
        Err(Leaked { tasks_before: self.tasks, tasks_now, files, waited })
    }
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// What the open descriptors refer to, each with its number of descriptors; `None` where the system does not tell.
fn open_files() -> Option<BTreeMap<String, usize>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd").ok()? {
        // The descriptor of this very listing is gone by the time it could be compared, and so are others': skip those.
        let Ok(target) = entry.and_then(|entry| std::fs::read_link(entry.path())) else { continue };
        let target = target.to_string_lossy().into_owned();
        if !target.starts_with("/proc/") {
            *files.entry(target).or_insert(0) += 1;
        }
    }
    Some(files)
}

fn beyond(before: &BTreeMap<String, usize>, after: BTreeMap<String, usize>) -> Vec<String> {
    let surplus = |(target, count): (String, usize)| {
        let known = before.get(&target).copied().unwrap_or(0);
        std::iter::repeat_n(target, count.saturating_sub(known))
    };
    after.into_iter().flat_map(surplus).collect()
}

impl fmt::Display for Leaked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not back at the baseline after {:?}: {} tasks alive, were {}; {} more descriptors open",
            self.waited,
            self.tasks_now,
            self.tasks_before,
            self.files.len()
        )?;
        if !self.files.is_empty() {
            write!(f, " ({})", self.files.join(", "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Leaked {}

// === Wakes ===

impl Wakes {
    /// A counter at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Polls `future` once; its wakes are counted here.
    pub fn poll<F: Future>(&self, future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        let future = pin!(future);
        future.poll(&mut Context::from_waker(&self.waker()))
    }

    /// A waker that counts here.
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }

    /// How often a waker of this counter was woken.
    pub fn count(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }
}

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_took_the_place_of_another_is_a_leak() {
        let before = BTreeMap::from([("socket:[1]".to_owned(), 1), ("anon_inode:[eventfd]".to_owned(), 2)]);
        let after = BTreeMap::from([("socket:[2]".to_owned(), 1), ("anon_inode:[eventfd]".to_owned(), 3)]);
        assert_eq!(beyond(&before, after), ["anon_inode:[eventfd]", "socket:[2]"]);
    }

    #[test]
    fn what_is_left_is_named() {
        let leaked = Leaked {
            tasks_before: 1,
            tasks_now: 3,
            files: vec!["socket:[7]".to_owned()],
            waited: Duration::from_secs(10),
        };
        assert_eq!(
            leaked.to_string(),
            "not back at the baseline after 10s: 3 tasks alive, were 1; 1 more descriptors open (socket:[7])"
        );
    }
}
