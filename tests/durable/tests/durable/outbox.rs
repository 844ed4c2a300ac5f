//! From the outbox to a real broker: what it can never take goes aside and stops nothing, a broker that is away costs nothing, and
//! everything comes once.

use std::time::Duration;

use oneclock::clock;
use oneclock_postgres::{PgQueue, Relay};
use oneclock_queue::nats::{Nats, async_nats};
use oneclock_queue::rabbitmq::RabbitMq;
use oneclock_queue::{Broker, Delivery as _, Lane, Message, Settle};
use tokio::sync::oneshot;

use crate::gate::Gate;
use crate::queues::{self, Database};

/// Far beyond what anything here takes when it works.
const BOUND: Duration = Duration::from_secs(30);

async fn outbox_of(queue: &str, database: &Database) -> PgQueue {
    let outbox = PgQueue::builder(queues::name(), database.pool()).outbox_of(queue.to_owned());
    let outbox = outbox.poll(Duration::from_millis(20)).build().unwrap();
    outbox.create().await.unwrap();
    outbox
}

fn order(n: usize) -> Message {
    let mut message = Message::new("confirm-order", "shop", format!("order {n}"));
    message.id = format!("id-{n:04}").into();
    message
}

fn ids(all: std::ops::Range<usize>) -> Vec<String> {
    all.map(|n| format!("id-{n:04}")).collect()
}

/// Takes so many different ones, in the order in which they come.
async fn come<B: Broker>(broker: &B, many: usize) -> Vec<String> {
    let mut came = Vec::new();
    let taking = async {
        while came.len() < many {
            for delivery in broker.receive(Lane::Main, 64).await.unwrap() {
                let id = delivery.message().id.to_string();
                if !came.contains(&id) {
                    came.push(id);
                }
                delivery.settle(&Settle::Gone).await.unwrap();
            }
        }
    };
    tokio::time::timeout(BOUND, taking).await.expect("all that was accepted");
    came
}

/// Runs a relay until `done`, and gives what that came to.
async fn relaying<B: Broker, T>(relay: &Relay<B>, done: impl Future<Output = T>) -> T {
    let (stop, stopped) = oneshot::channel::<()>();
    let done = async {
        let came_to = done.await;
        let _ = stop.send(());
        came_to
    };
    let running = relay.run(async {
        let _ = stopped.await;
    });
    let both = async { tokio::join!(Box::pin(running), Box::pin(done)) };
    let (ran, came_to) = tokio::time::timeout(BOUND * 2, both).await.expect("moved");
    ran.unwrap();
    came_to
}

/// These can never be published there, and stand before all others.
async fn what_can_never_be_published_stops_nothing<B: Broker>(broker: B, database: &Database, never: Vec<Message>) {
    for at_a_time in [1, 32] {
        let outbox = outbox_of(broker.name().as_str(), database).await;
        for message in &never {
            outbox.publish(message).await.unwrap();
        }
        for n in 0..40 {
            let mut message = order(n);
            message.id = format!("{}-{at_a_time}", message.id).into();
            outbox.publish(&message).await.unwrap();
        }
        let relay = Relay::new(outbox.clone(), broker.clone()).unwrap();
        let relay = if at_a_time == 1 { relay.in_order() } else { relay.at_a_time(at_a_time) };
        let mut came = relaying(&relay, come(&broker, 40)).await;
        if at_a_time > 1 {
            came.sort();
        }
        let sent: Vec<_> = ids(0..40).iter().map(|id| format!("{id}-{at_a_time}")).collect();
        assert_eq!(came, sent);
        let relayed = relay.so_far();
        assert_eq!((relayed.published, relayed.dead, relayed.failed), (40, never.len() as u64, 0), "{relayed:?}");
        let letters = outbox.list(Lane::Dead, 100).await.unwrap();
        for (letter, message) in letters.iter().zip(&never) {
            let said = |name: &str| letter.message.field(name).unwrap_or_default().to_owned();
            assert_eq!((&letter.message.id, &*said("deadline-dead-reason")), (&message.id, "rejected"));
            assert!(said("deadline-dead-detail").len() > 20, "why: {}", said("deadline-dead-detail"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_what_can_never_be_published_stops_nothing() {
    let queue = queues::nats().await;
    let mut two_lines = order(9_000);
    two_lines.fields.push(("x-odd".into(), "one\r\ntwo".into()));
    let mut large = order(9_001);
    large.body = vec![b'x'; 2 * 1024 * 1024].into();
    Box::pin(what_can_never_be_published_stops_nothing(queue.broker.clone(), &queue.database, vec![two_lines, large]))
        .await;
    queue.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_what_can_never_be_published_stops_nothing() {
    let queue = queues::rabbitmq().await;
    let mut long_name = order(9_000);
    long_name.fields.push(("x".repeat(300).into(), "a value".into()));
    let mut long_fields = order(9_001);
    let field = |n: usize| (format!("x-{n}").into(), "x".repeat(8_000).into());
    long_fields.fields.extend((0..40).map(field)); // more than a frame takes
    Box::pin(what_can_never_be_published_stops_nothing(
        queue.broker.clone(),
        &queue.database,
        vec![long_name, long_fields],
    ))
    .await;
    queue.remove().await;
}

/// The broker goes away while there is work to be moved, and comes back: with three attempts each, more than one that fell into
/// the moment of its return would end a job.
async fn an_outage_costs_nothing<B: Broker>(broker: B, gate: &Gate, database: &Database) {
    let outbox = outbox_of(broker.name().as_str(), database).await;
    let relay = Relay::new(outbox.clone(), broker.clone()).unwrap().attempts(3).within(Duration::from_secs(1));
    let through = async {
        outbox.publish(&order(0)).await.unwrap();
        let mut came = come(&broker, 1).await;
        gate.cut();
        for n in 1..20 {
            outbox.publish(&order(n)).await.unwrap();
        }
        let begun = clock::now();
        while relay.so_far().failed < 5 {
            assert!(clock::now().since(begun) < BOUND, "{:?}", relay.so_far());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        gate.mend();
        came.extend(come(&broker, 19).await);
        came
    };
    assert_eq!(relaying(&relay, through).await, ids(0..20), "in order");
    assert_eq!((relay.so_far().published, relay.so_far().dead), (20, 0));
    assert!(outbox.list(Lane::Dead, 1).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_an_outage_costs_nothing() {
    let queue = queues::nats().await;
    let server = std::env::var("ONECLOCK_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    let gate = Gate::to(server.trim_start_matches("nats://")).await;
    let client = async_nats::connect(format!("nats://{}", gate.address())).await.unwrap();
    let broker = Nats::builder(client, queue.name.clone()).lease(queues::LEASE).build().await.unwrap();
    Box::pin(an_outage_costs_nothing(broker, &gate, &queue.database)).await;
    queue.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_an_outage_costs_nothing() {
    let queue = queues::rabbitmq().await;
    let server =
        std::env::var("ONECLOCK_RABBITMQ_URL").unwrap_or_else(|_| "amqp://guest:guest@127.0.0.1:5672/%2f".to_owned());
    let (user, place) = server.rsplit_once('@').unwrap();
    let (host, vhost) = place.split_once('/').unwrap_or((place, "%2f"));
    let gate = Gate::to(host).await;
    let broker = RabbitMq::builder(format!("{user}@{}/{vhost}", gate.address()), queue.name.clone()).build().await;
    Box::pin(an_outage_costs_nothing(broker.unwrap(), &gate, &queue.database)).await;
    queue.remove().await;
}

/// Without an order the way to the broker and back is paid once for many.
async fn many_at_a_time_all_come_once<B: Broker>(broker: B, database: &Database) {
    const MANY: usize = 1_000;
    for at_a_time in [1, 64] {
        let outbox = outbox_of(broker.name().as_str(), database).await;
        let publishing = (0..MANY).map(|n| {
            let (outbox, mut message) = (outbox.clone(), order(n));
            message.id = format!("{}-{at_a_time}", message.id).into();
            async move { outbox.publish(&message).await.unwrap() }
        });
        futures_util::future::join_all(publishing).await;
        let relay = Relay::new(outbox.clone(), broker.clone()).unwrap();
        let relay = if at_a_time == 1 { relay } else { relay.at_a_time(at_a_time) };
        let begun = clock::now();
        let mut came = relaying(&relay, come(&broker, MANY)).await;
        let took = clock::now().since(begun);
        println!("{}: {MANY} jobs, {at_a_time} at a time: {:.0}/s", broker.name(), MANY as f64 / took.as_secs_f64());
        came.sort();
        let sent: Vec<_> = ids(0..MANY).iter().map(|id| format!("{id}-{at_a_time}")).collect();
        assert_eq!(came, sent);
        let relayed = relay.so_far();
        assert_eq!((relayed.published, relayed.failed, relayed.dead), (MANY as u64, 0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_many_at_a_time_all_come_once() {
    let queue = queues::nats().await;
    Box::pin(many_at_a_time_all_come_once(queue.broker.clone(), &queue.database)).await;
    queue.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_many_at_a_time_all_come_once() {
    let queue = queues::rabbitmq().await;
    Box::pin(many_at_a_time_all_come_once(queue.broker.clone(), &queue.database)).await;
    queue.remove().await;
}
