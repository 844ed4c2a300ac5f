//! What shows when a pool is built, and what every connection is set to.

use std::error::Error;

use oneclock_core::Refused;
use oneclock_sqlite::{BadPool, Pool, Synchronous};

use crate::support::{Folder, ms, operation};

#[test]
fn contradictions_show_when_the_pool_is_built() {
    assert!(matches!(Pool::builder(":memory:").size(0).build(), Err(BadPool::NoConnections)));
    match Pool::builder(":memory:").size(usize::MAX).build() {
        Err(BadPool::TooManyConnections { size: usize::MAX, most }) => assert!(most > 0),
        other => panic!("{other:?}"),
    }
    assert!(matches!(Pool::builder(":memory:").max_waiting(0).build(), Err(BadPool::NoPlaces)));
    match Pool::builder(":memory:").cap("lookup", ms(50)).min_useful(ms(60)).build() {
        Err(BadPool::Cap { call, source: Refused::CapBelowMinimum { .. } }) => assert_eq!(call.as_str(), "lookup"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_database_that_cannot_be_opened_shows_when_the_pool_is_built() {
    let folder = Folder::new();
    let error = Pool::builder(folder.as_ref().join("no/such/folder/db")).build().unwrap_err();
    assert!(matches!(&error, BadPool::Open { place, .. } if place.ends_with("no/such/folder/db")), "{error}");
    assert!(error.source().is_some());

    let no_database = folder.as_ref().join("text");
    std::fs::write(&no_database, "x".repeat(4096)).unwrap();
    assert!(matches!(Pool::builder(no_database).build(), Err(BadPool::Open { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_has_the_same_settings() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(3).synchronous(Synchronous::Full));
    let op = operation(ms(10_000));
    let together = std::sync::Arc::new(std::sync::Barrier::new(3));
    let asked = (0..3).map(|_| {
        let together = together.clone();
        pool.run_in(&op, "ask", move |conn| {
            together.wait(); // so that each has a connection of its own
            let text = |sql| conn.query_row(sql, [], |row| row.get::<_, String>(0));
            let number = |sql| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
            Ok((text("PRAGMA journal_mode")?, number("PRAGMA synchronous")?, number("PRAGMA foreign_keys")?))
        })
    });
    let [a, b, c] = <[_; 3]>::try_from(asked.collect::<Vec<_>>()).unwrap_or_else(|_| panic!("three"));
    for settings in <[_; 3]>::from(tokio::try_join!(a, b, c).unwrap()) {
        assert_eq!(settings, ("wal".to_owned(), 2, 1));
    }
    assert_eq!(pool.status().open, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_in_memory_is_one_database_and_its_own() {
    let (a, b) = (Pool::builder(":memory:").build().unwrap(), Pool::builder(":memory:").build().unwrap());
    let op = operation(ms(10_000));
    a.run_in(&op, "make", |conn| conn.execute_batch("CREATE TABLE t (i); INSERT INTO t VALUES (7)")).await.unwrap();
    let together = std::sync::Arc::new(std::sync::Barrier::new(2));
    let ask = |together: std::sync::Arc<std::sync::Barrier>| {
        a.run_in(&op, "ask", move |conn| {
            together.wait();
            conn.query_row("SELECT i FROM t", [], |row| row.get::<_, i64>(0))
        })
    };
    assert_eq!(tokio::try_join!(ask(together.clone()), ask(together)).unwrap(), (7, 7));
    assert!(b.run_in(&op, "ask", |conn| conn.execute_batch("SELECT i FROM t")).await.is_err());
}
