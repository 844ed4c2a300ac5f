//! A value that travels through a channel together with its operation.
//!
//! Decides that the wait spends the operation's budget (stage `queue`, invariant I4), and that what expired on the way
//! is not started (contract X7).

use oneclock_core::Outcome;

use crate::Operation;
use crate::operation::OnTheWay;
use crate::run::Ended;

/// A value and the operation it belongs to, on their way through a queue.
///
/// ```
/// # use oneclock::{Carried, Operation}; use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let op = Operation::begin("order", Duration::from_millis(100));
/// let (sender, mut receiver) = tokio::sync::mpsc::channel(8);
/// sender.send(Carried::new(&op, "cart-7")).await.unwrap();
///
/// let (op, cart) = receiver.recv().await.unwrap().open().unwrap();
/// op.run(async { assert_eq!(cart, "cart-7") }).await.unwrap();
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a carried value belongs into a channel"]
pub struct Carried<T> {
    operation: Operation,
    value: T,
    on_the_way: OnTheWay,
}

/// The operation ended while its value was on the way. The value comes back, so that nothing is lost.
#[derive(Debug, thiserror::Error)]
#[error("the operation ended before its value was taken from the queue")]
#[non_exhaustive]
pub struct TooLate<T> {
    /// Which end it was. Its outcome is that of the whole operation, which may have done other things before.
    #[source]
    pub ended: Ended,
    /// The value.
    pub value: T,
}

// === Carried ===

impl<T> Carried<T> {
    /// Packs `value` for its way through a queue; from here on the wait is counted, until it is opened or dropped. Meanwhile
    /// the operation is in stage `queue`, unless a call of it says where it is.
    pub fn new(operation: &Operation, value: T) -> Self {
        Self { operation: operation.clone(), value, on_the_way: operation.carries() }
    }

    /// The operation, while the value is still on its way. For queues that order by what is left.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Takes the value out at its destination.
    ///
    /// # Errors
    /// [`TooLate`], if the operation has ended meanwhile: do not start the work.
    pub fn open(self) -> Result<(Operation, T), TooLate<T>> {
        let Self { operation, value, on_the_way } = self;
        let ended = operation.checkpoint().err();
        drop(on_the_way);
        match ended {
            Some(ended) => Err(TooLate { ended, value }),
            None => Ok((operation, value)),
        }
    }
}

// === TooLate ===

impl<T> TooLate<T> {
    /// What is known of the work that the value was for: it did not start, provided that whoever gets this does not start
    /// it.
    pub fn outcome(&self) -> Outcome {
        Outcome::NotSent
    }
}
