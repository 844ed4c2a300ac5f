//! The process-wide counts return to their baseline. Each test runs in a process of its own, under either runner.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use oneclock::{Carried, Operation, Shutdown, live_operations, running_unguarded};
use oneclock_core::Cause;

use crate::support::{Recorder, begun, endless, ms, request_under, settle};

/// Whether this process runs no other test. If it does, runs the test called `name` in one that does not.
fn is_alone(name: &str) -> bool {
    const ALONE: &str = "ONECLOCK_TEST_ALONE";
    if std::env::var_os("NEXTEST").is_some() || std::env::var_os(ALONE).is_some() {
        return true;
    }
    let this = std::env::current_exe().unwrap();
    let run = std::process::Command::new(this).args(["--exact", name]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "{name} by itself: {said}");
    false
}

#[tokio::test(start_paused = true)]
async fn live_operations_return_to_the_baseline_after_every_way_of_ending() {
    if !is_alone("counts::live_operations_return_to_the_baseline_after_every_way_of_ending") {
        return;
    }
    assert_eq!(live_operations(), 0);
    let recorder = Recorder::new();
    let shutdown = Shutdown::new();
    let every_way = async {
        let driver = request_under("order", ms(1_000), &recorder, Some(&shutdown));
        let op = driver.operation().clone();
        assert_eq!(live_operations(), 1);
        op.run(async {}).await.unwrap();
        op.grant("done").run(|_| async {}).await.unwrap();
        assert!(op.grant("late").cap(ms(10)).run(|_| std::future::pending::<()>()).await.is_err());
        assert!(op.grant("none").reserve(ms(1_000)).operation().is_err());
        assert!(op.spawn("panics", async { panic!("on purpose") }).await.is_err());
        let aborted = op.spawn("aborted", endless().0);
        aborted.abort();
        assert!(aborted.await.is_err());
        drop(op.spawn("abandoned", endless().0));
        drop(op.detach("mail", ms(10), "may be slow"));
        drop(op.on_end(|_| ()));
        let carried = Carried::new(&op, 7);
        let failed = op
            .fan_out()
            .required("a", |_| async { Err::<(), _>(io::Error::other("no")) })
            .required("b", |_| async {
                endless().0.await;
                Ok::<_, io::Error>(())
            })
            .await;
        assert!(failed.is_err());
        drop(op.fan_out().optional("never", |_| async { Ok::<_, io::Error>(()) }));
        let slow = async {
            tokio::time::sleep(ms(5_000)).await;
            Ok::<_, io::Error>(())
        };
        assert!(op.must_finish("charge", ms(10_000), slow).await.is_err());
        assert_eq!(running_unguarded(), 1, "the charge");
        drop((driver, carried));
        settle().await;
        assert_eq!(live_operations(), 1, "the charge");
    };
    every_way.await;
    assert_eq!(recorder.ends_of("order"), [Some(Cause::Deadline)]);
    shutdown.drain(ms(60_000)).await;
    assert_eq!((live_operations(), running_unguarded(), shutdown.tasks()), (0, 0, 0));
}

#[tokio::test]
async fn a_closure_that_goes_on_is_counted_until_it_is_over() {
    if !is_alone("counts::a_closure_that_goes_on_is_counted_until_it_is_over") {
        return;
    }
    let recorder = Recorder::new();
    let shutdown = Shutdown::new();
    let op = begun("thumbnails", ms(20), &recorder).ended_by(&shutdown);
    let (release, released) = mpsc::channel::<()>();
    let closure = op.spawn_blocking("resize", move |_| released.recv());
    assert!(closure.await.is_err());
    drop(op);
    assert_eq!(running_unguarded(), 1);
    assert_eq!(live_operations(), 2, "the closure's, and the one it is a part of");
    release.send(()).unwrap();
    shutdown.drain(Duration::from_secs(5)).await;
    assert_eq!((live_operations(), running_unguarded()), (0, 0));
}

/// Of drivers, which know by themselves when to begin and how to stop it.
#[tokio::test]
async fn a_closure_of_a_driver_is_counted_and_waited_for() {
    if !is_alone("counts::a_closure_of_a_driver_is_counted_and_waited_for") {
        return;
    }
    let shutdown = Shutdown::new();
    let (begins, begun) = tokio::sync::oneshot::channel();
    let (release, released) = mpsc::channel::<()>();
    let closure = shutdown.spawn_blocking(move || {
        begins.send(()).unwrap();
        released.recv()
    });
    begun.await.unwrap();
    assert_eq!((running_unguarded(), shutdown.tasks()), (1, 1));
    assert_eq!(shutdown.drain(ms(20)).await, 1, "it goes on beyond the grace");
    release.send(()).unwrap();
    closure.await.unwrap().unwrap();
    assert_eq!(shutdown.drain(Duration::from_secs(20)).await, 0);
    assert_eq!(running_unguarded(), 0);
}

#[tokio::test]
async fn a_hundred_operations_ended_at_random_leave_nothing_behind() {
    if !is_alone("counts::a_hundred_operations_ended_at_random_leave_nothing_behind") {
        return;
    }
    let recorder = Recorder::new();
    let shutdown = Shutdown::new();
    let mut tasks = Vec::new();
    for n in 0..100_u64 {
        let driver = request_under("order", ms(1 + n * 7 % 13), &recorder, Some(&shutdown));
        tasks.push(tokio::spawn(async move {
            let op = driver.operation().clone();
            let work = op.run(async {
                let op = Operation::current().unwrap();
                let _ = op.spawn("child", tokio::time::sleep(ms(n % 11))).await;
            });
            if tokio::time::timeout(ms(n * 3 % 17), work).await.is_ok_and(|done| done.is_ok()) {
                driver.finish();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    shutdown.drain(Duration::from_secs(5)).await;
    assert_eq!(live_operations(), 0);
    assert_eq!(recorder.ends_of("order").len(), 100);
}
