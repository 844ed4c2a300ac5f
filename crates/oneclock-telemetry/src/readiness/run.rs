//! The tasks that look: each check by itself, so that none waits for another, and the zombies.
//!
//! Decides who owns them (one task of the shutdown's, at whose signal all end) and that a check that hangs or panics is one that
//! showed nothing.

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use oneclock::clock;
use oneclock_core::Name;
use oneclock_core::readiness::{Shown, Sort, spread};
use oneclock_core::time::Legible;
use tokio::task::JoinSet;

use super::failure::Failure;
use super::state::Shared;

/// Runs a check once.
pub(super) type Run = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Found> + Send>> + Send + Sync>;

/// A check, as it was asked for.
pub(super) struct Planned {
    pub(super) name: Name,
    pub(super) sort: Sort,
    pub(super) bound: Option<Duration>, // its own
    pub(super) run: Run,
}

/// What one run found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) shown: Shown,
    pub(super) text: String,
}

/// Of what a check says, this many bytes are kept.
const LONGEST: usize = 1_000;

impl Found {
    pub(super) fn new(shown: Shown, mut text: String) -> Self {
        if text.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
        Self { shown, text }
    }

    pub(super) fn kept(text: String) -> Self {
        Self::new(Shown::Kept, text)
    }

    pub(super) fn failed(failure: &Failure) -> Self {
        Self::new(if failure.broken { Shown::Broken } else { Shown::Unclear }, failure.to_string())
    }
}

/// Runs everything until the shutdown is signalled. Dropped, it ends all.
pub(super) async fn owner(shared: Arc<Shared>, checks: Vec<(Run, Duration)>) {
    let mut loops = JoinSet::new();
    for (n, (run, bound)) in checks.into_iter().enumerate() {
        loops.spawn(repeat(Arc::clone(&shared), n, run, bound));
    }
    loops.spawn(look(Arc::clone(&shared)));
    shared.shutdown.signalled().await;
    shared.tell();
}

async fn repeat(shared: Arc<Shared>, n: usize, run: Run, bound: Duration) {
    loop {
        let began = clock::now();
        let found = once(&run, bound, shared.sort(n)).await;
        let now = clock::now();
        let pause = shared.record(n, found, now.since(began), now);
        tokio::time::sleep(spread(pause, random())).await;
    }
}

/// On a task of its own, so that a panic is its own, and dropped at its bound.
async fn once(run: &Run, bound: Duration, sort: Sort) -> Found {
    let run = Arc::clone(run);
    let mut task = JoinSet::new();
    task.spawn(async move { run().await });
    match tokio::time::timeout(bound, task.join_next()).await {
        Ok(Some(Ok(found))) => found,
        Ok(Some(Err(_)) | None) => {
            // Where a request with nothing left panics, something has begun to work on it.
            let shown = if sort == Sort::Own { Shown::Broken } else { Shown::Unclear };
            Found::new(shown, "it panicked".to_owned())
        }
        Err(_) => Found::new(Shown::Unclear, format!("it was not over after {}, which is its bound", Legible(bound))),
    }
}

/// Looks at the zombies.
async fn look(shared: Arc<Shared>) {
    loop {
        shared.look(oneclock::zombies(), clock::now());
        tokio::time::sleep(spread(shared.look_every(), random())).await;
    }
}

/// Enough to spread what would else be done at the same time.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
