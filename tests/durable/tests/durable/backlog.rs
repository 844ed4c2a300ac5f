//! A backlog with mixed expiries and a slow consumer (contract Q3, Q4, Q5): no effect of expired work begins, everything has one end
//! with a reason, what must be completed is, and the sum of ends is the sum of sends.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use oneclock::Shutdown;
use oneclock::events::Delivery;
use oneclock_core::expiry::{Policy, Why};
use oneclock_core::wire::Wall;
use oneclock_queue::{Broker, Consumer, Inspect, Job, Lane, Producer, Uncertainty, Work};

use crate::over_every_queue;
use crate::witness::{OURS, Witness};

const MESSAGES: usize = 10_000;

struct Sent {
    id: String,
    policy: Policy,
    expires: Wall,
}

async fn nothing_expired_begins_and_all_is_accounted_for<B: Inspect>(broker: B) {
    let producer = Producer::new("shop", broker.clone()).uncertainty(Uncertainty::assumed(OURS));
    let sent: Vec<Sent> = stream::iter(0..MESSAGES).map(|n| send(&producer, n)).buffer_unordered(64).collect().await;

    let (witness, shutdown) = (Witness::new(), Shutdown::new());
    let sees = Arc::clone(&witness);
    let consumer = Consumer::builder(broker.clone())
        .uncertainty(Uncertainty::assumed(OURS))
        .observed_by(witness.clone())
        .places(16)
        .late_places(4)
        .limit(Duration::from_secs(20))
        .build(move |job: Job| {
            let sees = Arc::clone(&sees);
            async move {
                tokio::time::sleep(Duration::from_millis(3)).await; // slow: that is the point
                job.before_effect()?;
                sees.effect(&job.message().id);
                Ok(())
            }
        })
        .unwrap();
    let through = async {
        witness.wait_until_through(MESSAGES, Duration::from_secs(240)).await;
        shutdown.drain(Duration::from_secs(10)).await;
    };
    tokio::join!(consumer.run(&shutdown), through);

    let mut sums = Sums::default();
    for message in &sent {
        sums.add(message, &witness);
    }
    assert_eq!(sums.done + sums.late + sums.discarded + sums.dead, MESSAGES, "{:?}", witness.tally());
    // Each of them happened, so that this test shows something.
    assert!(sums.done > 0 && sums.late > 0 && sums.discarded > 0 && sums.dead > 0, "{:?}", witness.tally());
    let dead = broker.depth(Lane::Dead).await.unwrap().waiting.unwrap();
    assert_eq!(usize::try_from(dead).unwrap(), sums.dead, "what somebody has to look at is there");
    println!("{MESSAGES} messages: {:?}", witness.tally());
}

async fn send<B: Broker>(producer: &Producer<B>, n: usize) -> Sent {
    // Lives of one and a half to fourteen seconds, or of an hour, in no order.
    let life = match n * 7919 % 10 {
        0..5 => Duration::from_secs(3_600),
        _ => Duration::from_millis(1_500 + (n * 104_729 % 12_500) as u64),
    };
    let policy = Policy::ALL[n % 3];
    let work = Work::new("confirm", format!("order {n}")).id(format!("n{n}")).expires_in(life);
    let work = match policy {
        Policy::Discard => work.discard(),
        Policy::DeadLetter => work.dead_letter(),
        Policy::MustComplete => work.must_complete("payments"),
    };
    let accepted = producer.accept(work).await.unwrap();
    Sent { id: accepted.id.to_string(), policy, expires: accepted.expires.unwrap() }
}

#[derive(Default)]
struct Sums {
    done: usize,
    late: usize,
    discarded: usize,
    dead: usize,
}

impl Sums {
    fn add(&mut self, message: &Sent, witness: &Witness) {
        let Sent { id, policy, expires } = message;
        let (ends, effects) = (witness.ends_of(id), witness.effects_of(id));
        let last: Vec<Delivery> = ends.iter().copied().filter(|end| end.is_final()).collect();
        let [last] = last[..] else { panic!("{id} ({policy}) has not one end: {ends:?}") };
        match (policy, last) {
            (_, Delivery::Done { late: false }) => {
                self.done += 1;
                assert_eq!(effects.len(), 1, "{id}: {ends:?}");
                // Written down a little after it was allowed, by this machine's own clock.
                assert!(*policy == Policy::MustComplete || effects[0] < *expires, "{id} began after its end: {ends:?}");
            }
            (Policy::MustComplete, Delivery::Done { late: true }) => {
                self.late += 1;
                assert_eq!(effects.len(), 1, "{id}: {ends:?}");
                assert_eq!(witness.owner_of(id).as_deref(), Some("payments"), "somebody can be told");
            }
            (Policy::Discard, Delivery::Discarded(Why::Expired)) => {
                self.discarded += 1;
                assert!(effects.is_empty(), "{id}: {ends:?}");
            }
            (
                Policy::DeadLetter,
                Delivery::DeadLettered(Why::Expired | Why::ExpiryUncertain | Why::InsufficientBudget),
            ) => {
                self.dead += 1;
                assert!(effects.is_empty(), "{id}: {ends:?}");
            }
            (policy, end) => panic!("{id} ({policy}) ended as {end}: {ends:?}"),
        }
    }
}

over_every_queue!(nothing_expired_begins_and_all_is_accounted_for);
