//! A consumer over RabbitMQ: stopped, cut off, and with messages that nobody can tell apart.

use std::sync::{Arc, Mutex};

use oneclock::Shutdown;
use oneclock::events::{Delivered, Delivery as Told, Event, Observer};
use oneclock_core::expiry::Stop;
use oneclock_queue::rabbitmq::{QueueKind, RabbitMq};
use oneclock_queue::{Broker as _, Consumer, Delivery as _, Inspect as _, Job, Lane, Settle};
use tokio::sync::{Notify, oneshot};

use crate::stopping;
use crate::support::{Own, Relay, address, ms, order, port, soon};

/// What became of each delivery.
#[derive(Default)]
struct Ends(Mutex<Vec<Delivered>>);

impl Observer for Ends {
    fn on(&self, event: &Event<'_>) {
        if let Event::Delivered(delivered) = event {
            self.0.lock().unwrap().push((*delivered).clone());
        }
    }
}

impl Ends {
    fn all(&self) -> Vec<Told> {
        self.0.lock().unwrap().iter().map(|delivered| delivered.end).collect()
    }
}

async fn stopped(kind: QueueKind) {
    let own = Own::with("stopped", |builder| builder.kind(kind)).await;
    let another = async || soon(RabbitMq::builder(address(), own.name.clone()).kind(kind).build()).await.unwrap();
    stopping::what_nobody_had_begun_comes_again_as_it_came(another().await, another().await).await;
    assert_eq!(soon(own.queue.depth(Lane::Dead)).await.unwrap().waiting, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_had_begun_when_a_consumer_stopped_comes_again_as_it_came() {
    stopped(QueueKind::Quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_classic_queue_gives_it_back_as_well() {
    stopped(QueueKind::Classic).await;
}

#[tokio::test]
async fn what_was_sent_ahead_is_returned_to_whoever_stops() {
    for kind in [QueueKind::Quorum, QueueKind::Classic] {
        let own = Own::with("ahead", |builder| builder.kind(kind).prefetch(32)).await;
        stopping::what_was_sent_ahead_is_returned_to_whoever_stops(own.queue.clone()).await;
    }
}

#[tokio::test]
async fn after_a_stop_it_is_received_again() {
    let own = Own::new("again").await;
    soon(own.queue.publish(&order("x"))).await.unwrap();
    let held = own.one(Lane::Main).await;
    assert!(soon(own.queue.receive_until(Lane::Main, 1, std::future::ready(()))).await.unwrap().is_empty());
    soon(own.queue.publish(&order("y"))).await.unwrap();
    let next = own.one(Lane::Main).await;
    soon(held.settle(&Settle::Gone)).await.unwrap(); // its channel stands
    soon(next.settle(&Settle::Gone)).await.unwrap();
    assert_eq!((&*next.message().body, own.raw("").await.is_none()), (&b"y"[..], true));
}

/// No more is sent than is worked on, so that nobody else waits for what stands in this process.
#[tokio::test]
async fn a_broker_is_not_sent_ahead_of_the_places() {
    let own = Own::new("places").await;
    own.queue.expect(Lane::Main, 2);
    for n in 0..10 {
        soon(own.queue.publish(&order(&n.to_string()))).await.unwrap();
    }
    let mut held = Vec::new();
    while held.len() < 2 {
        held.extend(soon(own.queue.receive(Lane::Main, 9)).await.unwrap());
    }
    assert!(tokio::time::timeout(ms(100), own.queue.receive(Lane::Main, 9)).await.is_err());
    assert_eq!(held.len(), 2);
}

/// The connection breaks while a handler runs: no step of it begins any more, and it is stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_connection_broke_begins_no_effect_and_is_stopped() {
    let relay = Relay::to(port()).await;
    let own = Own::at(&relay.address(), &address(), "cut", |builder| builder).await;
    soon(own.queue.publish(&order("x"))).await.unwrap();
    let (ends, shutdown) = (Arc::new(Ends::default()), Shutdown::new());
    let (begun, (stopped, is_stopped)) = (Arc::new(Notify::new()), oneshot::channel::<Stop>());
    let tells = (Arc::clone(&begun), Mutex::new(Some(stopped)));
    /// Told when its handler is gone, with what the job says of itself then.
    struct Gone(Job, Option<oneshot::Sender<Stop>>);
    impl Drop for Gone {
        fn drop(&mut self) {
            if let (Err(stop), Some(stopped)) = (self.0.before_effect(), self.1.take()) {
                let _ = stopped.send(stop);
            }
        }
    }
    let consumer = Consumer::builder(own.queue.clone()).observed_by(ends.clone()).build(move |job: Job| {
        let gone = Gone(job, tells.1.lock().unwrap().take());
        tells.0.notify_one();
        async move {
            let _gone = gone;
            std::future::pending().await
        }
    });
    let consumer = consumer.unwrap();
    let cuts = async {
        begun.notified().await;
        relay.cut();
        let stop = is_stopped.await.expect("its handler is stopped, and may begin nothing");
        assert_eq!(stop, Stop::LeaseLost);
        shutdown.drain(ms(10)).await;
    };
    let (told, ()) = soon(async { tokio::join!(consumer.run(&shutdown), cuts) }).await;
    assert_eq!((ends.all(), told.lost), (vec![Told::LeaseLost], 1));
    relay.mend();
}

#[cfg(feature = "idempotency")]
mod keys {
    use oneclock_core::expiry::{Fault, Why};
    use oneclock_idempotency::MemoryStore;
    use oneclock_queue::rabbitmq::lapin::BasicProperties;

    use super::*;

    /// Two deliveries of it have nothing in common that a record could be kept under: it is done once, since how it was delivered
    /// tells that it may have been.
    #[tokio::test]
    async fn a_message_without_key_and_id_is_done_without_the_store_and_counted() {
        let own = Own::new("nameless").await;
        own.stranger(BasicProperties::default(), b"first").await;
        drop(own.one(Lane::Main).await); // somebody died over it
        own.stranger(BasicProperties::default(), b"second").await;
        let (ends, shutdown) = (Arc::new(Ends::default()), Shutdown::new());
        let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let sees = Arc::clone(&seen);
        let builder = Consumer::builder(own.queue.clone()).observed_by(ends.clone());
        let builder = builder.once(MemoryStore::new(), std::time::Duration::from_secs(3_600));
        let consumer = builder.build(move |job: Job| {
            assert!(job.fence().is_none());
            sees.lock().unwrap().push(job.body().to_vec());
            async { Ok(()) }
        });
        let consumer = consumer.unwrap();
        let both = async {
            crate::support::eventually("both have ended", || async { ends.all().len() == 2 }).await;
            shutdown.drain(ms(10)).await;
        };
        soon(async { tokio::join!(consumer.run(&shutdown), both) }).await;
        assert_eq!(*seen.lock().unwrap(), [b"second"]);
        assert!(ends.all().contains(&Told::DeadLettered(Why::OutcomeUnknown)), "{:?}", ends.all());
        assert!(ends.0.lock().unwrap().iter().all(|delivered| delivered.faults.contains(&Fault::KeyMissing)));
    }
}
