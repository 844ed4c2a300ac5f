//! What the other process does. It is this test binary again, told by its environment.

use std::path::PathBuf;
use std::time::Duration;

use oneclock_core::idempotency::{Claim, Claimed, Fence, Record, Scope};
use oneclock_idempotency::{
    Answer, Found, Kept, Probed, Reconciler, Settle, Settled, Store, StoreError, Unresolved, Which,
};
use oneclock_sqlite::IdempotencyStore;

use crate::support::*;

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

impl Step {
    pub(crate) const ALL: [Self; 8] = [
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
    pub(crate) fn may_miss(self) -> bool {
        matches!(self, Self::DuringClaim | Self::DuringCompletion | Self::DuringReaping)
    }

    fn parse(word: &str) -> Self {
        Self::ALL.into_iter().find(|step| format!("{step:?}") == word).unwrap_or(Self::Nowhere)
    }
}

/// What a child is told.
pub(crate) struct Told {
    pub(crate) folder: Folder,
    pub(crate) key: String,
    pub(crate) step: Step,
    pub(crate) after: Duration, // of a kill at a moment of its own
    pub(crate) shift: Duration, // of the store's clock
}

pub(crate) const ROLE: &str = "ONECLOCK_CHILD";

/// A command that runs this binary in a role.
pub(crate) fn command(
    role: &str,
    folder: &Folder,
    key: &str,
    step: Step,
    after: Duration,
    shift: Duration,
) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    arguments(&mut command);
    command
        .env(ROLE, role)
        .env("ONECLOCK_FOLDER", &folder.path)
        .env("ONECLOCK_KEY", key)
        .env("ONECLOCK_STEP", format!("{step:?}"))
        .env("ONECLOCK_AFTER", after.as_micros().to_string())
        .env("ONECLOCK_SHIFT", shift.as_secs().to_string())
        .stdout(std::process::Stdio::null());
    command
}

pub(crate) fn arguments(command: &mut std::process::Command) {
    command.args(["child::child", "--exact", "--ignored", "--nocapture"]);
}

#[test]
#[ignore = "the other process of other tests"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let text = |name: &str| std::env::var(name).unwrap();
    let told = Told {
        folder: Folder::at(PathBuf::from(text("ONECLOCK_FOLDER"))),
        key: text("ONECLOCK_KEY"),
        step: Step::parse(&text("ONECLOCK_STEP")),
        after: Duration::from_micros(text("ONECLOCK_AFTER").parse().unwrap()),
        shift: Duration::from_secs(text("ONECLOCK_SHIFT").parse().unwrap()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match role.as_str() {
            "serve" => serve(&told).await,
            "serve-naive" => serve_naive(&told),
            "recover" => recover(&told).await,
            "reap" => reap(&told).await,
            #[cfg(unix)]
            "stall" => crate::stopped::stall(&told).await,
            #[cfg(target_os = "linux")]
            "claims" => crate::synced::claims(&told).await,
            #[cfg(target_os = "linux")]
            "claims-unsynced" => crate::synced::claims_unsynced(&told),
            other => panic!("no such role: {other}"),
        }
    });
}

/// One attempt of a client.
async fn attempt<St: Store>(told: &Told, layer: &oneclock_idempotency::Idempotency<St>, attempt: &'static str) {
    let (key, step) = (told.key.clone(), told.step);
    let path = told.folder.path.clone();
    told.folder.note("history", &format!("invoke {key} {attempt}"));
    let (status, body) = send(layer, &key.clone(), move |_| {
        let (folder, key) = (Folder::at(path.clone()), key.clone());
        async move {
            kill_if(step == Step::BeforeEffect);
            folder.note("history", &format!("effect {key} {attempt}"));
            kill_if(step == Step::AfterEffect);
            created(format!("receipt of {attempt}"))
        }
    })
    .await;
    let key = &told.key;
    told.folder.note(
        "history",
        &match status {
            201 => format!("ok {key} {attempt} {body}"),
            // What no record was made for, and what came too late for one: definitely not done by this attempt.
            503 | 412 => format!("fail {key} {attempt}"),
            _ => format!("info {key} {attempt}"),
        },
    );
}

/// A first attempt, in a process that is killed at its step.
async fn serve(told: &Told) {
    let store = Killing { inner: told.folder.store_ahead(told.shift), step: told.step, after: told.after };
    attempt(told, &layer(store, |l| l).0, "first").await;
}

/// The same with a record that is written after the work.
fn serve_naive(told: &Told) {
    let (key, step) = (&told.key, told.step);
    let attempt = if told.folder.notes("history").is_empty() { "first" } else { "second" };
    told.folder.note("history", &format!("invoke {key} {attempt}"));
    if told.folder.notes("records").is_empty() {
        kill_if(step == Step::BeforeEffect);
        told.folder.note("history", &format!("effect {key} {attempt}"));
        kill_if(step == Step::AfterEffect);
        told.folder.note("records", "receipt");
    }
    told.folder.note("history", &format!("ok {key} {attempt} receipt"));
}

/// After a restart, and after every lease: another attempt, the reconciler, and a last attempt.
async fn recover(told: &Told) {
    let store = told.folder.store_ahead(told.shift);
    let (layer, _) = layer(store.clone(), |l| l);
    attempt(told, &layer, "second").await;
    let path = told.folder.path.clone();
    let reconciler = Reconciler::builder(store)
        .probe(move |unresolved: Unresolved| {
            let effect = format!("effect {} ", unresolved.scope.key);
            let history = Folder::at(path.clone()).notes("history");
            let by = history.lines().find_map(|line| line.strip_prefix(&effect)).map(str::to_owned);
            async move {
                match by {
                    Some(by) => Probed::Applied(Answer::new(http::StatusCode::CREATED, format!("receipt of {by}"))),
                    None => Probed::Absent, // its process is dead: nothing of it is on its way
                }
            }
        })
        .build();
    let pass = reconciler.pass().await.unwrap();
    assert_eq!(pass.still_unknown, 0);
    attempt(told, &layer, "last").await;
}

async fn reap(told: &Told) {
    let store = Killing { inner: told.folder.store_ahead(told.shift), step: told.step, after: told.after };
    while store.reap(1).await.unwrap() > 0 {}
}

/// A store whose process is killed at a step.
struct Killing {
    inner: IdempotencyStore,
    step: Step,
    after: Duration,
}

impl Killing {
    fn kill_during(&self, step: Step) {
        if self.step == step {
            let after = self.after;
            std::thread::spawn(move || {
                std::thread::sleep(after);
                kill_if(true);
            });
        }
    }
}

impl Store for Killing {
    async fn claim(&self, scope: &Scope, claim: &Claim) -> Result<Found, StoreError> {
        kill_if(self.step == Step::BeforeClaim);
        self.kill_during(Step::DuringClaim);
        let found = self.inner.claim(scope, claim).await;
        kill_if(
            self.step == Step::AfterClaim
                && found.as_ref().is_ok_and(|found| matches!(found.claimed, Claimed::Run { .. })),
        );
        found
    }

    async fn settle(&self, scope: &Scope, fence: Fence, settle: Settle) -> Result<Settled, StoreError> {
        self.kill_during(Step::DuringCompletion);
        let settled = self.inner.settle(scope, fence, settle).await;
        kill_if(self.step == Step::AfterCompletion);
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
        self.kill_during(Step::DuringReaping);
        self.inner.reap(limit).await
    }
}

/// As `kill -9`: no destructor, no flush.
fn kill_if(now: bool) {
    #[cfg(unix)]
    if now {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::thread::sleep(BOUND); // not a step further
    }
    #[cfg(not(unix))]
    assert!(!now, "processes are killed on unix only");
}
