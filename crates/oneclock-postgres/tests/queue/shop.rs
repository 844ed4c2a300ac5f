//! Queues, messages and rows for the tests.

use std::sync::Arc;
use std::time::Duration;

use oneclock::clock;
use oneclock_core::expiry::{Expires, Policy, Stamp, Why};
use oneclock_postgres::{PgDelivery, PgQueue, PgQueueBuilder, Pool};
use oneclock_queue::{Broker as _, Dead, Delivery as _, Lane, Message, Settle};

use crate::support::{BOUND, Database, ms, until};

/// A queue, with its tables.
pub(crate) async fn queue(database: &Database, of: impl FnOnce(PgQueueBuilder) -> PgQueueBuilder) -> PgQueue {
    let pool = Pool::configured(database.config()).build().unwrap();
    PgQueue::builder("jobs", pool.clone()).within(BOUND).lease(BOUND * 3).build().unwrap().create().await.unwrap();
    of(PgQueue::builder("jobs", pool)).build().unwrap()
}

/// Short leases.
pub(crate) fn short(queue: PgQueueBuilder) -> PgQueueBuilder {
    queue.within(ms(500)).lease(ms(1_500)).poll(ms(20))
}

pub(crate) fn message(n: usize) -> Message {
    let mut message = Message::new("job", "tests", format!("{n}"));
    message.id = format!("id-{n}").into();
    message
}

/// One that expires so long from now, or expired so long ago.
pub(crate) fn expiring(n: usize, policy: Policy, left: Duration, ago: Duration) -> Message {
    let mut message = message(n);
    let now = clock::wall();
    let at = oneclock_core::wire::Wall::from_nanos(
        now.as_nanos() + u64::try_from(left.as_nanos()).unwrap() - u64::try_from(ago.as_nanos()).unwrap(),
    );
    message.stamp = Stamp {
        expires: Expires::At(at),
        policy,
        owner: Some("somebody".into()),
        first_enqueued: Some(now),
        ..Stamp::default()
    };
    message
}

pub(crate) fn dead(why: Why) -> Settle {
    Settle::Dead(Dead { why, detail: Some("said so".to_owned()), at: clock::wall(), attempts: 3 })
}

pub(crate) fn again(after: Duration, counted: bool) -> Settle {
    Settle::Again { after, counted }
}

/// The next one of a lane.
pub(crate) async fn next(queue: &PgQueue, lane: Lane) -> PgDelivery {
    let received = tokio::time::timeout(BOUND, Box::pin(queue.receive(lane, 1))).await.expect("a job").unwrap();
    assert_eq!(received.len(), 1);
    received.into_iter().next().unwrap()
}

pub(crate) fn body(delivery: &PgDelivery) -> String {
    String::from_utf8(delivery.message().body.to_vec()).unwrap()
}

/// The values of a field that is none of the message's own.
pub(crate) fn field(message: &Message, name: &str) -> Vec<Arc<str>> {
    let named = message.fields.iter().filter(|(known, _)| &**known == name);
    named.map(|(_, value)| Arc::clone(value)).collect()
}

/// What is in a lane: rows.
pub(crate) async fn in_lane(queue: &PgQueue, lane: Lane) -> usize {
    queue.list(lane, 1_000_000).await.unwrap().len()
}

pub(crate) async fn until_in_lane(queue: &PgQueue, lane: Lane, many: usize) {
    until("the jobs of the lane", async || in_lane(queue, lane).await == many).await;
}
