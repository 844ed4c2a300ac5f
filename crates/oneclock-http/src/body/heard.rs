//! What an answer has said of the far side so far.
//!
//! Decides what its trailers change, and that a success which is told last earns its token then, and not with the head
//! (contract R8, R9).

use http::HeaderMap;
use oneclock::{Call, Retries, clock};
use oneclock_core::{Outcome, Tick, Trust};

use crate::marks;

/// What is known of the far side of a call while its answer comes.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) outcome: Outcome,
    pub(crate) trust: Trust,
    pub(crate) earns: Option<Retries>, // whose tokens, if the head left open how it went
}

impl Heard {
    /// The trailers came. They lose what is not the far side's to say.
    pub(crate) fn trailers(&mut self, trailers: &mut HeaderMap) {
        self.outcome = marks::hear_trailers(trailers, self.trust).unwrap_or(self.outcome);
    }

    /// The call is over.
    pub(crate) fn close(self, call: Call) {
        self.close_at(call, clock::now());
    }

    pub(crate) fn close_at(self, call: Call, now: Tick) {
        if let (Outcome::Applied, Some(retries)) = (self.outcome, &self.earns) {
            retries.tokens().succeeded();
        }
        call.close_at(self.outcome, now);
    }
}
