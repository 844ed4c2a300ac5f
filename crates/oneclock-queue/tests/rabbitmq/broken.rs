//! A connection that breaks under a delivery.

use oneclock_queue::rabbitmq::QueueKind;
use oneclock_queue::{Broker as _, Delivery as _, Lane, NotSettled, Settle};

use crate::support::{Own, Relay, address, dead, eventually, ms, order, port, soon};

async fn behind(relay: &Relay, what: &str, kind: QueueKind) -> Own {
    Own::at(&relay.address(), &address(), what, |builder| builder.kind(kind)).await
}

async fn a_broken_connection(kind: QueueKind, lost: u32) {
    let relay = Relay::to(port()).await;
    let own = behind(&relay, "broken", kind).await;
    soon(own.queue.publish(&order("x"))).await.unwrap();
    for before in 0..lost {
        let delivery = own.one(Lane::Main).await;
        assert!(delivery.renew().await.is_ok());
        assert_eq!(delivery.may_have_run(), before > 0);
        relay.cut();
        eventually("it is noticed", || async { delivery.renew().await.is_err() }).await;
        for settle in [Settle::Gone, Settle::Again { after: ms(0), counted: true }, Settle::Late, Settle::Dead(dead())]
        {
            assert!(matches!(soon(delivery.settle(&settle)).await, Err(NotSettled::Lost)), "{settle:?}");
        }
        relay.mend();
    }
    let again = own.one(Lane::Main).await; // by itself
    assert_eq!(again.message().body, "x");
    assert!(again.may_have_run());
    assert_eq!(again.attempt(), if kind == QueueKind::Quorum { 1 + lost } else { 2 });
    soon(again.settle(&Settle::Again { after: ms(0), counted: true })).await.unwrap();
    let copy = own.one(Lane::Main).await;
    assert!(copy.may_have_run(), "an earlier delivery of it ended without a word");
    soon(copy.settle(&Settle::Gone)).await.unwrap();
    for ending in ["", ".late", ".dead", ".wait"] {
        assert!(own.raw(ending).await.is_none(), "nothing was moved by whoever had lost it: {ending:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_whose_connection_broke_is_delivered_again_and_settled_by_nobody_else() {
    a_broken_connection(QueueKind::Quorum, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_classic_queue_counts_all_lost_deliveries_once() {
    a_broken_connection(QueueKind::Classic, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_receives_after_the_broker_was_away() {
    let relay = Relay::to(port()).await;
    let own = behind(&relay, "away", QueueKind::Quorum).await;
    let other = soon(oneclock_queue::rabbitmq::RabbitMq::builder(address(), own.name.clone()).build()).await.unwrap();
    let waits = tokio::spawn({
        let queue = own.queue.clone();
        async move { queue.receive(Lane::Main, 5).await.map(|deliveries| deliveries.len()) }
    });
    tokio::task::yield_now().await;
    relay.cut();
    let refused = soon(own.queue.publish(&order("refused"))).await;
    relay.mend();
    soon(other.publish(&order("x"))).await.unwrap();
    assert!(soon(waits).await.unwrap().unwrap() >= 1);
    // What broke under it is not known to have been published; what cannot be sent at all was not.
    assert!(refused.is_err());
    soon(own.queue.publish(&order("y"))).await.unwrap();
}

#[tokio::test]
async fn dropped_without_a_word_it_comes_again_at_once() {
    let own = Own::new("dropped").await;
    soon(own.queue.publish(&order("x"))).await.unwrap();
    drop(own.one(Lane::Main).await);
    let again = own.one(Lane::Main).await;
    assert_eq!((again.attempt(), again.may_have_run()), (2, true));
    soon(again.settle(&Settle::Gone)).await.unwrap();
    soon(again.settle(&Settle::Gone)).await.unwrap(); // said already
    drop(again);
    assert!(own.raw("").await.is_none());
}

#[tokio::test]
async fn a_receive_that_is_dropped_takes_nothing() {
    let own = Own::with("cancel", |builder| builder.prefetch(4)).await;
    for n in 0..20 {
        let waits = own.queue.receive(Lane::Main, 3);
        assert!(tokio::time::timeout(ms(n % 4), waits).await.is_err());
    }
    for n in 0..20 {
        soon(own.queue.publish(&order(&n.to_string()))).await.unwrap();
    }
    let mut received = Vec::new();
    while received.len() < 20 {
        let _ = tokio::time::timeout(ms(0), own.queue.receive(Lane::Main, 3)).await;
        for delivery in soon(own.queue.receive(Lane::Main, 3)).await.unwrap() {
            received.push(String::from_utf8(delivery.message().body.to_vec()).unwrap());
            soon(delivery.settle(&Settle::Gone)).await.unwrap();
        }
    }
    received.sort_by_key(|body| body.parse::<u32>().unwrap());
    received.dedup();
    assert_eq!(received.len(), 20);
}

#[tokio::test]
async fn no_more_is_delivered_than_may_be_under_way() {
    let own = Own::with("prefetch", |builder| builder.prefetch(2)).await;
    for _ in 0..5 {
        soon(own.queue.publish(&order("x"))).await.unwrap();
    }
    let mut held = vec![own.one(Lane::Main).await, own.one(Lane::Main).await];
    assert!(tokio::time::timeout(ms(100), own.queue.receive(Lane::Main, 5)).await.is_err());
    soon(held.remove(0).settle(&Settle::Gone)).await.unwrap();
    assert_eq!(soon(own.queue.receive(Lane::Main, 5)).await.unwrap().len(), 1);
}
