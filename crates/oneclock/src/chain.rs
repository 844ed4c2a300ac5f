//! Finding our own ending in anybody's error.
//!
//! Services wrap errors: in enums of their own, in boxes, with context. Whatever an ending stopped, or the lack of time kept
//! from beginning, leads to an [`Ending`] or a [`WhyNot`] at the end of its source chain; so no wrapper that keeps its
//! source can hide why work stopped. A [`HeldBack`] that code without an adapter passes on says it by itself. [`NotConnected`] is the
//! same for what could not be reached.

use std::error::Error;
use std::fmt;

use oneclock_core::{Ending, Reason};

use crate::grant::{Stopped, WhyNot};
use crate::{HeldBack, TaskFailed};

/// There was no connection to something that was called: proof that nothing was sent, and a failure that may pass. Drivers put it
/// into the source chain of their errors, so that whoever answers knows it without knowing the driver.
///
/// ```
/// # use oneclock::{NotConnected, not_connected_in};
/// #[derive(Debug, thiserror::Error)]
/// #[error("no stock today")]
/// struct OfMine(#[source] NotConnected);
///
/// let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
/// let error = OfMine(NotConnected::because(refused));
/// assert!(not_connected_in(&error).is_some_and(|found| found.why().is::<std::io::Error>()));
/// ```
#[derive(Debug)]
pub struct NotConnected(Box<dyn Error + Send + Sync>);

impl NotConnected {
    /// For this reason.
    pub fn because(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(why.into())
    }

    /// Why not; also its source.
    pub fn why(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }
}

impl fmt::Display for NotConnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no connection")
    }
}

impl Error for NotConnected {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// What there was no connection to, if anywhere in the chain of `error` something says so.
pub fn not_connected_in<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e NotConnected> {
    find(error, |error| error.downcast_ref())
}

/// Why work stopped, if anywhere in the chain of `error` something says that it was stopped.
///
/// ```
/// # use oneclock::{Operation, reason_in}; use oneclock_core::Reason; use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// #[derive(Debug, thiserror::Error)]
/// #[error(transparent)]
/// struct OfMine(#[from] oneclock::Ended);
///
/// let op = Operation::begin("job", Duration::from_millis(50));
/// let ended = op.run(std::future::pending::<()>()).await.unwrap_err();
/// assert_eq!(reason_in(&OfMine(ended)), Some(Reason::Cap));
/// # }
/// ```
pub fn reason_in(error: &(dyn Error + 'static)) -> Option<Reason> {
    find(error, |error| {
        let ending = error.downcast_ref::<Ending>().map(|ending| ending.reason());
        let reason = ending.or_else(|| error.downcast_ref::<WhyNot>().map(WhyNot::reason));
        reason.or_else(|| error.downcast_ref::<HeldBack>().map(HeldBack::reason))
    })
}

/// The same as the runtime's own error, if it is in the chain by itself: it knows more than the reason.
pub fn stopped_in<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e Stopped> {
    find(error, |error: &'e (dyn Error + 'static)| {
        if let Some(TaskFailed::Stopped(stopped)) = error.downcast_ref() {
            return Some(stopped);
        }
        #[cfg(all(feature = "process", unix))]
        if let Some(crate::ProcessFailed::Stopped(stopped)) = error.downcast_ref() {
            return Some(stopped);
        }
        error.downcast_ref()
    })
}

/// The first in the chain of `error` that `what` knows.
fn find<'e, W>(
    mut error: &'e (dyn Error + 'static),
    what: impl Fn(&'e (dyn Error + 'static)) -> Option<W>,
) -> Option<W> {
    loop {
        if let Some(found) = what(error) {
            return Some(found);
        }
        error = error.source()?;
    }
}
