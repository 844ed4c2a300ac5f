//! What a row has: one proxy that runs before one backend. Its calls are told from both ends.

use std::time::Duration;

use h2::Reason;
use oneclock_core::Tick;
use oneclock_core::wire::{Codec, Read, Wall, names};

use crate::backend::Backend;
use crate::caller::{self, Ask, Connection, End, Seen};
use crate::cell::seconds;
use crate::log::{Arrival, CASE, Ending};
use crate::proxies::{Knows, Running};

/// When a caller goes that has no other reason to.
const PATIENCE: Duration = Duration::from_secs(8);
/// When a row is given up.
const GIVEN_UP: Duration = Duration::from_secs(20);
/// What a busy machine may add between two ends of a connection.
pub(crate) const SLACK: Duration = Duration::from_millis(100);

/// One proxy before one backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Under<'a> {
    pub(crate) knows: Knows,
    pub(crate) proxy: &'a Running,
    pub(crate) backend: &'a Backend,
}

/// One call, from both ends.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) seen: Seen,
    /// What reached the backend, in its order. All of it is over.
    pub(crate) arrivals: Vec<Arrival>,
}

/// How one call is to go.
#[derive(Debug)]
pub(crate) struct Call {
    ask: Ask,
    case: String,
    leaves: Duration,
}

// === Under ===

impl<'a> Under<'a> {
    /// A call, by a caller that stays.
    pub(crate) fn call(&self, ask: Ask) -> Call {
        let case = self.backend.log.next_case();
        Call { ask: ask.field(CASE, case.clone()), case, leaves: PATIENCE }
    }

    /// Makes it, and waits until all that came of it at the backend is over.
    ///
    /// # Errors
    /// If it cannot be made, or has no end.
    pub(crate) async fn tell(&self, call: &Call) -> Result<Story, String> {
        let to = if call.ask.is_http2() { self.proxy.rpc } else { self.proxy.http };
        let told = async {
            let leaves = async {
                caller::after(call.leaves).await;
                if call.leaves < PATIENCE {
                    let _ = self.backend.log.begun(&call.case).await; // on a busy machine it may be late
                }
            };
            let (seen, connection): (Seen, Connection) = call.ask.send(to, leaves).await?;
            let arrivals = self.backend.log.over(&call.case).await?;
            drop(connection);
            Ok(Story { seen, arrivals })
        };
        caller::within(GIVEN_UP, told).await
    }

    /// Makes it once `first` has reached the backend.
    ///
    /// # Errors
    /// As [`tell`](Self::tell).
    pub(crate) async fn tell_behind(&self, first: &Call, call: &Call) -> Result<Story, String> {
        self.backend.log.begun(&first.case).await?;
        self.tell(call).await
    }
}

impl Call {
    /// The caller leaves so long after the beginning, once there is work to be cut.
    pub(crate) fn leaving_after(self, span: Duration) -> Self {
        Self { leaves: span, ..self }
    }
}

// === Story ===

impl Story {
    /// From the beginning of the call.
    pub(crate) fn after(&self, moment: Tick) -> Duration {
        moment.since(self.seen.began)
    }

    /// From the moment on in which the first attempt reached the backend: its proxy had read the head by then, and what went
    /// before was the caller's and the machine's.
    pub(crate) fn after_first(&self, moment: Tick) -> Duration {
        self.arrivals.first().map_or(Duration::ZERO, |first| moment.since(first.at))
    }

    /// Whether something reached the backend and all of it was cut off.
    pub(crate) fn was_cut(&self) -> bool {
        !self.arrivals.is_empty() && self.arrivals.iter().all(Arrival::was_cut)
    }

    /// What became of the work, in words.
    pub(crate) fn upstream(&self) -> String {
        let Some((ending, at)) = self.arrivals.last().and_then(|arrival| arrival.ended) else {
            return "upstream not asked".to_owned();
        };
        let at = seconds(self.after(at));
        match ending {
            Ending::RanOn => format!("upstream ran on to its end, {at}"),
            Ending::Closed => format!("upstream cut after {at}"),
            Ending::Reset(code) => format!("upstream cut after {at}, {code:?}"),
        }
    }

    /// With which code the work was reset.
    pub(crate) fn code(&self) -> Option<Reason> {
        match self.arrivals.last()?.ended? {
            (Ending::Reset(code), _) => Some(code),
            _ => None,
        }
    }

    /// What the caller saw, in words.
    pub(crate) fn answer(&self) -> String {
        let at = seconds(self.seen.took);
        match (&self.seen.end, self.seen.grpc(), self.seen.code()) {
            (End::Left, _, _) => format!("no end until its caller left at {at}"),
            (End::Cut(_), _, 0) => format!("no answer after {at}"),
            (End::Cut(_), _, status) => format!("{status}, cut off after {at}"),
            (End::Whole, Some(status), 200) => format!("status {status} after {at}"),
            (End::Whole, _, status) => format!("{status} after {at}"),
        }
    }

    /// What the backend was told, by each attempt, in a field of milliseconds or `grpc-timeout`.
    pub(crate) fn told(&self, field: &str) -> Vec<Option<&str>> {
        self.arrivals.iter().map(|arrival| arrival.said(field)).collect()
    }
}

/// What a field says is left, if that can be read.
pub(crate) fn left(field: &str, value: &str) -> Option<Duration> {
    let codec = if field == names::GRPC_TIMEOUT { Codec::Grpc } else { Codec::Millis };
    match codec.parse(value.as_bytes(), Wall::from_nanos(0)) {
        Read::Valid(left) => Some(left),
        Read::Expired => Some(Duration::ZERO),
        Read::Absent | Read::Malformed(_) => None,
    }
}
