//! What is held back here, as it is at the scrape, and each change of a breaker.

use oneclock::Health;
use oneclock_core::breaker::BreakerPolicy;
use oneclock_core::throttle::Told;
use oneclock_telemetry::names::*;

use crate::support::{Counted, ms};

fn tell(health: &Health, calls: usize, told: Told) {
    (0..calls).filter_map(|_| health.ask(ms(300)).ok()).for_each(|watch| watch.told(told));
}

#[tokio::test(start_paused = true)]
async fn each_change_of_a_breaker_is_counted_and_its_state_is_as_it_is_at_the_scrape() {
    let counted = Counted::new();
    let inventory = Health::of("inventory").unthrottled().breaker(BreakerPolicy::default()).build();
    assert_eq!(counted.seen().series(&BREAKER_OPEN), 0, "nobody told of it");
    counted.metrics.watch_health(&inventory);
    counted.metrics.watch_health(&inventory); // twice is once
    let seen = counted.seen();
    assert_eq!((seen.series(&BREAKER_OPEN), seen.of(&BREAKER_OPEN, &["inventory"])), (1, 0.0));

    let job = counted.begin("order", ms(60_000));
    job.scope(async { tell(&inventory, 20, Told::Broken) }).await;
    let seen = counted.seen();
    assert_eq!(seen.of(&BREAKER_CHANGES, &["inventory", "opened"]), 1.0);
    assert_eq!(seen.of(&BREAKER_OPEN, &["inventory"]), 1.0);
    job.scope(async { tell(&inventory, 1, Told::Well) }).await;
    let seen = counted.seen();
    assert_eq!(seen.of(&NOT_CALLED, &["inventory", "shed"]), 1.0);
    assert_eq!(seen.sum(&BREAKER_CHANGES), 1.0, "what is held back changes nothing");

    // Longer than it is open at first, whatever chance adds: three probes close it.
    tokio::time::sleep(ms(5_000)).await;
    job.scope(async { tell(&inventory, 3, Told::Well) }).await;
    let seen = counted.seen();
    assert_eq!(seen.of(&BREAKER_CHANGES, &["inventory", "half_open"]), 3.0);
    assert_eq!(seen.of(&BREAKER_CHANGES, &["inventory", "closed"]), 1.0);
    assert_eq!(seen.of(&BREAKER_OPEN, &["inventory"]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn the_share_that_is_held_back_is_what_it_is_at_the_scrape() {
    let counted = Counted::new();
    let inventory = Health::of("inventory").build();
    counted.metrics.watch_health(&inventory);
    let seen = counted.seen();
    assert_eq!((seen.series(&THROTTLED), seen.of(&THROTTLED, &["inventory"])), (1, 0.0));
    tell(&inventory, 400, Told::Shed);
    tokio::time::sleep(ms(10)).await;
    let throttled = counted.seen().of(&THROTTLED, &["inventory"]);
    assert!((0.5..=0.95).contains(&throttled), "{throttled}");
    inventory.switch_off();
    assert_eq!(counted.seen().of(&THROTTLED, &["inventory"]), 0.0, "nothing is held back");
}
