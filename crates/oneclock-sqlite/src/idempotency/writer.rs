//! The one thread that writes: takes all that waits, decides it in one transaction, and answers after its commit.
//!
//! Decides the grouping (there is no artificial wait: what comes while one commit is being synced is the next one) and that a
//! request whose asker has left is not claimed any more, while what became of a run is written whoever has left.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use oneclock_core::idempotency::{
    Claim, Claiming, Enqueue, Enqueued, Enqueueing, Fence, Record, Scope, Stepped, claim, enqueue,
};
use oneclock_core::wire::Wall;
use oneclock_idempotency::{Found, Kept, Settle, Settled, StoreError, Which};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{Counts, table};

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// One request to the store.
pub(super) enum Command {
    Claim { scope: Scope, claim: Claim, reply: Reply<Found> },
    Enqueue { scope: Scope, ask: Enqueue, reply: Reply<Enqueued> },
    Settle { scope: Scope, fence: Fence, settle: Settle, reply: Reply<Settled> },
    Read { scope: Scope, reply: Reply<Option<Kept>> },
    List { which: Which, after: Option<Scope>, limit: usize, reply: Reply<Vec<(Scope, Record)>> },
    Reap { limit: usize, reply: Reply<usize> },
}

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) batch: usize,
    pub(super) clock: Box<dyn Fn() -> Wall + Send>,
    pub(super) counts: Arc<Counts>,
}

/// An answer that is held back until its commit.
type Held = Box<dyn FnOnce(Result<(), StoreError>)>;

impl Writer {
    /// Until every sender is gone and everything asked is answered.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        let mut commands = Vec::with_capacity(self.batch);
        while let Some(first) = queue.blocking_recv() {
            commands.push(first);
            while commands.len() < self.batch
                && let Ok(next) = queue.try_recv()
            {
                commands.push(next);
            }
            commands.retain(Command::is_wanted);
            self.commit(commands.drain(..));
        }
    }

    /// One transaction: all of it is there, or nothing.
    fn commit(&mut self, commands: impl ExactSizeIterator<Item = Command>) {
        let now = (self.clock)();
        let count = commands.len();
        if count == 0 {
            return;
        }
        let mut held: Vec<Held> = Vec::with_capacity(count);
        let begun = self.connection.execute_batch("BEGIN IMMEDIATE");
        let mut failed = begun.err();
        for command in commands {
            match &failed {
                None => {
                    let (answer, error) = self.decide(command, now);
                    held.push(answer);
                    failed = error;
                }
                Some(_) => held.push(command.given_up()),
            }
        }
        if failed.is_none() {
            failed = self.connection.execute_batch("COMMIT").err();
        }
        if let Some(error) = failed {
            if !self.connection.is_autocommit() {
                // Should this fail too, the next BEGIN does, and everybody is told.
                let _ = self.connection.execute_batch("ROLLBACK");
            }
            tracing::warn!(error = &error as &dyn std::error::Error, count, "a commit of the idempotency store failed");
            let error = Arc::new(error);
            for answer in held {
                answer(Err(StoreError::failed(Arc::clone(&error))));
            }
            return;
        }
        self.counts.commits.fetch_add(1, Ordering::Relaxed);
        self.counts.held.fetch_add(count as u64, Ordering::Relaxed);
        for answer in held {
            answer(Ok(()));
        }
    }

    /// What one command does inside of the transaction, and the answer for after it. An error ends the transaction.
    fn decide(&self, command: Command, now: Wall) -> (Held, Option<rusqlite::Error>) {
        let connection = &self.connection;
        match command {
            Command::Claim { scope, claim, reply } => hold(reply, claims(connection, &scope, &claim, now)),
            Command::Enqueue { scope, ask, reply } => hold(reply, enqueues(connection, &scope, &ask, now)),
            Command::Settle { scope, fence, settle, reply } => {
                hold(reply, settles(connection, &scope, fence, &settle, now))
            }
            Command::Read { scope, reply } => {
                let kept = table::read(connection, &scope);
                hold(reply, kept.map(|kept| kept.map(|kept| Kept { record: kept.record.at(now), ..kept })))
            }
            Command::List { which, after, limit, reply } => {
                hold(reply, table::list(connection, which, after.as_ref(), limit, now))
            }
            Command::Reap { limit, reply } => hold(reply, table::reap(connection, limit, now)),
        }
    }
}

fn claims(connection: &Connection, scope: &Scope, asked: &Claim, now: Wall) -> rusqlite::Result<Found> {
    let found = table::read(connection, scope)?;
    let floor = if found.is_some() { Fence::NONE } else { table::floor(connection)? };
    let Claiming { write, claimed } = claim(found.as_ref().map(|kept| &kept.record), floor, asked, now);
    match write {
        Some(record) => {
            table::write(connection, scope, &record, None)?;
            Ok(Found { claimed, answer: None })
        }
        None => Ok(Found { claimed, answer: found.and_then(|kept| kept.answer) }),
    }
}

fn enqueues(connection: &Connection, scope: &Scope, ask: &Enqueue, now: Wall) -> rusqlite::Result<Enqueued> {
    let found = table::read(connection, scope)?.map(|kept| kept.record);
    let floor = if found.is_some() { Fence::NONE } else { table::floor(connection)? };
    let Enqueueing { write, enqueued } = enqueue(found.as_ref(), floor, ask, now);
    if let Some(record) = write {
        table::write(connection, scope, &record, None)?;
    }
    Ok(enqueued)
}

fn settles(
    connection: &Connection,
    scope: &Scope,
    fence: Fence,
    settle: &Settle,
    now: Wall,
) -> rusqlite::Result<Settled> {
    let Some(kept) = table::read(connection, scope)? else { return Ok(Settled::Absent) };
    let stepped = kept.record.step(fence, settle.step(), now);
    if let Stepped::Done(record) = stepped {
        table::write(connection, scope, &record, settle.answer())?;
    }
    Ok(stepped.into())
}

fn hold<T: 'static>(reply: Reply<T>, result: rusqlite::Result<T>) -> (Held, Option<rusqlite::Error>) {
    match result {
        Ok(value) => (hold_back(reply, Some(Ok(value))), None),
        // A row that cannot be read concerns whoever asked for it, and nobody else in this commit.
        Err(error) if error.sqlite_error().is_none() => (hold_back(reply, Some(Err(StoreError::failed(error)))), None),
        Err(error) => (hold_back(reply, None), Some(error)),
    }
}

/// `None`: it came to nothing, and so did its transaction.
fn hold_back<T: 'static>(reply: Reply<T>, value: Option<Result<T, StoreError>>) -> Held {
    Box::new(move |committed| {
        let answer = match (committed, value) {
            (Ok(()), Some(value)) => value,
            (Ok(()), None) => Err(StoreError::Closed), // not reached: what came to nothing is not committed
            (Err(error), _) => Err(error),
        };
        let _ = reply.send(answer); // whoever asked may have left
    })
}

impl Command {
    /// Whether it is still to be done. A claim whose asker has left would be nobody's run.
    fn is_wanted(&self) -> bool {
        match self {
            Self::Claim { reply, .. } => !reply.is_closed(),
            Self::Enqueue { reply, .. } => !reply.is_closed(),
            Self::Settle { .. } => true,
            Self::Read { reply, .. } => !reply.is_closed(),
            Self::List { reply, .. } => !reply.is_closed(),
            Self::Reap { reply, .. } => !reply.is_closed(),
        }
    }

    fn given_up(self) -> Held {
        match self {
            Self::Claim { reply, .. } => hold_back(reply, None),
            Self::Enqueue { reply, .. } => hold_back(reply, None),
            Self::Settle { reply, .. } => hold_back(reply, None),
            Self::Read { reply, .. } => hold_back(reply, None),
            Self::List { reply, .. } => hold_back(reply, None),
            Self::Reap { reply, .. } => hold_back(reply, None),
        }
    }
}
