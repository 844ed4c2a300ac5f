//! I4: waiting for a place or a connection spends the budget and ends with it, and every queue has a bound.

use std::time::Duration;

use oneclock::Stopped;
use oneclock_core::{Outcome, Reason, Stage};
use oneclock_redis::RedisError;

use crate::support::{BOUND, Keys, Server, ask, client, cmd, eventually, ms, operation};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i4_waiting_for_a_place_spends_the_budget_and_proves_that_nothing_was_sent() {
    let server = Server::start();
    let redis = server.client(|redis| redis.max_in_flight(1).max_waiting(1));
    ask::<()>(&redis, "PING").await;
    let slow = {
        let redis = redis.clone();
        tokio::spawn(async move { ask::<()>(&redis, "DEBUG SLEEP 2").await })
    };
    eventually("the slow one", || (redis.status().in_flight == 1).then_some(())).await;

    let count = cmd("INCR n");
    let op = operation(ms(100));
    let waiting = redis.query_in::<i64>(&op, "waits", &count);
    let shed = async {
        eventually("one in the queue", || (redis.status().waiting == 1).then_some(())).await;
        redis.query_in::<i64>(&operation(BOUND), "shed", &count).await
    };
    let (waiting, shed) = tokio::join!(waiting, shed);
    let (waiting, shed) = (waiting.unwrap_err(), shed.unwrap_err());
    assert!(
        matches!(&waiting, RedisError::Stopped { stopped: Stopped::Ended(ended), .. } if ended.stage() == Stage::Pool),
        "{waiting}"
    );
    assert_eq!((waiting.outcome(), waiting.may_repeat()), (Outcome::NotSent, true));
    assert_eq!((shed.reason(), shed.outcome()), (Some(Reason::Shed), Outcome::NotSent));
    slow.await.unwrap();
    assert_eq!(ask::<i64>(&redis, "INCR n").await, 1, "neither was sent");
    let status = redis.status();
    assert_eq!((status.in_flight, status.waiting), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i4_connections_of_their_own_are_counted_too() {
    let (redis, keys) = (client(|redis| redis.own_connections(1)), Keys::new());
    let pop = cmd(&format!("BLPOP {} 1", keys.key("none")));
    let long = operation(BOUND);
    let (first, second) = tokio::join!(redis.query_in::<Option<(String, String)>>(&long, "first", &pop), async {
        eventually("the first", || (redis.status().own == 1).then_some(())).await;
        redis.query_in::<Option<(String, String)>>(&operation(ms(100)), "second", &pop).await
    });
    assert_eq!(first.unwrap(), None, "nothing came, said the server");
    let second = second.unwrap_err();
    assert!(second.to_string().contains("stage pool"), "{second}");
    assert_eq!(second.outcome(), Outcome::NotSent);
    let status = redis.status();
    assert_eq!((status.own, status.own_idle, status.waiting), (0, 1, 0), "it waits for the next call");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i4_an_address_that_nobody_answers_costs_the_budget_and_no_more() {
    // Bound, and its backlog is never taken from: connecting succeeds, and nothing is answered.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("redis://{}", silent.local_addr().unwrap());
    let redis = oneclock_redis::Redis::builder(address).build().unwrap();
    let began = oneclock::clock::now();
    for _ in 0..3 {
        let error = redis.query_in::<()>(&operation(ms(100)), "ping", &cmd("PING")).await.unwrap_err();
        assert!(error.to_string().contains("stage connect"), "{error}");
        assert_eq!(error.outcome(), Outcome::NotSent);
    }
    assert!(oneclock::clock::now().since(began) < Duration::from_secs(3));
}
