//! One request and its answer as the accept loop sees them: what ends them from outside when hyper polls nothing.
//!
//! Decides who cuts a stalled answer (contract X8). A body that hyper does not poll, because the peer takes no bytes,
//! cannot notice a deadline by itself. So [`serve`](crate::serve) polls every HTTP/2 stream and every HTTP/1 connection
//! through [`Guarded`]; while an answer is being written, its operation's end drops that future, which resets the stream
//! with CANCEL or closes the socket without a final chunk (contract X3).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use oneclock::{EndOf, Operation, clock};
use oneclock_core::{BoundBy, Budget, Ending, Stage};
use pin_project_lite::pin_project;
use tokio::task::futures::TaskLocalFuture;
use tokio::time::Sleep;

tokio::task_local! {
    static CURRENT: Exchange;
}

/// The exchange that this task serves. Found by the ingress layer with [`current`](Self::current).
#[derive(Clone, Debug, Default)]
pub struct Exchange(Arc<Mutex<Writing>>);

#[derive(Debug, Default)]
struct Writing {
    operation: Option<Operation>,
    turn: u64,        // counts answers, so that the next one on a kept connection is not taken for this one
    one_answer: bool, // a stream: what is guarded ends with its answer, which hyper may still hold when it has taken all
    flush_by: Option<Budget>, // a stream's answer was taken, and has to be gone by then
}

pin_project! {
    /// Polls a stream or a connection, and gives it up when the answer that is being written has run out of time.
    #[must_use = "futures do nothing unless polled"]
    pub struct Guarded<F> {
        #[pin]
        inner: TaskLocalFuture<Exchange, F>,
        exchange: Exchange,
        #[pin]
        end: Option<EndOf>,
        #[pin]
        flush: Option<Sleep>,
        bound: BoundBy, // of the answer that is being flushed
        turn: u64,
    }
}

// === Exchange ===

impl Exchange {
    /// The exchange of the task that polls this code, under an accept loop that has one.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Polls `inner`, which carries one answer (an HTTP/2 stream), with a new exchange as the current one. It has to be
    /// done by the answer's deadline, also when hyper has taken all of the body and the peer takes none of it.
    pub fn guard_stream<F: Future>(inner: F) -> Guarded<F> {
        Self::guard(inner, true)
    }

    /// Polls `inner`, which carries one answer after another (an HTTP/1 connection), with a new exchange as the current
    /// one. Between two answers it is left alone; what hyper has taken is the write-progress limit's business.
    pub fn guard_connection<F: Future>(inner: F) -> Guarded<F> {
        Self::guard(inner, false)
    }

    fn guard<F: Future>(inner: F, one_answer: bool) -> Guarded<F> {
        let exchange = Self(Arc::new(Mutex::new(Writing { one_answer, ..Writing::default() })));
        Guarded {
            inner: CURRENT.scope(exchange.clone(), inner),
            exchange,
            end: None,
            flush: None,
            bound: BoundBy::Caller,
            turn: 0,
        }
    }

    /// The head of the answer is handed over, its body follows: from here on the operation's end ends the exchange.
    ///
    /// Returns the turn of this answer, which [`answered`](Self::answered) takes.
    pub(crate) fn answering(&self, operation: &Operation) -> u64 {
        let (turn, before) = {
            let mut answering = self.lock();
            answering.turn += 1;
            (answering.turn, answering.operation.replace(operation.clone()))
        };
        drop(before); // outside the lock: it may be the last of its operation, whose end is told to others
        turn
    }

    /// The whole body of this turn was handed over, or dropped. An older one that is let go late changes nothing.
    pub(crate) fn answered(&self, turn: u64) {
        let operation = {
            let mut answering = self.lock();
            if answering.turn == turn {
                let operation = answering.operation.take();
                answering.flush_by = operation.as_ref().filter(|_| answering.one_answer).map(Operation::budget);
                operation
            } else {
                None
            }
        };
        drop(operation);
    }

    fn lock(&self) -> MutexGuard<'_, Writing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === Guarded ===

impl<F: Future> Future for Guarded<F> {
    /// What the inner future gave, or the ending for which it must be dropped.
    type Output = Result<F::Output, Ending>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Poll::Ready(output) = this.inner.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let next = {
            let answering = this.exchange.lock();
            if let Some(flush_by) = answering.flush_by
                && this.flush.is_none()
            {
                this.flush.set(Some(tokio::time::sleep_until(clock::instant(flush_by.deadline))));
                *this.bound = flush_by.bound.by;
            }
            match &answering.operation {
                None => Some(None),
                Some(operation) if this.end.is_none() || *this.turn != answering.turn => {
                    *this.turn = answering.turn;
                    Some(Some(operation.clone()))
                }
                Some(_) => None,
            }
        };
        if let Some(next) = next {
            this.end.set(next.map(EndOf::new));
        }
        if let Some(end) = this.end.as_mut().as_pin_mut() {
            let ending = ready!(end.poll(cx));
            // It may have come since the body was asked a moment ago: that has last words to say, trailers for example.
            if let Poll::Ready(output) = this.inner.poll(cx) {
                return Poll::Ready(Ok(output));
            }
            return Poll::Ready(Err(ending));
        }
        let Some(flush) = this.flush.as_pin_mut() else { return Poll::Pending };
        ready!(flush.poll(cx));
        Poll::Ready(Err(Ending::out_of_time(*this.bound, Stage::Body, clock::now())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oneclock_core::Cause;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn x8_what_is_never_polled_again_is_dropped_at_the_deadline() {
        let op = Operation::begin("answer", Duration::from_millis(300));
        let answer = op.clone();
        let stalled = Exchange::guard_stream(async move {
            let exchange = Exchange::current().expect("under a guard");
            exchange.answering(&answer);
            std::future::pending::<()>().await;
        });
        let began = clock::now();
        let ending = stalled.await.expect_err("cut off");
        assert_eq!(ending.cause, Cause::Deadline);
        assert_eq!(clock::now().since(began).as_millis(), 300);
    }

    /// Else a stream whose last message comes at its deadline would be reset, in place of its trailers.
    #[tokio::test(start_paused = true)]
    async fn x3_an_end_that_comes_while_the_body_is_polled_leaves_it_its_last_words() {
        let op = Operation::begin("answer", Duration::from_millis(300));
        let mut polls = 0;
        let racing = Exchange::guard_stream(std::future::poll_fn(move |_| {
            polls += 1;
            if polls > 1 {
                return Poll::Ready("trailers");
            }
            Exchange::current().expect("under a guard").answering(&op);
            op.call_off(); // right after it was asked for more, and had nothing
            Poll::Pending
        }));
        assert_eq!(racing.await.expect("not cut off"), "trailers");
    }

    #[tokio::test(start_paused = true)]
    async fn between_two_answers_a_connection_lives_on() {
        let first = Operation::begin("first", Duration::from_millis(100));
        let second = Operation::begin("second", Duration::from_millis(1_000));
        let connection = Exchange::guard_connection(async move {
            let exchange = Exchange::current().expect("under a guard");
            let turn = exchange.answering(&first);
            tokio::time::sleep(Duration::from_millis(50)).await;
            exchange.answered(turn);
            tokio::time::sleep(Duration::from_millis(500)).await;
            let late = turn;
            let turn = exchange.answering(&second);
            exchange.answered(late); // of the first answer, let go late: the second stays guarded
            assert!(exchange.lock().operation.is_some());
            tokio::time::sleep(Duration::from_millis(10)).await;
            exchange.answered(turn);
            "closed by the client"
        });
        assert_eq!(connection.await.expect("not cut off"), "closed by the client");
    }

    /// hyper may have taken all of a small answer and hold it, because the peer takes nothing.
    #[tokio::test(start_paused = true)]
    async fn x8_a_stream_that_holds_a_whole_answer_is_dropped_at_its_deadline() {
        let op = Operation::begin("answer", Duration::from_millis(300));
        let began = clock::now();
        let holding = Exchange::guard_stream(async move {
            let exchange = Exchange::current().expect("under a guard");
            let turn = exchange.answering(&op);
            exchange.answered(turn);
            drop(op); // the work is done
            std::future::pending::<()>().await;
        });
        let ending = holding.await.expect_err("cut off");
        assert_eq!((ending.cause, ending.bound), (Cause::Deadline, BoundBy::Cap), "of `begin`");
        assert_eq!(clock::now().since(began).as_millis(), 300);
    }
}
