//! What the crate is for: the usual way leaves the statement running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{FOR_EVER, Folder, count_to, eventually, ms, operation, until_idle};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_blocking_under_a_timeout_leaves_the_statement_running() {
    let folder = Folder::new();
    drop(folder.pool(|pool| pool));
    let connection = folder.outside();
    let stops = connection.get_interrupt_handle();
    let running = Arc::new(AtomicBool::new(true));
    let runs = Arc::clone(&running);
    let statement = tokio::task::spawn_blocking(move || {
        let counted = count_to(&connection, FOR_EVER);
        runs.store(false, Ordering::Release);
        counted
    });
    assert!(tokio::time::timeout(ms(100), statement).await.is_err());
    tokio::time::sleep(ms(400)).await;
    assert!(running.load(Ordering::Acquire), "then this crate would not be needed");
    stops.interrupt();
    eventually("its end", || (!running.load(Ordering::Acquire)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_does_not() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let running = Arc::new(AtomicBool::new(true));
    let runs = Arc::clone(&running);
    let op = operation(ms(100));
    let report = pool.run_in(&op, "report", move |conn| {
        let counted = count_to(conn, FOR_EVER);
        runs.store(false, Ordering::Release);
        counted
    });
    assert!(report.await.is_err());
    until_idle(&pool).await;
    assert!(!running.load(Ordering::Acquire));
    assert!(op.deadline().is_past(oneclock::clock::now()));
}
