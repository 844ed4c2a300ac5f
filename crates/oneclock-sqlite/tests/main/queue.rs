//! D6, I4: waiting for a connection, and for a thread, spends the budget and ends with it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use oneclock::{Operation, Shutdown, Stopped};
use oneclock_core::{Cause, Outcome, Reason, Stage};
use oneclock_sqlite::rusqlite::{self, Connection};
use oneclock_sqlite::{Pool, SqliteError};
use tokio::sync::oneshot;

use crate::support::{BOUND, Folder, Recorder, count_to, eventually, ms, operation, until_idle};

/// Takes one connection of the pool until told; returns once it has it.
async fn take(pool: &Pool) -> (std::sync::mpsc::Sender<()>, tokio::task::JoinHandle<()>) {
    let (release, released) = std::sync::mpsc::channel();
    let (has, had) = oneshot::channel();
    let pool = pool.clone();
    let holder = tokio::spawn(async move {
        let hold = move |_: &mut Connection| {
            has.send(()).unwrap();
            let _ = released.recv();
            Ok(())
        };
        pool.run_in(&operation(Duration::from_secs(60)), "holder", hold).await.unwrap();
    });
    had.await.unwrap();
    (release, holder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_waiting_for_a_connection_is_stage_pool_counted_and_cut() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let (release, holder) = take(&pool).await;
    let recorder = Recorder::new();
    let op = operation(ms(120)).observed_by(recorder.clone());
    let error = pool.run_in(&op, "lookup", |conn| count_to(conn, 1)).await.unwrap_err();
    let SqliteError::Stopped { stopped, outcome: Outcome::NotSent, .. } = &error else { panic!("{error:?}") };
    let Stopped::Ended(ended) = &**stopped else { panic!("{error:?}") };
    assert_eq!((ended.ending.cause, ended.ending.stage), (Cause::Deadline, Stage::Pool));
    let ledger = op.ledger();
    let direct: Vec<_> = ledger.parts_of(None).collect();
    let [(id, call)] = direct.as_slice() else { panic!("one entry for one call: {ledger}") };
    assert_eq!(call.name.as_str(), "lookup");
    let parts: Vec<_> = ledger.parts_of(Some(*id)).map(|(_, part)| part).collect();
    let [waited] = parts.as_slice() else { panic!("one stage: {parts:?}") };
    assert_eq!(waited.stage, Stage::Pool);
    assert!(waited.ended.unwrap().since(waited.began) >= ms(100), "{waited:?}");
    assert_eq!(recorder.call("lookup").await.outcome, Outcome::NotSent);
    assert_eq!(pool.status().waiting, 0);

    // One that gets its connection in time is told how long it waited.
    let op = operation(ms(10_000));
    let waits = pool.run_in(&op, "lookup", |conn| count_to(conn, 1));
    let releases = async {
        tokio::time::sleep(ms(80)).await;
        release.send(()).unwrap();
    };
    assert_eq!(tokio::join!(waits, releases).0.unwrap(), 1);
    let stages: Vec<_> = op.ledger().entries().iter().skip(1).map(|entry| entry.stage).collect();
    assert_eq!(stages, [Stage::Pool, Stage::Queue, Stage::Work]);
    holder.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_first_come_first_served() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let (release, holder) = take(&pool).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut callers = Vec::new();
    for n in 0..20 {
        let (caller_pool, served) = (pool.clone(), Arc::clone(&served));
        callers.push(tokio::spawn(async move {
            let work = move |_: &mut Connection| {
                served.lock().unwrap().push(n);
                Ok(())
            };
            caller_pool.run_in(&operation(BOUND), "caller", work).await.unwrap();
        }));
        eventually("it waits", || (pool.status().waiting == n + 1).then_some(())).await;
    }
    release.send(()).unwrap();
    for caller in callers {
        caller.await.unwrap();
    }
    holder.await.unwrap();
    assert_eq!(*served.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_is_bounded_and_who_finds_it_full_is_shed() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1).max_waiting(2));
    let (release, holder) = take(&pool).await;
    let op = operation(BOUND);
    let call = |name: &'static str| {
        let (pool, op) = (pool.clone(), op.clone());
        tokio::spawn(async move { pool.run_in(&op, name, |conn| count_to(conn, 1)).await })
    };
    let (a, b) = (call("a"), call("b"));
    eventually("two wait", || (pool.status().waiting == 2).then_some(())).await;
    let error = call("c").await.unwrap().unwrap_err();
    assert_eq!((error.reason(), error.outcome()), (Some(Reason::Shed), Outcome::NotSent), "{error}");
    // One that leaves makes room.
    a.abort();
    eventually("one waits", || (pool.status().waiting == 1).then_some(())).await;
    let d = call("d");
    eventually("two wait", || (pool.status().waiting == 2).then_some(())).await;
    release.send(()).unwrap();
    assert_eq!((b.await.unwrap().unwrap(), d.await.unwrap().unwrap()), (1, 1));
    holder.await.unwrap();
}

/// Contract N5: the one thread is taken, and the work that waits for it does not run once its time is up.
#[test]
fn n5_work_whose_deadline_passed_while_it_waited_for_a_thread_does_not_run() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(1).enable_all().build();
    runtime.unwrap().block_on(async {
        let folder = Folder::new();
        let pool = folder.pool(|pool| pool.size(2));
        let (release, released) = std::sync::mpsc::channel::<()>();
        let other = tokio::task::spawn_blocking(move || released.recv());
        let recorder = Recorder::new();
        let op = operation(ms(100)).observed_by(recorder.clone());
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        let work = move |_: &mut Connection| {
            runs.store(true, Ordering::Release);
            Ok(())
        };
        let error = pool.run_in(&op, "lookup", work).await.unwrap_err();
        let SqliteError::Stopped { stopped, outcome: Outcome::NotSent, .. } = &error else { panic!("{error:?}") };
        let Stopped::Ended(ended) = &**stopped else { panic!("{error:?}") };
        assert_eq!(ended.ending.stage, Stage::Queue);
        // And one whose caller leaves.
        let op = operation(BOUND).observed_by(recorder.clone());
        let runs = Arc::clone(&ran);
        let work = move |_: &mut Connection| {
            runs.store(true, Ordering::Release);
            Ok(())
        };
        assert!(tokio::time::timeout(ms(50), pool.run_in(&op, "left", work)).await.is_err());
        assert_eq!(recorder.call("left").await.outcome, Outcome::NotSent);
        release.send(()).unwrap();
        other.await.unwrap().unwrap();
        until_idle(&pool).await;
        assert!(!ran.load(Ordering::Acquire));
        assert_eq!(pool.run_in(&operation(BOUND), "next", |conn| count_to(conn, 1)).await.unwrap(), 1);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i4_with_too_little_left_nothing_is_begun() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.min_useful(ms(50)));
    let error = pool.run_in(&operation(ms(30)), "lookup", |conn| count_to(conn, 1)).await.unwrap_err();
    assert_eq!((error.reason(), error.outcome()), (Some(Reason::InsufficientBudget), Outcome::NotSent));
}

/// What the callers of the next test do.
fn mixed(n: u64) -> impl FnOnce(&mut Connection) -> rusqlite::Result<()> + Send + 'static {
    move |conn| match n % 4 {
        0 => count_to(conn, 200_000_000).map(drop),
        1 => count_to(conn, 2_000).map(drop),
        2 => conn.execute("INSERT INTO t (of) VALUES (NULL)", []).map(drop),
        _ => conn
            .execute_batch("BEGIN IMMEDIATE; INSERT INTO t (of) VALUES (NULL); SELECT count(*) FROM t, t AS u; COMMIT"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_200_callers_on_5_connections_leave_at_random_and_no_connection_is_lost() {
    const CALLERS: u64 = 200;
    const LAST_DEADLINE: Duration = ms(400);
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(5).min_useful(ms(1)));
    let shutdown = Shutdown::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let (answered, stopped, left) = <(AtomicUsize, AtomicUsize, AtomicUsize)>::default();
    let counts = Arc::new((answered, stopped, left));
    let began = oneclock::clock::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|n| {
            let (pool, counts, shutdown) = (pool.clone(), Arc::clone(&counts), shutdown.clone());
            let (budget, patience) = (ms(20 + random(380)), ms(random(400)));
            tokio::spawn(async move {
                let op = Operation::begin("op", budget.min(LAST_DEADLINE)).ended_by(&shutdown);
                match tokio::time::timeout(patience, pool.run_in(&op, "mixed", mixed(n))).await {
                    Ok(Ok(())) => counts.0.fetch_add(1, Ordering::Relaxed),
                    Ok(Err(_)) => counts.1.fetch_add(1, Ordering::Relaxed),
                    Err(_) => counts.2.fetch_add(1, Ordering::Relaxed),
                };
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    tokio::time::sleep(LAST_DEADLINE.saturating_sub(oneclock::clock::now().since(began))).await;
    let last_deadline = oneclock::clock::now();
    until_idle(&pool).await;
    let busy_for = oneclock::clock::now().since(last_deadline);
    assert!(busy_for < ms(1_000), "busy for {busy_for:?} after the last deadline");
    let (answered, stopped, left) = (&counts.0, &counts.1, &counts.2);
    for (what, count) in [("answered", answered), ("stopped", stopped), ("left", left)] {
        assert!(count.load(Ordering::Relaxed) > 0, "none {what}: the mix tests nothing: {counts:?}");
    }
    let status = pool.status();
    assert!(status.open <= 5 && status.idle == status.open, "{status:?}");
    assert_eq!(status.discarded, 0, "{status:?}");
    eventually("no task", || (shutdown.tasks() == 0).then_some(())).await;

    // All five places are there: five calls that wait for each other.
    let together = Arc::new(Barrier::new(5));
    let op = operation(BOUND);
    let five: Vec<_> = (0..5)
        .map(|_| {
            let (pool, op, together) = (pool.clone(), op.clone(), Arc::clone(&together));
            tokio::spawn(async move {
                let work = move |conn: &mut Connection| {
                    together.wait();
                    assert!(conn.is_autocommit());
                    count_to(conn, 100)
                };
                pool.run_in(&op, "together", work).await
            })
        })
        .collect();
    for call in five {
        assert_eq!(tokio::time::timeout(BOUND, call).await.unwrap().unwrap().unwrap(), 100);
    }
}

/// I14: a statement is a blocking closure like any other, and a shutdown waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x10_a_shutdown_waits_for_a_call_and_the_counter_knows_it() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1));
    let shutdown = Shutdown::new();
    let op = operation(BOUND).ended_by(&shutdown);
    let (begins, begun) = oneshot::channel();
    let (charging, charged) = (pool.clone(), op.clone());
    let charge = tokio::spawn(async move {
        let insert = move |tx: &mut rusqlite::Transaction<'_>| {
            begins.send(()).unwrap();
            std::thread::sleep(ms(150));
            tx.execute("INSERT INTO t (i) VALUES (1)", [])
        };
        charging.transaction_in(&charged, "charge", insert).await
    });
    begun.await.unwrap();
    assert!(oneclock::running_unguarded() > 0);
    assert_eq!(shutdown.drain(BOUND).await, 0);
    assert_eq!(folder.rows(), 1, "it was waited for");
    assert_eq!(charge.await.unwrap().unwrap(), 1);
}
