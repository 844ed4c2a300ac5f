//! Header fields: what came is there again, whatever was done with it, and whoever wrote it.

use oneclock::clock;
use oneclock_core::expiry::{Expires, Fault, Policy, Stamp, Unreadable, Why, redrive};
use oneclock_core::wire::Wall;
use oneclock_postgres::tokio_postgres::Client;
use oneclock_queue::{Broker as _, Delivery as _, Lane, NotSettled, Settle};

use crate::shop::{again, dead, expiring, field, message, next, queue};
use crate::support::{Database, ms};

async fn headers(outside: &Client) -> Vec<String> {
    outside.query_one("SELECT headers FROM oneclock_queue", &[]).await.unwrap().get(0)
}

/// What a service in another language writes, with fields that nobody here understands.
async fn stranger(outside: &Client, headers: &[&str], body: &[u8]) {
    let sql = "INSERT INTO oneclock_queue (queue, headers, body) VALUES ('jobs', $1, $2)";
    outside.execute(sql, &[&headers, &body]).await.unwrap();
}

#[tokio::test]
async fn q1_every_field_is_as_it_came_through_all_lanes_and_back() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue.poll(ms(20))).await;
    let outside = database.outside().await;
    let came = [
        "ce-id",
        "order-7",
        "ce-type",
        "confirm",
        "ce-expirytime",
        "2099-01-31T12:00:10.123456+01:00",
        "Deadline-Policy",
        "must-complete",
        "deadline-owner",
        "  payments@shop.example ",
        "X-Odd",
        "\u{e4}\u{1f980}\n\ttwo lines",
        "X-Odd",
        "",
        "",
        "without a name",
    ];
    stranger(&outside, &came, &[0, 159, 146, 150]).await;

    let first = next(&jobs, Lane::Main).await;
    let read = first.message();
    assert_eq!((&*read.id, read.kind.as_str(), &*read.body), ("order-7", "confirm", &[0, 159, 146, 150][..]));
    let expires = read.stamp.expires;
    assert!(matches!(expires, Expires::At(at) if at > Wall::from_nanos(4_000_000_000_000_000_000)), "{expires:?}");
    assert_eq!(field(read, "X-Odd").len(), 2);
    first.settle(&again(ms(0), true)).await.unwrap();
    assert_eq!(headers(&outside).await, came);

    next(&jobs, Lane::Main).await.settle(&Settle::Late).await.unwrap();
    assert_eq!(headers(&outside).await, came);
    next(&jobs, Lane::Late).await.settle(&dead(Why::AttemptsExhausted)).await.unwrap();
    assert_eq!(headers(&outside).await, came);

    for redrives in ["1", "2"] {
        let letter = next(&jobs, Lane::Dead).await;
        let read = letter.message();
        assert_eq!(read.stamp.expires, expires);
        assert_eq!(*field(read, "deadline-dead-reason"), ["attempts_exhausted".into()]);
        assert_eq!(*field(read, "deadline-dead-detail"), ["said so".into()]);
        assert_eq!(*field(read, "deadline-dead-attempts"), ["3".into()]);
        assert_eq!(field(read, "deadline-dead-at").len(), 1);
        let stamp = redrive(&read.stamp, Some(Why::AttemptsExhausted), None, false, clock::wall(), ms(500)).unwrap();
        assert_eq!((stamp.expires, stamp.redrives.to_string()), (expires, redrives.to_owned()));
        letter.settle(&Settle::Redrive(stamp)).await.unwrap();
        let kept = [&came[..8], &came[10..]].concat(); // all but the owner, who is said again
        let added = ["deadline-owner", "payments@shop.example", "deadline-redrives", redrives];
        assert_eq!(headers(&outside).await, [&kept[..], &added[..]].concat());
        let back = next(&jobs, Lane::Main).await;
        assert_eq!((back.attempt(), back.may_have_run()), (1, false));
        assert!(field(back.message(), "deadline-dead-reason").is_empty());
        back.settle(&dead(Why::AttemptsExhausted)).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_published_reads_back() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue).await;
    let mut sent = expiring(7, Policy::MustComplete, ms(60_000), ms(0));
    sent.content_type = Some("application/json".into());
    sent.fields.push(("traceparent".into(), "00-1-2-01".into()));
    jobs.publish(&sent).await.unwrap();
    let read = next(&jobs, Lane::Main).await;
    let read = read.message();
    assert_eq!((&read.id, &read.kind, &read.source, &read.body), (&sent.id, &sent.kind, &sent.source, &sent.body));
    assert_eq!((&read.content_type, &read.fields), (&sent.content_type, &sent.fields));
    let millis = |wall: Wall| wall.as_nanos() / 1_000_000;
    assert_eq!(read.stamp.expires.at().map(millis), sent.stamp.expires.at().map(millis));
    assert_eq!((read.stamp.policy, &read.stamp.owner), (Policy::MustComplete, &sent.stamp.owner));
    assert!(read.faults.is_empty(), "{:?}", read.faults);
}

#[tokio::test]
async fn a_strangers_message_is_delivered() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue).await;
    let outside = database.outside().await;
    stranger(&outside, &[], b"").await;
    stranger(&outside, &["expires", "1769860810", "deadline-policy", "discrad", "ce-id", ""], b"x").await;
    let received = jobs.receive(Lane::Main, 10).await.unwrap();
    let (bare, odd) = (received[0].message(), received[1].message());
    assert_eq!((&*bare.id, bare.kind.as_str()), (&*format!("jobs-{}", received[0].row()), "unknown"));
    assert_eq!((bare.stamp.expires, &bare.faults[..]), (Expires::Never, &[Fault::ExpiryMissing][..]));
    assert!(matches!(odd.stamp.expires, Expires::Unreadable(Unreadable::Malformed(_))));
    assert_eq!(odd.stamp.policy, Policy::DeadLetter);
    // The same however often it comes: it is what duplicates are known by.
    received[0].settle(&again(ms(0), true)).await.unwrap();
    assert_eq!(next(&jobs, Lane::Main).await.message().id, received[0].message().id);
}

#[tokio::test]
async fn what_could_not_be_read_is_refused_where_it_is_written() {
    let database = Database::new().await;
    queue(&database, |queue| queue).await;
    let outside = database.outside().await;
    for bad in ["ARRAY['a']", "ARRAY[['a', 'b']]", "ARRAY['a', NULL]"] {
        let sql = format!("INSERT INTO oneclock_queue (queue, headers) VALUES ('jobs', {bad})");
        assert!(outside.batch_execute(&sql).await.is_err(), "{bad}");
    }
    for bad in ["enqueued_at = 'infinity'", "dead_at = '-infinity'", "lane = 'mian'"] {
        stranger(&outside, &[], b"").await;
        assert!(outside.batch_execute(&format!("UPDATE oneclock_queue SET {bad}")).await.is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_dead_letter_is_put_back_once_and_by_who_has_it() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue).await;
    jobs.publish(&message(2)).await.unwrap();
    let held = next(&jobs, Lane::Main).await;
    let back = Settle::Redrive(Stamp { redrives: 1, owner: Some("shop".into()), ..Stamp::default() });
    assert!(matches!(held.settle(&back).await, Err(NotSettled::Lost)), "it is no dead letter");
    held.settle(&dead(Why::OutcomeUnknown)).await.unwrap();
    let letter = next(&jobs, Lane::Dead).await;
    letter.settle(&back).await.unwrap();
    assert!(matches!(letter.settle(&back).await, Err(NotSettled::Lost)), "once only");
    let again = next(&jobs, Lane::Main).await;
    assert_eq!((again.message().stamp.owner.as_deref(), again.message().stamp.redrives), (Some("shop"), 1));
}
