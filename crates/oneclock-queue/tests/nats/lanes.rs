//! What becomes of a delivery: it goes, comes again, or is moved, with everything that it came with.

use oneclock::clock;
use oneclock_core::expiry::{Expires, Policy, Stamp, Why};
use oneclock_queue::nats::async_nats::HeaderMap;
use oneclock_queue::{Broker as _, Dead, Delivery as _, Inspect as _, Lane, Message, Settle};

use super::support::{Queue, ms, one_of, secs, within};

fn dead(attempts: u32) -> Settle {
    Settle::Dead(Dead { why: Why::Expired, detail: Some("too late".into()), at: clock::wall(), attempts })
}

/// The fields of a message, without those that steer the server.
fn of_its_own(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut all: Vec<_> = headers
        .iter()
        .flat_map(|(name, values)| values.iter().map(move |value| (name.to_string(), value.to_string())))
        .filter(|(name, _)| !name.starts_with("Nats-"))
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn what_is_published_is_delivered_as_it_was_and_goes_when_it_is_done() {
    let queue = Queue::open("delivered", |queue| queue).await;
    let mut message = Message::new("confirm-order", "order-service", "order 7");
    message.stamp.expires = Expires::At(clock::wall() + secs(600));
    message.stamp.policy = Policy::MustComplete;
    message.stamp.owner = Some("payments".into());
    message.content_type = Some("text/plain".into());
    message.fields.push(("traceparent".into(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()));
    within(queue.nats.publish(&message)).await.unwrap();

    let got = queue.one(Lane::Main).await;
    assert_eq!((got.attempt(), got.may_have_run(), got.lease()), (1, false, Some(secs(30))));
    let read = got.message();
    assert_eq!((&read.id, &read.kind, &read.source), (&message.id, &message.kind, &message.source));
    assert_eq!((&read.body, &read.content_type, &read.fields), (&message.body, &message.content_type, &message.fields));
    assert_eq!((read.stamp.policy, &read.stamp.owner), (Policy::MustComplete, &message.stamp.owner));
    let millis = |expires: Expires| expires.at().map(|at| at.as_nanos() / 1_000_000);
    assert_eq!(millis(read.stamp.expires), millis(message.stamp.expires));
    assert!(read.faults.is_empty(), "{:?}", read.faults);

    assert_eq!(queue.stored("main").await.len(), 1, "until somebody says so");
    within(got.settle(&Settle::Gone)).await.unwrap();
    assert_eq!(queue.stored("main").await, []);
}

#[tokio::test]
async fn q1_every_field_goes_along_to_the_other_lanes_also_what_nobody_understands() {
    let queue = Queue::open("fields", |queue| queue).await;
    let mut headers = HeaderMap::new();
    headers.insert("ce-id", "7");
    headers.insert("ce-expirytime", "2031-01-31T12:00:00Z");
    headers.insert("deadline-policy", "discrad"); // a slip of the pen stays one
    headers.append("X-Twice", "one");
    headers.append("X-Twice", "two");
    headers.insert("Nats-Msg-Id", "7");
    headers.insert("Nats-Expected-Last-Msg-Id", "");
    let subject = format!("{}.main", queue.name);
    let sent = of_its_own(&headers);
    queue.context.publish_with_headers(subject, headers, "body".into()).await.unwrap().await.unwrap();

    within(queue.one(Lane::Main).await.settle(&Settle::Late)).await.unwrap();
    assert_eq!(queue.stored("main").await, []);
    let stored = queue.stored("late").await;
    assert_eq!(
        stored.iter().map(|(headers, body)| (of_its_own(headers), body.as_str())).collect::<Vec<_>>(),
        [(sent.clone(), "body")]
    );

    let late = queue.one(Lane::Late).await;
    within(late.settle(&dead(3))).await.unwrap();
    assert_eq!(queue.stored("late").await, []);
    let stored = queue.stored("dead").await;
    let (all, added): (Vec<_>, Vec<_>) =
        of_its_own(&stored[0].0).into_iter().partition(|(name, _)| !name.starts_with("deadline-dead-"));
    assert_eq!(all, sent);
    let added: Vec<_> = added.iter().filter(|(name, _)| name != "deadline-dead-at").collect();
    let want =
        [("deadline-dead-attempts", "3"), ("deadline-dead-detail", "too late"), ("deadline-dead-reason", "expired")];
    assert_eq!(added.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>(), want);
    assert_eq!(&*queue.one(Lane::Dead).await.message().id, "7");
}

#[tokio::test]
async fn what_is_given_back_comes_when_it_is_due_and_only_what_counts_is_counted() {
    let queue = Queue::open("again", |queue| queue).await;
    let other = queue.again(|queue| queue).await; // another process: what one knows alone is of no use
    queue.publish("order 7").await;
    let mut attempts = Vec::new();
    let mut expected = None;
    for (number, counted) in [false, true, false, true, true].into_iter().enumerate() {
        let got = one_of(if number % 2 == 0 { &queue.nats } else { &other }, Lane::Main).await;
        attempts.push(got.attempt());
        assert!(!got.may_have_run(), "nobody left without a word");
        let fields = |message: &Message| (message.id.clone(), message.stamp.clone(), message.body.clone());
        assert_eq!(*expected.get_or_insert_with(|| fields(got.message())), fields(got.message()));
        let (given_back, after) = (clock::now(), ms(300));
        within(got.settle(&Settle::Again { after, counted })).await.unwrap();
        assert_eq!(queue.stored("main").await, [], "it waits elsewhere");
        let again = one_of(&queue.nats, Lane::Main).await;
        let waited = clock::now().since(given_back);
        assert!(waited >= after - ms(2), "it came after {waited:?}"); // its moment is written in whole milliseconds
        within(again.settle(&Settle::Again { after: ms(0), counted: false })).await.unwrap();
    }
    assert_eq!(attempts, [1, 1, 2, 2, 3]);
    assert_eq!(queue.one(Lane::Main).await.attempt(), 4);
    assert_eq!(queue.stored("wait").await, []);
}

/// What a delivery did that ended without a word is not known from then on, whichever way the work goes.
#[tokio::test]
async fn that_it_may_have_run_stays_on_every_copy_until_somebody_puts_it_back() {
    let queue = Queue::open("mark", |queue| queue.lease(secs(1))).await;
    queue.publish("order 7").await;
    drop(queue.one(Lane::Main).await); // its process died
    let again = |after, counted| Settle::Again { after: ms(after), counted };
    let ways = [
        (Lane::Main, again(0, false)),
        (Lane::Main, again(50, true)), // waits elsewhere
        (Lane::Main, Settle::Late),
        (Lane::Late, again(50, false)),
        (Lane::Late, again(0, true)),
        (Lane::Late, dead(2)),
    ];
    for (lane, way) in ways {
        let got = queue.one(lane).await;
        assert!(got.may_have_run(), "before {way:?}");
        assert_eq!(got.message().fields, [], "it is no field of the message");
        within(got.settle(&way)).await.unwrap();
    }
    let dead = queue.one(Lane::Dead).await;
    within(dead.settle(&Settle::Redrive(Stamp { redrives: 1, ..Stamp::default() }))).await.unwrap();
    assert!(!queue.one(Lane::Main).await.may_have_run(), "whoever puts it back knows");
}

#[tokio::test]
async fn a_lane_gives_back_into_itself() {
    let queue = Queue::open("itself", |queue| queue).await;
    queue.publish("order 7").await;
    within(queue.one(Lane::Main).await.settle(&Settle::Late)).await.unwrap();
    within(queue.one(Lane::Late).await.settle(&Settle::Again { after: ms(50), counted: true })).await.unwrap();
    let late = queue.one(Lane::Late).await;
    assert_eq!(late.attempt(), 2);
    within(late.settle(&dead(2))).await.unwrap();
    within(queue.one(Lane::Dead).await.settle(&Settle::Again { after: ms(0), counted: false })).await.unwrap();
    let dead = queue.one(Lane::Dead).await;
    within(dead.settle(&Settle::Gone)).await.unwrap();
    for lane in ["main", "late", "dead", "wait"] {
        assert_eq!(queue.stored(lane).await, [], "{lane}");
    }
}

/// Said again, since nobody knew whether it had been heard: the copy is there once.
#[tokio::test]
async fn a_move_that_is_said_twice_leaves_one_copy() {
    let queue = Queue::open("twice", |queue| queue).await;
    queue.publish("order 7").await;
    let got = queue.one(Lane::Main).await;
    for _ in 0..2 {
        within(got.settle(&dead(1))).await.unwrap();
    }
    assert_eq!(queue.stored("dead").await.len(), 1);
}

#[tokio::test]
async fn q1_a_redrive_changes_nothing_but_its_number_and_its_owner() {
    let queue = Queue::open("redrive", |queue| queue).await;
    let mut headers = HeaderMap::new();
    headers.insert("ce-id", "7");
    headers.insert("ce-expirytime", "2031-01-31T12:00:00+01:00"); // not as we would write it
    headers.insert("Deadline-Owner", "payments");
    headers.append("X-Twice", "one");
    headers.append("X-Twice", "two");
    let sent = of_its_own(&headers);
    queue
        .context
        .publish_with_headers(format!("{}.main", queue.name), headers, "body".into())
        .await
        .unwrap()
        .await
        .unwrap();
    for redrives in 1..=2 {
        within(queue.one(Lane::Main).await.settle(&dead(5))).await.unwrap();
        let dead = queue.one(Lane::Dead).await;
        let stamp = Stamp { redrives, owner: Some("orders".into()), ..dead.message().stamp.clone() };
        within(dead.settle(&Settle::Redrive(stamp))).await.unwrap();
        assert_eq!(queue.stored("dead").await, []);
        let stored = of_its_own(&queue.stored("main").await[0].0);
        let mut want: Vec<_> = sent.iter().filter(|(name, _)| name != "Deadline-Owner").cloned().collect();
        want.push(("deadline-owner".to_owned(), "orders".to_owned()));
        want.push(("deadline-redrives".to_owned(), redrives.to_string()));
        want.sort();
        assert_eq!(stored, want);
    }
    assert_eq!(queue.one(Lane::Main).await.attempt(), 1, "as if it had never been delivered");
}

#[tokio::test]
async fn people_on_call_see_what_is_there_and_take_nothing() {
    let queue = Queue::open("inspect", |queue| queue).await;
    let sees = async |lane: Lane| {
        let depth = within(queue.nats.depth(lane)).await.unwrap();
        (depth.waiting.unwrap(), depth.in_flight.unwrap(), depth.came.unwrap(), depth.went.unwrap())
    };
    let mut ids = Vec::new();
    for body in ["a", "b", "c", "d", "e"] {
        ids.push(queue.publish(body).await.id);
    }
    assert_eq!(sees(Lane::Main).await, (5, 0, 5, 0));
    let peeked = |messages: Vec<Message>| messages.into_iter().map(|message| message.id).collect::<Vec<_>>();
    assert_eq!(peeked(within(queue.nats.peek(Lane::Main, 3)).await.unwrap()), ids[..3]);
    assert_eq!(peeked(within(queue.nats.peek(Lane::Main, 100)).await.unwrap()), ids);

    let got = within(queue.nats.receive(Lane::Main, 3)).await.unwrap();
    assert_eq!(got.iter().map(|got| got.message().id.clone()).collect::<Vec<_>>(), ids[..3], "a look took one");
    assert_eq!(sees(Lane::Main).await, (2, 3, 5, 0));
    within(got[0].settle(&Settle::Gone)).await.unwrap();
    within(got[1].settle(&Settle::Again { after: secs(60), counted: true })).await.unwrap();
    within(got[2].settle(&dead(1))).await.unwrap();
    assert_eq!(sees(Lane::Main).await, (3, 0, 5, 3), "one of those that wait comes again later");
    assert_eq!(sees(Lane::Dead).await, (1, 0, 1, 0));
    let dead = within(queue.nats.peek(Lane::Dead, 9)).await.unwrap();
    let reason = dead[0].fields.iter().find(|(name, _)| &**name == "deadline-dead-reason");
    assert_eq!((&dead[0].id, reason.map(|(_, value)| &**value)), (&ids[2], Some("expired")));
    assert_eq!(within(queue.nats.peek(Lane::Late, 9)).await.unwrap().len(), 0);
}
