//! What is given back, moved and redriven, twice, says the same of its end in every header that it came with (contract Q1).

use std::time::Duration;

use oneclock::clock;
use oneclock_core::expiry::{Why, redrive};
use oneclock_core::idempotency::Key;
use oneclock_queue::{Broker, Dead, Delivery, Inspect, Lane, Message, Producer, Settle, Uncertainty, Work};

use crate::over_every_queue;
use crate::witness::OURS;

const WITHIN: Duration = Duration::from_secs(20);

async fn one<B: Broker>(broker: &B, lane: Lane) -> B::Delivery {
    let taken = tokio::time::timeout(WITHIN, broker.receive(lane, 1)).await;
    taken.unwrap_or_else(|_| panic!("nothing came in the {lane} lane")).unwrap().remove(0)
}

async fn the_expiry_is_the_same_wherever_the_message_goes<B: Inspect>(broker: B) {
    let producer = Producer::new("shop", broker.clone()).uncertainty(Uncertainty::assumed(OURS));
    let work = Work::new("charge", "order 7")
        .expires_in(Duration::from_secs(3_600))
        .must_complete("payments")
        .principal("customer 3")
        .key(Key::new("order 7, \"charge\"").unwrap())
        .field("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    producer.accept(work).await.unwrap();
    let first = one(&broker, Lane::Main).await;
    let original = first.message().clone();
    assert!(original.faults.is_empty(), "{:?}", original.faults);
    first.settle(&Settle::Again { after: Duration::from_millis(20), counted: true }).await.unwrap();

    let again = one(&broker, Lane::Main).await;
    same(&original, again.message(), 0);
    assert_eq!(again.attempt(), 2);
    again.settle(&Settle::Late).await.unwrap();

    for redrives in 1..=2 {
        let lane = if redrives == 1 { Lane::Late } else { Lane::Main };
        let delivered = one(&broker, lane).await;
        same(&original, delivered.message(), redrives - 1);
        let dead =
            Dead { why: Why::AttemptsExhausted, detail: Some("no answer".into()), at: clock::wall(), attempts: 2 };
        delivered.settle(&Settle::Dead(dead)).await.unwrap();

        let letter = one(&broker, Lane::Dead).await;
        same(&original, letter.message(), redrives - 1);
        assert!(
            letter
                .message()
                .fields
                .iter()
                .any(|(name, value)| &**name == "deadline-dead-reason" && &**value == "attempts_exhausted")
        );
        let stamp =
            redrive(&letter.message().stamp, Some(Why::AttemptsExhausted), None, false, clock::wall(), OURS).unwrap();
        letter.settle(&Settle::Redrive(stamp)).await.unwrap();
    }
    let last = one(&broker, Lane::Main).await;
    same(&original, last.message(), 2);
    assert_eq!(last.attempt(), 1, "as if it had never been delivered");
    assert!(
        last.message().fields.iter().all(|(name, _)| !name.starts_with("deadline-dead-")),
        "{:?}",
        last.message().fields
    );
    last.settle(&Settle::Gone).await.unwrap();
    for lane in Lane::ALL {
        let depth = broker.depth(lane).await.unwrap();
        assert_eq!(depth.waiting, Some(0), "{lane}: {depth:?}");
    }
}

/// Fields of a dead letter, and what RabbitMQ adds of where a message has been.
fn is_the_brokers(name: &str) -> bool {
    name.starts_with("deadline-") || name.starts_with("x-first-death-") || name == "x-death"
}

/// Everything but the number of redrives and the reasons of a dead letter.
fn same(original: &Message, now: &Message, redrives: u32) {
    let mut want = original.stamp.clone();
    want.redrives = redrives;
    assert_eq!(now.stamp, want);
    assert_eq!(
        (&now.id, &now.kind, &now.source, &now.principal),
        (&original.id, &original.kind, &original.source, &original.principal)
    );
    assert_eq!(now.body, original.body);
    let plain = |message: &Message| {
        let mut fields: Vec<_> = message.fields.iter().filter(|(name, _)| !is_the_brokers(name)).cloned().collect();
        fields.sort();
        fields
    };
    assert_eq!(plain(now), plain(original));
}

over_every_queue!(the_expiry_is_the_same_wherever_the_message_goes);
