//! For tests of stores, in whichever crate: a process that is killed at any step, and what the next one makes of what it left.
//!
//! The other process is the same test binary again, told its role by its environment: a test `child::child`, which is ignored
//! otherwise, takes [`Told::of_this_process`]. `ONECLOCK_CRASH_RUNS=200` makes more runs.

use std::future::Future;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oneclock_core::idempotency::{Claim, Claimed, Enqueue, Enqueued, Fence, Record, Scope};
use oneclock_idempotency::history::{History, Seen, check};
use oneclock_idempotency::{
    Answer, Found, Idempotency, IdempotencyKey, Kept, Probed, Reconciler, Settle, Settled, Store, StoreError,
    Unresolved, Which,
};

use crate::notes::{Folder, created, layer, send};

/// Past every lease and far from the end of retention; and past that.
pub(crate) const AN_HOUR: Duration = Duration::from_secs(3600);
const TWO_DAYS: Duration = Duration::from_secs(2 * 86_400);

const AT_ONCE: usize = 4;

pub(crate) const ROLE: &str = "ONECLOCK_CHILD";
pub(crate) const ARGUMENTS: [&str; 4] = ["child::child", "--exact", "--ignored", "--nocapture"];

/// Where a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nowhere,
    BeforeClaim,
    DuringClaim,
    AfterClaim,
    BeforeEffect,
    AfterEffect,
    DuringCompletion,
    AfterCompletion,
    DuringReaping,
}

/// What a process is told: by its environment, if it is another one.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) folder: PathBuf,
    pub(crate) place: String, // of the records, in the words of the store
    pub(crate) key: String,
    pub(crate) step: Step,
    pub(crate) after: Duration, // of a kill at a moment of its own
    pub(crate) shift: Duration, // of the store's clock
}

/// What one run came to.
pub(crate) struct Ran {
    killed: bool,
    broken: Vec<String>,
    answered: bool,
}

/// A store whose process is killed at a step.
struct Killing<St> {
    inner: St,
    told: Told,
}

// === Step ===

impl Step {
    const ALL: [Self; 8] = [
        Self::BeforeClaim,
        Self::DuringClaim,
        Self::AfterClaim,
        Self::BeforeEffect,
        Self::AfterEffect,
        Self::DuringCompletion,
        Self::AfterCompletion,
        Self::DuringReaping,
    ];

    /// Whether the kill comes at a moment of its own, so that it may miss.
    fn may_miss(self) -> bool {
        matches!(self, Self::DuringClaim | Self::DuringCompletion | Self::DuringReaping)
    }
}

// === Told ===

impl Told {
    /// A process that nobody kills.
    pub(crate) fn new(folder: &Folder, place: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            folder: folder.path.clone(),
            place: place.into(),
            key: key.into(),
            step: Step::Nowhere,
            after: Duration::ZERO,
            shift: Duration::ZERO,
        }
    }

    /// A command that runs this binary in a role.
    pub(crate) fn command(&self, role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(ARGUMENTS)
            .env(ROLE, role)
            .env("ONECLOCK_FOLDER", &self.folder)
            .env("ONECLOCK_PLACE", &self.place)
            .env("ONECLOCK_KEY", &self.key)
            .env("ONECLOCK_STEP", format!("{:?}", self.step))
            .env("ONECLOCK_AFTER", self.after.as_micros().to_string())
            .env("ONECLOCK_SHIFT", self.shift.as_secs().to_string())
            .stdout(Stdio::null());
        command
    }

    /// Runs this binary in a role, to its end or to this step.
    pub(crate) fn runs(&self, role: &str, step: Step, shift: Duration) -> ExitStatus {
        Self { step, shift, ..self.clone() }.command(role).status().expect("this binary runs")
    }

    /// The role of this process and what it was told, if it is a child.
    pub(crate) fn of_this_process() -> Option<(String, Self)> {
        let role = std::env::var(ROLE).ok()?;
        let text = |name: &str| std::env::var(name).unwrap();
        let step = text("ONECLOCK_STEP");
        let told = Self {
            folder: text("ONECLOCK_FOLDER").into(),
            place: text("ONECLOCK_PLACE"),
            key: text("ONECLOCK_KEY"),
            step: Step::ALL.into_iter().find(|known| format!("{known:?}") == step).unwrap_or(Step::Nowhere),
            after: Duration::from_micros(text("ONECLOCK_AFTER").parse().unwrap()),
            shift: Duration::from_secs(text("ONECLOCK_SHIFT").parse().unwrap()),
        };
        Some((role, told))
    }

    pub(crate) fn folder(&self) -> Folder {
        Folder::at(self.folder.clone())
    }

    pub(crate) fn note(&self, line: &str) {
        self.folder().note("history", line);
    }

    pub(crate) fn kills_at(&self, step: Step) {
        if self.step == step {
            kill();
        }
    }

    pub(crate) fn kills_during(&self, step: Step) {
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
    std::thread::sleep(AN_HOUR); // not a step further
}

// === What a child does: the effect is a line in a file ===

/// Runs what a child does.
pub(crate) fn block_on(doing: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(doing);
}

/// A first attempt, in a process that is killed at its step.
pub(crate) async fn serve<St: Store>(told: &Told, inner: St) {
    attempt(told, &layer(Killing { inner, told: told.clone() }, |l| l).0, "first").await;
}

/// After a restart, and after every lease: another attempt, the reconciler, and a last attempt.
pub(crate) async fn recover<St: Store + Clone>(told: &Told, store: St) {
    // A layer for each attempt, as each would have in a process of its own: one that is shared lets the last attempt join the
    // second's run, which is about to go and whose refusal is what it was before the reconciler came.
    attempt(told, &layer(store.clone(), |l| l).0, "second").await;
    let asked = told.clone();
    let reconciler = Reconciler::builder(store.clone())
        .probe(move |unresolved: Unresolved| {
            let effect = format!("effect {} ", unresolved.scope.key);
            let history = asked.folder().notes("history");
            let by = history.lines().find_map(|line| line.strip_prefix(&effect)).map(str::to_owned);
            async move {
                match by {
                    Some(by) => Probed::Applied(Answer::new(http::StatusCode::CREATED, format!("receipt of {by}"))),
                    None => Probed::Absent, // its process is dead: nothing of it is on its way
                }
            }
        })
        .build();
    assert_eq!(reconciler.pass().await.unwrap().still_unknown, 0);
    attempt(told, &layer(store, |l| l).0, "last").await;
}

pub(crate) async fn reap<St: Store>(told: &Told, store: St) {
    told.kills_during(Step::DuringReaping);
    while store.reap(1).await.unwrap() > 0 {}
}

/// One attempt of a client.
async fn attempt<St: Store>(told: &Told, layer: &Idempotency<St>, attempt: &'static str) {
    let key = &told.key;
    told.note(&format!("invoke {key} {attempt}"));
    let doing = told.clone();
    let (status, body) = send(layer, key, "{}", move |_| {
        let told = doing.clone();
        async move {
            told.kills_at(Step::BeforeEffect);
            told.note(&format!("effect {} {attempt}", told.key));
            told.kills_at(Step::AfterEffect);
            created(format!("receipt of {attempt}"))
        }
    })
    .await;
    told.note(&match status {
        201 => format!("ok {key} {attempt} {body}"),
        // What no record was made for, and what came too late for one: definitely not done by this attempt.
        503 | 412 => format!("fail {key} {attempt}"),
        _ => format!("info {key} {attempt}"),
    });
}

impl<St: Store> Store for Killing<St> {
    async fn claim(&self, scope: &Scope, claim: &Claim) -> Result<Found, StoreError> {
        self.told.kills_at(Step::BeforeClaim);
        self.told.kills_during(Step::DuringClaim);
        let found = self.inner.claim(scope, claim).await;
        if found.as_ref().is_ok_and(|found| matches!(found.claimed, Claimed::Run { .. })) {
            self.told.kills_at(Step::AfterClaim);
        }
        found
    }

    async fn enqueue(&self, scope: &Scope, ask: &Enqueue) -> Result<Enqueued, StoreError> {
        self.inner.enqueue(scope, ask).await
    }

    async fn settle(&self, scope: &Scope, fence: Fence, settle: Settle) -> Result<Settled, StoreError> {
        self.told.kills_during(Step::DuringCompletion);
        let settled = self.inner.settle(scope, fence, settle).await;
        self.told.kills_at(Step::AfterCompletion);
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
        self.inner.reap(limit).await
    }
}

// === Runs ===

/// Many runs, some at the same time. None may break a rule or lose its answer, and most have to be killed.
pub(crate) fn many(of: &str, unless_said: usize, run: impl Fn(usize) -> Ran + Sync) {
    let runs = std::env::var("ONECLOCK_CRASH_RUNS").map_or(unless_said, |runs| runs.parse().expect("a number of runs"));
    let (next, killed, answered) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
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
    println!("{of}: {runs} runs, {killed} killed, 0 double effects, {} lost answers", runs - answered);
    assert_eq!(answered, runs);
    assert!(killed >= runs / 2, "only {killed} of {runs} were killed");
}

/// One run, which nothing else shares `place` with: killed in role `first` at the step of `seed`, within `spread` where that
/// comes at a moment of its own, and then started again as `recover`.
pub(crate) fn run(
    seed: usize,
    (first, recover): (&str, &str),
    spread: Duration,
    place: &str,
    history: impl FnOnce(&Folder) -> String,
) -> Ran {
    let step = Step::ALL[seed % Step::ALL.len()];
    let after = Duration::from_micros((seed as u64 * 7_919) % u64::try_from(spread.as_micros()).unwrap());
    let folder = Folder::new();
    let told = Told { after, ..Told::new(&folder, place, IdempotencyKey::new().to_string()) };
    let reaps = step == Step::DuringReaping;
    let ended = if reaps {
        assert!(told.runs(first, Step::Nowhere, Duration::ZERO).success());
        told.runs("reap", step, TWO_DAYS)
    } else {
        told.runs(first, step, Duration::ZERO)
    };
    let killed = ended.signal() == Some(9);
    assert!(killed || (ended.success() && step.may_miss()), "{step:?}: {ended:?}");
    let restarted = told.runs(recover, Step::Nowhere, if reaps { TWO_DAYS } else { AN_HOUR });
    assert!(restarted.success(), "seed {seed}: the restart failed");

    let history: History = history(&folder).parse().expect("a history");
    let broken = check(&history).iter().map(ToString::to_string).collect();
    let last = history.entries().iter().rfind(|entry| entry.seen != Seen::Effect).expect("a last attempt");
    let answered = match last.seen {
        Seen::Ok(_) => last.attempt == "last",
        // After retention there is no answer any more, and the key is refused instead of run again.
        Seen::Fail => reaps,
        _ => false,
    };
    Ran { killed, broken, answered }
}

/// What a way that fails is caught at: killed right behind its effect and started again, it has two of them.
pub(crate) fn is_two_effects(told: &Told, role: &str, history: impl FnOnce() -> String) {
    assert_eq!(told.runs(role, Step::AfterEffect, Duration::ZERO).signal(), Some(9));
    assert!(told.runs(role, Step::Nowhere, Duration::ZERO).success());
    let broken = check(&history().parse().expect("a history"));
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert_eq!(broken[0].to_string(), format!("{}: 2 effects", told.key));
}
