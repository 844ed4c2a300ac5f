//! How many places there are, where nobody says it. Sixteen servers, work of 10 ms: 1600 in a second.

use super::world::{Gate, Sort, World};
use super::*;

fn world(load: f64, budget: Duration) -> World {
    let sort = Sort { per_second: load * 1_600.0, takes: ms(10), varies: true, budget };
    World::new(Settings::adaptive(2), 16, Gate::Ours, &[sort])
}

#[test]
fn it_finds_about_as_many_as_there_are_and_nothing_is_lost_by_that() {
    let mut world = world(3.0, ms(300));
    world.goes_on(10);
    let fate = world.goes_on(10)[0];
    assert!((14..=40).contains(&world.admission.places()), "{:?}", world.admission);
    assert!(f64::from(fate.in_time) > 0.93 * 16_000.0, "{fate:?}");
}

/// It would, were the best learnt while a queue stands: held longer since there are more, more since that is what is usual.
#[test]
fn a_standing_overload_does_not_make_it_drift_up() {
    let mut world = world(3.0, ms(1_000));
    world.goes_on(10);
    let before = world.admission.places();
    let most = (0..15).map(|_| {
        world.goes_on(4);
        world.admission.places()
    });
    let most = most.max().expect("fifteen");
    assert!(most <= before * 3 / 2 && most <= 48, "from {before} to {most}");
}

/// Short budgets keep the queue empty: what is doomed is refused on arrival, and all places are taken all the same.
#[test]
fn a_lasting_slowness_without_a_queue_does_not_make_it_drift_up() {
    let mut world = world(0.9, ms(100));
    world.goes_on(10);
    let before = world.admission.places();
    world.servers = 2;
    let most = (0..10).map(|_| {
        world.goes_on(3);
        world.admission.places()
    });
    let most = most.max().expect("ten");
    assert!(most <= before, "from {before} to {most}");
}

#[test]
fn it_shrinks_when_the_resource_slows_down_and_grows_back() {
    let mut world = world(0.9, ms(300));
    world.goes_on(10);
    let before = world.admission.places();
    world.servers = 4; // three quarters of it are gone
    world.goes_on(10);
    let during = world.admission.places();
    assert!(during <= 14 && during * 3 <= before * 2, "from {before} to {during}");
    world.servers = 16;
    world.goes_on(10);
    let fate = world.goes_on(10)[0];
    assert!(world.admission.places() >= 14, "{:?}", world.admission);
    assert!(fate.success() > 0.97, "{fate:?}");
}

/// Everything takes ten times as long for good, and somebody always waits: what was best once is no measure any more.
#[test]
fn what_is_slow_for_good_is_believed_though_a_queue_stands() {
    let mut world = world(3.0, ms(1_000));
    world.goes_on(10);
    world.slower = 10;
    world.goes_on(60);
    let most = (0..10).map(|_| {
        world.goes_on(2);
        world.admission.places()
    });
    let most = most.max().expect("ten");
    assert!(most >= 8, "{most} of 16");
}

/// Work that is cut off at its deadline held its place as long as it did. Who counts only what was done learns of none of it
/// from a resource where nothing is done any more, and keeps all the places that there were.
#[test]
fn what_is_cut_off_counts() {
    let pool = Admission::new(Settings::adaptive(2));
    let class = pool.class();
    (0..).take_while(|_| pool.enter()).for_each(drop);
    // Each millisecond one gives its place back, and others always wait.
    let goes_on = |held: Duration, sample, millis: std::ops::Range<u64>| {
        for now in millis.map(at) {
            while pool.waiting() < 2 {
                let _ = pool.arrive(&Asking::new(&class, Deadline::after(now, ms(60_000))), 0, now);
            }
            class.took(held, sample, now);
            drop(pool.vacate_after(held, sample, now));
        }
        pool.places()
    };
    let before = goes_on(ms(10), Sample::Whole, 1..10_000);
    let after = goes_on(ms(90), Sample::CutOff, 10_000..30_000);
    assert!(before >= 20 && after <= 8, "from {before} to {after}");
}

#[test]
fn without_load_it_does_not_grow() {
    let mut world = world(0.02, ms(300));
    let before = world.admission.places();
    world.goes_on(60);
    assert!(world.admission.places() <= before, "{:?}", world.admission);
}

/// Whatever is seen, it stays between its ends.
#[test]
fn it_stays_between_its_ends() {
    let limit = Limit::new(Places::Found { least: 3, most: 20 });
    let mut draw = 7_u64;
    for n in 0..20_000 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let held = ms(draw >> 54);
        if let Limit::Found(found) = &limit {
            found.held(held, Sample::Whole, (20, n % 3 == 0), at(n * 7));
        }
        assert!((3..=20).contains(&limit.now()));
    }
}
