//! A server that dies and comes back.

use oneclock_core::{Outcome, Stage};
use oneclock_redis::RedisError;

use crate::support::{BOUND, Recorder, Server, ask, cmd, ms, operation, until_held};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_ends_what_is_under_way_and_the_client_heals_by_itself() {
    let mut server = Server::start();
    let redis = server.client(|redis| redis);
    ask::<()>(&redis, "PING").await;
    let recorder = Recorder::new();
    let op = operation(BOUND).observed_by(recorder.clone());
    let (sleep, pop) = (cmd("DEBUG SLEEP 15"), cmd("BLPOP list 0"));
    let held = redis.query_in::<()>(&op, "held", &pop);
    let slow = async {
        until_held(&redis, 1).await;
        redis.query_in::<()>(&op, "slow", &sleep).await
    };
    let began = oneclock::clock::now();
    let (held, slow, ()) = tokio::join!(held, slow, async {
        until_in_flight(&redis, 1).await;
        tokio::time::sleep(ms(300)).await; // so that it has been written; not yet would be "not sent", and right as well
        server.kill();
    });
    assert!(oneclock::clock::now().since(began) < ms(14_000), "long before its deadline and its end");
    for error in [held.unwrap_err(), slow.unwrap_err()] {
        assert!(matches!(&error, RedisError::Redis { .. }), "{error}");
        assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Wait });
    }
    assert_eq!(recorder.call("slow").await.outcome, Outcome::Unknown { stage: Stage::Wait });

    // Nobody there: told at once, with proof.
    let began = oneclock::clock::now();
    for _ in 0..50 {
        let error = redis.query_in::<()>(&operation(BOUND), "gone", &cmd("PING")).await.unwrap_err();
        assert!(matches!(&error, RedisError::NotConnected { .. }) && error.redis().is_some(), "{error}");
        assert!(oneclock::not_connected_in(&error).is_some(), "so that whoever answers says 503");
        assert_eq!((error.outcome(), error.may_repeat()), (Outcome::NotSent, true));
    }
    assert!(oneclock::clock::now().since(began) < ms(5_000), "no caller waits for a server that refuses");
    let status = redis.status();
    assert_eq!((status.connected, status.opened, status.in_flight), (false, 1, 0));

    server.restart();
    let back = async {
        while redis.query_in::<()>(&operation(ms(500)), "again", &cmd("PING")).await.is_err() {
            tokio::time::sleep(ms(5)).await;
        }
    };
    tokio::time::timeout(BOUND, back).await.expect("it heals");
    assert_eq!(ask::<i64>(&redis, "INCR n").await, 1);
    assert_eq!(redis.status().opened, 2);
}

async fn until_in_flight(redis: &oneclock_redis::Redis, calls: usize) {
    crate::support::eventually("a call under way", || {
        let status = redis.status();
        (status.in_flight == calls && status.own == 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_yet_is_found_when_it_comes() {
    let mut server = Server::start();
    server.kill();
    let redis = server.client(|redis| redis);
    let error = redis.query_in::<()>(&operation(BOUND), "early", &cmd("PING")).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotSent);
    assert!(error.redis().is_some_and(redis::RedisError::is_connection_refusal), "{error:?}");
    server.restart();
    let back = async {
        while redis.query_in::<()>(&operation(ms(500)), "again", &cmd("PING")).await.is_err() {
            tokio::time::sleep(ms(5)).await;
        }
    };
    tokio::time::timeout(BOUND, back).await.expect("it is found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_asked_for_and_not_given_is_an_error_of_the_connection() {
    let server = Server::start();
    let open = server.client(|redis| redis);
    ask::<()>(&open, "CONFIG SET requirepass secret").await;
    let without = server.client(|redis| redis);
    let error = without.query_in::<()>(&operation(BOUND), "get", &cmd("GET k")).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotSent, "{error}");
    let with = server.address().replace("redis://", "redis://:secret@");
    let with = oneclock_redis::Redis::builder(with).build().unwrap();
    assert_eq!(ask::<String>(&with, "ECHO in").await, "in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_says_which_database_and_may_name_a_unix_socket() {
    let server = Server::start();
    let third = oneclock_redis::Redis::builder(format!("{}/3", server.address())).build().unwrap();
    ask::<()>(&third, "SET k third").await;
    assert_eq!(ask::<Option<String>>(&server.client(|redis| redis), "GET k").await, None);
    let path = format!("redis+unix://{}?db=3", server.unix_socket().display());
    let local = oneclock_redis::Redis::builder(path).build().unwrap();
    assert_eq!(ask::<Option<String>>(&local, "GET k").await.as_deref(), Some("third"));
}
