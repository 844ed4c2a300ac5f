//! The baseline notices tasks that a test leaves behind. Descriptors have a binary of their own, `descriptors.rs`.

use std::future::pending;

use oneclock_test::{Baseline, PATIENCE, Wakes};

#[tokio::test(start_paused = true)]
async fn a_task_that_is_left_is_a_leak_until_it_ends() {
    let before = Baseline::tasks_only();
    let task = tokio::spawn(pending::<()>());
    let leaked = before.back().await.expect_err("the task is alive");
    assert_eq!(leaked.tasks_now, leaked.tasks_before + 1);
    assert!(leaked.waited >= PATIENCE);
    task.abort();
    before.assert_back().await;
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
