//! Answers and data that come piece by piece: rows, `COPY` out and `COPY` in.
//!
//! Decides that each wait for a piece ends with the call. A stream that is dropped before its end is a statement that was
//! abandoned.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::SinkExt;
use tokio_postgres::{CopyInSink, CopyOutStream, Row, RowStream};

use crate::error::PgError;
use crate::flight::Flight;

/// The rows of a statement. Made by [`Session::query_raw`](crate::Session::query_raw).
#[must_use = "dropping it cancels the statement"]
pub struct Rows<'s>(Pieces<'s, RowStream>);

/// The data of a `COPY … TO STDOUT`. Made by [`Session::copy_out`](crate::Session::copy_out).
#[must_use = "dropping it cancels the statement"]
pub struct CopyOut<'s>(Pieces<'s, CopyOutStream>);

/// A `COPY … FROM STDIN` under way. Made by [`Session::copy_in`](crate::Session::copy_in).
#[must_use = "dropping it takes back what was copied"]
pub struct CopyIn<'s> {
    // First, so that it goes first: its end is what the server waits for.
    sink: Pin<Box<CopyInSink<Bytes>>>,
    flight: Flight<'s>,
}

struct Pieces<'s, S> {
    stream: Pin<Box<S>>,
    over: bool,
    flight: Flight<'s>,
}

// === Pieces ===

impl<'s, S> Pieces<'s, S> {
    fn new(flight: Flight<'s>, stream: S) -> Self {
        Self { stream: Box::pin(stream), over: false, flight }
    }
}

impl<T, S> Pieces<'_, S>
where
    S: Stream<Item = Result<T, tokio_postgres::Error>>,
{
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, PgError>>> {
        if self.over {
            return Poll::Ready(None);
        }
        if let Some(ending) = self.flight.is_over() {
            self.over = true;
            return Poll::Ready(Some(Err(self.flight.cut_off(ending))));
        }
        let Poll::Ready(piece) = self.stream.as_mut().poll_next(cx) else {
            let ending = ready!(self.flight.poll_end(cx));
            self.over = true;
            return Poll::Ready(Some(Err(self.flight.cut_off(ending))));
        };
        Poll::Ready(match piece {
            Some(Ok(piece)) => Some(Ok(piece)),
            Some(Err(error)) => {
                self.over = true;
                Some(Err(self.flight.failed(error)))
            }
            None => {
                self.over = true;
                self.flight.land_now();
                None
            }
        })
    }
}

// === Rows ===

impl<'s> Rows<'s> {
    pub(crate) fn new(flight: Flight<'s>, stream: RowStream) -> Self {
        Self(Pieces::new(flight, stream))
    }
}

impl Stream for Rows<'_> {
    type Item = Result<Row, PgError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next(cx)
    }
}

impl fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("over", &self.0.over).finish_non_exhaustive()
    }
}

// === CopyOut ===

impl<'s> CopyOut<'s> {
    pub(crate) fn new(flight: Flight<'s>, stream: CopyOutStream) -> Self {
        Self(Pieces::new(flight, stream))
    }
}

impl Stream for CopyOut<'_> {
    type Item = Result<Bytes, PgError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next(cx)
    }
}

impl fmt::Debug for CopyOut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOut").field("over", &self.0.over).finish_non_exhaustive()
    }
}

// === CopyIn ===

impl<'s> CopyIn<'s> {
    pub(crate) fn new(flight: Flight<'s>, sink: CopyInSink<Bytes>) -> Self {
        Self { sink: Box::pin(sink), flight }
    }

    /// Sends a piece of data. Waits while the server takes none.
    ///
    /// # Errors
    /// [`PgError`]; nothing of the copy is in the database.
    ///
    /// # Cancel safety
    /// Dropping it leaves open whether the piece was sent: drop the copy too.
    pub async fn send(&mut self, data: Bytes) -> Result<(), PgError> {
        let sink = &mut self.sink;
        self.flight.step(async { sink.send(data).await }).await
    }

    /// Ends the copy. How many rows it brought.
    ///
    /// # Errors
    /// [`PgError`]; its [`outcome`](PgError::outcome) says what is known of the copy as a whole.
    ///
    /// # Cancel safety
    /// Dropping it cancels the copy, which may have gone through.
    pub async fn finish(mut self) -> Result<u64, PgError> {
        let sink = &mut self.sink;
        self.flight.last(async { sink.as_mut().finish().await }).await
    }
}

impl fmt::Debug for CopyIn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyIn").finish_non_exhaustive()
    }
}
