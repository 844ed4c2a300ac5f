//! The figures as pictures, one for each family of scenarios: bars for what was let through, lines for what happened over
//! time. Decides how they look; readable on white and on black.

use std::fmt::Write as _;

use crate::report::{Report, Row};
use crate::scenario::Scenario;
use crate::system::System;

const WIDTH: f64 = 860.0;
const BAR: f64 = 16.0;
const LABEL: f64 = 210.0;
const PANEL: f64 = 190.0;
/// Lines of more systems than these nobody could tell apart.
const LINES: [System; 5] = [System::Ours, System::Tower, System::EnvoyAdaptive, System::HopsShort, System::None];

/// The pictures, by name. A family that did not run has none.
pub(crate) fn all(report: &Report) -> Vec<(&'static str, String)> {
    type Draw = fn(&[&Row]) -> String;
    let families: [(&str, &[Scenario], Draw); 6] = [
        ("s1", &[Scenario::Steps, Scenario::Spike], bars),
        ("s2", &[Scenario::Chain, Scenario::ChainTight], lines),
        ("s3-s4", &[Scenario::Budgets, Scenario::Classes], bars),
        ("s5", &[Scenario::SlowDown], lines),
        ("s7", &[Scenario::Abandon], bars),
        ("s9", &[Scenario::Refusals, Scenario::Throttled], bars),
    ];
    let drawn = families.into_iter().filter_map(|(name, scenarios, draw)| {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| scenarios.contains(&row.cell.scenario)).collect();
        (!rows.is_empty()).then(|| (name, draw(&rows)))
    });
    drawn.collect()
}

fn colour(system: System) -> &'static str {
    match system {
        System::Ours => "#2f81f7",
        System::Tower => "#d29922",
        System::EnvoyAdaptive => "#a371f7",
        System::None => "#f85149",
        System::EnvoyOurs => "#79c0ff",
        System::OursFinds => "#a5d6ff",
        _ => "#8b949e",
    }
}

/// What is drawn as bars: a label, the median and the worst, 1 being the whole width.
fn entries(row: &Row) -> Vec<(String, f64, f64)> {
    let Some(first) = row.runs.first() else { return Vec::new() };
    if first.classes.len() > 1 {
        let classes = first.classes.iter().enumerate().map(|(number, class)| {
            let spread = row.spread(|run| run.classes.get(number).map_or(0.0, |class| class.in_time), false);
            (format!("{}: {}, in time", row.cell.system.name(), class.name), spread.median, spread.worst)
        });
        let work = row.spread(|run| run.goodput.last().map_or(0.0, |goodput| goodput.work), false);
        let work = (format!("{}: goodput in work", row.cell.system.name()), work.median, work.worst);
        return std::iter::once(work).chain(classes).collect();
    }
    let loads = first.goodput.iter().enumerate().map(|(step, goodput)| {
        let spread = row.spread(|run| run.goodput.get(step).map_or(0.0, |goodput| goodput.ratio), false);
        (format!("{} at {}x", row.cell.system.name(), goodput.load), spread.median, spread.worst)
    });
    loads.collect()
}

fn bars(rows: &[&Row]) -> String {
    let (mut body, mut y, mut scenario) = (String::new(), 0.0, None);
    for row in rows {
        if scenario != Some(row.cell.scenario) {
            scenario = Some(row.cell.scenario);
            y += 28.0;
            text(&mut body, 0.0, y - 8.0, &format!("{}: {}", row.cell.scenario.name(), row.cell.scenario.about()));
        }
        for (label, median, worst) in entries(row) {
            let room = WIDTH - LABEL - 60.0;
            let long = |value: f64| value.clamp(0.0, 1.2) / 1.2 * room;
            text(&mut body, 0.0, y + 12.0, &label);
            let (fill, top, height) = (colour(row.cell.system), y + 2.0, BAR - 4.0);
            let _ = writeln!(
                body,
                r#"<rect x="{LABEL}" y="{top}" width="{:.1}" height="{height}" fill="{fill}"/><rect x="{:.1}" y="{top}" width="2" height="{height}" fill="gray"/>"#,
                long(median),
                LABEL + long(worst),
            );
            text(&mut body, LABEL + long(median.max(worst)) + 8.0, y + 12.0, &format!("{median:.2}"));
            y += BAR;
        }
        y += 4.0;
    }
    picture(y + 22.0, &body, "in units of the capacity, or as the share in time; grey: the worst run", y + 16.0)
}

fn lines(rows: &[&Row]) -> String {
    let (mut body, mut y) = (String::new(), 0.0);
    let mut scenarios: Vec<Scenario> = rows.iter().map(|row| row.cell.scenario).collect();
    scenarios.dedup();
    for scenario in scenarios {
        y += 28.0;
        text(&mut body, 0.0, y - 8.0, &format!("{}: {}", scenario.name(), scenario.about()));
        let of = |row: &&&Row| row.cell.scenario == scenario && LINES.contains(&row.cell.system);
        let shown: Vec<(&Row, Vec<f64>)> = rows.iter().filter(of).map(|row| (*row, in_time(row))).collect();
        let most = shown.iter().flat_map(|(_, values)| values).copied().fold(1.0, f64::max);
        let seconds = shown.iter().map(|(_, values)| values.len()).max().unwrap_or(1);
        let (left, width) = (50.0, WIDTH - 50.0 - 130.0);
        let bottom = y + PANEL - 20.0;
        let at = |second: usize, value: f64| {
            (left + width * (second as f64 + 0.5) / seconds as f64, bottom - (PANEL - 30.0) * value / most)
        };
        let _ = writeln!(body, r#"<path d="M{left} {y}V{bottom}H{}" fill="none" stroke="gray"/>"#, left + width);
        text(&mut body, 0.0, y + 12.0, &format!("{most:.0}/s"));
        text(&mut body, left + width - 30.0, bottom + 15.0, &format!("{seconds} s"));
        for (number, (row, values)) in shown.iter().enumerate() {
            let points: Vec<String> = values
                .iter()
                .enumerate()
                .map(|(second, value)| at(second, *value))
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            let (points, stroke) = (points.join(" "), colour(row.cell.system));
            let _ = writeln!(body, r#"<polyline points="{points}" fill="none" stroke="{stroke}" stroke-width="2"/>"#);
            let down = y + 14.0 + 18.0 * number as f64;
            let from = left + width + 10.0;
            let _ = writeln!(body, r#"<path d="M{from} {:.1}h14" stroke="{stroke}" stroke-width="3"/>"#, down - 4.0);
            text(&mut body, from + 18.0, down, row.cell.system.name());
        }
        y += PANEL;
    }
    picture(y + 22.0, &body, "answers in time, second by second; the first run", y + 16.0)
}

fn in_time(row: &Row) -> Vec<f64> {
    row.runs.first().map(|run| run.seconds.iter().map(|(_, in_time)| f64::from(*in_time)).collect()).unwrap_or_default()
}

fn text(body: &mut String, x: f64, y: f64, what: &str) {
    let _ = writeln!(body, r#"<text x="{x:.1}" y="{y:.1}">{what}</text>"#);
}

fn picture(height: f64, body: &str, note: &str, note_y: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-10 0 {:.0} {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"12\" fill=\"#808080\">\n{body}<text x=\"0\" y=\"{note_y:.1}\" font-size=\"11\">{note}</text>\n</svg>\n",
        WIDTH + 20.0
    )
}
