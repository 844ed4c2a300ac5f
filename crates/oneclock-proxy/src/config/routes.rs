//! What a configuration says of one route, once it is known to be right, and the same in the core's words.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use oneclock_core::admission::{Mode, Settings};
use oneclock_core::ingress::{Coverage, Limits};
use oneclock_core::retry::{NotAPolicy, RetryPolicy};
use oneclock_core::{Name, OnMalformed, Trust};

#[cfg(doc)]
use super::Config;
use super::Match;

/// Which requests, where they go, and what they may spend.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Route {
    /// What it is called in logs, metrics and errors. No two are called the same.
    pub name: Name,
    /// Which requests: those that any of these matches. At least one.
    pub matches: Vec<Match>,
    /// Where they go: a key of [`Config::upstreams`].
    pub upstream: Name,
    /// What a request gets that brings no deadline, and the most that an outsider gets.
    pub when_absent: Duration,
    /// The most that anybody gets. Never below `when_absent`.
    pub ceiling: Duration,
    /// With less left, a request is refused before it costs anything (contract C4).
    pub min_useful: Duration,
    /// What is kept back of a request's budget for the way home.
    pub reserve: Duration,
    /// The most that one attempt at the upstream may take; `None` is what is left. Never above `ceiling`.
    pub backend_request: Option<Duration>,
    /// [`Trust::Outside`] where the peers of every listener count as outsiders on this route; `None` leaves it to the
    /// listener. A path cannot make a caller one of ours, so [`Trust::Inside`] is here only where every listener is
    /// inside anyway.
    pub trust: Option<Trust>,
    /// What becomes of a request whose deadline cannot be read (contract P3).
    pub on_malformed: OnMalformed,
    /// What the budget covers (contract S2).
    pub kind: Coverage,
    /// Whether a failed attempt is followed by another. `None`: there is one.
    pub retry: Option<Retry>,
    /// How idempotency keys are kept to. `None`: they are passed on and mean nothing here.
    pub idempotency: Option<Idempotency>,
    /// How many requests are worked on at once.
    pub concurrency: Concurrency,
    /// How many wait for their turn at most. 1024 unless said otherwise; with 0 nobody waits.
    pub queue: usize,
    /// Whether what `concurrency` and `queue` decide is done. [`Mode::Enforce`] where either is written,
    /// [`Mode::Shadow`] where neither is: nobody is refused because of a number that nobody chose.
    pub mode: Mode,
}

/// Further attempts, as Gateway API counts them. Only for calls that may be repeated (contract R7): a POST is not,
/// unless the far side refused it before it began.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// The statuses after which there is another attempt; empty for those of [`RetryPolicy::new`].
    pub codes: Vec<u16>,
    /// How many attempts there are *after* the first: 1 to 9.
    pub attempts: u32,
    /// What is waited before the first of them: anything up to this, then up to twice as long, at most ten times as
    /// long.
    pub backoff: Duration,
}

/// How idempotency keys are kept to: a `POST` or a `PATCH` with one has its effect once (contract, section 10).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Idempotency {
    /// Where the records are kept.
    pub store: IdempotencyStore,
    /// Whose a key is (contract M8).
    pub principal: Principal,
    /// The most that one run may take, whoever waits for it (contract M10). Never below the route's ceiling.
    pub execution: Duration,
    /// How long a run may be silent before it counts as lost (contract M3). `None`: 5 s longer than it can take.
    pub lease: Option<Duration>,
    /// How long a record is kept after its last step (contract M9).
    pub retention: Duration,
    /// Whether a request of these methods without a key is refused.
    pub require: bool,
    /// The largest body of a request with a key, in bytes.
    pub max_request: usize,
    /// The largest body of an answer that is kept, in bytes.
    pub max_answer: usize,
    /// The header fields of an answer that are kept and given again, beside those that always are.
    pub replays: Vec<HeaderName>,
    /// The path under which callers ask what became of their operation.
    pub monitor: Option<String>,
}

/// Whose an idempotency key is. Two principals may use the same key and never see each other's answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Principal {
    /// All callers are one and the same.
    Everybody,
    /// Whoever sends this value in this header field. A hash of it is kept, and never the value, which may be a secret.
    Field(HeaderName),
}

/// A store of idempotency keys. Not opened when the configuration is read.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IdempotencyStore {
    /// A file, written as `sqlite:` and its path.
    Sqlite(PathBuf),
    /// A server.
    Postgres {
        /// As libpq spells a URL. May hold a password: printed without it.
        url: String,
        /// The roots that its certificate has to come from, with `sslmode=require`. `None`: those of the web.
        ca: Option<PathBuf>,
    },
}

/// How many requests are worked on at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concurrency {
    /// As many as the upstream turns out to serve.
    #[default]
    Adaptive,
    /// That many: at least 1.
    Fixed(u32),
}

pub(super) const QUEUE: usize = 1_024;
const EXECUTION: Duration = Duration::from_secs(10);
const RETENTION: Duration = Duration::from_secs(24 * 3_600);
const BODY: usize = 256 * 1_024;
pub(super) const BACKOFF: Duration = Duration::from_millis(25);

// === Route ===

impl Route {
    /// A route with defaults.
    pub fn new(name: Name, matches: Vec<Match>, upstream: Name) -> Self {
        let limits = Limits::new();
        Self {
            name,
            matches,
            upstream,
            when_absent: limits.when_absent_value(),
            ceiling: limits.ceiling_value(),
            min_useful: limits.min_useful_value(),
            reserve: Duration::ZERO,
            backend_request: None,
            trust: None,
            on_malformed: OnMalformed::Reject,
            kind: Coverage::Unary,
            retry: None,
            idempotency: None,
            concurrency: Concurrency::Adaptive,
            queue: QUEUE,
            mode: Mode::Shadow,
        }
    }

    /// Its limits, for [`Policy`](oneclock_core::Policy) or for deciding directly.
    pub fn limits(&self) -> Limits {
        let limits = Limits::new()
            .when_absent(self.when_absent)
            .ceiling(self.ceiling)
            .min_useful(self.min_useful)
            .on_malformed(self.on_malformed);
        match self.kind {
            Coverage::Unary => limits,
            Coverage::Streaming { idle, total } => limits.streaming(idle, total),
        }
    }

    /// Its rules of admission. `cores` is the least that are worked on at once where the number is to be found.
    pub fn admission(&self, cores: u32) -> Settings {
        let settings = match self.concurrency {
            Concurrency::Adaptive => Settings::adaptive(cores),
            Concurrency::Fixed(places) => Settings::fixed(places),
        };
        settings.queue(self.queue).mode(self.mode)
    }

    /// Its further attempts, for a destination; `None` where there are none.
    ///
    /// # Errors
    /// [`NotAPolicy`] where the fields were changed to what contradicts itself; never for what was read from a file.
    pub fn retry_policy(&self) -> Result<Option<RetryPolicy>, NotAPolicy> {
        self.retry.as_ref().map(|retry| retry.policy(self.backend_request)).transpose()
    }
}

// === Idempotency ===

impl Idempotency {
    /// With defaults, on a route with this ceiling.
    pub fn new(store: IdempotencyStore, principal: Principal, ceiling: Duration) -> Self {
        Self {
            store,
            principal,
            execution: EXECUTION.max(ceiling),
            lease: None,
            retention: RETENTION,
            require: false,
            max_request: BODY,
            max_answer: BODY,
            replays: Vec::new(),
            monitor: None,
        }
    }
}

// === Retry ===

impl Retry {
    /// The same as the core says it, where the first attempt is counted, too.
    pub(super) fn policy(&self, per_try: Option<Duration>) -> Result<RetryPolicy, NotAPolicy> {
        let mut policy = RetryPolicy::new()
            .attempts(self.attempts.saturating_add(1))
            .backoff(self.backoff, self.backoff.saturating_mul(10));
        if !self.codes.is_empty() {
            policy = policy.statuses(self.codes.iter().copied());
        }
        if let Some(limit) = per_try {
            policy = policy.per_try(limit);
        }
        policy.build()
    }
}
