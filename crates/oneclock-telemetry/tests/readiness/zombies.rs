//! Zombies flip readiness only under a guard, with hysteresis, and never when the fleet cannot spare it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oneclock::events::RanOn;
use oneclock::{MayRunOn, Operation, Shutdown, clock};
use oneclock_telemetry::Readiness;
use oneclock_telemetry::readiness::{Marks, NotMarks, NotReadiness, ReadinessBuilder};
use tokio::sync::Mutex;

use crate::support::secs;

/// All zombies of a process are counted together.
static ALONE: Mutex<()> = Mutex::const_new(());

fn zombies(n: usize) -> Vec<MayRunOn> {
    let op = Operation::begin("report", secs(1));
    let running = (0..n).map(|_| MayRunOn::new(&op, RanOn::Blocking)).collect();
    op.call_off();
    running
}

fn marked() -> ReadinessBuilder {
    let passes = || async { Ok::<_, std::io::Error>(()) };
    let marks = Marks::of(10).high(50).low(20).begins_after(5).ends_after(15);
    Readiness::builder().without_stack().self_test("none", passes).zombies(marks)
}

#[tokio::test(start_paused = true)]
async fn without_a_guard_they_are_shown_and_no_more() {
    let _alone = ALONE.lock().await;
    let readiness = marked().start(&Shutdown::new()).unwrap();
    assert!(readiness.ready().await);
    let running = zombies(9);
    tokio::time::sleep(secs(60)).await;
    assert!(readiness.now().ready);
    let shown = readiness.to_json()["zombies"].clone();
    assert_eq!((&shown["total"], &shown["pressure"]), (&9.into(), &true.into()), "{shown}");
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn under_a_guard_they_take_it_out_and_let_it_back_slowly() {
    let _alone = ALONE.lock().await;
    let readiness = marked().fleet_guard(|| true).start(&Shutdown::new()).unwrap();
    assert!(readiness.ready().await);
    // A burst that is over at the next looks changes nothing.
    let burst = zombies(10);
    tokio::time::sleep(secs(3)).await;
    drop(burst);
    tokio::time::sleep(secs(3)).await;
    assert!(readiness.now().ready);

    let running = zombies(6);
    tokio::time::sleep(secs(10)).await;
    assert_eq!(readiness.now().to_string(), "not ready: zombies: 6 take up what 10 can, and nobody waits for them");
    drop(running);
    let few = zombies(3); // below the high mark, above the low one
    tokio::time::sleep(secs(120)).await;
    assert!(!readiness.now().ready);
    drop(few);
    tokio::time::sleep(secs(5)).await;
    assert!(!readiness.now().ready, "not at the first look without them");
    let began = clock::now();
    assert!(readiness.ready().await);
    assert!(clock::now().since(began) < secs(20));
}

#[tokio::test(start_paused = true)]
async fn while_too_few_others_are_ready_it_stays() {
    let _alone = ALONE.lock().await;
    let can_spare = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&can_spare);
    let readiness = marked().fleet_guard(move || asked.load(Ordering::SeqCst)).start(&Shutdown::new()).unwrap();
    assert!(readiness.ready().await);
    let running = zombies(10);
    tokio::time::sleep(secs(60)).await;
    assert!(readiness.now().ready, "too few others");
    can_spare.store(true, Ordering::SeqCst);
    tokio::time::sleep(secs(2)).await;
    assert!(readiness.now().ready, "the count begins now");
    tokio::time::sleep(secs(8)).await;
    assert!(!readiness.now().ready);
    can_spare.store(false, Ordering::SeqCst);
    let began = clock::now();
    assert!(readiness.ready().await);
    assert!(clock::now().since(began) < secs(2), "at once: it is better than none");
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_panics_knows_nothing() {
    let _alone = ALONE.lock().await;
    let guard = || if true { panic!("on purpose") } else { true };
    let readiness = marked().fleet_guard(guard).start(&Shutdown::new()).unwrap();
    assert!(readiness.ready().await);
    let running = zombies(10);
    tokio::time::sleep(secs(120)).await;
    assert!(readiness.now().ready, "{}", readiness.now());
    drop(running);
}

#[tokio::test]
async fn marks_that_contradict_one_another_are_refused() {
    let builder = Readiness::builder().without_stack().zombies(Marks::of(0));
    assert_eq!(builder.start(&Shutdown::new()).unwrap_err(), NotReadiness::Marks(NotMarks::NoCapacity));
}
