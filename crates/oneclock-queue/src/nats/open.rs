//! What stands of a queue when it is opened, and what is made of it.
//!
//! Decides that whoever opens a queue first says its lease and how many deliveries may be under way, and that nobody who opens it
//! later changes that for all by accident: a lease that others count by is not shortened behind their backs.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{self, AckPolicy, DeliverPolicy, FromConsumer as _};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::stream::ConsumerErrorKind;
use consumer::pull::Config;

use super::error::{BadNats, Setting};
use super::names::Subjects;
use super::wires::Line;

/// What opening a queue does, and what it is open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// What is missing is made.
    Makes,
    /// It is made, and what stands is changed to what is said here.
    Changes,
    /// What there is is used as it is.
    Finds,
    /// It is looked at, and nothing else.
    Looks,
    /// Messages go in, and the server is asked nothing.
    Publishes,
}

/// The consumers of a queue's lanes, as they are asked for.
pub(super) struct Consumers<'a> {
    pub(super) context: &'a Context,
    pub(super) queue: &'a str,
    pub(super) stream: &'a str,
    pub(super) subjects: &'a Subjects,
    pub(super) lease: Option<Duration>,
    pub(super) at_once: Option<i64>,
    pub(super) opening: Opening,
}

/// One of them.
struct Wanted<'a> {
    name: String,
    subject: &'a str,
    is_bounded: bool,
}

/// How long one delivery is somebody's unless it is renewed, and how many may be under way in all processes together.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const DEFAULT_AT_ONCE: i64 = 10_000;
/// As many wait as there are.
const UNLIMITED: i64 = -1;

// === Opening ===

impl Opening {
    pub(super) const fn makes(self) -> bool {
        matches!(self, Self::Makes | Self::Changes)
    }

    pub(super) const fn receives(self) -> bool {
        matches!(self, Self::Makes | Self::Changes | Self::Finds)
    }

    pub(super) const fn publishes(self) -> bool {
        !matches!(self, Self::Looks)
    }
}

// === Consumers ===

impl Consumers<'_> {
    /// Those of main, late, dead and wait.
    pub(super) async fn open(&self) -> Result<[Line; 4], BadNats> {
        let wanted = |lane: &str, subject, is_bounded| Wanted {
            name: format!("{}-{lane}", Subjects::without_dots(self.queue)),
            subject,
            is_bounded,
        };
        let subjects = self.subjects;
        let wanted = [
            wanted("main", &*subjects.main, true),
            wanted("late", &*subjects.late, true),
            wanted("dead", &*subjects.dead, true),
            wanted("wait", &*subjects.wait, false),
        ];
        if self.opening == Opening::Publishes {
            return Ok(wanted.map(|one| Line::new(one.subject, one.name, DEFAULT_LEASE, false)));
        }
        // All of them before the first is made: who is refused leaves nothing behind.
        let mut standing = Vec::new();
        for one in &wanted {
            standing.push(self.find(one).await?);
        }
        // Who said nothing takes what stands, also for those that are missing.
        let stands = |of: fn(&consumer::Config) -> i64| {
            let bounded = standing.iter().zip(&wanted).filter(|(_, one)| one.is_bounded);
            bounded.filter_map(|(info, _)| info.as_ref().map(|info| of(&info.config))).next()
        };
        let lease = standing.iter().flatten().map(|info| info.config.ack_wait).next();
        let lease = self.lease.or(lease).unwrap_or(DEFAULT_LEASE);
        let at_once = self.at_once.or_else(|| stands(|config| config.max_ack_pending)).unwrap_or(DEFAULT_AT_ONCE);
        let mut lines = Vec::new();
        for (one, info) in wanted.iter().zip(standing) {
            let at_once = if one.is_bounded { at_once } else { UNLIMITED };
            let info = match info {
                Some(info) if self.opening == Opening::Changes => self.change(one, info, lease, at_once).await?,
                Some(info) => info,
                None => self.make(one, lease, at_once).await?,
            };
            lines.push(Line::new(one.subject, one.name.clone(), info.config.ack_wait, info.num_redelivered > 0));
        }
        lines.try_into().map_err(|_| self.failed(&wanted[0].name, "the server answered with others".into()))
    }

    /// What stands, and stands as it is asked for.
    async fn find(&self, one: &Wanted<'_>) -> Result<Option<consumer::Info>, BadNats> {
        let found = self.context.get_consumer_from_stream::<Config, _, _>(&one.name, self.stream).await;
        match found {
            Ok(found) => {
                let info = found.cached_info().clone();
                if self.opening.makes() {
                    self.check(one, &info.config)?;
                }
                Ok(Some(info))
            }
            Err(error) => match error.kind() {
                ConsumerErrorKind::JetStream(said)
                    if self.opening.makes() && said.error_code() == ErrorCode::CONSUMER_NOT_FOUND =>
                {
                    Ok(None)
                }
                _ => Err(self.failed(&one.name, error.into())),
            },
        }
    }

    fn check(&self, one: &Wanted<'_>, stands: &consumer::Config) -> Result<(), BadNats> {
        let differ = |stands, said| BadNats::Differs {
            stream: self.stream.to_owned(),
            consumer: one.name.clone(),
            stands,
            said,
        };
        if stands.filter_subject != one.subject {
            let (stands, said) = (stands.filter_subject.clone(), one.subject.to_owned());
            return Err(differ(Setting::Subject(stands), Setting::Subject(said)));
        }
        if self.opening == Opening::Changes {
            return Ok(());
        }
        if let Some(said) = self.lease.filter(|said| *said != stands.ack_wait) {
            return Err(differ(Setting::Lease(stands.ack_wait), Setting::Lease(said)));
        }
        let at_once = self.at_once.filter(|said| one.is_bounded && *said != stands.max_ack_pending);
        let at_once =
            at_once.map(|said| differ(Setting::MaxAckPending(stands.max_ack_pending), Setting::MaxAckPending(said)));
        at_once.map_or(Ok(()), Err)
    }

    /// Makes one that is missing. Who opens the queue at the same time may have made it meanwhile.
    async fn make(&self, one: &Wanted<'_>, lease: Duration, at_once: i64) -> Result<consumer::Info, BadNats> {
        let config = Config {
            durable_name: Some(one.name.clone()),
            name: Some(one.name.clone()),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            ack_wait: lease,
            max_deliver: UNLIMITED, // attempts are counted by whoever works
            max_ack_pending: at_once,
            filter_subject: one.subject.to_owned(),
            ..Config::default()
        };
        // Only servers of 2.10 and newer refuse one that is there and differs.
        match self.context.create_consumer_strict_on_stream(config, self.stream).await {
            Ok(made) => Ok(made.cached_info().clone()),
            Err(error) => match self.find(one).await? {
                Some(info) => Ok(info),
                None => Err(self.failed(&one.name, error.into())),
            },
        }
    }

    /// Changes one that stands, where it differs from what was said.
    async fn change(
        &self,
        one: &Wanted<'_>,
        info: consumer::Info,
        lease: Duration,
        at_once: i64,
    ) -> Result<consumer::Info, BadNats> {
        let lease = self.lease.map_or(info.config.ack_wait, |_| lease);
        let at_once = if one.is_bounded && self.at_once.is_some() { at_once } else { info.config.max_ack_pending };
        if (lease, at_once) == (info.config.ack_wait, info.config.max_ack_pending) {
            return Ok(info);
        }
        let config = Config::try_from_consumer_config(info.config);
        let config = config.map_err(|error| self.failed(&one.name, error))?;
        let config = Config { ack_wait: lease, max_ack_pending: at_once, ..config };
        let changed = self.context.create_consumer_on_stream(config, self.stream).await;
        changed.map(|changed| changed.cached_info().clone()).map_err(|error| self.failed(&one.name, error.into()))
    }

    fn failed(&self, consumer: &str, source: Box<dyn std::error::Error + Send + Sync>) -> BadNats {
        BadNats::Consumer { stream: self.stream.to_owned(), consumer: consumer.to_owned(), source }
    }
}
