//! The words and tables of `explain`.

mod total;

use std::io::{self, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use oneclock_core::time::Legible;
use oneclock_trace::{Certainty, Evidence, Oddities, Own, Retry, Row, Skew, Trace, Zombie};
pub(super) use total::total;

const HEADING: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const BAD: Style = AnsiColor::Red.on_default();

/// The most spans of one trace that are shown, those with findings and with the largest charges first.
const MOST_ROWS: usize = 48;
/// The most lines of one list.
const MOST_LINES: usize = 12;

fn span(ns: u64) -> Legible {
    Legible(Duration::from_nanos(ns))
}

/// A span with its sign, as an offset of clocks is.
fn signed(ns: i64) -> String {
    format!("{}{}", if ns < 0 { "-" } else { "+" }, span(ns.unsigned_abs()))
}

fn percent(part: u64, whole: u64) -> String {
    match u128::from(part) * 1000 / u128::from(whole.max(1)) {
        0 if part > 0 => "<0.1 %".to_owned(),
        permille => format!("{}.{} %", permille / 10, permille % 10),
    }
}

/// A count with its noun.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn named(service: &str, name: &str) -> String {
    match (service, name) {
        ("", "") => "unnamed".to_owned(),
        ("", name) => name.to_owned(),
        (service, "") => service.to_owned(),
        (service, name) => format!("{service}: {name}"),
    }
}

/// A name that fits; names come from anybody's system, and a terminal obeys control characters.
fn fit(text: &str, most: usize) -> String {
    let text = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let text: Vec<char> = text.collect();
    if text.len() <= most {
        return text.into_iter().collect();
    }
    text[..most.saturating_sub(1)].iter().chain(&['…']).collect()
}

fn of(trace: &Trace, index: usize) -> String {
    trace.spans.get(index).map_or_else(String::new, |row| fit(&named(&row.service, &row.name), 60))
}

fn above(trace: &Trace, index: usize) -> String {
    let parent = trace.spans.get(index).and_then(|row| row.parent);
    parent.map_or_else(|| "its parent".to_owned(), |parent| of(trace, parent))
}

fn list(out: &mut dyn Write, title: &str, lines: impl ExactSizeIterator<Item = String>) -> io::Result<()> {
    let all = lines.len();
    if all == 0 {
        return Ok(());
    }
    writeln!(out, "\n  {HEADING}{title}{HEADING:#}")?;
    let shown = if all <= MOST_LINES + 1 { all } else { MOST_LINES };
    for line in lines.take(shown) {
        writeln!(out, "    {line}")?;
    }
    if all > shown {
        writeln!(out, "    {DIM}and {} more{DIM:#}", all - shown)?;
    }
    Ok(())
}

/// Where the time went: parts that sum to the whole, the small ones together.
fn ledger(out: &mut dyn Write, mut parts: Vec<(u64, String)>, between: u64, whole: u64) -> io::Result<()> {
    if between > 0 {
        parts.push((between, "unaccounted: between roots of one trace".to_owned()));
        parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    }
    parts.retain(|(ns, _)| *ns > 0);
    if parts.len() > MOST_LINES + 1 {
        let rest = parts.split_off(MOST_LINES);
        let sum = rest.iter().fold(0_u64, |sum, (ns, _)| sum.saturating_add(*ns));
        parts.push((sum, format!("{DIM}{} more{DIM:#}", rest.len())));
    }
    let lines =
        parts.into_iter().map(|(ns, what)| format!("{:>9}  {:>7}  {what}", span(ns).to_string(), percent(ns, whole)));
    list(out, "where the time went", lines)
}

/// One trace: its ledger as a tree, and what was found.
pub(super) fn trace(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    let spans = trace.spans.iter().filter(|row| !row.id.is_empty()).count() as u64;
    let (id, spans) = (fit(&trace.id, 60), counted(spans, "span"));
    writeln!(out, "{HEADING}trace {id}{HEADING:#}  {}, {spans}\n", span(trace.elapsed_ns))?;
    writeln!(out, "  {DIM}{:>9} {:>9} {:>9} {:>9}{DIM:#}", "began", "took", "charged", "own")?;
    let shown = rows_shown(trace);
    let (mut hidden, mut hidden_own) = (0_usize, 0_u64);
    for (index, row) in trace.spans.iter().enumerate() {
        if shown[index] {
            line(out, trace, index, row)?;
        } else {
            hidden += 1;
            hidden_own = row.unaccounted_ns.saturating_add(hidden_own);
        }
    }
    if hidden > 0 {
        writeln!(
            out,
            "  {:>9} {:>9} {:>9} {:>9}  {DIM}… {hidden} more{DIM:#}",
            "",
            "",
            "",
            span(hidden_own).to_string()
        )?;
    }
    if trace.between_roots_ns > 0 {
        writeln!(
            out,
            "  {:>9} {:>9} {:>9} {:>9}  {DIM}unaccounted: between {} roots; what they were parts of was not recorded{DIM:#}",
            "",
            "",
            "",
            span(trace.between_roots_ns).to_string(),
            trace.roots
        )?;
    }
    let named_shares = trace.shares().into_iter().map(|share| {
        let name = fit(&named(&share.service, &share.name), 70);
        (share.own_ns, name)
    });
    ledger(out, named_shares.collect(), trace.between_roots_ns, trace.elapsed_ns)?;
    let zombies = |which: fn(&Zombie) -> bool| {
        let found = trace.findings.zombies.iter().filter(move |found| which(found));
        found.map(|found| zombie(trace, found)).collect::<Vec<_>>().into_iter()
    };
    list(out, "after nobody waited for it any more", zombies(Zombie::ran_on))?;
    list(out, "begun when nobody waited for it", zombies(|zombie| zombie.began_after))?;
    let unproven = zombies(|zombie| zombie.certainty == Certainty::Unproven);
    list(out, "ended after its parent, as recorded", unproven)?;
    list(out, "retries", trace.findings.retries.iter().map(|found| retry(trace, found)))?;
    list(
        out,
        "the clock was reset",
        trace.findings.resets.iter().map(|found| {
            let (what, caller) = (of(trace, found.span), above(trace, found.span));
            reset(&what, &caller, found.evidence)
        }),
    )?;
    list(
        out,
        "cut off",
        trace.findings.unrecorded.iter().map(|found| {
            let (what, waited) = (of(trace, found.span), span(found.waited_ns));
            format!("{what} waited {waited}; what it waited on was never recorded")
        }),
    )?;
    let apart: Vec<&Skew> = trace.skews.iter().filter(|skew| skew.added_ns != 0).collect();
    list(
        out,
        "clocks apart",
        apart.into_iter().map(|found| format!("{}; moved by {} here", skew(found), signed(found.added_ns))),
    )?;
    let own = trace.own_operations().map(|(index, row)| {
        format!("{:>9}  {}: {}", span(row.took_ns).to_string(), of(trace, index), row.own.map_or("", own_operation))
    });
    list(out, "operations of their own: nobody waits for them", own.collect::<Vec<_>>().into_iter())?;
    list(out, "odd", oddities(&trace.oddities).into_iter())?;
    writeln!(out)
}

/// All, if they are few.
fn rows_shown(trace: &Trace) -> Vec<bool> {
    let all = trace.spans.len();
    if all <= MOST_ROWS + 2 {
        return vec![true; all];
    }
    let mut found = vec![false; all];
    let findings = &trace.findings;
    let spans = findings.zombies.iter().map(|found| found.span);
    let spans = spans.chain(findings.resets.iter().map(|found| found.span));
    for index in spans.chain(findings.retries.iter().map(|found| found.span)).take(MOST_ROWS / 2) {
        found[index] = true;
    }
    let mut order: Vec<usize> = (0..all).collect();
    order.sort_by_key(|index| std::cmp::Reverse((found[*index], trace.spans[*index].charged_ns)));
    let (mut shown, mut count) = (vec![false; all], 0);
    for index in order {
        let mut at = Some(index);
        while let Some(index) = at.filter(|index| !shown[*index]) {
            (shown[index], count) = (true, count + 1);
            at = trace.spans[index].parent;
        }
        if count >= MOST_ROWS {
            break;
        }
    }
    shown
}

fn line(out: &mut dyn Write, trace: &Trace, index: usize, row: &Row) -> io::Result<()> {
    let mut notes = Vec::new();
    if row.error {
        notes.push(format!("{BAD}failed{BAD:#}"));
    }
    notes.extend(row.own.map(|own| own_operation(own).to_owned()));
    if let Some(left) = row.left_at_start_ns {
        notes.push(match row.left_at_end_ns {
            Some(end) => format!("left {} → {}", span(left), span(end)),
            None => format!("left {}", span(left)),
        });
    }
    if let Some(given) = row.given_ns {
        notes.push(format!("given {}", span(given)));
    }
    for (label, word) in
        [("bound", &row.bound), ("ended by", &row.cause), ("in", &row.stage), ("outcome", &row.outcome)]
    {
        notes.extend(word.as_ref().filter(|_| !row.id.is_empty()).map(|word| format!("{label} {}", fit(word, 30))));
    }
    for zombie in trace.findings.zombies.iter().filter(|zombie| zombie.span == index) {
        if zombie.ran_on() {
            notes.push(format!("{BAD}ran on for {}{BAD:#}", amount(zombie)));
        }
    }
    let indent = "  ".repeat(row.depth.min(20));
    let kind = row.kind.as_str();
    let name = fit(&named(&row.service, &row.name), 64);
    let kind = if kind.is_empty() { String::new() } else { format!(" {DIM}{kind}{DIM:#}") };
    let notes = if notes.is_empty() { String::new() } else { format!("  {}", notes.join(", ")) };
    writeln!(
        out,
        "  {:>9} {:>9} {:>9} {:>9}  {indent}{name}{kind}{notes}",
        span(row.began_ns).to_string(),
        span(row.took_ns).to_string(),
        span(row.charged_ns).to_string(),
        span(row.unaccounted_ns).to_string(),
    )
}

fn own_operation(own: Own) -> &'static str {
    match own {
        Own::Message => "works on a message",
        Own::Follows => "follows",
        Own::Declared => "detached",
        Own::BegunAfter => "began after its parent had ended",
    }
}

fn amount(zombie: &Zombie) -> String {
    let after = span(zombie.after_ns);
    match (zombie.certainty, zombie.at_most_ns) {
        (Certainty::AtLeast, Some(most)) if most != zombie.after_ns => format!("{after} to {}", span(most)),
        (Certainty::AtLeast, _) => format!("at least {after}"),
        (Certainty::Exact | Certainty::Unproven, _) => after.to_string(),
    }
}

fn zombie(trace: &Trace, zombie: &Zombie) -> String {
    let (what, parent, amount) = (of(trace, zombie.span), above(trace, zombie.span), amount(zombie));
    match (zombie.certainty, zombie.began_after) {
        (Certainty::Unproven, _) => format!("{what}, by {amount}: clocks that are apart would explain it, no claim"),
        (_, true) => format!("{what} began when {parent} had ended, and took {amount}"),
        (_, false) => format!("{what} ran on for {amount} after {parent} had ended"),
    }
}

fn retry(trace: &Trace, retry: &Retry) -> String {
    let waited = retry.waited_ns.map_or_else(String::new, |waited| format!(" after a wait of {}", span(waited)));
    let left = match retry.left_ns {
        Some(left) => format!("with {} left of the budget", span(left)),
        None => format!("{} before its parent ended", span(retry.until_parent_ended_ns)),
    };
    format!("{}, attempt {}, began{waited} {left}", of(trace, retry.span), retry.attempt)
}

fn reset(what: &str, caller: &str, evidence: Evidence) -> String {
    match evidence {
        Evidence::GivenMore { given_ns, left_ns } => {
            format!("{what} was given {}, and {caller} had {} left", span(given_ns), span(left_ns))
        }
        Evidence::OwnRoundTime { round_ns } => {
            format!("{what} failed after {}, which looks like a limit of its own: {caller} had ended", span(round_ns))
        }
    }
}

fn skew(skew: &Skew) -> String {
    let (from, to) = (fit(&skew.from, 40), fit(&skew.to, 40));
    let (at_least, calls) = (signed(skew.at_least_ns), counted(skew.calls, "call"));
    match skew.at_most_ns {
        Some(at_most) => format!("{from} → {to}: {at_least} to {}, from {calls}", signed(at_most)),
        None => format!("{from} → {to}: {at_least} or more, from {calls}"),
    }
}

fn oddities(odd: &Oddities) -> Vec<String> {
    let told = [
        (odd.duplicates, "recorded twice; the first record counts"),
        (odd.circles, "in a circle of parents, which was cut"),
        (odd.missing_parents, "whose parent was not recorded"),
        (odd.without_time, "without a beginning or an end; what they called counts as their parent's"),
        (odd.negative, "that ended before they began; taken as no time at all"),
        (odd.dropped, "beyond the bound on one trace, dropped"),
    ];
    let told = told.into_iter().filter(|(count, _)| *count > 0);
    told.map(|(count, what)| format!("{} {what}", counted(count, "span"))).collect()
}
