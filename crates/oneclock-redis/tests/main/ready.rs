//! The self-test: what it shows, and that it can fail.

use oneclock_redis::SelfTestFailed;

use crate::support::{Relay, Server, ask, client, ms};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_self_test_shows_a_cut_at_the_budget_and_leaves_nothing() {
    let server = Server::start();
    let redis = server.client(|redis| redis);
    let shown = redis.self_test().await.unwrap();
    println!("{shown:?}");
    assert!(shown.cut_after >= ms(50) && shown.cut_after < ms(3_000), "{shown:?}");
    assert!(shown.beside_it < shown.cut_after + ms(2_000), "{shown:?}");
    assert!(shown.forgotten_after.is_some(), "{shown:?}");
    assert_eq!(ask::<usize>(&redis, "DBSIZE").await, 0);
    assert_eq!(redis.status().own, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_self_test_passes_on_the_server_that_all_share_and_without_the_right_to_list() {
    client(|redis| redis).self_test().await.unwrap();
    let server = Server::start();
    let redis = server.client(|redis| redis);
    let rules = "ACL SETUSER small on >pw ~* &* +@all -client|list -client|id";
    ask::<()>(&redis, rules).await;
    let small = server.address().replace("redis://", "redis://small:pw@");
    let small = oneclock_redis::Redis::builder(small).build().unwrap();
    assert_eq!(small.self_test().await.unwrap().forgotten_after, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_self_test_says_what_does_not_hold() {
    let mut server = Server::start();
    let relay = Relay::to(server.socket()).await;
    let redis = relay.client(|redis| redis);
    redis.self_test().await.unwrap();
    relay.stall_all();
    let error = redis.self_test().await.unwrap_err();
    assert!(matches!(&error, SelfTestFailed::Call { .. }), "{error}");
    server.kill();
    assert!(server.client(|redis| redis).self_test().await.is_err());
}
