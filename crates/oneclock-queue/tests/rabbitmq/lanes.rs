//! What a copy keeps on its way through the lanes.

use std::collections::BTreeMap;

use oneclock_core::expiry::{Expires, Policy, Stamp, names};
use oneclock_core::wire::Wall;
use oneclock_queue::oncall::{self, Redrive};
use oneclock_queue::rabbitmq::lapin::BasicProperties;
use oneclock_queue::rabbitmq::lapin::options::QueueDeleteOptions;
use oneclock_queue::rabbitmq::lapin::types::{AMQPValue, DecimalValue};
use oneclock_queue::rabbitmq::{QueueKind, RabbitMq};
use oneclock_queue::{Broker as _, Delivery as _, Inspect as _, Lane, NotSettled, Settle, Uncertainty};

use crate::support::{Own, address, dead, eventually, fields, ms, order, soon, table, text};

/// Written by nobody but us.
const OURS: [&str; 3] = ["deadline-attempt", "deadline-may-have-run", "deadline-redrives"];

/// One of everything that AMQP has, as a stranger might send it.
fn everything() -> BasicProperties {
    let nested = table(&[("list", AMQPValue::FieldArray(vec![AMQPValue::LongInt(1), text("zwei")].into()))]);
    let headers = table(&[
        ("expirytime", AMQPValue::Timestamp(4_000_000_000)),
        ("deadline-policy", text("must-complete")),
        ("deadline-owner", text("payments")),
        ("idempotency-key", text("order-7")),
        ("traceparent", text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")),
        ("bool", AMQPValue::Boolean(true)),
        ("byte", AMQPValue::ShortShortInt(-3)),
        ("short", AMQPValue::ShortInt(-300)),
        ("int", AMQPValue::LongInt(-70_000)),
        ("long", AMQPValue::LongLongInt(-5_000_000_000)),
        ("double", AMQPValue::Double(0.1)),
        ("decimal", AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 199 })),
        ("moment", AMQPValue::Timestamp(1_700_000_000)),
        ("bytes", AMQPValue::ByteArray(vec![0, 255, 128].into())),
        ("not-utf8", AMQPValue::LongString(vec![0xff, 0xfe].into())),
        ("nothing", AMQPValue::Void),
        ("nested", AMQPValue::FieldTable(nested)),
    ]);
    BasicProperties::default()
        .with_content_type("application/json".into())
        .with_content_encoding("identity".into())
        .with_correlation_id("c-1".into())
        .with_reply_to("answers".into())
        .with_message_id("m-1".into())
        .with_type("order.placed".into())
        .with_app_id("legacy".into())
        .with_priority(4)
        .with_timestamp(1_700_000_000)
        .with_headers(headers)
}

fn strangers(properties: &BasicProperties) -> BTreeMap<String, AMQPValue> {
    let mut fields = fields(properties);
    fields.retain(|name, _| {
        !OURS.contains(&name.as_str()) && !name.starts_with("x-") && !name.starts_with("deadline-dead-")
    });
    fields
}

async fn every_field_survives(kind: QueueKind) {
    let own = Own::with("fields", |builder| builder.kind(kind)).await;
    own.stranger(everything(), b"{}").await;
    let again = |after, counted| Settle::Again { after: ms(after), counted };
    let redrive = |redrives| Settle::Redrive(Stamp { redrives, owner: Some("payments".into()), ..Stamp::default() });
    let ways = [
        (Lane::Main, again(0, true)),
        (Lane::Main, again(5, true)),
        (Lane::Main, again(5, false)),
        (Lane::Main, Settle::Late),
        (Lane::Late, again(5, true)),
        (Lane::Late, Settle::Dead(dead())),
        (Lane::Dead, again(0, false)),
        (Lane::Dead, redrive(1)),
        (Lane::Main, again(5, true)),
        (Lane::Main, Settle::Dead(dead())),
        (Lane::Dead, redrive(2)),
        (Lane::Main, Settle::Dead(dead())),
    ];
    let mut after_redrive = Vec::new();
    for (lane, way) in ways {
        let delivery = own.one(lane).await;
        let stamp = &delivery.message().stamp;
        if lane == Lane::Main && stamp.redrives > 0 {
            after_redrive.push((stamp.redrives, delivery.attempt()));
            assert!(!fields(delivery.properties()).keys().any(|name| name.starts_with(names::DEAD)), "{way:?}");
        }
        let properties = delivery.properties();
        assert_eq!(strangers(properties), strangers(&everything()), "before {way:?}");
        let expected = everything().with_headers(properties.headers().clone().unwrap());
        let delivered = properties.delivery_mode().map_or(expected.clone(), |mode| expected.with_delivery_mode(mode));
        assert_eq!(*properties, delivered, "before {way:?}");
        assert_eq!(delivery.message().body, "{}");
        assert_eq!(delivery.message().stamp.expires, Expires::At(Wall::from_nanos(4_000_000_000_000_000_000)));
        soon(delivery.settle(&way)).await.unwrap();
    }
    assert_eq!(after_redrive, [(1, 1), (1, 2), (2, 1)], "redrives and attempts");
    let last = own.one(Lane::Dead).await;
    let found = fields(last.properties());
    let said = |name: &str| found.get(name).cloned();
    assert_eq!(said(names::DEAD_REASON), Some(text("rejected")));
    assert_eq!(said(names::DEAD_AT), Some(text("2023-11-14T22:13:20.000Z")));
    assert_eq!(said(names::DEAD_ATTEMPTS), Some(text("3")));
    assert_eq!(said(names::DEAD_DETAIL), Some(text("no such customer")));
    assert_eq!(strangers(last.properties()), strangers(&everything()));
    soon(last.settle(&Settle::Gone)).await.unwrap();
    for ending in ["", ".late", ".dead", ".wait", ".late.wait"] {
        assert!(own.raw(ending).await.is_none(), "nothing is left in {ending:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_field_survives_every_way_in_quorum_queues() {
    every_field_survives(QueueKind::Quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_field_survives_every_way_in_classic_queues() {
    every_field_survives(QueueKind::Classic).await;
}

#[tokio::test]
async fn ours_comes_as_it_was_published() {
    let own = Own::new("ours").await;
    let mut message = order("seven apples");
    message.content_type = Some("text/plain".into());
    message.fields.push(("traceparent".into(), "00-1-2-01".into()));
    message.stamp = Stamp {
        expires: Expires::At(Wall::from_nanos(4_000_000_000_123_000_000)),
        policy: Policy::MustComplete,
        owner: Some("payments".into()),
        first_enqueued: Some(Wall::from_nanos(1_700_000_000_456_000_000)),
        uncertainty: ms(40),
        redrives: 2,
        ..Stamp::default()
    };
    soon(own.queue.publish(&message)).await.unwrap();
    let delivery = own.one(Lane::Main).await;
    let read = delivery.message();
    assert_eq!(
        (&read.id, &read.kind, &read.source, &read.stamp),
        (&message.id, &message.kind, &message.source, &message.stamp)
    );
    assert_eq!((&read.content_type, &read.fields, &read.body), (&message.content_type, &message.fields, &message.body));
    assert_eq!(read.faults, []);
    let properties = delivery.properties();
    assert_eq!(properties.message_id().as_ref().map(|id| id.as_str()), Some(&*message.id));
    assert_eq!(properties.content_type().as_ref().map(|kind| kind.as_str()), Some("text/plain"));
    assert_eq!((*properties.delivery_mode(), *properties.timestamp()), (Some(2), Some(1_700_000_000)));
    let found = fields(properties);
    assert_eq!(found.get("cloudEvents:type"), Some(&text("order.placed")));
    assert_eq!(found.get("cloudEvents:expirytime"), Some(&text("2096-10-02T07:06:40.123Z")));
    assert_eq!(found.get("cloudEvents:datacontenttype"), None, "its property says so");
    assert_eq!((properties.expiration(), properties.user_id()), (&None, &None));
    soon(delivery.settle(&Settle::Gone)).await.unwrap();
}

#[tokio::test]
async fn what_comes_again_later_does_not_come_sooner_and_counts_as_it_was_said() {
    let own = Own::new("delay").await;
    soon(own.queue.publish(&order("x"))).await.unwrap();
    let mut attempts = Vec::new();
    for (after, counted) in [(ms(300), true), (ms(0), false), (ms(1), true)] {
        let delivery = own.one(Lane::Main).await;
        attempts.push(delivery.attempt());
        assert!(!delivery.may_have_run(), "it was given back, not lost");
        let began = oneclock::clock::now();
        soon(delivery.settle(&Settle::Again { after, counted })).await.unwrap();
        let next = own.one(Lane::Main).await;
        assert!(oneclock::clock::now().since(began) >= after);
        soon(next.settle(&Settle::Again { after: ms(0), counted: false })).await.unwrap();
    }
    attempts.push(own.one(Lane::Main).await.attempt());
    assert_eq!(attempts, [1, 2, 2, 3]);
}

#[tokio::test]
async fn the_broker_would_take_a_second_way_for_a_circle_and_drop_it() {
    let own = Own::with("circle", |builder| builder.native_ttl(ms(0))).await;
    // By its own time to live it goes from main to dead, which its x-death says.
    let headers = table(&[("expirytime", AMQPValue::Timestamp(4_000_000_000))]);
    own.stranger(BasicProperties::default().with_expiration("1".into()).with_headers(headers), b"x").await;
    let delivery = own.one(Lane::Dead).await;
    assert!(fields(delivery.properties()).contains_key("x-death"));
    // Put back by somebody with a tool, as it is.
    let properties = BasicProperties::default().with_headers(delivery.properties().headers().clone().unwrap());
    own.stranger(properties, b"x").await;
    soon(delivery.settle(&Settle::Gone)).await.unwrap();
    let back = own.one(Lane::Main).await;
    soon(back.settle(&Settle::Again { after: ms(5), counted: true })).await.unwrap();
    let again = own.one(Lane::Main).await;
    assert_eq!(again.attempt(), 2);
    assert!(fields(again.properties()).contains_key("x-death"), "how it waited is still there");
}

#[tokio::test]
async fn people_see_what_is_there_and_take_nothing() {
    let own = Own::new("inspect").await;
    for n in 0..3 {
        soon(own.queue.publish(&order(&n.to_string()))).await.unwrap();
    }
    let delivery = own.one(Lane::Main).await;
    soon(delivery.settle(&Settle::Again { after: ms(60_000), counted: true })).await.unwrap();
    soon(own.one(Lane::Main).await.settle(&Settle::Dead(dead()))).await.unwrap();
    drop(own.one(Lane::Main).await);
    let other = soon(RabbitMq::builder(address(), own.name.clone()).build()).await.unwrap();
    let depth = |lane| {
        let other = other.clone();
        async move { soon(other.depth(lane)).await.unwrap().waiting }
    };
    assert_eq!((depth(Lane::Late).await, depth(Lane::Dead).await), (Some(0), Some(1)));
    for _ in 0..2 {
        let dead = soon(other.peek(Lane::Dead, 10)).await.unwrap();
        let said = dead.iter().flat_map(|message| &message.fields).find(|(name, _)| &**name == names::DEAD_REASON);
        assert_eq!((dead.len(), said.map(|(_, why)| &**why)), (1, Some("rejected")));
    }
    assert_eq!(soon(other.peek(Lane::Dead, 0)).await.unwrap().len(), 0);
    assert_eq!(own.one(Lane::Dead).await.message().body, "1");
}

#[tokio::test]
async fn what_cannot_move_stays_where_it_is() {
    let own = Own::new("stays").await;
    soon(own.queue.publish(&order("x"))).await.unwrap();
    let delivery = own.one(Lane::Main).await;
    soon(own.plain.queue_delete(format!("{}.dead", own.name).into(), QueueDeleteOptions::default())).await.unwrap();
    let failed = soon(delivery.settle(&Settle::Dead(dead()))).await;
    assert!(matches!(failed, Err(NotSettled::Failed(_))), "{failed:?}");
    assert!(delivery.renew().await.is_ok(), "it is still ours");
    soon(delivery.settle(&Settle::Late)).await.unwrap();
    assert_eq!(own.one(Lane::Late).await.message().body, "x");
}

/// What stays is given back a few at a time: a broker sends no more than its prefetch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_dead_letters_than_are_sent_at_once_are_all_looked_at() {
    let own = Own::with("many", |builder| builder.prefetch(8)).await;
    for n in 0..40 {
        let mut message = order(&n.to_string());
        message.id = format!("id-{n}").into();
        soon(own.queue.publish(&message)).await.unwrap();
        soon(own.one(Lane::Main).await.settle(&Settle::Dead(dead()))).await.unwrap();
    }
    let (sure, at_most) = (Uncertainty::assumed(ms(20)), 1_000);
    let last = Redrive { ids: vec!["id-39".into()], at_most, ..Redrive::default() };
    let theirs = soon(RabbitMq::builder(address(), own.name.clone()).prefetch(8).build()).await.unwrap();
    let told = soon(oncall::redrive(&theirs, &sure, &last, ms(200))).await.unwrap();
    drop(theirs); // with what was sent to it
    assert_eq!(told.iter().map(|(message, back)| (&*message.id, back.is_ok())).collect::<Vec<_>>(), [("id-39", true)]);
    assert_eq!(own.one(Lane::Main).await.message().body, "39");
    let waiting = async || own.queue.depth(Lane::Dead).await.unwrap().waiting;
    eventually("the others stay", || async { waiting().await == Some(39) }).await;
}

/// Whoever may have died over work is remembered, whichever way the work goes.
#[tokio::test]
async fn expiring_work_by_hand_forgets_nothing() {
    let own = Own::new("hand").await;
    let mut owed = order("owed");
    owed.stamp = Stamp {
        expires: Expires::At(oneclock::clock::wall() + ms(100)),
        policy: Policy::MustComplete,
        owner: Some("payments".into()),
        ..Stamp::default()
    };
    soon(own.queue.publish(&owed)).await.unwrap();
    soon(own.queue.publish(&order("live"))).await.unwrap();
    let died = [own.one(Lane::Main).await, own.one(Lane::Main).await];
    drop(died);
    let ended = soon(async {
        loop {
            let ended = oncall::expire(&own.queue, &Uncertainty::assumed(ms(20)), 9, ms(200)).await.unwrap();
            if !ended.is_empty() {
                return ended;
            }
        }
    });
    assert_eq!(ended.await.iter().map(|(_, end)| *end).collect::<Vec<_>>(), [oncall::Ended::MovedLate]);
    for (lane, body) in [(Lane::Late, "owed"), (Lane::Main, "live")] {
        let delivery = own.one(lane).await;
        assert_eq!((&*delivery.message().body, delivery.may_have_run()), (body.as_bytes(), true));
    }
}
