//! An operation's token is made for the first that waits. An end that comes at that very moment must not be missed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use oneclock::Operation;
use oneclock_core::Cause;

const ROUNDS: usize = 20_000;

/// Two threads at once: one ends the operation, or the one that it is a part of, the other begins to wait. Whoever
/// waits wakes long before the deadline, every time.
#[test]
fn x4_an_end_at_the_moment_when_somebody_begins_to_wait_wakes_it() {
    let operations: Arc<Vec<(Operation, Operation)>> = Arc::new(
        (0..ROUNDS)
            .map(|round| {
                let ended = Operation::begin("ended", Duration::from_secs(600));
                let part = || ended.grant("part").operation().expect("there is time");
                let waited_for = if round % 2 == 0 { ended.clone() } else { part() };
                (ended, waited_for)
            })
            .collect(),
    );
    let barrier = Arc::new(Barrier::new(2));
    let reached = Arc::new(AtomicUsize::new(0));
    let ender = std::thread::spawn({
        let (operations, barrier, reached) = (Arc::clone(&operations), Arc::clone(&barrier), Arc::clone(&reached));
        move || {
            barrier.wait();
            for (round, (ended, _)) in operations.iter().enumerate() {
                while reached.load(Ordering::Acquire) < round {
                    std::hint::spin_loop();
                }
                ended.call_off();
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    barrier.wait();
    for (round, (_, waited_for)) in operations.iter().enumerate() {
        reached.store(round, Ordering::Release);
        let ending = runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(5), waited_for.ended()).await.expect("it wakes")
        });
        assert_eq!(ending.cause, Cause::CalledOff, "round {round}");
    }
    ender.join().expect("no panic");
}
