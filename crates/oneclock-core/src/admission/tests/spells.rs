//! A spell of slowness: who only listens to an estimate never finds out that it is over. And a queue that stands, for long.

use super::world::{Gate, Sort, World};
use super::*;

/// Load 0.7 of four servers; for ten seconds everything takes thirty times as long, and hardly anything is done in time.
fn after_a_slow_spell(gate: Gate) -> [f64; 3] {
    // 58 ms: the estimate's grain must not make it a little less than what was cut off there.
    let sort = Sort { per_second: 280.0, takes: ms(10), varies: true, budget: ms(58) };
    // Nobody waits at the naive one either: it is the estimate that is looked at here.
    let settings = if gate == Gate::Ours { Settings::fixed(4) } else { Settings::fixed(4).queue(0) };
    let mut world = World::new(settings, 4, gate, &[sort]);
    let before = world.goes_on(5)[0].success();
    world.slower = 30;
    world.goes_on(10);
    world.slower = 1;
    world.goes_on(2);
    let soon = world.goes_on(3)[0].success();
    world.goes_on(30);
    [before, soon, world.goes_on(5)[0].success()]
}

#[test]
fn after_a_slow_spell_it_recovers_and_an_estimate_alone_never_does() {
    let [before, soon, later] = after_a_slow_spell(Gate::Ours);
    // Until the window of the estimate is over, who finds no free place is refused: about one in eight.
    assert!(before > 0.95 && soon > 0.85 && later > 0.95, "{before} {soon} {later}");
    let [before, soon, later] = after_a_slow_spell(Gate::EstimateOnly);
    assert!(before > 0.7, "the naive way, while all is well: {before}");
    assert!(soon < 0.01 && later < 0.01, "the naive way, for ever after: {soon} {later}");
}

/// Three times what can be done, with budgets that would let 300 wait.
#[test]
fn the_wait_of_a_queue_that_stands_is_bounded() {
    let sort = Sort { per_second: 1_200.0, takes: ms(10), varies: false, budget: ms(400) };
    let mut world = World::new(Settings::fixed(4), 4, Gate::Ours, &[sort]);
    world.goes_on(5);
    assert!(world.admission.is_standing());
    world.most_waited = 0;
    let fate = world.goes_on(10)[0];
    // A quarter of 400 ms is 40 turns of 10 ms before four places.
    assert!((10..=42).contains(&world.most_waited), "{}", world.most_waited);
    assert!(f64::from(fate.in_time) > 0.95 * 4_000.0, "and nothing is lost by it: {fate:?}");
}

/// What has budget for a few turns only, under three times what can be done: most of what can be done is.
#[test]
fn overload_does_not_cost_what_can_be_done() {
    for (budget, varies) in [(50, false), (100, true), (1_000, true)] {
        let sort = Sort { per_second: 1_200.0, takes: ms(10), varies, budget: ms(budget) };
        let mut world = World::new(Settings::fixed(4), 4, Gate::Ours, &[sort]);
        world.goes_on(5);
        let fate = world.goes_on(10)[0];
        assert!(f64::from(fate.in_time) > 0.93 * 4_000.0, "{budget} ms, {varies}: {fate:?}");
        world.load(0, 280.0);
        world.goes_on(1);
        let after = world.goes_on(5)[0].success();
        assert!(after > 0.97, "a second after the overload, {budget} ms: {after}");
    }
}
