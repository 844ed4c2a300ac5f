//! Every interleaving of a few threads, tried by loom.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64 as Modelled;
use loom::thread;

fn policy() -> BreakerPolicy {
    BreakerPolicy { least: 2, permille: 1_000, probes: 1, ..BreakerPolicy::default() }
}

fn at(ms: u64) -> Tick {
    Tick::default() + Duration::from_millis(ms)
}

fn pass(breaker: &Shared<Modelled>, now: Tick) -> Option<Pass> {
    match breaker.ask(now) {
        Asked::Pass(pass) => Some(pass),
        Asked::Open { .. } => None,
    }
}

fn opened() -> Arc<Shared<Modelled>> {
    opened_by(policy())
}

fn opened_by(policy: BreakerPolicy) -> Arc<Shared<Modelled>> {
    let breaker = Shared::<Modelled>::new(policy);
    for _ in 0..2 {
        let call = pass(&breaker, at(1)).unwrap();
        breaker.end(&call, Told::Broken, 0, at(1));
    }
    assert!(pass(&breaker, at(1)).is_none());
    Arc::new(breaker)
}

#[test]
fn of_two_who_ask_together_one_is_the_probe() {
    loom::model(|| {
        let breaker = opened();
        let asking = Arc::clone(&breaker);
        let other = thread::spawn(move || pass(&asking, at(1_002)).is_some());
        let mine = pass(&breaker, at(1_002)).is_some();
        assert!(mine ^ other.join().unwrap());
    });
}

#[test]
fn two_failures_together_open_it_once() {
    loom::model(|| {
        let breaker = Arc::new(Shared::<Modelled>::new(policy()));
        let (one, two) = (pass(&breaker, at(1)).unwrap(), pass(&breaker, at(1)).unwrap());
        let ending = Arc::clone(&breaker);
        let other = thread::spawn(move || ending.end(&two, Told::Broken, 0, at(2)));
        let mine = breaker.end(&one, Told::Broken, 0, at(2));
        let changes = [mine, other.join().unwrap()];
        assert_eq!(changes.iter().flatten().count(), 1, "{changes:?}");
    });
}

#[test]
fn a_probe_that_ends_beside_one_that_asks_leaves_it_closed_or_open() {
    loom::model(|| {
        let breaker = opened();
        let probe = pass(&breaker, at(1_002)).unwrap();
        let asking = Arc::clone(&breaker);
        let other = thread::spawn(move || pass(&asking, at(1_003)));
        assert_eq!(breaker.end(&probe, Told::Well, 0, at(1_003)), Some(Change::Closed));
        if let Some(call) = other.join().unwrap() {
            assert!(!call.is_probe(), "only what was asked after it had closed");
        }
    });
}

#[test]
fn two_probes_that_end_together_both_count() {
    loom::model(|| {
        let breaker = opened_by(BreakerPolicy { probes: 2, ..policy() });
        let [one, two] = [1_002, 2_003].map(|now| pass(&breaker, at(now)).unwrap());
        let ending = Arc::clone(&breaker);
        let other = thread::spawn(move || ending.end(&one, Told::Well, 0, at(2_004)));
        let changes = [breaker.end(&two, Told::Well, 0, at(2_004)), other.join().unwrap()];
        assert_eq!(changes.iter().flatten().collect::<Vec<_>>(), [&Change::Closed]);
    });
}

#[test]
fn set_back_beside_a_failure_it_is_closed_and_stays_so() {
    loom::model(|| {
        let breaker = Arc::new(Shared::<Modelled>::new(policy()));
        let (one, two) = (pass(&breaker, at(1)).unwrap(), pass(&breaker, at(1)).unwrap());
        breaker.end(&one, Told::Broken, 0, at(1));
        let ending = Arc::clone(&breaker);
        let other = thread::spawn(move || ending.end(&two, Told::Broken, 0, at(2)));
        let set_back = breaker.set_back(at(2));
        assert!(!pass(&breaker, at(2)).unwrap().is_probe());
        assert!(other.join().unwrap().is_some() || set_back.is_none(), "it closed what had opened");
        assert!(!pass(&breaker, at(2)).unwrap().is_probe());
    });
}
