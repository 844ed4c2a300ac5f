//! Each rule by itself.

use super::*;

/// Whatever else is wrong with it: that its time is up is the reason, and no place is taken.
#[test]
fn i5_what_is_expired_never_starts() {
    for mode in [Mode::Observe, Mode::Shadow, Mode::Enforce] {
        let pool = Admission::new(Settings::fixed(2).mode(mode));
        let class = pool.class();
        assert_eq!(
            refused(pool.arrive(&Asking::new(&class, until(5)), 1, at(5))).why,
            Why::Expired,
            "{mode}: a free place"
        );
        assert_eq!(
            refused(pool.arrive(&Asking::new(&class, until(5)), 1, at(9))).reason(),
            crate::Reason::ExpiredBeforeStart
        );
        assert_eq!((pool.busy(), pool.waiting()), (0, 0), "{mode}");
    }
}

#[test]
fn i5_one_whose_time_ran_out_in_the_queue_does_not_get_the_place() {
    let pool = Admission::new(Settings::fixed(1));
    let class = pool.class();
    runs(pool.arrive(&Asking::new(&class, until(900)), 0, at(0)));
    waits(pool.arrive(&Asking::new(&class, until(20)), 1, at(0)));
    waits(pool.arrive(&Asking::new(&class, until(90)), 2, at(0)));
    assert_eq!(told(pool.vacate(ms(20), at(20))), (vec![2], vec![(1, Why::Expired)]), "at that very moment");
    assert_eq!((pool.busy(), pool.waiting()), (1, 0));
}

/// And so does the last of those that wait: nothing else wants the place.
#[test]
fn a_free_place_and_an_empty_queue_run_whatever_the_estimate_says() {
    let pool = Admission::new(Settings::fixed(2));
    let slow = known(&pool, ms(500));
    assert!(slow.estimate().needed() > ms(450));
    runs(pool.arrive(&Asking::new(&slow, until(10)), 0, at(0)));
    runs(pool.arrive(&Asking::new(&slow, until(10)), 1, at(0)));
    waits(pool.arrive(&Asking::new(&slow, until(900)), 2, at(0)));
    assert_eq!(told(pool.vacate(ms(1), at(800))), (vec![2], vec![]));
}

#[test]
fn what_is_doomed_is_refused_on_arrival() {
    let pool = Admission::new(Settings::fixed(1));
    let class = known(&pool, ms(30));
    let needed = class.estimate().needed();
    runs(pool.arrive(&Asking::new(&class, until(900)), 0, at(0)));
    assert!(pool.vacate(ms(40), at(40)).is_empty(), "a place is held for 40 ms");
    runs(pool.arrive(&Asking::new(&class, until(900)), 0, at(40)));
    let asking = |budget| Asking::new(&class, Deadline::after(at(40), budget));
    let _ = pool.arrive(&asking(ms(19) + needed), 1, at(40)); // once in a while one may wait all the same
    let refusal = refused(pool.arrive(&asking(ms(18) + needed), 2, at(40)));
    assert_eq!(
        (refusal.why, refusal.wait, refusal.needed),
        (Why::Doomed, ms(20), needed),
        "half a turn, and what it needs"
    );
    assert_eq!(refusal.come_again(), None, "it was the caller's time that was short");
    let behind = refused(pool.arrive(&asking(ms(19) + needed), 2, at(40)));
    assert_eq!(behind.wait, ms(60), "who was there first with the same deadline is ahead");
    assert_eq!(pool.waiting(), 1, "who is refused does not wait");
}

#[test]
fn one_that_waits_is_told_exactly_when_it_becomes_doomed() {
    let pool = Admission::new(Settings::fixed(1));
    let class = known(&pool, ms(30));
    runs(pool.arrive(&Asking::new(&class, until(900)), 0, at(0)));
    let (key, start_by) = waits(pool.arrive(&Asking::new(&class, until(100)), 1, at(0)));
    assert_eq!(start_by, until(100).less(class.estimate().needed()).tick());
    let just_before = Tick::from_nanos(start_by.as_nanos() - 1);
    assert_eq!(pool.due(key, just_before), Due::Later(start_by));
    let Due::Refused(1, refusal) = pool.due(key, start_by) else { panic!("it is doomed") };
    assert_eq!((refusal.why, refusal.remaining), (Why::Doomed, class.estimate().needed()), "and has the rest to use");
    assert_eq!((pool.due(key, start_by), pool.busy(), pool.waiting()), (Due::Gone, 1, 0));
}

#[test]
fn what_turns_out_to_be_faster_may_wait_longer() {
    let pool = Admission::new(Settings::fixed(1));
    let class = known(&pool, ms(30));
    runs(pool.arrive(&Asking::new(&class, until(900)), 0, at(0)));
    let (key, start_by) = waits(pool.arrive(&Asking::new(&class, until(100)), 1, at(0)));
    (0..1_000).for_each(|_| class.took(ms(2), Sample::Whole, at(1)));
    let Due::Later(later) = pool.due(key, start_by) else { panic!("there is time") };
    assert!(later > at(95), "{later:?}");
}

#[test]
fn one_that_left_is_never_handed_a_place() {
    let pool = Admission::new(Settings::fixed(1));
    let class = pool.class();
    runs(pool.arrive(&Asking::new(&class, until(900)), 0, at(0)));
    let (first, _) = waits(pool.arrive(&Asking::new(&class, until(100)), 1, at(0)));
    waits(pool.arrive(&Asking::new(&class, until(200)), 2, at(0)));
    assert_eq!((pool.left(first), pool.left(first)), (Some(1), None), "once");
    assert_eq!(told(pool.vacate(ms(10), at(10))), (vec![2], vec![]));
    assert!(pool.vacate(ms(10), at(20)).is_empty());
    assert_eq!((pool.busy(), pool.waiting()), (0, 0));
}

#[test]
fn a_place_is_not_taken_past_one_that_waits() {
    let pool = Admission::new(Settings::fixed(1));
    let class = pool.class();
    runs(pool.arrive(&Asking::new(&class, until(900)), 0, at(0)));
    waits(pool.arrive(&Asking::new(&class, until(800)), 1, at(0)));
    assert!(!pool.enter());
    assert_eq!(told(pool.vacate(ms(1), at(1))).0, [1]);
    assert!(!pool.enter());
    assert!(pool.vacate(ms(1), at(2)).is_empty() && pool.enter());
}

#[test]
fn with_a_queue_of_none_nobody_waits() {
    let pool = Admission::new(Settings::fixed(1).queue(0));
    let class = pool.class();
    runs(pool.arrive(&Asking::new(&class, until(900)), 0, at(0)));
    assert_eq!(refused(pool.arrive(&Asking::new(&class, until(900)), 1, at(0))).why, Why::Full);
    assert_eq!((pool.busy(), pool.waiting()), (1, 0));
}

#[test]
fn in_a_full_queue_what_is_optional_makes_room_and_else_nobody_does() {
    let pool = Admission::new(Settings::fixed(1).queue(2));
    let class = pool.class();
    let asking = || Asking::new(&class, until(900));
    runs(pool.arrive(&asking(), 0, at(0)));
    waits(pool.arrive(&asking(), 1, at(0)));
    waits(pool.arrive(&asking().importance(Importance::Optional), 2, at(0)));
    let Arrival::Waits { evicted: Some((2, refusal)), .. } = pool.arrive(&asking(), 3, at(1)) else {
        panic!("it has room")
    };
    assert_eq!(refusal.reason(), crate::Reason::Shed);
    assert_eq!(refused(pool.arrive(&asking(), 4, at(1))).why, Why::Full);
    assert_eq!(refused(pool.arrive(&asking().importance(Importance::Optional), 5, at(1))).why, Why::Full);
    assert_eq!((pool.busy(), pool.waiting()), (1, 2));
}

/// A pool of one with a queue that stands: 20 still wait, required, and five optional among them.
fn standing() -> (Admission<u32>, Arc<Class>, Vec<(u32, Why)>) {
    let pool = Admission::new(Settings::fixed(1));
    let class = pool.class();
    runs(pool.arrive(&Asking::new(&class, until(9_000)), 0, at(0)));
    for who in 1..=30 {
        waits(pool.arrive(&Asking::new(&class, until(9_000)), who, at(0)));
    }
    for who in 100..105 {
        waits(pool.arrive(&Asking::new(&class, until(9_000)).importance(Importance::Optional), who, at(0)));
    }
    let mut not = Vec::new();
    for turn in 1..=10 {
        let (run, refused) = told(pool.vacate(ms(20), at(turn * 20)));
        assert!(run.len() == 1 && run[0] < 100, "what is required comes first");
        not.extend(refused);
    }
    assert!(pool.is_standing());
    (pool, class, not)
}

#[test]
fn c7_under_a_standing_queue_what_is_optional_goes_first() {
    let (pool, class, not) = standing();
    assert_eq!(not, (100..105).map(|who| (who, Why::Optional)).collect::<Vec<_>>(), "those that waited");
    let asking = Asking::new(&class, until(9_000));
    let refusal = refused(pool.arrive(&asking.importance(Importance::Optional), 1_000, at(201)));
    assert_eq!(refusal.why, Why::Optional);
    assert!(refusal.come_again().is_some_and(|wait| wait > ms(300)), "{refusal:?}: once 20 were served");
    assert!(matches!(pool.arrive(&asking, 1_001, at(201)), Arrival::Waits { .. }));
    assert_eq!(told(pool.vacate(ms(20), at(220))), (vec![1_001], vec![]), "the newest is next");
}

#[test]
fn a_queue_stands_no_longer_once_it_is_empty() {
    let (pool, class, _) = standing();
    for turn in 0..20 {
        assert_eq!(told(pool.vacate(ms(20), at(220 + turn * 20))).0.len(), 1);
    }
    assert!(!pool.is_standing());
    let asking = Asking::new(&class, until(9_000)).importance(Importance::Optional);
    waits(pool.arrive(&asking, 7, at(700)));
}

/// The longest that a queue which stands keeps anybody is a quarter of what they came with.
#[test]
fn the_oldest_makes_room_where_the_wait_would_be_too_long() {
    let pool = Admission::new(Settings::fixed(1));
    let class = pool.class();
    runs(pool.arrive(&Asking::new(&class, until(9_000)), 0, at(0)));
    for who in 1..=60 {
        waits(pool.arrive(&Asking::new(&class, until(800)), who, at(0)));
    }
    (1..=10).for_each(|turn| assert_eq!(told(pool.vacate(ms(20), at(turn * 20))).0.len(), 1));
    assert!(pool.is_standing());
    let Arrival::Waits { evicted, .. } = pool.arrive(&Asking::new(&class, until(1_000)), 100, at(200)) else {
        panic!("waits")
    };
    let (who, refusal) = evicted.expect("50 turns of 20 ms are more than 200 ms");
    assert_eq!(
        (who, refusal.why, refusal.waited),
        (7, Why::Full, ms(200)),
        "six were served in their order, then the newest"
    );
    assert_eq!(pool.waiting(), 50);
}
