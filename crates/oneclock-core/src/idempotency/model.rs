//! The state machine against a model: any order of claims, words of runs, findings, reaping and jumps of the clock.
//!
//! The model knows what the record cannot: what each run really did. It holds that nobody runs while it may have been done,
//! that fences grow, that what is late changes nothing, and that what was answered stays answered.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::wire::Wall;

const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(3600);

/// What can happen to one key.
#[derive(Clone, Debug)]
enum Event {
    /// A request comes, from one of three executors; sometimes with another body.
    Claim { owner: u128, other_body: bool },
    /// Work is accepted under the key; sometimes other work.
    Enqueue { owner: u128, other_body: bool },
    /// A queue gives up on what nobody is at: for good, or so that it may be tried again.
    EndUnbegun { for_good: bool },
    /// One of the runs so far has its effect.
    Effect { run: usize },
    /// One of the runs so far says what became of it; truthfully.
    Say { run: usize, doubt: bool },
    /// The reconciler looks at the record, and the probe tells the truth.
    Reconcile,
    /// The reaper comes.
    Reap,
    /// Time passes.
    Pass(Duration),
}

/// One run, and what it really did.
#[derive(Debug)]
struct Run {
    fence: Fence,
    effect: bool,
    over: bool, // it has said its last word, and does nothing any more
}

struct World {
    now: Wall,
    record: Option<Record>,
    answer: Option<Fence>, // of a completed record: whose answer is replayed
    floor: Fence,
    highest: Fence,
    runs: Vec<Run>,
    takeover: Takeover,
    made: Option<Wall>,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..3u128, prop::bool::weighted(0.1)).prop_map(|(owner, other_body)| Event::Claim { owner, other_body }),
        2 => (0..3u128, prop::bool::weighted(0.1)).prop_map(|(owner, other_body)| Event::Enqueue { owner, other_body }),
        1 => any::<bool>().prop_map(|for_good| Event::EndUnbegun { for_good }),
        3 => (0..6usize).prop_map(|run| Event::Effect { run }),
        3 => (0..6usize, any::<bool>()).prop_map(|(run, doubt)| Event::Say { run, doubt }),
        2 => Just(Event::Reconcile),
        1 => Just(Event::Reap),
        3 => prop_oneof![0..40u64, 3000..4000u64].prop_map(|secs| Event::Pass(Duration::from_secs(secs))),
    ]
}

impl World {
    fn new(takeover: Takeover, with_time: bool) -> Self {
        let now = Wall::from_nanos(0) + Duration::from_secs(1_000_000);
        let made = with_time.then_some(now);
        let (floor, highest) = (Fence::NONE, Fence::NONE);
        Self { now, record: None, answer: None, floor, highest, runs: Vec::new(), takeover, made }
    }

    fn happens(&mut self, event: &Event) {
        match *event {
            Event::Pass(span) => self.now = self.now + span,
            Event::Claim { owner, other_body } => self.claims(owner, other_body),
            Event::Enqueue { owner, other_body } => self.enqueues(owner, other_body),
            Event::EndUnbegun { for_good } => self.ends_unbegun(for_good),
            // A run that was fenced off, or whose lease lapsed, may still be at it: it does not know.
            Event::Effect { run } => {
                if let Some(run) = self.runs.get_mut(run).filter(|run| !run.over) {
                    run.effect = true;
                }
            }
            Event::Say { run, doubt } => self.says(run, doubt),
            Event::Reconcile => self.reconciles(),
            Event::Reap => {
                if let Some(record) = self.record.filter(|record| record.may_be_reaped(self.now)) {
                    assert!(!matches!(record.at(self.now).state, State::Unknown(_)), "an unknown one was reaped");
                    self.floor = self.floor.max(record.fence);
                    self.record = None;
                    self.answer = None;
                }
            }
        }
    }

    fn claims(&mut self, owner: u128, other_body: bool) {
        let asked = Claim {
            fingerprint: Fingerprint([u8::from(other_body); 32]),
            // Each run's own, as drivers make them; the executor's number only tells them apart here.
            owner: Owner(owner + 3 * self.runs.len() as u128),
            made: self.made,
            lease: LEASE,
            retention: RETENTION,
            takeover: self.takeover,
        };
        let before = self.record.map(|record| record.at(self.now));
        let lives = before.filter(|record| !record.may_be_reaped(self.now));
        let Claiming { write, claimed } = claim(self.record.as_ref(), self.floor, &asked, self.now);
        match claimed {
            Claimed::Run { fence, taken_over } => {
                assert!(self.highest < fence, "fences grow: {fence} after {}", self.highest);
                self.highest = fence;
                assert!(!taken_over || self.takeover == Takeover::DeclaredSafe, "M3");
                if let Some(lives) = lives {
                    assert_eq!(lives.fingerprint, asked.fingerprint, "M7");
                    let free = matches!(lives.state, State::Queued | State::FailedRetryable | State::Unknown(_));
                    assert!(free, "{:?}", lives.state);
                } else if self.made.is_some() {
                    assert!(self.runs.is_empty(), "a key with a time runs again after its record was reaped");
                }
                // The rule that all others are for: nobody runs beside a run that may do it, or after one that did.
                if self.takeover == Takeover::Never && lives.is_some() {
                    for run in &self.runs {
                        assert!(run.over, "{run:?} may still do it");
                    }
                }
                assert_eq!(write.map(|record| record.fence), Some(fence));
                self.answer = None;
                if lives.is_none() {
                    self.is_new_again();
                }
                self.runs.push(Run { fence, effect: false, over: false });
            }
            Claimed::InProgress { lease_left } => {
                assert!(lease_left > Duration::ZERO && lease_left <= LEASE);
                assert!(matches!(lives.map(|record| record.state), Some(State::InProgress { .. })));
            }
            Claimed::Completed => assert!(self.answer.is_some(), "completed, and no answer"),
            Claimed::Unknown { .. } => assert!(matches!(lives.map(|record| record.state), Some(State::Unknown(_)))),
            Claimed::OtherFingerprint => assert_ne!(lives.map(|record| record.fingerprint), Some(asked.fingerprint)),
            Claimed::KeyTooOld => assert!(self.made.is_some() && lives.is_none()),
            Claimed::KeyFromTheFuture => panic!("its clock is ours"),
        }
        if write.is_some() {
            self.record = write;
        }
    }

    /// After retention a key without a time is a new one; what was done under it before does not count.
    fn is_new_again(&mut self) {
        self.runs.iter_mut().for_each(|run| (run.over, run.effect) = (true, false));
        self.answer = None;
    }

    fn enqueues(&mut self, owner: u128, other_body: bool) {
        let asked = Enqueue {
            fingerprint: Fingerprint([u8::from(other_body); 32]),
            owner: Owner(owner + 3 * self.runs.len() as u128),
            made: self.made,
            retention: RETENTION,
        };
        let before = self.record.map(|record| record.at(self.now));
        let lives = before.filter(|record| !record.may_be_reaped(self.now));
        let Enqueueing { write, enqueued } = enqueue(self.record.as_ref(), self.floor, &asked, self.now);
        assert!(write.is_none() || matches!(enqueued, Enqueued::Queued { is_new: true, .. }), "{enqueued:?}");
        match enqueued {
            Enqueued::Queued { fence, first_seen, .. } => {
                if let Some(lives) = lives {
                    assert_eq!((lives.fingerprint, lives.first_seen), (asked.fingerprint, first_seen), "M7, Q1");
                    assert!(matches!(lives.state, State::Queued | State::FailedRetryable), "{:?}", lives.state);
                } else {
                    assert_eq!(first_seen, self.now);
                    assert!(self.made.is_none() || self.runs.is_empty(), "a key with a time is accepted again");
                    self.is_new_again();
                }
                // Whoever claims it runs at once: nobody may be at it any more, and nothing may have been done.
                if self.takeover == Takeover::Never {
                    assert!(self.runs.iter().all(|run| run.over && !run.effect), "{:?}", self.runs);
                }
                if let Some(record) = write {
                    assert!(self.highest < fence && record.fence == fence, "fences grow");
                    self.highest = fence;
                }
            }
            Enqueued::Stands { state, first_seen } => {
                assert_eq!(lives.map(|record| (record.state, record.first_seen)), Some((state, first_seen)));
                assert!(!matches!(state, State::Queued | State::FailedRetryable), "it could be done");
            }
            Enqueued::OtherFingerprint => assert_ne!(lives.map(|record| record.fingerprint), Some(asked.fingerprint)),
            Enqueued::KeyTooOld => assert!(self.made.is_some() && lives.is_none()),
            Enqueued::KeyFromTheFuture => panic!("its clock is ours"),
        }
        if write.is_some() {
            self.record = write;
        }
    }

    fn ends_unbegun(&mut self, for_good: bool) {
        let found = self.record.filter(|record| matches!(record.state, State::Queued | State::FailedRetryable));
        let Some(record) = found else { return };
        self.steps(record.fence, if for_good { Step::Complete } else { Step::SetAside });
    }

    fn says(&mut self, run: usize, doubt: bool) {
        let Some(run) = self.runs.get_mut(run).filter(|run| !run.over) else { return };
        run.over = true;
        let step = match (doubt, run.effect) {
            (true, _) => Step::Doubt(Doubt::Failed),
            (false, true) => Step::Complete,
            (false, false) => Step::Release,
        };
        let fence = run.fence;
        self.steps(fence, step);
    }

    /// The probe sees every effect. It may look only when no run goes on: that is what it waits for.
    fn reconciles(&mut self) {
        let Some(record) = self.record.filter(|record| matches!(record.at(self.now).state, State::Unknown(_))) else {
            return;
        };
        let effect = self.runs.iter().any(|run| run.effect);
        if effect {
            self.steps(record.fence, Step::Complete);
        } else if self.runs.iter().all(|run| run.over) {
            self.steps(record.fence, Step::Release);
        }
    }

    fn steps(&mut self, fence: Fence, step: Step) {
        let Some(record) = self.record else { return };
        let before = record.at(self.now);
        match record.step(fence, step, self.now) {
            Stepped::Done(next) => {
                assert_eq!(next.fence, record.fence);
                assert_eq!(next.fingerprint, record.fingerprint, "kept in every state");
                assert!(next.expires >= record.expires);
                match before.state {
                    State::Queued | State::InProgress { .. } => assert_ne!(next.state, State::Queued),
                    State::Unknown(_) => assert!(matches!(next.state, State::Completed | State::FailedRetryable)),
                    State::FailedRetryable if step == Step::SetAside => assert_eq!(next.state, State::FailedRetryable),
                    State::FailedRetryable => assert_eq!(next.state, State::Completed),
                    State::Completed => panic!("what is completed stays so"),
                }
                if next.state == State::Completed {
                    assert_eq!(self.answer, None, "a second answer for one key");
                    self.answer = Some(fence);
                }
                self.record = Some(next);
            }
            Stepped::Already => {}
            Stepped::Fenced { current } => assert_ne!(current, fence, "M5"),
            Stepped::Settled(state) => assert!(matches!(state, State::Completed | State::FailedRetryable)),
        }
    }

    /// Between runs that were released by proof and the one that did it, the effect is there once.
    fn at_most_once(&self) {
        if self.takeover == Takeover::Never {
            let effects = self.runs.iter().filter(|run| run.effect).count();
            assert!(effects <= 1, "{effects} effects: {:?}", self.runs);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn m1_to_m5_any_history_has_at_most_one_effect(
        events in prop::collection::vec(event(), 1..40),
        with_time: bool,
        safe in prop::bool::weighted(0.3),
    ) {
        let takeover = if safe { Takeover::DeclaredSafe } else { Takeover::Never };
        let mut world = World::new(takeover, with_time);
        for event in &events {
            world.happens(event);
            world.at_most_once();
        }
    }
}

/// The usual lock with a time to live: whoever fails, however late, removes it.
#[test]
fn naive_a_lease_without_a_fence_runs_three_times() {
    #[derive(Default)]
    struct Naive {
        locked_until: Option<u64>,
        effects: u32,
    }
    impl Naive {
        fn claims_and_works(&mut self, now: u64) -> bool {
            let free = self.locked_until.is_none_or(|until| until <= now);
            if free {
                (self.locked_until, self.effects) = (Some(now + 30), self.effects + 1);
            }
            free
        }
        fn fails(&mut self) {
            self.locked_until = None; // "so that the next one may"
        }
    }
    let mut naive = Naive::default();
    assert!(naive.claims_and_works(0), "A works, and hangs");
    assert!(naive.claims_and_works(31), "its lease is over: B works");
    naive.fails(); // A comes back with an error, and removes the lock of B
    assert!(naive.claims_and_works(32), "C works beside B");
    assert_eq!(naive.effects, 3);

    // The same story here, with the declaration that allows B at all:
    let at = |secs: u64| Wall::from_nanos(0) + Duration::from_secs(secs);
    let safe = |owner| Claim { takeover: Takeover::DeclaredSafe, ..asked(owner) };
    let a = claim(None, Fence::NONE, &safe(1), at(0)).write.expect("A works");
    let b = claim(Some(&a), Fence::NONE, &safe(2), at(31)).write.expect("B works");
    assert_eq!(b.step(a.fence, Step::Release, at(32)), Stepped::Fenced { current: b.fence });
    assert!(matches!(claim(Some(&b), Fence::NONE, &safe(3), at(32)).claimed, Claimed::InProgress { .. }));
}

fn record() -> Record {
    let ask = asked(1);
    let claiming = claim(None, Fence::NONE, &ask, Wall::from_nanos(0));
    claiming.write.expect("a record")
}

fn asked(owner: u128) -> Claim {
    Claim {
        fingerprint: Fingerprint([7; 32]),
        owner: Owner(owner),
        made: None,
        lease: LEASE,
        retention: RETENTION,
        takeover: Takeover::Never,
    }
}

#[test]
fn m1_the_same_claim_asked_again_gets_the_same_answer() {
    let again = claim(Some(&record()), Fence::NONE, &asked(1), Wall::from_nanos(5));
    assert_eq!(again, Claiming { write: None, claimed: Claimed::Run { fence: Fence(1), taken_over: false } });
}

#[test]
fn m3_a_lapsed_lease_is_unknown_and_only_a_declaration_takes_over() {
    let late = Wall::from_nanos(0) + LEASE;
    let blocked = claim(Some(&record()), Fence::NONE, &asked(2), late);
    assert_eq!(blocked.claimed, Claimed::Unknown { doubt: Doubt::LeaseLapsed });
    assert_eq!(blocked.write.map(|record| record.state), Some(State::Unknown(Doubt::LeaseLapsed)), "written down");
    let safe = Claim { takeover: Takeover::DeclaredSafe, ..asked(2) };
    let taken = claim(Some(&record()), Fence::NONE, &safe, late);
    assert_eq!(taken.claimed, Claimed::Run { fence: Fence(2), taken_over: true });
    // Even one who is safe to repeat does not run beside a run whose lease lasts.
    assert!(matches!(
        claim(Some(&record()), Fence::NONE, &safe, Wall::from_nanos(0)).claimed,
        Claimed::InProgress { lease_left: LEASE }
    ));
}

#[test]
fn m5_a_stale_fence_changes_nothing() {
    let safe = Claim { takeover: Takeover::DeclaredSafe, ..asked(2) };
    let late = Wall::from_nanos(0) + LEASE;
    let taken = claim(Some(&record()), Fence::NONE, &safe, late).write.expect("taken over");
    for step in [Step::Complete, Step::Release, Step::Doubt(Doubt::Failed)] {
        assert_eq!(taken.step(Fence(1), step, late), Stepped::Fenced { current: Fence(2) });
    }
}

fn queued() -> Record {
    let ask = asked_to_queue(1);
    enqueue(None, Fence::NONE, &ask, Wall::from_nanos(0)).write.expect("a record")
}

fn asked_to_queue(owner: u128) -> Enqueue {
    Enqueue { fingerprint: Fingerprint([7; 32]), owner: Owner(owner), made: None, retention: RETENTION }
}

#[test]
fn q6_what_is_queued_runs_for_whoever_claims_it_first_and_its_word_counts() {
    let run = claim(Some(&queued()), Fence::NONE, &asked(2), Wall::from_nanos(5)).write.expect("a run");
    assert_eq!((run.fence, run.first_seen), (Fence(2), queued().first_seen));
    // Whoever accepted it, and hears late that it was not published, has no say over the run.
    assert_eq!(run.step(queued().fence, Step::SetAside, run.since), Stepped::Fenced { current: Fence(2) });
    let again = enqueue(Some(&run), Fence::NONE, &asked_to_queue(3), run.since);
    assert_eq!(
        again,
        Enqueueing { write: None, enqueued: Enqueued::Stands { state: run.state, first_seen: run.first_seen } }
    );
}

#[test]
fn q6_accepting_it_again_makes_its_end_no_later_and_its_claim_asked_again_is_the_same() {
    let later = Wall::from_nanos(0) + LEASE;
    let Enqueued::Queued { fence, first_seen, now, is_new } =
        enqueue(Some(&queued()), Fence::NONE, &asked_to_queue(2), later).enqueued
    else {
        panic!("queued");
    };
    assert_eq!((fence, first_seen, now, is_new), (Fence(1), Wall::from_nanos(0), later, false));
    let same = enqueue(Some(&queued()), Fence::NONE, &asked_to_queue(1), later).enqueued;
    assert!(matches!(same, Enqueued::Queued { is_new: true, .. }), "the answer of the first may have been lost");
    let Stepped::Done(set_aside) = queued().step(Fence(1), Step::SetAside, later) else { panic!("set aside") };
    let Enqueued::Queued { fence, first_seen, .. } =
        enqueue(Some(&set_aside), Fence::NONE, &asked_to_queue(2), later + LEASE).enqueued
    else {
        panic!("queued");
    };
    assert_eq!((fence, first_seen), (Fence(2), Wall::from_nanos(0)));
}

#[test]
fn q5_what_is_queued_may_end_without_a_run() {
    let after = |step| match queued().step(Fence(1), step, Wall::from_nanos(9)) {
        Stepped::Done(record) => record.state,
        other => panic!("{other:?}"),
    };
    assert_eq!(after(Step::Complete), State::Completed);
    assert_eq!(after(Step::SetAside), State::FailedRetryable);
    assert_eq!(after(Step::Doubt(Doubt::Failed)), State::Unknown(Doubt::Failed));
    assert!(!queued().may_be_reaped(Wall::from_nanos(0) + (RETENTION - Duration::from_nanos(1))));
    assert!(queued().may_be_reaped(Wall::from_nanos(0) + RETENTION));
}

#[test]
fn m7_a_key_that_outlived_its_record_is_refused() {
    let made = Wall::from_nanos(0) + Duration::from_secs(1_000);
    let ask = Claim { made: Some(made), ..asked(1) };
    let too_late = made + RETENTION;
    assert_eq!(claim(None, Fence::NONE, &ask, too_late).claimed, Claimed::KeyTooOld);
    assert!(matches!(
        claim(None, Fence::NONE, &ask, Wall::from_nanos(too_late.as_nanos() - 1)).claimed,
        Claimed::Run { .. }
    ));
    // A client whose clock is ahead: its record stays as long as its key seems young.
    let ahead = claim(None, Fence::NONE, &ask, Wall::from_nanos(0)).write.expect("a run");
    assert_eq!(ahead.expires, too_late);
    let absurd = Claim { made: Some(Wall::from_nanos(u64::MAX)), ..asked(1) };
    assert_eq!(claim(None, Fence::NONE, &absurd, made).claimed, Claimed::KeyFromTheFuture);
}

#[test]
fn m9_fences_grow_over_what_was_reaped() {
    let claimed = claim(None, Fence(41), &asked(1), Wall::from_nanos(0)).claimed;
    assert_eq!(claimed, Claimed::Run { fence: Fence(42), taken_over: false });
}

#[test]
fn m3_what_is_unknown_is_never_reaped() {
    let unknown = record().at(Wall::from_nanos(0) + LEASE);
    assert!(!unknown.may_be_reaped(Wall::from_nanos(u64::MAX)));
    let Stepped::Done(resolved) = unknown.step(Fence(1), Step::Complete, unknown.since) else { panic!("resolved") };
    assert!(!resolved.may_be_reaped(unknown.since));
    assert!(resolved.may_be_reaped(unknown.since + RETENTION));
}

#[test]
fn every_doubt_reads_back() {
    for doubt in Doubt::ALL {
        assert_eq!(Doubt::parse(doubt.as_str()), Some(doubt));
    }
    assert_eq!(Doubt::parse("other"), None);
}
