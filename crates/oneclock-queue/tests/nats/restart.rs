//! The server dies and comes back.

use oneclock_core::Outcome;
use oneclock_queue::{Broker as _, Delivery as _, Lane, Message, NotSettled, Settle};

use super::support::{Queue, Server, ms, one_of, secs, within};

#[tokio::test]
async fn whoever_waits_for_a_message_gets_it_from_the_server_that_came_back() {
    let mut server = Server::start();
    let queue = Queue::open_at(&server.address(), "restart", |queue| queue.lease(secs(2))).await;
    let kept = queue.publish("before").await;
    let first = queue.one(Lane::Main).await;
    within(first.settle(&Settle::Again { after: secs(2), counted: true })).await.unwrap();

    let nats = queue.nats.clone();
    let waits = tokio::spawn(async move { one_of_many(&nats).await });
    tokio::time::sleep(ms(100)).await; // so that it waits
    server.end();
    server.restart();
    let got = within(waits).await.unwrap();
    assert_eq!((&got.message().id, got.attempt()), (&kept.id, 2), "what waited is still waiting, and still counted");
    within(async { while got.settle(&Settle::Gone).await.is_err() {} }).await;
    assert_eq!(queue.stored("main").await, []);
}

/// Errors while the server is away are no end of asking.
async fn one_of_many(nats: &oneclock_queue::nats::Nats) -> oneclock_queue::nats::NatsDelivery {
    loop {
        if let Ok(mut got) = nats.receive(Lane::Main, 1).await {
            return got.remove(0);
        }
    }
}

/// What the client keeps while its connection is gone, it says when it is back: too late.
#[tokio::test]
async fn nothing_is_said_to_a_server_that_is_away() {
    let mut server = Server::start();
    let queue = Queue::open_at(&server.address(), "away", |queue| queue.lease(secs(1))).await;
    queue.publish("order 7").await;
    let got = queue.one(Lane::Main).await;
    server.end();
    let message = Message::new("confirm-order", "order-service", "order 8");
    let outcome = async || queue.nats.publish(&message).await.map_err(|error| error.outcome);
    within(async { while outcome().await != Err(Outcome::NotSent) {} }).await;
    assert!(matches!(got.settle(&Settle::Gone).await, Err(NotSettled::Failed(_))));
    assert!(matches!(got.renew().await, Err(NotSettled::Failed(_))));
    server.restart();
    let again = within(async {
        loop {
            if let Ok(mut got) = queue.nats.receive(Lane::Main, 8).await {
                return got.remove(0);
            }
        }
    })
    .await;
    assert_eq!(&*again.message().body, b"order 7", "its acknowledgement was not said later");
    assert_eq!(queue.stored("main").await.len(), 1, "nor was the other message");
    assert_eq!(one_of(&queue.nats, Lane::Main).await.message().id, again.message().id, "its lease is over again");
}
