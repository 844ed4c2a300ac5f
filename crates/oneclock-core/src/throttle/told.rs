//! What the end of a call tells of its destination.
//!
//! Decides which answers are refusals for load, which are failures, and when a call that was cut off tells anything at all:
//! a caller in a hurry says nothing of whom it calls.

use std::time::Duration;

use crate::effect::Seen;
use crate::{Reason, Stage};

/// What the end of a call tells of its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Told {
    /// It answered, and its answer says that it is well: also that there is no such thing, or that one may not.
    Well,
    /// It answered, and its answer says that something is broken.
    Failed,
    /// It refused for load.
    Shed,
    /// It could not be reached, or the connection broke off with time left.
    Broken,
    /// No answer came, in as much time as it usually needs or as it is allowed at all.
    TimedOut,
    /// No answer came, in less time than that.
    CutShort,
    /// Nothing was sent, for reasons of our own.
    NotSent,
}

/// How much time a call had, and how much its destination is expected to need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Had {
    /// What it was granted.
    pub granted: Duration,
    /// What had passed when it was over.
    pub taken: Duration,
    /// What the destination's owner allows for one call or attempt: its cap, its limit per attempt.
    pub limit: Option<Duration>,
    /// What nine of ten of its answers need, if that is known. See [`Usual`](super::Usual).
    pub usual: Option<Duration>,
}

impl Told {
    /// What was seen of a call that came to its own end: by an answer, or because its connection failed with time left.
    ///
    /// 503, 429, `UNAVAILABLE` and `RESOURCE_EXHAUSTED` are refusals for load, unless one of ours gave another reason. One of
    /// ours that had too little time is judged by what it was granted, and so is whoever says 504 or `DEADLINE_EXCEEDED` without a
    /// reason that is believed: with less than it needs that was its caller's choice.
    ///
    /// ```
    /// # use oneclock_core::{effect::Seen, throttle::*, Reason}; use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
    /// let had = Had { granted: ms(300), taken: ms(20), usual: Some(ms(50)), ..Had::default() };
    /// assert_eq!(Told::by(Seen::Answer { status: 404, reason: None }, had), Told::Well);
    /// assert_eq!(Told::by(Seen::Answer { status: 429, reason: None }, had), Told::Shed);
    /// let doomed = Seen::Answer { status: 504, reason: Some(Reason::InsufficientBudget) };
    /// assert_eq!(Told::by(doomed, had), Told::Shed, "300 ms are usually enough");
    /// assert_eq!(Told::by(doomed, Had { granted: ms(30), ..had }), Told::CutShort, "30 ms are not");
    /// ```
    pub fn by(seen: Seen, had: Had) -> Self {
        match seen {
            Seen::RefusedHere => Self::NotSent,
            Seen::NoConnection => Self::Broken,
            Seen::CutOff { stage } => match place(stage) {
                Place::Ours => Self::NotSent,
                Place::Between => Self::CutShort,
                Place::Theirs => Self::Broken,
            },
            Seen::RefusedStream => Self::Shed,
            Seen::Answer { status, reason } => match reason.filter(|reason| reason.http_status() == status) {
                Some(reason) => Self::reasoned(reason, had),
                None => Self::of_http(status, had),
            },
            Seen::GrpcAnswer { status, reason } => match reason.filter(|reason| reason.grpc_status() == status) {
                Some(reason) => Self::reasoned(reason, had),
                None => Self::of_grpc(status, had),
            },
        }
    }

    /// A call that was cut off in `stage` by its deadline, or by whoever made it, before a head came.
    ///
    /// It tells something if the destination had as much time as it usually needs, or all that its owner allows it. Less is
    /// its caller's choice: a client breaker that counts those opens for a destination that is well.
    ///
    /// ```
    /// # use oneclock_core::{throttle::*, Stage}; use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
    /// let had = Had { granted: ms(30), taken: ms(30), limit: Some(ms(300)), usual: Some(ms(50)) };
    /// assert_eq!(Told::cut_off(Stage::Wait, had), Told::CutShort);
    /// assert_eq!(Told::cut_off(Stage::Wait, Had { taken: ms(50), ..had }), Told::TimedOut);
    /// assert_eq!(Told::cut_off(Stage::Pool, had), Told::NotSent, "our own pool");
    /// ```
    pub fn cut_off(stage: Stage, had: Had) -> Self {
        match place(stage) {
            Place::Ours => Self::NotSent,
            Place::Theirs if had.enough(had.taken) => Self::TimedOut,
            Place::Between | Place::Theirs => Self::CutShort,
        }
    }

    /// Whether it took the call, whatever came of it. `None` if that is not known.
    pub(crate) const fn accepted(self) -> Option<bool> {
        match self {
            Self::Well | Self::Failed => Some(true),
            Self::Shed | Self::Broken | Self::TimedOut => Some(false),
            Self::CutShort | Self::NotSent => None,
        }
    }

    /// Whether it failed. `None` if that is not known: a refusal for load is no failure, and is the throttle's business.
    pub(crate) const fn failed(self) -> Option<bool> {
        match self {
            Self::Well => Some(false),
            Self::Failed | Self::Broken | Self::TimedOut => Some(true),
            Self::Shed | Self::CutShort | Self::NotSent => None,
        }
    }

    /// The word for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Failed => "failed",
            Self::Shed => "shed",
            Self::Broken => "broken",
            Self::TimedOut => "timed_out",
            Self::CutShort => "cut_short",
            Self::NotSent => "not_sent",
        }
    }

    fn reasoned(reason: Reason, had: Had) -> Self {
        match reason {
            Reason::Shed => Self::Shed,
            // It was told less than we have, so what counts is what it was granted.
            Reason::Deadline if had.enough(had.granted) => Self::TimedOut,
            // It says that it would not be done in time, although that is usually enough: it has too much to do.
            Reason::ExpiredBeforeStart | Reason::InsufficientBudget if had.enough(had.granted) => Self::Shed,
            Reason::Deadline | Reason::ExpiredBeforeStart | Reason::InsufficientBudget => Self::CutShort,
            Reason::Cap | Reason::CalledOff | Reason::ShutdownMidway => Self::Failed,
            Reason::Shutdown | Reason::RequestBody | Reason::Malformed | Reason::CallerGone => Self::Well,
        }
    }

    fn of_http(status: u16, had: Had) -> Self {
        match status {
            429 | 503 => Self::Shed,
            504 if had.enough(had.granted) => Self::TimedOut,
            504 => Self::CutShort,
            501 | 505 => Self::Well, // it does not know how, which is no trouble of its own
            500.. => Self::Failed,
            _ => Self::Well,
        }
    }

    fn of_grpc(status: u8, had: Had) -> Self {
        match status {
            8 | 14 => Self::Shed,
            4 if had.enough(had.granted) => Self::TimedOut,
            4 => Self::CutShort,
            2 | 13 | 15 => Self::Failed, // UNKNOWN, INTERNAL, DATA_LOSS
            _ => Self::Well,
        }
    }
}

/// Who keeps a call waiting in a stage.
enum Place {
    Ours,
    /// Whoever is slow or breaks off: the producer of a request's body may be our own caller.
    Between,
    Theirs,
}

const fn place(stage: Stage) -> Place {
    match stage {
        Stage::Arrival | Stage::Queue | Stage::Pool | Stage::Backoff => Place::Ours,
        Stage::Send => Place::Between,
        Stage::Resolve | Stage::Connect | Stage::Tls | Stage::Wait | Stage::Body | Stage::Work => Place::Theirs,
    }
}

impl Had {
    /// Whether this much is as much as the destination usually needs, or all that it may have.
    fn enough(&self, had: Duration) -> bool {
        self.limit.is_some_and(|limit| had >= limit) || self.usual.is_some_and(|usual| had >= usual)
    }
}
