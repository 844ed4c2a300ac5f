//! Another configuration while runs are under way.

use http::StatusCode;
use oneclock_proxy::Running;
use oneclock_proxy::config::Config;

use super::{Till, charge, file, is_replay, keyed, keyed_with, told};
use crate::common::{AMPLE, address, ms, start};

async fn reload(proxy: &mut Running, mut config: Config) {
    config.listeners.clone_from(&proxy.config().listeners);
    proxy.reload(config).await.expect("it is taken");
}

/// The same runs where the same is said of keys, the same store in any case.
#[tokio::test]
async fn a_reload_keeps_runs_and_store() {
    let ((_folder, store), till) = (file(), Till::closed().await);
    let mut proxy = start(keyed(till.addr, &store)).await;
    let first = tokio::spawn(told(charge(address(&proxy), "tap-7", "499")));
    till.await_asked(1).await;
    let mut config = keyed(till.addr, &store);
    config.routes[0].min_useful = ms(7); // something else
    reload(&mut proxy, config).await;
    let second = tokio::spawn(told(charge(address(&proxy), "tap-7", "499")));
    let others = keyed_with(till.addr, &store, |once| once.execution = AMPLE * 2); // their runs, which ask the store
    reload(&mut proxy, others).await;
    let third = tokio::spawn(told(charge(address(&proxy), "tap-7", "499")));
    tokio::task::yield_now().await;
    till.let_all();
    let (status, headers, receipt) = first.await.expect("told");
    assert_eq!((status, is_replay(&headers), &*receipt), (StatusCode::CREATED, false, "receipt 1 for 499"));
    for other in [second, third] {
        let (status, headers, again) = other.await.expect("told");
        assert_eq!((status, is_replay(&headers), &again), (StatusCode::CREATED, true, &receipt));
    }
    assert_eq!((till.asked(), till.charges()), (1, 1));
}
