//! What is kept between a look and a probe.
//!
//! Decides nothing of its own: it asks the core what holds the process back now. Kept small and under one lock, which nobody
//! holds across anything that waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::{Shutdown, Zombies, clock};
use oneclock_core::readiness::{Check, Fleet, Marks, Pressure, Sort};
use oneclock_core::{Name, Tick};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::builder::{CanSpare, ReadinessBuilder};
use super::run::{Found, Run};
use super::{Verdict, WhyNot};

pub(super) struct Shared {
    pub(super) shutdown: Shutdown,
    interval: Duration,
    retry: Duration,
    look: Duration,
    marks: Option<Marks>,
    can_spare: Option<CanSpare>,
    names: Vec<(Name, Sort)>,
    kept: Mutex<Kept>,
    changed: Notify,
}

struct Kept {
    checks: Vec<Latest>, // as `names`
    zombies: Zombies,
    pressure: Pressure,
    fleet: Option<Fleet>, // what the guard said last
    looked_at: Tick,
    said: Option<Said>,
}

/// A check, and what its latest run said.
struct Latest {
    check: Check,
    text: String,
    took: Duration,
}

/// What was said last, and since when.
#[derive(Clone, Copy)]
struct Said {
    ready: bool,
    since: Tick,
    since_unix_ms: u64,
}

/// What is to be said, and whether it is news.
struct Saying {
    verdict: Verdict,
    changed: bool,
}

const TARGET: &str = "oneclock::readiness";

/// So many looks may be missing before nobody is thought to look.
const LOOKS_MISSING: u32 = 30;

impl Shared {
    /// What is kept, and what is to be run with which bound.
    pub(super) fn new(mut builder: ReadinessBuilder, shutdown: Shutdown) -> (Arc<Self>, Vec<(Run, Duration)>) {
        let now = clock::now();
        let (mut names, mut checks, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for planned in builder.take_checks() {
            let bound = planned.bound.unwrap_or(builder.bound);
            let fresh_for = builder.interval.saturating_mul(3).saturating_add(bound);
            let check = Check::new(planned.sort, fresh_for, now);
            checks.push(Latest { check, text: String::new(), took: Duration::ZERO });
            names.push((planned.name, planned.sort));
            runs.push((planned.run, bound));
        }
        let kept = Kept {
            checks,
            zombies: Zombies::default(),
            pressure: Pressure::default(),
            fleet: None,
            looked_at: now,
            said: None,
        };
        let shared = Self {
            shutdown,
            interval: builder.interval,
            retry: builder.retry,
            look: builder.look,
            marks: builder.marks,
            can_spare: builder.can_spare,
            names,
            kept: Mutex::new(kept),
            changed: Notify::new(),
        };
        (Arc::new(shared), runs)
    }

    pub(super) fn sort(&self, n: usize) -> Sort {
        self.names.get(n).map_or(Sort::Shared, |(_, sort)| *sort)
    }

    pub(super) const fn look_every(&self) -> Duration {
        self.look
    }

    /// Keeps what a run found. How long to wait before the next.
    pub(super) fn record(&self, n: usize, found: Found, took: Duration, now: Tick) -> Duration {
        let Some((name, _)) = self.names.get(n) else { return self.interval };
        let (mut was, shown, text) = (None, found.shown, found.text.clone());
        let pause = self.keep(now, |kept| {
            let latest = kept.checks.get_mut(n)?;
            was = latest.check.latest();
            latest.check.saw(found.shown, now);
            latest.text = found.text;
            latest.took = took;
            Some(latest.check.pause(self.interval, self.retry))
        });
        if was != Some(shown) {
            let shown = shown.as_str();
            tracing::info!(target: TARGET, check = name.as_str(), shown, text, "a check of readiness changed");
        }
        pause.unwrap_or(self.interval)
    }

    /// Keeps what a look found.
    pub(super) fn look(&self, zombies: Zombies, now: Tick) {
        let fleet = self.can_spare.as_ref().map(|can_spare| {
            // A guard that panics knows nothing.
            let can_spare = catch_unwind(AssertUnwindSafe(|| can_spare())).unwrap_or(false);
            if can_spare { Fleet::CanSpare } else { Fleet::CannotSpare }
        });
        self.keep(now, |kept| {
            kept.zombies = zombies;
            kept.fleet = fleet;
            kept.looked_at = now;
            if let Some(marks) = &self.marks {
                // Without a guard it is shown and holds nothing back.
                kept.pressure.look(marks, zombies.total(), fleet.unwrap_or(Fleet::CanSpare));
            }
        });
    }

    pub(super) fn verdict(&self) -> Verdict {
        let now = clock::now();
        let saying = self.say(&mut self.lock(), now);
        saying.told()
    }

    /// Wakes who waits: the verdict is another, for a reason that no check brought.
    pub(super) fn tell(&self) {
        self.verdict();
        self.changed.notify_waiters();
    }

    fn keep<R>(&self, now: Tick, change: impl FnOnce(&mut Kept) -> R) -> R {
        let (result, saying) = {
            let mut kept = self.lock();
            let result = change(&mut kept);
            (result, self.say(&mut kept, now))
        };
        saying.told();
        self.changed.notify_waiters();
        result
    }

    /// False if the shutdown was signalled first.
    pub(super) async fn until_ready(&self) -> bool {
        loop {
            let changed = self.changed.notified(); // before the question, so that no change is missed
            if self.verdict().ready {
                return true;
            }
            if self.shutdown.is_signalled() {
                return false;
            }
            changed.await;
        }
    }

    /// What is so now, and whether it was otherwise before. Whoever holds the lock tells nobody of it: subscribers may ask.
    fn say(&self, kept: &mut Kept, now: Tick) -> Saying {
        let why = self.why_not(kept, now);
        let ready = why.is_empty();
        let (said, changed) = match kept.said {
            Some(said) if said.ready == ready => (said, false),
            _ => (Said { ready, since: now, since_unix_ms: clock::wall().as_nanos() / 1_000_000 }, true),
        };
        kept.said = Some(said);
        let verdict = Verdict { ready, lasts: now.since(said.since), since_unix_ms: said.since_unix_ms, why };
        Saying { verdict, changed }
    }

    fn why_not(&self, kept: &Kept, now: Tick) -> Vec<WhyNot> {
        if self.shutdown.is_signalled() {
            return vec![WhyNot::ShuttingDown]; // nobody looks any more
        }
        let mut why: Vec<WhyNot> = Vec::new();
        for ((name, sort), latest) in self.names.iter().zip(&kept.checks) {
            let name = name.clone();
            why.extend(latest.check.holds_back(now).map(|held| match sort {
                Sort::Own => WhyNot::Stack { name, held },
                Sort::Shared => WhyNot::SelfTest { name, held },
            }));
        }
        let silent = now.since(kept.looked_at);
        if silent > self.look.saturating_mul(LOOKS_MISSING) {
            why.push(WhyNot::Stalled { silent });
        }
        if let (Some(marks), Some(Fleet::CanSpare), true) = (&self.marks, kept.fleet, kept.pressure.is_on()) {
            why.push(WhyNot::Zombies { zombies: kept.zombies.total(), capacity: marks.capacity() });
        }
        why
    }

    pub(super) fn to_json(&self) -> Value {
        let now = clock::now();
        let verdict = self.verdict();
        let kept = self.lock();
        let of = |wanted: Sort| -> Vec<Value> {
            let checks = self.names.iter().zip(&kept.checks).filter(|((_, sort), _)| *sort == wanted);
            checks.map(|((name, _), latest)| latest.to_json(name, now)).collect()
        };
        let Zombies { must_finish, blocking, statements, .. } = kept.zombies;
        let mut zombies = json!({
            "must_finish": must_finish,
            "blocking": blocking,
            "statements": statements,
            "total": kept.zombies.total(),
            "age_ms": millis(now.since(kept.looked_at)),
        });
        if let Some(marks) = &self.marks {
            zombies["capacity"] = marks.capacity().into();
            zombies["pressure"] = kept.pressure.is_on().into();
            zombies["fleet"] = match kept.fleet {
                None => "not asked: no guard, so readiness does not follow",
                Some(Fleet::CanSpare) => "can spare this process",
                Some(Fleet::CannotSpare) => "cannot spare this process",
            }
            .into();
        }
        let mut status = verdict.to_json();
        status["stacks"] = of(Sort::Own).into();
        status["self_tests"] = of(Sort::Shared).into();
        status["zombies"] = zombies;
        status
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Saying {
    /// Told to the log if it is news; without the lock.
    fn told(self) -> Verdict {
        if self.changed {
            tracing::info!(target: TARGET, said = %self.verdict, "readiness changed");
        }
        self.verdict
    }
}

impl Latest {
    fn to_json(&self, name: &Name, now: Tick) -> Value {
        let held = self.check.holds_back(now);
        let mut json = json!({
            "name": name.as_str(),
            "shown": self.check.latest().map_or("nothing yet", |shown| shown.as_str()),
            "holds_back": held.is_some(),
            "age_ms": millis(self.check.age(now)),
            "took_ms": millis(self.took),
            "ever_kept": self.check.ever_kept(),
            "not_kept_in_a_row": self.check.not_kept_in_a_row(),
        });
        if let Some(held) = held {
            json["why"] = held.to_string().into();
        }
        if !self.text.is_empty() {
            json["said"] = self.text.as_str().into();
        }
        json
    }
}

impl Verdict {
    pub(super) fn to_json(&self) -> Value {
        let why: Vec<String> = self.why.iter().map(ToString::to_string).collect();
        json!({ "ready": self.ready, "since_unix_ms": self.since_unix_ms, "for_ms": millis(self.lasts), "why": why })
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
