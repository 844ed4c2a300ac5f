//! How long a case takes without valgrind. A machine's clock speed and its neighbours make such figures swing, so the
//! cases take turns, and the best of many short rounds counts.

use std::time::{Duration, Instant};

use crate::cases::{Case, Failed};

const ROUNDS: u32 = 25;
/// Long enough for the clock, short enough to fit between two interruptions.
const ROUND: Duration = Duration::from_millis(4);

/// Nanoseconds per time, in the order of `cases`.
pub(crate) fn nanos(cases: &[Case]) -> Result<Vec<f64>, Failed> {
    let mut times = Vec::new();
    for case in cases {
        times.push(times_in_a_round(*case)?);
    }
    let mut best = vec![f64::INFINITY; cases.len()];
    for _ in 0..ROUNDS {
        for ((case, times), best) in cases.iter().zip(&times).zip(&mut best) {
            *best = best.min(took(*case, *times)?.as_nanos() as f64 / f64::from(*times));
        }
    }
    Ok(best)
}

fn times_in_a_round(case: Case) -> Result<u32, Failed> {
    let mut times = 500;
    while took(case, times)? < ROUND && times < 1 << 24 {
        times *= 2;
    }
    Ok(times)
}

#[allow(clippy::disallowed_methods)] // a stop watch, not a deadline
fn took(case: Case, times: u32) -> Result<Duration, Failed> {
    let began = Instant::now();
    case.drive(times)?;
    Ok(began.elapsed())
}
