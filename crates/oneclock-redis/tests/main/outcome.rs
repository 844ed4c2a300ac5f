//! I8, R7, R8: what is known of the server, and what may be repeated.

use oneclock_core::{Outcome, Stage};
use oneclock_redis::{RedisError, redis};

use crate::support::{BOUND, Keys, Recorder, Server, ask, client, cmd, eventually, ms, operation};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i8_a_write_that_was_cut_off_is_unknown_and_indeed_is_done_and_a_read_may_be_repeated() {
    let server = Server::start();
    let redis = server.client(|redis| redis);
    ask::<()>(&redis, "PING").await;
    // Handed over in this order, on one connection: the two wait behind the one that takes long.
    let (long, short) = (operation(BOUND), operation(ms(80)));
    let (sleep, write, read) = (cmd("DEBUG SLEEP 1"), cmd("INCR charged"), cmd("GET charged"));
    let (slept, write, read) = tokio::join!(
        redis.query_in::<String>(&long, "sleep", &sleep),
        redis.query_in::<i64>(&short, "write", &write),
        redis.query_in::<Option<i64>>(&short, "read", &read)
    );
    slept.unwrap();
    let (write, read) = (write.unwrap_err(), read.unwrap_err());
    for error in [&write, &read] {
        assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Wait }, "{error}");
    }
    assert!(read.may_repeat() && !write.may_repeat());
    assert_eq!(ask::<i64>(&redis, "GET charged").await, 1, "unknown, and it was done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i8_the_event_of_a_caller_who_left_says_unknown() {
    let server = Server::start();
    let redis = server.client(|redis| redis);
    ask::<()>(&redis, "PING").await;
    let recorder = Recorder::new();
    let op = operation(BOUND).observed_by(recorder.clone());
    let sleep = cmd("DEBUG SLEEP 0.3");
    let call = redis.query_in::<()>(&op, "leave", &sleep);
    assert!(tokio::time::timeout(ms(100), call).await.is_err(), "the caller leaves");
    assert_eq!(recorder.call("leave").await.outcome, Outcome::Unknown { stage: Stage::Wait });
    eventually("a free place", || (redis.status().in_flight == 0).then_some(())).await;
    assert_eq!(ask::<String>(&redis, "ECHO next").await, "next");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r8_what_the_server_answers_says_what_is_known() {
    let (redis, keys) = (client(|redis| redis), Keys::new());
    let (text, counter) = (keys.key("text"), keys.key("counter"));
    ask::<()>(&redis, &format!("SET {text} words")).await;
    let failed = async |text: &str| {
        redis.query_in::<()>(&operation(BOUND), "fails", &cmd(text)).await.map(|()| "no error").unwrap_err()
    };

    let error = failed(&format!("LPUSH {text} 1")).await;
    assert_eq!(
        (error.outcome(), error.redis().and_then(redis::RedisError::code)),
        (Outcome::Failed, Some("WRONGTYPE"))
    );
    assert!(!error.may_repeat());
    assert_eq!(failed("NO.SUCH.COMMAND").await.outcome(), Outcome::Failed);
    assert_eq!(failed("EVALSHA 0123456789012345678901234567890123456789 0").await.outcome(), Outcome::Failed);

    // A script may have written before it failed; this one did.
    let mut script = redis::cmd("EVAL");
    script.arg("redis.call('INCR', KEYS[1]); return redis.call('LPUSH', KEYS[2], 1)").arg(2).arg(&counter).arg(&text);
    let error = redis.query_in::<()>(&operation(BOUND), "script", &script).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Work });
    assert_eq!(ask::<i64>(&redis, &format!("GET {counter}")).await, 1);

    // Done, and the answer is no number.
    let error = redis.query_in::<i64>(&operation(BOUND), "type", &cmd(&format!("GETSET {text} x"))).await.unwrap_err();
    assert!(matches!(error, RedisError::Answer { .. }), "{error}");
    assert_eq!((error.outcome(), error.may_repeat()), (Outcome::Applied, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_is_one_call_and_an_atomic_one_is_all_or_nothing() {
    let (redis, keys) = (client(|redis| redis), Keys::new());
    let (a, b, text) = (keys.key("a"), keys.key("b"), keys.key("text"));
    let recorder = Recorder::new();
    let op = operation(BOUND).observed_by(recorder.clone());

    let both = redis::pipe().atomic().incr(&a, 2).ignore().incr(&b, 3).get(&a).to_owned();
    let (b_now, a_now): (i64, i64) = redis.pipeline_in(&op, "both", &both).await.unwrap();
    assert_eq!((a_now, b_now), (2, 3));
    assert_eq!(recorder.call("both").await.outcome, Outcome::Applied, "one call, one event");

    // A mistake that shows before EXEC: nothing is done.
    let wrong = redis::pipe().atomic().incr(&a, 1).cmd("INCR").to_owned();
    let error = redis.pipeline_in::<()>(&op, "wrong", &wrong).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Failed);
    assert_eq!(ask::<i64>(&redis, &format!("GET {a}")).await, 2);

    // One that shows while it runs: Redis does the others.
    ask::<()>(&redis, &format!("SET {text} words")).await;
    let half = redis::pipe().atomic().incr(&a, 1).cmd("LPUSH").arg(&text).arg(1).to_owned();
    let error = redis.pipeline_in::<()>(&op, "half", &half).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Work });
    assert_eq!(ask::<i64>(&redis, &format!("GET {a}")).await, 3);

    let reads = redis::pipe().get(&text).cmd("LLEN").arg(&text).to_owned();
    let error = redis.pipeline_in::<()>(&op, "reads", &reads).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Failed, "reads leave nothing half done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_change_the_connection_for_everybody_is_refused() {
    let redis = client(|redis| redis);
    for text in ["SELECT 1", "MULTI", "WATCH k", "SUBSCRIBE c", "CLIENT REPLY OFF", "QUIT", "WAIT 1 0"] {
        let error = redis.query_in::<()>(&operation(BOUND), "change", &cmd(text)).await.unwrap_err();
        assert!(matches!(&error, RedisError::NotShared { .. }), "{text}: {error}");
        assert_eq!((error.outcome(), error.may_repeat()), (Outcome::NotSent, false), "{text}");
    }
    let error = redis.query_in::<()>(&operation(BOUND), "empty", &redis::Cmd::new()).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotSent);
    assert_eq!(ask::<String>(&redis, "ECHO fine").await, "fine");
}
