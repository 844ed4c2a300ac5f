//! Asking: one request is a call of an operation.
//!
//! Decides the order. A place in the client's queue is waited for first; then what is left is written, and the request goes out
//! without any further wait. So what is written is what is left.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, PublishErrorKind, StatusCode, Subject};
use futures_util::SinkExt as _;
use oneclock::events::Downstream;
use oneclock::{Call, Caps, NotBegun, NotConnected, Operation, Stopped, WhyNot, WithoutOperation, clock};
use oneclock_core::ending::ABOUT_NOW;
use oneclock_core::ingress::Trust;
use oneclock_core::wire::{Conventions, Wall, names, writes};
use oneclock_core::{Name, Outcome, Reason, Stage};

use super::super::wires::NoConnection;
use super::error::{BadRequests, RequestError};
use super::messages::{Answer, Carried, Question, set};
use super::replies::Replies;

/// Asks over NATS, within the budget. Cheap to clone; the last clone that is dropped ends its subscription.
#[derive(Clone)]
pub struct Requests(Arc<Shared>);

struct Shared {
    client: Client,
    replies: Replies,
    caps: Caps,
    writes: Conventions,
    trust: Trust,
}

/// Builds [`Requests`].
#[derive(Clone, Debug)]
#[must_use = "a client is made by `build`"]
pub struct RequestsBuilder {
    client: Client,
    caps: Caps,
    writes: Conventions,
    trust: Trust,
}

// === RequestsBuilder ===

impl RequestsBuilder {
    /// The most that one call named `name` may spend, all its waiting included. It can shorten, never extend (invariant I3).
    pub fn cap(mut self, name: impl Into<Name>, cap: Duration) -> Self {
        self.caps.cap(name, cap);
        self
    }

    /// What operations keep back from each call: for their later steps and for the way home.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.caps.reserve(reserve);
        self
    }

    /// The least that is useful for a call; 5 ms unless said otherwise. With less left it is not begun.
    pub fn min_useful(mut self, min_useful: Duration) -> Self {
        self.caps.min_useful(min_useful);
        self
    }

    /// Refuses calls where no operation is current. Unless this is said they get their cap, or 10 s, and a warning is logged once
    /// (contract C6).
    pub fn require_operation(mut self) -> Self {
        self.caps.without_operation(WithoutOperation::Require);
        self
    }

    /// In which conventions what is left is written; `x-remaining-ms` unless said otherwise (contract E7).
    pub fn writes(mut self, conventions: Conventions) -> Self {
        self.writes = conventions;
        self
    }

    /// Whether those who answer belong to us, so that what they say of why they refused is proof; not unless this is said.
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// The client.
    ///
    /// # Errors
    /// [`BadRequests`].
    ///
    /// # Cancel safety
    /// Dropped, nothing is left of it.
    pub async fn build(self) -> Result<Requests, BadRequests> {
        self.caps.check().map_err(|(call, source)| BadRequests::Cap { call, source })?;
        let replies = Replies::open(&self.client).await.map_err(BadRequests::Subscribe)?;
        let Self { client, caps, writes, trust } = self;
        Ok(Requests(Arc::new(Shared { client, replies, caps, writes, trust })))
    }
}

// === Requests ===

impl Requests {
    /// Asks over this connection.
    pub fn builder(client: Client) -> RequestsBuilder {
        RequestsBuilder { client, caps: Caps::new(), writes: writes::plain_http(), trust: Trust::Outside }
    }

    /// Asks `subject`, as a call of the current operation, and waits for the answer for as long as that has.
    ///
    /// # Errors
    /// [`RequestError`], with what is known of whoever was asked.
    ///
    /// # Cancel safety
    /// Dropped, it may have been sent: whoever answers is not told, and works until the deadline that came with it.
    pub async fn ask(
        &self,
        name: impl Into<Name>,
        subject: impl AsRef<str>,
        question: impl Into<Question>,
    ) -> Result<Answer, RequestError> {
        let name = name.into();
        let operation = self.0.caps.operation(&name).map_err(Stopped::from)?;
        self.ask_in(&operation, name, subject, question).await
    }

    /// The same, as a call of `operation`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    ///
    /// # Cancel safety
    /// As [`ask`](Self::ask).
    pub async fn ask_in(
        &self,
        operation: &Operation,
        name: impl Into<Name>,
        subject: impl AsRef<str>,
        question: impl Into<Question>,
    ) -> Result<Answer, RequestError> {
        let (name, question) = (name.into(), question.into());
        let ask = self.0.caps.ask(&name);
        let call = operation.grant(name).ask(ask).to(Downstream::Queue).call().map_err(Stopped::from)?;
        // Boxed: what is awaited in there is large, and the futures of callers should not be.
        Box::pin(self.0.ask(call, Subject::from(subject.as_ref()), question)).await
    }

    /// How many answers are waited for at the moment.
    pub fn waiting(&self) -> usize {
        self.0.replies.awaited()
    }
}

impl Shared {
    async fn ask(&self, mut call: Call, subject: Subject, question: Question) -> Result<Answer, RequestError> {
        let (operation, name) = (call.operation().name().clone(), call.name().clone());
        let not_connected = |call: Call, why: Box<dyn std::error::Error + Send + Sync>| {
            call.close(Outcome::NotSent);
            RequestError::NotConnected {
                operation: operation.clone(),
                call: name.clone(),
                source: NotConnected::because(why),
            }
        };
        let not_a_request = |call: Call, what: String| {
            call.close(Outcome::NotSent);
            RequestError::NotARequest { operation: operation.clone(), call: name.clone(), what }
        };
        let mut headers = match question.headers() {
            Ok(headers) => headers,
            Err(field) => {
                return Err(not_a_request(call, format!("the field {field:?} cannot be a header field of NATS")));
            }
        };

        call.enter(Stage::Pool);
        let mut client = self.client.clone();
        match call.run(std::future::poll_fn(|cx| client.poll_ready_unpin(cx))).await {
            Ok(Ok(())) => {}
            Ok(Err(closed)) => return Err(not_connected(call, closed.into())),
            Err(ended) => return Err(Stopped::from(ended).into()),
        }
        if self.client.connection_state() != State::Connected {
            return Err(not_connected(call, NoConnection.into()));
        }
        if call.attempt() > 1 {
            set(&mut headers, names::X_ENVOY_ATTEMPT_COUNT, &call.attempt().to_string());
        }
        call.carry(&mut Carried(&mut headers));
        let awaited = self.replies.await_one();
        let wall = if self.writes.need_wall() { clock::wall() } else { Wall::default() };
        let remaining = call.remaining();
        if self.writes.write(remaining, wall, |field, value| set(&mut headers, field.as_str(), value.as_str())).is_err()
        {
            let not_begun = NotBegun::of(call.operation(), name.clone(), WhyNot::BelowTheUnit { remaining });
            call.close(Outcome::NotSent);
            return Err(Stopped::from(not_begun).into());
        }
        let message = async_nats::message::OutboundMessage {
            subject: subject.clone(),
            reply: Some(awaited.address.as_str().into()),
            payload: question.body,
            headers: Some(headers),
        };
        match client.start_send_unpin(message) {
            Ok(()) => {}
            Err(error) if error.kind() == PublishErrorKind::Send => return Err(not_connected(call, error.into())),
            Err(error) => return Err(not_a_request(call, error.to_string())),
        }

        call.enter(Stage::Wait);
        let mut awaited = awaited;
        let message = match call.run(&mut awaited.answer).await {
            Ok(Ok(message)) => message,
            Ok(Err(_closed)) => {
                call.close(Outcome::Unknown { stage: Stage::Wait });
                return Err(RequestError::Closed { operation, call: name });
            }
            Err(ended) => return Err(Stopped::from(ended).into()),
        };
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            call.close(Outcome::Rejected);
            return Err(RequestError::NoResponders { operation, call: name, subject: subject.as_str().into() });
        }
        match Answer::of(message) {
            Ok(answer) => {
                call.close(Outcome::Applied);
                Ok(answer)
            }
            Err(declined) => {
                // Whoever answers was told less than we have: its end so near to ours is ours.
                let is_our_end = declined.reason == Some(Reason::Deadline) && call.remaining() <= ABOUT_NOW;
                if self.trust == Trust::Inside
                    && is_our_end
                    && let Err(ended) = call.run(std::future::pending::<()>()).await
                {
                    return Err(Stopped::from(ended).into());
                }
                let outcome = declined.outcome(self.trust);
                call.close(outcome);
                Err(RequestError::Declined { operation, call: name, outcome, declined })
            }
        }
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}
