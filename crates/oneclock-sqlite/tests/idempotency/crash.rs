//! A process that is killed at any step, and what the next one makes of what it left.
//!
//! `ONECLOCK_CRASH_RUNS=200 cargo test -p oneclock-sqlite --features idempotency --test idempotency crash` makes more runs.

use crate::killed::{Told, is_two_effects, many, run};
use crate::support::*;

#[test]
fn m1_to_m5_a_killed_process_costs_no_second_effect_and_no_answer() {
    // Spread over what a commit takes on most disks, and a little beyond.
    many("sqlite", 32, |seed| run(seed, ("serve", "recover"), ms(6), "", |folder| folder.notes("history")));
}

/// A service that writes its record after the work fails the same test.
#[test]
fn naive_a_record_after_the_work_is_two_effects() {
    let folder = Folder::new();
    is_two_effects(&Told::new(&folder, "", "k"), "serve-naive", || folder.notes("history"));
}
