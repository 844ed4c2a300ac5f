//! I2, I3, I4: the budget bounds every command, and nothing else does.

use std::error::Error;

use oneclock::{Stopped, reason_in, stopped_in};
use oneclock_core::{Cause, Outcome, Reason, Refused, Stage};
use oneclock_redis::{BadRedis, Redis, RedisError};

use crate::support::{BOUND, Keys, Recorder, Server, ask, client, cmd, ms, operation};

#[test]
fn contradictions_show_when_the_client_is_built() {
    let here = || Redis::builder("redis://127.0.0.1");
    assert!(matches!(here().max_in_flight(0).build(), Err(BadRedis::Zero { limit: "max_in_flight" })));
    assert!(matches!(here().max_waiting(0).build(), Err(BadRedis::Zero { limit: "max_waiting" })));
    assert!(matches!(here().own_connections(0).build(), Err(BadRedis::Zero { limit: "own_connections" })));
    match here().cap("lookup", ms(50)).min_useful(ms(60)).build() {
        Err(BadRedis::Cap { call, source: Refused::CapBelowMinimum { .. } }) => assert_eq!(call.as_str(), "lookup"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(Redis::builder("http://127.0.0.1").build(), Err(BadRedis::Address { .. })));
    let error = Redis::builder("rediss://:secret@127.0.0.1").build();
    assert!(error.is_err(), "{error:?}");
    let text = format!("{:?}", Redis::builder("redis://:secret@127.0.0.1").build().unwrap());
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_command_gets_what_its_budget_leaves_neither_less_nor_more_than_a_default() {
    let server = Server::start();
    let redis = server.client(|redis| redis.cap("hasty", ms(200)));
    ask::<()>(&redis, "PING").await;

    // Longer than the 500 ms that the client library would give it.
    let patient = redis.query_in::<String>(&operation(BOUND), "patient", &cmd("DEBUG SLEEP 0.8")).await;
    assert_eq!(patient.unwrap(), "OK");

    let began = oneclock::clock::now();
    let error = redis.query_in::<()>(&operation(BOUND), "hasty", &cmd("DEBUG SLEEP 3")).await.unwrap_err();
    let took = oneclock::clock::now().since(began);
    assert!(took >= ms(195) && took < ms(2_500), "{took:?}");
    assert_eq!(error.reason(), Some(Reason::Cap));
    assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Wait });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i13_the_error_says_which_bound_where_and_where_the_time_went() {
    let server = Server::start();
    let redis = server.client(|redis| redis.cap("report", ms(60)));
    ask::<()>(&redis, "PING").await; // it connects
    let recorder = Recorder::new();
    let op = operation(BOUND).observed_by(recorder.clone());
    let error = redis.query_in::<()>(&op, "report", &cmd("DEBUG SLEEP 1")).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("op → report: out of time in stage wait (bound: cap) after "), "{text}");
    for part in ["of 60ms", "outcome: unknown (cut off in stage wait)", "spent: wait "] {
        assert!(text.contains(part), "{part:?} in: {text}");
    }
    let called = recorder.call("report").await;
    assert_eq!((called.outcome, called.ending.unwrap().cause), (error.outcome(), Cause::Deadline));

    #[derive(Debug, thiserror::Error)]
    #[error("the shop's own")]
    struct OfTheShop(#[source] RedisError);
    let wrapped = OfTheShop(error);
    assert_eq!(reason_in(&wrapped), Some(Reason::Cap));
    assert!(stopped_in(&wrapped).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x6_nothing_begins_after_the_end_or_without_useful_time() {
    let (redis, keys) = (client(|redis| redis), Keys::new());
    let key = keys.key("counter");
    let ended = operation(BOUND);
    ended.call_off();
    let count = cmd(&format!("INCR {key}"));
    for op in [ended, operation(ms(3))] {
        let error = redis.query_in::<i64>(&op, "count", &count).await.unwrap_err();
        assert!(matches!(&error, RedisError::Stopped { stopped: Stopped::NotBegun(_), .. }), "{error}");
        assert_eq!((error.outcome(), error.may_repeat()), (Outcome::NotSent, true));
    }
    assert_eq!(ask::<Option<i64>>(&redis, &format!("GET {key}")).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_without_an_operation_a_call_gets_its_cap_or_is_refused() {
    let server = Server::start();
    let redis = server.client(|redis| redis.cap("slow", ms(80)));
    let error = redis.query::<()>("slow", &cmd("DEBUG SLEEP 2")).await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::Cap));
    let strict = server.client(RedisBuilderExt::strict);
    let error = strict.query::<()>("ping", &cmd("PING")).await.unwrap_err();
    assert!(error.to_string().contains("no operation is current"), "{error}");
    assert!(error.source().is_some());
    assert_eq!(error.outcome(), Outcome::NotSent);
}

trait RedisBuilderExt {
    fn strict(self) -> Self;
}

impl RedisBuilderExt for oneclock_redis::RedisBuilder {
    fn strict(self) -> Self {
        self.require_operation()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_in_the_current_operation_spends_from_it() {
    let (redis, keys) = (client(|redis| redis), Keys::new());
    let key = keys.key("n");
    let op = operation(BOUND);
    let n = op.run(async { redis.query::<i64>("count", &cmd(&format!("INCR {key}"))).await }).await.unwrap().unwrap();
    assert_eq!(n, 1);
    let ledger = op.ledger();
    assert!(ledger.entries().iter().any(|entry| entry.name.as_str() == "count"), "{ledger}");
    assert!(ledger.entries().iter().any(|entry| entry.stage == Stage::Wait), "{ledger}");
}
