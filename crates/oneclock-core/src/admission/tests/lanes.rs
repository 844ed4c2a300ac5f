//! That nothing is starved in silence.

use super::world::{Fate, Gate, Sort, World};
use super::*;
use crate::admission::lanes::Lanes;

/// Under three times what can be done, after ten seconds.
fn under_overload(gate: Gate, sorts: &[Sort]) -> Vec<Fate> {
    let mut world = World::new(Settings::fixed(4), 4, gate, sorts);
    world.goes_on(10);
    world.goes_on(20)
}

#[track_caller]
fn has_half_its_share(fates: &[Fate], which: usize) {
    let all = fates.iter().fold((0, 0), |(came, started), fate| (came + fate.came, started + fate.started));
    let neutral = f64::from(all.1) / f64::from(all.0);
    let its = fates[which].share_started();
    assert!(its >= 0.5 * neutral, "{its:.3} of it started, of all {neutral:.3}: {fates:?}");
}

/// One in ten takes eleven times as long, and at 0.9 needs more than it ever has.
#[test]
fn a_costly_sort_whose_quantile_is_above_its_budget_keeps_half_its_share() {
    let quick = Sort { per_second: 1_080.0, takes: ms(5), varies: true, budget: ms(100) };
    let costly = Sort { per_second: 120.0, takes: ms(55), varies: true, budget: ms(100) };
    let fates = under_overload(Gate::Ours, &[quick, costly]);
    has_half_its_share(&fates, 1);
    assert!(fates[1].in_time > 0, "{fates:?}");
    let naive = under_overload(Gate::EstimateOnly, &[quick, costly]);
    assert!(naive[1].share_started() < 0.01, "an estimate alone: {naive:?}");
}

/// The same work for callers of little and of much patience.
#[test]
fn a_budget_below_the_quantile_keeps_half_its_share() {
    let sort = |budget| Sort { per_second: 400.0, takes: ms(10), varies: true, budget: ms(budget) };
    let sorts = [sort(15), sort(100), sort(1_000)];
    let under_overload = |gate| {
        let mut world = World::new(Settings::fixed(4), 4, gate, &sorts).of_one_class();
        world.goes_on(10);
        world.goes_on(20)
    };
    let fates = under_overload(Gate::Ours);
    for which in 0..3 {
        has_half_its_share(&fates, which);
    }
    let naive = under_overload(Gate::EstimateOnly);
    assert!(naive[0].share_started() < 0.5 * naive[1].share_started(), "an estimate alone: {naive:?}");
}

#[test]
fn a_lane_is_short_below_three_quarters_of_what_all_get() {
    let mut lanes = Lanes::new();
    let (short, other) = (Lanes::of(1, ms(10)), Lanes::of(1, ms(1_000)));
    assert_ne!(short, other);
    for n in 0..100_u32 {
        lanes.arrived(other);
        if n.is_multiple_of(2) {
            lanes.admitted(other);
        }
        if n.is_multiple_of(10) {
            lanes.arrived(short);
        }
    }
    assert!(lanes.is_short(short) && !lanes.is_short(other));
    (0..4).for_each(|_| lanes.admitted(short)); // 4 of 10; of all 54 of 110
    assert!(!lanes.is_short(short));
}

#[test]
fn what_is_long_past_is_forgotten() {
    let mut lanes = Lanes::new();
    let lane = Lanes::of(0, ms(10));
    (0..500).for_each(|_| lanes.arrived(lane));
    let other = Lanes::of(0, ms(1_000));
    assert_ne!(lane, other);
    for _ in 0..20_000 {
        lanes.arrived(other);
        lanes.admitted(other);
    }
    assert!(!lanes.is_short(lane), "it has not asked for long");
}
