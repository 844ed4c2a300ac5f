//! Why an operation ended before its work was done, kept so that the first cause wins, and what the caller is told.
//!
//! Decides the words and their mapping to HTTP and gRPC. Waking whoever waits is the runtime's business; writing the
//! answer is `oneclock_http`'s. Contract section 5 (X4 and its table).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Tick;
use crate::time::Legible;

/// Why an operation ended early. Never mixed; the first one wins (contract X4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The deadline passed. Which bound made that deadline stands beside it in [`Ending::bound`].
    Deadline,
    /// Whoever waited for the result went away.
    CallerGone,
    /// A required part of the same fan-out failed, so the result of this one is of no use.
    SiblingFailed,
    /// Our own code called the operation off.
    CalledOff,
    /// Refused or dropped for load.
    Shed,
    /// The process is shutting down.
    Shutdown,
}

/// What made the deadline what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BoundBy {
    /// The caller said so, on the wire or by a parent operation.
    Caller,
    /// Nobody said anything: the value used then. It is also the most that a caller outside the trust boundary gets.
    Absent,
    /// The endpoint's maximum.
    Ceiling,
    /// A local, named limit.
    Cap,
    /// The platform's own limit (a function's maximum run time, for example).
    Platform,
    /// The business end of durable work.
    Expiry,
}

/// Where an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// The head was read; nothing else had happened.
    Arrival,
    /// Waiting for its turn.
    Queue,
    /// Waiting for a pooled connection.
    Pool,
    /// Resolving a name.
    Resolve,
    /// Opening a connection.
    Connect,
    /// The TLS handshake.
    Tls,
    /// Sending the request.
    Send,
    /// The request was sent; waiting for the head of the answer.
    Wait,
    /// Reading or writing a body after its head.
    Body,
    /// Waiting before another attempt.
    Backoff,
    /// Our own work.
    Work,
}

/// A [`BoundBy`] with the limit it set, as a span from the start of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What made the deadline.
    pub by: BoundBy,
    /// The limit it set, counted from the start of the operation.
    pub limit: Duration,
}

/// One early end: its cause, the bound in force, where the operation was, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Why.
    pub cause: Cause,
    /// What had made the deadline, whether or not the deadline was the cause.
    pub bound: BoundBy,
    /// Where the operation was.
    pub stage: Stage,
    /// When, with microsecond grain.
    pub at: Tick,
}

/// How far work had come when its operation ended. Which row of the contract's table applies depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// It waited for its turn: nothing of it was started (contract X7).
    NotStarted,
    /// It had started, and was waiting for the rest of the request's body.
    AwaitingUpload,
    /// It had started.
    Working,
}

/// How long before its own deadline a caller may leave and still have been out of time: what the way to us took, and the
/// unit that the field rounds to.
pub const ABOUT_NOW: Duration = Duration::from_millis(5);

/// What is known when work is dropped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// A panic is unwinding through it.
    pub panicking: bool,
    /// The shutdown was signalled.
    pub shutting_down: bool,
    /// What was left of its deadline; zero once that is past.
    pub remaining: Duration,
    /// What had made its deadline.
    pub bound: BoundBy,
}

/// What a caller is told about work that gave no answer. One row of the contract's table each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The inherited budget ran out while working: what happened is not known.
    Deadline,
    /// Expired on arrival or while queued. Not started.
    ExpiredBeforeStart,
    /// What remained was below the least that is useful, or the work was predicted to miss its deadline. Not started.
    InsufficientBudget,
    /// A local limit ran out; the caller still has time.
    Cap,
    /// Refused for load. Not started.
    Shed,
    /// Shutting down. Not started: welcome elsewhere.
    Shutdown,
    /// The shutdown ended work that had begun: what happened is not known. Kept apart from [`Reason::Shutdown`], which
    /// callers may repeat.
    ShutdownMidway,
    /// The caller left: nobody reads the answer, it exists for logs and metrics.
    CallerGone,
    /// The handler was waiting for a request body that did not come in time.
    RequestBody,
    /// A deadline field of a trusted convention could not be read (contract P3).
    Malformed,
    /// The work was ended by our own code, or because a required sibling failed.
    CalledOff,
}

/// What a caller may conclude about repeating a call that ended with a [`Reason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// It did not start: repeating cannot double anything, given a new budget.
    Safe,
    /// It did not start here, and may be welcome elsewhere or later, if that fits the budget.
    IfItFits,
    /// It may have happened: only if the effect allows it.
    IfTheEffectAllows,
    /// There is nobody left to repeat it for, or it would fail the same way.
    No,
}

/// The life of one operation as one atomic word: live, ended early, or finished. The first transition wins.
///
/// ```
/// # use oneclock_core::{ending::*, Tick};
/// let life = Life::new();
/// let ending = |cause| Ending { cause, bound: BoundBy::Caller, stage: Stage::Work, at: Tick::from_nanos(5_000) };
/// assert!(life.end(ending(Cause::Deadline)));
/// assert!(!life.end(ending(Cause::CallerGone)), "the first cause wins");
/// assert_eq!(life.ending().map(|e| e.cause), Some(Cause::Deadline));
/// ```
#[derive(Debug, Default)]
pub struct Life(AtomicU64);

// === Cause ===

impl Cause {
    /// The word for logs, labels and problem documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::CallerGone => "caller_gone",
            Self::SiblingFailed => "sibling_failed",
            Self::CalledOff => "called_off",
            Self::Shed => "shed",
            Self::Shutdown => "shutdown",
        }
    }

    const fn code(self) -> u64 {
        match self {
            Self::Deadline => 0,
            Self::CallerGone => 1,
            Self::SiblingFailed => 2,
            Self::CalledOff => 3,
            Self::Shed => 4,
            Self::Shutdown => 5,
        }
    }

    const fn from_code(code: u64) -> Self {
        match code {
            0 => Self::Deadline,
            1 => Self::CallerGone,
            2 => Self::SiblingFailed,
            3 => Self::CalledOff,
            4 => Self::Shed,
            _ => Self::Shutdown,
        }
    }
}

// === Dropped ===

impl Dropped {
    /// The cause of work that was dropped before its end (contract X4): whoever waited has gone, unless something else
    /// is known. A panic is nobody's leaving: our own code ended the work. A caller that leaves within [`ABOUT_NOW`] of the
    /// deadline that it gave itself was out of time by its own clock, which is ahead of ours by the way here: both sides then
    /// count the same cause.
    pub fn cause(self) -> Cause {
        match self {
            Self { panicking: true, .. } => Cause::CalledOff,
            Self { shutting_down: true, .. } => Cause::Shutdown,
            Self { remaining: Duration::ZERO, .. } => Cause::Deadline,
            Self { remaining, bound: BoundBy::Caller, .. } if remaining <= ABOUT_NOW => Cause::Deadline,
            Self { .. } => Cause::CallerGone,
        }
    }
}

// === BoundBy ===

impl BoundBy {
    /// The word for logs, labels and problem documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Absent => "absent",
            Self::Ceiling => "ceiling",
            Self::Cap => "cap",
            Self::Platform => "platform",
            Self::Expiry => "expiry",
        }
    }

    const fn code(self) -> u64 {
        match self {
            Self::Caller => 0,
            Self::Absent => 1,
            Self::Ceiling => 2,
            Self::Cap => 3,
            Self::Platform => 4,
            Self::Expiry => 5,
        }
    }

    const fn from_code(code: u64) -> Self {
        match code {
            0 => Self::Caller,
            1 => Self::Absent,
            2 => Self::Ceiling,
            3 => Self::Cap,
            4 => Self::Platform,
            _ => Self::Expiry,
        }
    }
}

// === Stage ===

impl Stage {
    /// Every stage, in the order in which a call passes them.
    pub const ALL: [Self; 11] = [
        Self::Arrival,
        Self::Queue,
        Self::Pool,
        Self::Resolve,
        Self::Connect,
        Self::Tls,
        Self::Send,
        Self::Wait,
        Self::Body,
        Self::Backoff,
        Self::Work,
    ];

    /// The word for logs, labels and problem documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Arrival => "arrival",
            Self::Queue => "queue",
            Self::Pool => "pool",
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Send => "send",
            Self::Wait => "wait",
            Self::Body => "body",
            Self::Backoff => "backoff",
            Self::Work => "work",
        }
    }

    /// A small number for atomics; [`from_code`](Self::from_code) reads it back.
    pub const fn code(self) -> u8 {
        match self {
            Self::Arrival => 0,
            Self::Queue => 1,
            Self::Pool => 2,
            Self::Resolve => 3,
            Self::Connect => 4,
            Self::Tls => 5,
            Self::Send => 6,
            Self::Wait => 7,
            Self::Body => 8,
            Self::Backoff => 9,
            Self::Work => 10,
        }
    }

    /// The stage with this code; an unknown one is [`Stage::Work`].
    pub const fn from_code(code: u8) -> Self {
        if (code as usize) < Self::ALL.len() { Self::ALL[code as usize] } else { Self::Work }
    }
}

// === Ending ===

impl Ending {
    /// The end at a deadline that `bound` had made, noticed `at` that moment.
    pub const fn out_of_time(bound: BoundBy, stage: Stage, at: Tick) -> Self {
        Self { cause: Cause::Deadline, bound, stage, at }
    }

    /// What to tell the caller of an operation that ended this way, by how far its work had come.
    ///
    /// The rows of the contract's table that say "not started", and the one of a request body that did not come; in every
    /// other case [`reason`](Self::reason).
    ///
    /// ```
    /// # use oneclock_core::{ending::*, Tick};
    /// let ending = Ending::out_of_time(BoundBy::Caller, Stage::Queue, Tick::from_nanos(5_000));
    /// assert_eq!(ending.reason_for(Progress::NotStarted), Reason::ExpiredBeforeStart);
    /// assert_eq!(ending.reason_for(Progress::AwaitingUpload), Reason::RequestBody);
    /// assert_eq!(ending.reason_for(Progress::Working), Reason::Deadline);
    /// ```
    pub const fn reason_for(self, progress: Progress) -> Reason {
        match (progress, self.cause) {
            (Progress::NotStarted, Cause::Deadline) => Reason::ExpiredBeforeStart,
            (Progress::NotStarted, Cause::Shutdown) => Reason::Shutdown,
            (Progress::AwaitingUpload, Cause::Deadline) => Reason::RequestBody,
            (Progress::AwaitingUpload, Cause::Shutdown)
            | (Progress::Working, Cause::Deadline | Cause::Shutdown)
            | (
                Progress::NotStarted | Progress::AwaitingUpload | Progress::Working,
                Cause::CallerGone | Cause::SiblingFailed | Cause::CalledOff | Cause::Shed,
            ) => self.reason(),
        }
    }

    /// What to tell the caller of an operation that had started and ended this way.
    ///
    /// The mapping of the contract's table: a deadline that a local limit made is [`Reason::Cap`] when the caller
    /// still has time, which the bound tells.
    pub const fn reason(self) -> Reason {
        match self.cause {
            Cause::Deadline => match self.bound {
                BoundBy::Cap => Reason::Cap,
                BoundBy::Caller | BoundBy::Absent | BoundBy::Ceiling | BoundBy::Platform | BoundBy::Expiry => {
                    Reason::Deadline
                }
            },
            Cause::CallerGone => Reason::CallerGone,
            Cause::SiblingFailed | Cause::CalledOff => Reason::CalledOff,
            Cause::Shed => Reason::Shed,
            Cause::Shutdown => Reason::ShutdownMidway,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Deadline => write!(f, "out of time in stage {} (bound: {})", self.stage, self.bound),
            Cause::CallerGone => write!(f, "its caller left in stage {}", self.stage),
            Cause::SiblingFailed => write!(f, "ended in stage {} because a required sibling failed", self.stage),
            Cause::CalledOff => write!(f, "called off in stage {}", self.stage),
            Cause::Shed => write!(f, "shed in stage {}", self.stage),
            Cause::Shutdown => write!(f, "ended in stage {} by the shutdown", self.stage),
        }
    }
}

/// At the end of the source chain of whatever an ending stopped, so that any wrapper around it still leads here.
impl std::error::Error for Ending {}

// === Reason ===

impl Reason {
    /// Every reason, for tables and tests.
    pub const ALL: [Self; 11] = [
        Self::Deadline,
        Self::ExpiredBeforeStart,
        Self::InsufficientBudget,
        Self::Cap,
        Self::Shed,
        Self::Shutdown,
        Self::ShutdownMidway,
        Self::CallerGone,
        Self::RequestBody,
        Self::Malformed,
        Self::CalledOff,
    ];

    /// The word for logs, labels and the `type` of a problem document.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::ExpiredBeforeStart => "expired_before_start",
            Self::InsufficientBudget => "insufficient_budget",
            Self::Cap => "cap",
            Self::Shed => "shed",
            Self::Shutdown => "shutdown",
            Self::ShutdownMidway => "shutdown_midway",
            Self::CallerGone => "caller_gone",
            Self::RequestBody => "request_body",
            Self::Malformed => "malformed_deadline",
            Self::CalledOff => "called_off",
        }
    }

    /// The reason with this word, if there is one. The inverse of [`as_str`](Self::as_str).
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// A short sentence for people: the `title` of a problem document.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Deadline => "the time budget ran out while working",
            Self::ExpiredBeforeStart => "the time budget was spent before the work began",
            Self::InsufficientBudget => "too little of the time budget was left to begin",
            Self::Cap => "a local time limit ran out",
            Self::Shed => "refused for load",
            Self::Shutdown => "shutting down",
            Self::ShutdownMidway => "the shutdown ended the work",
            Self::CallerGone => "the caller left",
            Self::RequestBody => "the request body did not arrive in time",
            Self::Malformed => "a deadline field could not be read",
            Self::CalledOff => "the work was called off",
        }
    }

    /// The HTTP status (contract section 5).
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Deadline | Self::ExpiredBeforeStart | Self::InsufficientBudget | Self::Cap => 504,
            Self::Shed | Self::Shutdown | Self::ShutdownMidway => 503,
            Self::CallerGone => 499,
            Self::RequestBody => 408,
            Self::Malformed => 400,
            Self::CalledOff => 500,
        }
    }

    /// The gRPC status code (contract section 5).
    pub const fn grpc_status(self) -> u8 {
        match self {
            Self::Deadline | Self::ExpiredBeforeStart | Self::InsufficientBudget | Self::Cap | Self::RequestBody => 4,
            Self::Shed | Self::Shutdown | Self::ShutdownMidway => 14,
            Self::CallerGone | Self::CalledOff => 1,
            Self::Malformed => 13,
        }
    }

    /// The reason to give for a whole that had begun when a part of it ended with this reason. A part that was not begun
    /// says nothing about the steps before it, so the whole must not claim that it did not start.
    ///
    /// For a part that was refused for load no reason says that without blaming the whole. Answer that with a status alone, as
    /// `Problem::of_part` of `oneclock-http` does.
    #[must_use]
    pub const fn of_a_part(self) -> Self {
        match self {
            Self::ExpiredBeforeStart | Self::InsufficientBudget => Self::Deadline,
            Self::Shed | Self::Malformed => Self::CalledOff,
            Self::Shutdown => Self::ShutdownMidway,
            Self::Deadline
            | Self::Cap
            | Self::ShutdownMidway
            | Self::CallerGone
            | Self::RequestBody
            | Self::CalledOff => self,
        }
    }

    /// What a caller may conclude about repeating the call (contract section 5, last column).
    pub const fn repeat(self) -> Repeat {
        match self {
            Self::ExpiredBeforeStart | Self::InsufficientBudget => Repeat::Safe,
            Self::Shed | Self::Shutdown => Repeat::IfItFits,
            Self::Cap | Self::ShutdownMidway => Repeat::IfTheEffectAllows,
            Self::Deadline | Self::CallerGone | Self::RequestBody | Self::Malformed | Self::CalledOff => Repeat::No,
        }
    }
}

// === Life ===

const FINISHED: u64 = 1;
const ENDED: u64 = 2;

impl Life {
    /// A live operation.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Records an early end. Returns whether this was the first transition.
    pub fn end(&self, ending: Ending) -> bool {
        self.leave(pack(ending))
    }

    /// Records that the work was done, and when. Returns whether this was the first transition.
    pub fn finish(&self, at: Tick) -> bool {
        self.leave(FINISHED | micros(at) << 14)
    }

    /// When it was over, whichever way; `None` while it lives.
    pub fn over(&self) -> Option<Tick> {
        let word = self.0.load(Ordering::Acquire);
        (word != 0).then(|| moment(word))
    }

    /// Whether neither has happened yet.
    pub fn is_live(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// The early end, if there was one.
    pub fn ending(&self) -> Option<Ending> {
        unpack(self.0.load(Ordering::Acquire))
    }

    fn leave(&self, word: u64) -> bool {
        self.0.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

// 2 bits of state, 4 of cause, 4 of bound, 4 of stage, 50 of microseconds (35 years of uptime, then saturated).
fn pack(ending: Ending) -> u64 {
    let micros = (ending.at.as_nanos() / 1_000).min((1 << 50) - 1);
    ENDED | ending.cause.code() << 2 | ending.bound.code() << 6 | u64::from(ending.stage.code()) << 10 | micros << 14
}

fn unpack(word: u64) -> Option<Ending> {
    (word & 0b11 == ENDED).then(|| Ending {
        cause: Cause::from_code(word >> 2 & 0xf),
        bound: BoundBy::from_code(word >> 6 & 0xf),
        stage: Stage::from_code((word >> 10 & 0xf) as u8),
        at: moment(word),
    })
}

fn micros(at: Tick) -> u64 {
    (at.as_nanos() / 1_000).min((1 << 50) - 1)
}

fn moment(word: u64) -> Tick {
    Tick::from_nanos((word >> 14).saturating_mul(1_000))
}

macro_rules! display_as_word {
    ($($word:ty),*) => {$(
        impl fmt::Display for $word {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )*};
}
display_as_word!(Cause, BoundBy, Stage, Reason);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.by, Legible(self.limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const CAUSES: [Cause; 6] =
        [Cause::Deadline, Cause::CallerGone, Cause::SiblingFailed, Cause::CalledOff, Cause::Shed, Cause::Shutdown];
    const BOUNDS: [BoundBy; 6] =
        [BoundBy::Caller, BoundBy::Absent, BoundBy::Ceiling, BoundBy::Cap, BoundBy::Platform, BoundBy::Expiry];

    #[test]
    fn x4_the_word_keeps_cause_bound_stage_and_moment() {
        for cause in CAUSES {
            for bound in BOUNDS {
                for stage in Stage::ALL {
                    let ending = Ending { cause, bound, stage, at: Tick::from_nanos(12_345_678_000) };
                    assert_eq!(unpack(pack(ending)), Some(ending));
                }
            }
        }
    }

    #[test]
    fn x4_the_first_of_many_threads_wins_and_is_kept() {
        let life = Arc::new(Life::new());
        let winners: Vec<bool> = std::thread::scope(|scope| {
            let racers: Vec<_> = CAUSES
                .map(|cause| {
                    let life = Arc::clone(&life);
                    scope.spawn(move || {
                        life.end(Ending { cause, bound: BoundBy::Cap, stage: Stage::Work, at: Tick::default() })
                    })
                })
                .into_iter()
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        assert_eq!(winners.iter().filter(|won| **won).count(), 1);
        let winner = CAUSES[winners.iter().position(|won| *won).unwrap()];
        assert_eq!(life.ending().map(|ending| ending.cause), Some(winner));
        assert!(!life.finish(Tick::default()), "ended is not undone by finishing");
    }

    #[test]
    fn finished_is_no_ending() {
        let life = Life::new();
        assert!(life.finish(Tick::from_nanos(7_000)));
        assert!(!life.is_live());
        assert_eq!((life.ending(), life.over()), (None, Some(Tick::from_nanos(7_000))));
    }

    /// Contract section 5, the table, row by row.
    #[test]
    fn the_table_of_section_5() {
        let row = |reason: Reason| (reason.http_status(), reason.grpc_status(), reason.repeat());
        assert_eq!(row(Reason::Deadline), (504, 4, Repeat::No));
        assert_eq!(row(Reason::ExpiredBeforeStart), (504, 4, Repeat::Safe));
        assert_eq!(row(Reason::InsufficientBudget), (504, 4, Repeat::Safe));
        assert_eq!(row(Reason::Cap), (504, 4, Repeat::IfTheEffectAllows));
        assert_eq!(row(Reason::Shed), (503, 14, Repeat::IfItFits));
        assert_eq!(row(Reason::Shutdown), (503, 14, Repeat::IfItFits));
        assert_eq!(row(Reason::CallerGone), (499, 1, Repeat::No));
        assert_eq!(row(Reason::RequestBody).0, 408);
        assert_eq!(row(Reason::Malformed), (400, 13, Repeat::No));
    }

    /// The rows of the table that depend on how far the work had come.
    #[test]
    fn x7_how_far_the_work_had_come_decides_the_row() {
        use Progress::{AwaitingUpload, NotStarted, Working};
        let told = |cause, bound, progress| {
            let ending = Ending { cause, bound, stage: Stage::Work, at: Tick::default() };
            ending.reason_for(progress)
        };
        for bound in BOUNDS {
            assert_eq!(told(Cause::Deadline, bound, NotStarted), Reason::ExpiredBeforeStart, "{bound}");
            assert_eq!(told(Cause::Deadline, bound, AwaitingUpload), Reason::RequestBody, "{bound}");
            let worked = if bound == BoundBy::Cap { Reason::Cap } else { Reason::Deadline };
            assert_eq!(told(Cause::Deadline, bound, Working), worked, "{bound}");
            assert_eq!(told(Cause::Shutdown, bound, NotStarted), Reason::Shutdown);
            for progress in [AwaitingUpload, Working] {
                assert_eq!(told(Cause::Shutdown, bound, progress), Reason::ShutdownMidway, "{progress:?}");
            }
            for progress in [NotStarted, AwaitingUpload, Working] {
                assert_eq!(told(Cause::CallerGone, bound, progress), Reason::CallerGone, "{progress:?}");
                assert_eq!(told(Cause::CalledOff, bound, progress), Reason::CalledOff, "{progress:?}");
            }
        }
    }

    const fn dropped_with(remaining: Duration, bound: BoundBy) -> Dropped {
        Dropped { panicking: false, shutting_down: false, remaining, bound }
    }

    /// Both sides count the same: a caller that leaves at its own deadline is seen here a little before ours.
    #[test]
    fn x4_who_leaves_within_5_ms_of_its_own_deadline_was_out_of_time() {
        const NANO: Duration = Duration::from_nanos(1);
        for (remaining, want) in [
            (Duration::ZERO, Cause::Deadline),
            (NANO, Cause::Deadline),
            (ABOUT_NOW, Cause::Deadline),
            (ABOUT_NOW + NANO, Cause::CallerGone),
            (Duration::MAX, Cause::CallerGone),
        ] {
            assert_eq!(dropped_with(remaining, BoundBy::Caller).cause(), want, "{remaining:?}");
        }
    }

    /// A bound of ours is not what the caller counts from: it left for a reason of its own.
    #[test]
    fn x4_only_the_deadline_that_the_caller_gave_itself_is_about_now() {
        for bound in BOUNDS {
            let about_now = if bound == BoundBy::Caller { Cause::Deadline } else { Cause::CallerGone };
            assert_eq!(dropped_with(ABOUT_NOW, bound).cause(), about_now, "{bound}");
            assert_eq!(dropped_with(Duration::ZERO, bound).cause(), Cause::Deadline, "{bound}: past is past");
        }
    }

    #[test]
    fn x4_what_is_known_better_goes_before_the_clock() {
        for (panicking, shutting_down, want) in [
            (true, true, Cause::CalledOff),
            (true, false, Cause::CalledOff),
            (false, true, Cause::Shutdown),
            (false, false, Cause::Deadline),
        ] {
            let dropped = Dropped { panicking, shutting_down, ..dropped_with(Duration::ZERO, BoundBy::Caller) };
            assert_eq!(dropped.cause(), want, "{dropped:?}");
        }
    }

    #[test]
    fn a_part_that_did_not_start_never_makes_the_whole_say_so() {
        use Reason::{ExpiredBeforeStart, InsufficientBudget, Malformed, Shed, Shutdown};
        for reason in Reason::ALL {
            let of_a_part = reason.of_a_part();
            let not_started = [ExpiredBeforeStart, InsufficientBudget, Shed, Shutdown, Malformed].contains(&of_a_part);
            assert!(!not_started, "{reason}: {of_a_part}");
        }
    }

    #[test]
    fn words_read_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_word(reason.as_str()), Some(reason));
        }
    }
}
