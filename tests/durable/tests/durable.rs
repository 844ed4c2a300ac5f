//! Durable work over real brokers: each behaviour once, over every queue.
//!
//! The brokers of this machine are used where they run. Each test has queues of its own, with random names, and removes them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests: to panic is how a test fails

#[path = "durable/backlog.rs"]
mod backlog;
#[path = "durable/clocks.rs"]
mod clocks;
#[path = "durable/crashes.rs"]
mod crashes;
#[path = "durable/dump.rs"]
mod dump;
#[path = "durable/gate.rs"]
mod gate;
#[path = "durable/outbox.rs"]
mod outbox;
#[path = "../src/queues.rs"]
mod queues;
#[path = "durable/witness.rs"]
mod witness;

/// One test of a behaviour for every queue.
macro_rules! over_every_queue {
    ($($name:ident),* $(,)?) => {
        mod nats {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                let queue = crate::queues::nats().await;
                super::$name(queue.broker.clone()).await;
                queue.remove().await;
            })*
        }
        mod rabbitmq {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                let queue = crate::queues::rabbitmq().await;
                super::$name(queue.broker.clone()).await;
                queue.remove().await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                let queue = crate::queues::postgres().await;
                super::$name(queue.broker.clone()).await;
                queue.remove().await;
            })*
        }
    };
}
pub(crate) use over_every_queue;
