//! What a caller is told when it gets no answer, and what is known of the other side then.

use std::sync::Arc;

use oneclock::{HasOutcome, NotConnected, Stopped, reason_in};
use oneclock_core::{Name, Outcome, Reason, Refused, Stage};

use super::messages::Declined;

/// A client for requests cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadRequests {
    /// A cap that no call could keep (contract C1).
    #[error("the cap of calls named {call}")]
    Cap {
        /// The calls.
        call: Name,
        /// What is wrong with it.
        source: Refused,
    },
    /// Its connection was closed for good.
    #[error("answers could not be subscribed to")]
    Subscribe(#[source] async_nats::SubscribeError),
}

/// A request gave no answer. Its [`outcome`](Self::outcome) says what is known of whoever was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Not begun, or cut off: by the deadline, the caller's leaving, a shutdown. Carries the ledger.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// There is no connection at the moment. Nothing was sent: the client would keep it, and send it when its time is over.
    #[error("{operation} → {call}: no connection to nats, outcome: {}", Outcome::NotSent)]
    NotConnected {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// Why not.
        source: NotConnected,
    },
    /// It cannot be sent, now or another time. Nothing was sent.
    #[error("{operation} → {call}: {what}, outcome: {}", Outcome::NotSent)]
    NotARequest {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// What of it is wrong.
        what: String,
    },
    /// Nobody answers this subject, says the server: nobody got it.
    #[error("{operation} → {call}: nobody answers {subject}, outcome: {}", Outcome::Rejected)]
    NoResponders {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// What was asked.
        subject: Arc<str>,
    },
    /// It was answered with an error.
    #[error("{operation} → {call}: declined with {}: {}, outcome: {outcome}", declined.status, declined.said)]
    Declined {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
        /// What is known of whoever answered.
        outcome: Outcome,
        /// The answer.
        declined: Declined,
    },
    /// The client was closed while its answer was waited for.
    #[error("{operation} → {call}: the connection was closed for good, outcome: {}", CLOSED)]
    Closed {
        /// The operation.
        operation: Name,
        /// What it called.
        call: Name,
    },
}

const CLOSED: Outcome = Outcome::Unknown { stage: Stage::Wait };

// === RequestError ===

impl RequestError {
    /// What is known of whoever was asked (contract R8).
    ///
    /// - [`NotSent`](Outcome::NotSent): proven: nothing was sent.
    /// - [`Rejected`](Outcome::Rejected): nobody got it, or whoever did refused it before any of its work began: it had no time left,
    ///   or no place was free.
    /// - [`Failed`](Outcome::Failed): it was declined, and would be the next time.
    /// - [`Unknown`](Outcome::Unknown): it may have been done.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Stopped(stopped) => stopped.outcome(),
            Self::NotConnected { .. } | Self::NotARequest { .. } => Outcome::NotSent,
            Self::NoResponders { .. } => Outcome::Rejected,
            Self::Declined { outcome, .. } => *outcome,
            Self::Closed { .. } => CLOSED,
        }
    }

    /// What the caller's caller is told, if something stopped it (contract section 5).
    pub fn reason(&self) -> Option<Reason> {
        reason_in(self)
    }
}

impl HasOutcome for RequestError {
    fn outcome(&self) -> Outcome {
        self.outcome()
    }
}
