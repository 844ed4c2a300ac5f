//! What is known of the far side when a message was published, or was not.

use std::sync::Arc;

use futures_util::future::join_all;
use oneclock_core::Outcome;
use oneclock_core::expiry::{Expires, Policy, Stamp};
use oneclock_queue::rabbitmq::lapin::ExchangeKind;
use oneclock_queue::rabbitmq::lapin::options::{ExchangeDeclareOptions, ExchangeDeleteOptions, QueueDeleteOptions};
use oneclock_queue::rabbitmq::lapin::types::{AMQPValue, FieldTable};
use oneclock_queue::rabbitmq::{QueueKind, RabbitMq, Trouble};
use oneclock_queue::{Broker as _, BrokerError, Delivery as _, Lane, Producer, Settle, Work};

use crate::support::{Own, address, fields, ms, order, soon, table, text, unique};

fn trouble(error: &BrokerError) -> &Trouble {
    error.source.downcast_ref().expect("a Trouble")
}

#[tokio::test]
async fn what_no_queue_takes_is_refused_and_not_lost() {
    let own = Own::new("returned").await;
    soon(own.plain.queue_delete(own.name.clone().into(), QueueDeleteOptions::default())).await.unwrap();
    let error = soon(own.queue.publish(&order("x"))).await.unwrap_err();
    assert_eq!(error.outcome, Outcome::Rejected);
    assert!(matches!(trouble(&error), Trouble::Returned { code: 312, .. }), "{error:?}");
}

/// On one channel the broker returns a message without saying which: what was taken and what was not are told apart all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_each_is_told_its_own() {
    let own = Own::new("many").await;
    let exchange = unique("exchange");
    let options = ExchangeDeclareOptions::default();
    soon(own.plain.exchange_declare(exchange.clone().into(), ExchangeKind::Headers, options, FieldTable::default()))
        .await
        .unwrap();
    let only = table(&[("x-match", text("all")), ("goes", text("yes"))]);
    soon(own.plain.queue_bind(own.name.clone().into(), exchange.clone().into(), "".into(), Default::default(), only))
        .await
        .unwrap();
    let to = soon(RabbitMq::builder(address(), own.name.clone()).publish_to(&exchange, "").build()).await.unwrap();

    let published = join_all((0..400).map(|n| {
        let to = to.clone();
        async move {
            let mut message = order(&n.to_string());
            let goes = n % 3 != 0;
            message.fields.push(("goes".into(), if goes { "yes" } else { "no" }.into()));
            (goes, to.publish(&message).await)
        }
    }));
    for (goes, published) in soon(published).await {
        match published {
            Ok(()) => assert!(goes, "it was returned, and was taken for published"),
            Err(error) => assert!(!goes && error.outcome == Outcome::Rejected, "{error:?}"),
        }
    }
    soon(own.plain.exchange_delete(exchange.into(), ExchangeDeleteOptions::default())).await.unwrap();
}

#[tokio::test]
async fn nobody_there_is_not_sent_and_a_wrong_name_is_refused() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = soon(RabbitMq::builder(format!("amqp://{nobody}/%2f"), "q").build()).await.unwrap_err();
    assert_eq!(error.outcome, Outcome::NotSent);
    for (address, queue) in
        [("not an address", "q"), ("amqps://127.0.0.1", "q"), (&*address(), ""), (&*address(), &"q".repeat(250))]
    {
        let error = soon(RabbitMq::builder(address, queue).build()).await.unwrap_err();
        assert_eq!(error.outcome, Outcome::NotSent, "{address} {queue}");
    }
    let own = Own::new("kinds").await;
    let other =
        soon(RabbitMq::builder(address(), own.name.clone()).kind(QueueKind::Classic).build()).await.unwrap_err();
    assert!(format!("{:?}", other.source).contains("PRECONDITION"), "{other:?}");
    let none = soon(RabbitMq::builder("amqp:me:secret@host", "q").build()).await.unwrap_err();
    assert!(!format!("{none:?}").contains("secret"), "{none:?}");
    let shown = format!("{:?} {:?}", own.queue, RabbitMq::builder("amqp://me:secret@host", "q"));
    assert!(!shown.contains("secret") && !shown.contains("guest"), "{shown}");
}

#[tokio::test]
async fn what_is_too_long_for_a_frame_is_not_sent_and_breaks_nothing() {
    let own = Own::new("long").await;
    let mut long = order("x");
    long.fields.push(("x".into(), "y".repeat(140_000).into()));
    let error = soon(own.queue.publish(&long)).await.unwrap_err();
    assert_eq!(error.outcome, Outcome::Failed, "it would be so the next time");
    assert!(matches!(trouble(&error), Trouble::HeadersTooLong { .. }), "{error:?}");
    let mut named = order("x");
    named.fields.push(("n".repeat(256).into(), "y".into()));
    assert!(matches!(trouble(&soon(own.queue.publish(&named)).await.unwrap_err()), Trouble::TooLong(_)));
    let mut known = order("x");
    known.id = "i".repeat(256).into();
    let error = soon(own.queue.publish(&known)).await.unwrap_err();
    assert!(matches!(trouble(&error), Trouble::TooLong(_)) && error.outcome == Outcome::Failed, "{error:?}");
    let work = Work::new("order.placed", "x").never_expires().id("i".repeat(256));
    let error = soon(Producer::new("shop", own.queue.clone()).accept(work)).await.unwrap_err();
    assert!(error.is_final(), "{error}");
    // A body of several frames, and one without any.
    for body in ["z".repeat(400_000), String::new()] {
        soon(own.queue.publish(&order(&body))).await.unwrap();
        let delivery = own.one(Lane::Main).await;
        assert_eq!(delivery.message().body, body);
        soon(delivery.settle(&Settle::Gone)).await.unwrap();
    }
}

#[tokio::test]
async fn q2_the_brokers_own_end_is_off_unless_it_is_asked_for_and_never_for_what_must_be_completed() {
    let stamped = |policy| {
        let mut message = order("x");
        let expires = Expires::At(oneclock::clock::wall() + ms(50_000));
        message.stamp = Stamp { expires, policy, owner: Some("payments".into()), ..Stamp::default() };
        message
    };
    let (off, on) = (Own::new("off").await, Own::with("on", |builder| builder.native_ttl(ms(10_000))).await);
    for policy in Policy::ALL {
        soon(off.queue.publish(&stamped(policy))).await.unwrap();
        assert_eq!(off.raw("").await.unwrap().properties.expiration(), &None, "{policy}");
        soon(on.queue.publish(&stamped(policy))).await.unwrap();
        let native = on.raw("").await.unwrap().properties.expiration().clone();
        let millis = native.map(|native| native.as_str().parse::<u64>().unwrap());
        match policy {
            Policy::MustComplete => assert_eq!(millis, None),
            _ => assert!(millis.is_some_and(|millis| (55_000..=60_000).contains(&millis)), "{millis:?}"),
        }
    }
}

#[tokio::test]
async fn q2_what_the_broker_ends_by_itself_is_in_the_dead_lane() {
    let own = Own::with("expired", |builder| builder.native_ttl(ms(0))).await;
    let mut message = order("x");
    message.stamp = Stamp { expires: Expires::At(oneclock::clock::wall() + ms(30)), ..Stamp::default() };
    soon(own.queue.publish(&message)).await.unwrap();
    let delivery = own.one(Lane::Dead).await;
    assert_eq!((&delivery.message().id, delivery.message().stamp.expires), (&message.id, floor(message.stamp.expires)));
    assert!(matches!(fields(delivery.properties()).get("x-death"), Some(AMQPValue::FieldArray(_))));
}

/// As it is written: in milliseconds.
fn floor(expires: Expires) -> Expires {
    let at = expires.at().unwrap();
    Expires::At(oneclock_core::wire::Wall::from_nanos(at.as_nanos() / 1_000_000 * 1_000_000))
}

#[tokio::test]
async fn queues_that_somebody_else_declared_are_used_as_they_are() {
    let own = Own::new("elsewhere").await;
    let missing = soon(RabbitMq::builder(address(), unique("missing")).declared_elsewhere().build()).await.unwrap();
    let error = soon(missing.receive(Lane::Main, 1)).await.unwrap_err();
    assert!(format!("{:?}", error.source).contains("NOT_FOUND"), "{error:?}");

    let same = RabbitMq::builder(address(), own.name.clone()).declared_elsewhere().native_ttl(ms(1_000));
    let same = Arc::new(soon(same.build()).await.unwrap());
    let mut message = order("x");
    message.stamp = Stamp { expires: Expires::At(oneclock::clock::wall() + ms(50_000)), ..Stamp::default() };
    soon(same.publish(&message)).await.unwrap();
    let published = own.raw("").await.unwrap();
    assert_eq!(published.properties.expiration(), &None, "whether it would go where somebody looks is not known");
}
