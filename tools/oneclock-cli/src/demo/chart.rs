//! In-time answers, second by second, both ways beside one another: a chart that keeps its size while it grows. Decides how
//! high a bar is, and what stands around it.

use std::io::{self, Write};

use oneclock_checkout::overload::{Second, Spike, Way};

use super::print::{BAD, DIM, GOOD, HEADING};

/// Rows of a chart, each of eight steps.
const ROWS: usize = 6;
const STEPS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of a second.
const WIDE: usize = 2;
/// Where the shop is full, as far as no bar is there.
const FULL: char = '┄';
/// What stands left of a chart, and the space between two.
const AXIS: usize = 4;
const GAP: &str = "    ";

/// Both ways beside one another, as far as they have come. Ends without a line break.
pub(super) fn chart(
    out: &mut impl Write,
    spike: &Spike,
    independent: &[Second],
    propagated: &[Second],
) -> io::Result<()> {
    let width = spike.lasts() as usize * WIDE;
    let most = (spike.capacity() * 1.1).max(1.0);
    let title = |way: Way| format!("{:AXIS$}   {:width$}", "", way.to_string());
    writeln!(out, "  {HEADING}Answered in time{HEADING:#}, a second\n")?;
    writeln!(out, "  {}{GAP}{}", title(Way::Independent), title(Way::Propagated).trim_end())?;
    for row in (0..ROWS).rev() {
        // The line at which the shop is full stands in this row.
        let full = row == (spike.capacity() / most * ROWS as f64) as usize;
        write!(out, "  ")?;
        for (way, seconds) in [(BAD, independent), (GOOD, propagated)] {
            let label = if full { format!("{:.0}", spike.capacity()) } else { String::new() };
            let bars = bars(seconds, row, most);
            let (bars, rest) = (bars.trim_end(), width - bars.trim_end().chars().count());
            let rest = String::from(if full { FULL } else { ' ' }).repeat(rest);
            let rest = if way == BAD { rest + GAP } else { rest.trim_end().to_owned() };
            write!(out, "{DIM}{label:>AXIS$} │{DIM:#} {way}{bars}{way:#}{DIM}{rest}{DIM:#}")?;
        }
        writeln!(out)?;
    }
    write!(out, "  ")?;
    let phases = phases(spike);
    for gap in [GAP, ""] {
        write!(out, "{DIM}{:AXIS$} └─{phases}{DIM:#}{gap}", "")?;
    }
    Ok(())
}

/// One row of a chart: what of each second's bar is in it.
fn bars(seconds: &[Second], row: usize, most: f64) -> String {
    let step = |second: &Second| {
        let eighths = (second.answers_in_time as f64 / most * (ROWS * 8) as f64).round() as usize;
        let filled = eighths.saturating_sub(row * 8).min(8);
        // Something is shown as something.
        if row == 0 && filled == 0 && second.answers_in_time > 0 { STEPS[1] } else { STEPS[filled] }
    };
    seconds.iter().flat_map(|second| [step(second); WIDE]).collect()
}

/// What comes in each phase, under its seconds.
fn phases(spike: &Spike) -> String {
    let [before, during, after] = spike.seconds;
    let phase = |(begins, seconds, load): (char, u32, f64)| {
        let width = seconds as usize * WIDE;
        format!("{:─<width$}", format!("{begins} {load}× "))
    };
    [('─', before, spike.usual), ('┬', during, spike.spike), ('┬', after, spike.usual)].map(phase).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(answers: &[usize]) -> Vec<Second> {
        answers.iter().map(|&answers_in_time| Second { answers_in_time, ..Second::default() }).collect()
    }

    #[test]
    fn a_chart_grows_with_its_seconds_and_keeps_its_size() {
        let spike = Spike { seconds: [2, 5, 2], ..Spike::default() };
        let drawn = |independent: &[usize], propagated: &[usize]| {
            let mut page = Vec::new();
            chart(&mut page, &spike, &seconds(independent), &seconds(propagated)).expect("memory");
            anstream::adapter::strip_str(&String::from_utf8(page).expect("text")).to_string()
        };
        let lines = |text: &str| text.lines().count();
        let (empty, full) =
            (drawn(&[], &[]), drawn(&[93, 93, 1, 0, 0, 0, 0, 0, 0], &[93, 93, 133, 133, 133, 133, 133, 93, 93]));
        assert_eq!((lines(&empty), lines(&full)), (ROWS + 4, ROWS + 4));
        insta::assert_snapshot!(full, @r"
    Answered in time, a second

           independent timeouts           one budget
     133 │ ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄     133 │     ▄▄▄▄▄▄▄▄▄▄┄┄┄┄
         │                            │     ██████████
         │ ▆▆▆▆                       │ ▆▆▆▆██████████▆▆▆▆
         │ ████                       │ ██████████████████
         │ ████                       │ ██████████████████
         │ ████▁▁                     │ ██████████████████
         └── 0.7× ┬ 3× ─────┬ 0.7×          └── 0.7× ┬ 3× ─────┬ 0.7×
    ");
    }
}
