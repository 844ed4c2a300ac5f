//! What was found, in sentences for the page.

use serde::Serialize;

use super::{named, own_operation, plural, span};
use crate::findings::{Certainty, Evidence};
use crate::total::Total;
use crate::trace::Trace;

/// The most entries of a list.
const MOST_LINES: usize = 30;

#[derive(Serialize)]
pub(super) struct Note {
    title: &'static str,
    lines: Vec<String>,
    grave: bool,
}

pub(super) fn notes(trace: &Trace) -> Vec<Note> {
    let name = |index: usize| trace.spans.get(index).map_or_else(String::new, |row| named(&row.service, &row.name));
    let above = |index: usize| {
        let parent = trace.spans.get(index).and_then(|row| row.parent);
        parent.map_or_else(|| "its parent".to_owned(), name)
    };
    let zombies = trace.findings.zombies.iter();
    let ran_on = zombies.clone().filter(|zombie| zombie.ran_on()).map(|zombie| {
        let at_least = if zombie.certainty == Certainty::Exact { "" } else { "at least " };
        format!(
            "{} ran on for {at_least}{} after {} had ended",
            name(zombie.span),
            span(zombie.after_ns),
            above(zombie.span)
        )
    });
    let begun = zombies.clone().filter(|zombie| zombie.began_after).map(|zombie| {
        format!("{} began when {} had ended, and took {}", name(zombie.span), above(zombie.span), span(zombie.after_ns))
    });
    let unproven = zombies.filter(|zombie| zombie.certainty == Certainty::Unproven).map(|zombie| {
        format!(
            "{}, by {} as recorded; clocks that are apart would explain it",
            name(zombie.span),
            span(zombie.after_ns)
        )
    });
    let resets =
        trace.findings.resets.iter().map(|reset| reset_line(&name(reset.span), &above(reset.span), reset.evidence));
    let retries = trace.findings.retries.iter().map(|retry| {
        let left = match retry.left_ns {
            Some(left) => format!("with {} left of the budget", span(left)),
            None => format!("{} before its parent ended", span(retry.until_parent_ended_ns)),
        };
        format!("{}, attempt {}, began {left}", name(retry.span), retry.attempt)
    });
    let own = trace.own_operations().map(|(index, row)| {
        let why = row.own.map_or("", own_operation);
        format!("{}, {}: {why}", name(index), span(row.took_ns))
    });
    let unrecorded = trace.findings.unrecorded.iter().map(|found| {
        format!("{} waited {}; what it waited on was never recorded", name(found.span), span(found.waited_ns))
    });
    let skews = trace.skews.iter().filter(|skew| skew.added_ns != 0).map(|skew| {
        let sign = if skew.added_ns < 0 { "-" } else { "+" };
        format!("{} → {}: moved by {sign}{}", skew.from, skew.to, span(skew.added_ns.unsigned_abs()))
    });
    collected([
        ("After nobody waited for it any more", true, ran_on.collect()),
        ("Begun when nobody waited for it", true, begun.collect()),
        ("The clock was reset", true, resets.collect()),
        ("Cut off", true, unrecorded.collect()),
        ("Retries", false, retries.collect()),
        ("Operations of their own: nobody waits for them", false, own.collect()),
        ("Ended after its parent: no claim", false, unproven.collect()),
        ("Clocks apart", false, skews.collect()),
    ])
}

pub(super) fn notes_of_all(total: &Total) -> Vec<Note> {
    let mut zombies: Vec<_> = total.names.iter().filter(|name| name.zombies > 0).collect();
    zombies.sort_by_key(|name| std::cmp::Reverse(name.zombie_ns));
    let zombies = zombies.into_iter().map(|name| {
        format!("{}: {} in {}", named(&name.service, &name.name), span(name.zombie_ns), plural(name.zombies, "span"))
    });
    let timeouts = total.timeouts.iter().map(|timeout| {
        let name = named(&timeout.service, &timeout.name);
        let (spans, traces) = (plural(timeout.of, "span"), plural(timeout.traces, "trace"));
        format!(
            "{}: {} of {spans} of {name}, in {traces}, {} failed",
            span(timeout.round_ns),
            timeout.spans,
            timeout.failed
        )
    });
    let resets = total.resets.iter().map(|hop| {
        let from = if hop.from.is_empty() { "its caller" } else { &hop.from };
        format!("{} times: {}", hop.count, reset_line(&named(&hop.service, &hop.name), from, hop.example))
    });
    let retries = total.names.iter().filter(|name| name.retries > 0).map(|name| {
        let least = name.least_left_ns.map_or_else(String::new, |left| format!(", one with only {} left", span(left)));
        format!("{}: {}{least}", named(&name.service, &name.name), name.retries)
    });
    collected([
        ("After nobody waited for it any more", true, zombies.collect()),
        ("The clock was reset", true, resets.collect()),
        ("Durations that look like timeouts", false, timeouts.collect()),
        ("Retries", false, retries.collect()),
    ])
}

fn reset_line(what: &str, caller: &str, evidence: Evidence) -> String {
    match evidence {
        Evidence::GivenMore { given_ns, left_ns } => {
            format!("{what} was given {}, and {caller} had {} left", span(given_ns), span(left_ns))
        }
        Evidence::OwnRoundTime { round_ns } => {
            format!("{what} failed after {}, which looks like a limit of its own: {caller} had ended", span(round_ns))
        }
    }
}

fn collected<const N: usize>(notes: [(&'static str, bool, Vec<String>); N]) -> Vec<Note> {
    let notes = notes.into_iter().filter(|(_, _, lines)| !lines.is_empty());
    let bounded = notes.map(|(title, grave, mut lines)| {
        if lines.len() > MOST_LINES {
            let more = lines.len() - MOST_LINES;
            lines.truncate(MOST_LINES);
            lines.push(format!("and {more} more"));
        }
        Note { title, lines, grave }
    });
    bounded.collect()
}
