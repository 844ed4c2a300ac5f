//! Which operation is current: a task-local, set while a future of the operation is polled.
//!
//! The innermost scope wins. It does not cross `tokio::spawn`, on purpose: what is spawned by hand has no owner here.

use std::future::Future;

use tokio::task::futures::TaskLocalFuture;

use crate::Operation;

tokio::task_local! {
    static CURRENT: Operation;
}

/// A future that runs with an operation as the current one.
pub type Scoped<F> = TaskLocalFuture<Operation, F>;

pub(crate) fn current<R>(read: impl FnOnce(&Operation) -> R) -> Option<R> {
    CURRENT.try_with(read).ok()
}

pub(crate) fn scoped<F: Future>(operation: Operation, future: F) -> Scoped<F> {
    CURRENT.scope(operation, future)
}

pub(crate) fn sync<R>(operation: Operation, f: impl FnOnce() -> R) -> R {
    CURRENT.sync_scope(operation, f)
}
