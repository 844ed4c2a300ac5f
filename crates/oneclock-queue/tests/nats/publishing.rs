//! Publishing: once under one id, and what is known when it fails.

use std::time::Duration;

use oneclock::clock;
use oneclock_core::Outcome;
use oneclock_core::expiry::{Expires, Policy};
use oneclock_queue::nats::async_nats::jetstream::context::ContextBuilder;
use oneclock_queue::nats::{BadNats, Nats};
use oneclock_queue::{Broker as _, Lane, Message, Producer, Work};

use super::support::{Queue, Server, connect, ms, name, secs, within};

fn message() -> Message {
    Message::new("confirm-order", "order-service", "order 7")
}

#[tokio::test]
async fn what_is_published_twice_is_there_once_and_a_redrive_is_there_again() {
    let queue = Queue::open("dedupe", |queue| queue).await;
    let mut message = message();
    for _ in 0..2 {
        within(queue.nats.publish(&message)).await.unwrap();
    }
    assert_eq!(queue.stored("main").await.len(), 1);
    message.stamp.redrives = 1;
    within(queue.nats.publish(&message)).await.unwrap();
    assert_eq!(queue.stored("main").await.len(), 2, "a redrive within two minutes was taken for a duplicate");
}

#[tokio::test]
async fn a_field_that_nats_cannot_carry_is_an_error_and_no_injection() {
    let queue = Queue::open("injection", |queue| queue).await;
    for (field, value) in [("x-a", "1\r\ndeadline-policy: discard"), ("x a", "1"), ("x:a", "1")] {
        let mut message = message();
        message.fields.push((field.into(), value.into()));
        let error = within(queue.nats.publish(&message)).await.unwrap_err();
        assert_eq!(error.outcome, Outcome::Failed, "it would be so the next time");
        assert!(std::error::Error::source(&error).unwrap().to_string().contains(field), "{error:?}");
    }
    assert_eq!(queue.stored("main").await, []);
}

/// Whoever accepts work is told that trying again is of no use.
#[tokio::test]
async fn work_that_can_never_be_published_is_refused_for_good() {
    let queue = Queue::open("never", |queue| queue).await;
    let producer = Producer::new("order-service", queue.nats.clone());
    let large = Work::new("confirm-order", vec![0; 2 << 20]).never_expires();
    let error = within(producer.accept(large)).await.unwrap_err();
    assert_eq!((error.outcome(), error.is_final()), (Outcome::Failed, true), "{error}");
    let accepted = within(producer.accept(Work::new("confirm-order", "order 7").never_expires())).await.unwrap();
    queue.context.delete_stream(queue.nats.stream()).await.unwrap();
    let error = within(producer.accept(Work::new("confirm-order", "order 8").never_expires())).await.unwrap_err();
    assert_eq!((error.outcome(), error.is_final()), (Outcome::Rejected, false), "{error} {accepted:?}");
}

#[tokio::test]
async fn what_is_known_when_it_fails() {
    let mut server = Server::start();
    let client = connect(&server.address()).await;
    let context = ContextBuilder::new().timeout(ms(500)).build(client);
    let nats = Nats::builder(context.clone(), name("outcome")).build().await.unwrap();
    let outcome = async || within(nats.publish(&message())).await.err().map(|error| error.outcome);

    assert_eq!(outcome().await, None);
    let mut large = message();
    large.body = vec![0; 2 << 20].into();
    assert_eq!(
        within(nats.publish(&large)).await.unwrap_err().outcome,
        Outcome::Failed,
        "larger than the server takes"
    );

    server.stop();
    let stopped = within(async {
        loop {
            if let Some(outcome) = outcome().await {
                return outcome;
            }
        }
    });
    assert!(matches!(stopped.await, Outcome::Unknown { .. }), "it may have been heard");
    server.go_on();
    within(async { while outcome().await.is_some() {} }).await;

    context.delete_stream(nats.stream()).await.unwrap();
    assert_eq!(outcome().await, Some(Outcome::Rejected), "nobody takes it");

    server.kill();
    within(async { while outcome().await != Some(Outcome::NotSent) {} }).await; // once the client has noticed
}

#[tokio::test]
async fn the_servers_clock_is_asked_where_it_has_one() {
    let (old, newer) = (Server::start(), Server::newer());
    let queue = Queue::open_at(&old.address(), "clock", |queue| queue).await;
    assert_eq!(within(queue.nats.clock()).await.unwrap(), None);
    let queue = Queue::open_at(&newer.address(), "clock", |queue| queue).await;
    let before = clock::wall();
    let theirs = within(queue.nats.clock()).await.unwrap().unwrap();
    let after = clock::wall();
    assert!(
        before.since(theirs) < ms(50) && theirs.since(after) < ms(50),
        "{before:?} {theirs:?} {after:?}: the same machine's"
    );
}

#[tokio::test]
async fn q2_a_native_time_to_live_is_only_for_what_may_be_discarded() {
    let server = Server::newer();
    let queue = Queue::open_at(&server.address(), "ttl", |queue| queue.native_ttl(Duration::ZERO)).await;
    for policy in Policy::ALL {
        for left in [Some(1_500), None] {
            let mut message = message();
            message.stamp.policy = policy;
            message.stamp.owner = Some("payments".into());
            message.stamp.expires = left.map_or(Expires::Never, |left| Expires::At(clock::wall() + ms(left)));
            within(queue.nats.publish(&message)).await.unwrap();
        }
    }
    let stored = queue.stored("main").await;
    let with = |name: &str| stored.iter().filter(|(headers, _)| headers.get(name).is_some()).count();
    assert_eq!((stored.len(), with("Nats-TTL")), (6, 1));
    let one = stored.iter().find(|(headers, _)| headers.get("Nats-TTL").is_some()).unwrap();
    assert_eq!(one.0.get("deadline-policy").unwrap().as_str(), "discard");
    assert_eq!(one.0.get("Nats-TTL").unwrap().as_str(), "2", "whole seconds, and not before its expiry");
    within(async { while queue.stored("main").await.len() != 5 {} }).await;
    assert_eq!(within(queue.nats.receive(Lane::Main, 10)).await.unwrap().len(), 5);
}

#[tokio::test]
async fn a_native_time_to_live_is_off_unless_said_and_an_error_where_there_is_none() {
    let server = Server::newer();
    let queue = Queue::open_at(&server.address(), "no-ttl", |queue| queue).await;
    let mut message = message();
    message.stamp.policy = Policy::Discard;
    message.stamp.expires = Expires::At(clock::wall() + secs(60));
    within(queue.nats.publish(&message)).await.unwrap();
    assert_eq!(queue.stored("main").await[0].0.get("Nats-TTL"), None);

    let old = Server::start();
    let refused = Nats::builder(connect(&old.address()).await, name("ttl")).native_ttl(secs(60)).build().await;
    assert!(matches!(refused, Err(BadNats::NoTtl { .. })), "{refused:?}");
}
