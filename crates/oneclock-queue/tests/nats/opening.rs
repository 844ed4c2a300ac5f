//! Opening a queue, and what of it is refused with its reason.

use oneclock_core::Outcome;
use oneclock_queue::nats::async_nats::ConnectOptions;
use oneclock_queue::nats::async_nats::jetstream;
use oneclock_queue::nats::async_nats::jetstream::consumer::pull;
use oneclock_queue::nats::async_nats::jetstream::stream::{self, RetentionPolicy};
use oneclock_queue::nats::{BadNats, Nats, NatsBuilder, Setting, Subjects};
use oneclock_queue::{Broker as _, Delivery as _, Inspect as _, Lane, Settle};

use super::support::{Queue, Server, connect, ms, name, secs, within};

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

/// A lease is one for all: whoever counts by it must not have it shortened behind his back.
#[tokio::test]
async fn who_says_another_lease_later_is_refused_and_changes_nothing() {
    let queue = Queue::open("lease", |queue| queue.lease(secs(7)).max_ack_pending(50)).await;
    let settings = async || {
        let mut found = Vec::new();
        for lane in ["main", "late", "dead", "wait"] {
            let consumer = format!("{}-{lane}", queue.name);
            let consumer = queue.context.get_consumer_from_stream::<pull::Config, _, _>(&consumer, queue.nats.stream());
            let config = consumer.await.unwrap().cached_info().config.clone();
            found.push((config.ack_wait, config.max_ack_pending));
        }
        found
    };
    let standing = [(secs(7), 50), (secs(7), 50), (secs(7), 50), (secs(7), -1)];
    let client = connect(&super::support::address()).await;
    let open = || Nats::builder(client.clone(), &*queue.name);

    let refused = within(open().lease(secs(2)).build()).await.unwrap_err();
    let (lease, said) = (Setting::Lease(secs(7)), Setting::Lease(secs(2)));
    assert!(
        matches!(&refused, BadNats::Differs { stands, said: other, .. } if *stands == lease && *other == said),
        "{refused:?}"
    );
    let told = refused.to_string();
    assert!(["a lease of 7s", "a lease of 2s", "change_what_stands"].iter().all(|part| told.contains(part)), "{told}");
    let refused = within(open().max_ack_pending(51).build()).await.unwrap_err();
    let (pending, said) = (Setting::MaxAckPending(50), Setting::MaxAckPending(51));
    assert!(
        matches!(&refused, BadNats::Differs { stands, said: other, .. } if *stands == pending && *other == said),
        "{refused:?}"
    );
    let of = |lane: &str| format!("{}.{lane}", queue.name);
    let crossed = Subjects { main: of("late"), late: of("main"), dead: of("dead"), wait: of("wait") };
    let refused = within(open().subjects(crossed).build()).await.unwrap_err();
    assert!(matches!(refused, BadNats::Differs { stands: Setting::Subject(_), .. }), "{refused:?}");
    assert_eq!(settings().await, standing);

    // Who says the same, or nothing, or makes nothing, takes what stands.
    let ways = [open(), open().lease(secs(7)).max_ack_pending(50), open().declared_elsewhere().lease(secs(2))];
    for (number, builder) in ways.into_iter().enumerate() {
        let nats = within(builder.build()).await.unwrap();
        queue.publish("order 7").await;
        let got = super::support::one_of(&nats, Lane::Main).await;
        assert_eq!(got.lease(), Some(secs(7)), "way {number}");
        within(got.settle(&Settle::Gone)).await.unwrap();
    }
    let gone = format!("{}-late", queue.name);
    queue.context.delete_consumer_from_stream(&gone, queue.nats.stream()).await.unwrap();
    within(open().build()).await.unwrap();
    assert_eq!(settings().await, standing, "what is missing is made as the others stand");

    within(open().lease(secs(9)).change_what_stands().build()).await.unwrap();
    assert_eq!(settings().await, [(secs(9), 50), (secs(9), 50), (secs(9), 50), (secs(9), -1)]);
}

/// Newer servers know who was first.
#[tokio::test]
async fn of_two_that_open_a_new_queue_with_different_leases_one_is_refused() {
    let server = Server::newer();
    let client = connect(&server.address()).await;
    for round in 0..20 {
        let queue = name("race");
        let open = |lease| Nats::builder(client.clone(), &*queue).lease(secs(lease)).build();
        let (one, other) = within(futures_util::future::join(Box::pin(open(3)), Box::pin(open(5)))).await;
        let refused = match (one, other) {
            (Ok(_), Err(refused)) | (Err(refused), Ok(_)) => refused,
            both => panic!("round {round}: {both:?}"),
        };
        assert!(matches!(refused, BadNats::Differs { .. }), "round {round}: {refused:?}");
    }
}

/// A producer that may do nothing else publishes all the same.
#[tokio::test]
async fn who_may_only_publish_publishes() {
    let queue = name("producer");
    let server = Server::configured(&format!(
        "authorization {{ users: [\
            {{ user: all, password: all }}, \
            {{ user: shop, password: shop, permissions: {{ publish: [\"{queue}.main\"], subscribe: [\"_INBOX.>\"] }} }} \
        ] }}"
    ));
    let as_user = async |user: &str| {
        let options = ConnectOptions::with_user_and_password(user.to_owned(), user.to_owned());
        options.connect(server.address()).await.unwrap()
    };
    let consumer = within(Nats::builder(as_user("all").await, &*queue).build()).await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let client = as_user("shop").await;
    let producer = within(Nats::builder(client, &*queue).publish_only().build()).await.unwrap();
    let message = oneclock_queue::Message::new("confirm-order", "order-service", "order 7");
    within(producer.publish(&message)).await.unwrap();
    let before = tasks(); // the client's own
    let refused = within(producer.receive(Lane::Main, 1)).await.unwrap_err();
    assert_eq!(refused.outcome, Outcome::NotSent, "{refused}");
    assert_eq!(tasks(), before, "it moves nothing");
    assert_eq!(super::support::one_of(&consumer, Lane::Main).await.message().id, message.id);
}

#[tokio::test]
async fn who_looks_makes_nothing_and_takes_nothing() {
    let client = connect(&super::support::address()).await;
    let missing = name("looks");
    let refused = within(Nats::builder(client.clone(), &*missing).read_only().build()).await.unwrap_err();
    assert!(matches!(refused, BadNats::Stream { .. }), "{refused:?}");
    assert!(jetstream::new(client.clone()).get_stream(&missing).await.is_err());

    let queue = Queue::open("looks", |queue| queue).await;
    let message = queue.publish("order 7").await;
    let looks = within(Nats::builder(client, &*queue.name).read_only().build()).await.unwrap();
    assert_eq!(within(looks.peek(Lane::Main, 9)).await.unwrap()[0].id, message.id);
    assert_eq!(within(looks.publish(&message)).await.unwrap_err().outcome, Outcome::NotSent);
    assert_eq!(within(looks.receive(Lane::Main, 1)).await.unwrap_err().outcome, Outcome::NotSent);
    assert_eq!(queue.one(Lane::Main).await.attempt(), 1);
}

/// The tasks of a queue are those of its clones: when the last one goes, so do they.
#[tokio::test]
async fn the_last_clone_takes_its_tasks_along() {
    let queue = Queue::open("tasks", |queue| queue).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let other = queue.again(|queue| queue).await;
    let connected = tasks();
    let waits = tokio::time::timeout(ms(50), other.receive(Lane::Main, 1)).await;
    assert!(waits.is_err(), "there is nothing");
    let clone = other.clone();
    let with = tasks();
    assert!(with > connected, "whoever receives moves what waits");
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
