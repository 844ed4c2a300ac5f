//! Over RabbitMQ.

use oneclock_core::expiry::{Policy, Why};
use oneclock_queue::rabbitmq::RabbitMq;
use oneclock_queue::{Broker as _, Delivery as _, Lane};

use super::support::{HOUR, bury, json, name, oneclock, oneclock_with, text};

/// More dead letters than the broker sends at a time stand before the one that is meant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_dead_letter_is_looked_at() {
    let url =
        std::env::var("ONECLOCK_RABBITMQ_URL").unwrap_or_else(|_| "amqp://guest:guest@127.0.0.1:5672/%2f".to_owned());
    let name = name();
    let broker = RabbitMq::builder(url.as_str(), name.as_str()).build().await.unwrap();
    for n in 0..40 {
        bury(&broker, &format!("other-{n}"), Policy::DeadLetter, HOUR, Why::AttemptsExhausted).await;
    }
    bury(&broker, "meant", Policy::DeadLetter, HOUR, Why::Rejected).await;
    let back = oneclock(&["redrive", &name, "--rabbitmq", &url, "--all", "--because", "rejected"]);
    assert!(back.status.success(), "{back:?}");
    assert!(
        text(&back).contains("charge meant of shop: put back") && text(&back).contains("1 of 1 put back"),
        "{back:?}"
    );

    let given = [("ONECLOCK_CLI_TEST", url.as_str())];
    let seen = oneclock_with(
        &["inspect", &name, "--rabbitmq", "env:ONECLOCK_CLI_TEST", "--over", "0", "--json", "--messages"],
        &given,
    );
    assert!(seen.status.success(), "{seen:?}");
    let seen = json(&seen);
    assert_eq!(seen["lanes"][2]["waiting"], 40, "{seen}");
    assert_eq!(&*broker.receive(Lane::Main, 1).await.unwrap()[0].message().id, "meant");
    assert_eq!(seen["lanes"][2]["messages"][0]["detail"], "the bank said 503", "{seen}");

    let dropped = oneclock(&["drop", &name, "--rabbitmq", &url, "--all", "--reason", "a test", "--json"]);
    assert!(dropped.status.success(), "{dropped:?}");
    assert_eq!(json(&dropped)["dropped"], 40, "{dropped:?}");
    broker.delete().await.unwrap();
    let gone = oneclock(&["redrive", &name, "--rabbitmq", &url, "--all"]);
    assert_eq!(gone.status.code(), Some(1), "a queue that is not there is not empty: {gone:?}");
}
