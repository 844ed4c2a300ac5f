//! A process that is killed at any step, and what the next one makes of what it left.
//!
//! `ONECLOCK_CRASH_RUNS=200 cargo test -p oneclock-sqlite --features idempotency --test idempotency crash` makes more runs.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oneclock_idempotency::IdempotencyKey;
use oneclock_idempotency::history::{History, Seen, check};

use crate::child::{Step, command};
use crate::support::*;

/// Past every lease and far from the end of retention; and past that.
const AN_HOUR: Duration = Duration::from_secs(3600);
const TWO_DAYS: Duration = Duration::from_secs(2 * 86_400);

const AT_ONCE: usize = 4;

/// What one run came to.
struct Ran {
    killed: bool,
    broken: Vec<String>,
    answered: bool,
}

#[test]
fn m1_to_m5_a_killed_process_costs_no_second_effect_and_no_answer() {
    let runs: usize = std::env::var("ONECLOCK_CRASH_RUNS").map_or(32, |runs| runs.parse().expect("a number of runs"));
    let next = AtomicUsize::new(0);
    let (killed, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= runs {
                        break;
                    }
                    let ran = run(seed);
                    assert_eq!(ran.broken, [""; 0], "seed {seed}");
                    assert!(ran.answered, "seed {seed}: its answer is lost");
                    killed.fetch_add(usize::from(ran.killed), Ordering::Relaxed);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (killed, answered) = (killed.into_inner(), answered.into_inner());
    println!("{runs} runs, {killed} killed, 0 double effects, {} lost answers", runs - answered);
    assert_eq!(answered, runs);
    assert!(killed >= runs / 2, "only {killed} of {runs} were killed");
}

fn run(seed: usize) -> Ran {
    let step = Step::ALL[seed % Step::ALL.len()];
    // Spread over what a commit takes on most disks, and a little beyond.
    let after = Duration::from_micros((seed as u64 * 7_919) % 6_000);
    let folder = Folder::new();
    let key = IdempotencyKey::new().to_string();
    let run = |role: &str, step, shift| command(role, &folder, &key, step, after, shift).status().unwrap();

    let first = if step == Step::DuringReaping {
        assert!(run("serve", Step::Nowhere, Duration::ZERO).success());
        run("reap", step, TWO_DAYS)
    } else {
        run("serve", step, Duration::ZERO)
    };
    let killed = first.signal() == Some(9);
    assert!(killed || (first.success() && step.may_miss()), "{step:?}: {first:?}");

    let shift = if step == Step::DuringReaping { TWO_DAYS } else { AN_HOUR };
    assert!(run("recover", Step::Nowhere, shift).success(), "seed {seed}: the restart failed");

    let history: History = folder.notes("history").parse().unwrap();
    let broken = check(&history).iter().map(ToString::to_string).collect();
    let last = history.entries().last().expect("a last attempt");
    let answered = match last.seen {
        Seen::Ok(_) => last.attempt == "last",
        // After retention there is no answer any more, and the key is refused instead of run again.
        Seen::Fail => step == Step::DuringReaping,
        _ => false,
    };
    Ran { killed, broken, answered }
}

/// A service that writes its record after the work fails the same test.
#[test]
fn naive_a_record_after_the_work_is_two_effects() {
    let folder = Folder::new();
    let run = |step| command("serve-naive", &folder, "k", step, Duration::ZERO, Duration::ZERO).status().unwrap();
    assert_eq!(run(Step::AfterEffect).signal(), Some(9));
    assert!(run(Step::Nowhere).success());
    let broken = check(&folder.notes("history").parse().unwrap());
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert_eq!(broken[0].to_string(), "k: 2 effects");
}
