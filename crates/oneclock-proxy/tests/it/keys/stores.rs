//! A store that is not there: nothing is sent without a claim (contract M6), and the rest is served.

use http::StatusCode;
use oneclock_proxy::config::IdempotencyStore;
use oneclock_proxy::{Proxy, StartFailed};
use oneclock_sqlite::rusqlite::Connection;

use super::{Till, charge, file, is_replay, keyed, keyed_with, problem, told, unkeyed};
use crate::common::{AMPLE, address, ms, start};

#[tokio::test]
async fn without_its_store_nothing_with_a_key_is_sent_and_the_rest_is_served() {
    let ((folder, store), till) = (file(), Till::open().await);
    let proxy = start(keyed(till.addr, &store)).await;
    told(charge(address(&proxy), "tap-7", "499")).await;
    let other = Connection::open(folder.path().join("keys.sqlite")).expect("it opens");
    other.execute_batch("BEGIN EXCLUSIVE").expect("locked");
    for key in ["tap-8", "tap-7"] {
        let (status, headers, body) = told(charge(address(&proxy), key, "499")).await;
        assert_eq!((status, &*problem(&body)), (StatusCode::SERVICE_UNAVAILABLE, "store_unreachable"), "{key}");
        assert!(headers.contains_key("retry-after"));
    }
    assert_eq!(till.asked(), 1);
    let (status, ..) = told(unkeyed(address(&proxy), "1")).await;
    assert_eq!((status, till.asked()), (StatusCode::CREATED, 2));
    other.execute_batch("ROLLBACK").expect("let go");
    let (status, headers, _) = told(charge(address(&proxy), "tap-8", "499")).await;
    assert_eq!((status, is_replay(&headers)), (StatusCode::CREATED, false));
    let (status, headers, _) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, is_replay(&headers), till.charges()), (StatusCode::CREATED, true, 3));
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_ends_the_start_and_a_look_makes_none() {
    let (folder, store) = file();
    let config = keyed(([127, 0, 0, 1], 3000).into(), &store);
    Proxy::check(&config).expect("it can be run");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing was opened");

    let nowhere = IdempotencyStore::Sqlite(folder.path().join("no/such/folder/keys.sqlite"));
    let refused = Proxy::start(keyed(([127, 0, 0, 1], 3000).into(), &nowhere)).await.expect_err("no folder");
    assert!(matches!(refused, StartFailed::Store { .. }), "{refused}");
    assert!(refused.to_string().ends_with("keys.sqlite cannot be used"), "{refused}");
}

/// Somebody has to let old records go: the proxy looks for them when it starts, and once a minute.
#[tokio::test]
async fn records_whose_time_has_passed_go() {
    let ((folder, store), till) = (file(), Till::open().await);
    let short = || {
        let mut config = keyed_with(till.addr, &store, |once| (once.execution, once.retention) = (ms(700), ms(1_400)));
        let route = &mut config.routes[0];
        (route.when_absent, route.ceiling) = (ms(700), ms(700));
        config
    };
    let proxy = start(short()).await;
    told(charge(address(&proxy), "tap-7", "499")).await;
    proxy.shutdown().await;
    let look = Connection::open(folder.path().join("keys.sqlite")).expect("it opens");
    let kept = || {
        look.query_row("SELECT count(*) FROM oneclock_idempotency WHERE key = 'tap-7'", [], |row| row.get::<_, u32>(0))
    };
    assert_eq!(kept().expect("a table"), 1);
    let gone = async {
        while kept().expect("a table") > 0 {
            let proxy = start(short()).await;
            for _ in 0..3 {
                told(charge(address(&proxy), "tap-8", "499")).await; // asks the store, behind who looks for them
            }
            proxy.shutdown().await;
        }
    };
    tokio::time::timeout(AMPLE, gone).await.expect("it goes");
}
