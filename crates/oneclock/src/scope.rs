//! Which operation is current: a task-local, set while a future of the operation is polled.
//!
//! The innermost scope wins. It does not cross `tokio::spawn`, on purpose: what is spawned by hand has no owner here.
//!
//! Also who waits for its end already. Whoever drives an operation polls its work and then waits for its end. What waits for the
//! same end inside that poll, with the same waker, would be woken together with it and by nothing else: it needs no timer and no
//! waiter of its own, and asks the clock when it is polled, as it does anyway. Another waker is another matter: a future in a
//! `FuturesUnordered` is not polled when its task is.

use std::cell::Cell;
use std::future::Future;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::task::Context;

use tokio::task::futures::TaskLocalFuture;

use crate::Operation;

tokio::task_local! {
    static CURRENT: Operation;
}

thread_local! {
    static AWAITED: Cell<Awaited> = const { Cell::new(Awaited::NOTHING) };
}

/// The end that the caller of this code waits for, right after it. Addresses: they are compared, and only while both are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Awaited {
    operation: usize,
    waker: (usize, usize),
}

/// Says so until it is dropped.
#[must_use = "it holds until it is dropped"]
#[derive(Debug)]
pub struct Awaiting<'a> {
    before: Awaited,
    poll: PhantomData<(&'a Operation, *const ())>, // of one poll, on one thread
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

/// From here on the caller waits for the end of `operation`, if what it polls meanwhile is not ready.
pub(crate) fn awaiting<'a>(operation: &'a Operation, cx: &Context<'_>) -> Awaiting<'a> {
    Awaiting { before: AWAITED.replace(Awaited::of(operation, cx)), poll: PhantomData }
}

/// Whether somebody who polls this code waits for the end of `operation`, and is woken for it as this is.
pub(crate) fn is_awaited(operation: &Operation, cx: &Context<'_>) -> bool {
    AWAITED.get() == Awaited::of(operation, cx)
}

// === Awaited ===

impl Awaited {
    const NOTHING: Self = Self { operation: 0, waker: (0, 0) };

    fn of(operation: &Operation, cx: &Context<'_>) -> Self {
        let (data, vtable) = (cx.waker().data().addr(), ptr::from_ref(cx.waker().vtable()).addr());
        Self { operation: Arc::as_ptr(&operation.0).addr(), waker: (data, vtable) }
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        AWAITED.set(self.before);
    }
}
