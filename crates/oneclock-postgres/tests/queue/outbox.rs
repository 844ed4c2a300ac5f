//! The outbox: published with the work or not at all, and moved to another broker.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock_core::expiry::{Policy, Why};
use oneclock_core::{Name, Outcome};
use oneclock_postgres::{PgError, PgQueue, Pool, Relay, Relayed, Transaction};
use oneclock_queue::{Broker, BrokerError, Delivery as _, Lane, MemoryBroker, MemoryDelivery, Message, Uncertainty};
use tokio::sync::oneshot;

use crate::relay::Relay as Wire;
use crate::shop::{expiring, field, in_lane, message, next, queue, short, until_in_lane};
use crate::support::{BOUND, Database, ms, patient, rows, until};

/// A broker that remembers what it was given, in its order, and does as it is told.
#[derive(Clone)]
struct Target {
    inner: MemoryBroker,
    given: Arc<Mutex<Vec<String>>>,
    at_once: Arc<Mutex<HashMap<String, usize>>>,
    twice_at_once: Arc<AtomicUsize>,
    /// How many of the next it does not take, and what is known then.
    refuses: Arc<Mutex<(usize, Option<Outcome>)>>,
    takes: Duration,
}

struct Publishing<'a>(&'a Target, String);

impl Target {
    fn new(takes: Duration) -> Self {
        Self {
            inner: MemoryBroker::new("elsewhere"),
            given: Arc::default(),
            at_once: Arc::default(),
            twice_at_once: Arc::default(),
            refuses: Arc::default(),
            takes,
        }
    }

    fn given(&self) -> Vec<String> {
        self.given.lock().unwrap().clone()
    }

    async fn until_given(&self, many: usize) {
        until("what was published", async || self.given().len() >= many).await;
    }
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        *self.0.at_once.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

impl Broker for Target {
    type Delivery = MemoryDelivery;

    fn name(&self) -> &Name {
        self.inner.name()
    }

    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        let id = message.id.to_string();
        {
            let mut at_once = self.at_once.lock().unwrap();
            let many = at_once.entry(id.clone()).or_default();
            *many += 1;
            self.twice_at_once.fetch_add(usize::from(*many > 1), Ordering::SeqCst);
        }
        let _publishing = Publishing(self, id.clone());
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        let refuses = {
            let mut refuses = self.refuses.lock().unwrap();
            let outcome = refuses.1.filter(|_| refuses.0 > 0);
            refuses.0 = refuses.0.saturating_sub(1);
            outcome
        };
        if let Some(outcome) = refuses {
            let queue = self.name().clone();
            return Err(BrokerError { queue, what: "publish", outcome, source: "told so".into() });
        }
        self.given.lock().unwrap().push(id);
        self.inner.publish(message).await
    }

    async fn receive(&self, lane: Lane, at_most: usize) -> Result<Vec<MemoryDelivery>, BrokerError> {
        self.inner.receive(lane, at_most).await
    }
}

fn ids(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("id-{n}")).collect()
}

async fn orders(database: &Database) {
    database.outside().await.batch_execute("CREATE TABLE orders (n int PRIMARY KEY)").await.unwrap();
}

async fn order(jobs: &PgQueue, tx: &mut Transaction<'_>, n: i32) -> Result<(), PgError> {
    tx.execute("INSERT INTO orders VALUES ($1)", &[&n]).await?;
    jobs.publish_in(tx, &message(usize::try_from(n).unwrap())).await
}

#[tokio::test]
async fn it_is_published_with_the_work_or_not_at_all() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue).await;
    orders(&database).await;
    let pool = Pool::configured(database.config()).build().unwrap();
    let op = patient();
    let buys = |n| {
        pool.transaction_in(&op, "order", {
            let jobs = &jobs;
            async move |tx| order(jobs, tx, n).await
        })
    };
    buys(1).await.unwrap();
    buys(1).await.unwrap_err(); // rolled back
    let mut client = pool.get_in(&op, "order").await.unwrap();
    let mut left = client.begin().await.unwrap();
    order(&jobs, &mut left, 2).await.unwrap();
    assert_eq!(in_lane(&jobs, Lane::Main).await, 1, "nobody sees it before its commit");
    drop(left);
    drop(client);
    buys(3).await.unwrap();
    let published: Vec<_> = jobs.list(Lane::Main, 10).await.unwrap();
    let published: Vec<&str> = published.iter().map(|job| &*job.message.id).collect();
    assert_eq!(published, ["id-1", "id-3"]);
    assert_eq!(rows(&database.outside().await, "orders").await, 2);
}

/// The answer to COMMIT never comes: what is said of the order is true of its message as well, and there is one of it.
#[tokio::test]
async fn d5_after_a_lost_commit_there_is_one_message_or_none_and_that_is_what_is_said() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue).await;
    orders(&database).await;
    let outside = database.outside().await;
    let wire = Wire::to(&database.config()).await;
    let pool = Pool::configured(wire.through(&database.config())).size(1).commit_bound(ms(2_000)).build().unwrap();
    let op = patient();

    // Committed, and the server can be asked.
    let mut client = pool.get_in(&op, "order").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    order(&jobs, &mut tx, 1).await.unwrap();
    wire.set(|switches| &switches.swallows_answers, true);
    let cutting = async {
        until("the commit", async || rows(&outside, "orders").await == 1).await;
        wire.set(|switches| &switches.swallows_answers, false);
        wire.cut();
    };
    let (committed, ()) = tokio::join!(tx.commit(), cutting);
    committed.expect("the server knows that it was committed");
    drop(client);
    assert_eq!(rows(&outside, "oneclock_queue").await, 1);

    // COMMIT itself got lost: nothing is there, and it may be done again.
    let mut client = pool.get_in(&op, "order").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    order(&jobs, &mut tx, 2).await.unwrap();
    wire.set(|switches| &switches.swallows_requests, true);
    let cutting = async {
        tokio::time::sleep(ms(50)).await; // nothing can be seen of what is lost
        wire.set(|switches| &switches.swallows_requests, false);
        wire.cut();
    };
    let (committed, ()) = tokio::join!(tx.commit(), cutting);
    assert_eq!(committed.unwrap_err().outcome(), Outcome::Rejected);
    drop(client);
    assert_eq!(rows(&outside, "oneclock_queue").await, 1);

    // Nobody can be asked: unknown, and the message is there if the order is.
    let mut client = pool.get_in(&op, "order").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    order(&jobs, &mut tx, 3).await.unwrap();
    wire.set(|switches| &switches.swallows_answers, true);
    wire.set(|switches| &switches.refuses, true);
    let cutting = async {
        until("the commit", async || rows(&outside, "orders").await == 2).await;
        wire.cut();
    };
    let (committed, ()) = tokio::join!(tx.commit(), cutting);
    assert!(matches!(committed.unwrap_err().outcome(), Outcome::Unknown { .. }));
    assert_eq!(rows(&outside, "oneclock_queue").await, 2);
}

/// Runs `relay` until `done`.
async fn runs(relay: &Relay<Target>, done: impl Future<Output = ()>) -> Relayed {
    let (stop, stopped) = oneshot::channel::<()>();
    // On the heap, since these nest.
    let stopping = Box::pin(async {
        done.await;
        let _ = stop.send(());
    });
    let running = Box::pin(relay.run(async {
        let _ = stopped.await;
    }));
    let both = async { tokio::join!(running, stopping) };
    let (relayed, ()) = tokio::time::timeout(BOUND, both).await.expect("moved");
    relayed.unwrap()
}

#[tokio::test]
async fn a_relay_moves_what_is_there_in_its_order() {
    let database = Database::new().await;
    let outbox = queue(&database, |queue| queue.poll(ms(50))).await;
    for n in 0..30 {
        outbox.publish(&message(n)).await.unwrap();
    }
    let target = Target::new(ms(0));
    let relay = Relay::new(outbox.clone(), target.clone()).batch(7);
    let relayed = runs(&relay, async {
        target.until_given(30).await;
        outbox.publish(&message(30)).await.unwrap(); // it is woken
        target.until_given(31).await;
    })
    .await;
    assert_eq!(target.given(), ids(0..31));
    assert_eq!((relayed.published, relayed.discarded, relayed.dead, relayed.failed), (31, 0, 0, 0));
    assert_eq!(in_lane(&outbox, Lane::Main).await, 0);
}

#[tokio::test]
async fn q3_a_relay_looks_at_the_expiry_before_it_publishes() {
    let database = Database::new().await;
    let outbox = queue(&database, |queue| queue.poll(ms(50))).await;
    let (long_ago, soon, now) = (ms(60_000), ms(60_000), ms(0));
    let all = [
        expiring(0, Policy::Discard, now, long_ago),
        expiring(1, Policy::DeadLetter, now, long_ago),
        expiring(2, Policy::MustComplete, now, long_ago),
        expiring(3, Policy::Discard, soon, now),
        expiring(4, Policy::Discard, now, ms(200)), // may have expired: whoever takes it looks again
        expiring(5, Policy::DeadLetter, now, ms(200)),
        message(6),
    ];
    for message in &all {
        outbox.publish(message).await.unwrap();
    }
    let target = Target::new(ms(0));
    let relay = Relay::new(outbox.clone(), target.clone()).uncertainty(Uncertainty::assumed(Duration::from_secs(20)));
    let relayed = runs(&relay, target.until_given(5)).await;
    assert_eq!(target.given(), ids(2..7));
    assert_eq!((relayed.published, relayed.discarded, relayed.dead), (5, 1, 1));
    assert_eq!((in_lane(&outbox, Lane::Main).await, in_lane(&outbox, Lane::Dead).await), (0, 1));
    let letter = next(&outbox, Lane::Dead).await;
    assert_eq!(
        (&*letter.message().id, &*field(letter.message(), "deadline-dead-reason")),
        ("id-1", &["expired".into()][..])
    );
    // The expiry travels unchanged.
    let late = &target.inner.kept(Lane::Main)[0].message;
    let millis = |message: &Message| message.stamp.expires.at().unwrap().as_nanos() / 1_000_000;
    assert_eq!(millis(late), millis(&all[2]));
}

#[tokio::test]
async fn nothing_overtakes_what_could_not_be_published() {
    let database = Database::new().await;
    let outbox = queue(&database, |queue| queue.poll(ms(20))).await;
    for n in 0..10 {
        outbox.publish(&message(n)).await.unwrap();
    }
    let target = Target::new(ms(0));
    *target.refuses.lock().unwrap() = (2, Some(Outcome::Rejected));
    let relay = Relay::new(outbox.clone(), target.clone()).batch(4);
    let relayed = runs(&relay, target.until_given(10)).await;
    assert_eq!(target.given(), ids(0..10));
    assert_eq!((relayed.published, relayed.failed, relayed.dead), (10, 2, 0));

    // What will never be taken does not stand in the way.
    outbox.publish(&message(10)).await.unwrap();
    outbox.publish(&message(11)).await.unwrap();
    *target.refuses.lock().unwrap() = (1, Some(Outcome::Failed));
    runs(&relay, target.until_given(11)).await;
    assert_eq!(target.given()[10..], ids(11..12));
    let letter = next(&outbox, Lane::Dead).await;
    assert_eq!(*field(letter.message(), "deadline-dead-reason"), [Why::Rejected.as_str().into()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_relays_one_stands_by_and_takes_over_when_the_other_dies() {
    let database = Database::new().await;
    let outbox = queue(&database, short).await;
    for n in 0..60 {
        outbox.publish(&message(n)).await.unwrap();
    }
    let target = Target::new(ms(5));
    let other = short(PgQueue::builder("jobs", Pool::configured(database.config()).build().unwrap())).build().unwrap();
    let relays = [&outbox, &other].map(|outbox| Relay::new(outbox.clone(), target.clone()).batch(10));
    let [first, second] = relays;
    let running = tokio::spawn(async move { first.run(std::future::pending()).await });
    target.until_given(3).await;
    let relayed = runs(&second, async {
        target.until_given(25).await;
        assert_eq!(target.given()[..25], ids(0..25), "one at a time");
        running.abort(); // as if it were killed: whatever it published and did not write comes again
        assert!(running.await.unwrap_err().is_cancelled());
        until_in_lane(&outbox, Lane::Main, 0).await;
    })
    .await;
    assert!(relayed.published > 0);
    assert_eq!(target.twice_at_once.load(Ordering::SeqCst), 0);
    let mut given = target.given();
    assert!(given.len() <= 60 + 10, "a batch at most: {}", given.len());
    // The first of each keep their order, and the rest are copies with the same ids.
    let mut seen = std::collections::HashSet::new();
    given.retain(|id| seen.insert(id.clone()));
    assert_eq!(given, ids(0..60));
}

#[tokio::test]
async fn a_relay_that_stops_lets_another_begin_at_once() {
    let database = Database::new().await;
    let outbox = queue(&database, |queue| queue.poll(ms(20))).await; // leases of 30 s
    for n in 0..20 {
        outbox.publish(&message(n)).await.unwrap();
    }
    let target = Target::new(ms(2));
    let relay = |batch| Relay::new(outbox.clone(), target.clone()).batch(batch);
    let first = runs(&relay(20), target.until_given(5)).await;
    assert!((5..20).contains(&first.published), "{first:?}");
    let second = runs(&relay(20), target.until_given(20)).await;
    assert_eq!(first.published + second.published, 20);
    assert_eq!(target.given(), ids(0..20), "none of them twice");
}

#[tokio::test]
async fn a_long_batch_keeps_its_lease() {
    let database = Database::new().await;
    let outbox = queue(&database, short).await; // leases of 1.5 s
    for n in 0..30 {
        outbox.publish(&message(n)).await.unwrap();
    }
    let target = Target::new(ms(100));
    let other = short(PgQueue::builder("jobs", Pool::configured(database.config()).build().unwrap())).build().unwrap();
    let standing_by = Relay::new(other, target.clone());
    let relay = Relay::new(outbox, target.clone());
    let both = async {
        target.until_given(2).await;
        let standing_by = runs(&standing_by, target.until_given(30));
        standing_by.await
    };
    let done = runs(&relay, async {
        assert_eq!(both.await.published, 0);
    })
    .await;
    assert_eq!(done.published, 30);
    assert_eq!(target.given(), ids(0..30));
}

#[tokio::test]
async fn an_outbox_may_lead_to_a_queue_in_another_database() {
    let (here, there) = (Database::new().await, Database::new().await);
    let outbox = queue(&here, |queue| queue.poll(ms(50))).await;
    let target = queue(&there, |queue| queue.poll(ms(50))).await;
    let sent = expiring(1, Policy::DeadLetter, ms(60_000), ms(0));
    outbox.publish(&sent).await.unwrap();
    let relay = Relay::new(outbox, target.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let receiving = async {
        let held = next(&target, Lane::Main).await;
        assert_eq!((&held.message().id, held.attempt()), (&sent.id, 1));
        let _ = stop.send(());
    };
    let running = relay.run(async {
        let _ = stopped.await;
    });
    let (relayed, ()) = tokio::join!(running, receiving);
    assert_eq!(relayed.unwrap().published, 1);
}

/// A relay that lost its way left jobs leased: another does not begin with those behind them.
#[tokio::test]
async fn what_another_relay_left_behind_holds_up_what_comes_after_it() {
    let database = Database::new().await;
    let outbox = queue(&database, short).await;
    for n in 0..12 {
        outbox.publish(&message(n)).await.unwrap();
    }
    assert_eq!(outbox.receive(Lane::Main, 4).await.unwrap().len(), 4); // and nothing more is heard of it
    let target = Target::new(ms(0));
    runs(&Relay::new(outbox.clone(), target.clone()).batch(4), target.until_given(12)).await;
    assert_eq!(target.given(), ids(0..12));
}
