//! One piece of work, for whoever waits for it.
//!
//! Decides the order: the work first, then the clock (contract X1), then a moment for what the cancel finds out. What is
//! dropped on the way is taken over, never lost (N1).

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::{TryStreamExt as _, stream};
use oneclock::EndOf;
use oneclock_core::grant::settling;

use crate::session::{Session, SqlxFault, Turned};
use crate::work::{Item, Kind};

/// How long the wait goes on after its end for what the cancel finds out: a cancelled statement comes back in less.
pub(crate) const SETTLE: Duration = Duration::from_millis(25);

/// Work of a session, for whoever waits for it. Dropped before its end, the work is taken over.
pub(crate) struct Turn {
    session: Arc<Session>,
    kind: Option<Kind>,
    end: Option<Pin<Box<EndOf>>>,
    stage: TurnStage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TurnStage {
    Fresh,
    Begun,
    Over,
}

// === Turn ===

impl Turn {
    pub(crate) fn new(session: &Arc<Session>, kind: Kind) -> Self {
        Self { session: Arc::clone(session), kind: Some(kind), end: None, stage: TurnStage::Fresh }
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Item, SqlxFault>> {
        if self.stage == TurnStage::Fresh
            && let Err(error) = self.begin().await
        {
            self.stage = TurnStage::Over;
            return Some(Err(error));
        }
        if self.stage == TurnStage::Over {
            return None;
        }
        let turned = poll_fn(|cx| match self.session.poll_work(cx) {
            Poll::Ready(turned) => Poll::Ready(Ok(turned)),
            Poll::Pending => self.end().as_mut().poll(cx).map(Err),
        })
        .await;
        let ending = match turned {
            Ok(Turned::Over(Ok(()))) => {
                self.stage = TurnStage::Over;
                return None;
            }
            Ok(Turned::Over(Err(error))) => {
                self.stage = TurnStage::Over;
                return Some(Err(error));
            }
            Ok(Turned::Taken) => None,
            // Rows that are there already do not stop the clock.
            Ok(Turned::Item(item)) => match self.session.ending() {
                None => return Some(Ok(item)),
                ending => ending,
            },
            Err(ending) => Some(self.session.ending().unwrap_or(ending)),
        };
        if let Some(ending) = ending {
            self.session.end(ending);
        }
        let settling = settling(SETTLE, self.session.operation().remaining());
        let told = tokio::time::timeout(settling, poll_fn(|cx| self.session.poll_told(cx))).await;
        self.stage = TurnStage::Over;
        Some(Err(SqlxFault::Ours(told.unwrap_or_else(|_| self.session.not_told()))))
    }

    /// To the end of work that gives nothing.
    pub(crate) async fn run(mut self) -> Result<(), SqlxFault> {
        while let Some(next) = self.next().await {
            next?;
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), SqlxFault> {
        let begun = poll_fn(|cx| {
            let mut kind = self.kind.take();
            let begun = self.session.poll_begin(cx, &mut kind);
            self.kind = kind;
            match begun {
                Poll::Ready(begun) => Poll::Ready(begun),
                // It is asked again when the end is there, and says so.
                Poll::Pending => match self.end().as_mut().poll(cx) {
                    Poll::Ready(ending) => {
                        Poll::Ready(Err(self.session.not_begun(self.session.ending().unwrap_or(ending))))
                    }
                    Poll::Pending => Poll::Pending,
                },
            }
        })
        .await;
        begun.map_err(SqlxFault::Ours)?;
        self.stage = TurnStage::Begun;
        Ok(())
    }

    fn end(&mut self) -> &mut Pin<Box<EndOf>> {
        let session = &self.session;
        self.end.get_or_insert_with(|| Box::pin(EndOf::or_at(session.operation().clone(), session.deadline())))
    }

    /// As sqlx's streams are.
    pub(crate) fn into_stream<'e>(self) -> BoxStream<'e, Result<Item, sqlx::Error>> {
        let turns = stream::unfold(self, async |mut turn| turn.next().await.map(|next| (next, turn)));
        Box::pin(turns.map_err(SqlxFault::into_sqlx))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.stage == TurnStage::Begun {
            self.session.lose_interest();
        }
    }
}
