//! Work that is to be accepted: what it is, and when it is of no use any more.
//!
//! Decides that both are said: work without an end has to say so, and a caller's deadline is none (contract Q6).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use oneclock_core::Name;
use oneclock_core::expiry::{Expires, Policy, Stamp};
use oneclock_core::idempotency::Key;
use oneclock_core::wire::Wall;

use crate::Message;
use crate::message::random_id;

/// Work that is to be accepted, by [`Producer::accept`](crate::Producer::accept).
///
/// ```
/// use oneclock_queue::Work;
/// use std::time::Duration;
///
/// const DAY: Duration = Duration::from_secs(86_400);
/// let mail = Work::new("confirm-order", "order 7").expires_in(DAY).discard();
/// let charge = Work::new("charge", "order 7").expires_in(DAY).must_complete("payments@shop.example");
/// # let _ = (mail, charge);
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is accepted by a producer"]
pub struct Work {
    pub(crate) kind: Name,
    pub(crate) body: Bytes,
    pub(crate) life: Life,
    policy: Policy,
    owner: Option<Arc<str>>,
    key: Option<Key>,
    pub(crate) id: Option<Arc<str>>,
    principal: Option<Arc<str>>,
    content_type: Option<Arc<str>>,
    fields: Vec<(Arc<str>, Arc<str>)>,
}

/// How long work is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Nobody said.
    Unsaid,
    /// For ever.
    Endless,
    /// So long from when it is accepted.
    For(Duration),
    /// Until then.
    Until(Wall),
}

impl Work {
    /// Work of this kind, which is a label: from a bounded set. What it needs is in its body.
    pub fn new(kind: impl Into<Name>, body: impl Into<Bytes>) -> Self {
        Self {
            kind: kind.into(),
            body: body.into(),
            life: Life::Unsaid,
            policy: Policy::default(),
            owner: None,
            key: None,
            id: None,
            principal: None,
            content_type: None,
            fields: Vec::new(),
        }
    }

    /// It is of use for this long from when it is accepted: the business's own figure, never what its caller has left.
    pub const fn expires_in(mut self, life: Duration) -> Self {
        self.life = Life::For(life);
        self
    }

    /// It is of use until then.
    pub fn expires_at(mut self, at: SystemTime) -> Self {
        self.life = Life::Until(at.into());
        self
    }

    /// It is of use whenever it is done.
    pub const fn never_expires(mut self) -> Self {
        self.life = Life::Endless;
        self
    }

    /// Expired it is of no use to anybody: counted, and gone.
    pub const fn discard(mut self) -> Self {
        self.policy = Policy::Discard;
        self
    }

    /// Expired it goes where somebody looks at it. What is said of no other, too.
    pub const fn dead_letter(mut self) -> Self {
        self.policy = Policy::DeadLetter;
        self
    }

    /// Expired it is done all the same, late, and `owner` answers for it: an address that somebody reads.
    pub fn must_complete(mut self, owner: impl Into<Arc<str>>) -> Self {
        self.policy = Policy::MustComplete;
        self.owner = Some(owner.into());
        self
    }

    /// Who answers for it.
    pub fn owner(mut self, owner: impl Into<Arc<str>>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// The key under which it has one effect, however often it is delivered: the same for each attempt to have it accepted.
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// For whom it is: an account or a tenant, never a credential, since it is stored and listed. It is part of its key's scope.
    pub fn principal(mut self, principal: impl Into<Arc<str>>) -> Self {
        self.principal = Some(principal.into());
        self
    }

    /// For this caller, whoever was said before, and under this key unless one was said.
    #[cfg(feature = "http")]
    pub(crate) fn for_caller(mut self, principal: Arc<str>, key: impl FnOnce(&Name) -> Option<Key>) -> Self {
        self.key = self.key.or_else(|| key(&self.kind));
        self.principal = Some(principal);
        self
    }

    /// Its message's id, the same for each attempt to have it accepted; random unless said.
    pub fn id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// What its body is.
    pub fn content_type(mut self, content_type: impl Into<Arc<str>>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// A further header field. One that carries a live deadline is refused when it is accepted.
    pub fn field(mut self, name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// The message, first put into a queue at `now` by a clock that may be wrong by `ours`.
    pub(crate) fn into_message(self, source: &Name, now: Wall, ours: Duration) -> Message {
        let expires = match self.life {
            Life::Unsaid | Life::Endless => Expires::Never,
            Life::For(life) => Expires::At(now + life),
            Life::Until(at) => Expires::At(at),
        };
        let id = self.id.unwrap_or_else(random_id);
        let mut message = Message::with_id(id, self.kind, source.clone(), self.body);
        message.stamp = Stamp {
            expires,
            policy: self.policy,
            owner: self.owner,
            first_enqueued: Some(now),
            key: self.key,
            uncertainty: ours,
            redrives: 0,
        };
        message.principal = self.principal;
        message.content_type = self.content_type;
        message.fields = self.fields;
        message
    }
}
