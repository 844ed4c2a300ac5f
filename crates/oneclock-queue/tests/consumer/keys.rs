//! Work under a key has one effect, however often it is delivered (contract M1 to M5).

#![cfg(feature = "idempotency")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use oneclock::events::Delivery;
use oneclock_core::expiry::Why;
use oneclock_core::idempotency::{Claim, Enqueue, Enqueued, Fence, Key, Record, Scope, State};
use oneclock_idempotency::{Found, Kept, MemoryStore, Settle, Settled, Store, StoreError, Which};
use oneclock_queue::{Broker, Job, JobError, Lane, MemoryBroker, Producer, Work, scope_of};

use super::support::{consume, secs};

const WEEK: Duration = Duration::from_secs(7 * 86_400);

async fn accept(broker: &MemoryBroker, id: &str, key: &str, body: &'static str) {
    let work = Work::new("charge", body).id(id).never_expires().key(Key::new(key).unwrap());
    Producer::new("shop", broker.clone()).accept(work).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_messages_with_one_key_have_one_effect() {
    let (broker, store) = (MemoryBroker::new("orders"), MemoryStore::new());
    accept(&broker, "one", "order-7", "7").await;
    accept(&broker, "two", "order-7", "7").await;
    accept(&broker, "other", "order-7", "8").await; // a key used for other work
    let effects = Arc::new(AtomicU32::new(0));
    let counts = effects.clone();
    let handler = move |job: Job| {
        let counts = counts.clone();
        async move {
            job.before_effect()?;
            counts.fetch_add(1, Ordering::Relaxed);
            assert!(job.fence().is_some());
            Ok(())
        }
    };
    let settings = |builder: oneclock_queue::ConsumerBuilder<MemoryBroker>| builder.places(1).once(store, WEEK);
    let ends = consume(&broker, settings, handler, |ends| ends.all().len() == 3).await;
    assert_eq!(effects.load(Ordering::Relaxed), 1);
    assert_eq!(ends.of("one"), [Delivery::Done { late: false }]);
    assert_eq!(ends.of("two"), [Delivery::Duplicate]);
    assert_eq!(ends.of("other"), [Delivery::DeadLettered(Why::KeyReused)]);
}

/// A consumer that dies after its effect and before its word: what it did is not known, and it is not done again.
#[tokio::test(start_paused = true)]
async fn m3_a_run_that_died_is_unknown_and_not_repeated() {
    let clock = Arc::new(std::sync::Mutex::new(oneclock::clock::wall()));
    let reads = clock.clone();
    let store = MemoryStore::with_clock(move || *reads.lock().unwrap());
    let broker = MemoryBroker::with_lease("orders", secs(3));
    accept(&broker, "one", "order-7", "7").await;
    // The first consumer, killed in the middle: its delivery and its record stay as they are.
    let message = broker.kept(Lane::Main)[0].message.clone();
    let scope = scope_of(broker.name(), &message).unwrap();
    let first = broker.receive(Lane::Main, 1).await.unwrap();
    let claim = Claim {
        fingerprint: oneclock_idempotency::fingerprint_of(&[b"charge", b"", b"7"]),
        owner: oneclock_core::idempotency::Owner(1),
        made: None,
        lease: secs(60),
        retention: WEEK,
        takeover: oneclock_core::idempotency::Takeover::Never,
    };
    store.claim(&scope, &claim).await.unwrap();
    drop(first);
    let later = clock.clone();
    let handler = |_| async { panic!("must not run") };
    let ends = consume(
        &broker,
        |builder| builder.once(store.clone(), WEEK),
        handler,
        move |ends| {
            if !ends.all().is_empty() {
                let mut now = later.lock().unwrap();
                *now = *now + secs(1); // the store's clock goes on, too
            }
            ends.all().iter().any(|end| end.end.is_final())
        },
    )
    .await;
    let ends = ends.of("one");
    assert_eq!(ends.first(), Some(&Delivery::GivenBack), "as long as its lease may be alive, nobody decides");
    assert_eq!(ends.last(), Some(&Delivery::DeadLettered(Why::OutcomeUnknown)));
}

#[tokio::test(start_paused = true)]
async fn m4_the_record_says_what_is_known() {
    for (begins, want) in
        [(false, State::FailedRetryable), (true, State::Unknown(oneclock_core::idempotency::Doubt::Failed))]
    {
        let (broker, store) = (MemoryBroker::new("orders"), MemoryStore::new());
        accept(&broker, "one", "order-7", "7").await;
        let scope = scope_of(broker.name(), &broker.kept(Lane::Main)[0].message).unwrap();
        let handler = move |job: Job| async move {
            if begins {
                job.before_effect()?;
            }
            Err(JobError::from(std::io::Error::other("no answer")))
        };
        consume(&broker, |builder| builder.once(store.clone(), WEEK), handler, |ends| !ends.all().is_empty()).await;
        assert_eq!(store.read(&scope).await.unwrap().unwrap().record.state, want);
    }
}

/// One that has expired says nothing of another under its key that lives.
#[tokio::test(start_paused = true)]
async fn what_was_discarded_is_not_done_for_its_twin() {
    let (broker, store) = (MemoryBroker::new("orders"), MemoryStore::new());
    let fields =
        [("ce-type", "charge"), ("ce-source", "shop"), ("idempotency-key", "order-7"), ("deadline-policy", "discard")];
    let expired = [("ce-id", "one"), ("ce-expirytime", "2020-01-01T00:00:00Z")];
    let lives = [("ce-id", "two"), ("ce-expirytime", "2099-01-01T00:00:00Z")];
    broker.put(&[&fields[..], &expired].concat(), "7");
    broker.put(&[&fields[..], &lives].concat(), "7");
    let scope = scope_of(broker.name(), &broker.kept(Lane::Main)[0].message).unwrap();
    let ask = Enqueue {
        fingerprint: oneclock_idempotency::fingerprint_of(&[b"charge", b"", b"7"]),
        owner: oneclock_core::idempotency::Owner(1),
        made: None,
        retention: WEEK,
    };
    store.enqueue(&scope, &ask).await.unwrap(); // as one that was accepted over HTTP
    let settings = |builder: oneclock_queue::ConsumerBuilder<MemoryBroker>| builder.places(1).once(store.clone(), WEEK);
    let ends = consume(&broker, settings, |_| async { Ok(()) }, |ends| ends.all().len() == 2).await;
    assert_eq!(ends.of("one"), [Delivery::Discarded(Why::Expired)]);
    assert_eq!(ends.of("two"), [Delivery::Done { late: false }]);
}

/// A store that does not answer until it is told to.
#[derive(Clone)]
struct Down(MemoryStore, Arc<AtomicBool>);

impl Down {
    fn asked(&self) -> Result<&MemoryStore, StoreError> {
        let within = secs(1);
        if self.1.load(Ordering::Relaxed) { Ok(&self.0) } else { Err(StoreError::TooSlow { within }) }
    }
}

impl Store for Down {
    async fn claim(&self, scope: &Scope, claim: &Claim) -> Result<Found, StoreError> {
        self.asked()?.claim(scope, claim).await
    }

    async fn enqueue(&self, scope: &Scope, ask: &Enqueue) -> Result<Enqueued, StoreError> {
        self.asked()?.enqueue(scope, ask).await
    }

    async fn settle(&self, scope: &Scope, fence: Fence, said: Settle) -> Result<Settled, StoreError> {
        self.asked()?.settle(scope, fence, said).await
    }

    async fn read(&self, scope: &Scope) -> Result<Option<Kept>, StoreError> {
        self.asked()?.read(scope).await
    }

    async fn list(
        &self,
        which: Which,
        after: Option<&Scope>,
        limit: usize,
    ) -> Result<Vec<(Scope, Record)>, StoreError> {
        self.asked()?.list(which, after, limit).await
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        self.asked()?.reap(limit).await
    }
}

/// Nothing runs, nothing counts as an attempt, and the queue is not turned over and over meanwhile.
#[tokio::test(start_paused = true)]
async fn m6_while_the_store_is_down_little_is_received_and_nothing_is_lost() {
    let (broker, store) = (MemoryBroker::new("orders"), Down(MemoryStore::new(), Arc::default()));
    for n in 0..20 {
        accept(&broker, &n.to_string(), &format!("order-{n}"), "7").await;
    }
    let (up, back) = (store.1.clone(), oneclock::clock::now() + secs(5 * 60));
    let first_attempt = |job: Job| async move {
        assert_eq!(job.attempt(), 1);
        Ok(())
    };
    let until = |ends: &super::support::Ends| {
        if oneclock::clock::now() >= back && !up.swap(true, Ordering::Relaxed) {
            let given_back = ends.all().len();
            assert!((4..30).contains(&given_back), "{given_back} deliveries in five minutes");
        }
        ends.all().iter().filter(|end| end.end == Delivery::Done { late: false }).count() == 20
    };
    let ends = consume(&broker, |builder| builder.once(store, WEEK), first_attempt, until).await;
    assert!(ends.all().iter().all(|end| matches!(end.end, Delivery::Done { .. } | Delivery::GivenBack)));
}
