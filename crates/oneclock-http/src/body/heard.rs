//! What an answer has said of the far side so far.
//!
//! Decides what its trailers change, and that a success which is told last earns its token then, and not with the head
//! (contract R8, R9). The same holds for what the destination's health is told.

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use oneclock::events::AnswerHead;
use oneclock::{Call, Retries, clock};
use oneclock_core::effect::Seen;
use oneclock_core::{Outcome, Tick, Trust};

use crate::ingress::Lent;
use crate::{grpc, marks};

/// What is known of the far side of a call while its answer comes.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) outcome: Outcome,
    pub(crate) trust: Trust,
    pub(crate) seen: Option<Seen>,     // none: the head left open how it went
    pub(crate) earns: Option<Retries>, // whose tokens, if the head left open how it went
    pub(crate) told_later: bool,       // whether the head left that open, for gRPC's trailers
}

impl Heard {
    /// The trailers came. They lose what is not the far side's to say.
    pub(crate) fn trailers(&mut self, trailers: &mut HeaderMap) {
        if let Some(status) = grpc::status(trailers) {
            self.seen = Some(Seen::GrpcAnswer { status, reason: marks::reason(trailers, self.trust) });
        }
        self.outcome = marks::hear_trailers(trailers, self.trust).unwrap_or(self.outcome);
    }

    /// The call is over.
    pub(crate) fn close(self, call: Call) {
        self.close_at(call, clock::now());
    }

    pub(crate) fn close_at(self, mut call: Call, now: Tick) {
        if let (true, Some(Seen::GrpcAnswer { status, .. })) = (self.told_later, self.seen) {
            tell_trailers(&call, status);
        }
        // Nothing more was said than the head of a success.
        call.saw(self.seen.unwrap_or(Seen::Answer { status: 200, reason: None }), now);
        if let (Outcome::Applied, Some(retries)) = (self.outcome, &self.earns) {
            retries.tokens().succeeded();
        }
        call.close_at(self.outcome, now);
    }
}

/// What observes the call hears the status of its trailers as it hears one that stands in a head: as that of an answer of trailers
/// only.
fn tell_trailers(call: &Call, status: u8) {
    if call.is_kept() {
        let content_type = HeaderValue::from_static("application/grpc");
        let fields = [(CONTENT_TYPE, content_type), (grpc::STATUS, HeaderValue::from(u16::from(status)))];
        call.answered(&AnswerHead::new(200, &Lent(&HeaderMap::from_iter(fields))));
    }
}
