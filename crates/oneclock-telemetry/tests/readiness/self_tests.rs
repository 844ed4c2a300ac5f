//! Self-tests: what holds the process back, what is only shown, and that nothing waits for them.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use oneclock::{Shutdown, clock};
use oneclock_telemetry::Readiness;
use oneclock_telemetry::readiness::{Failure, Marks, ReadinessBuilder};

use crate::support::{Count, first, ms, of, secs, until};

/// Readiness with one self-test that answers as it is told.
#[derive(Clone, Default)]
struct Told(Arc<AtomicUsize>);

const PASS: usize = 0;
const ABSENT: usize = 1;
const BROKEN: usize = 2;
const HANG: usize = 3;
const PANIC: usize = 4;

impl Told {
    fn now(&self, what: usize) {
        self.0.store(what, Ordering::SeqCst);
    }

    fn joined_to(&self, builder: ReadinessBuilder, name: &'static str) -> ReadinessBuilder {
        let told = self.clone();
        builder.self_test(name, move || {
            let what = told.0.load(Ordering::SeqCst);
            async move {
                match what {
                    PASS => Ok("it was cut off"),
                    ABSENT => Err(io::Error::other("connection refused").into()),
                    BROKEN => Err(Failure::broken_promise("a transaction pooler stands in between")),
                    HANG => std::future::pending().await,
                    _ => panic!("on purpose"),
                }
            }
        })
    }
}

fn start(told: &Told) -> Readiness {
    told.joined_to(Readiness::builder().without_stack(), "postgres").start(&Shutdown::new()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_dependency_that_is_not_there_at_the_start_is_waited_for() {
    let told = Told::default();
    told.now(ABSENT);
    let readiness = start(&told);
    let test = first(&readiness, "self_tests", "postgres").await;
    assert_eq!(test["said"], "connection refused");
    assert_eq!(readiness.now().to_string(), "not ready: self-test postgres: not proven since the start");
    tokio::time::sleep(secs(10)).await;
    let tries = of(&readiness, "self_tests", "postgres")["not_kept_in_a_row"].as_u64().unwrap();
    assert!((8..=14).contains(&tries), "about every second: {tries}");
    told.now(PASS);
    let asked = clock::now();
    assert!(readiness.ready().await);
    assert!(clock::now().since(asked) <= ms(1_250));
    assert_eq!(of(&readiness, "self_tests", "postgres")["said"], "\"it was cut off\"");
}

#[tokio::test(start_paused = true)]
async fn one_that_goes_away_later_is_shown_and_no_more() {
    let told = Told::default();
    let readiness = start(&told);
    assert!(readiness.ready().await);
    for (what, said) in [
        (ABSENT, "connection refused"),
        (PANIC, "it panicked"),
        (HANG, "it was not over after 15s, which is its bound"),
    ] {
        told.now(what);
        for _ in 0..100 {
            tokio::time::sleep(secs(10)).await;
            assert!(readiness.now().ready, "{said}: {}", readiness.now());
        }
        let test = of(&readiness, "self_tests", "postgres");
        assert_eq!(
            (&test["shown"], &test["said"], &test["holds_back"]),
            (&"unclear".into(), &said.into(), &false.into())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_promise_takes_it_out_until_it_is_kept() {
    let told = Told::default();
    let readiness = start(&told);
    assert!(readiness.ready().await);
    told.now(BROKEN);
    tokio::time::sleep(secs(38)).await;
    assert_eq!(readiness.now().to_string(), "not ready: self-test postgres: a promise is broken");
    assert_eq!(of(&readiness, "self_tests", "postgres")["said"], "a transaction pooler stands in between");
    told.now(ABSENT); // gone is not mended
    tokio::time::sleep(secs(200)).await;
    assert!(!readiness.now().ready);
    told.now(PASS);
    assert!(readiness.ready().await);
}

#[tokio::test(start_paused = true)]
async fn a_test_that_hangs_delays_no_other() {
    let (hangs, passes) = (Told::default(), Told::default());
    hangs.now(HANG);
    let builder = hangs.joined_to(Readiness::builder().without_stack(), "queue");
    let readiness = passes.joined_to(builder, "postgres").start(&Shutdown::new()).unwrap();
    first(&readiness, "self_tests", "postgres").await;
    assert_eq!(readiness.now().to_string(), "not ready: self-test queue: the first run is not over");
    tokio::time::sleep(secs(120)).await;
    let postgres = of(&readiness, "self_tests", "postgres");
    assert!(postgres["age_ms"].as_u64().unwrap() <= 37_500, "{postgres}");
    assert_eq!(readiness.now().to_string(), "not ready: self-test queue: not proven since the start");
    hangs.now(PASS);
    assert!(readiness.ready().await);
}

/// Real time, since a thread takes part: a test that does not even yield, and a guard that does not either.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_probe_is_answered_while_a_test_and_the_guard_block_their_threads() {
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let (by_test, by_guard) = (Arc::clone(&held), held);
    let block = |held: &Mutex<std::sync::mpsc::Receiver<()>>| held.lock().unwrap().recv_timeout(secs(60)).is_ok();
    let (asked, guards) = (Count::default(), Count::default());
    let (test_began, guard_began) = (asked.clone(), guards.clone());
    let readiness = Readiness::builder()
        .without_stack()
        .zombies(Marks::of(8))
        .fleet_guard(move || guard_began.one_more() == 0 && block(&by_guard))
        .self_test("blocking", move || {
            test_began.one_more();
            let held = Arc::clone(&by_test);
            async move { if block(&held) { Ok(()) } else { Err(io::Error::other("let go by nobody")) } }
        })
        .start(&Shutdown::new())
        .unwrap();
    until("blocked, both", || asked.get() == 1 && guards.get() == 1).await;
    assert_eq!(readiness.now().to_string(), "not ready: self-test blocking: the first run is not over");
    assert_eq!(readiness.to_json()["self_tests"][0]["shown"], "nothing yet");
    let_go.send(()).unwrap();
    let_go.send(()).unwrap();
    assert!(readiness.ready().await);
}

#[tokio::test(start_paused = true)]
async fn a_test_has_a_bound_of_its_own_and_is_dropped_there() {
    struct Dropped(Count);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.one_more();
        }
    }
    let dropped = Count::default();
    let seen = dropped.clone();
    let readiness = Readiness::builder()
        .without_stack()
        .self_test_within("slow", ms(300), move || {
            let dropped = Dropped(seen.clone());
            async move {
                std::future::pending::<()>().await;
                drop(dropped);
                Ok::<_, io::Error>(())
            }
        })
        .start(&Shutdown::new())
        .unwrap();
    let test = first(&readiness, "self_tests", "slow").await;
    assert_eq!(test["said"], "it was not over after 300ms, which is its bound");
    until("dropped", || dropped.get() >= 1).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_test_says_is_kept_up_to_a_bound() {
    let readiness = Readiness::builder()
        .without_stack()
        .self_test("wordy", || async { Err::<(), _>(io::Error::other("ä".repeat(100_000))) })
        .start(&Shutdown::new())
        .unwrap();
    let said = first(&readiness, "self_tests", "wordy").await["said"].as_str().unwrap().len();
    assert!((900..=1_010).contains(&said), "{said}");
}

/// Real time: the runtime that looks goes away, as it does in a process whose background threads have died.
#[test]
fn when_nobody_looks_any_more_it_is_not_ready() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let readiness = runtime.block_on(async {
        let told = Told::default();
        let builder = Readiness::builder().without_stack().interval(ms(50)).bound(ms(50)).look_every(ms(5));
        let readiness = told.joined_to(builder, "postgres").start(&Shutdown::new()).unwrap();
        assert!(readiness.ready().await);
        readiness
    });
    runtime.shutdown_background();
    for _ in 0..2_000 {
        let said = readiness.now().to_string();
        if said.contains("self-test postgres: no run was over for") && said.contains("nothing was looked at for") {
            return;
        }
        std::thread::sleep(ms(5));
    }
    panic!("still {}", readiness.now());
}
