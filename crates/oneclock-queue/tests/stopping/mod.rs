//! A consumer that is stopped while more is on its way than it has begun: the same over every broker.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::Shutdown;
use oneclock_queue::{Broker, Consumer, Delivery as _, Job, Lane, Message, Settle};
use tokio::sync::{Semaphore, watch};

/// Far beyond what anything here takes when it works.
const BOUND: Duration = Duration::from_secs(60);

/// How many messages there are.
const MANY: usize = 100;

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, what).await.expect("it did not happen in time")
}

async fn publish(broker: &impl Broker) {
    for n in 0..MANY {
        let mut message = Message::new("charge", "shop", n.to_string());
        message.id = format!("charge-{n}").into(); // its own, and no key
        soon(broker.publish(&message)).await.unwrap();
    }
}

/// Whoever may not do work twice does each of them once, however often its consumers are deployed anew: `first` is stopped in the middle
/// of two, and `second` does the rest.
pub(crate) async fn what_nobody_had_begun_comes_again_as_it_came<B: Broker>(first: B, second: B) {
    publish(&first).await;
    let done: Arc<Mutex<BTreeMap<String, Vec<u32>>>> = Arc::default();
    let (began, (go, goes)) = (Arc::new(Semaphore::new(0)), watch::channel(false));
    let consumer = |broker: B| {
        let (done, began, goes) = (Arc::clone(&done), Arc::clone(&began), goes.clone());
        let builder = Consumer::builder(broker).places(2);
        let built = builder.build(move |job: Job| {
            let (done, began, mut goes) = (Arc::clone(&done), Arc::clone(&began), goes.clone());
            async move {
                began.add_permits(1);
                goes.wait_for(|go| *go).await?;
                job.before_effect()?;
                let body = String::from_utf8(job.body().to_vec())?;
                done.lock().unwrap().entry(body).or_default().push(job.attempt());
                Ok(())
            }
        });
        built.unwrap()
    };
    let shutdown = Shutdown::new();
    let stopped = consumer(first);
    let stops = async {
        let _both = began.acquire_many(2).await.unwrap();
        shutdown.signal();
        go.send_replace(true);
        shutdown.drain(BOUND).await;
    };
    let (told, ()) = soon(async { tokio::join!(stopped.run(&shutdown), stops) }).await;
    drop(stopped); // and its connection
    let begun = done.lock().unwrap().len() as u64;
    assert_eq!((told.done, told.dead_lettered, told.lost), (begun, 0, 0), "{told:?}");

    let shutdown = Shutdown::new();
    let rest = consumer(second);
    let stops = async {
        let all = async {
            while done.lock().unwrap().len() < MANY {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let all = tokio::time::timeout(BOUND / 2, all).await;
        shutdown.drain(BOUND).await;
        all.is_ok()
    };
    let (told, all) = soon(async { tokio::join!(rest.run(&shutdown), stops) }).await;
    let done = done.lock().unwrap();
    assert!(all, "{} of {MANY} are done: {told:?}", done.len());
    assert!(done.values().all(|attempts| *attempts == [1]), "once, and at the first attempt: {done:?}");
    assert_eq!((told.dead_lettered, told.lost), (0, 0), "{told:?}");
}

/// What a broker has sent ahead is returned to whoever stops, and given back it is as if it had never been sent.
pub(crate) async fn what_was_sent_ahead_is_returned_to_whoever_stops<B: Broker>(broker: B) {
    publish(&broker).await;
    let mut held = soon(broker.receive(Lane::Main, 3)).await.unwrap();
    held.extend(soon(broker.receive_until(Lane::Main, 3, std::future::ready(()))).await.unwrap());
    for delivery in held {
        assert!(delivery.attempt() == 1 && !delivery.may_have_run());
        soon(delivery.settle(&Settle::Again { after: Duration::ZERO, counted: false })).await.unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < MANY {
        for delivery in soon(broker.receive(Lane::Main, MANY)).await.unwrap() {
            assert_eq!((delivery.attempt(), delivery.may_have_run()), (1, false), "{}", delivery.message().id);
            seen.insert(delivery.message().id.to_string());
            soon(delivery.settle(&Settle::Gone)).await.unwrap();
        }
    }
}
