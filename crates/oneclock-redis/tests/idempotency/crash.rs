//! A process that is killed at any step while the server lives, and what the next one makes of what it left.
//!
//! `ONECLOCK_CRASH_RUNS=200 cargo test -p oneclock-redis --features idempotency --test idempotency crash` makes more runs.

use std::convert::Infallible;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use oneclock::clock;
use oneclock_core::idempotency::{Claim, Claimed, Fence, Record, Scope};
use oneclock_idempotency::history::{History, Seen, check};
use oneclock_idempotency::{
    Answer, Found, Idempotency, IdempotencyKey, Kept, Probed, Reconciler, Settle, Settled, Store, StoreError,
    Unresolved, Which,
};
use oneclock_redis::IdempotencyStore;
use tower::{Layer as _, ServiceExt as _};

use crate::store::Prefix;
use crate::support::{BOUND, client};

/// Where a process is killed. The ones with `-` come at a moment of their own, so that they may miss.
const STEPS: [&str; 8] = [
    "before claim",
    "during-claim",
    "after claim",
    "before effect",
    "after effect",
    "during-completion",
    "after completion",
    "during-reaping",
];
const NOWHERE: &str = "";

/// Past every lease and far from the end of retention; and past that.
const AN_HOUR: Duration = Duration::from_secs(3600);
const TWO_DAYS: Duration = Duration::from_secs(2 * 86_400);

const AT_ONCE: usize = 4;
const ROLE: &str = "ONECLOCK_CHILD";

/// What a process is told: by its environment, if it is another one.
#[derive(Clone)]
struct Told {
    history: PathBuf,
    prefix: String,
    key: String,
    step: String,
    after: Duration, // of a kill at a moment of its own
    shift: Duration, // of the store's clock
}

/// A store whose process is killed at a step.
#[derive(Clone)]
struct Killing {
    inner: IdempotencyStore,
    told: Told,
}

impl Told {
    fn command(&self, role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["crash::child", "--exact", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env("ONECLOCK_HISTORY", &self.history)
            .env("ONECLOCK_PREFIX", &self.prefix)
            .env("ONECLOCK_KEY", &self.key)
            .env("ONECLOCK_STEP", &self.step)
            .env("ONECLOCK_AFTER", self.after.as_micros().to_string())
            .env("ONECLOCK_SHIFT", self.shift.as_secs().to_string())
            .stdout(Stdio::null());
        command
    }

    fn from_environment() -> Self {
        let text = |name: &str| std::env::var(name).unwrap();
        Self {
            history: text("ONECLOCK_HISTORY").into(),
            prefix: text("ONECLOCK_PREFIX"),
            key: text("ONECLOCK_KEY"),
            step: text("ONECLOCK_STEP"),
            after: Duration::from_micros(text("ONECLOCK_AFTER").parse().unwrap()),
            shift: Duration::from_secs(text("ONECLOCK_SHIFT").parse().unwrap()),
        }
    }

    fn store(&self) -> Killing {
        let shift = self.shift;
        let store = IdempotencyStore::builder(client(|redis| redis)).prefix(&self.prefix).within(BOUND);
        let inner = store.clock(move || clock::wall() + shift).build().unwrap();
        Killing { inner, told: self.clone() }
    }

    /// Adds a line to the history, in one piece.
    fn note(&self, line: &str) {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&self.history).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn history(&self) -> String {
        std::fs::read_to_string(&self.history).unwrap_or_default()
    }

    fn at(&self, step: &str) {
        if self.step == step {
            kill();
        }
    }

    fn during(&self, step: &str) {
        if self.step == step {
            let after = self.after;
            std::thread::spawn(move || {
                std::thread::sleep(after);
                kill();
            });
        }
    }
}

/// As `kill -9`: no destructor, no flush.
fn kill() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::thread::sleep(BOUND); // not a step further
}

impl Store for Killing {
    async fn claim(&self, scope: &Scope, claim: &Claim) -> Result<Found, StoreError> {
        self.told.at("before claim");
        self.told.during("during-claim");
        let found = self.inner.claim(scope, claim).await;
        if found.as_ref().is_ok_and(|found| matches!(found.claimed, Claimed::Run { .. })) {
            self.told.at("after claim");
        }
        found
    }

    async fn settle(&self, scope: &Scope, fence: Fence, settle: Settle) -> Result<Settled, StoreError> {
        self.told.during("during-completion");
        let settled = self.inner.settle(scope, fence, settle).await;
        self.told.at("after completion");
        settled
    }

    async fn read(&self, scope: &Scope) -> Result<Option<Kept>, StoreError> {
        self.inner.read(scope).await
    }

    async fn list(
        &self,
        which: Which,
        after: Option<&Scope>,
        limit: usize,
    ) -> Result<Vec<(Scope, Record)>, StoreError> {
        self.inner.list(which, after, limit).await
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        self.told.during("during-reaping");
        self.inner.reap(limit).await
    }
}

#[test]
#[ignore = "the other process of other tests"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let told = Told::from_environment();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match role.as_str() {
            "serve" => attempt(&told, "first").await,
            "reap" => while told.store().reap(1).await.unwrap() > 0 {},
            "recover" => recover(&told).await,
            other => panic!("no such role: {other}"),
        }
    });
}

/// One attempt of a client.
async fn attempt(told: &Told, attempt: &'static str) {
    let half_a_minute = Duration::from_secs(30);
    let layer = Idempotency::builder("charge", told.store()).one_principal().required();
    let layer =
        layer.claim_within(half_a_minute).execution(half_a_minute).record_within(half_a_minute).build().unwrap();
    let doing = told.clone();
    let service = tower::service_fn(move |_: Request<Full<Bytes>>| {
        let told = doing.clone();
        async move {
            told.at("before effect");
            told.note(&format!("effect {} {attempt}", told.key));
            told.at("after effect");
            let receipt = Full::<Bytes>::from(format!("receipt of {attempt}"));
            Ok::<_, Infallible>(Response::builder().status(201).body(receipt).unwrap())
        }
    });
    let key = &told.key;
    told.note(&format!("invoke {key} {attempt}"));
    let request = Request::post("/charges").header("idempotency-key", key).body(Full::from("{}")).unwrap();
    let answer = layer.layer(service).oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    told.note(&match status {
        201 => format!("ok {key} {attempt} {}", String::from_utf8_lossy(&body)),
        // What no record was made for, and what came too late for one: definitely not done by this attempt.
        503 | 412 => format!("fail {key} {attempt}"),
        _ => format!("info {key} {attempt}"),
    });
}

/// After a restart, and after every lease: another attempt, the reconciler, and a last attempt.
async fn recover(told: &Told) {
    attempt(told, "second").await;
    let asked = told.clone();
    let reconciler = Reconciler::builder(told.store())
        .probe(move |unresolved: Unresolved| {
            let effect = format!("effect {} ", unresolved.scope.key);
            let by = asked.history().lines().find_map(|line| line.strip_prefix(&effect)).map(str::to_owned);
            async move {
                match by {
                    Some(by) => Probed::Applied(Answer::new(http::StatusCode::CREATED, format!("receipt of {by}"))),
                    None => Probed::Absent, // its process is dead: nothing of it is on its way
                }
            }
        })
        .build();
    assert_eq!(reconciler.pass().await.unwrap().still_unknown, 0);
    attempt(told, "last").await;
}

#[test]
fn m1_to_m5_a_killed_process_costs_no_second_effect_and_no_answer() {
    let runs: usize = std::env::var("ONECLOCK_CRASH_RUNS").map_or(24, |runs| runs.parse().expect("a number of runs"));
    let next = AtomicUsize::new(0);
    let killed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= runs {
                        break;
                    }
                    killed.fetch_add(usize::from(run(seed)), Ordering::Relaxed);
                }
            });
        }
    });
    let killed = killed.into_inner();
    println!("{runs} runs, {killed} killed, 0 double effects, 0 lost answers");
    assert!(killed >= runs / 2, "only {killed} of {runs} were killed");
}

/// One run, checked. Whether its process was killed.
fn run(seed: usize) -> bool {
    let step = STEPS[seed % STEPS.len()];
    let prefix = Prefix::new();
    let file = format!("oneclock-redis-idempotency-{}-{seed}", std::process::id());
    let told = Told {
        history: std::env::temp_dir().join(file),
        prefix: prefix.0.clone(),
        key: IdempotencyKey::new().to_string(),
        step: step.to_owned(),
        // Spread over what connecting and a script take, and a little beyond.
        after: Duration::from_micros((seed as u64 * 7_919) % 4_000),
        shift: Duration::ZERO,
    };
    let run = |role: &str, step: &str, shift| {
        Told { step: step.to_owned(), shift, ..told.clone() }.command(role).status().expect("this binary runs")
    };
    let reaps = step == "during-reaping";
    let first = if reaps {
        assert!(run("serve", NOWHERE, Duration::ZERO).success());
        run("reap", step, TWO_DAYS)
    } else {
        run("serve", step, Duration::ZERO)
    };
    let killed = first.signal() == Some(9);
    assert!(killed || (first.success() && step.contains('-')), "{step}: {first:?}");
    let recovered = run("recover", NOWHERE, if reaps { TWO_DAYS } else { AN_HOUR });
    assert!(recovered.success(), "seed {seed}: the restart failed");

    let history: History = told.history().parse().unwrap();
    std::fs::remove_file(&told.history).unwrap();
    let broken: Vec<String> = check(&history).iter().map(ToString::to_string).collect();
    assert_eq!(broken, [""; 0], "seed {seed}");
    let last = history.entries().last().expect("a last attempt");
    match last.seen {
        Seen::Ok(_) => assert_eq!(last.attempt, "last", "seed {seed}: its answer is lost"),
        // After retention there is no answer any more, and the key is refused instead of run again.
        Seen::Fail => assert!(reaps, "seed {seed}: its answer is lost"),
        _ => panic!("seed {seed}: its answer is lost"),
    }
    killed
}
