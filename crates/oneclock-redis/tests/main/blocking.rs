//! Commands that the server holds back: on connections of their own, no longer than what is left, and forgotten with their
//! caller.

use oneclock::clock;
use oneclock_core::{Outcome, Stage};
use oneclock_redis::redis::{self, AsyncConnectionConfig};

use crate::support::{BOUND, Keys, Recorder, Server, address, ask, client, cmd, eventually, ms, operation, until_held};

type Popped = Option<(String, String)>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i2_the_server_answers_that_nothing_came_before_the_budget_is_gone() {
    let (redis, keys) = (client(|redis| redis), Keys::new());
    let (list, stream, zset) = (keys.key("list"), keys.key("stream"), keys.key("zset"));
    let texts = [
        format!("BLPOP {list} 0"),
        format!("BRPOP {list} 60"),
        format!("BLMOVE {list} {list} LEFT RIGHT 0"),
        format!("BLMPOP 0 1 {list} LEFT"),
        format!("BZPOPMIN {zset} 0"),
        format!("XREAD BLOCK 0 STREAMS {stream} $"),
    ];
    for text in texts {
        // A busy machine may be late once.
        let mut tries = 0;
        let nothing = loop {
            tries += 1;
            let began = clock::now();
            // The redis crate reads "nothing" as none, whatever the type would be.
            match redis.query_in::<Option<redis::Value>>(&operation(ms(400)), "wait", &cmd(&text)).await {
                Ok(nothing) => {
                    let took = clock::now().since(began);
                    assert!(took >= ms(300), "{text} came back after {took:?}");
                    break nothing;
                }
                Err(error) => {
                    assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Wait }, "{text}: {error}");
                    assert!(tries < 20, "{text}: {error}");
                }
            }
        };
        assert_eq!(nothing, None, "{text}");
    }
    assert!(redis.status().own_idle >= 1, "a connection whose answer came serves the next");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_in_time_is_there_at_once() {
    let (redis, keys) = (client(|redis| redis), Keys::new());
    let list = keys.key("list");
    let pop = cmd(&format!("BLPOP {list} 0"));
    let long = operation(BOUND);
    let (popped, _) = tokio::join!(redis.query_in::<Popped>(&long, "pop", &pop), async {
        eventually("the wait", || (redis.status().own == 1).then_some(())).await;
        ask::<i64>(&redis, &format!("RPUSH {list} job")).await
    });
    assert_eq!(popped.unwrap(), Some((list, "job".to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_counts_the_writes_before_it_in_its_pipeline() {
    let (redis, keys) = (client(|redis| redis), Keys::new());
    let key = keys.key("k");
    let write = redis::pipe().set(&key, 1).ignore().cmd("WAIT").arg(5).arg(0).to_owned();
    let mut tries = 0; // a busy machine may be late once
    let replicas = loop {
        tries += 1;
        match redis.pipeline_in::<(i64,)>(&operation(ms(500)), "write", &write).await {
            Ok((replicas,)) => break replicas,
            Err(error) => assert!(tries < 20, "{error}"),
        }
    };
    assert!(replicas < 5, "and it came back, though it asked to wait for ever");
    assert_eq!(ask::<i64>(&redis, &format!("GET {key}")).await, 1);
}

/// What a test does with a way of sending commands: one waits on a list, others must be answered meanwhile.
async fn others_are_answered_beside<F, G>(blocks: F, others: impl Fn() -> G) -> usize
where
    F: Future<Output = ()> + Send + 'static,
    G: Future<Output = bool>,
{
    let blocks = tokio::spawn(blocks);
    tokio::time::sleep(ms(100)).await; // so that it is on its way; earlier would only make it easier
    let mut answered = 0;
    for _ in 0..20 {
        answered += usize::from(others().await);
    }
    blocks.abort();
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_waits_delays_no_other_and_the_naive_way_does() {
    let (redis, keys) = (client(|redis| redis), Keys::new());
    let list = keys.key("list");

    let (pops, pop) = (redis.clone(), cmd(&format!("BLPOP {list} 0")));
    let blocks = async move {
        let _ = pops.query_in::<Popped>(&operation(BOUND), "pop", &pop).await;
    };
    let ping = cmd("PING");
    let ours = others_are_answered_beside(blocks, async || {
        redis.query_in::<()>(&operation(ms(5_000)), "ping", &ping).await.is_ok()
    });
    assert_eq!(ours.await, 20);

    // The same with the client library's shared connection, as one would use it.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let naive = redis::Client::open(address()).unwrap();
    let naive = naive.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let mut pops = naive.clone();
    let blocks = async move {
        let _: Result<Popped, _> = cmd(&format!("BLPOP {list} 60")).query_async(&mut pops).await;
    };
    let naive = others_are_answered_beside(blocks, async || {
        let mut connection = naive.clone();
        tokio::time::timeout(ms(100), cmd("PING").query_async::<()>(&mut connection)).await.is_ok()
    });
    assert_eq!(naive.await, 0, "then no connection of its own would be needed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_when_the_caller_leaves_the_server_forgets_and_nothing_is_popped_for_nobody() {
    let server = Server::start();
    let redis = server.client(|redis| redis);
    let recorder = Recorder::new();
    let op = operation(BOUND).observed_by(recorder.clone());
    let pop = cmd("BLPOP list 0");
    tokio::select! {
        popped = redis.query_in::<Popped>(&op, "pop", &pop) => panic!("nothing is there: {popped:?}"),
        () = until_held(&redis, 1) => {} // the caller leaves once the server holds it
    }
    until_held(&redis, 0).await;
    assert_eq!(recorder.call("pop").await.outcome, Outcome::Rejected, "proven: nothing was taken");
    eventually("its place", || (redis.status().own == 0).then_some(())).await;
    assert_eq!(redis.status().own_idle, 1, "its answer came: it serves the next call");

    assert_eq!(ask::<i64>(&redis, "RPUSH list job").await, 1);
    assert_eq!(ask::<i64>(&redis, "LLEN list").await, 1, "still there for whoever wants it");
    let popped: Popped = redis.query_in(&operation(BOUND), "again", &pop).await.unwrap();
    assert_eq!(popped, Some(("list".to_owned(), "job".to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_a_hundred_callers_leave_and_the_server_holds_nothing() {
    let server = Server::start();
    let redis = server.client(|redis| redis.own_connections(100));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let redis = redis.clone();
        callers.spawn(async move {
            redis.query_in::<Popped>(&operation(BOUND), "pop", &cmd("BLPOP list 0")).await.map(|_| ())
        });
    }
    until_held(&redis, 100).await;
    callers.abort_all();
    until_held(&redis, 0).await;
    eventually("their places", || (redis.status().own == 0).then_some(())).await;
}
