//! The peers at the far end of a call, speaking what their shop speaks.

use std::time::Duration;

use oneclock_test::Reason;
use oneclock_test::peer::{self, Peer, ResetAt, StreamResetAt};

use crate::shop::Shop;
use crate::ways::Way;

impl Shop {
    /// Never answers.
    pub(crate) fn stalls(&self) -> Peer {
        match self.way() {
            Way::Grpc => peer::grpc::stall(),
            way => peer::stall(way.protocol()),
        }
        .unwrap()
    }

    /// Begins its answer, and never ends it.
    pub(crate) fn stalls_mid_body(&self) -> Peer {
        match self.way() {
            Way::Grpc => peer::grpc::stall_mid_body(),
            way => peer::stall_mid_body(way.protocol()),
        }
        .unwrap()
    }

    /// Answers late.
    pub(crate) fn slow(&self, delay: Duration) -> Peer {
        match self.way() {
            Way::Grpc => peer::grpc::slow(delay),
            way => peer::slow(way.protocol(), delay),
        }
        .unwrap()
    }

    /// Answers with the head of what it received.
    pub(crate) fn echoes(&self) -> Peer {
        match self.way() {
            Way::Grpc => peer::grpc::echo_headers(),
            way => peer::echo_headers(way.protocol()),
        }
        .unwrap()
    }

    /// Does not read what is sent to it.
    pub(crate) fn stops_reading(&self) -> Peer {
        match self.way() {
            Way::Grpc => peer::grpc::stops_reading(),
            way => peer::stops_reading(way.protocol()),
        }
        .unwrap()
    }

    /// Reads a request, and resets it in place of an answer.
    pub(crate) fn resets(&self) -> Peer {
        match self.way() {
            Way::Http1 => peer::reset(ResetAt::RequestRead),
            Way::Http2 => peer::reset_stream(StreamResetAt::BeforeHead, Reason::INTERNAL_ERROR),
            Way::Grpc => peer::grpc::reset_stream(StreamResetAt::BeforeHead, Reason::INTERNAL_ERROR),
        }
        .unwrap()
    }
}
