//! How the end of an answer in the middle is said to a caller that expects messages: as trailers, or as a last message.
//!
//! Decides when it can be said at all (contract X3): between two messages, before the producer has said its own last words, and
//! where it reaches the caller. Everything else ends with an error, which resets the stream; and that its code claims nothing of
//! the request that is not so.

use std::error::Error as StdError;

use http_body::Frame;
use oneclock::{Ended, Operation};
use oneclock_core::{Bound, Ending, Trust};

use bytes::Bytes;

use super::BoxError;
use super::stream::Stream;
use crate::problem::Problem;
use crate::protocol::{Messages, Protocol};

/// What is needed to say it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastWords {
    pub(crate) protocol: Protocol,
    pub(crate) trust: Trust,
    pub(crate) messages: Messages,
    pub(crate) can_be_said: bool, // trailers reach the caller
}

/// What produced an answer failed, and nothing of that is for hyper to say: it resets the stream with INTERNAL_ERROR.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BrokeOff(BoxError);

impl LastWords {
    /// The frame to end with when the operation ended.
    pub(super) fn ended(&self, operation: &Operation, ending: Ending, stream: &Stream) -> Option<Frame<Bytes>> {
        self.say(|| {
            let mut ended = Ended::of(operation, ending);
            if let Some(idle) = stream.idle_limit() {
                ended.bound = Bound { by: ending.bound, limit: idle };
            }
            Problem::ended(&ended, ended.reason()).hint(stream.hint(ending.bound))
        })
    }

    /// The frame to end with when what produced the answer failed.
    pub(super) fn broke_off(&self, error: &BoxError) -> Option<Frame<Bytes>> {
        self.say(|| Problem::broke_off(&**error))
    }

    /// Unless a message is begun: what is truncated never looks complete.
    fn say(&self, problem: impl FnOnce() -> Problem) -> Option<Frame<Bytes>> {
        if !self.can_be_said || !self.messages.at_boundary() || self.messages.said_the_last(self.protocol) {
            return None;
        }
        problem().to_last_frame(self.protocol, self.trust)
    }
}

/// The error to end a body with. hyper looks for one of h2 behind it and resets the stream with its code, whatever that was about:
/// of one that was received from elsewhere it may say that the request was not looked at, that the answer was whole, or that it is
/// to be asked in another protocol. None of that is true behind a head, and callers act on it.
pub(super) fn without_claims(error: BoxError) -> BoxError {
    let chain = std::iter::successors(Some(&*error as &(dyn StdError + 'static)), |&error| error.source());
    let mut of_h2 = chain.filter_map(|error| error.downcast_ref::<h2::Error>());
    let claims = of_h2.next().is_some_and(|error| match error.reason() {
        Some(h2::Reason::NO_ERROR | h2::Reason::REFUSED_STREAM | h2::Reason::HTTP_1_1_REQUIRED) => true,
        _ => error.is_go_away(), // about a connection that is not this caller's
    });
    if claims { BrokeOff(error).into() } else { error }
}
