//! Messages of others: read where they can be, delivered in any case, moved without reaching anybody else.

use oneclock_core::expiry::{Expires, Fault, Unreadable};
use oneclock_core::wire::Wall;
use oneclock_queue::rabbitmq::lapin::BasicProperties;
use oneclock_queue::rabbitmq::lapin::types::AMQPValue;
use oneclock_queue::{Delivery as _, Lane, Message, NotSettled, Settle};

use crate::raw;
use crate::support::{Own, dead, fields, ms, soon, table, text};

const AT: u64 = 4_000_000_000;

fn at(seconds: u64) -> Expires {
    Expires::At(Wall::from_nanos(seconds * 1_000_000_000))
}

/// What is read of a message with these headers.
async fn read(own: &Own, headers: &[(&str, AMQPValue)]) -> Message {
    own.stranger(BasicProperties::default().with_headers(table(headers)), b"x").await;
    let delivery = own.one(Lane::Main).await;
    soon(delivery.settle(&Settle::Gone)).await.unwrap();
    delivery.message().clone()
}

#[tokio::test]
async fn moments_are_read_and_numbers_are_not_guessed_at() {
    let own = Own::new("moments").await;
    let millis = i64::try_from(AT * 1_000).unwrap();
    let readable: [(&str, AMQPValue); 6] = [
        ("expirytime", AMQPValue::Timestamp(AT)),
        ("cloudEvents:expirytime", text("2096-10-02T07:06:40Z")),
        ("cloudEvents_expirytime", text("2096-10-02T07:06:40Z")),
        ("expires", text("2096-10-02T07:06:40+00:00")),    // Celery
        ("JMSExpiration", AMQPValue::LongLongInt(millis)), // JMS: milliseconds
        ("JMSExpiration", AMQPValue::Timestamp(AT)),
    ];
    for (name, value) in readable {
        assert_eq!(read(&own, &[(name, value.clone())]).await.stamp.expires, at(AT), "{name}: {value:?}");
    }
    let none = [
        ("expires", AMQPValue::Void),
        ("JMSExpiration", AMQPValue::LongLongInt(0)),
        ("other", AMQPValue::Timestamp(AT)),
    ];
    for (name, value) in none {
        assert_eq!(read(&own, &[(name, value.clone())]).await.stamp.expires, Expires::Never, "{name}: {value:?}");
    }
    let list = AMQPValue::FieldArray(vec![AMQPValue::Timestamp(AT)].into());
    let unreadable = [
        ("expirytime", AMQPValue::LongLongInt(i64::try_from(AT).unwrap())),
        ("expirytime", AMQPValue::LongLongInt(millis)),
        ("expirytime", AMQPValue::Timestamp(AT * 1_000)), // milliseconds where AMQP has seconds
        ("expirytime", AMQPValue::Timestamp(u64::MAX)),
        ("expirytime", AMQPValue::Timestamp(0)),
        ("expirytime", AMQPValue::Double(4e9)),
        ("expirytime", AMQPValue::Boolean(true)),
        ("expirytime", AMQPValue::Void),
        ("expirytime", list),
        ("expirytime", AMQPValue::FieldTable(table(&[]))),
        ("expirytime", AMQPValue::LongString(vec![0xff].into())),
        ("expires", text("2096-10-02T07:06:40")), // Celery without a zone
        ("JMSExpiration", AMQPValue::LongLongInt(1_900_000_000)), // seconds
        ("JMSExpiration", text("tomorrow")),
    ];
    for (name, value) in unreadable {
        let message = read(&own, &[(name, value.clone())]).await;
        assert!(
            matches!(message.stamp.expires, Expires::Unreadable(_)),
            "{name}: {value:?}: {:?}",
            message.stamp.expires
        );
        assert!(message.faults.contains(&Fault::ExpiryUnreadable), "{name}: {value:?}");
    }
    let seconds = read(&own, &[("JMSExpiration", AMQPValue::LongLongInt(1_900_000_000))]).await;
    assert_eq!(seconds.stamp.expires, Expires::Unreadable(Unreadable::LooksLikeSeconds));
}

#[tokio::test]
async fn a_task_of_celery_is_read_as_it_comes() {
    let own = Own::new("celery").await;
    let headers = table(&[
        ("lang", text("py")),
        ("task", text("shop.tasks.charge")),
        ("id", text("7d3a1b6e-3c55-4c2e-9c3c-0d1f2a3b4c5d")),
        ("shadow", AMQPValue::Void),
        ("eta", AMQPValue::Void),
        ("expires", text("2096-10-02T07:06:40.500000+00:00")),
        ("group", AMQPValue::Void),
        ("retries", AMQPValue::LongInt(0)),
        ("timelimit", AMQPValue::FieldArray(vec![AMQPValue::Void, AMQPValue::Void].into())),
        ("root_id", text("7d3a1b6e-3c55-4c2e-9c3c-0d1f2a3b4c5d")),
        ("stamps", AMQPValue::FieldTable(table(&[]))),
    ]);
    let properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_content_encoding("utf-8".into())
        .with_correlation_id("7d3a1b6e-3c55-4c2e-9c3c-0d1f2a3b4c5d".into())
        .with_reply_to("3f1c".into())
        .with_delivery_mode(2)
        .with_priority(0)
        .with_headers(headers.clone());
    own.stranger(properties, b"[[7], {}, {}]").await;
    let delivery = own.one(Lane::Main).await;
    assert_eq!(delivery.message().stamp.expires, Expires::At(Wall::from_nanos(AT * 1_000_000_000 + 500_000_000)));
    assert_eq!(delivery.message().content_type.as_deref(), Some("application/json"));
    assert_eq!(delivery.message().faults, [Fault::PolicyMissing]);
    soon(delivery.settle(&Settle::Dead(dead()))).await.unwrap();
    let copy = own.raw(".dead").await.unwrap();
    let kept = fields(&copy.properties);
    for (name, value) in &headers {
        assert_eq!(kept.get(name.as_str()), Some(value), "{name}");
    }
}

#[tokio::test]
async fn a_message_of_which_nothing_is_known_is_delivered_and_keeps_the_name_that_it_gets() {
    let own = Own::new("bare").await;
    own.stranger(BasicProperties::default(), b"").await;
    let delivery = own.one(Lane::Main).await;
    let id = delivery.message().id.clone();
    assert!(!id.is_empty());
    assert_eq!((delivery.message().kind.as_str(), delivery.message().body.len()), ("unknown", 0));
    assert_eq!((delivery.message().stamp.expires, delivery.attempt()), (Expires::Never, 1));
    soon(delivery.settle(&Settle::Again { after: ms(2), counted: true })).await.unwrap();
    let again = own.one(Lane::Main).await;
    assert_eq!(again.message().id, id);
}

#[tokio::test]
async fn counts_that_a_stranger_made_up_are_read_once_and_not_believed_for_ever() {
    let own = Own::new("counts").await;
    let headers = [("deadline-attempt", text("many")), ("x-delivery-count", AMQPValue::LongLongInt(-4))];
    own.stranger(BasicProperties::default().with_headers(table(&headers)), b"x").await;
    let delivery = own.one(Lane::Main).await;
    assert_eq!(delivery.attempt(), 1);
    soon(delivery.settle(&Settle::Again { after: ms(0), counted: true })).await.unwrap();
    let again = own.one(Lane::Main).await;
    assert_eq!(again.attempt(), 2);
    assert_eq!(fields(again.properties()).get("x-delivery-count"), None);
}

#[tokio::test]
async fn a_copy_reaches_nobody_else() {
    let own = Own::new("copy").await;
    let other = Own::new("other").await;
    let list = |queue: &str| AMQPValue::FieldArray(vec![text(queue)].into());
    let headers = table(&[("CC", list(&other.name)), ("x", AMQPValue::LongInt(1))]);
    let properties = BasicProperties::default().with_headers(headers).with_expiration("60000".into());
    own.stranger(properties, b"x").await;
    assert!(other.raw("").await.is_some(), "its producer sent it there, once");
    for way in [
        Settle::Again { after: ms(0), counted: true },
        Settle::Again { after: ms(2), counted: true },
        Settle::Dead(dead()),
    ] {
        let delivery = own.one(Lane::Main).await;
        let fresh = delivery.properties().headers().as_ref().is_some_and(|table| table.contains_key("CC"));
        assert_eq!(delivery.properties().expiration().is_some(), fresh, "a copy's time to live would begin again");
        soon(delivery.settle(&way)).await.unwrap();
    }
    let copy = own.one(Lane::Dead).await;
    let kept = fields(copy.properties());
    assert_eq!(kept.get("deadline-was-cc"), Some(&list(&other.name)));
    assert_eq!(kept.get("deadline-was-expiration"), Some(&text("60000")));
    assert_eq!(copy.properties().expiration(), &None, "it stays until somebody has looked at it");
    assert!(other.raw("").await.is_none());
}

#[tokio::test]
async fn headers_that_fill_a_frame_still_reach_the_dead_lane() {
    let own = Own::new("frame").await;
    let long = "x".repeat(130_450);
    own.stranger(BasicProperties::default().with_headers(table(&[("long", text(&long))])), b"x").await;
    let delivery = own.one(Lane::Main).await;
    let said = oneclock_queue::Dead { detail: Some("y".repeat(512)), ..dead() };
    soon(delivery.settle(&Settle::Dead(said))).await.unwrap();
    let copy = own.raw(".dead").await.unwrap();
    let kept = fields(&copy.properties);
    assert_eq!(kept.get("long"), Some(&text(&long)));
    assert_eq!((kept.get("deadline-dead-reason"), kept.get("deadline-dead-detail")), (Some(&text("rejected")), None));
}

/// A head of exactly one frame has no room for a count, nor for a reason beside the field that fills it.
#[tokio::test]
async fn headers_that_fill_a_frame_to_its_end_cannot_come_again_and_still_reach_the_dead_lane() {
    let own = Own::new("full").await;
    let long = "x".repeat(131_072 - 22 - 4 - 10); // around it, the table's length, the field's name and type
    for _ in 0..2 {
        own.stranger(BasicProperties::default().with_headers(table(&[("long", text(&long))])), b"x").await;
    }
    let delivery = own.one(Lane::Main).await;
    for after in [0, 5] {
        let again = soon(delivery.settle(&Settle::Again { after: ms(after), counted: true })).await;
        assert!(matches!(again, Err(NotSettled::TooLarge)), "{again:?}");
    }
    soon(delivery.settle(&Settle::Dead(dead()))).await.unwrap();
    let copy = own.raw(".dead").await.unwrap();
    let kept = fields(&copy.properties);
    assert_eq!((kept.get("deadline-dead-reason"), kept.get("long")), (Some(&text("rejected")), None));
    assert_eq!(own.one(Lane::Main).await.attempt(), 1, "nothing broke");
}

/// The client ends its connection at such a name, and this process at such a depth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_the_client_cannot_read_stops_nobody() {
    let own = Own::new("heads").await;
    let nested = |depth: usize| {
        raw::head(&raw::entry(b"deep", &(0..depth).fold(b"V".to_vec(), |inner, _| raw::value(b'A', &inner))))
    };
    let named = raw::head(&raw::entry(b"na\xff\xfeme", &raw::value(b'S', b"x")));
    let typed = [&(1_u16 << 15).to_be_bytes()[..], b"\x03a/\xff"].concat();
    let bad = [nested(5_000), nested(17), named, typed];
    for head in &bad {
        raw::publish(&own.name, head, b"bad").await;
        raw::publish(&own.name, &nested(14), b"good").await;
        let delivery = own.one(Lane::Main).await;
        assert_eq!((&*delivery.message().body, delivery.attempt()), (&b"bad"[..], 1));
        assert!(matches!(delivery.message().stamp.expires, Expires::Unreadable(_)));
        let good = own.one(Lane::Main).await;
        assert_eq!((&*good.message().body, good.message().stamp.expires), (&b"good"[..], Expires::Never));
        soon(good.settle(&Settle::Gone)).await.unwrap();
        soon(delivery.settle(&Settle::Again { after: ms(2), counted: true })).await.unwrap();
        soon(own.one(Lane::Main).await.settle(&Settle::Dead(dead()))).await.unwrap();
        let copy = own.one(Lane::Dead).await;
        let kept = fields(copy.properties()).remove("deadline-unreadable-head");
        assert_eq!(kept, Some(AMQPValue::ByteArray(head.clone().into())));
        assert!(matches!(copy.message().stamp.expires, Expires::Unreadable(_)));
        soon(copy.settle(&Settle::Gone)).await.unwrap();
    }
}
