//! One delivery of a job.
//!
//! Decides nothing of its own: who settles has the job's fence, and a fence that is older than the row's changes nothing.

use std::fmt;
use std::time::Duration;

use oneclock_core::Tick;
use oneclock_core::expiry::{Stamp, names};
use oneclock_queue::{Delivery, Message, NotSettled, Settle};

use super::table::{Mine, Taken};
use super::{PgQueue, table};
use crate::error::PgError;

/// A delivery of a [`PgQueue`]. Dropped without a word, it comes again when its lease is over.
pub struct PgDelivery {
    queue: PgQueue,
    asked: Tick,
    taken: Taken,
}

// === PgDelivery ===

impl PgDelivery {
    pub(super) fn new(queue: PgQueue, asked: Tick, taken: Taken) -> Self {
        Self { queue, asked, taken }
    }

    /// The number of its row.
    pub const fn row(&self) -> i64 {
        self.taken.mine.id
    }

    /// Its fence: higher than that of every delivery of the job before.
    pub const fn fence(&self) -> i64 {
        self.taken.mine.fence
    }
}

impl Delivery for PgDelivery {
    fn message(&self) -> &Message {
        &self.taken.message
    }

    fn attempt(&self) -> u32 {
        self.taken.attempt
    }

    fn may_have_run(&self) -> bool {
        self.taken.may_have_run
    }

    fn asked(&self) -> Tick {
        self.asked
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.queue.0.lease)
    }

    async fn renew(&self) -> Result<(), NotSettled> {
        let renewed = async {
            let mut client = self.queue.client("renew").await?;
            table::renew(&mut client, &[self.taken.mine], self.queue.0.lease).await
        };
        ours(renewed.await.map_err(failed)?)
    }

    async fn settle(&self, settle: &Settle) -> Result<(), NotSettled> {
        let settled = match settle {
            Settle::Redrive(stamp) => Box::pin(self.queue.redrive(self.taken.mine, stamp)).await,
            settle => Box::pin(self.queue.settle(&[self.taken.mine], settle)).await,
        };
        ours(settled.map_err(failed)?)
    }
}

impl fmt::Debug for PgDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgDelivery")
            .field("queue", &self.queue.0.name)
            .field("message", &self.taken.message.id)
            .field("attempt", &self.taken.attempt)
            .field("fence", &self.taken.mine.fence)
            .finish_non_exhaustive()
    }
}

impl PgQueue {
    /// What becomes of these. How many were still ours.
    pub(super) async fn settle(&self, mine: &[Mine], settle: &Settle) -> Result<usize, PgError> {
        let mut client = self.client("settle").await?;
        let left = table::settle(&mut client, mine, settle).await?;
        self.0.counts.add(&left.slots);
        self.flush_if_due(&mut client).await;
        Ok(left.rows)
    }

    /// Puts a dead letter back. Its fields change by nobody else but who has its fence, so that reading and writing them are two
    /// statements.
    async fn redrive(&self, mine: Mine, stamp: &Stamp) -> Result<usize, PgError> {
        let mut client = self.client("redrive").await?;
        match table::headers(&mut client, mine).await? {
            Some(headers) => table::put_back(&mut client, mine, &redriven(headers, stamp)).await,
            None => Ok(0),
        }
    }
}

fn ours(rows: usize) -> Result<(), NotSettled> {
    if rows == 0 { Err(NotSettled::Lost) } else { Ok(()) }
}

fn failed(error: PgError) -> NotSettled {
    NotSettled::Failed(Box::new(error))
}

/// The header fields of a dead letter as those of work again: what is not about redrives is not touched.
fn redriven(headers: Vec<String>, stamp: &Stamp) -> Vec<String> {
    let is = |name: &str, known: &str| names::attribute(name).eq_ignore_ascii_case(known);
    let mut again = Vec::with_capacity(headers.len() + 4);
    let mut pairs = headers.into_iter();
    while let (Some(name), Some(value)) = (pairs.next(), pairs.next()) {
        if !is(&name, names::REDRIVES) && !is(&name, names::OWNER) && !table::is_of_a_dead_letter(&name) {
            again.extend([name, value]);
        }
    }
    stamp.write(|name, value| {
        if matches!(name, names::REDRIVES | names::OWNER) {
            again.extend([name.to_owned(), value.to_owned()]);
        }
    });
    again
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q1_what_is_put_back_has_every_field_as_it_came() {
        let came = ["ce-expirytime", "2026-01-31T12:00:10.5+01:00", "X-Odd", " \u{e9} ", "X-Odd", "twice"];
        let gone = ["deadline-redrives", "1", "Deadline-Owner", "shop", "Deadline-Dead-Reason", "rejected"];
        let headers = came.iter().chain(&gone).map(|text| (*text).to_owned()).collect();
        let stamp = Stamp { owner: Some("payments".into()), redrives: 2, ..Stamp::default() };
        let added = ["deadline-owner", "payments", "deadline-redrives", "2"];
        assert_eq!(redriven(headers, &stamp), [&came[..], &added[..]].concat());
    }
}
