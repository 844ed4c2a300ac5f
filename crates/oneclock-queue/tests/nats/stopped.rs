//! A consumer that is stopped while more is on its way than it has begun.

use oneclock_queue::Lane;

use super::support::{Queue, secs};
use crate::stopping;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_had_begun_when_a_consumer_stopped_comes_again_as_it_came() {
    let queue = Queue::open("stopped", |queue| queue.lease(secs(5))).await;
    let again = async || queue.again(|queue| queue.lease(secs(5))).await;
    stopping::what_nobody_had_begun_comes_again_as_it_came(again().await, again().await).await;
    assert!(queue.stored("dead").await.is_empty());
}

#[tokio::test]
async fn what_was_asked_for_is_returned_to_whoever_stops() {
    let queue = Queue::open("asked", |queue| queue.lease(secs(5))).await;
    // Somebody asked for it and left: it is on its way.
    let asked =
        tokio::time::timeout(super::support::ms(0), oneclock_queue::Broker::receive(&queue.nats, Lane::Main, 50));
    drop(asked.await);
    stopping::what_was_sent_ahead_is_returned_to_whoever_stops(queue.nats.clone()).await;
}
