//! What the other process does. It is this test binary again, told by its environment.

use std::path::PathBuf;
use std::time::Duration;

use oneclock::clock;
use oneclock_core::idempotency::{Claim, Claimed, Fence, Key, Record, Refusal, Scope};
use oneclock_idempotency::{
    Answer, Found, Kept, Probed, Reconciler, Settle, Settled, Store, StoreError, Unresolved, Which,
};
use oneclock_postgres::{IdempotencyStore, NotOnce, Once, PgError};

use crate::records::{Folder, ask, created, layer, scope, send, store_in};
use crate::support::{BOUND, connect, patient, server};

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
}

/// What a child is told.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) folder: PathBuf,
    pub(crate) database: String,
    pub(crate) schema: String,
    pub(crate) key: String,
    pub(crate) step: Step,
    pub(crate) after: Duration, // of a kill at a moment of its own
    pub(crate) shift: Duration, // of the clock: zero is the server's own
}

const ROLE: &str = "ONECLOCK_CHILD";

impl Told {
    /// A command that runs this binary in a role.
    pub(crate) fn command(&self, role: &str) -> std::process::Command {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command
            .args(["child::child", "--exact", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env("ONECLOCK_FOLDER", &self.folder)
            .env("ONECLOCK_DATABASE", &self.database)
            .env("ONECLOCK_SCHEMA", &self.schema)
            .env("ONECLOCK_KEY", &self.key)
            .env("ONECLOCK_STEP", format!("{:?}", self.step))
            .env("ONECLOCK_AFTER", self.after.as_micros().to_string())
            .env("ONECLOCK_SHIFT", self.shift.as_secs().to_string())
            .stdout(std::process::Stdio::null());
        command
    }

    fn from_environment() -> Self {
        let text = |name: &str| std::env::var(name).unwrap();
        let step = text("ONECLOCK_STEP");
        Self {
            folder: text("ONECLOCK_FOLDER").into(),
            database: text("ONECLOCK_DATABASE"),
            schema: text("ONECLOCK_SCHEMA"),
            key: text("ONECLOCK_KEY"),
            step: Step::ALL.into_iter().find(|known| format!("{known:?}") == step).unwrap_or(Step::Nowhere),
            after: Duration::from_micros(text("ONECLOCK_AFTER").parse().unwrap()),
            shift: Duration::from_secs(text("ONECLOCK_SHIFT").parse().unwrap()),
        }
    }

    pub(crate) fn folder(&self) -> Folder {
        Folder::at(self.folder.clone())
    }

    pub(crate) fn store(&self) -> IdempotencyStore {
        let mut config = server();
        config.dbname(&self.database);
        let store = store_in(&config, &self.schema);
        let shift = self.shift;
        let store = if shift.is_zero() { store } else { store.clock(move || clock::wall() + shift) };
        store.build().unwrap()
    }

    fn kills_at(&self, step: Step) {
        kill_if(self.step == step);
    }

    fn kills_during(&self, step: Step) {
        if self.step == step {
            let after = self.after;
            std::thread::spawn(move || {
                std::thread::sleep(after);
                kill_if(true);
            });
        }
    }

    fn note(&self, line: &str) {
        self.folder().note("history", line);
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
            "lease" => lease(&told).await,
            "lease-recover" => lease_recover(&told).await,
            "once" => once(&told, "first").await,
            "once-recover" => {
                once(&told, "second").await;
                once(&told, "last").await;
            }
            "two-transactions" => two_transactions(&told).await,
            "reap" => reap(&told).await,
            "stall" => crate::stopped::stall(&told).await,
            other => panic!("no such role: {other}"),
        }
    });
}

// With leases: the effect is elsewhere, a line in a file.

/// One attempt of a client.
async fn attempt<St: Store>(told: &Told, layer: &oneclock_idempotency::Idempotency<St>, attempt: &'static str) {
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

/// A first attempt, in a process that is killed at its step.
async fn lease(told: &Told) {
    let store = Killing { inner: told.store(), told: told.clone() };
    attempt(told, &layer(store, |l| l).0, "first").await;
}

/// After a restart, and after every lease: another attempt, the reconciler, and a last attempt.
async fn lease_recover(told: &Told) {
    let store = told.store();
    let (layer, _) = layer(store.clone(), |l| l);
    attempt(told, &layer, "second").await;
    let asked = told.clone();
    let reconciler = Reconciler::builder(store)
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
    let pass = reconciler.pass().await.unwrap();
    assert_eq!(pass.still_unknown, 0);
    attempt(told, &layer, "last").await;
}

async fn reap(told: &Told) {
    let store = told.store();
    told.kills_during(Step::DuringReaping);
    while store.reap(1).await.unwrap() > 0 {}
}

/// A store whose process is killed at a step.
struct Killing {
    inner: IdempotencyStore,
    told: Told,
}

impl Store for Killing {
    async fn claim(&self, scope: &Scope, claim: &Claim) -> Result<Found, StoreError> {
        self.told.kills_at(Step::BeforeClaim);
        self.told.kills_during(Step::DuringClaim);
        let found = self.inner.claim(scope, claim).await;
        if found.as_ref().is_ok_and(|found| matches!(found.claimed, Claimed::Run { .. })) {
            self.told.kills_at(Step::AfterClaim);
        }
        found
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

// In one transaction: the effect is a row of the same database.

/// One attempt of a client.
async fn once(told: &Told, attempt: &'static str) {
    let key = &told.key;
    let store = told.store();
    let made = Key::new(key).unwrap().made();
    let asked = Claim { made, ..ask(u128::from(std::process::id())) };
    told.note(&format!("invoke {key} {attempt}"));
    told.kills_at(Step::BeforeClaim);
    told.kills_during(Step::DuringClaim);
    let done = store
        .once_in(&patient(), "charge", &scope(key), &asked, async |tx| {
            told.kills_at(Step::AfterClaim);
            tx.query("SELECT * FROM effects WHERE key = $1", &[key]).await?;
            told.kills_at(Step::BeforeEffect);
            tx.execute("INSERT INTO effects VALUES ($1, $2)", &[key, &attempt]).await?;
            told.kills_at(Step::AfterEffect);
            told.kills_during(Step::DuringCompletion);
            Ok::<_, PgError>(Answer::new(http::StatusCode::CREATED, format!("receipt of {attempt}")))
        })
        .await;
    told.kills_at(Step::AfterCompletion);
    told.note(&match done {
        Ok(Once::Ran(answer) | Once::Replayed(answer)) => {
            format!("ok {key} {attempt} {}", String::from_utf8_lossy(answer.body().unwrap()))
        }
        Ok(Once::Refused(Refusal::KeyTooOld)) | Err(NotOnce::Work(_) | NotOnce::Store(_)) => {
            format!("fail {key} {attempt}")
        }
        _ => format!("info {key} {attempt}"),
    });
}

/// The same with a record that is committed after the work.
async fn two_transactions(told: &Told) {
    let mut config = server();
    config.dbname(&told.database).options(format!("-c search_path={}", told.schema));
    let (client, key) = (connect(&config).await, &told.key);
    let attempt = if told.folder().notes("history").is_empty() { "first" } else { "second" };
    told.note(&format!("invoke {key} {attempt}"));
    client.batch_execute("CREATE TABLE IF NOT EXISTS done (key text)").await.unwrap();
    if client.query("SELECT * FROM done WHERE key = $1", &[key]).await.unwrap().is_empty() {
        client.execute("INSERT INTO effects VALUES ($1, $2)", &[key, &attempt]).await.unwrap();
        told.kills_at(Step::AfterEffect);
        client.execute("INSERT INTO done VALUES ($1)", &[key]).await.unwrap();
    }
    told.note(&format!("ok {key} {attempt} receipt"));
}

/// As `kill -9`: no destructor, no flush.
fn kill_if(now: bool) {
    if now {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::thread::sleep(BOUND); // not a step further
    }
}
