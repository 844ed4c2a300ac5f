//! A finding with the lines that it is about: its own place, and those of the other layers.

use std::io::{self, Write};

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::words::{is_turning, plain};
use crate::audited::{Audited, Found};
use crate::rules::Severity;
use crate::source::Place;

/// Places of one file that are no further apart are one excerpt.
const NEAR: u32 = 200;
/// Lines around a place.
const AROUND: u32 = 1;
/// The most characters of a line that are shown: a file of one line is not told in full.
const LONGEST: usize = 160;

/// One place of a finding.
struct Spot<'a> {
    place: &'a Place,
    label: &'a str,
    own: bool,
}

/// Writes it with escape codes; whoever prints strips them where there is no terminal.
pub(super) fn write(out: &mut dyn Write, audited: &Audited<'_>, found: &Found) -> io::Result<()> {
    let finding = &found.finding;
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let mut group = Group::with_title(level.primary_title(plain(&finding.says)).id(finding.rule));
    for spots in together(found) {
        group = match excerpt(audited, &spots) {
            Some(snippet) => group.element(snippet),
            None => group.elements(spots.iter().map(|spot| {
                let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
                let path = plain(&spot.place.file);
                Origin::path(path).line(number(spot.place.line)).char_column(number(spot.place.column))
            })),
        };
    }
    if !finding.consequence.is_empty() {
        group = group.element(Level::NOTE.message(plain(&finding.consequence)));
    }
    if !finding.help.is_empty() {
        group = group.element(Level::HELP.message(plain(&finding.help)));
    }
    writeln!(out, "{}\n", Renderer::styled().render(&[group]))
}

/// Its places, those near each other together; its own first.
fn together(found: &Found) -> Vec<Vec<Spot<'_>>> {
    let finding = &found.finding;
    let mut all = vec![vec![Spot { place: &finding.place, label: &finding.label, own: true }]];
    for related in &finding.related {
        let spot = Spot { place: &related.place, label: &related.says, own: false };
        let near = all.iter_mut().find(|spots| {
            let near =
                |one: &Spot<'_>| one.place.file == spot.place.file && one.place.line.abs_diff(spot.place.line) <= NEAR;
            spots.iter().all(near)
        });
        match near {
            Some(spots) => spots.push(spot),
            None => all.push(vec![spot]),
        }
    }
    all
}

fn excerpt(audited: &Audited<'_>, spots: &[Spot<'_>]) -> Option<Snippet<'static, Annotation<'static>>> {
    let file = &spots.first()?.place.file;
    let text = audited.text(file)?;
    let first = spots.iter().map(|spot| spot.place.line).min()?.saturating_sub(AROUND).max(1);
    let last = spots.iter().map(|spot| spot.place.line).max()?.saturating_add(AROUND);
    let mut lines = Lines::default();
    let from = usize::try_from(first).unwrap_or(usize::MAX);
    for (number, line) in (first..=last).zip(text.lines().skip(from - 1)) {
        let here = spots.iter().filter(|spot| spot.place.line == number);
        lines.add(line, &here.collect::<Vec<_>>());
    }
    // The line of a place may not be there: a file that ends before it says so in none of its lines.
    if lines.annotations.len() < spots.len() {
        return None;
    }
    Some(Snippet::source(lines.text).line_start(from).path(plain(file)).annotations(lines.annotations))
}

/// Some lines of a file, as they are shown.
#[derive(Default)]
struct Lines {
    text: String,
    annotations: Vec<Annotation<'static>>,
}

impl Lines {
    fn add(&mut self, line: &str, spots: &[&Spot<'_>]) {
        let begins = spots.iter().map(|spot| index(spot.place.column)).min().unwrap_or(0);
        // Of a line that is too long, what is before its first place, and what is after it.
        let from = begins.saturating_sub(LONGEST / 3);
        let shown: Vec<char> = line.chars().skip(from).take(LONGEST).collect();
        let line_starts = self.text.len() + if from > 0 { '…'.len_utf8() } else { 0 };
        if from > 0 {
            self.text.push('…');
        }
        let mut starts: Vec<usize> = Vec::with_capacity(shown.len() + 1);
        for c in &shown {
            starts.push(self.text.len());
            let hidden = c.is_control() && *c != '\t' || is_turning(*c);
            self.text.push(if hidden { '\u{fffd}' } else { *c });
        }
        starts.push(self.text.len());
        for spot in spots {
            let at = index(spot.place.column).saturating_sub(from);
            let end = at.saturating_add(usize::try_from(spot.place.width).unwrap_or(usize::MAX)).min(shown.len());
            let start = starts.get(at).copied().unwrap_or(self.text.len()).max(line_starts);
            let end = starts.get(end).copied().unwrap_or(self.text.len()).max(start);
            let kind = if spot.own { AnnotationKind::Primary } else { AnnotationKind::Context };
            let annotation = kind.span(start..end);
            self.annotations.push(if spot.label.is_empty() { annotation } else { annotation.label(plain(spot.label)) });
        }
        self.text.push('\n');
    }
}

/// A column from one, as an index.
fn index(column: u32) -> usize {
    usize::try_from(column).unwrap_or(usize::MAX).saturating_sub(1)
}
