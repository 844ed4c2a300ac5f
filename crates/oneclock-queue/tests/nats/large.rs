//! Messages that are as large as the server takes: a copy of them says more, and does not fit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oneclock::{Shutdown, clock};
use oneclock_core::Effect;
use oneclock_core::expiry::{Expires, Policy, Stamp, Why};
use oneclock_queue::{Broker as _, Consumer, Dead, Delivery as _, Job, JobError, Lane, Message, NotSettled, Settle};

use super::support::{Queue, Server, secs, within};

const MOST: usize = 4_096;

async fn small() -> (Server, Queue) {
    let server = Server::configured(&format!("max_payload: {MOST}"));
    let queue = Queue::open_at(&server.address(), "large", |queue| queue.lease(secs(2))).await;
    (server, queue)
}

/// Publishes the largest message that the server takes.
async fn publish_the_largest(queue: &Queue) -> Message {
    let mut message = Message::new("confirm-order", "order-service", "");
    message.stamp =
        Stamp { expires: Expires::At(clock::wall() + secs(600)), policy: Policy::Discard, ..Stamp::default() };
    for size in (0..=MOST).rev() {
        message.body = vec![b'x'; size].into();
        if within(queue.nats.publish(&message)).await.is_ok() {
            assert!(size < MOST);
            return message;
        }
    }
    panic!("it takes none");
}

fn dead() -> Settle {
    let detail = Some("what its handler said, at length ".repeat(12));
    Settle::Dead(Dead { why: Why::AttemptsExhausted, detail, at: clock::wall(), attempts: 5 })
}

#[tokio::test]
async fn it_cannot_come_again_and_always_reaches_who_looks_at_it() {
    let (_server, queue) = small().await;
    let message = publish_the_largest(&queue).await;
    let got = queue.one(Lane::Main).await;
    let again = within(got.settle(&Settle::Again { after: secs(2), counted: true })).await;
    assert!(matches!(again, Err(NotSettled::TooLarge)), "{again:?}");
    within(got.settle(&dead())).await.unwrap();
    assert_eq!((queue.stored("main").await.len(), queue.stored("wait").await.len()), (0, 0));

    let dead = queue.one(Lane::Dead).await;
    let read = dead.message();
    assert_eq!((&read.id, &read.body, read.stamp.policy), (&message.id, &message.body, Policy::Discard));
    assert!(read.stamp.expires.at().is_some(), "what a rule reads is never left out");
    assert_eq!(read.field("deadline-dead-reason"), Some("attempts_exhausted"));
    assert_eq!(read.field("deadline-dead-detail"), None);
    within(dead.settle(&Settle::Redrive(Stamp { redrives: 1, ..read.stamp.clone() }))).await.unwrap();
    let back = queue.one(Lane::Main).await;
    assert_eq!((&back.message().id, back.message().stamp.redrives), (&message.id, 1));
}

/// One of a stranger, all body: there is no room for a word, and its lane says what it is.
#[tokio::test]
async fn one_that_has_no_field_reaches_who_looks_at_it() {
    let (_server, queue) = small().await;
    let body = vec![b'x'; MOST];
    let subject = format!("{}.main", queue.name);
    queue.context.publish(subject, body.clone().into()).await.unwrap().await.unwrap();
    let got = queue.one(Lane::Main).await;
    assert!(matches!(within(got.settle(&Settle::Late)).await, Err(NotSettled::TooLarge)));
    within(got.settle(&dead())).await.unwrap();
    assert_eq!(queue.one(Lane::Dead).await.message().body, body);
    assert_eq!(queue.stored("main").await, []);
}

/// Its handler did nothing and it may be tried again: but it cannot be copied, so it ends, and is counted.
#[tokio::test]
async fn its_work_fails_once_and_has_its_end() {
    let (_server, queue) = small().await;
    publish_the_largest(&queue).await;
    let (shutdown, tried) = (Shutdown::new(), Arc::new(AtomicU32::new(0)));
    let counts = Arc::clone(&tried);
    let consumer = Consumer::builder(queue.nats.clone()).effect(Effect::Idempotent).build(move |_: Job| {
        counts.fetch_add(1, Ordering::Relaxed);
        async { Err(JobError::failed("the mail server is away", oneclock_core::Outcome::NotSent)) }
    });
    let consumer = consumer.unwrap();
    let ends = async {
        while queue.stored("dead").await.is_empty() {}
        shutdown.drain(secs(5)).await;
    };
    within(async { tokio::join!(consumer.run(&shutdown), ends) }).await;
    assert_eq!(tried.load(Ordering::Relaxed), 1);
    let stored = queue.stored("dead").await;
    let reason = stored[0].0.get("deadline-dead-reason").map(|reason| reason.as_str());
    assert_eq!((stored.len(), reason), (1, Some("attempts_exhausted")));
}
