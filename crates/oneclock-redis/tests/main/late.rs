//! Nothing is left behind: a late answer is never given to another, and callers that leave take nothing from those who stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oneclock_core::{Outcome, Stage};
use oneclock_redis::RedisError;

use crate::support::{BOUND, Recorder, Server, ask, cmd, eventually, ms, operation};

/// Callers, each with a value of its own.
const CALLERS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n1_two_hundred_callers_that_leave_at_random_moments_and_no_answer_goes_astray() {
    let server = Server::start();
    let redis = server.client(|redis| redis);
    for caller in 0..CALLERS {
        ask::<()>(&redis, &format!("SET k{caller} v{caller}")).await;
    }
    // The server stands still now and then, so that answers come late and in heaps.
    let other = server.client(|redis| redis);
    let recorder = Recorder::new();
    let (answered, left, late) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let counts = Arc::new((answered, left, late));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let (redis, counts, recorder) = (redis.clone(), Arc::clone(&counts), recorder.clone());
        callers.spawn(async move {
            for round in 0..6_u64 {
                let spread = (caller as u64 * 7919 + round * 104_729) % 97; // 0 to 96 ms
                let op = operation(ms(10 + spread * 3)).observed_by(recorder.clone());
                let get = cmd(&format!("GET k{caller}"));
                let call = redis.query_in::<String>(&op, "get", &get);
                match tokio::time::timeout(ms(5 + spread), call).await {
                    Ok(Ok(value)) => {
                        assert_eq!(value, format!("v{caller}"), "the answer of somebody else");
                        counts.0.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(Err(error)) => {
                        assert!(
                            matches!(error, RedisError::Stopped { .. } | RedisError::NotConnected { .. }),
                            "{error}"
                        );
                        counts.2.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => {
                        counts.1.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
    }
    let sleeps = async {
        for _ in 0..6 {
            ask::<()>(&other, "DEBUG SLEEP 0.03").await;
            tokio::time::sleep(ms(10)).await;
        }
    };
    tokio::join!(sleeps, async { while callers.join_next().await.transpose().unwrap().is_some() {} });
    let [answered, left, late] = [&counts.0, &counts.1, &counts.2].map(|count| count.load(Ordering::Relaxed));
    println!("{answered} answered, {left} left, {late} cut off; {:?}", redis.status());
    assert_eq!(answered + left + late, CALLERS * 6);
    assert!(left > 0, "otherwise nothing was tried");

    eventually("free places", || (redis.status().in_flight == 0).then_some(())).await;
    for caller in 0..CALLERS {
        assert_eq!(ask::<String>(&redis, &format!("GET k{caller}")).await, format!("v{caller}"));
    }
    let told = recorder.all();
    assert!(told.len() <= CALLERS * 6);
    for called in told {
        let known =
            matches!(called.outcome, Outcome::Applied | Outcome::NotSent | Outcome::Unknown { stage: Stage::Wait });
        assert!(known, "{called:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_answer_is_thrown_away_and_the_next_command_gets_its_own() {
    let server = Server::start();
    let redis = server.client(|redis| redis);
    ask::<()>(&redis, "PING").await;
    for round in 0..5 {
        // The answer of the first comes long after its deadline, and before that of the second, on the same connection.
        let (op, patient) = (operation(ms(40)), operation(BOUND));
        let (slow, echo) = (cmd("DEBUG SLEEP 0.3"), cmd(&format!("ECHO {round}")));
        let (slow, next) = tokio::join!(redis.query_in::<String>(&op, "slow", &slow), async {
            tokio::time::sleep(ms(2)).await;
            redis.query_in::<String>(&patient, "next", &echo).await
        });
        assert!(slow.is_err());
        assert_eq!(next.unwrap(), round.to_string());
    }
}
