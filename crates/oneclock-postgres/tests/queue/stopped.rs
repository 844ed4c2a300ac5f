//! A consumer that is stopped while more is leased than it has begun.

use crate::shop::queue;
use crate::stopping;
use crate::support::{Database, ms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_had_begun_comes_again_as_it_came() {
    let database = Database::new().await;
    let first = queue(&database, |queue| queue.poll(ms(50))).await;
    let second = queue(&database, |queue| queue.poll(ms(50))).await;
    Box::pin(stopping::what_nobody_had_begun_comes_again_as_it_came(first, second)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_taken_is_returned_to_whoever_stops() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.poll(ms(50))).await;
    Box::pin(stopping::what_was_sent_ahead_is_returned_to_whoever_stops(jobs)).await;
}
