//! The throttle against a far side that is simulated call by call, and against the ways in which the plain formula goes wrong.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Stage;
use crate::effect::Seen;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Tick {
    Tick::default() + ms(n)
}

fn throttle() -> Throttle {
    Throttle::new(ThrottlePolicy::default())
}

/// Random bits that are the same in each run.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// `per_second` calls from `from` to `to` (both in seconds) to a far side that accepts at most `capacity` of them in each
/// second. Returns how many were sent, and how many of those were accepted.
fn load(throttle: &Throttle, bits: &mut Bits, from: u64, to: u64, per_second: u64, capacity: u64) -> (u64, u64) {
    let (mut sent, mut accepted) = (0, 0);
    for second in from..to {
        let mut in_this_second = 0;
        for n in 0..per_second {
            let Ok(call) = throttle.ask(bits.next(), at(second * 1_000 + n * 1_000 / per_second)) else { continue };
            sent += 1;
            let accepts = in_this_second < capacity;
            in_this_second += u64::from(accepts);
            accepted += u64::from(accepts);
            throttle.end(call, if accepts { Told::Well } else { Told::Shed });
        }
    }
    (sent, accepted)
}

/// A far side that begins a call every so often, has a short queue, answers after a while and refuses at once.
struct FarSide {
    throttle: Throttle,
    bits: Bits,
    every_ms: f64,
    answers_after: u64,
    free_at: f64,
    under_way: Vec<(u64, Sent)>,
}

/// What became of some load.
#[derive(Debug, Default)]
struct Came {
    held_back: u32,
    sent: u32,
    accepted: u32,
}

impl FarSide {
    fn new(per_second: f64, answers_after: u64) -> Self {
        let (throttle, bits, under_way) = (throttle(), Bits(7), Vec::new());
        Self { throttle, bits, every_ms: 1_000.0 / per_second, answers_after, free_at: 0.0, under_way }
    }

    /// `times` what it can do, from one millisecond to another.
    fn under(&mut self, times: f64, from: u64, to: u64) -> Came {
        let (mut came, mut next) = (Came::default(), from as f64);
        for now in from..to {
            let throttle = &self.throttle;
            self.under_way
                .extract_if(.., |(over, _)| *over <= now)
                .for_each(|(_, call)| throttle.end(call, Told::Well));
            while next < (now + 1) as f64 {
                next += self.every_ms / times;
                let Ok(call) = self.throttle.ask(self.bits.next(), at(now)) else {
                    came.held_back += 1;
                    continue;
                };
                came.sent += 1;
                if self.free_at < (now + 20) as f64 {
                    self.free_at = self.free_at.max(now as f64) + self.every_ms;
                    came.accepted += 1;
                    self.under_way.push((now + self.answers_after, call));
                } else {
                    self.throttle.end(call, Told::Shed);
                }
            }
        }
        came
    }
}

/// At 0.7, then at three times what it can do, then at 0.7 again; a far side that answers slowly is known to accept again after
/// as much more.
#[test]
fn a_second_after_a_spike_nothing_is_held_back_any_more() {
    for (per_second, answers_after) in [(400.0, 20), (400.0, 400), (400.0, 2_500), (40.0, 50)] {
        let mut far_side = FarSide::new(per_second, answers_after);
        let before = far_side.under(0.7, 0, 5_000);
        assert_eq!(before.held_back, 0, "before");
        let spike = far_side.under(3.0, 5_000, 13_000);
        assert!(f64::from(spike.accepted) > 0.9 * 8.0 * per_second, "{spike:?}: it has what it can do");
        let seen_by = 13_000 + answers_after;
        far_side.under(0.7, 13_000, seen_by + 1_000);
        let after = far_side.under(0.7, seen_by + 1_000, 30_000);
        assert_eq!(after.held_back, 0, "{per_second} a second, each after {answers_after} ms: {after:?}");
    }
}

#[test]
fn ten_times_the_load_is_held_at_twice_however_long_answers_take() {
    for (per_second, answers_after) in [(400.0, 20), (400.0, 400), (400.0, 2_500), (40.0, 50)] {
        let mut far_side = FarSide::new(per_second, answers_after);
        far_side.under(0.7, 0, 5_000);
        far_side.under(10.0, 5_000, 35_000);
        let held = far_side.under(10.0, 35_000, 65_000);
        let multiple = f64::from(held.sent) / f64::from(held.accepted);
        assert!(
            (1.8..2.5).contains(&multiple),
            "{per_second} a second, each after {answers_after} ms: {multiple}, {held:?}"
        );
        let by = 65_000 + 4 * (answers_after + 1_000); // a fifth is doubled three times
        far_side.under(0.7, 65_000, by);
        let again = far_side.under(0.7, by, by + 20_000);
        assert_eq!(again.held_back, 0, "{per_second} a second, each after {answers_after} ms: {again:?}");
    }
}

/// Refusals come at once, answers after a while: a third of a burst is refused before anything of it is answered.
#[test]
fn a_third_of_a_burst_refused_holds_nothing_back() {
    let (throttle, mut bits) = (throttle(), Bits(7));
    let mut under_way = Vec::new();
    for n in 0..300 {
        let call = throttle.ask(bits.next(), at(1_000 + n / 10)).expect("it accepts two thirds");
        if n % 3 == 0 { throttle.end(call, Told::Shed) } else { under_way.push(call) }
    }
    assert!(throttle.probability(at(1_030)) <= 0.0);
    under_way.into_iter().for_each(|call| throttle.end(call, Told::Well));
    assert!(throttle.probability(at(1_500)) <= 0.0);
}

/// A far side that answers a tenth at once and is silent to the others until they time out a second later: what is known of the
/// last second is what went well.
#[test]
fn one_that_is_silent_to_most_is_throttled_all_the_same() {
    let (throttle, mut bits) = (throttle(), Bits(7));
    let (mut silent_to, mut sent) = (std::collections::VecDeque::new(), 0);
    for n in 0..90_000 {
        while let Some((_, call)) = silent_to.pop_front_if(|(over, _)| *over <= n) {
            throttle.end(call, Told::TimedOut);
        }
        let Ok(call) = throttle.ask(bits.next(), at(n)) else { continue };
        sent += u32::from(n >= 60_000);
        if n % 10 == 0 { throttle.end(call, Told::Well) } else { silent_to.push_back((n + 1_000, call)) }
    }
    assert!(sent < 9_000, "{sent} of 30000");
}

#[test]
fn ten_times_the_load_comes_to_twice_what_is_accepted() {
    let (throttle, mut bits) = (throttle(), Bits(7));
    load(&throttle, &mut bits, 0, 120, 1_000, 100);
    let (sent, accepted) = load(&throttle, &mut bits, 120, 180, 1_000, 100);
    assert_eq!(accepted, 60 * 100, "the far side has all that it can do");
    // A little more than twice, since it takes them all in the first part of each second.
    assert!((190..=250).contains(&(sent / 60)), "{} of 1000 a second reach it", sent / 60);
}

#[test]
fn it_does_nothing_while_all_is_accepted() {
    let (throttle, mut bits) = (throttle(), Bits(7));
    assert_eq!(load(&throttle, &mut bits, 0, 90, 1_000, 1_000), (90_000, 90_000));
    // A few sheds do not change that: up to half may be refused.
    assert_eq!(load(&throttle, &mut bits, 90, 180, 1_000, 600).0, 90_000);
    assert!(!throttle.is_well(at(180_000)), "but nobody hedges then");
    assert!(throttle.is_well(at(200_000)));
}

#[test]
fn once_all_is_accepted_again_it_takes_seconds_and_not_a_window() {
    let (throttle, mut bits) = (throttle(), Bits(7));
    load(&throttle, &mut bits, 0, 120, 1_000, 100);
    let (sent, _) = load(&throttle, &mut bits, 135, 136, 70, 1_000); // by the window alone it would be 14
    assert!(sent >= 14, "{sent}");
    load(&throttle, &mut bits, 120, 135, 70, 1_000);
    let (sent, _) = load(&throttle, &mut bits, 135, 140, 70, 1_000);
    assert_eq!(sent, 5 * 70);
}

#[test]
fn a_silent_far_side_is_throttled_and_found_again() {
    let (throttle, mut bits) = (throttle(), Bits(7));
    load(&throttle, &mut bits, 0, 60, 1_000, 1_000);
    load(&throttle, &mut bits, 60, 180, 1_000, 0);
    let (sent, _) = load(&throttle, &mut bits, 180, 190, 1_000, 0);
    assert!((400..=700).contains(&sent), "one in twenty: {sent} of 10000");
    load(&throttle, &mut bits, 190, 215, 1_000, 1_000);
    assert_eq!(load(&throttle, &mut bits, 215, 220, 1_000, 1_000).0, 5_000);
}

#[test]
fn few_calls_are_let_through_once_a_second() {
    let (throttle, mut bits) = (throttle(), Bits(7));
    assert_eq!(load(&throttle, &mut bits, 0, 120, 1, 0).0, 120);
}

#[test]
fn many_at_once_are_no_evidence_against_each_other() {
    let (throttle, mut bits) = (throttle(), Bits(7));
    let sent: Vec<_> = (0..100).filter_map(|_| throttle.ask(bits.next(), at(5)).ok()).collect();
    assert_eq!(sent.len(), 100, "the plain formula lets about five of these through");
    assert_eq!(naive(100, 0).round(), 1.0);
    for call in sent {
        throttle.end(call, Told::Well);
    }
    assert!(throttle.probability(at(5)) < f64::EPSILON);
}

#[test]
fn calls_that_hang_are_evidence_before_they_end() {
    let (throttle, mut bits) = (throttle(), Bits(7));
    let mut hanging: Vec<_> = (0..100).filter_map(|_| throttle.ask(bits.next(), at(0)).ok()).collect();
    assert!(throttle.probability(at(14_000)) < f64::EPSILON);
    assert!(throttle.probability(at(16_000)) > 0.9, "a quarter of the window later");
    hanging.drain(..).for_each(|call| throttle.end(call, Told::Well));
    assert!(throttle.probability(at(16_000)) < f64::EPSILON, "slow, but it answers");
}

/// What was cut off by callers in a hurry: counted, it throttles a far side that is well; never counted, one that answers
/// nobody is not throttled at all.
/// One of ours that is not trusted says 504 with a reason that nobody believes: a breaker that took it for a failure would open for
/// the haste of its callers.
#[test]
fn that_it_was_out_of_time_counts_only_if_it_had_enough() {
    let had = |granted| Had { granted: ms(granted), taken: ms(5), usual: Some(ms(50)), ..Had::default() };
    for seen in [Seen::Answer { status: 504, reason: None }, Seen::GrpcAnswer { status: 4, reason: None }] {
        assert_eq!(Told::by(seen, had(30)), Told::CutShort, "{seen:?}");
        assert_eq!(Told::by(seen, had(50)), Told::TimedOut, "{seen:?}");
        assert_eq!(Told::by(seen, Had { usual: None, ..had(300) }), Told::CutShort, "{seen:?}: nothing is known");
    }
    assert_eq!(Told::by(Seen::Answer { status: 502, reason: None }, had(30)), Told::Failed);
}

#[test]
fn hurried_callers_count_only_where_nobody_is_answered() {
    let hurried = Had { taken: ms(5), granted: ms(5), limit: Some(ms(300)), usual: Some(ms(20)) };
    assert_eq!(Told::cut_off(Stage::Wait, hurried), Told::CutShort);
    let run = |answers: bool| {
        let (throttle, mut bits) = (throttle(), Bits(7));
        let (mut sent, mut refused) = (0, 0);
        for n in 0..1_000 {
            let Ok(call) = throttle.ask(bits.next(), at(n * 10)) else {
                refused += 1;
                continue;
            };
            sent += 1;
            let patient = n % 10 == 0;
            throttle.end(call, if answers && patient { Told::Well } else { Told::CutShort });
        }
        (sent, refused)
    };
    assert_eq!(run(true), (1_000, 0), "nine of ten callers are in a hurry, and it is well");
    let (sent, refused) = run(false);
    assert!(sent < 150 && refused > 850, "it answers nobody: {sent} sent");
    assert!(naive(1_000, 100) > 0.7, "counted as not accepted, the first would be throttled");
    assert!(naive(0, 0) <= 0.0, "counted as neither, the second would not");
}

/// Behind a proxy a handful of strangers who leave at once must not have everybody else's calls held back.
#[test]
fn strangers_in_a_hurry_never_count() {
    let after_them = |policy: ThrottlePolicy| {
        let throttle = Throttle::new(policy);
        (0..100).for_each(|n| throttle.end(throttle.sent(at(n)), Told::CutShort));
        throttle.probability(at(200))
    };
    assert!(after_them(ThrottlePolicy::default()) > 0.9, "without it they do");
    assert!(after_them(ThrottlePolicy::default().for_strangers()) <= 0.0);
}

/// The formula as it stands in the book.
fn naive(requests: u32, accepts: u32) -> f64 {
    (f64::from(requests) - 2.0 * f64::from(accepts)).max(0.0) / (f64::from(requests) + 1.0)
}

#[test]
fn what_had_begun_and_was_refused_is_refused() {
    let throttle = throttle();
    for n in 0..20 {
        let call = throttle.sent(at(n));
        throttle.begins(&call);
        throttle.turned_out(call, Told::Shed);
    }
    assert!(throttle.probability(at(20)) > 0.9 && !throttle.is_well(at(20)));
}

#[test]
fn messages() {
    assert_eq!(
        Throttled { percent: 80 }.to_string(),
        "80 of 100 calls to it are held back, since it refuses or does not answer"
    );
    let refused = ThrottlePolicy::new().window(ms(5)).build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "window = 5ms: write at least 1s, and no less than the longest deadline of a call (60s unless said otherwise)"
    );
    assert!(ThrottlePolicy::new().multiple(f64::NAN).build().is_err());
}

const TOLD: [Told; 7] =
    [Told::Well, Told::Failed, Told::Shed, Told::Broken, Told::TimedOut, Told::CutShort, Told::NotSent];

proptest! {
    /// Whatever is sent, in whatever order it ends, however late: no more than 95 of 100 are refused, none while all are
    /// accepted, and nothing is left of it a window later.
    #[test]
    fn any_order_of_calls(calls in prop::collection::vec((0..40_000_u64, 0..90_000_u64, 0..7_usize, any::<u64>()), 0..200), all_well: bool) {
        let throttle = throttle();
        let (mut sent, mut now, mut under_way) = (0_u32, 0, Vec::new());
        for (gap, lasts, told, random) in calls {
            now += gap / 100;
            under_way.retain_mut(|(over, call, told): &mut (u64, Option<Sent>, Told)| {
                if *over <= now && let Some(call) = call.take() {
                    throttle.end(call, *told);
                }
                call.is_some()
            });
            let probability = throttle.probability(at(now));
            prop_assert!((0.0..=0.95).contains(&probability));
            let lasts = if all_well { lasts / 10 } else { lasts };
            match throttle.ask(random, at(now)) {
                Ok(call) => {
                    sent += 1;
                    under_way.push((now + lasts, Some(call), if all_well { Told::Well } else { TOLD[told] }));
                }
                Err(_) => prop_assert!(!all_well && probability > 0.0 && sent >= 1),
            }
        }
        prop_assert!(throttle.probability(at(now + 64_000)) <= 0.0);
    }
}
