//! A queue that takes nothing, and one that takes something and does not say so.

use std::sync::{Arc, Mutex};

use oneclock_core::Name;
use oneclock_idempotency::MemoryStore;
use oneclock_queue::{Broker, BrokerError, Lane, MemoryBroker, MemoryDelivery, Message};

use crate::jobs_rules::Shop;

/// What it does with the next messages.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Takes,
    Refuses,
    Loses,         // and does not say so
    TakesSilently, // the confirmation is lost
}

#[derive(Clone)]
struct Moody {
    inner: MemoryBroker,
    mood: Arc<Mutex<Mood>>,
}

impl Moody {
    fn new(mood: Mood) -> Self {
        Self { inner: MemoryBroker::new("jobs"), mood: Arc::new(Mutex::new(mood)) }
    }

    fn now(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn ids(&self) -> Vec<String> {
        self.inner.kept(Lane::Main).iter().map(|kept| kept.message.id.to_string()).collect()
    }
}

impl Broker for Moody {
    type Delivery = MemoryDelivery;

    fn name(&self) -> &Name {
        self.inner.name()
    }

    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        let mood = *self.mood.lock().unwrap();
        if matches!(mood, Mood::Takes | Mood::TakesSilently) {
            self.inner.publish(message).await?;
        }
        match mood {
            Mood::Takes => Ok(()),
            Mood::Refuses => Err(BrokerError::rejected(self.name(), "a message was refused", "the queue is full")),
            Mood::Loses | Mood::TakesSilently => {
                Err(BrokerError::unknown(self.name(), "no confirmation", "reset by peer"))
            }
        }
    }

    async fn receive(&self, lane: Lane, at_most: usize) -> Result<Vec<MemoryDelivery>, BrokerError> {
        self.inner.receive(lane, at_most).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q6_what_the_queue_refused_was_not_accepted_and_may_be_asked_for_again() {
    let queue = Moody::new(Mood::Refuses);
    let shop = Shop::open(queue.clone(), MemoryStore::new(), ()).await;
    let told = shop.post("tap-7", "do", "").await;
    assert_eq!((told.status, &told.body["type"]), (503, &"urn:oneclock:not_published".into()), "{told:?}");
    assert_eq!(told.header("retry-after"), "1");
    queue.now(Mood::Takes);
    // Nobody knows the address yet; it is the same for who asks again.
    let location = shop.post("tap-7", "do", "").await.location();
    queue.now(Mood::Refuses);
    let told = shop.post("tap-7", "do", "").await;
    assert_eq!(told.status, 503);
    assert_eq!(shop.get(&location, "").await.body["state"], "queued", "the one before is in the queue");
    shop.consume();
    shop.until(&location, &["completed"]).await;
    assert_eq!(shop.effects(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_refused_is_not_shown_as_queued() {
    let queue = Moody::new(Mood::Takes);
    let shop = Shop::open(queue.clone(), MemoryStore::new(), ()).await;
    // The address of a job is made from what asks for it, so that of the second key is learnt from a store that knows both.
    let location = shop.post("tap-7", "refuse", "").await.location();
    shop.consume();
    shop.until(&location, &["failed_retryable"]).await;
    queue.now(Mood::Refuses);
    assert_eq!(shop.post("tap-7", "refuse", "").await.status, 503);
    let told = shop.get(&location, "").await.body;
    assert_eq!(
        (&told["state"], &told["problem"]["type"]),
        (&"failed_retryable".into(), &"urn:oneclock:not_published".into())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q6_what_may_be_in_the_queue_stays_queued_and_is_one_job_when_asked_for_again() {
    for mood in [Mood::Loses, Mood::TakesSilently] {
        let queue = Moody::new(mood);
        let shop = Shop::open(queue.clone(), MemoryStore::new(), ()).await;
        let told = shop.post("tap-7", "do", "").await;
        assert_eq!((told.status, told.header("retry-after")), (503, ""), "{told:?}");
        assert!(told.body["detail"].as_str().is_some_and(|detail| detail.contains("is not known")), "{told:?}");
        queue.now(Mood::Takes);
        let location = shop.post("tap-7", "do", "").await.location();
        let ids = queue.ids();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}: a broker that knows ids keeps one");
        assert_eq!(ids.len(), if mood == Mood::Loses { 1 } else { 2 });
        shop.consume();
        shop.until(&location, &["completed"]).await;
        shop.until(&shop.post("tap-8", "do", "").await.location(), &["completed"]).await;
        assert_eq!(shop.effects(), 2, "{mood:?}");
    }
}
