//! The rules one by one; what holds whatever happens (`steps`); what they come to under load (`world`, `spells`, `lanes`, `found`).

mod found;
mod lanes;
mod modes;
mod rules;
mod spells;
mod steps;
mod world;

use super::*;
use crate::estimate::Sample;
use crate::{Deadline, Importance};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Tick {
    Tick::default() + ms(n)
}

fn until(n: u64) -> Deadline {
    Deadline::at(at(n))
}

/// Work of a sort that is known to take about `takes`.
fn known(admission: &Admission<u32>, takes: Duration) -> Arc<Class> {
    let class = admission.class();
    (0..256).for_each(|_| class.took(takes, Sample::Whole, Tick::default()));
    class
}

/// A place is asked for, and had.
#[track_caller]
fn runs(arrival: Arrival<u32>) {
    assert!(matches!(arrival, Arrival::Runs { .. }), "{arrival:?}");
}

/// It waits, and nobody makes room for it: its key, and until when there is time.
#[track_caller]
fn waits(arrival: Arrival<u32>) -> (Key, Tick) {
    match arrival {
        Arrival::Waits { key, start_by, evicted: None } => (key, start_by),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(arrival: Arrival<u32>) -> Refusal {
    match arrival {
        Arrival::Refused(_, refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Who runs, and why who does not.
fn told(settled: Vec<Settled<u32>>) -> (Vec<u32>, Vec<(u32, Why)>) {
    let (mut run, mut not) = (Vec::new(), Vec::new());
    for settled in settled {
        match settled {
            Settled::Runs(who) => run.push(who),
            Settled::Refused(who, refusal) => not.push((who, refusal.why)),
        }
    }
    (run, not)
}
