//! The breaker against every order of events, and each rule with its line.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Stage;
use crate::throttle::{Had, Usual};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Tick {
    Tick::default() + ms(n)
}

#[track_caller]
fn pass(breaker: &Breaker, now: u64) -> Pass {
    match breaker.ask(at(now)) {
        Asked::Pass(pass) => pass,
        Asked::Open { again_in } => panic!("open at {now}, for {again_in:?}"),
    }
}

fn is_open(breaker: &Breaker, now: u64) -> bool {
    matches!(breaker.ask(at(now)), Asked::Open { .. })
}

/// One call for each, a millisecond apart. Returns what changed.
fn calls(breaker: &Breaker, from: u64, told: impl IntoIterator<Item = Told>) -> Vec<Change> {
    let one = |(n, told)| {
        let now = from + n;
        match breaker.ask(at(now)) {
            Asked::Pass(pass) => breaker.end(pass, told, 0, at(now)),
            Asked::Open { .. } => None,
        }
    };
    (0..).zip(told).filter_map(one).collect()
}

fn opened(policy: BreakerPolicy, now: u64) -> Breaker {
    let breaker = Breaker::new(policy);
    assert_eq!(calls(&breaker, now, [Told::Broken; 20]), [Change::Opened]);
    breaker
}

#[test]
fn it_opens_at_its_share_and_not_below() {
    let policy = BreakerPolicy::default();
    let mixed = |failures: usize| (0..100).map(move |n| if n % 100 < failures { Told::Failed } else { Told::Well });
    let breaker = Breaker::new(policy);
    assert_eq!(calls(&breaker, 0, mixed(0).chain((0..24).map(|_| Told::Failed))), [], "24 of 124");
    assert_eq!(calls(&breaker, 200, [Told::Failed]), [Change::Opened], "25 of 125");
    let few = Breaker::new(policy);
    assert_eq!(calls(&few, 0, [Told::Failed; 19]), [], "19 calls are no share");
    let slow = Breaker::new(policy);
    for n in 0..100 {
        assert_eq!(calls(&slow, n * 2_000, [Told::Broken]), [], "nor are fifteen within the window");
    }
}

#[test]
fn refusals_for_load_and_hurried_callers_open_nothing() {
    let breaker = Breaker::new(BreakerPolicy::default());
    let neither = [Told::Shed, Told::CutShort, Told::NotSent];
    assert_eq!(calls(&breaker, 0, neither.into_iter().cycle().take(10_000)), []);
    assert_eq!(calls(&breaker, 20_000, [Told::Failed; 19]), [], "and they are no calls to have a share of");
}

/// Where the callers have 30 ms and the destination needs 50 to 60. A breaker that counts their timeouts opens for a
/// destination that is well, and refuses those who have time as well.
#[test]
fn timeouts_that_callers_cause_open_a_naive_breaker_only() {
    let (naive, ours, usual) =
        (Breaker::new(BreakerPolicy::default()), Breaker::new(BreakerPolicy::default()), Usual::new());
    let (mut naive_open, mut changes) = (0, Vec::new());
    for n in 0..1_000 {
        let (now, needs) = (at(n * 10), ms(50 + n % 11));
        let granted = if n % 2 == 0 { ms(30) } else { ms(300) };
        let answered = needs < granted;
        let had = Had { granted, taken: needs.min(granted), limit: Some(ms(300)), usual: usual.get() };
        if answered {
            usual.answered_after(needs);
        }
        match naive.ask(now) {
            Asked::Pass(pass) => drop(naive.end(pass, if answered { Told::Well } else { Told::TimedOut }, 0, now)),
            Asked::Open { .. } => naive_open += 1,
        }
        let Asked::Pass(pass) = ours.ask(now) else { panic!("open") };
        let told = if answered { Told::Well } else { Told::cut_off(Stage::Wait, had) };
        changes.extend(ours.end(pass, told, 0, now));
    }
    assert_eq!(changes, []);
    assert!(naive_open > 300, "the naive one refused {naive_open} of 1000, half of them with time enough");
    // The same callers, and a destination that has become slow for everybody: those with time say so.
    for n in 1_000..2_000 {
        let now = at(n * 10);
        let granted = if n % 2 == 0 { ms(30) } else { ms(200) };
        let had = Had { granted, taken: granted, limit: Some(ms(300)), usual: usual.get() };
        if let Asked::Pass(pass) = ours.ask(now) {
            changes.extend(ours.end(pass, Told::cut_off(Stage::Wait, had), 0, now));
        }
    }
    assert_eq!(changes.first(), Some(&Change::Opened));
}

#[test]
fn one_probe_at_a_time_and_three_in_a_row() {
    let breaker = opened(BreakerPolicy::default(), 0);
    assert!(is_open(&breaker, 30));
    assert!(!breaker.is_closed());
    let mut now = 1_100; // at most a second
    for n in 0..3 {
        let probe = pass(&breaker, now);
        assert!(probe.is_probe() && is_open(&breaker, now) && is_open(&breaker, now + 100));
        now += 200;
        assert_eq!(breaker.end(probe, Told::Well, 0, at(now)), (n == 2).then_some(Change::Closed));
    }
    assert!(breaker.is_closed() && !pass(&breaker, now).is_probe());
    assert_eq!(calls(&breaker, now, [Told::Failed; 19]), [], "what failed before is of no account");
}

#[test]
fn a_probe_that_fails_opens_it_for_longer() {
    let policy = BreakerPolicy::new().open(ms(1_000), ms(5_000)).build().unwrap();
    let breaker = opened(policy, 0);
    let mut now = 1_100;
    for longest in [2_000, 4_000, 5_000, 5_000] {
        let probe = pass(&breaker, now);
        assert_eq!(breaker.end(probe, Told::TimedOut, u64::MAX, at(now)), Some(Change::Opened));
        assert!(is_open(&breaker, now + longest - 10));
        now += longest + 10;
    }
    // It closes, and fails at once: that is no first time.
    assert_eq!(calls(&breaker, now, [Told::Well; 3]), [Change::Closed]);
    now += 10;
    assert_eq!(calls(&breaker, now, [Told::Broken; 20]), [Change::Opened]);
    assert!(is_open(&breaker, now + 2_400), "half of five seconds at least");
}

#[test]
fn a_probe_that_was_not_sent_makes_the_next_call_the_probe_and_one_cut_short_waits() {
    let breaker = Breaker::new(BreakerPolicy::default());
    assert_eq!(calls(&breaker, 0, [Told::Failed; 20]), [Change::Opened]);
    for told in [Told::NotSent, Told::CutShort] {
        let probe = pass(&breaker, 1_100);
        assert_eq!(breaker.end(probe, told, 0, at(1_100)), None);
        assert!(!breaker.is_closed());
    }
    assert!(is_open(&breaker, 1_590), "hurried probes do not follow each other at once");
    assert_eq!(calls(&breaker, 1_600, [Told::Shed; 3]), [Change::Closed], "who refuses is there");
}

#[test]
fn hurried_callers_count_until_anybody_was_answered() {
    let breaker = Breaker::new(BreakerPolicy::default());
    assert_eq!(calls(&breaker, 0, [Told::CutShort; 20]), [Change::Opened]);
    let mut now = 1_100;
    for longest in [2_000, 4_000] {
        assert_eq!(breaker.end(pass(&breaker, now), Told::CutShort, u64::MAX, at(now)), Some(Change::Opened));
        assert!(is_open(&breaker, now + longest - 10), "for longer each time");
        now += longest + 10;
    }
    for answer in [Told::Well, Told::Failed, Told::Shed] {
        let breaker = Breaker::new(BreakerPolicy::default());
        assert_eq!(calls(&breaker, 0, [answer]), []);
        assert_eq!(calls(&breaker, 1, [Told::CutShort; 1_000]), [], "{answer:?}: somebody was answered");
    }
    let unanswered = Breaker::new(BreakerPolicy::default());
    assert_eq!(calls(&unanswered, 0, [Told::NotSent; 1_000]), [], "nothing was asked of it");
}

#[test]
fn beside_a_probe_of_which_nothing_is_heard_the_next_one_is_made() {
    let breaker = opened(BreakerPolicy::default(), 0);
    let silent = pass(&breaker, 1_100);
    assert!(is_open(&breaker, 2_000));
    let next = pass(&breaker, 2_200);
    assert_eq!(breaker.end(silent, Told::Well, 0, at(2_300)), None, "the first of three");
    assert!(is_open(&breaker, 2_300), "another one is under way");
    assert_eq!(breaker.end(next, Told::Well, 0, at(2_400)), None, "the second");
    assert_eq!(breaker.end(pass(&breaker, 2_400), Told::Well, 0, at(2_500)), Some(Change::Closed));
}

#[test]
fn probes_of_an_earlier_opening_change_nothing() {
    let breaker = opened(BreakerPolicy::default(), 0);
    let [silent, also, failed] = [1_100, 2_200, 3_300].map(|now| pass(&breaker, now));
    assert_eq!(breaker.end(failed, Told::Broken, 0, at(3_400)), Some(Change::Opened));
    assert_eq!(breaker.end(silent, Told::Broken, u64::MAX, at(3_500)), None, "opened once for all of them");
    let next = pass(&breaker, 4_400);
    assert_eq!(breaker.end(also, Told::Well, 0, at(4_500)), None);
    assert!(is_open(&breaker, 4_500));
    assert_eq!(breaker.end(next, Told::Well, 0, at(4_500)), None);
    assert_eq!(calls(&breaker, 4_500, [Told::Well; 2]), [Change::Closed], "two more, so that one did not count");
}

/// One call every tenth of a second, each of which is over after `lasts`. When it closed, and how many it let through.
fn probed_by_calls_of(lasts: u64, told: Told) -> (Option<u64>, usize) {
    let breaker = opened(BreakerPolicy::default(), 0);
    let (mut under_way, mut made) = (Vec::new(), 0);
    for now in (1_100..121_100).step_by(100) {
        for (_, probe) in under_way.extract_if(.., |(over, _)| *over <= now) {
            if breaker.end(probe, told, u64::MAX, at(now)) == Some(Change::Closed) {
                return (Some(now), made);
            }
        }
        if let Asked::Pass(probe) = breaker.ask(at(now)) {
            made += 1;
            under_way.push((now + lasts, probe));
        }
    }
    (None, made)
}

/// A breaker that forgets a probe after its open time never closes for answers that take longer, and lets a probe through each
/// second, for ever, to a far side that is silent for longer than that.
#[test]
fn answers_that_take_longer_than_it_opens_at_first_count() {
    for lasts in [900, 1_500, 5_000] {
        let (closed_at, _) = probed_by_calls_of(lasts, Told::Well);
        assert!(closed_at.is_some_and(|at| at <= 1_100 + 3 * (lasts + 100)), "{lasts} ms: {closed_at:?}");
    }
    let (closed_at, made) = probed_by_calls_of(10_000, Told::TimedOut);
    assert!(closed_at.is_none() && made < 40, "{made} in two minutes");
}

#[test]
fn what_began_before_it_opened_changes_nothing() {
    let breaker = Breaker::new(BreakerPolicy::default());
    let early: Vec<_> = (0..100).map(|_| pass(&breaker, 0)).collect();
    assert_eq!(calls(&breaker, 0, [Told::Broken; 20]), [Change::Opened]);
    let mut early = early.into_iter();
    early.by_ref().take(50).for_each(|call| assert_eq!(breaker.end(call, Told::Well, 0, at(100)), None));
    assert!(is_open(&breaker, 101));
    assert_eq!(calls(&breaker, 1_100, [Told::Well; 3]), [Change::Closed]);
    early.for_each(|call| assert_eq!(breaker.end(call, Told::Broken, 0, at(1_200)), None));
}

#[test]
fn messages() {
    let refuses = |builder: BreakerPolicyBuilder| builder.build().unwrap_err().to_string();
    assert_eq!(
        refuses(BreakerPolicy::new().share(0.0)),
        "share = 0: write 0.01 to 1, the share of calls that failed; 0.2 unless said otherwise"
    );
    assert_eq!(
        refuses(BreakerPolicy::new().open(ms(100), ms(50))),
        "open = 100ms to 50ms: write at least 10ms, the shorter one first, and at most an hour"
    );
    assert_eq!(
        refuses(BreakerPolicy::new().probes(0)),
        "probes = 0: write 1 to 15, how many have to go well before it closes; 3 unless said otherwise"
    );
    assert!(refuses(BreakerPolicy::new().least(1)).starts_with("least = 1: "));
    assert!(refuses(BreakerPolicy::new().window(ms(10))).starts_with("window = 10ms: "));
    assert_eq!(Asked::Open { again_in: ms(400) }.to_string(), "open, next probe in 400ms");
}

const TOLD: [Told; 7] =
    [Told::Well, Told::Failed, Told::Shed, Told::Broken, Told::TimedOut, Told::CutShort, Told::NotSent];

proptest! {
    #[test]
    fn a_word_is_its_state(at in 0..1_u64 << 40, turn in 0..1_u64 << 13, again in 0..16_u8, probed in 0..16_u8, has_opened: bool) {
        for phase in [Phase::Closed, Phase::Open, Phase::Probing] {
            let state = State { phase, at, turn, again, probed, has_opened };
            prop_assert_eq!(State::of(state.word()), state);
        }
    }

    /// Any order of calls, ends and silences: it opens only on a failure, says for how long and keeps to it, has one probe at
    /// a time, and whoever waits for its longest time is let through.
    #[test]
    fn any_order_of_events(events in prop::collection::vec((0..400_u64, 0..3_000_u64, 0..7_usize, any::<u64>(), any::<bool>()), 0..300)) {
        let policy = BreakerPolicy::new().least(5).open(ms(500), ms(4_000)).build().unwrap();
        let breaker = Breaker::new(policy);
        let (mut now, mut under_way, mut probe_until, mut answered) = (0, Vec::new(), None::<u64>, false);
        for (gap, lasts, told, random, heard) in events {
            now += gap;
            under_way.sort_by_key(|(over, _, _): &(u64, Pass, Told)| *over);
            while under_way.first().is_some_and(|(over, _, _)| *over <= now) {
                let (over, call, told) = under_way.remove(0);
                let (was_closed, probe) = (breaker.is_closed(), call.is_probe());
                answered |= matches!(told, Told::Well | Told::Failed | Told::Shed);
                let failed = told.failed() == Some(true) || told == Told::CutShort && !answered;
                let change = breaker.end(call, told, random, at(over.max(now)));
                match change {
                    Some(Change::Opened) => prop_assert!(failed && (was_closed || probe)),
                    Some(Change::Closed) => prop_assert!(probe && matches!(told, Told::Well | Told::Shed)),
                    Some(Change::HalfOpen) => prop_assert!(false, "no end does that"),
                    None => {}
                }
                if probe {
                    probe_until = None;
                }
            }
            match breaker.ask(at(now)) {
                Asked::Pass(call) => {
                    if call.is_probe() {
                        prop_assert!(probe_until.is_none_or(|until| until <= now), "two probes");
                        probe_until = Some(now + 499); // no turn is shorter
                    }
                    if heard {
                        under_way.push((now + lasts, call, TOLD[told]));
                    }
                }
                Asked::Open { again_in } => {
                    prop_assert!(!breaker.is_closed() && again_in <= ms(4_000) && !again_in.is_zero());
                }
            }
        }
        prop_assert!(matches!(breaker.ask(at(now + 4_001)), Asked::Pass(_)));
    }
}
