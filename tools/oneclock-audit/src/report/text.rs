//! For a terminal: the drawing, the layers, what was found with its lines, what was read, and the sum.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::words::{counted, fit, plain, severity, sum};
use super::{Detail, Report, Way, coverage, excerpts, tree};
use crate::audited::Found;
use crate::estimate::short;
use crate::rules::Severity;

pub(super) const HEADING: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const BAD: Style = AnsiColor::Red.on_default();

/// The most ways whose layers are shown, unless all is asked for.
const MOST_WAYS: usize = 8;
/// The most findings that are shown with their lines, unless all is asked for.
const MOST_FINDINGS: usize = 60;
/// The most notes, each in a line.
const MOST_NOTES: usize = 12;

impl Report<'_> {
    /// Writes it with escape codes for colours, which `anstream` strips where there is no terminal.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text(&self, out: &mut dyn Write, detail: Detail) -> io::Result<()> {
        if detail > Detail::Quiet {
            tree::write(out, self, detail)?;
            self.layers(out, detail)?;
            self.budgets(out)?;
        }
        self.findings(out, detail)?;
        self.not_read(out, detail)?;
        for stale in self.audited.stale.iter().take(if detail == Detail::Verbose { usize::MAX } else { 5 }) {
            writeln!(
                out,
                "{}: {} is in the baseline and is not found any more",
                plain(&stale.path),
                plain(&stale.rule)
            )?;
        }
        writeln!(out, "{}", plain(&coverage::line(self.audited)))?;
        writeln!(out, "{HEADING}{}{HEADING:#}", sum(self.audited))
    }

    fn layers(&self, out: &mut dyn Write, detail: Detail) -> io::Result<()> {
        let telling = self.ways.iter().filter(|way| !way.says_nothing || detail == Detail::Verbose);
        let ways: Vec<&Way<'_>> = telling.collect();
        if ways.is_empty() {
            return Ok(());
        }
        let shown = if detail == Detail::Verbose || ways.len() <= MOST_WAYS + 1 { ways.len() } else { MOST_WAYS };
        writeln!(out, "{HEADING}the layers, from the outside in{HEADING:#}\n")?;
        for way in ways.iter().take(shown) {
            one_way(out, way)?;
        }
        let silent = self.ways.len() - ways.len();
        let of = |ways: &mut dyn Iterator<Item = &Way<'_>>| ways.map(|way| way.alike + 1).sum::<usize>();
        let mut left = Vec::new();
        if ways.len() > shown {
            let with = ways.iter().skip(shown).filter(|way| !way.rules.is_empty()).count();
            let with = if with > 0 { format!(", {with} of them with findings") } else { String::new() };
            left.push(format!("{} of other kinds{with}", counted(of(&mut ways.iter().skip(shown).copied()), "way")));
        }
        if silent > 0 {
            let silent = self.ways.iter().filter(|way| way.says_nothing && detail < Detail::Verbose);
            left.push(format!("{} of which no file says a limit", counted(of(&mut silent.into_iter()), "way")));
        }
        if !left.is_empty() {
            writeln!(out, "  {DIM}left out: {}; --verbose has all of them{DIM:#}\n", left.join(", and "))?;
        }
        Ok(())
    }

    /// What each entry's budget comes to, step by step.
    fn budgets(&self, out: &mut dyn Write) -> io::Result<()> {
        for entry in &self.audited.inventory.entries {
            let steps = self.graph.budget(entry);
            if steps.is_empty() {
                continue;
            }
            let shown = crate::amount::shown;
            writeln!(out, "{HEADING}the budget of {}: {}{HEADING:#}\n", fit(&entry.name, 60), shown(entry.budget))?;
            let mut rows =
                vec![["step", "has", "keeps back", "own work", "its calls", "left"].map(str::to_owned).to_vec()];
            for step in &steps {
                let rest = step.rest_millis();
                let left =
                    shown(std::time::Duration::from_millis(u64::try_from(rest.unsigned_abs()).unwrap_or(u64::MAX)));
                let left = if rest < 0 { format!("-{left}") } else { left };
                let name = format!("{}{}", "  ".repeat(step.depth), fit(&step.name, 40));
                let time = |time: std::time::Duration| if time.is_zero() { "–".to_owned() } else { shown(time) };
                rows.push(vec![name, shown(step.given), time(step.reserve), time(step.own), time(step.calls), left]);
            }
            table(out, &rows, &|row| row.last().is_some_and(|left| left.starts_with('-')))?;
            writeln!(out)?;
        }
        Ok(())
    }

    fn findings(&self, out: &mut dyn Write, detail: Detail) -> io::Result<()> {
        let all = detail == Detail::Verbose;
        let loud: Vec<&Found> =
            self.audited.new_findings().filter(|found| all || found.finding.severity < Severity::Note).collect();
        let shown = if all || loud.len() <= MOST_FINDINGS + 1 { loud.len() } else { MOST_FINDINGS };
        for found in loud.iter().take(shown) {
            excerpts::write(out, self.audited, found)?;
        }
        if loud.len() > shown {
            writeln!(
                out,
                "{DIM}and {} more: --verbose, or --format json, has all of them{DIM:#}\n",
                loud.len() - shown
            )?;
        }
        let notes: Vec<&Found> =
            self.audited.new_findings().filter(|found| !all && found.finding.severity == Severity::Note).collect();
        let shown = if notes.len() <= MOST_NOTES + 1 { notes.len() } else { MOST_NOTES };
        for found in notes.iter().take(shown) {
            let finding = &found.finding;
            let place = plain(&finding.place.to_string());
            writeln!(
                out,
                "{}[{}]: {} {DIM}({place}){DIM:#}",
                severity(finding.severity),
                finding.rule,
                plain(&finding.says)
            )?;
        }
        if notes.len() > shown {
            writeln!(out, "{DIM}and {} more{DIM:#}", counted(notes.len() - shown, "note"))?;
        }
        if shown > 0 {
            writeln!(
                out,
                "{DIM}notes are told with their lines by --verbose, and what a rule means by --explain RULE{DIM:#}\n"
            )?;
        }
        Ok(())
    }

    fn not_read(&self, out: &mut dyn Write, detail: Detail) -> io::Result<()> {
        if detail == Detail::Quiet {
            return Ok(());
        }
        let (lines, more) = coverage::list(self.audited, detail == Detail::Verbose);
        if lines.is_empty() {
            return Ok(());
        }
        writeln!(out, "{HEADING}not read, so nothing is known of them{HEADING:#}\n")?;
        for line in lines {
            writeln!(out, "  {line}")?;
        }
        if more > 0 {
            writeln!(out, "  {DIM}and {more} more: --verbose, or --format json, has all of them{DIM:#}")?;
        }
        writeln!(out)
    }
}

fn one_way(out: &mut dyn Write, way: &Way<'_>) -> io::Result<()> {
    let names = way.names.iter().map(|name| fit(name, 40)).collect::<Vec<_>>().join(" → ");
    let alike =
        if way.alike > 0 { format!("  {DIM}and {} like it{DIM:#}", counted(way.alike, "way")) } else { String::new() };
    let rules =
        if way.rules.is_empty() { String::new() } else { format!("  {BAD}✗ {}{BAD:#}", way.rules.join(", ")) };
    writeln!(out, "  {names}{alike}{rules}")?;
    let mut rows = vec![["layer", "kind", "limit", "stated", "p99", "limit / p99"].map(str::to_owned).to_vec()];
    let mut before = "";
    for layer in &way.layers {
        let who = if layer.who == before { "" } else { &layer.who };
        before = &layer.who;
        rows.push(vec![
            fit(who, 64),
            layer.kind.to_owned(),
            fit(&layer.limit, 32),
            fit(&layer.stated, 48),
            layer.p99.map(crate::amount::shown).unwrap_or_default(),
            layer.ratio().map(|ratio| format!("{}×", short(ratio))).unwrap_or_default(),
        ]);
    }
    table(out, &rows, &|_| false)?;
    writeln!(out)
}

/// Columns beside each other; those that are empty throughout are left out. The first row is the heading.
fn table(out: &mut dyn Write, rows: &[Vec<String>], is_bad: &dyn Fn(&[String]) -> bool) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let filled = |column: &usize| rows.iter().skip(1).any(|row| row.get(*column).is_some_and(|cell| !cell.is_empty()));
    let columns: Vec<(usize, usize)> = (0..columns).filter(filled).map(|column| (column, width(column))).collect();
    for (at, row) in rows.iter().enumerate() {
        let cells =
            columns.iter().map(|(column, width)| format!("{:<width$}", row.get(*column).map_or("", String::as_str)));
        let line = cells.collect::<Vec<_>>().join("  ");
        let line = line.trim_end();
        match (at, is_bad(row)) {
            (0, _) => writeln!(out, "    {DIM}{line}{DIM:#}")?,
            (_, true) => writeln!(out, "    {BAD}{line}{BAD:#}")?,
            _ => writeln!(out, "    {line}")?,
        }
    }
    Ok(())
}
