//! JetStream: async-nats alone, and oneclock-queue over it.
//!
//! All publish and wait for the server's confirmation, and all acknowledge with one, into streams of the same settings.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use oneclock_bench::Failed;
use oneclock_queue::nats::Nats;
use oneclock_queue::nats::async_nats::jetstream::consumer::{PullConsumer, pull};
use oneclock_queue::nats::async_nats::jetstream::stream::{Config, RetentionPolicy};
use oneclock_queue::nats::async_nats::jetstream::{self, Context};
use oneclock_queue::nats::async_nats::{self, HeaderMap, HeaderName, HeaderValue};

use crate::side::{self, AT_ONCE, BODY, Pair, Rates, Side, rate};

pub(crate) struct OfNats {
    context: Context,
    name: String,
    consumer: PullConsumer,
    queue: Nats,
}

pub(crate) async fn pair() -> Result<OfNats, Failed> {
    let address = std::env::var("ONECLOCK_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    let context = jetstream::new(async_nats::connect(&address).await?);
    let name = format!("bench-{}", std::process::id());
    let config = Config {
        name: name.clone(),
        subjects: vec![format!("{name}-bare.main")],
        retention: RetentionPolicy::WorkQueue,
        ..Config::default()
    };
    let stream = context.create_stream(config).await?;
    let consumer =
        pull::Config { durable_name: Some("main".to_owned()), max_ack_pending: 10_000, ..pull::Config::default() };
    let consumer = stream.create_consumer(consumer).await?;
    let queue = Nats::builder(async_nats::connect(&address).await?, format!("{name}-ours")).build().await?;
    Ok(OfNats { context, name, consumer, queue })
}

impl OfNats {
    pub(crate) async fn remove(&self) -> Result<(), Failed> {
        self.context.delete_stream(&self.name).await?;
        self.context.delete_stream(self.queue.stream()).await?;
        Ok(())
    }

    async fn bare(&self, side: Side, messages: usize) -> Result<Rates, Failed> {
        let subject = format!("{}-bare.main", self.name);
        let dress = Dress::of(side)?;
        let published = rate(messages, async {
            let each = stream::iter(0..messages).map(|_| async {
                let (subject, body) = (subject.clone(), BODY[..].into());
                match &dress {
                    None => self.context.publish(subject, body).await?.await?,
                    Some(dress) => self.context.publish_with_headers(subject, dress.headers(), body).await?.await?,
                };
                Ok::<_, Failed>(())
            });
            each.buffer_unordered(AT_ONCE).try_collect::<()>().await
        });
        let published = published.await?;
        let settled = rate(messages, async {
            let mut left = messages;
            while left > 0 {
                let batch = self.consumer.fetch().max_messages(AT_ONCE.min(left)).messages().await?;
                let got: Vec<_> = batch.try_collect().await.map_err(|error| -> Failed { error })?;
                left -= got.len();
                futures_util::future::try_join_all(got.iter().map(jetstream::Message::double_ack)).await?;
            }
            Ok(())
        });
        Ok(Rates { published, settled: settled.await? })
    }
}

/// The fields that ours has, as whoever uses the bare client would write them.
struct Dress(Vec<(HeaderName, HeaderValue)>);

impl Dress {
    fn of(side: Side) -> Result<Option<Self>, Failed> {
        if side != Side::Dressed {
            return Ok(None);
        }
        let field = |(name, value): (String, String)| Ok((name.parse()?, value.parse()?));
        side::fields("ce-").0.into_iter().map(field).collect::<Result<_, Failed>>().map(|fields| Some(Self(fields)))
    }

    fn headers(&self) -> HeaderMap {
        let mut headers: HeaderMap = self.0.iter().cloned().collect();
        let id = side::id();
        headers.insert("ce-id", &*id);
        headers.insert("Nats-Msg-Id", &*id);
        headers
    }
}

impl Pair for OfNats {
    fn name(&self) -> &'static str {
        "nats"
    }

    async fn turn(&self, side: Side, messages: usize) -> Result<Rates, Failed> {
        match side {
            Side::Bare | Side::Dressed => self.bare(side, messages).await,
            Side::Ours => side::ours(&self.queue, messages).await,
        }
    }
}
