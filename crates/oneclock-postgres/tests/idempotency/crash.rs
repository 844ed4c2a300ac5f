//! A process that is killed at any step, and what the next one makes of what it left: with leases, and in one transaction.
//!
//! `ONECLOCK_CRASH_RUNS=200 cargo test -p oneclock-postgres --features idempotency --test idempotency crash` makes more runs.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oneclock_idempotency::IdempotencyKey;
use oneclock_idempotency::history::{History, Seen, check};

use crate::child::{Step, Told};
use crate::records::{Folder, make_schema};
use crate::support::{Database, connect};

/// Past every lease and far from the end of retention; and past that.
const AN_HOUR: Duration = Duration::from_secs(3600);
const TWO_DAYS: Duration = Duration::from_secs(2 * 86_400);

const AT_ONCE: usize = 4;

/// How the record and the effect are kept.
#[derive(Clone, Copy, Debug)]
struct Mode {
    first: &'static str,
    recover: &'static str,
}

const LEASE: Mode = Mode { first: "lease", recover: "lease-recover" };
const ONCE: Mode = Mode { first: "once", recover: "once-recover" };

/// What one run came to.
struct Ran {
    killed: bool,
    broken: Vec<String>,
    answered: bool,
}

#[test]
fn m1_to_m5_a_killed_process_costs_no_second_effect_and_no_answer_with_leases() {
    many(LEASE);
}

#[test]
fn m1_to_m5_a_killed_process_costs_no_second_effect_and_no_answer_in_one_transaction() {
    many(ONCE);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn many(mode: Mode) {
    let runs: usize = std::env::var("ONECLOCK_CRASH_RUNS").map_or(24, |runs| runs.parse().expect("a number of runs"));
    let database = runtime().block_on(Database::new());
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
                    let ran = run(mode, &database, seed);
                    assert_eq!(ran.broken, [""; 0], "seed {seed}");
                    assert!(ran.answered, "seed {seed}: its answer is lost");
                    killed.fetch_add(usize::from(ran.killed), Ordering::Relaxed);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (killed, answered) = (killed.into_inner(), answered.into_inner());
    println!("{mode:?}: {runs} runs, {killed} killed, 0 double effects, {} lost answers", runs - answered);
    assert_eq!(answered, runs);
    assert!(killed >= runs / 2, "only {killed} of {runs} were killed");
}

/// Tables of its own, so that a run which reaps sees its own records only.
fn set_up(database: &Database, seed: usize, folder: &Folder) -> Told {
    let schema = format!("run_{seed}");
    runtime().block_on(async {
        make_schema(&database.config(), &schema).await;
        let effects = format!("CREATE TABLE {schema}.effects (key text, attempt text)");
        connect(&database.config()).await.batch_execute(&effects).await.unwrap();
    });
    Told {
        folder: folder.path.clone(),
        database: database.name.clone(),
        schema,
        key: IdempotencyKey::new().to_string(),
        step: Step::Nowhere,
        after: Duration::ZERO,
        shift: Duration::ZERO,
    }
}

fn run(mode: Mode, database: &Database, seed: usize) -> Ran {
    let step = Step::ALL[seed % Step::ALL.len()];
    // Spread over what connecting and a commit take, and a little beyond.
    let after = Duration::from_micros((seed as u64 * 7_919) % 20_000);
    let folder = Folder::new();
    let told = set_up(database, seed, &folder);
    let run = |role: &str, step, shift| {
        Told { step, after, shift, ..told.clone() }.command(role).status().expect("this binary runs")
    };

    let first = if step == Step::DuringReaping {
        assert!(run(mode.first, Step::Nowhere, Duration::ZERO).success());
        run("reap", step, TWO_DAYS)
    } else {
        run(mode.first, step, Duration::ZERO)
    };
    let killed = first.signal() == Some(9);
    assert!(killed || (first.success() && step.may_miss()), "{step:?}: {first:?}");

    let shift = if step == Step::DuringReaping { TWO_DAYS } else { AN_HOUR };
    assert!(run(mode.recover, Step::Nowhere, shift).success(), "seed {seed}: the restart failed");

    let history = history(database, &told, &folder);
    let broken = check(&history).iter().map(ToString::to_string).collect();
    let last = history.entries().iter().rfind(|entry| entry.seen != Seen::Effect).expect("a last attempt");
    let answered = match last.seen {
        Seen::Ok(_) => last.attempt == "last",
        // After retention there is no answer any more, and the key is refused instead of run again.
        Seen::Fail => step == Step::DuringReaping,
        _ => false,
    };
    Ran { killed, broken, answered }
}

/// What the clients noted, and the effects that are rows.
fn history(database: &Database, told: &Told, folder: &Folder) -> History {
    let mut lines = folder.notes("history");
    let effects = runtime().block_on(async {
        let sql = format!("SELECT key, attempt FROM {}.effects", told.schema);
        connect(&database.config()).await.query(&sql, &[]).await.unwrap()
    });
    for effect in effects {
        lines.push_str(&format!("effect {} {}\n", effect.get::<_, &str>(0), effect.get::<_, &str>(1)));
    }
    lines.parse().expect("a history")
}

/// A service that commits its record after the work fails the same test.
#[test]
fn naive_a_record_in_a_transaction_of_its_own_is_two_effects() {
    let database = runtime().block_on(Database::new());
    let folder = Folder::new();
    let told = set_up(&database, 0, &folder);
    let run = |step| Told { step, ..told.clone() }.command("two-transactions").status().unwrap();
    assert_eq!(run(Step::AfterEffect).signal(), Some(9));
    assert!(run(Step::Nowhere).success());
    let broken = check(&history(&database, &told, &folder));
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert!(broken[0].to_string().ends_with(": 2 effects"), "{broken:?}");
}
