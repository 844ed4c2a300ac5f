//! A process that is killed at any step while the server lives, and what the next one makes of what it left.
//!
//! `ONECLOCK_CRASH_RUNS=200 cargo test -p oneclock-redis --features idempotency --test idempotency crash` makes more runs.

use std::time::Duration;

use crate::killed::{many, run};
use crate::store::Prefix;

#[test]
fn m1_to_m5_a_killed_process_costs_no_second_effect_and_no_answer() {
    many("redis", 24, |seed| {
        let prefix = Prefix::new();
        // Spread over what connecting and a script take, and a little beyond.
        run(seed, ("serve", "recover"), Duration::from_millis(4), &prefix.0, |folder| folder.notes("history"))
    });
}
