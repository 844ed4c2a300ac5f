//! A budget that is spent, as a request says it, and what its answer proves.
//!
//! Decides whether an answer shows that a layer of ours refused it: by reason and status together, since either alone could be
//! anybody's (contract P4 and the table of section 5).

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::Reason;
use crate::wire::{Codec, Wall};

/// How a field says that nothing is left. `None` where it cannot: Envoy's upstream timeout means "no limit" by zero.
///
/// Absolute ones name a moment that is just past, not one of 1970: a service would suspect the clocks, and count it.
///
/// ```
/// # use oneclock_core::{readiness::spent, wire::{Codec, Wall}};
/// assert_eq!(spent(Codec::Grpc, Wall::default()).as_deref(), Some("0n"));
/// assert_eq!(spent(Codec::EnvoyUpstreamMillis, Wall::default()), None);
/// ```
pub fn spent(codec: Codec, wall: Wall) -> Option<Cow<'static, str>> {
    match codec {
        Codec::Grpc => Some("0n".into()),
        Codec::Millis | Codec::DecimalSeconds | Codec::WholeSeconds => Some("0".into()),
        Codec::L5d => Some("0ms".into()),
        Codec::EnvoyUpstreamMillis => None,
        Codec::EpochMillis | Codec::Rfc3339 | Codec::Finagle => {
            let before = Wall::from_nanos(wall.as_nanos().saturating_sub(JUST_PAST.as_nanos() as u64));
            codec.encode(Duration::from_millis(1), before).map(|value| value.as_str().to_owned().into())
        }
    }
}

/// Further back than a millisecond and a step of the clock, and within what is no reason to suspect it.
const JUST_PAST: Duration = Duration::from_millis(100);

/// What an answer says that counts here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The status of HTTP.
    pub status: u16,
    /// The field `oneclock-reason`.
    pub reason: Option<&'a str>,
    /// The field `grpc-status`, where it stands in the head.
    pub grpc_status: Option<&'a str>,
    /// Whether it is a stream of Connect's, which says everything in its last message.
    pub connect_stream: bool,
}

/// What an answer to a spent budget proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It was refused as the contract says.
    Refused,
    /// It was not.
    Broken(NotProven),
    /// Something else refused it before, which proves neither.
    Unclear(NotProven),
}

/// What was wrong with an answer to a spent budget. Printed, it says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotProven {
    /// The request was served.
    Served {
        /// The status of HTTP.
        status: u16,
    },
    /// There is nothing at that path, and no layer over it.
    NotFound,
    /// Something in front of the layer wanted to know who asks.
    NotAllowed {
        /// The status of HTTP.
        status: u16,
    },
    /// It was refused for time, in somebody's words or with ours taken away.
    WithoutReason,
    /// It was refused with another reason of ours.
    OtherReason(Reason),
    /// The right reason, with a status that callers take for something else.
    WrongStatus {
        /// The status of HTTP.
        status: u16,
    },
    /// Something had no room, or is not there.
    NoRoom {
        /// The status of HTTP.
        status: u16,
    },
}

/// What the answer to a request with a spent budget proves.
///
/// ```
/// # use oneclock_core::readiness::{Answer, Judged, NotProven, judge};
/// let refused = Answer { status: 504, reason: Some("expired_before_start"), ..Answer::default() };
/// assert_eq!(judge(refused), Judged::Refused);
/// let served = Answer { status: 200, ..Answer::default() };
/// assert_eq!(judge(served), Judged::Broken(NotProven::Served { status: 200 }));
/// ```
pub fn judge(answer: Answer<'_>) -> Judged {
    let Answer { status, reason, grpc_status, connect_stream } = answer;
    let served = Judged::Broken(NotProven::Served { status });
    match reason.and_then(Reason::from_word) {
        Some(Reason::ExpiredBeforeStart) => {
            let told = status == Reason::ExpiredBeforeStart.http_status()
                || (status == 200 && (grpc_status == Some("4") || connect_stream));
            if told { Judged::Refused } else { Judged::Broken(NotProven::WrongStatus { status }) }
        }
        Some(reason @ (Reason::Shed | Reason::Shutdown | Reason::ShutdownMidway)) => {
            Judged::Unclear(NotProven::OtherReason(reason))
        }
        Some(reason) => Judged::Broken(NotProven::OtherReason(reason)),
        None => match (status, grpc_status) {
            (504, _) | (200, Some("4")) => Judged::Broken(NotProven::WithoutReason),
            (429 | 502 | 503, _) | (200, Some("8" | "14")) => Judged::Unclear(NotProven::NoRoom { status }),
            (401 | 403, _) | (200, Some("7" | "16")) => Judged::Broken(NotProven::NotAllowed { status }),
            (404, _) | (200, Some("12")) => Judged::Broken(NotProven::NotFound),
            _ => served,
        },
    }
}

impl fmt::Display for NotProven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served { status } => write!(
                f,
                "a request with nothing left was answered with {status}: no layer of oneclock covers this route, or it does \
                 not read this field; add the layer after the routes, and name the fields that it reads"
            ),
            Self::NotFound => f.write_str(
                "a request with nothing left found no route, and no layer of oneclock before that: give the path of a real \
                 route, and add the layer after the routes",
            ),
            Self::NotAllowed { status } => write!(
                f,
                "a request with nothing left was answered with {status}, by something that stands outside of the layer of \
                 oneclock: move that inside, or give the request what it asks for"
            ),
            Self::WithoutReason => f.write_str(
                "a request with nothing left ran out of time, and the answer has no oneclock-reason: no layer of oneclock \
                 refused it, or something outside of it takes the field away",
            ),
            Self::OtherReason(reason) => {
                write!(f, "a request with nothing left was answered with the reason {reason}, not expired_before_start")
            }
            Self::WrongStatus { status } => write!(
                f,
                "a request with nothing left was refused, and something outside of the layer of oneclock made the status \
                 {status}: callers will not know that it was out of time"
            ),
            Self::NoRoom { status } => write!(
                f,
                "a request with nothing left was answered with {status} before a layer of oneclock saw it: what sheds load \
                 stands outside of it"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Read;

    proptest! {
        #[test]
        fn what_is_spent_is_read_as_expired(nanos in 1_000_000_000_000_000_000_u64..4_000_000_000_000_000_000) {
            let wall = Wall::from_nanos(nanos);
            for codec in Codec::ALL {
                match spent(codec, wall) {
                    Some(value) => prop_assert_eq!(codec.parse(value.as_bytes(), wall), Read::Expired, "{:?}", codec),
                    None => prop_assert_eq!(codec, Codec::EnvoyUpstreamMillis),
                }
            }
        }
    }

    #[track_caller]
    fn says(status: u16, reason: Option<&str>, grpc_status: Option<&str>, want: Judged) {
        assert_eq!(judge(Answer { status, reason, grpc_status, connect_stream: false }), want);
    }

    const EXPIRED: Option<&str> = Some("expired_before_start");

    #[test]
    fn only_reason_and_status_together_prove_it() {
        says(504, EXPIRED, None, Judged::Refused);
        says(200, EXPIRED, Some("4"), Judged::Refused);
        let stream = Answer { status: 200, reason: EXPIRED, grpc_status: None, connect_stream: true };
        assert_eq!(judge(stream), Judged::Refused);
        says(200, EXPIRED, None, Judged::Broken(NotProven::WrongStatus { status: 200 }));
        says(200, EXPIRED, Some("14"), Judged::Broken(NotProven::WrongStatus { status: 200 }));
        says(500, EXPIRED, None, Judged::Broken(NotProven::WrongStatus { status: 500 }));
        says(504, None, None, Judged::Broken(NotProven::WithoutReason));
        says(504, Some("deadline"), None, Judged::Broken(NotProven::OtherReason(Reason::Deadline)));
        says(504, Some("a word of somebody's"), None, Judged::Broken(NotProven::WithoutReason));
    }

    #[test]
    fn what_is_served_or_stopped_elsewhere_proves_the_contrary() {
        says(200, None, None, Judged::Broken(NotProven::Served { status: 200 }));
        says(500, None, None, Judged::Broken(NotProven::Served { status: 500 }));
        says(200, None, Some("0"), Judged::Broken(NotProven::Served { status: 200 }));
        says(404, None, None, Judged::Broken(NotProven::NotFound));
        says(200, None, Some("12"), Judged::Broken(NotProven::NotFound));
        says(401, None, None, Judged::Broken(NotProven::NotAllowed { status: 401 }));
    }

    #[test]
    fn load_proves_nothing() {
        says(503, None, None, Judged::Unclear(NotProven::NoRoom { status: 503 }));
        says(200, None, Some("14"), Judged::Unclear(NotProven::NoRoom { status: 200 }));
        says(503, Some("shed"), None, Judged::Unclear(NotProven::OtherReason(Reason::Shed)));
    }
}
