//! The steps of one call, in their order: its grant, a place, a connection, the command, what is known of it.
//!
//! Decides that waiting for a place and for a connection is first come, first served, bounded, and part of the budget (invariant
//! I4). Which connection is good is `common`'s and `own`'s business.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oneclock::events::Downstream;
use oneclock::{Call, Caps, Ended, NotBegun, NotConnected, Operation, Stopped, WhyNot};
use oneclock_core::{Cause, Ending, Name, Outcome, Stage};
use redis::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blocking::Blocking;
use crate::common::{Common, too_slow};
use crate::error::{Access, RedisError, outcome_of};
use crate::line::{Line, Target};
use crate::own::{Lent, Own};
use crate::request::{Held, Request};

/// How long after a command's time the server is asked to look at its clock, and how often from then on.
const WAKES_AFTER: Duration = Duration::from_millis(2);
const WAKES_EVERY: Duration = Duration::from_millis(5);

/// All clones of one client.
pub(crate) struct Shared {
    pub(crate) target: Arc<Target>,
    pub(crate) place: String, // without what is secret
    pub(crate) connect_cap: Duration,
    pub(crate) common: Arc<Common>,
    pub(crate) in_flight: Arc<Semaphore>, // fair: first come, first served
    pub(crate) max_in_flight: usize,
    pub(crate) own: Own,
    pub(crate) max_waiting: usize,
    pub(crate) waiting: AtomicUsize,
    pub(crate) caps: Caps,
}

/// Why a call has no connection. Nothing was sent.
pub(crate) enum NoLine {
    /// It cannot be opened.
    Failed(redis::RedisError),
    /// The wait for it came to its end.
    Ended(Ended),
}

/// One caller in a queue.
struct InQueue<'a>(&'a AtomicUsize);

// === Shared ===

/// An answer, and whose it is.
pub(crate) type Answered = (Name, Name, Value);

impl Shared {
    /// The current operation, else one of its own with the call's cap (contract C6).
    pub(crate) fn operation(&self, name: &Name, access: Access) -> Result<Operation, RedisError> {
        self.caps.operation(name).map_err(|not_begun| stopped(not_begun, access))
    }

    /// Begins a call with its grant.
    pub(crate) fn begin(&self, operation: &Operation, name: Name, access: Access) -> Result<Call, RedisError> {
        let ask = self.caps.ask(&name);
        operation.grant(name).ask(ask).to(Downstream::Database).call().map_err(|not_begun| stopped(not_begun, access))
    }

    /// Waits for a place: it spends the budget, and the queue has a bound.
    pub(crate) async fn place(
        &self,
        call: &mut Call,
        places: &Arc<Semaphore>,
        access: Access,
    ) -> Result<OwnedSemaphorePermit, RedisError> {
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Ok(place); // it overtakes nobody: a place that becomes free goes to who waits
        }
        call.enter(Stage::Pool);
        let Some(_in_queue) = self.join_queue() else {
            return Err(stopped(refused(call, Cause::Shed), access));
        };
        match call.run(Arc::clone(places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_closed)) => Err(stopped(refused(call, Cause::Shutdown), access)),
            Err(ended) => Err(stopped(ended, access)),
        }
    }

    pub(crate) async fn on_the_shared(
        &self,
        mut call: Call,
        request: Request<'_>,
        access: Access,
    ) -> Result<Answered, RedisError> {
        let _place = self.place(&mut call, &self.in_flight, access).await?;
        let line = match self.shared_line(&mut call).await {
            Ok(line) => line,
            Err(none) => return Err(none.error(call, access)),
        };
        still_begins(&mut call, access)?;
        call.enter(Stage::Wait);
        let written = line.watch().written();
        let in_flight = self.common.begins(line);
        let answered = call.run(in_flight.line().send(&request)).await;
        match answered {
            Ok(result) => {
                let watch = in_flight.line().watch();
                let never_written = watch.is_closed() && watch.written() == written;
                in_flight.answered();
                settle(call, result, request.may_be_half_done(), access, never_written)
            }
            Err(ended) => {
                drop(in_flight); // before anybody hears of it: the next call finds a connection that is good
                Err(stopped(ended, access))
            }
        }
    }

    async fn shared_line(&self, call: &mut Call) -> Result<Arc<Line>, NoLine> {
        if let Some(line) = self.common.current() {
            return Ok(line);
        }
        call.enter(Stage::Connect);
        match call.run(self.common.opened()).await {
            Ok(opened) => opened.map_err(NoLine::Failed),
            Err(ended) => Err(NoLine::Ended(ended)),
        }
    }

    pub(crate) async fn on_its_own(
        self: &Arc<Self>,
        mut call: Call,
        request: Request<'_>,
        access: Access,
    ) -> Result<Answered, RedisError> {
        let place = self.place(&mut call, &self.own.places, access).await?;
        let line = match self.own.take_idle() {
            Some(line) => line,
            None => match self.own_line(&mut call, self.target.connect_to_block()).await {
                Ok(line) => line,
                Err(none) => return Err(none.error(call, access)),
            },
        };
        let lent = Lent::new(Arc::clone(self), line, place);
        let left = call.remaining();
        let Some((request, held)) = request.fitted(left) else {
            lent.give_back();
            let why = WhyNot::BelowTheUnit { remaining: left };
            let not_begun = NotBegun::of(call.operation(), call.name().clone(), why);
            call.close(Outcome::NotSent);
            return Err(stopped(not_begun, access));
        };
        if let Err(error) = still_begins(&mut call, access) {
            lent.give_back();
            return Err(error);
        }
        call.enter(Stage::Wait);
        Blocking::new(Arc::clone(self), call, lent, request.into_owned(), held, access).answer().await
    }

    /// Waits for an answer that the server holds back. A server with nothing to do looks at its clock ten times a second, and
    /// would let go up to 100 ms late, which may be after the deadline; when something is asked of it, it looks at once.
    pub(crate) async fn woken<T>(&self, answer: impl Future<Output = T>, held: Held) -> T {
        if self.common.current().is_none() {
            self.common.prepare();
        }
        tokio::select! {
            biased;
            answer = answer => answer,
            never = self.wakes(held) => never,
        }
    }

    async fn wakes<T>(&self, held: Held) -> T {
        let mut pause = held.each + WAKES_AFTER;
        let mut commands = held.commands;
        loop {
            tokio::time::sleep(pause).await;
            if let Some(line) = self.common.current() {
                let in_flight = self.common.begins(line);
                // What it answers says nothing here; the command that is waited for has an answer of its own.
                let _ = in_flight.line().send(&Request::one(&redis::cmd("PING"))).await;
                in_flight.answered();
            }
            commands = commands.saturating_sub(1);
            pause = if commands == 0 { WAKES_EVERY } else { held.each };
        }
    }

    /// Opens a connection for this call alone: its own budget bounds that, and [`connect_cap`](RedisBuilder::connect_cap).
    pub(crate) async fn own_line(
        &self,
        call: &mut Call,
        connect: impl Future<Output = redis::RedisResult<Line>>,
    ) -> Result<Line, NoLine> {
        call.enter(Stage::Connect);
        match call.run(tokio::time::timeout(self.connect_cap, connect)).await {
            Ok(Ok(Ok(line))) => Ok(line),
            Ok(Ok(Err(error))) => Err(NoLine::Failed(error)),
            Ok(Err(_)) => Err(NoLine::Failed(too_slow(self.connect_cap).into())),
            Err(ended) => Err(NoLine::Ended(ended)),
        }
    }

    fn join_queue(&self) -> Option<InQueue<'_>> {
        let in_queue = InQueue(&self.waiting);
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        (before < self.max_waiting).then_some(in_queue) // one that finds no place is counted out as it goes
    }
}

/// Refuses to hand over a command whose call is over already: later it could only be said to be unknown.
fn still_begins(call: &mut Call, access: Access) -> Result<(), RedisError> {
    match call.ending() {
        Some(ending) => Err(stopped(call.cut_off(ending), access)),
        None => Ok(()),
    }
}

/// Closes the call with what came back.
pub(crate) fn settle(
    call: Call,
    result: redis::RedisResult<Value>,
    may_be_half_done: bool,
    access: Access,
    never_written: bool,
) -> Result<Answered, RedisError> {
    let (operation, name) = (call.operation().name().clone(), call.name().clone());
    match result {
        Ok(value) => {
            call.close(Outcome::Applied);
            Ok((operation, name, value))
        }
        Err(source) => {
            let outcome = outcome_of(&source, may_be_half_done, never_written);
            call.close(outcome);
            Err(RedisError::Redis { operation, call: name, outcome, access, source })
        }
    }
}

pub(crate) fn stopped(by: impl Into<Stopped>, access: Access) -> RedisError {
    RedisError::Stopped { stopped: by.into(), access }
}

/// The error of a call that got no place.
fn refused(call: &mut Call, cause: Cause) -> Stopped {
    let at = oneclock::clock::now();
    let ending = Ending { cause, bound: call.budget().bound.by, stage: call.stage(), at };
    call.cut_off(ending).into()
}

// === NoLine ===

impl NoLine {
    pub(crate) fn error(self, call: Call, access: Access) -> RedisError {
        match self {
            Self::Failed(source) => {
                let (operation, name) = (call.operation().name().clone(), call.name().clone());
                call.close(Outcome::NotSent);
                RedisError::NotConnected { operation, call: name, source: NotConnected::because(source) }
            }
            Self::Ended(ended) => stopped(ended, access),
        }
    }
}

// === InQueue ===

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
