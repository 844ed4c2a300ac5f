//! Opening a queue, and what of it is refused with its reason.

use oneclock_queue::nats::async_nats::jetstream;
use oneclock_queue::nats::async_nats::jetstream::stream::{self, RetentionPolicy};
use oneclock_queue::nats::{BadNats, Nats, NatsBuilder, Subjects};
use oneclock_queue::{Broker as _, Delivery as _, Lane, Settle};

use super::support::{Queue, connect, ms, name, secs, within};

#[tokio::test]
async fn a_name_with_dots_is_a_name() {
    let name = name("eu.orders.v2");
    let client = connect(&super::support::address()).await;
    let nats = Nats::builder(client.clone(), &*name).build().await.unwrap();
    assert_eq!(nats.stream(), name.replace('.', "_"));
    let context = jetstream::new(client);
    let opened = context.get_stream(nats.stream()).await.unwrap();
    let subjects = ["main", "late", "dead", "wait"].map(|lane| format!("{name}.{lane}"));
    assert_eq!(opened.cached_info().config.subjects, subjects);
    context.delete_stream(nats.stream()).await.unwrap();
}

#[tokio::test]
async fn a_stream_of_the_users_own_is_used_as_it_is() {
    let client = connect(&super::support::address()).await;
    let context = jetstream::new(client.clone());
    let (stream, queue) = (name("theirs"), name("own"));
    let config = stream::Config {
        name: stream.clone(),
        subjects: vec![format!("{stream}.>")],
        retention: RetentionPolicy::Limits,
        ..stream::Config::default()
    };
    context.create_stream(config.clone()).await.unwrap();
    let of = |lane: &str| format!("{stream}.{queue}.{lane}");
    let subjects = Subjects { main: of("todo"), late: of("late"), dead: of("failed"), wait: of("wait") };
    let nats = Nats::builder(client.clone(), &*queue).stream(&*stream).subjects(subjects).build().await.unwrap();
    let message = oneclock_queue::Message::new("confirm-order", "order-service", "order 7");
    within(nats.publish(&message)).await.unwrap();
    let got = super::support::one_of(&nats, Lane::Main).await;
    within(got.settle(&Settle::Gone)).await.unwrap();
    let kept = context.get_stream(&*stream).await.unwrap();
    assert_eq!(kept.cached_info().state.messages, 1, "how long it keeps what is done is for its owner to say");

    let refused = Nats::builder(client, &*queue).stream(&*stream).build().await;
    assert!(
        matches!(&refused, Err(BadNats::NotTaken { subject, .. }) if *subject == format!("{queue}.main")),
        "{refused:?}"
    );
    context.delete_stream(stream).await.unwrap();
}

#[tokio::test]
async fn what_cannot_work_is_refused_when_it_is_opened() {
    let client = connect(&super::support::address()).await;
    let open = async |builder: NatsBuilder| builder.build().await.unwrap_err();
    let queue = || Nats::builder(client.clone(), name("bad"));
    assert!(matches!(open(Nats::builder(client.clone(), "a b")).await, BadNats::Name { .. }));
    assert!(matches!(open(queue().max_ack_pending(0)).await, BadNats::Zero { .. }));
    assert!(matches!(open(queue().lease(ms(999))).await, BadNats::Lease { .. }));
    assert!(matches!(open(queue().stream("there-is-none")).await, BadNats::Stream { .. }));
}

/// The tasks of a queue are those of its clones: when the last one goes, so do they.
#[tokio::test]
async fn the_last_clone_takes_its_tasks_along() {
    let queue = Queue::open("tasks", |queue| queue).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let other = queue.again(|queue| queue).await;
    let clone = other.clone();
    let with = tasks();
    assert!(with > before);
    drop(other);
    tokio::time::sleep(ms(20)).await;
    assert!(tasks() >= with, "one clone is left");
    drop(clone);
    within(async {
        while tasks() > before {
            tokio::time::sleep(ms(5)).await;
        }
    })
    .await;
    assert!(queue.is_quiet(Lane::Main, secs(1)).await);
}

/// In `main`, after the runtime is gone, for example.
#[test]
fn it_may_be_dropped_outside_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (queue, nats) = runtime.block_on(async {
        let queue = Queue::open("dropped", |queue| queue).await;
        queue.publish("order 7").await;
        let nats = queue.again(|queue| queue).await;
        drop(super::support::one_of(&nats, Lane::Main).await);
        (queue, nats)
    });
    drop(nats);
    drop(runtime);
    drop(queue);
}
