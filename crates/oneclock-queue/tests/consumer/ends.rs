//! Every delivery has one end, with a reason (contract Q4, Q5).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use oneclock::Effect;
use oneclock::events::Delivery;
use oneclock_core::expiry::{Attempts, Why, names};
use oneclock_queue::{Broker as _, Delivery as _, JobError, Lane, MemoryBroker, Producer, Uncertainty, Work};

use super::support::{HALF, consume, ms, secs};

fn producer(broker: &MemoryBroker) -> Producer<MemoryBroker> {
    Producer::new("shop", broker.clone()).uncertainty(Uncertainty::assumed(ms(10)))
}

async fn put(broker: &MemoryBroker, id: &str, work: Work) {
    producer(broker).accept(work.id(id)).await.unwrap();
}

/// Work whose end is `past` seconds ago, or still to come: as a producer sees it whose message waited.
fn stranger(broker: &MemoryBroker, id: &str, policy: &str, owner: Option<&str>, ends_in: i64) {
    let now = i64::try_from(oneclock::clock::wall().as_nanos() / 1_000_000).unwrap();
    let expires = oneclock_core::wire::utc(u64::try_from(now + ends_in).unwrap());
    let mut fields =
        vec![("ce-id", id), ("ce-type", "charge"), ("ce-expirytime", expires.as_str()), (names::POLICY, policy)];
    if let Some(owner) = owner {
        fields.push((names::OWNER, owner));
    }
    broker.put(&fields, "order 7");
}

#[tokio::test(start_paused = true)]
async fn q5_expired_work_ends_as_its_contract_says_and_no_effect_of_it_begins() {
    let broker = MemoryBroker::new("orders");
    stranger(&broker, "discard", "discard", None, -5_000);
    stranger(&broker, "dead", "dead-letter", None, -5_000);
    stranger(&broker, "must", "must-complete", Some("payments"), -5_000);
    stranger(&broker, "live", "discard", None, 60_000);
    let ran = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = ran.clone();
    let handler = move |job: oneclock_queue::Job| {
        let seen = seen.clone();
        async move {
            job.before_effect()?;
            seen.lock().unwrap().push((job.message().id.to_string(), job.is_late()));
            Ok(())
        }
    };
    let ends = consume(
        &broker,
        |builder| builder,
        handler,
        |ends| ends.all().iter().filter(|end| end.end.is_final()).count() == 4,
    )
    .await;
    assert_eq!(ends.of("discard"), [Delivery::Discarded(Why::Expired)]);
    assert_eq!(ends.of("dead"), [Delivery::DeadLettered(Why::Expired)]);
    assert_eq!(ends.of("must"), [Delivery::MovedLate, Delivery::Done { late: true }]);
    assert_eq!(ends.of("live"), [Delivery::Done { late: false }]);
    let mut ran = ran.lock().unwrap().clone();
    ran.sort();
    assert_eq!(ran, [("live".to_owned(), false), ("must".to_owned(), true)]);
    let dead = broker.kept(Lane::Dead);
    assert!(dead[0].fields.contains(&(names::DEAD_REASON.to_owned(), "expired".to_owned())), "{dead:?}");
    assert!(ends.all().iter().any(|end| end.owner.as_deref() == Some("payments")), "whoever is told can be found");
}

/// Not a wait of ours but of the wall clock: expiry is a moment of it, and virtual time does not move it.
#[tokio::test]
async fn q4_in_the_uncertain_zone_nothing_is_discarded_and_nothing_begins() {
    let broker = MemoryBroker::new("orders");
    stranger(&broker, "discard", "discard", None, 100); // within half a second: uncertain
    stranger(&broker, "dead", "dead-letter", None, 100);
    let ran = Arc::new(AtomicU32::new(0));
    let seen = ran.clone();
    let handler = move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
        async { Ok(()) }
    };
    let ends = consume(
        &broker,
        |builder| builder,
        handler,
        |ends| ends.all().iter().filter(|end| end.end.is_final()).count() == 2,
    )
    .await;
    assert_eq!(ends.of("discard"), [Delivery::Held, Delivery::Discarded(Why::Expired)]);
    assert_eq!(ends.of("dead"), [Delivery::DeadLettered(Why::ExpiryUncertain)]);
    assert_eq!(ran.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn what_fails_before_an_effect_is_tried_again_and_then_somebody_looks() {
    let broker = MemoryBroker::new("orders");
    put(&broker, "fails", Work::new("charge", "7").never_expires()).await;
    let handler = |_| async { Err(JobError::from(std::io::Error::other("the card service is down"))) };
    let attempts = Attempts { at_most: 3, first_wait: secs(1), longest_wait: secs(60) };
    let ends = consume(&broker, |builder| builder.attempts(attempts), handler, |ends| ends.all().len() == 3).await;
    assert_eq!(ends.words(), ["given_back", "given_back", "dead_lettered attempts_exhausted"]);
    let dead = &broker.kept(Lane::Dead)[0];
    assert!(dead.fields.contains(&(names::DEAD_DETAIL.to_owned(), "the card service is down".to_owned())), "{dead:?}");
    assert!(dead.fields.contains(&(names::DEAD_ATTEMPTS.to_owned(), "3".to_owned())), "{dead:?}");
}

#[tokio::test(start_paused = true)]
async fn what_fails_after_an_effect_may_have_happened_and_is_not_done_again_by_itself() {
    for (effect, want) in [
        (Effect::Once, vec!["dead_lettered outcome_unknown"]),
        (Effect::Idempotent, vec!["given_back", "dead_lettered attempts_exhausted"]),
    ] {
        let broker = MemoryBroker::new("orders");
        put(&broker, "half", Work::new("charge", "7").never_expires()).await;
        let handler = |job: oneclock_queue::Job| async move {
            job.before_effect()?;
            Err(JobError::from(std::io::Error::other("no answer")))
        };
        let attempts = Attempts { at_most: 2, ..Attempts::default() };
        let n = want.len();
        let ends = consume(
            &broker,
            |builder| builder.attempts(attempts).effect(effect),
            handler,
            |ends| ends.all().len() == n,
        )
        .await;
        assert_eq!(ends.words(), want);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_and_a_rejection_are_ends_too() {
    let broker = MemoryBroker::new("orders");
    put(&broker, "panics", Work::new("charge", "7").never_expires()).await;
    put(&broker, "rejects", Work::new("charge", "8").never_expires()).await;
    let handler = |job: oneclock_queue::Job| async move {
        job.before_effect()?;
        if &*job.message().id == "rejects" {
            return Err(JobError::rejected("no such order"));
        }
        panic!("a mistake of the handler's");
    };
    let ends = consume(&broker, |builder| builder, handler, |ends| ends.all().len() == 2).await;
    assert_eq!(ends.of("panics"), [Delivery::DeadLettered(Why::OutcomeUnknown)]);
    assert_eq!(ends.of("rejects"), [Delivery::DeadLettered(Why::Rejected)]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_cut_off_at_its_limit_and_at_the_end_of_its_works_life() {
    let broker = MemoryBroker::new("orders");
    put(&broker, "limit", Work::new("charge", "7").never_expires()).await;
    put(&broker, "life", Work::new("charge", "8").expires_in(secs(8))).await;
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let keeps = seen.clone();
    let handler = move |job: oneclock_queue::Job| {
        keeps.lock().unwrap().push((job.message().id.to_string(), job.operation().bound().by));
        async move {
            std::future::pending::<()>().await;
            Ok(())
        }
    };
    let attempts = Attempts { at_most: 1, ..Attempts::default() };
    let ends =
        consume(&broker, |builder| builder.limit(secs(20)).attempts(attempts), handler, |ends| ends.all().len() == 2)
            .await;
    let elapsed = |id: &str| ends.all().iter().find(|end| &*end.id == id).unwrap().elapsed;
    assert!(elapsed("limit") >= secs(20) && elapsed("limit") < secs(21), "{:?}", elapsed("limit"));
    assert!(elapsed("life") >= secs(7) && elapsed("life") < secs(8), "{:?}", elapsed("life"));
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(seen, [("life".to_owned(), oneclock::BoundBy::Expiry), ("limit".to_owned(), oneclock::BoundBy::Cap)]);
}

/// Whatever other producers write, the message ends, and its end is counted.
#[tokio::test(start_paused = true)]
async fn messages_of_strangers_have_a_defined_end() {
    type Case = (&'static [(&'static str, &'static str)], &'static str);
    let cases: [Case; 9] = [
        (&[], "done"),
        (&[("expires", "2035-01-01T00:00:00+00:00")], "done"),
        (&[("expires", "2035-01-01T00:00:00.123456")], "dead_lettered expiry_unreadable"), // a naive time
        (&[("expires", "null")], "done"),
        (&[("JMSExpiration", "0")], "done"),
        (&[("JMSExpiration", "1769860810")], "dead_lettered expiry_unreadable"), // seconds for milliseconds
        (&[("ce-expirytime", "1769860810000")], "dead_lettered expiry_unreadable"),
        (&[("ce-expirytime", "2020-01-01T00:00:00Z"), ("JMSExpiration", "2051222400000")], "dead_lettered expired"), // the earliest
        (&[("deadline-policy", "must-complete"), ("ce-expirytime", "soon")], "done"),
    ];
    for (fields, want) in cases {
        let broker = MemoryBroker::new("orders");
        broker.put(fields, "whatever");
        let ends = consume(&broker, |builder| builder, |_| async { Ok(()) }, |ends| !ends.all().is_empty()).await;
        assert_eq!(ends.words(), [want], "{fields:?}");
    }
}

/// Also of its last attempt: a shutdown is nothing against it.
#[tokio::test(start_paused = true)]
async fn a_shutdown_gives_back_what_had_no_effect_yet() {
    for at_most in [1, 5] {
        let broker = MemoryBroker::new("orders");
        put(&broker, "long", Work::new("charge", "7").never_expires()).await;
        let began = Arc::new(tokio::sync::Notify::new());
        let tells = began.clone();
        let (ends, shutdown) = (Arc::new(super::support::Ends::default()), oneclock::Shutdown::new());
        let consumer = oneclock_queue::Consumer::builder(broker.clone())
            .uncertainty(Uncertainty::assumed(HALF))
            .attempts(Attempts { at_most, ..Attempts::default() })
            .observed_by(ends.clone())
            .build(move |_| {
                let tells = tells.clone();
                async move {
                    tells.notify_one();
                    std::future::pending::<()>().await;
                    Ok(())
                }
            })
            .unwrap();
        let (consumed, ()) = tokio::join!(consumer.run(&shutdown), async {
            began.notified().await;
            shutdown.drain(secs(1)).await;
        });
        assert_eq!((ends.words(), consumed.given_back), (vec!["given_back".to_owned()], 1), "of {at_most} attempts");
        let again = broker.receive(Lane::Main, 1).await.unwrap();
        assert_eq!((again[0].attempt(), again[0].may_have_run()), (1, false));
    }
}

/// What needs a few minutes to come back leaves no dead letters.
#[tokio::test(start_paused = true)]
async fn an_outage_of_some_minutes_is_outlived() {
    let broker = MemoryBroker::new("orders");
    put(&broker, "one", Work::new("charge", "7").never_expires()).await;
    let back = oneclock::clock::now() + secs(4 * 60);
    let handler = move |_| async move {
        if oneclock::clock::now() < back {
            return Err(JobError::from(std::io::Error::other("the card service is down")));
        }
        Ok(())
    };
    let ends =
        consume(&broker, |builder| builder, handler, |ends| ends.all().iter().any(|end| end.end.is_final())).await;
    assert_eq!(ends.of("one").last(), Some(&Delivery::Done { late: false }), "{:?}", ends.words());
}
