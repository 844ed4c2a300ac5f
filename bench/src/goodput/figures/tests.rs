//! Figures of runs whose outcome is known.

use std::collections::HashMap;
use std::time::Duration;

use super::*;
use crate::caller::Call;
use crate::meter::Of;
use crate::scenario::Planned;

/// 10 requests a second; those planned in the spike and for `sick` seconds after it are refused.
fn figures(sick: f64) -> Figures {
    let phase = |kind, seconds, load| Phase { kind, seconds, load, slower: 1.0 };
    let phases = [phase(Kind::Before, 2.0, 0.5), phase(Kind::Spike, 2.0, 2.0), phase(Kind::After, 4.0, 0.5)];
    let seen = (0..80_u32).map(|id| {
        let at = f64::from(id) / 10.0;
        let phase = usize::from(at >= 2.0) + usize::from(at >= 4.0);
        let well = phase == 0 || at >= 4.0 + sick;
        let (came, refused_us) = if well { (Came::InTime, vec![]) } else { (Came::Refused, vec![500, 500]) };
        let planned = Planned {
            at: Duration::from_secs_f64(at),
            phase,
            class: 0,
            budget: Duration::from_millis(300),
            work_us: [1_000, 0, 0],
        };
        let tries = if well { 1 } else { 2 };
        Seen { planned, id, call: Call { came, tries, refused_us }, took_us: 2_000, late_us: 0 }
    });
    let load = Load { seen: seen.collect(), cpu: vec![Duration::from_micros(400); 3] };
    let worked = (0..80).map(|id| (id, Of { worked_us: 1_000, asked: [0; TIERS] }));
    let done = Done { requests: HashMap::from_iter(worked), for_nobody: 0 };
    Figures::of(Scenario::Spike, &phases, 20.0, &load, &done)
}

#[test]
fn recovery_is_the_first_of_two_good_seconds() {
    assert_eq!(figures(0.0).recovery, Some(0.0));
    assert_eq!(figures(1.0).recovery, Some(1.0));
    assert_eq!(figures(3.0).recovery, None);
}

#[test]
fn work_for_refused_requests_is_waste_and_each_try_is_asked() {
    let figures = figures(0.0);
    assert_eq!((figures.wasted, figures.asked[0], figures.goodput[0].ratio), (1.0, 2.0, 0.0));
    assert_eq!((figures.base, figures.cpu_ok_us, figures.refused_ms.p50), (1.0, 20.0, 0.5));
}
