//! A network that stalls: each call ends at its deadline, the connection is replaced, and nobody waits on it for the others.

use oneclock_core::{Outcome, Stage};
use oneclock_redis::redis::{self, AsyncConnectionConfig};
use oneclock_redis::{Redis, RedisError};

use crate::support::{BOUND, Relay, Server, ask, cmd, eventually, ms, operation};

/// How many of these calls, one after the other, are cut off before one is answered.
async fn cut_off_before_an_answer(calls: usize, mut call: impl AsyncFnMut() -> bool) -> usize {
    for number in 0..calls {
        if call().await {
            return number;
        }
    }
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_connection_is_replaced_after_a_deadline_and_the_naive_one_never() {
    let server = Server::start();
    let relay = Relay::to(server.socket()).await;
    let redis = relay.client(|redis| redis.cap("ping", ms(300)));
    ask::<()>(&redis, "PING").await;
    let naive = redis::Client::open(relay_address(&relay)).unwrap();
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(ms(150)));
    let naive = naive.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    relay.stall_those_there_are();

    let ping = cmd("PING");
    let mut outcomes = Vec::new();
    let cut_off = cut_off_before_an_answer(20, async || {
        let answer = redis.query_in::<()>(&operation(BOUND), "ping", &ping).await;
        outcomes.extend(answer.as_ref().err().map(RedisError::outcome));
        answer.is_ok()
    });
    let cut_off = cut_off.await;
    assert!((1..=5).contains(&cut_off), "{cut_off} calls were cut off: {outcomes:?}");
    assert_eq!(outcomes[0], Outcome::Unknown { stage: Stage::Wait });
    let status = redis.status();
    assert!(status.connected && status.stalled >= 1 && status.opened >= 2, "{status:?}");

    let naive = cut_off_before_an_answer(10, async || {
        let mut naive = naive.clone();
        cmd("PING").query_async::<()>(&mut naive).await.is_ok()
    });
    assert_eq!(naive.await, 10, "then nothing would have to be replaced");
}

fn relay_address(relay: &Relay) -> String {
    format!("redis://{}", relay.address())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_with_little_time_see_the_stall_together() {
    let server = Server::start();
    let relay = Relay::to(server.socket()).await;
    let redis = relay.client(|redis| redis.cap("lookup", ms(30)));
    ask::<()>(&redis, "PING").await;
    relay.stall_those_there_are();
    // None of them lives as long as it takes to tell a stall.
    let get = cmd("GET k");
    let cut_off = cut_off_before_an_answer(100, async || {
        redis.query_in::<Option<String>>(&operation(BOUND), "lookup", &get).await.is_ok()
    });
    let cut_off = cut_off.await;
    assert!((1..100).contains(&cut_off), "{cut_off} calls were cut off");
    assert!(redis.status().stalled >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_callers_end_at_their_deadlines_on_a_network_that_stands_still_and_it_heals() {
    let server = Server::start();
    let relay = Relay::to(server.socket()).await;
    let redis = relay.client(|redis| redis.connect_cap(ms(1_000)));
    ask::<()>(&redis, "PING").await;
    relay.stall_all();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..200_u64 {
        let redis = redis.clone();
        callers.spawn(async move {
            let (budget, began) = (ms(50 + caller), oneclock::clock::now());
            let error = redis.query_in::<i64>(&operation(budget), "count", &cmd("INCR n")).await.unwrap_err();
            (error.outcome(), oneclock::clock::now().since(began).saturating_sub(budget))
        });
    }
    let (mut unknown, mut worst) = (0, ms(0));
    while let Some(ended) = callers.join_next().await {
        let (outcome, over) = ended.unwrap();
        assert!(matches!(outcome, Outcome::NotSent | Outcome::Unknown { stage: Stage::Wait }), "{outcome:?}");
        unknown += i64::from(outcome != Outcome::NotSent);
        worst = worst.max(over);
    }
    println!("{unknown} of 200 unknown, worst {worst:?} over its deadline, {:?}", redis.status());
    assert!(worst < ms(2_000), "{worst:?} over its deadline");
    assert_eq!(redis.status().stalled, 1, "seen by many, counted once");
    let attempts = relay.accepted();
    assert!(attempts <= 20, "{attempts} connections for 200 callers");

    // Later ones are told that nothing was sent: there is no connection.
    let late = redis.query_in::<i64>(&operation(ms(50)), "count", &cmd("INCR n")).await.unwrap_err();
    assert_eq!(late.outcome(), Outcome::NotSent, "{late}");

    relay.go_on();
    until_answered(&redis).await;
    let counted: i64 = ask(&redis, "INCR n").await;
    assert!(counted - 1 <= unknown, "{counted} counted, and only {unknown} calls may have been done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_command_on_a_stalled_connection_ends_and_what_waited_beside_it_is_not_trusted() {
    let server = Server::start();
    let relay = Relay::to(server.socket()).await;
    let redis = relay.client(|redis| redis);
    let (pop, short) = (cmd("BLPOP list 0"), cmd("BLPOP list 0.2"));
    let both = [operation(BOUND), operation(BOUND)];
    let (one, two) = tokio::join!(
        redis.query_in::<Option<(String, String)>>(&both[0], "one", &short),
        redis.query_in::<Option<(String, String)>>(&both[1], "two", &short)
    );
    assert_eq!((one.unwrap(), two.unwrap()), (None, None));
    assert_eq!(redis.status().own_idle, 2);
    relay.stall_those_there_are();
    let error = redis.query_in::<Option<(String, String)>>(&operation(ms(200)), "cut", &pop).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Wait });
    assert_eq!(redis.status().own_idle, 0, "the other one may be as dead");
    let next = redis.query_in::<Option<(String, String)>>(&operation(BOUND), "next", &short).await;
    assert_eq!(next.unwrap(), None);
}

async fn until_answered(redis: &Redis) {
    let answered = async {
        while redis.query_in::<()>(&operation(ms(500)), "again", &cmd("PING")).await.is_err() {
            tokio::time::sleep(ms(5)).await;
        }
    };
    tokio::time::timeout(BOUND, answered).await.expect("it heals");
    eventually("a connection", || redis.status().connected.then_some(())).await;
}
