//! Answering: who has a place, who waits for one, who is refused before anything is done for it.
//!
//! Decides that a request's time runs from the moment when it comes off its connection. All of them are taken off at once, into a
//! queue with a bound, so that none waits where its time does not count; before one starts it is asked again what is left of it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_nats::{Client, Message, Subject, SubscribeError};
use futures_util::FutureExt as _;
use oneclock::events::{self, Event, Observer, Refusal};
use oneclock::{Operation, Shutdown, clock};
use oneclock_core::ingress::{Accepted, Arriving, Decision, Policy, Trust};
use oneclock_core::wire::Conventions;
use oneclock_core::{Reason, Tick};
use tokio::task::{Id, JoinError, JoinSet};

use super::super::wires::Heard;
use super::answering::{Answering, answer};
use super::messages::{Answer, Declined, Question, said};

/// Answers requests of one subject, within their time. Made by [`Responder::builder`].
#[must_use = "nothing is answered until it runs"]
pub struct Responder {
    settings: ResponderBuilder,
    messages: Heard,
}

/// Builds a [`Responder`].
#[derive(Clone)]
#[must_use = "a responder is made by `build`"]
pub struct ResponderBuilder {
    client: Client,
    subject: String,
    policy: Policy,
    group: Option<String>,
    concurrency: usize,
    max_waiting: usize,
    reads: Conventions,
    trust: Trust,
    shutdown: Option<Shutdown>,
    observer: Option<Arc<dyn Observer>>,
}

/// A responder cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadResponder {
    /// A limit of zero would refuse everything.
    #[error("{limit} of 0 would refuse everything: give it at least 1")]
    Zero {
        /// Which one.
        limit: &'static str,
    },
    /// The subject or the group is none, or the connection was closed for good.
    #[error("{subject} could not be subscribed to")]
    Subscribe {
        /// The subject.
        subject: String,
        /// Why not.
        source: SubscribeError,
    },
}

/// A request, and when it came off its connection.
struct Arrived {
    message: Message,
    reply: Subject,
    at: Tick,
}

// === ResponderBuilder ===

impl ResponderBuilder {
    /// The group of those who share the work: each request goes to one of them; the policy's name unless said otherwise.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// How many are worked on at the same time; 64 unless said otherwise.
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.concurrency = requests;
        self
    }

    /// How many may wait for a place; 1024 unless said otherwise. One more is refused at once ([`Reason::Shed`]).
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = requests;
        self
    }

    /// Which conventions are read; those that HTTP has unless said otherwise.
    pub fn reads(mut self, conventions: Conventions) -> Self {
        self.reads = conventions;
        self
    }

    /// Whether those who ask belong to us; not unless this is said: then they may shorten what they get, and never lengthen it
    /// (contract C2).
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Stops taking requests when this is signalled, and ends those under way when its grace is over.
    pub fn ended_by(mut self, shutdown: &Shutdown) -> Self {
        self.shutdown = Some(shutdown.clone());
        self
    }

    /// Who is told of what happens here.
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Subscribes. From here on requests come in, which wait for [`run`](Responder::run).
    ///
    /// # Errors
    /// [`BadResponder`].
    ///
    /// # Cancel safety
    /// Dropped, nothing is left of it.
    pub async fn build(self) -> Result<Responder, BadResponder> {
        for (limit, value) in [("concurrency", self.concurrency), ("max_waiting", self.max_waiting)] {
            if value == 0 {
                return Err(BadResponder::Zero { limit });
            }
        }
        let group = self.group.clone().unwrap_or_else(|| self.policy.name().to_string());
        let heard = match self.client.queue_subscribe(self.subject.clone(), group).await {
            Ok(messages) => Heard::new(messages),
            Err(source) => return Err(BadResponder::Subscribe { subject: self.subject, source }),
        };
        // The server does what it is told in its order: with its answer to this, whatever that is, it knows the subscription.
        let _ = self.client.request(self.client.new_inbox(), bytes::Bytes::new()).await;
        Ok(Responder { settings: self, messages: heard })
    }
}

// === Responder ===

impl Responder {
    /// Answers `subject`, by this policy.
    pub fn builder(client: Client, subject: impl Into<String>, policy: Policy) -> ResponderBuilder {
        ResponderBuilder {
            client,
            subject: subject.into(),
            policy,
            group: None,
            concurrency: 64,
            max_waiting: 1_024,
            reads: Conventions::default_set(),
            trust: Trust::Outside,
            shutdown: None,
            observer: None,
        }
    }

    /// Answers until its shutdown is signalled and what was under way is over, or its connection is closed for good. Each request
    /// runs in an operation of its own, in a task that ends with this future.
    ///
    /// # Cancel safety
    /// Dropped, it ends what is under way, unanswered.
    pub async fn run<H, W>(mut self, handler: H)
    where
        H: Fn(Operation, Question) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Answer, Declined>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let (mut waiting, mut tasks, mut open) = (VecDeque::new(), JoinSet::new(), true);
        let mut replies: HashMap<Id, Subject> = HashMap::new();
        loop {
            while tasks.len() < self.settings.concurrency {
                let Some(arrived) = waiting.pop_front() else { break };
                let Some((answering, question)) = self.settings.begin(arrived) else { continue };
                let reply = answering.reply().clone();
                let work = answer(answering, Arc::clone(&handler), question);
                replies.insert(tasks.spawn(work).id(), reply);
            }
            if !open && tasks.is_empty() {
                return; // none waits either: there was a place for it
            }
            tokio::select! {
                came = self.messages.next(), if open => match came {
                    Some(message) => waiting.extend(self.settings.arrives(message, waiting.len())),
                    None => open = false,
                },
                ended = tasks.join_next_with_id(), if !tasks.is_empty() => self.settings.ended(ended, &mut replies),
                () = signalled(self.settings.shutdown.as_ref()), if open => {
                    open = false;
                    self.messages.ends().await;
                    // What came before that is answered.
                    while let Some(Some(message)) = self.messages.next().now_or_never() {
                        waiting.extend(self.settings.arrives(message, waiting.len()));
                    }
                }
            }
        }
    }
}

impl ResponderBuilder {
    /// One that may wait for a place.
    fn arrives(&self, message: Message, waiting: usize) -> Option<Arrived> {
        let at = clock::now();
        let Some(reply) = message.reply.clone() else {
            tracing::debug!(subject = %self.subject, "a request to which nobody waits for an answer is left alone");
            return None;
        };
        let arrived = Arrived { message, reply, at };
        let (reason, remaining) = match self.decide(&arrived, at).0 {
            Decision::Refused(_) => return self.refuses(&arrived, at),
            Decision::Accepted(_) if waiting < self.max_waiting => return Some(arrived),
            Decision::Accepted(accepted) => (Reason::Shed, accepted.budget.deadline.remaining(at)),
        };
        self.tell(&Refusal::new(self.policy.name().clone(), reason, remaining, None));
        self.decline(&arrived.reply, &Declined::because(reason));
        None
    }

    /// Begins its operation, if there is still enough time for it.
    fn begin(&self, arrived: Arrived) -> Option<(Answering, Question)> {
        let (decision, attempt) = self.decide(&arrived, clock::now());
        let Decision::Accepted(accepted) = decision else {
            self.refuses(&arrived, clock::now());
            return None;
        };
        let Accepted { budget, .. } = accepted;
        let (name, observer) = (self.policy.name().clone(), self.observer.clone());
        let driver = Operation::arrive(name, arrived.at, budget, None, self.shutdown.as_ref(), observer);
        let driver = driver.serving_attempt(attempt);
        let operation = driver.operation();
        if operation.is_observed() {
            operation.tell(&Event::Arrived(&events::Arrived::new(operation, &accepted)));
        }
        let question = Question::of(&arrived.message);
        Some((Answering::new(self.client.clone(), driver, arrived.reply), question))
    }

    fn decide(&self, arrived: &Arrived, now: Tick) -> (Decision<'_>, u32) {
        let (reading, attempt) = said(arrived.message.headers.as_ref(), &self.reads, self.trust);
        let arriving = Arriving { reading, rpc: false, trust: self.trust, arrived: arrived.at, now, platform: None };
        (self.policy.limits(None).decide(&arriving), attempt)
    }

    /// Answers one that has no time left, or says so in a way that nobody can read.
    fn refuses(&self, arrived: &Arrived, now: Tick) -> Option<Arrived> {
        if let Decision::Refused(refused) = self.decide(arrived, now).0 {
            let field = refused.malformed.map(|malformed| malformed.field.clone());
            let refusal = Refusal::new(self.policy.name().clone(), refused.reason, refused.remaining, field);
            self.tell(&refusal.bounded_by(refused.bound.by).suspecting_skew(refused.skew_suspected));
            self.decline(&arrived.reply, &Declined::because(refused.reason));
        }
        None
    }

    fn tell(&self, refusal: &Refusal) {
        events::send(self.observer.as_ref(), &Event::Refused(refusal));
    }

    /// At once or not at all: whoever takes requests off their connection must not wait.
    fn decline(&self, reply: &Subject, declined: &Declined) {
        let said =
            self.client.publish_with_headers(reply.clone(), declined.headers(), bytes::Bytes::new()).now_or_never();
        if !matches!(said, Some(Ok(()))) {
            tracing::debug!(subject = %self.subject, "a refusal could not be said");
        }
    }

    /// A task is over. If it panicked, nobody has answered yet.
    fn ended(&self, ended: Option<Result<(Id, ()), JoinError>>, replies: &mut HashMap<Id, Subject>) {
        match ended {
            Some(Ok((id, ()))) => drop(replies.remove(&id)),
            Some(Err(failed)) => {
                if let Some(reply) = replies.remove(&failed.id()) {
                    self.decline(&reply, &Declined::new(500, "whoever answers failed"));
                }
            }
            None => {}
        }
    }
}

async fn signalled(shutdown: Option<&Shutdown>) {
    match shutdown {
        Some(shutdown) => shutdown.signalled().await,
        None => std::future::pending().await,
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl fmt::Debug for ResponderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("subject", &self.subject)
            .field("policy", self.policy.name())
            .finish_non_exhaustive()
    }
}
