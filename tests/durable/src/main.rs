//! A consumer as a process of its own, which the tests of durable work kill in the middle.
//!
//! Decides where it dies: at one step of the first delivery that comes that far, by abort, as a killed process does: nothing of it
//! runs any more, and nobody is told. Its handler writes one effect for each piece of work, without looking whether there is one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests: to panic is how a test fails

mod dying;
#[allow(dead_code, reason = "the tests use the rest")]
mod queues;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use oneclock::Shutdown;
use oneclock::events::{Event, Observer};
use oneclock_core::idempotency::Key;
use oneclock_postgres::{IdempotencyStore, Pool};
use oneclock_queue::{Broker, Consumer, Job, JobError, Producer, Uncertainty, Work};

use dying::{DyingBroker, DyingStore, Step};

/// A consumer that dies.
#[derive(Debug, Parser)]
struct Arguments {
    /// Which broker.
    #[arg(long)]
    broker: Which,

    /// The queue's name.
    #[arg(long)]
    queue: String,

    /// The database of effects and records.
    #[arg(long)]
    database: String,

    /// Where it dies; it works until it is killed unless it is said.
    #[arg(long)]
    dies: Option<Step>,

    /// By how many milliseconds its clock is assumed to be wrong; what the machine says and the broker's clock proves unless given.
    #[arg(long)]
    uncertainty: Option<u64>,

    /// It puts so many pieces of work into the queue, and consumes nothing.
    #[arg(long)]
    produces: Option<u64>,

    /// How many milliseconds each piece of work takes before its effect.
    #[arg(long, default_value_t = 0)]
    slow: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    Nats,
    Rabbitmq,
    Postgres,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let pool = Pool::builder(arguments.database.clone()).size(16).build().unwrap_or_else(|error| panic!("{error}"));
    match arguments.broker {
        Which::Nats => work(queues::nats_named(&arguments.queue).await, &arguments, pool).await,
        Which::Rabbitmq => work(queues::rabbitmq_named(&arguments.queue).await, &arguments, pool).await,
        Which::Postgres => work(queues::postgres_named(&arguments.queue, pool.clone()).await, &arguments, pool).await,
    }
    ExitCode::SUCCESS
}

/// Says on its output what became of each delivery.
struct Says;

impl Observer for Says {
    fn on(&self, event: &Event<'_>) {
        if let Event::Delivered(delivered) = event {
            println!("{} {}", delivered.id, delivered.end);
        }
    }
}

/// Lives of ten to fourteen seconds, some to be discarded and some for somebody to look at. Says each as it is accepted.
async fn produce<B: Broker>(broker: B, uncertainty: &Uncertainty, pieces: u64) {
    uncertainty.measure(&broker, Duration::from_secs(5)).await;
    let producer = Producer::new("shop", broker).uncertainty(uncertainty.clone());
    for n in 0..pieces {
        let life = 10_000 + n * 7919 % 4_000;
        let key = Key::new(&format!("n{n}")).unwrap_or_else(|error| panic!("{error}"));
        let work = Work::new("charge", "7").id(format!("n{n}")).key(key).expires_in(Duration::from_millis(life));
        let work = if n % 2 == 0 { work.discard() } else { work.dead_letter() };
        producer.accept(work).await.unwrap_or_else(|error| panic!("{error}"));
        println!("n{n} {life}");
    }
}

async fn work<B: Broker>(broker: B, arguments: &Arguments, pool: Pool) {
    let uncertainty = match arguments.uncertainty {
        Some(millis) => Uncertainty::assumed(Duration::from_millis(millis)),
        None => Uncertainty::of_this_machine(),
    };
    if let Some(pieces) = arguments.produces {
        return produce(broker, &uncertainty, pieces).await;
    }
    let store = IdempotencyStore::builder(pool.clone()).build().unwrap_or_else(|error| panic!("{error}"));
    store.create().await.unwrap_or_else(|error| panic!("{error}"));
    let (dies, slow) = (arguments.dies, Duration::from_millis(arguments.slow));
    let handler = move |job: Job| {
        let pool = pool.clone();
        async move {
            tokio::time::sleep(slow).await;
            job.before_effect()?;
            Step::BeforeEffect.reached(dies);
            let key = job.key().map(|key| key.as_str().to_owned()).ok_or_else(|| JobError::rejected("no key"))?;
            let pid = i32::try_from(std::process::id()).unwrap_or_default();
            pool.execute("effect", "INSERT INTO effects (key, by_pid) VALUES ($1, $2)", &[&key, &pid]).await?;
            Step::AfterEffect.reached(dies);
            Ok(())
        }
    };
    let consumer = Consumer::builder(DyingBroker(broker, dies))
        .uncertainty(uncertainty)
        .observed_by(Arc::new(Says))
        .limit(Duration::from_secs(2))
        .places(1)
        .once(DyingStore(store, dies), Duration::from_secs(7 * 86_400))
        .build(handler)
        .unwrap_or_else(|error| panic!("{error}"));
    consumer.run(&Shutdown::new()).await; // until somebody kills it
}
