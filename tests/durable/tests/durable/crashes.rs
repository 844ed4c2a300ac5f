//! A consumer that is killed at each step of a delivery (contract M1 to M4, Q1): afterwards every key has had exactly one effect. What
//! nobody can know is not guessed: it waits where somebody looks at it, and the effects' own table is asked.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::expiry::{Why, redrive};
use oneclock_core::idempotency::Key;
use oneclock_idempotency::{Answer, Probed, Reconciler, Unresolved};
use oneclock_postgres::IdempotencyStore;
use oneclock_queue::{Broker, Delivery, Inspect, Lane, Producer, Settle, Uncertainty, Work};

use crate::queues::{self, Database, Queue};
use crate::witness::OURS;

const STEPS: [&str; 8] = [
    "before-claim",
    "after-claim",
    "before-effect",
    "after-effect",
    "before-record",
    "after-record",
    "before-settle",
    "after-settle",
];

/// A worker's process; killed when dropped.
struct Worker(Child);

impl Worker {
    fn start(kind: &str, queue: &str, database: &Database, dies: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_durable-worker"));
        command.args(["--broker", kind, "--queue", queue, "--database", database.url(), "--uncertainty", "100"]);
        command.args(dies.iter().flat_map(|step| ["--dies", step]));
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Waits until it has died by itself.
    async fn died(mut self, within: Duration) {
        let waiting = async {
            while self.0.try_wait().unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await; // its end is not ours to hear of
            }
        };
        assert!(tokio::time::timeout(within, waiting).await.is_ok(), "it did not come as far as where it dies");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn every_key_has_one_effect<B: Inspect>(kind: &str, queue: &Queue<B>) {
    let producer = Producer::new("shop", queue.broker.clone()).uncertainty(Uncertainty::assumed(OURS));
    for step in STEPS {
        let work =
            Work::new("charge", step).id(step).key(Key::new(step).unwrap()).expires_in(Duration::from_secs(3_600));
        producer.accept(work.must_complete("payments")).await.unwrap();
        // One after the other, so that it is this piece of work that it dies over: what an earlier one left may come first, and the
        // worker passes on to this one.
        Worker::start(kind, &queue.name, &queue.database, Some(step)).died(Duration::from_secs(60)).await;
    }
    let _last = Worker::start(kind, &queue.name, &queue.database, None);
    let store = IdempotencyStore::builder(queue.database.pool()).build().unwrap();
    let pool = queue.database.pool();
    let reconciler = Reconciler::builder(store)
        .probe(move |unresolved: Unresolved| {
            let pool = pool.clone();
            async move {
                let key = unresolved.scope.key.as_str().to_owned();
                let found = pool.query_one("probe", "SELECT count(*) FROM effects WHERE key = $1", &[&key]).await;
                match found.map(|row| row.get::<_, i64>(0)) {
                    Ok(0) => Probed::Absent, // its process is gone: it cannot happen any more
                    Ok(1) => Probed::Applied(Answer::new(http::StatusCode::OK, "")),
                    _ => Probed::StillUnknown,
                }
            }
        })
        .build();
    let settled = async {
        loop {
            let _ = reconciler.pass().await.unwrap();
            redrive_what_is_known(&queue.broker).await;
            let mut left = 0;
            for lane in Lane::ALL {
                let depth = queue.broker.depth(lane).await.unwrap();
                left += depth.waiting.unwrap() + depth.in_flight.unwrap_or_default();
            }
            if left == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(250)).await; // until leases are over
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(150), settled).await.is_ok(), "something is left");
    for step in STEPS {
        assert_eq!(queue.database.effects_of(step).await, 1, "{step}");
    }
}

/// Puts dead letters back whose record says what became of them: the person on call, after the reconciler.
async fn redrive_what_is_known<B: Broker>(broker: &B) {
    let received = tokio::time::timeout(Duration::from_millis(300), broker.receive(Lane::Dead, 10)).await;
    for letter in received.map(Result::unwrap).unwrap_or_default() {
        let stamp =
            redrive(&letter.message().stamp, Some(Why::OutcomeUnknown), None, true, clock::wall(), OURS).unwrap();
        letter.settle(&Settle::Redrive(stamp)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats() {
    let queue = queues::nats().await;
    every_key_has_one_effect("nats", &queue).await;
    queue.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq() {
    let queue = queues::rabbitmq().await;
    every_key_has_one_effect("rabbitmq", &queue).await;
    queue.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let queue = queues::postgres().await;
    every_key_has_one_effect("postgres", &queue).await;
    queue.remove().await;
}
