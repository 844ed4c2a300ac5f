//! How findings are shown to people: a line for each check, a table of all groups at the end. Decides nothing.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use crate::finding::{Finding, Group, Verdict};

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();
const DIM: Style = Style::new().dimmed();
const TITLE: Style = Style::new().bold();

/// The checks of one group. With `all`, what was seen in each place; else in the first, and wherever a check fails.
pub(crate) fn group(group: &Group, all: bool) -> String {
    let mut text = format!("\n{TITLE}{}{TITLE:#}  {DIM}{}{DIM:#}\n", group.title, group.peer);
    for row in &group.rows {
        let verdict = row.verdict();
        let _ = writeln!(text, "  {}  {}", mark(verdict), row.check);
        for (number, (place, finding)) in row.ours.iter().enumerate() {
            let shown = all || if verdict == Verdict::Fails { finding.verdict == verdict } else { number == 0 };
            if shown {
                line(&mut text, place, finding);
            }
        }
        if row.plain.1.verdict == Verdict::Fails || all {
            line(&mut text, row.plain.0, &row.plain.1);
        }
    }
    text
}

fn line(text: &mut String, place: &str, finding: &Finding) {
    let fails = if finding.verdict == Verdict::Fails { "FAILS  " } else { "" };
    let _ = writeln!(text, "        {DIM}{place:<12}{DIM:#} {fails}{}", finding.said);
}

fn mark(verdict: Verdict) -> String {
    match verdict {
        Verdict::Holds => format!("{GOOD}ok{GOOD:#}"),
        Verdict::Fails => format!("{BAD}NO{BAD:#}"),
        Verdict::NotPossible => format!("{DIM}--{DIM:#}"),
    }
}

/// All groups, a line each.
pub(crate) fn summary(groups: &[Group]) -> String {
    let width = groups.iter().map(|group| group.title.chars().count()).max().unwrap_or_default();
    let mut text = format!("\n{TITLE}{:<width$}  hold  fail  not possible  fail without ours{TITLE:#}\n", "");
    for group in groups {
        let _ = writeln!(
            text,
            "{:<width$}  {:>4}  {:>4}  {:>12}  {:>17}",
            group.title,
            group.count(Verdict::Holds),
            group.count(Verdict::Fails),
            group.count(Verdict::NotPossible),
            group.plain_fails(),
        );
    }
    text
}
