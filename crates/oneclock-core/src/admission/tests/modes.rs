//! Where nothing is enforced.

use super::*;

#[test]
fn observed_everything_starts_and_nothing_is_told() {
    let pool = Admission::new(Settings::fixed(1).queue(0).mode(Mode::Observe));
    let class = known(&pool, ms(500));
    for who in 0..10 {
        let arrival = pool.arrive(&Asking::new(&class, until(10)), who, at(0));
        assert_eq!(arrival, Arrival::Runs { item: who, would_refuse: None });
    }
    assert_eq!((pool.busy(), pool.waiting()), (10, 0));
    (0..10).for_each(|_| assert!(pool.vacate(ms(5), at(5)).is_empty()));
    assert_eq!((pool.busy(), pool.held()), (0, ms(5)), "what it takes is measured");
}

#[test]
fn in_the_shadow_everything_starts_and_what_would_have_been_refused_is_told() {
    let pool = Admission::new(Settings::fixed(1).mode(Mode::Shadow));
    let class = known(&pool, ms(500));
    let told = |who, deadline| match pool.arrive(&Asking::new(&class, until(deadline)), who, at(0)) {
        Arrival::Runs { would_refuse, .. } => would_refuse.map(|refusal| refusal.why),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(0, 10), None, "a free place");
    assert_eq!(told(1, 10), Some(Why::Doomed));
    assert_eq!(told(2, 5_000), None, "it would wait");
}

/// The same questions to two, of which one enforces.
#[test]
fn the_shadow_is_as_long_as_the_queue() {
    for queue in [0, 1, 2, 5] {
        let shadow = Admission::new(Settings::fixed(2).queue(queue).mode(Mode::Shadow));
        let real = Admission::new(Settings::fixed(2).queue(queue));
        let (in_shadow, in_earnest) = (shadow.class(), real.class());
        for who in 0..10 {
            let arrival = shadow.arrive(&Asking::new(&in_shadow, until(900)), who, at(0));
            let would = matches!(arrival, Arrival::Runs { would_refuse: Some(_), .. });
            let is = matches!(real.arrive(&Asking::new(&in_earnest, until(900)), who, at(0)), Arrival::Refused(..));
            assert_eq!(would, is, "number {who} before two places and a queue of {queue}");
        }
    }
}

/// Who waited when it was switched off is let go at once.
#[test]
fn switched_off_nobody_else_waits_and_those_that_do_are_served() {
    let pool = Admission::new(Settings::fixed(1));
    let class = pool.class();
    let asking = Asking::new(&class, until(900));
    runs(pool.arrive(&asking, 0, at(0)));
    waits(pool.arrive(&asking, 1, at(0)));
    let mut run = told(pool.set_mode(Mode::Observe, at(1))).0;
    runs(pool.arrive(&asking, 2, at(1)));
    while pool.busy() > 0 {
        run.extend(told(pool.vacate(ms(1), at(2))).0);
    }
    assert_eq!((run, pool.waiting()), (vec![1], 0));
}

/// Also where newcomers keep all places taken, and more than there are.
#[test]
fn switched_off_under_load_those_that_wait_are_let_go_at_once() {
    let pool = Admission::new(Settings::fixed(1));
    let class = pool.class();
    let asking = Asking::new(&class, until(900));
    runs(pool.arrive(&asking, 0, at(0)));
    (1..=5).for_each(|who| _ = waits(pool.arrive(&asking, who, at(0))));
    let mut let_go = told(pool.set_mode(Mode::Observe, at(1))).0;
    (6..10).for_each(|who| runs(pool.arrive(&asking, who, at(1))));
    let_go.sort_unstable();
    assert_eq!((let_go, pool.waiting(), pool.busy()), (vec![1, 2, 3, 4, 5], 0, 10));
    assert!(pool.vacate(ms(1), at(2)).is_empty());
}
