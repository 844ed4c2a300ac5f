//! The caller leaves at the moment at which the server hands over an element: it is put back, or stays where it was moved to, and
//! the call's event says which. Where neither can be done the outcome is unknown, and never silently.

use oneclock_core::Outcome;
use oneclock_redis::redis::{self, Value};

use crate::support::{BOUND, Recorder, Relay, Server, ask, cmd, eventually, ms, operation, until_held};

type Popped = Option<(String, String)>;

const ROUNDS: u64 = 150;

/// What became of the elements, one for each round.
#[derive(Debug, Default, PartialEq, Eq)]
struct Became {
    arrived: u64,
    /// Where others find it.
    kept: u64,
    lost: u64,
    unknown: u64,
}

/// In each round the caller leaves at about the moment at which an element comes.
async fn race(pops: &'static str, found_in: &[&str]) -> Became {
    let server = Server::start();
    let (redis, others) = (server.client(|redis| redis), server.client(|redis| redis));
    let mut became = Became::default();
    for round in 0..ROUNDS {
        let recorder = Recorder::new();
        let op = operation(BOUND).observed_by(recorder.clone());
        let caller = {
            let redis = redis.clone();
            tokio::spawn(async move { redis.query_in::<Value>(&op, "pop", &cmd(pops)).await })
        };
        until_held(&others, 1).await;
        let push = {
            let others = others.clone();
            tokio::spawn(async move { ask::<i64>(&others, "RPUSH list element").await })
        };
        let began = oneclock::clock::now();
        while oneclock::clock::now().since(began).as_micros() < u128::from(round * 37 % 400) {
            tokio::task::yield_now().await;
        }
        caller.abort();
        push.await.unwrap();
        let arrived = caller.await.is_ok_and(|popped| popped.is_ok());
        until_held(&others, 0).await;
        let outcome = recorder.call("pop").await.outcome;
        let mut kept = 0;
        for list in found_in {
            kept += ask::<u64>(&others, &format!("LLEN {list}")).await;
        }
        match (arrived, kept) {
            (true, _) => became.arrived += 1,
            (false, 0) => became.lost += 1,
            (false, _) => became.kept += 1,
        }
        let taken = ask::<u64>(&others, "EXISTS taken").await == 1;
        let want = if arrived || taken { Outcome::Applied } else { Outcome::Rejected };
        if matches!(outcome, Outcome::Unknown { .. }) {
            became.unknown += 1; // a busy machine may not have let go in time
        } else {
            assert_eq!(outcome, want, "round {round}: arrived {arrived}, taken {taken}");
            assert!(arrived || kept > 0, "round {round}: lost, and not said to be unknown");
        }
        ask::<()>(&others, "FLUSHALL").await;
    }
    println!("{pops}: {became:?}");
    became
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i8_what_was_popped_for_a_caller_who_has_just_left_is_put_back() {
    let became = race("BLPOP list 0", &["list"]).await;
    assert!(became.lost <= became.unknown && became.unknown < ROUNDS / 2, "{became:?}");
    assert!(became.arrived < ROUNDS, "otherwise nobody left, and nothing was tried: {became:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i8_what_was_moved_for_a_caller_who_has_just_left_stays_there_and_the_event_says_so() {
    let became = race("BLMOVE list taken LEFT RIGHT 0", &["list", "taken"]).await;
    assert!(became.lost <= became.unknown && became.unknown < ROUNDS / 2, "{became:?}");
    assert!(became.arrived < ROUNDS, "otherwise nobody left, and nothing was tried: {became:?}");
}

/// One thread, so that the answer is there and its caller has not seen it.
#[tokio::test(flavor = "current_thread")]
async fn an_answer_that_was_there_when_its_caller_left_is_put_back_and_the_naive_way_loses_it() {
    let server = Server::start();
    let (redis, others) = (server.client(|redis| redis), server.client(|redis| redis));
    let taken_while_nobody_looks = async || {
        assert_eq!(ask::<i64>(&others, "RPUSH list element").await, 1);
        ask::<()>(&others, "PING").await;
        tokio::time::sleep(ms(50)).await; // the connections read what there is
    };

    let recorder = Recorder::new();
    let op = operation(BOUND).observed_by(recorder.clone());
    let pop = cmd("BLPOP list 0");
    {
        let mut call = std::pin::pin!(redis.query_in::<Popped>(&op, "pop", &pop));
        tokio::select! {
            popped = call.as_mut() => panic!("nothing is there: {popped:?}"),
            () = until_held(&others, 1) => {}
        }
        taken_while_nobody_looks().await;
        assert_eq!(ask::<u64>(&others, "LLEN list").await, 0, "it was taken");
    }
    assert_eq!(recorder.call("pop").await.outcome, Outcome::Rejected);
    assert_eq!(ask::<Vec<String>>(&others, "LRANGE list 0 -1").await, ["element"]);
    ask::<()>(&others, "DEL list").await;

    let naive = redis::Client::open(server.address()).unwrap();
    let mut naive = naive.get_multiplexed_async_connection().await.unwrap();
    {
        let pop = cmd("BLPOP list 0");
        let mut call = std::pin::pin!(pop.query_async::<Popped>(&mut naive));
        tokio::select! {
            popped = call.as_mut() => panic!("nothing is there: {popped:?}"),
            () = until_held(&others, 1) => {}
        }
        taken_while_nobody_looks().await;
    }
    drop(naive);
    tokio::time::sleep(ms(50)).await;
    assert_eq!(ask::<u64>(&others, "LLEN list").await, 0, "then nothing would have to be put back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_let_go_is_closed_and_unknown() {
    let server = Server::start();
    let relay = Relay::to(server.socket()).await;
    let (redis, others) = (relay.client(|redis| redis), server.client(|redis| redis));
    let recorder = Recorder::new();
    let op = operation(BOUND).observed_by(recorder.clone());
    let pop = cmd("BLPOP list 0");
    tokio::select! {
        popped = redis.query_in::<Popped>(&op, "pop", &pop) => panic!("nothing is there: {popped:?}"),
        () = async {
            until_held(&others, 1).await;
            relay.stall_all();
        } => {} // the caller leaves, and nobody can be told
    }
    assert!(matches!(recorder.call("pop").await.outcome, Outcome::Unknown { .. }));
    eventually("its place", || (redis.status().own == 0).then_some(())).await;
    assert_eq!(redis.status().own_idle, 0);
    relay.go_on();
    until_held(&others, 0).await; // the close arrives
}
