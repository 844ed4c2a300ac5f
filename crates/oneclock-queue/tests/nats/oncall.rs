//! What people on call do with a queue on a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oneclock::{Shutdown, clock};
use oneclock_core::expiry::{Expires, Policy, Stamp};
use oneclock_queue::oncall::{DropDead, Ended, Redrive, drop_dead, expire, redrive, would_drop};
use oneclock_queue::{Broker as _, Consumer, Dead, Delivery as _, Job, Lane, Message, Settle, Uncertainty};

use super::support::{Queue, Server, ms, secs, within};

fn certain() -> Uncertainty {
    Uncertainty::assumed(ms(20))
}

async fn publish(queue: &Queue, id: &str, policy: Policy, left: u64) {
    let mut message = Message::new("charge", "shop", "order 7");
    message.id = id.into();
    let expires = Expires::At(clock::wall() + ms(left));
    message.stamp = Stamp { expires, policy, owner: Some("payments".into()), ..Stamp::default() };
    within(queue.nats.publish(&message)).await.unwrap();
}

async fn bury(queue: &Queue, ids: &[&str], why: oneclock_core::expiry::Why) {
    for id in ids {
        publish(queue, id, Policy::DeadLetter, 600_000).await;
    }
    for _ in ids {
        let dead = Dead { why, detail: None, at: clock::wall(), attempts: 1 };
        within(queue.one(Lane::Main).await.settle(&Settle::Dead(dead))).await.unwrap();
    }
}

/// Nothing comes from an empty lane, and nothing from a server that is away.
#[tokio::test]
async fn a_server_that_does_not_answer_is_no_empty_lane() {
    let server = Server::start();
    let queue = Queue::open_at(&server.address(), "silent", |queue| queue).await;
    let all = Redrive { at_most: 9, ..Redrive::default() };
    assert_eq!(within(redrive(&queue.nats, &certain(), &all, ms(50))).await.unwrap().len(), 0);
    assert_eq!(within(expire(&queue.nats, &certain(), 9, ms(50))).await.unwrap().len(), 0);
    server.stop();
    within(redrive(&queue.nats, &certain(), &all, ms(50))).await.unwrap_err();
    within(expire(&queue.nats, &certain(), 9, ms(50))).await.unwrap_err();
    server.go_on();
}

/// Work that may have been done is moved to the late lane, and not begun again there.
#[tokio::test]
async fn what_may_have_run_is_ended_and_not_run_again() {
    let queue = Queue::open("ran", |queue| queue.lease(secs(1))).await;
    publish(&queue, "owed", Policy::MustComplete, 1).await;
    drop(queue.one(Lane::Main).await); // its process died over it
    let late = within(async {
        loop {
            let ended = expire(&queue.nats, &certain(), 9, ms(200)).await.unwrap();
            if let Some((_, ended)) = ended.first() {
                return *ended;
            }
        }
    });
    assert_eq!(late.await, Ended::MovedLate);
    let (shutdown, ran) = (Shutdown::new(), Arc::new(AtomicU32::new(0)));
    let counts = Arc::clone(&ran);
    let consumer = Consumer::builder(queue.nats.clone()).build(move |_: Job| {
        counts.fetch_add(1, Ordering::Relaxed);
        async { Ok(()) }
    });
    let consumer = consumer.unwrap();
    let ends = async {
        while queue.stored("late").await.iter().chain(&queue.stored("main").await).next().is_some() {}
        shutdown.drain(secs(5)).await;
    };
    within(async { tokio::join!(consumer.run(&shutdown), ends) }).await;
    assert_eq!(ran.load(Ordering::Relaxed), 0, "it may have been done already");
    let dead = queue.stored("dead").await;
    assert_eq!(dead[0].0.get("deadline-dead-reason").map(|reason| reason.as_str()), Some("outcome_unknown"));
}

/// What stays is held under its lease, however long it takes, and everything that stood there is looked at once.
#[tokio::test]
async fn what_is_not_meant_stays_and_hides_nothing() {
    use oneclock_core::expiry::Why;
    let queue = Queue::open("stays", |queue| queue.lease(secs(1))).await;
    let others: Vec<String> = (0..70).map(|n| format!("other-{n}")).collect();
    bury(&queue, &others.iter().map(String::as_str).collect::<Vec<_>>(), Why::Rejected).await;
    bury(&queue, &["meant"], Why::AttemptsExhausted).await;
    let wanted = Redrive { because: Some(Why::AttemptsExhausted), at_most: 1_000, ..Redrive::default() };
    let told = within(redrive(&queue.nats, &certain(), &wanted, ms(100))).await.unwrap();
    assert_eq!(told.iter().map(|(message, back)| (&*message.id, back.is_ok())).collect::<Vec<_>>(), [("meant", true)]);
    assert_eq!(queue.stored("dead").await.len(), 70);

    let wanted = DropDead { ids: vec!["other-3".into()], reason: "a test order".into(), at_most: 1_000, because: None };
    let would = within(would_drop(&queue.nats, &wanted)).await.unwrap();
    assert_eq!((would.len(), queue.stored("dead").await.len()), (1, 70));
    let dropped = within(drop_dead(&queue.nats, &wanted, ms(100))).await.unwrap();
    assert_eq!((dropped.len(), queue.stored("dead").await.len()), (1, 69));
}
