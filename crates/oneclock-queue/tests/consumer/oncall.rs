//! What people on call do with a queue.

use oneclock::clock;
use oneclock_core::expiry::{NotRedriven, Policy, Why, Zone, names};
use oneclock_core::wire::utc;
use oneclock_queue::oncall::{DropDead, Ended, Redrive, drop_dead, expire, inspect, redrive};
use oneclock_queue::{Inspect, Lane, MemoryBroker, Uncertainty};

use super::support::{HALF, consume, ms};

fn stranger(broker: &MemoryBroker, id: &str, policy: &str, owner: Option<&str>, ends_in_millis: i64) {
    let now = i64::try_from(clock::wall().as_nanos() / 1_000_000).unwrap();
    let expires = utc(u64::try_from(now + ends_in_millis).unwrap());
    let mut fields =
        vec![("ce-id", id), ("ce-type", "charge"), ("ce-expirytime", expires.as_str()), (names::POLICY, policy)];
    fields.extend(owner.map(|owner| (names::OWNER, owner)));
    broker.put(&fields, "order 7");
}

/// A dead lane with one of each.
async fn dead_letters() -> MemoryBroker {
    let broker = MemoryBroker::new("orders");
    stranger(&broker, "live", "dead-letter", None, 3_600_000);
    stranger(&broker, "expired", "dead-letter", None, -5_000);
    stranger(&broker, "ownerless", "must-complete", None, -5_000);
    stranger(&broker, "owned", "must-complete", Some("payments"), -5_000);
    let handler = |_| async { Err(oneclock_queue::JobError::rejected("no such order")) };
    let ends = consume(
        &broker,
        |builder| builder,
        handler,
        |ends| ends.all().iter().filter(|end| end.end.is_final()).count() == 4,
    )
    .await;
    assert_eq!(broker.len(Lane::Dead), 4, "{:?}", ends.words());
    broker
}

#[tokio::test(start_paused = true)]
async fn q1_a_redrive_makes_nothing_fresh_again() {
    let broker = dead_letters().await;
    let all = Redrive { at_most: 100, ..Redrive::default() };
    let mut told: Vec<_> = redrive(&broker, &Uncertainty::assumed(HALF), &all, ms(100)).await.unwrap();
    told.sort_by(|a, b| a.0.id.cmp(&b.0.id));
    let told: Vec<_> =
        told.iter().map(|(message, result)| (&*message.id, result.clone().map(|stamp| stamp.redrives))).collect();
    assert_eq!(
        told,
        [
            ("expired", Err(NotRedriven::Expired(Policy::DeadLetter))),
            ("live", Ok(1)),
            ("owned", Ok(1)),
            ("ownerless", Err(NotRedriven::OwnerMissing)),
        ]
    );
    assert_eq!((broker.len(Lane::Main), broker.len(Lane::Dead)), (2, 2), "what is not put back stays");

    let named =
        Redrive { ids: vec!["ownerless".into()], owner: Some("payments".into()), at_most: 100, ..Redrive::default() };
    let told = redrive(&broker, &Uncertainty::assumed(HALF), &named, ms(100)).await.unwrap();
    assert_eq!(told[0].1.as_ref().unwrap().owner.as_deref(), Some("payments"));
    let back = broker.kept(Lane::Main);
    assert!(back.iter().all(|kept| kept.fields.iter().all(|(name, _)| !name.starts_with(names::DEAD))), "{back:?}");
    assert!(
        back.iter()
            .any(|kept| kept.message.stamp.owner.as_deref() == Some("payments") && &*kept.message.id == "ownerless")
    );
}

#[tokio::test(start_paused = true)]
async fn q5_what_has_expired_ends_without_a_consumer_and_the_rest_stays() {
    let broker = MemoryBroker::new("orders");
    stranger(&broker, "live", "discard", None, 3_600_000);
    stranger(&broker, "perhaps", "discard", None, 0);
    stranger(&broker, "discard", "discard", None, -5_000);
    stranger(&broker, "dead", "dead-letter", None, -5_000);
    stranger(&broker, "must", "must-complete", Some("payments"), -5_000);
    let ended = expire(&broker, &Uncertainty::assumed(HALF), 100, ms(100)).await.unwrap();
    let ended: Vec<_> = ended.iter().map(|(message, end)| (&*message.id, *end)).collect();
    assert_eq!(
        ended,
        [
            ("discard", Ended::Discarded(Why::Expired)),
            ("dead", Ended::DeadLettered(Why::Expired)),
            ("must", Ended::MovedLate),
        ]
    );
    assert_eq!(Lane::ALL.map(|lane| broker.len(lane)), [2, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_look_takes_nothing_and_says_who_owns_what() {
    let broker = dead_letters().await;
    let standing = inspect(&broker, &Uncertainty::assumed(HALF), 10, ms(0)).await.unwrap();
    let dead = &standing.lanes[2];
    assert_eq!((dead.lane, dead.depth.waiting), (Lane::Dead, Some(4)));
    let groups = dead.grouped();
    assert_eq!(groups[&("expired", Policy::MustComplete, "payments".to_owned(), "rejected")], 1, "{groups:?}");
    assert_eq!(groups[&("expired", Policy::DeadLetter, "-".to_owned(), "expired")], 1, "{groups:?}");
    assert!(dead.looked_at.iter().any(|seen| seen.zone == Zone::Live));
    assert_eq!(broker.len(Lane::Dead), 4);
}

/// A service may do what people on call do, on a task of its own.
#[tokio::test(start_paused = true)]
async fn it_may_be_done_on_a_task_whichever_broker_it_is() {
    async fn on_a_task<B: Inspect>(broker: B) -> usize {
        let work = async move {
            let (sure, all) = (Uncertainty::assumed(HALF), Redrive { at_most: 9, ..Redrive::default() });
            let ended = expire(&broker, &sure, 9, ms(100)).await.unwrap().len();
            let wanted = DropDead { reason: "a test".into(), at_most: 9, ..DropDead::default() };
            let back = redrive(&broker, &sure, &all, ms(100)).await.unwrap().len();
            ended + back + drop_dead(&broker, &wanted, ms(100)).await.unwrap().len()
        };
        tokio::spawn(work).await.unwrap()
    }
    assert_eq!(on_a_task(MemoryBroker::new("orders")).await, 0);
}
