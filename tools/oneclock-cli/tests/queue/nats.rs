//! Over NATS.

use std::time::Duration;

use async_nats::jetstream::{self, Context};
use oneclock_core::expiry::{Policy, Why};
use oneclock_queue::nats::Nats;

use super::support::{HOUR, bury, json, name, oneclock, text};

pub(crate) fn address() -> String {
    std::env::var("ONECLOCK_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned())
}

async fn queue(name: &str) -> (Nats, Context) {
    let client = async_nats::connect(address()).await.unwrap();
    (Nats::builder(client.clone(), name).build().await.unwrap(), jetstream::new(client))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_seen_and_put_back_with_their_expiry() {
    let (name, url) = (name(), address());
    let (broker, jetstream) = queue(&name).await;
    let short = Duration::from_millis(1);
    for (id, policy, life) in [
        ("live", Policy::DeadLetter, HOUR),
        ("expired", Policy::DeadLetter, short),
        ("ownerless", Policy::MustComplete, short),
    ] {
        bury(&broker, id, policy, life, Why::AttemptsExhausted).await;
    }
    // By the wall clock, with what clocks may be wrong by.
    let inspect = || oneclock(&["inspect", &name, "--nats", &url, "--over", "0", "--uncertainty", "50", "--messages"]);
    let seen = loop {
        let seen = inspect();
        assert!(seen.status.success(), "{seen:?}");
        if text(&seen).matches("of shop: expired").count() == 2 {
            break text(&seen);
        }
    };
    assert!(seen.contains("dead: 3 waiting"), "{seen}");
    assert!(seen.contains("expired") && seen.contains("owner -  because attempts_exhausted"), "{seen}");
    let live = seen.lines().find(|line| line.contains("charge live of shop")).unwrap();
    assert!(live.contains(", dead because") && live.ends_with("Z after 5 attempts: the bank said 503"), "{live}");

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
    assert_eq!(json(&owned)[0]["put_back"], true, "{owned:?}");

    let seen = json(&oneclock(&["inspect", &name, "--nats", &url, "--over", "0", "--json", "--messages"]));
    // What was given back may count as in work until it is taken again.
    let stands = |lane: usize| {
        seen["lanes"][lane]["waiting"].as_u64().unwrap() + seen["lanes"][lane]["in_flight"].as_u64().unwrap()
    };
    assert_eq!((stands(0), stands(2)), (2, 1), "{seen}");
    let dead = &seen["lanes"][2]["messages"][0];
    assert_eq!((&dead["attempts"], &dead["detail"]), (&5.into(), &"the bank said 503".into()), "{dead}");
    assert!(dead["dead_at"].as_str().unwrap().ends_with('Z'), "{dead}");

    let mistyped = oneclock(&["inspect", &format!("{name}-x"), "--nats", &url]);
    assert_eq!(mistyped.status.code(), Some(1), "a queue that is not there is not made: {mistyped:?}");
    assert_eq!(oneclock(&["inspect", &name]).status.code(), Some(2), "which broker?");
    jetstream.delete_stream(broker.stream()).await.unwrap();
}

/// Ending work is for who says why, and what must be completed for who names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_dropped_with_a_reason() {
    let (name, url) = (name(), address());
    let (broker, jetstream) = queue(&name).await;
    bury(&broker, "junk", Policy::DeadLetter, HOUR, Why::Rejected).await;
    bury(&broker, "other", Policy::DeadLetter, HOUR, Why::AttemptsExhausted).await;
    bury(&broker, "owed", Policy::MustComplete, HOUR, Why::Rejected).await;
    let drop = |more: &[&str]| oneclock(&[&["drop", &name, "--nats", &url], more].concat());
    let dead = || {
        let seen = json(&oneclock(&["inspect", &name, "--nats", &url, "--over", "0", "--json", "--messages"]));
        let dead = seen["lanes"][2]["messages"].as_array().unwrap().clone();
        let mut ids: Vec<String> = dead.iter().map(|message| message["id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    assert_eq!(drop(&["--all"]).status.code(), Some(2), "why?");
    assert_eq!(drop(&["--all", "--reason", ""]).status.code(), Some(2), "why?");
    assert_eq!(drop(&["--reason", "junk"]).status.code(), Some(2), "which?");

    let rejected = ["--all", "--because", "rejected", "--reason", "orders of a test"];
    let would = drop(&[&rejected[..], &["--dry-run"]].concat());
    assert_eq!(would.status.code(), Some(1), "one would stay: {would:?}");
    assert!(text(&would).contains("charge junk of shop: would be ended, dead because"), "{would:?}");
    assert_eq!(dead(), ["junk", "other", "owed"]);

    let dropped = drop(&rejected);
    assert_eq!(dropped.status.code(), Some(1), "one stays: {dropped:?}");
    let said = text(&dropped);
    assert!(said.contains("charge junk of shop: ended, dead because") && said.contains(": orders of a test"), "{said}");
    assert!(
        said.contains("charge owed of shop: stays: it must be completed: to end it all the same, name it by its id"),
        "{said}"
    );
    assert!(said.contains("1 of 2 ended"), "{said}");
    assert_eq!(dead(), ["other", "owed"]);

    let named = drop(&["--id", "owed", "--reason", "refunded by hand", "--json"]);
    assert!(named.status.success(), "{named:?}");
    let named = json(&named);
    assert_eq!((&named["dropped"], &named["reason"]), (&1.into(), &"refunded by hand".into()), "{named}");
    assert_eq!(named["messages"][0]["dropped"], true, "{named}");
    assert_eq!(dead(), ["other"]);
    jetstream.delete_stream(broker.stream()).await.unwrap();
}

/// Nobody puts back what may have been done without having looked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_done_stays_until_somebody_has_checked() {
    let (name, url) = (name(), address());
    let (broker, jetstream) = queue(&name).await;
    bury(&broker, "perhaps", Policy::DeadLetter, HOUR, Why::OutcomeUnknown).await;
    let stays = oneclock(&["redrive", &name, "--nats", &url, "--all"]);
    assert_eq!(stays.status.code(), Some(1), "{stays:?}");
    assert!(text(&stays).contains("it may have been done"), "{stays:?}");
    let back = oneclock(&["redrive", &name, "--nats", &url, "--all", "--checked-not-done"]);
    assert!(back.status.success(), "{back:?}");
    jetstream.delete_stream(broker.stream()).await.unwrap();
}
