//! What is refused before it is published (contract Q3, Q6).

use std::time::Duration;

use oneclock::{Operation, Outcome};
use oneclock_core::expiry::{NotAccepted, Policy};
use oneclock_queue::{Lane, MemoryBroker, NotPublished, Producer, Uncertainty, Work};

use super::support::{ms, secs};

fn producer() -> (MemoryBroker, Producer<MemoryBroker>) {
    let broker = MemoryBroker::new("orders");
    (broker.clone(), Producer::new("shop", broker).uncertainty(Uncertainty::assumed(ms(100))))
}

#[tokio::test(start_paused = true)]
async fn q6_a_live_deadline_is_not_copied_onto_durable_work() {
    let (broker, producer) = producer();
    let order = Operation::begin("order", ms(800));
    for life in [order.remaining(), ms(300), ms(804)] {
        let error = order.run(producer.accept(Work::new("charge", "7").expires_in(life))).await.unwrap().unwrap_err();
        assert!(
            matches!(error, NotPublished::Refused { why: NotAccepted::LiveDeadline { .. }, .. }),
            "{life:?}: {error}"
        );
        assert_eq!(error.outcome(), Outcome::NotSent);
    }
    for field in ["x-request-deadline", "grpc-timeout", "X-Remaining-Ms"] {
        let work = Work::new("charge", "7").expires_in(secs(60)).field(field, "800m");
        let refused = order.run(producer.accept(work)).await.unwrap();
        let is_known = oneclock_core::wire::Conventions::default_set().find(&field.to_lowercase()).is_some();
        assert_eq!(matches!(refused, Err(NotPublished::BadField(_))), is_known, "{field}: {refused:?}");
    }
    let long = order.run(producer.accept(Work::new("charge", "7").expires_in(secs(60)))).await.unwrap();
    assert!(long.is_ok());
    order.call_off();
    assert!(broker.len(Lane::Main) >= 1, "the work outlives who asked for it");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_said_is_not_assumed() {
    let (broker, producer) = producer();
    let forgotten = producer.accept(Work::new("charge", "7")).await.unwrap_err();
    assert!(matches!(forgotten, NotPublished::NoExpiry { .. }), "{forgotten}");
    let expired = producer.accept(Work::new("charge", "7").expires_in(ms(90))).await.unwrap_err();
    assert!(matches!(expired, NotPublished::Refused { why: NotAccepted::Expired { .. }, .. }), "{expired}");
    for (name, value) in [("x", "a\r\nb: c"), ("", "a"), ("deadline-policy", "discard"), ("ce-id", "7"), ("a b", "c")] {
        let error = producer.accept(Work::new("charge", "7").never_expires().field(name, value)).await.unwrap_err();
        assert!(matches!(error, NotPublished::BadField(_)), "{name}: {error}");
    }
    let split = producer.accept(Work::new("charge", "7").never_expires().owner("a\r\ndeadline-policy: discard")).await;
    assert!(split.is_err());
    assert!(broker.is_empty(Lane::Main));
}

#[tokio::test(start_paused = true)]
async fn accepting_spends_the_budget_of_who_asks() {
    let (broker, producer) = producer();
    let order = Operation::begin("order", ms(3));
    let work = Work::new("charge", "7").expires_in(secs(60));
    let error = order.run(producer.accept(work)).await.unwrap().unwrap_err();
    assert!(matches!(error, NotPublished::Stopped(_)), "{error}");
    assert_eq!(error.outcome(), Outcome::NotSent);
    assert!(broker.is_empty(Lane::Main));
}

#[tokio::test(start_paused = true)]
async fn q1_what_was_said_is_in_the_message_as_it_was_said() {
    let (broker, producer) = producer();
    let work = Work::new("charge", "order 7")
        .expires_in(Duration::from_secs(86_400))
        .must_complete("payments@shop.example")
        .principal("customer 3")
        .key(oneclock_core::idempotency::Key::new("a \"strange\" key").unwrap())
        .field("traceparent", "00-1-2-01");
    let accepted = producer.accept(work).await.unwrap();
    let message = &broker.kept(Lane::Main)[0].message;
    assert_eq!(message.id, accepted.id);
    let millis = |wall: oneclock_core::wire::Wall| wall.as_nanos() / 1_000_000;
    assert_eq!(message.stamp.expires.at().map(millis), accepted.expires.map(millis));
    assert_eq!(
        (message.stamp.policy, message.stamp.owner.as_deref()),
        (Policy::MustComplete, Some("payments@shop.example"))
    );
    assert_eq!(message.stamp.key.as_ref().unwrap().as_str(), "a \"strange\" key");
    assert_eq!(message.stamp.uncertainty, ms(100));
    assert_eq!(message.principal.as_deref(), Some("customer 3"));
    assert_eq!(message.fields, [("traceparent".into(), "00-1-2-01".into())]);
    assert!(message.faults.is_empty(), "{:?}", message.faults);
}
