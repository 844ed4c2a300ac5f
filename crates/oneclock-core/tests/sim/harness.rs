//! Whether the harness can fail: the baselines come out as they are known to, the good and the bad.

use crate::baselines::{Doomed, Fifo};
use crate::scenarios::{LOW, WIDE, s1, s2, s6};
use crate::world::{Make, Tries};

#[track_caller]
fn near(what: &str, is: f64, from: f64, to: f64) {
    assert!((from..=to).contains(&is), "{what}: {is:.3} is not between {from} and {to}");
}

fn goodput(times: f64, make: Make<'_>) -> f64 {
    s1(times, WIDE, false, make, 1).figures.goodput
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_seed_others() {
    let run = |seed| s2(300, WIDE, Tries::three_with_tokens(), &Doomed::last_first, seed).report.print_of_all();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn a_concurrency_limit_loses_what_erlang_says() {
    // Sixteen slots, offered as much as they can do, no queue: Erlang's B is 0.175, whatever the work looks like.
    near("at 1", goodput(1.0, &Fifo::load_shed), 0.81, 0.84);
    near("at 3", goodput(3.0, &Fifo::load_shed), 0.93, 1.0);
}

#[test]
fn a_plain_queue_serves_only_what_is_too_late() {
    near("no deadline", goodput(3.0, &Fifo::plain), 0.0, 0.05);
    near("drops what has expired", goodput(3.0, &Fifo::drop_expired), 0.0, 0.1);
    near("drops one in five", goodput(3.0, &Fifo::valve), 0.0, 0.05);
    near("a short queue", goodput(3.0, &Fifo::capped), 0.96, 1.04);
}

#[test]
fn a_long_queue_by_deadline_does_well_alone_and_badly_in_a_chain() {
    near("alone", s1(3.0, LOW, true, &Doomed::due_first, 1).figures.goodput, 0.9, 1.0);
    near("chain", s2(300, WIDE, Tries::three_with_tokens(), &Doomed::due_first, 1).figures.goodput, 0.0, 0.5);
    near("last first", s2(300, WIDE, Tries::three_with_tokens(), &Doomed::last_first, 1).figures.goodput, 0.9, 1.02);
}

#[test]
fn three_tries_at_every_hop_never_recover_and_a_limit_does() {
    let storm = s6(Tries::three().each(100), false, false, &Fifo::plain, 1).figures;
    near("goodput", storm.goodput, 0.0, 0.05);
    near("amplification", storm.amplification, 2.5, 3.0);
    assert_eq!(storm.recovery, None);
    let limited = s6(Tries::three_with_tokens().each(100), true, true, &Fifo::load_shed, 1).figures;
    near("goodput", limited.goodput, 0.7, 0.95);
    assert!(limited.recovery.is_some());
}
