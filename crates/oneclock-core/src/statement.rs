//! One statement on a database server: its bound there, its cancel, and what is known after its end.
//!
//! Decides when a bound is sent, when a cancel may fly and when a connection may be lent again, whose cancel it was, what
//! became of a transaction, and whether a pooler stands in between. Sockets, timers and SQL are the drivers'. Contract D1
//! to D5, D8.
//!
//! A cancel names a connection and not a statement: it hits whatever runs there when it arrives. So a connection is lent
//! again only when the server is ready **and** no cancel is on its way:
//!
//! ```
//! # use oneclock_core::statement::{Action, Event, Fence};
//! let mut fence = Fence::new(); // a statement is in flight
//! assert_eq!(fence.on(Event::Ended), Action::SendCancel);
//! assert_eq!(fence.on(Event::CancelBegins), Action::Wait, "go ahead");
//! assert_eq!(fence.on(Event::Ready), Action::Wait, "the cancel is still on its way: it would hit the next statement");
//! assert_eq!(fence.on(Event::CancelClosed), Action::Release);
//! ```

mod text;

use std::fmt;
use std::time::Duration;

use crate::{Ending, Outcome, Stage};

pub use text::{Leftovers, is_atomic, is_read, leftovers, may_end_transaction};

/// The least that a server takes as a bound. Zero means *off* in PostgreSQL, and so does what rounds to zero.
pub const LEAST: Duration = Duration::from_millis(1);

/// The most that PostgreSQL takes, as whole milliseconds in 31 bits.
const MOST_MILLIS: u128 = i32::MAX as u128;

/// What holds the cancel and the release of one connection apart, from the moment a statement is sent (contract D3).
///
/// The driver tells what happened and does what the answer says. Releasing is possible only when the server is ready and
/// no cancel is on its way; whatever is not known leads to a discard. Once released or discarded it stays so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    ended: bool,
    on_its_way: bool, // a cancel may have left, and its socket's end was not seen
    ready: bool,
    begun: bool, // a cancel was begun at all
    over: Option<Over>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Released,
    Discarded,
}

/// What happened to a statement in flight, or to its cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// The operation ended, or whoever waited has left.
    Ended,
    /// A cancel is about to be sent. Told *before* its connection is opened, and sent only if the answer is
    /// [`Action::Wait`]: the statement may be over by now.
    CancelBegins,
    /// The cancel's socket was read to its end: the server has done what it does with it.
    CancelClosed,
    /// The cancel never left: its connection could not be opened.
    CancelNotSent,
    /// The cancel may have left, and the end of its socket was not seen. It may arrive at any later time.
    CancelLost,
    /// The server is ready for the next statement: the one in flight is over, by itself or not.
    Ready,
    /// A cancel is done with and the server is still not ready, for longer than a cancel takes. It came before the
    /// statement (the two travel on different connections), or hit what was sent in front of it.
    StillBusy,
    /// The grace for all this is over.
    GraceOver,
    /// The connection itself broke.
    Lost,
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send a cancel: tell [`Event::CancelBegins`] first.
    SendCancel,
    /// Wait for the next event.
    Wait,
    /// Nothing is in flight and nothing on its way: the connection may be lent again.
    Release,
    /// Close the connection.
    Discard,
}

/// Whose doing it was that a statement came back as cancelled (SQLSTATE 57014). See [`whose_cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canceller {
    /// Ours, for this ending.
    Ours(Ending),
    /// The bound that we had set on the server for it: our deadline, kept by the server.
    Backstop,
    /// Somebody else: an administrator, or a bound that we did not set.
    SomebodyElse,
}

/// What a server says about a transaction whose COMMIT was not answered (`pg_xact_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XactStatus {
    /// It is committed.
    Committed,
    /// It is rolled back.
    Aborted,
    /// It is not over: ask again.
    InProgress,
    /// The server does not know it any more, or never did.
    Unknown,
}

/// How far a transaction came towards its end, as seen from here. See [`outcome_of_transaction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitSeen {
    /// COMMIT was not sent. The server rolls back what is left, at the latest when its connection closes.
    NotSent,
    /// COMMIT was sent and no answer came.
    Sent,
    /// COMMIT was answered: it is committed.
    Committed,
    /// COMMIT was answered with an error, of this outcome (see [`outcome_of_error`]), or with a rollback.
    Refused(Outcome),
    /// COMMIT was sent, no answer came, and the server was asked about the transaction.
    Asked(XactStatus),
}

/// What two sessions of one pool saw of their backends, both open all the while. See [`pooler_sign`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionsSeen<'a> {
    /// The backend of the first session, statement by statement.
    pub first: &'a [i32],
    /// The backend of the second session, while it was inside one transaction.
    pub second: &'a [i32],
    /// A setting that the first made for its session was seen by the second.
    pub setting_leaked: bool,
    /// A setting that the first made for its session was gone at its next statement.
    pub setting_lost: bool,
}

/// What tells that a transaction pooler stands in front of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolerSign {
    /// One session had different backends from one statement to the next.
    BackendChanged,
    /// Two open sessions had the same backend.
    BackendShared,
    /// A setting of one session reached another.
    SettingLeaked,
    /// A setting of a session did not last.
    SettingLost,
}

// === The bound on the server ===

/// The bound that the server gets for a statement: what is left and some slack, in whole milliseconds, rounded up, and
/// never below [`LEAST`] (contract D1).
///
/// It is the backstop for a process that dies or stalls. The exact cut is the cancel, so this one comes later.
///
/// ```
/// # use oneclock_core::statement::backstop; use std::time::Duration;
/// let (us, ms) = (Duration::from_micros, Duration::from_millis);
/// assert_eq!(backstop(ms(100), ms(50)), ms(150));
/// assert_eq!(backstop(us(200), ms(0)), ms(1), "200 µs would be rounded to zero by the server, which means off");
/// assert_eq!(backstop(us(1_200), ms(0)), ms(2));
/// ```
pub fn backstop(remaining: Duration, slack: Duration) -> Duration {
    let nanos = remaining.saturating_add(slack).as_nanos();
    let millis = nanos.div_ceil(1_000_000).clamp(1, MOST_MILLIS);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// Whether the bound in force on the server must be replaced before a statement that may take `remaining` (contract D2).
///
/// It must where it would cut too early, and where it is more than twice what this statement would get, since it would
/// then be no backstop any more. `None` is a value that is not known or off. What it would get is
/// [`backstop`]`(remaining, slack)`.
///
/// ```
/// # use oneclock_core::statement::must_replace; use std::time::Duration;
/// # fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// assert!(must_replace(None, ms(100), ms(0)));
/// assert!(must_replace(Some(ms(99)), ms(100), ms(0)), "it would cut too early");
/// assert!(!must_replace(Some(ms(150)), ms(100), ms(0)), "good enough, and no message");
/// assert!(must_replace(Some(ms(5_000)), ms(100), ms(0)));
/// ```
pub fn must_replace(in_force: Option<Duration>, remaining: Duration, slack: Duration) -> bool {
    in_force.is_none_or(|in_force| in_force < remaining || in_force > backstop(remaining, slack).saturating_mul(2))
}

// === Fence ===

impl Fence {
    /// A statement is being sent on this connection.
    pub const fn new() -> Self {
        Self { ended: false, on_its_way: false, ready: false, begun: false, over: None }
    }

    /// Whether a cancel of ours was begun.
    pub const fn cancel_begun(&self) -> bool {
        self.begun
    }

    /// Takes an event, and says what to do.
    pub const fn on(&mut self, event: Event) -> Action {
        if let Some(over) = self.over {
            return over.action();
        }
        match event {
            Event::Ended if self.ended => Action::Wait,
            Event::Ended => {
                self.ended = true;
                Action::SendCancel
            }
            Event::CancelBegins => {
                self.begun = true;
                self.on_its_way = true;
                Action::Wait
            }
            Event::CancelClosed | Event::CancelNotSent => {
                self.on_its_way = false;
                self.settle()
            }
            Event::Ready => {
                self.ready = true;
                self.settle()
            }
            Event::StillBusy if self.ended && !self.on_its_way => Action::SendCancel,
            Event::StillBusy => Action::Wait,
            Event::CancelLost | Event::GraceOver | Event::Lost => self.close(Over::Discarded),
        }
    }

    const fn settle(&mut self) -> Action {
        if self.ready && !self.on_its_way { self.close(Over::Released) } else { Action::Wait }
    }

    const fn close(&mut self, over: Over) -> Action {
        self.over = Some(over);
        over.action()
    }
}

impl Over {
    const fn action(self) -> Action {
        match self {
            Self::Released => Action::Release,
            Self::Discarded => Action::Discard,
        }
    }
}

// === Whose cancel ===

/// Whose doing it was that a statement came back as cancelled (contract D4).
///
/// The server's code is the same for a cancel and for a bound, and its message is translated. So it is told from our own
/// state: whether we had begun a cancel and for which ending, and whether the bound that we had set was used up after
/// `elapsed`, the time since the statement was sent.
///
/// ```
/// # use oneclock_core::statement::*; use std::time::Duration;
/// # fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// assert_eq!(whose_cancel(None, Some(ms(100)), ms(101)), Canceller::Backstop);
/// assert_eq!(whose_cancel(None, Some(ms(100)), ms(40)), Canceller::SomebodyElse);
/// ```
pub fn whose_cancel(cancelled_for: Option<Ending>, in_force: Option<Duration>, elapsed: Duration) -> Canceller {
    match (cancelled_for, in_force) {
        (Some(ending), _) => Canceller::Ours(ending),
        (None, Some(bound)) if elapsed >= bound => Canceller::Backstop,
        (None, _) => Canceller::SomebodyElse,
    }
}

// === What is known ===

/// What is known of a statement that the server answered with an error of this SQLSTATE.
///
/// An error takes back what its statement did: [`Outcome::Rejected`] where the same statement may well succeed another
/// time (a lock, a conflict, a cancel, no room), else [`Outcome::Failed`]. A fatal one ends the session and may come
/// between a commit and its answer: [`Outcome::Unknown`], but for those that are told before a session begins.
///
/// ```
/// # use oneclock_core::{statement::outcome_of_error, Outcome, Stage};
/// assert_eq!(outcome_of_error("40001", false), Outcome::Rejected);
/// assert_eq!(outcome_of_error("23505", false), Outcome::Failed);
/// assert_eq!(outcome_of_error("57P01", true), Outcome::Unknown { stage: Stage::Wait });
/// ```
pub fn outcome_of_error(sqlstate: &str, fatal: bool) -> Outcome {
    let class = sqlstate.get(..2).unwrap_or(sqlstate);
    match (sqlstate, class) {
        // Statement completion unknown, transaction resolution unknown: they say so themselves.
        ("40003" | "08007", _) => Outcome::Unknown { stage: Stage::Wait },
        // Too many connections, the server starts or stops: there was no session.
        ("53300" | "57P03", _) => Outcome::Rejected,
        _ if fatal => Outcome::Unknown { stage: Stage::Wait },
        // Conflicts, no resources, locks that are not to be had, cancelled.
        ("55P03" | "57014", _) | (_, "40" | "53") => Outcome::Rejected,
        _ => Outcome::Failed,
    }
}

/// What is known of a transaction at its end (contract D5).
///
/// A COMMIT that was sent may have gone through, whatever happened since; only its answer or the server's own record of
/// the transaction says more.
///
/// ```
/// # use oneclock_core::{statement::*, Outcome, Stage};
/// assert_eq!(outcome_of_transaction(CommitSeen::NotSent), Outcome::Rejected);
/// assert_eq!(outcome_of_transaction(CommitSeen::Sent), Outcome::Unknown { stage: Stage::Wait });
/// assert_eq!(outcome_of_transaction(CommitSeen::Asked(XactStatus::Committed)), Outcome::Applied);
/// ```
pub const fn outcome_of_transaction(seen: CommitSeen) -> Outcome {
    match seen {
        CommitSeen::NotSent | CommitSeen::Asked(XactStatus::Aborted) => Outcome::Rejected,
        CommitSeen::Committed | CommitSeen::Asked(XactStatus::Committed) => Outcome::Applied,
        CommitSeen::Refused(outcome) => outcome,
        CommitSeen::Sent | CommitSeen::Asked(XactStatus::InProgress | XactStatus::Unknown) => {
            Outcome::Unknown { stage: Stage::Wait }
        }
    }
}

impl XactStatus {
    /// What `pg_xact_status` answered; it answers nothing for a transaction that it has forgotten.
    pub fn from_answer(answer: Option<&str>) -> Self {
        match answer {
            Some("committed") => Self::Committed,
            Some("aborted") => Self::Aborted,
            Some("in progress") => Self::InProgress,
            _ => Self::Unknown,
        }
    }

    /// The same, as an answer about a transaction of the server that calls itself `ours`, from one that calls itself `asked`.
    ///
    /// The name must change whenever the server may have lost what it was told: one that crashed, or another that took its
    /// place, gives the same numbers again, so what it says may be about somebody else's transaction.
    ///
    /// ```
    /// # use oneclock_core::statement::XactStatus;
    /// assert_eq!(XactStatus::Committed.told_by(Some("a"), "a"), XactStatus::Committed);
    /// assert_eq!(XactStatus::Committed.told_by(Some("b"), "a"), XactStatus::Unknown);
    /// ```
    pub fn told_by(self, asked: Option<&str>, ours: &str) -> Self {
        if asked == Some(ours) { self } else { Self::Unknown }
    }

    /// Whether asking again can say more.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::InProgress)
    }
}

// === Poolers ===

/// What tells that a transaction pooler stands between these sessions and the server (contract D8). `None`: nothing does.
///
/// Behind one a session's setting reaches others, and a backend's number belongs to somebody else a moment later: neither
/// a bound nor a cancel may be sent there. Both sessions must be open all the while, and the second inside a transaction,
/// since a pooler that is not busy gives the same backend every time.
///
/// ```
/// # use oneclock_core::statement::*;
/// let direct = SessionsSeen { first: &[11, 11, 11], second: &[12, 12], ..SessionsSeen::default() };
/// assert_eq!(pooler_sign(direct), None);
/// let lent_on = SessionsSeen { first: &[11, 14], second: &[11, 11], ..SessionsSeen::default() };
/// assert_eq!(pooler_sign(lent_on), Some(PoolerSign::BackendChanged));
/// ```
pub fn pooler_sign(seen: SessionsSeen<'_>) -> Option<PoolerSign> {
    let changed = |backends: &[i32]| backends.windows(2).any(|pair| pair[0] != pair[1]);
    if changed(seen.first) || changed(seen.second) {
        Some(PoolerSign::BackendChanged)
    } else if seen.first.iter().any(|backend| seen.second.contains(backend)) {
        Some(PoolerSign::BackendShared)
    } else if seen.setting_leaked {
        Some(PoolerSign::SettingLeaked)
    } else if seen.setting_lost {
        Some(PoolerSign::SettingLost)
    } else {
        None
    }
}

impl fmt::Display for PoolerSign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BackendChanged => "a session had different backends from one statement to the next",
            Self::BackendShared => "two open sessions had the same backend",
            Self::SettingLeaked => "a setting of one session reached another",
            Self::SettingLost => "a setting of a session did not last until its next statement",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BoundBy, Cause, Tick};
    use proptest::prelude::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn d1_below_a_millisecond_a_bound_would_be_off() {
        for nanos in [0, 1, 999_999, 1_000_000] {
            assert_eq!(backstop(Duration::from_nanos(nanos), Duration::ZERO), ms(1), "{nanos} ns");
        }
        assert_eq!(backstop(Duration::from_nanos(1_000_001), Duration::ZERO), ms(2));
        assert_eq!(backstop(Duration::MAX, Duration::MAX), ms(i32::MAX as u64), "the most that the server takes");
    }

    #[test]
    fn d2_is_replaced_only_where_it_does_not_fit() {
        for (in_force, want) in [(9, true), (10, false), (11, false), (20, false), (21, true)] {
            assert_eq!(must_replace(Some(ms(in_force)), ms(10), ms(0)), want, "{in_force} ms for 10 ms");
        }
        assert!(!must_replace(Some(ms(220)), ms(10), ms(100)), "twice of what it would get, slack included");
    }

    #[track_caller]
    fn fenced(events: &[Event], want: Action) {
        let mut fence = Fence::new();
        let last = events.iter().map(|event| fence.on(*event)).last();
        assert_eq!(last, Some(want), "{events:?}");
    }

    #[test]
    fn d3_a_statement_that_finishes_by_itself_releases_at_once() {
        fenced(&[Event::Ready], Action::Release);
        fenced(&[Event::Ended, Event::Ready], Action::Release);
        fenced(&[Event::Ended, Event::Ready, Event::CancelBegins], Action::Release);
    }

    #[test]
    fn d3_release_needs_ready_and_the_cancel_closed() {
        use Event::*;
        fenced(&[Ended, CancelBegins, Ready], Action::Wait);
        fenced(&[Ended, CancelBegins, CancelClosed], Action::Wait);
        fenced(&[Ended, CancelBegins, Ready, CancelClosed], Action::Release);
        fenced(&[Ended, CancelBegins, CancelClosed, Ready], Action::Release);
        fenced(&[Ended, CancelBegins, Ready, GraceOver], Action::Discard);
        fenced(&[Ended, CancelBegins, CancelLost], Action::Discard);
        fenced(&[Ended, CancelBegins, Ready, CancelLost], Action::Discard);
    }

    #[test]
    fn d3_a_cancel_that_came_too_early_is_sent_again() {
        use Event::*;
        fenced(&[Ended, CancelBegins, StillBusy], Action::Wait);
        fenced(&[Ended, CancelBegins, CancelClosed, StillBusy], Action::SendCancel);
        fenced(&[Ended, CancelBegins, CancelNotSent, StillBusy], Action::SendCancel);
        fenced(&[Ended, CancelBegins, CancelClosed, StillBusy, CancelBegins, Ready], Action::Wait);
        fenced(&[StillBusy], Action::Wait);
    }

    #[test]
    fn d4_whose_cancel_it_was_follows_from_our_own_state() {
        let ending =
            Ending { cause: Cause::CallerGone, bound: BoundBy::Caller, stage: Stage::Wait, at: Tick::from_nanos(1) };
        assert_eq!(whose_cancel(Some(ending), Some(ms(9)), ms(50)), Canceller::Ours(ending));
        assert_eq!(whose_cancel(None, Some(ms(50)), ms(50)), Canceller::Backstop);
        assert_eq!(whose_cancel(None, Some(ms(50)), ms(49)), Canceller::SomebodyElse);
        assert_eq!(whose_cancel(None, None, ms(5000)), Canceller::SomebodyElse);
    }

    #[test]
    fn d5_only_an_answer_or_the_servers_record_says_more_than_unknown() {
        let unknown = Outcome::Unknown { stage: Stage::Wait };
        for (seen, want) in [
            (CommitSeen::NotSent, Outcome::Rejected),
            (CommitSeen::Sent, unknown),
            (CommitSeen::Committed, Outcome::Applied),
            (CommitSeen::Refused(Outcome::Failed), Outcome::Failed),
            (CommitSeen::Asked(XactStatus::Committed), Outcome::Applied),
            (CommitSeen::Asked(XactStatus::Aborted), Outcome::Rejected),
            (CommitSeen::Asked(XactStatus::InProgress), unknown),
            (CommitSeen::Asked(XactStatus::Unknown), unknown),
        ] {
            assert_eq!(outcome_of_transaction(seen), want, "{seen:?}");
        }
        let answers =
            [Some("committed"), Some("aborted"), Some("in progress"), Some("?"), None].map(XactStatus::from_answer);
        let [committed, aborted, in_progress, other, none] = answers;
        assert_eq!((committed, aborted), (XactStatus::Committed, XactStatus::Aborted));
        assert_eq!((in_progress, other, none), (XactStatus::InProgress, XactStatus::Unknown, XactStatus::Unknown));
    }

    #[test]
    fn r8_what_an_error_proves() {
        let unknown = Outcome::Unknown { stage: Stage::Wait };
        for (code, fatal, want) in [
            ("40001", false, Outcome::Rejected),
            ("40P01", false, Outcome::Rejected),
            ("55P03", false, Outcome::Rejected),
            ("57014", false, Outcome::Rejected),
            ("53300", true, Outcome::Rejected),
            ("57P03", true, Outcome::Rejected),
            ("57P01", true, unknown),
            ("XX000", true, unknown),
            ("40003", false, unknown),
            ("08007", false, unknown),
            ("23505", false, Outcome::Failed),
            ("42601", false, Outcome::Failed),
            ("0A000", false, Outcome::Failed),
            ("", false, Outcome::Failed),
        ] {
            assert_eq!(outcome_of_error(code, fatal), want, "{code} fatal: {fatal}");
        }
    }

    #[test]
    fn d8_each_sign_of_a_pooler_counts() {
        let direct = SessionsSeen { first: &[1, 1], second: &[2, 2], setting_leaked: false, setting_lost: false };
        assert_eq!(pooler_sign(direct), None);
        assert_eq!(pooler_sign(SessionsSeen { first: &[1, 3], ..direct }), Some(PoolerSign::BackendChanged));
        assert_eq!(pooler_sign(SessionsSeen { second: &[1, 1], ..direct }), Some(PoolerSign::BackendShared));
        assert_eq!(pooler_sign(SessionsSeen { setting_leaked: true, ..direct }), Some(PoolerSign::SettingLeaked));
        assert_eq!(pooler_sign(SessionsSeen { setting_lost: true, ..direct }), Some(PoolerSign::SettingLost));
    }

    fn event() -> impl Strategy<Value = Event> {
        use Event::*;
        prop::sample::select(vec![
            Ended,
            CancelBegins,
            CancelClosed,
            CancelNotSent,
            CancelLost,
            Ready,
            StillBusy,
            GraceOver,
            Lost,
        ])
    }

    proptest! {
        #[test]
        fn d1_a_bound_is_whole_milliseconds_and_never_cuts_early(remaining: Duration, slack in 0..10_000_u64) {
            let bound = backstop(remaining, ms(slack));
            prop_assert!(bound >= LEAST && bound.subsec_nanos().is_multiple_of(1_000_000));
            prop_assert!(bound >= remaining.min(ms(i32::MAX as u64)));
            prop_assert!(bound.as_nanos() < remaining.as_nanos() + ms(slack + 1).as_nanos() || bound == LEAST);
        }

        #[test]
        fn d2_what_was_just_set_is_not_replaced(nanos in 1..1_000_000_000_000_u64, slack in 0..10_000_u64) {
            let remaining = Duration::from_nanos(nanos);
            prop_assert!(!must_replace(Some(backstop(remaining, ms(slack))), remaining, ms(slack)));
        }

        /// Whatever happens in whatever order: released only when ready and with no cancel on its way, and for good.
        #[test]
        fn d3_no_order_of_events_releases_too_early(events in prop::collection::vec(event(), 0..24)) {
            let mut fence = Fence::new();
            let (mut ended, mut ready, mut on_its_way, mut over) = (false, false, false, None);
            for event in events {
                match event {
                    Event::Ended => ended = true,
                    Event::Ready => ready = true,
                    Event::CancelBegins => on_its_way = true,
                    Event::CancelClosed | Event::CancelNotSent => on_its_way = false,
                    _ => {}
                }
                let action = fence.on(event);
                if let Some(over) = over {
                    prop_assert_eq!(action, over, "what is over stays over");
                    continue;
                }
                match action {
                    Action::Release => prop_assert!(ready && !on_its_way),
                    Action::SendCancel => prop_assert!(ended && !ready && !on_its_way || event == Event::Ended),
                    Action::Discard | Action::Wait => {}
                }
                if matches!(action, Action::Release | Action::Discard) {
                    over = Some(action);
                }
            }
        }
    }
}
