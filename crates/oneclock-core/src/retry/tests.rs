//! The plan against every order of events, and each rule with its line.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::ending::Cause;
use crate::{Ask, BoundBy, Budget, Effect, Outcome, Reason, Stage, Tick};

const UNKNOWN: Outcome = Outcome::Unknown { stage: Stage::Wait };

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn at(n: u64) -> Tick {
    Tick::default() + ms(n)
}

fn budget(n: u64) -> Budget {
    Budget::begin(BoundBy::Caller, ms(n), at(0))
}

fn policy(attempts: u32, per_try: Option<u64>, first: u64, longest: u64) -> RetryPolicy {
    let builder = RetryPolicy::new().attempts(attempts).backoff(ms(first), ms(longest));
    per_try.map_or(builder.clone(), |limit| builder.per_try(ms(limit))).build().unwrap()
}

fn no_wait() -> RetryPolicy {
    policy(3, None, 0, 0)
}

/// What a plan says after one attempt of a read under 1 s that came out like this after 100 ms.
fn after_one(policy: &RetryPolicy, tried: Tried) -> Step {
    plan_of(policy, &Effect::ReadOnly).tried(tried, &Tokens::new(), u64::MAX, at(100))
}

fn plan_of<'p>(policy: &'p RetryPolicy, effect: &'p Effect) -> RetryPlan<'p> {
    RetryPlan::begin(policy, effect, Ask::new(), budget(1_000), at(0)).unwrap().0
}

#[track_caller]
fn stops(step: Step, word: &str) {
    assert!(matches!(step, Step::Stop(stop) if stop.as_str() == word), "want {word}: {step:?}");
}

#[track_caller]
fn goes_on(step: Step) {
    assert!(matches!(step, Step::Attempt(_) | Step::Wait { .. }), "{step:?}");
}

#[test]
fn v1_attempts_share_one_budget() {
    let policy = policy(3, Some(100), 0, 0);
    let tokens = Tokens::new();
    let (mut plan, first) = RetryPlan::begin(&policy, &Effect::ReadOnly, Ask::new(), budget(250), at(0)).unwrap();
    let mut limits = vec![first.budget.deadline.remaining(at(0))];
    for now in [100, 200] {
        let Step::Attempt(next) = plan.tried(Tried::new(UNKNOWN), &tokens, 7, at(now)) else { panic!("at {now}") };
        limits.push(next.budget.deadline.remaining(at(now)));
    }
    assert_eq!(limits, [ms(100), ms(100), ms(50)]);
}

#[test]
fn v7_a_backoff_that_does_not_fit_is_not_begun() {
    let policy = policy(3, None, 500, 500);
    let mut plan = plan_of(&policy, &Effect::ReadOnly);
    let step = plan.tried(Tried::new(UNKNOWN), &Tokens::new(), u64::MAX, at(700));
    stops(step, "deadline");
    let Step::Stop(why) = step else { panic!() };
    assert_eq!(
        why.to_string(),
        "300ms left, the wait before the next attempt is 500ms and 5ms is the least that is useful after it"
    );
    assert!(why.is_for_time());
}

#[test]
fn r1_the_least_that_is_useful_has_to_be_left_after_the_wait() {
    let policy = policy(3, None, 100, 100);
    for (now, fits) in [(894, true), (895, true), (896, false)] {
        let step = plan_of(&policy, &Effect::ReadOnly).tried(Tried::new(UNKNOWN), &Tokens::new(), u64::MAX, at(now));
        assert_eq!(matches!(step, Step::Wait { .. }), fits, "{now}: {step:?}");
    }
}

#[test]
fn r1_a_reserve_is_kept_from_attempts_and_waits() {
    let (policy, reads) = (no_wait(), Effect::ReadOnly);
    let ask = Ask::new().reserve(ms(300));
    let (mut plan, first) = RetryPlan::begin(&policy, &reads, ask, budget(1_000), at(0)).unwrap();
    assert_eq!(first.budget.deadline.remaining(at(0)), ms(700));
    // A callee's 504 inside the reserve ends the grant, and is not tried again (contract R8).
    let gateway_timeout = Tried::new(UNKNOWN).status(Status::Http(504));
    stops(plan.tried(gateway_timeout, &Tokens::new(), 0, at(800)), "deadline");
}

#[test]
fn r1_a_timer_that_fires_late_leaves_no_attempt_without_time() {
    let policy = policy(3, None, 500, 500);
    let mut plan = plan_of(&policy, &Effect::ReadOnly);
    goes_on(plan.tried(Tried::new(UNKNOWN), &Tokens::new(), u64::MAX, at(100)));
    stops(plan.waited(at(996)), "deadline");
}

#[test]
fn r2_a_pushback_that_fits_is_obeyed_and_one_that_does_not_stops() {
    let policy = policy(3, None, 50, 50);
    for (asked, random, want) in [(200, 0, 300), (200, u64::MAX, 350), (895, u64::MAX, 995), (0, 0, 100)] {
        let tried = Tried::new(Outcome::Rejected).status(Status::Http(429)).pushback(Pushback::After(ms(asked)));
        let step = plan_of(&policy, &Effect::Once).tried(tried, &Tokens::new(), random, at(100));
        match step {
            Step::Wait { until } => assert_eq!(until, at(want), "{asked}"),
            Step::Attempt(_) => assert_eq!(want, 100, "{asked}"),
            Step::Stop(stop) => panic!("{asked}: {stop}"),
        }
    }
    let tried = Tried::new(Outcome::Rejected).pushback(Pushback::After(ms(896)));
    stops(after_one(&policy, tried), "pushed_back");
    stops(after_one(&policy, Tried::new(Outcome::Rejected).pushback(Pushback::Never)), "told_not_to");
    stops(after_one(&policy, Tried::new(Outcome::NotSent).held_back(true)), "held_back");
}

#[test]
fn r5_the_deadline_itself_is_never_retried() {
    let policy = no_wait();
    for now in [1_000, 5_000] {
        stops(plan_of(&policy, &Effect::ReadOnly).tried(Tried::new(UNKNOWN), &Tokens::new(), 0, at(now)), "deadline");
    }
}

#[test]
fn r6_what_cannot_be_sent_again_is_not() {
    stops(after_one(&no_wait(), Tried::new(UNKNOWN).replayable(false)), "not_replayable");
}

#[test]
fn r7_i10_effect_and_outcome_decide_first() {
    let policy = no_wait();
    let keyed = Effect::Keyed("tap-7".into());
    let enforcing = no_wait().enforcing_keys();
    let say = |policy, effect, outcome| plan_of(policy, effect).tried(Tried::new(outcome), &Tokens::new(), 0, at(1));
    stops(say(&policy, &Effect::Once, UNKNOWN), "effect");
    stops(say(&policy, &keyed, UNKNOWN), "effect");
    goes_on(say(&enforcing, &keyed, UNKNOWN));
    goes_on(say(&policy, &Effect::Idempotent, UNKNOWN));
    for effect in [&Effect::Once, &keyed, &Effect::ReadOnly] {
        goes_on(say(&policy, effect, Outcome::NotSent));
        goes_on(say(&policy, effect, Outcome::Rejected));
        stops(say(&policy, effect, Outcome::Failed), "effect");
        stops(say(&policy, effect, Outcome::Applied), "done");
    }
}

#[test]
fn the_policy_says_which_statuses_are_worth_it() {
    let policy = no_wait();
    for (status, want) in [(503, true), (500, false), (505, false), (429, true)] {
        let step = after_one(&policy, Tried::new(UNKNOWN).status(Status::Http(status)));
        assert_eq!(matches!(step, Step::Attempt(_)), want, "{status}: {step:?}");
    }
    goes_on(after_one(&policy, Tried::new(UNKNOWN).status(Status::Grpc(14))));
    stops(after_one(&policy, Tried::new(UNKNOWN).status(Status::Grpc(13))), "status");
}

#[test]
fn section_5_reasons_of_ours() {
    let said =
        |reason: Reason, outcome| Tried::new(outcome).status(Status::Http(reason.http_status())).reason(Some(reason));
    let policy = no_wait();
    goes_on(after_one(&policy, said(Reason::Shed, Outcome::Rejected)));
    goes_on(after_one(&policy, said(Reason::Shutdown, Outcome::Rejected)));
    goes_on(after_one(&policy, said(Reason::Cap, UNKNOWN)));
    stops(after_one(&policy, said(Reason::Deadline, UNKNOWN)), "reason");
    // Safe with a new budget, and there is none: all that is left was too little already.
    stops(after_one(&policy, said(Reason::InsufficientBudget, Outcome::Rejected)), "no_more_than_before");
}

#[test]
fn section_5_a_limit_per_attempt_is_a_new_budget_each_time() {
    let policy = policy(3, Some(100), 0, 0);
    let refused = Tried::new(Outcome::Rejected).reason(Some(Reason::InsufficientBudget));
    goes_on(after_one(&policy, refused));
    // The far side's timer was a little faster than ours: what it saw is the limit of this attempt (contract R4).
    let out_of_time = Tried::new(UNKNOWN).status(Status::Http(504)).reason(Some(Reason::Deadline));
    let tried = |now| plan_of(&policy, &Effect::ReadOnly).tried(out_of_time, &Tokens::new(), 0, at(now));
    goes_on(tried(98));
    goes_on(tried(90)); // it kept something back for its answer
    stops(tried(40), "reason");
}

#[test]
fn r9_hops_do_not_multiply() {
    let policy = no_wait();
    stops(after_one(&policy, Tried::new(UNKNOWN).status(Status::Http(502)).below(Some(3))), "hop_below");
    let mut serving_a_retry = plan_of(&policy, &Effect::ReadOnly).serving_attempt(2);
    stops(serving_a_retry.tried(Tried::new(Outcome::NotSent), &Tokens::new(), 0, at(1)), "hop_above");
    assert!(Stop::AllMade { attempts: 3 }.tells_callers_not_to(3));
    assert!(Stop::HopBelow { attempts: 3 }.tells_callers_not_to(1));
    assert!(Stop::HeldBack.tells_callers_not_to(1), "the same would be held back again");
    assert!(!Stop::AllMade { attempts: 1 }.tells_callers_not_to(1), "nothing was tried again: callers may");
}

#[test]
fn r9_without_a_token_there_is_no_retry_and_none_is_taken_for_nothing() {
    let (policy, tokens) = (no_wait(), Tokens::new());
    stops(plan_of(&policy, &Effect::Once).tried(Tried::new(UNKNOWN), &tokens, 0, at(1)), "effect");
    assert_eq!(tokens.tenths(), 100);
    for _ in 0..11 {
        goes_on(plan_of(&policy, &Effect::ReadOnly).tried(Tried::new(UNKNOWN), &tokens, 0, at(1)));
    }
    stops(plan_of(&policy, &Effect::ReadOnly).tried(Tried::new(UNKNOWN), &tokens, 0, at(1)), "no_tokens");
    stops(plan_of(&policy, &Effect::ReadOnly).tried(Tried::new(UNKNOWN), &tokens, 0, at(900)), "no_tokens");
    let (mut later, _) = RetryPlan::begin(&policy, &Effect::ReadOnly, Ask::new(), budget(5_000), at(0)).unwrap();
    goes_on(later.tried(Tried::new(UNKNOWN), &tokens, 0, at(1_001))); // the reserve of the next second
}

#[test]
fn r9_the_switch_is_asked_each_time() {
    stops(after_one(&no_wait(), Tried::new(UNKNOWN).switched_on(false)), "switched_off");
}

#[test]
fn policies_that_contradict_themselves_are_refused() {
    let says = |builder: RetryPolicyBuilder| builder.build().unwrap_err().to_string();
    assert_eq!(
        says(RetryPolicy::new().attempts(0)),
        "attempts = 0: write 1 (no retry) to 10; the first attempt is counted"
    );
    assert_eq!(
        says(RetryPolicy::new().per_try(ms(0))),
        "per_try = 0 would end every attempt before it begins; write a duration, or leave it out for all that is left"
    );
    assert_eq!(
        says(RetryPolicy::new().backoff(ms(2), ms(1))),
        "backoff: the longest wait of 1ms is below the first one of 2ms"
    );
    assert_eq!(
        says(RetryPolicy::new().statuses([200])),
        "status 200 is no failure that another attempt could change; write statuses from 408 to 599"
    );
}

#[test]
fn every_stop_has_its_own_word_and_sentence() {
    let (remaining, wait, min_useful) = (ms(40), ms(50), ms(5));
    let every = [
        Stop::Done,
        Stop::Effect { outcome: UNKNOWN },
        Stop::Status { status: Status::Grpc(13) },
        Stop::Reason { reason: Reason::Deadline },
        Stop::NoMoreThanBefore { had: ms(9), gets: ms(8) },
        Stop::ToldNotTo,
        Stop::HeldBack,
        Stop::PushedBack { wait, remaining },
        Stop::HopBelow { attempts: 3 },
        Stop::HopAbove { attempt: 2 },
        Stop::SwitchedOff,
        Stop::AllMade { attempts: 3 },
        Stop::NotReplayable,
        Stop::OutOfTime { remaining, wait, min_useful },
        Stop::NoTokens,
        Stop::Ended { cause: Cause::CallerGone },
    ];
    let words: std::collections::BTreeSet<_> = every.iter().map(|stop| stop.as_str()).collect();
    let sentences: std::collections::BTreeSet<_> = every.iter().map(ToString::to_string).collect();
    assert_eq!((words.len(), sentences.len()), (every.len(), every.len()));
}

/// What one attempt does in a generated run: how long it takes at most, and what is known then.
fn attempts() -> impl Strategy<Value = Vec<(u64, u8, Option<u64>, u64)>> {
    prop::collection::vec((0_u64..400, 0_u8..5, prop::option::of(0_u64..600), any::<u64>()), 1..16)
}

proptest! {
    /// Whatever attempts do, however late timers fire: no attempt and no wait reaches beyond the whole, there are never more
    /// attempts than allowed, and what attempts were given and waits took adds up to no more than the budget.
    #[test]
    fn i09_r1_r3_nothing_reaches_beyond_the_budget(
        total in 6_u64..2_000, reserve in 0_u64..300, cap in prop::option::of(6_u64..1_500),
        most in 1_u32..=10, per_try in prop::option::of(5_u64..500), (first, more) in (0_u64..300, 0_u64..300),
        attempts in attempts(), late in 0_u64..40,
    ) {
        let policy = policy(most, per_try, first, first + more);
        let ask = cap.map_or(Ask::new(), |cap| Ask::new().cap(ms(cap))).reserve(ms(reserve));
        let (tokens, effect) = (Tokens::new(), Effect::Idempotent);
        let Ok((mut plan, mut attempt)) = RetryPlan::begin(&policy, &effect, ask, budget(total), at(0)) else {
            return Ok(());
        };
        let whole = plan.whole().deadline;
        prop_assert!(whole <= budget(total).deadline.less(ms(reserve)));
        let (mut now, mut spent, mut made) = (at(0), Duration::ZERO, 1);
        for (takes, outcome, pushback, random) in attempts {
            let limit = attempt.budget.deadline.remaining(now);
            prop_assert!(attempt.budget.deadline <= whole);
            prop_assert!(limit >= ms(5), "an attempt that is of no use: {limit:?}");
            prop_assert!(per_try.is_none_or(|per_try| limit <= ms(per_try)));
            let took = ms(takes).min(limit);
            (now, spent) = (now + took, spent + took);
            let outcome = match outcome {
                0 => Outcome::NotSent,
                1 => Outcome::Rejected,
                2 => Outcome::Failed,
                _ => UNKNOWN,
            };
            let pushback = pushback.map_or(Pushback::Unsaid, |asked| Pushback::After(ms(asked)));
            let mut step = plan.tried(Tried::new(outcome).pushback(pushback), &tokens, random, now);
            if let Step::Wait { until } = step {
                prop_assert!(until + ms(5) <= whole.tick(), "a wait with nothing after it");
                if let Pushback::After(asked) = pushback {
                    prop_assert!(until.since(now) >= asked);
                }
                spent += until.since(now);
                now = until + ms(late); // timers fire late
                step = plan.waited(now);
            }
            match step {
                Step::Attempt(next) => {
                    made += 1;
                    prop_assert_eq!(next.number, made);
                    prop_assert!(made <= most);
                    attempt = next;
                }
                Step::Wait { .. } => prop_assert!(false, "a wait after a wait"),
                Step::Stop(_) => break,
            }
        }
        prop_assert!(spent <= ms(total));
    }

    /// I10: whatever else is true, what must not be done twice is tried again only on proof that it was not done.
    #[test]
    fn i10_an_unsafe_call_is_repeated_only_on_proof(
        enforces in any::<bool>(), keyed in any::<bool>(), outcome in 0_u8..5, status in 400_u16..600, now in 0_u64..900,
    ) {
        let effect = if keyed { Effect::Keyed("tap-7".into()) } else { Effect::Once };
        let policy = if enforces { no_wait().enforcing_keys() } else { no_wait() };
        let outcome = [Outcome::NotSent, Outcome::Rejected, Outcome::Applied, Outcome::Failed, UNKNOWN][usize::from(outcome)];
        let step = plan_of(&policy, &effect).tried(
            Tried::new(outcome).status(Status::Http(status)), &Tokens::new(), 0, at(now));
        if matches!(step, Step::Attempt(_) | Step::Wait { .. }) {
            let proven = matches!(outcome, Outcome::NotSent | Outcome::Rejected);
            prop_assert!(proven || (keyed && enforces && outcome == UNKNOWN));
        }
    }

    #[test]
    fn r9_retries_are_at_most_a_tenth_of_the_successes(orders in prop::collection::vec(any::<bool>(), 1..2_000)) {
        let tokens = Tokens::new();
        let (mut successes, mut retries) = (0_u64, 0_u64);
        for wants in orders {
            if wants {
                retries += u64::from(tokens.take(at(5)));
            } else {
                tokens.succeeded();
                successes += 1;
            }
        }
        prop_assert!(retries * 10 <= successes + 110);
        prop_assert!(tokens.tenths() <= 1_000);
    }

    #[test]
    fn full_jitter_stays_within_its_limit(attempts in 0_u32..200, first in 0_u64..u64::MAX, random: u64) {
        let backoff = Backoff::new(Duration::from_millis(first), Duration::from_millis(first.saturating_mul(8)));
        prop_assert!(backoff.wait(attempts, random) <= backoff.at_most(attempts));
    }

    #[test]
    fn r2_no_bytes_of_a_pushback_panic(value: Vec<u8>, wall: u64) {
        let _ = Pushback::of_retry_after(&value, crate::wire::Wall::from_nanos(wall));
        let _ = Pushback::of_grpc(&value);
    }
}
