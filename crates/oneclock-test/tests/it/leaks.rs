//! The baseline notices what a test leaves behind.

use std::future::pending;

use oneclock_test::{Baseline, PATIENCE, Wakes};

#[tokio::test(start_paused = true)]
async fn a_task_that_is_left_is_a_leak_until_it_ends() {
    let before = Baseline::tasks_only();
    let task = tokio::spawn(pending::<()>());
    let leaked = before.back().await.expect_err("the task is alive");
    assert_eq!((leaked.tasks_before, leaked.tasks_now), (before_tasks(&leaked), before_tasks(&leaked) + 1));
    assert!(leaked.waited >= PATIENCE);
    task.abort();
    before.assert_back().await;
}

fn before_tasks(leaked: &oneclock_test::Leaked) -> usize {
    leaked.tasks_before
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_socket_that_is_left_is_a_leak_until_it_is_closed() {
    let before = Baseline::take();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let leaked = before.back_now().expect_err("the socket is open");
    assert!(leaked.files.iter().any(|file| file.starts_with("socket:[")), "{leaked}");
    drop(socket);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "not back at the baseline after 10")]
async fn the_assertion_says_what_is_left() {
    let before = Baseline::tasks_only();
    let _left = tokio::spawn(pending::<()>());
    before.assert_back().await;
}

#[tokio::test]
async fn a_future_that_wakes_itself_all_the_time_is_told_from_one_that_waits() {
    async fn busy() {
        loop {
            futures_util::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                std::task::Poll::<()>::Pending
            })
            .await;
        }
    }
    let wakes = Wakes::new();
    let mut waits = std::pin::pin!(pending::<()>());
    let mut busy = std::pin::pin!(busy());
    for _ in 0..3 {
        assert!(wakes.poll(waits.as_mut()).is_pending());
    }
    assert_eq!(wakes.count(), 0);
    for _ in 0..3 {
        assert!(wakes.poll(busy.as_mut()).is_pending());
    }
    assert_eq!(wakes.count(), 3);
}
