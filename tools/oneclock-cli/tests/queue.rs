//! `oneclock queue` over a real broker: what it prints, what it puts back, and how it exits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests: to panic is how a test fails

use std::process::{Command, Output};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::expiry::{Expires, Policy, Stamp, Why};
use oneclock_queue::nats::{Nats, async_nats};
use oneclock_queue::{Broker, Dead, Delivery, Lane, Message, Settle};

fn address() -> String {
    std::env::var("ONECLOCK_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned())
}

fn oneclock(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oneclock")).arg("queue").args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A queue with three dead letters: one that may go back, one that has expired, one that nobody owns.
async fn queue(name: &str) -> (Nats, async_nats::jetstream::Context) {
    let client = async_nats::connect(address()).await.unwrap();
    let broker = Nats::builder(client.clone(), name).build().await.unwrap();
    for (id, policy, life) in [
        ("live", Policy::DeadLetter, 3_600),
        ("expired", Policy::DeadLetter, 0),
        ("ownerless", Policy::MustComplete, 0),
    ] {
        let mut message = Message::new("charge", "shop", "order 7");
        message.id = id.into();
        message.stamp =
            Stamp { expires: Expires::At(clock::wall() + Duration::from_secs(life)), policy, ..Stamp::default() };
        broker.publish(&message).await.unwrap();
    }
    let mut taken = Vec::new();
    while taken.len() < 3 {
        taken.extend(broker.receive(Lane::Main, 3).await.unwrap());
    }
    for delivery in taken {
        let dead = Dead { why: Why::AttemptsExhausted, detail: None, at: clock::wall(), attempts: 5 };
        delivery.settle(&Settle::Dead(dead)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await; // of the wall clock: they expire by it
    (broker, async_nats::jetstream::new(client))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_seen_and_put_back_with_their_expiry() {
    let name = format!("cli-{}", std::process::id());
    let (broker, jetstream) = queue(&name).await;
    let url = address();

    let seen = oneclock(&["inspect", &name, "--nats", &url, "--over", "0", "--uncertainty", "50"]);
    assert!(seen.status.success(), "{seen:?}");
    let seen = text(&seen);
    assert!(seen.contains("dead: 3 waiting"), "{seen}");
    assert!(seen.contains("expired") && seen.contains("owner -  because attempts_exhausted"), "{seen}");

    let back = oneclock(&["redrive", &name, "--nats", &url, "--all", "--uncertainty", "50"]);
    assert_eq!(back.status.code(), Some(1), "some stay: {back:?}");
    let back = text(&back);
    assert!(back.contains("charge live of shop: put back, for the 1st time"), "{back}");
    assert!(back.contains("charge expired of shop: stays: it has expired"), "{back}");
    assert!(
        back.contains("charge ownerless of shop: stays: it must be completed and nobody answers for it: name an owner"),
        "{back}"
    );
    assert!(back.contains("1 of 3 put back"), "{back}");

    let owned = oneclock(&["redrive", &name, "--nats", &url, "--id", "ownerless", "--owner", "payments", "--json"]);
    assert!(owned.status.success(), "{owned:?}");
    let owned: serde_json::Value = serde_json::from_str(&text(&owned)).unwrap();
    assert_eq!(owned[0]["put_back"], true, "{owned}");

    let json = oneclock(&["inspect", &name, "--nats", &url, "--over", "0", "--json", "--messages"]);
    let json: serde_json::Value = serde_json::from_str(&text(&json)).unwrap();
    // What was given back may count as in work until it is taken again.
    let stands = |lane: usize| {
        json["lanes"][lane]["waiting"].as_u64().unwrap() + json["lanes"][lane]["in_flight"].as_u64().unwrap()
    };
    assert_eq!((stands(0), stands(2)), (2, 1), "{json}");

    let mistyped = oneclock(&["inspect", &format!("{name}-x"), "--nats", &url]);
    assert_eq!(mistyped.status.code(), Some(1), "a queue that is not there is not made: {mistyped:?}");
    assert_eq!(oneclock(&["inspect", &name]).status.code(), Some(2), "which broker?");
    jetstream.delete_stream(broker.stream()).await.unwrap();
}
