//! One thing that we call: its name, what a call to it may spend, and what it is told.
//!
//! Decides what every way out (the [`Egress`](crate::EgressLayer) layer, [`Client`](crate::Client), the reqwest
//! middleware) does with a call: begin it from the current operation, write its deadline at the last moment, judge its
//! answer. Contract C1, C5, C6, E2 to E7, R8, X2.

mod builder;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Context;
use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Response};
use http_body::Body;
use oneclock::events::{AnswerHead, Fields};
use oneclock::{Call, Health, NotBegun, Operation, Retries, WhyNot, WithoutOperation, clock};
use oneclock_core::effect::{self, Seen};
use oneclock_core::retry::Attempt;
use oneclock_core::wire::{Conventions, NothingToSend, writes};
use oneclock_core::{Ask, Name, Outcome, Refused, Stage, Tick, Trust};

use crate::body::{BoundedBody, BoxError, Heard};
use crate::egress::CallCap;
use crate::error::{CallError, CallFailed};
use crate::fields::FieldSet;
use crate::ingress::Lent;
use crate::{grpc, marks, timing};

pub use builder::DestinationBuilder;

/// Something we call. Cheap to clone. It holds limits, not deadlines: those are made per call (contract C5).
///
/// ```
/// # use oneclock_http::Destination; use std::time::Duration;
/// let inventory = Destination::named("inventory")
///     .cap(Duration::from_millis(300))
///     .reserve(Duration::from_millis(20))
///     .build()?;
/// assert_eq!(inventory.name().as_str(), "inventory");
/// # Ok::<(), oneclock_core::Refused>(())
/// ```
#[derive(Clone, Debug)]
pub struct Destination(Arc<Rules>);

#[derive(Clone, Debug)]
struct Rules {
    name: Name,
    ask: Ask,
    tells: FieldSet,
    tells_default: bool, // nobody has said what it understands
    trust: Trust,
    without_operation: WithoutOperation,
    enforces_keys: bool,
    warned: Arc<AtomicBool>,
    retries: Option<Retries>, // made by `build`
    health: Health,           // made by `build`
}

// === Destination ===

impl Destination {
    /// Begins a destination under the name that ledgers, errors and metrics show.
    pub fn named(name: impl Into<Name>) -> DestinationBuilder {
        let name = name.into();
        let rules = Rules {
            health: Health::of(name.clone()).build(),
            name,
            ask: Ask::new(),
            tells: FieldSet::new(writes::plain_http()),
            tells_default: true,
            trust: Trust::Outside,
            without_operation: WithoutOperation::Warn,
            enforces_keys: false,
            warned: Arc::default(),
            retries: None,
        };
        DestinationBuilder::new(rules)
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.0.name
    }

    /// The same destination, told these fields too, as by [`DestinationBuilder::also_tells`]: for layers of a protocol that
    /// has a field of its own, and must not depend on whoever made the destination. Retry tokens stay shared.
    ///
    /// ```
    /// # use oneclock_http::Destination; use oneclock_core::wire::writes;
    /// let pricing = Destination::named("pricing").build()?.also_tells(&writes::grpc());
    /// # Ok::<(), oneclock_core::Refused>(())
    /// ```
    #[must_use]
    pub fn also_tells(&self, conventions: &Conventions) -> Self {
        let mut rules = Rules::clone(&self.0);
        rules.also_tells(conventions);
        Self(Arc::new(rules))
    }

    /// Whether it was declared to enforce idempotency keys (contract R7).
    pub fn enforces_keys(&self) -> bool {
        self.0.enforces_keys
    }

    /// How calls to it are tried again, if it has a policy: its tokens, and the switch that turns them off and on.
    pub fn retries(&self) -> Option<&Retries> {
        self.0.retries.as_ref()
    }

    /// How well it is, as its calls see it: asked before each of them, told how each comes out, and switched off and on here.
    ///
    /// ```
    /// # use oneclock_http::Destination;
    /// let inventory = Destination::named("inventory").build()?;
    /// assert!(inventory.health().is_well());
    /// inventory.health().switch_off(); // no call is held back any more, whatever becomes of them
    /// # Ok::<(), oneclock_core::Refused>(())
    /// ```
    pub fn health(&self) -> &Health {
        &self.0.health
    }

    /// What a request with these extensions asks of `operation`: what every call does, and at most its own limit.
    pub(crate) fn ask_for(&self, extensions: &Extensions, operation: &Operation) -> Result<Ask, NotBegun> {
        let Some(CallCap(limit)) = extensions.get() else { return Ok(self.0.ask) };
        let why = |refused| NotBegun::told(operation, self.0.name.clone(), WhyNot::Refused(refused));
        self.0.ask.shortened(*limit).map_err(why)
    }

    pub(crate) fn trust(&self) -> Trust {
        self.0.trust
    }

    /// The operation that a request spends from: the current one, else the one that was put into its extensions before it
    /// was moved to another task (see [`CarryLayer`](crate::CarryLayer)). The current one comes first, since it may have
    /// less: a request that is passed on carries the operation that it arrived with.
    pub fn operation_of(extensions: &Extensions) -> Option<Operation> {
        Operation::current().or_else(|| extensions.get::<Operation>().cloned())
    }

    /// Begins a call from `operation`, else from the current one, else as [`WithoutOperation`] says.
    ///
    /// # Errors
    /// [`NotBegun`], if there is too little time, no operation where one is required, or if its health speaks against it:
    /// what refuses or fails too often is not asked each time.
    pub fn begin(&self, operation: Option<Operation>) -> Result<Call, NotBegun> {
        self.begin_attempt(operation, None)
    }

    /// The same for one attempt of several: it spends no more than that, and is marked as what it is. A
    /// [`RetryLayer`](crate::RetryLayer) puts the attempt into the extensions of its requests.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_attempt(&self, operation: Option<Operation>, attempt: Option<Attempt>) -> Result<Call, NotBegun> {
        self.begin_for(&Extensions::new(), operation, attempt)
    }

    /// The same for a request with these extensions.
    pub(crate) fn begin_for(
        &self,
        extensions: &Extensions,
        operation: Option<Operation>,
        attempt: Option<Attempt>,
    ) -> Result<Call, NotBegun> {
        let operation = self.operation(operation)?;
        let ask = self.ask_for(extensions, &operation)?;
        let grant = operation.grant(self.0.name.clone()).ask(ask).health(&self.0.health);
        attempt.into_iter().fold(grant, oneclock::Grant::attempt).call()
    }

    pub(crate) fn operation(&self, operation: Option<Operation>) -> Result<Operation, NotBegun> {
        match operation.or_else(Operation::current) {
            Some(operation) => Ok(operation),
            None => self.operation_of_its_own(),
        }
    }

    /// Writes what the far side is told with `call`: what it has left, in every field that this destination understands, which
    /// attempt it is, and what its observer sends along. Call it once for each attempt, at the last moment before the head is
    /// sent (contract E4).
    ///
    /// # Errors
    /// [`NotBegun`], if what is left is below one unit of a field: the call must not be made (contract E2).
    pub fn write_head(&self, call: &Call, headers: &mut HeaderMap) -> Result<(), NotBegun> {
        self.write_head_at(call, headers, clock::now())
    }

    pub(crate) fn write_head_at(&self, call: &Call, headers: &mut HeaderMap, now: Tick) -> Result<(), NotBegun> {
        let written = self.0.tells.write(headers, call.deadline().remaining(now));
        written.map_err(|nothing| self.cannot_tell(call, &nothing))?;
        marks::mark_attempt(call, headers, self.0.trust);
        marks::mark_importance(call, headers, self.0.trust);
        call.carry(&mut Carried(headers));
        Ok(())
    }

    /// Whether what `call` had left when it began could be told: what is below one unit will not be more later (contract E2).
    pub(crate) fn check(&self, call: &Call) -> Result<(), NotBegun> {
        self.0.tells.check(call.deadline().remaining(call.began())).map_err(|nothing| self.cannot_tell(call, &nothing))
    }

    fn cannot_tell(&self, call: &Call, nothing: &NothingToSend) -> NotBegun {
        let why = match nothing.remaining {
            Duration::ZERO => WhyNot::Refused(Refused::Expired { bound: call.budget().bound }),
            remaining => WhyNot::BelowTheUnit { remaining },
        };
        NotBegun::of(call.operation(), self.0.name.clone(), why) // the call's own event tells of it
    }

    /// The answer to `call` whose head is there: judged, and its body bounded by the same deadline.
    ///
    /// A head that comes at or after the deadline is delivered if its body is there as a whole, else it is a deadline
    /// error (contract X1).
    ///
    /// # Errors
    /// [`CallError::Stopped`], if it came too late.
    pub fn answered<B>(
        &self,
        mut call: Call,
        method: &Method,
        response: Response<B>,
        cx: &mut Context<'_>,
    ) -> Result<Response<BoundedBody<B>>, CallError>
    where
        B: Body + Unpin + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut head, body) = response.into_parts();
        if call.is_kept() {
            call.answered(&AnswerHead::new(head.status.as_u16(), &Lent(&head.headers)));
        }
        let mut heard = self.heard(&head, method);
        match self.0.trust {
            // Not theirs to give, and not to be passed on as ours.
            Trust::Outside => {
                marks::strip(&mut head.headers);
                timing::take_out(&mut head.headers);
            }
            Trust::Inside => {
                if let Some(attempts) = marks::gave_up_below(&head.headers) {
                    call.operation().set_gave_up_after(attempts); // so that our own caller does not try again either
                }
                if let Some(account) = timing::heard(&head.headers) {
                    call.tell_below(account);
                }
            }
        }
        let now = clock::now();
        let Some(ending) = call.ending_at(now) else {
            // Told by its head, the time of its body says nothing of the destination: it may be long.
            heard.seen.into_iter().for_each(|seen| call.saw(seen, now));
            return Ok(Response::from_parts(head, BoundedBody::answer(body, call, heard, now, cx)));
        };
        match BoundedBody::whole_now(body, cx) {
            // Whatever the far side reports by then, in its head or its trailers: our own deadline has passed (contract X2).
            Some(body) if grpc::is_failure(&head.headers) || body.trailers().is_some_and(grpc::is_failure) => {
                Err(call.cut_off(ending).into())
            }
            Some(mut body) => {
                if let Some(trailers) = body.trailers_mut() {
                    heard.trailers(trailers);
                }
                call.operation().tell_if_late(call.deadline());
                heard.close_at(call, now);
                Ok(Response::from_parts(head, body))
            }
            None => Err(call.cut_off(ending).into()),
        }
    }

    /// The error of a call whose service failed. If our own deadline has passed, that is the error, whatever the far side
    /// or the connection said (contract X2).
    pub fn failed(&self, mut call: Call, seen: Seen, source: impl Into<BoxError>) -> CallError {
        let now = clock::now();
        if let Some(ending) = call.ending_at(now) {
            return call.cut_off(ending).into();
        }
        call.saw(seen, now);
        let outcome = effect::outcome(seen, false);
        let failed = CallFailed {
            operation: call.operation().name().clone(),
            call: self.0.name.clone(),
            outcome,
            source: source.into(),
        };
        call.close(outcome);
        CallError::Failed(failed)
    }

    /// What the head of an answer says of the far side; `None` if how it went is still to come.
    pub(crate) fn seen(&self, head: &http::response::Parts) -> Option<Seen> {
        // A status of HTTP that is none of gRPC's own is that of something on the way, and all that will be said.
        if head.status.is_success() && grpc::is_told_later(&head.headers) {
            return None;
        }
        let reason = marks::reason(&head.headers, self.0.trust);
        // Trailers-only: the status of the call stands in the head.
        Some(match grpc::status(&head.headers) {
            Some(status) => Seen::GrpcAnswer { status, reason },
            None => Seen::Answer { status: head.status.as_u16(), reason },
        })
    }

    fn heard(&self, head: &http::response::Parts, method: &Method) -> Heard {
        let trust = self.0.trust;
        match self.seen(head) {
            Some(seen) => {
                let outcome = effect::outcome(seen, effect::reads_only(method.as_str()));
                Heard { outcome, trust, seen: Some(seen), earns: None, told_later: false }
            }
            None => {
                let outcome = Outcome::Unknown { stage: Stage::Body };
                Heard { outcome, trust, seen: None, earns: self.0.retries.clone(), told_later: true }
            }
        }
    }

    fn operation_of_its_own(&self) -> Result<Operation, NotBegun> {
        let Rules { name, ask, without_operation, warned, .. } = &*self.0;
        without_operation.operation(name, ask.cap_value(), warned)
    }
}

/// The fields of a request, for what observes the call.
struct Carried<'h>(&'h mut HeaderMap);

impl Fields for Carried<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }

    fn set(&mut self, name: &'static str, value: &str) {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            self.0.insert(name, value);
        }
    }

    fn remove(&mut self, name: &'static str) {
        self.0.remove(name);
    }
}

// === Rules ===

impl Rules {
    fn also_tells(&mut self, conventions: &Conventions) {
        self.tells = if self.tells_default { FieldSet::new(conventions.clone()) } else { self.tells.and(conventions) };
        self.tells_default = false;
    }
}

/// The guide's examples, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/overload-clients.md")]
struct Guide;
