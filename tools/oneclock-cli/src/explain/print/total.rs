//! All traces together.

use std::io::{self, Write};

use oneclock_trace::Total;

use super::{BAD, DIM, HEADING, counted, fit, ledger, list, named, oddities, reset, skew, span};

/// All traces together.
pub(in crate::explain) fn total(out: &mut dyn Write, total: &Total, shown: usize) -> io::Result<()> {
    if total.traces <= 1 && shown > 0 {
        return dropped(out, total); // all the rest was just told
    }
    let (traces, spans) = (counted(total.traces, "trace"), counted(total.spans, "span"));
    let elapsed = span(total.elapsed_ns);
    writeln!(out, "{HEADING}{traces}{HEADING:#}, {spans}, {elapsed} of operations; {shown} shown")?;
    let lines = total.names.iter().map(|name| {
        let mut line = fit(&named(&name.service, &name.name), 60);
        if name.spans > 0 {
            line.push_str(&format!("  {DIM}{}{DIM:#}", counted(name.spans, "span")));
        }
        if name.errors > 0 {
            line.push_str(&format!(", {BAD}{} failed{BAD:#}", name.errors));
        }
        if name.retries > 0 {
            line.push_str(&format!(", {} tried again", name.retries));
        }
        (name.own_ns, line)
    });
    ledger(out, lines.collect(), total.between_roots_ns, total.elapsed_ns)?;
    let mut zombies: Vec<_> = total.names.iter().filter(|name| name.zombies > 0).collect();
    zombies.sort_by_key(|name| std::cmp::Reverse(name.zombie_ns));
    let title = format!(
        "after nobody waited for it any more: {} in {} of {}",
        span(total.zombies.ns),
        counted(total.zombies.count, "span"),
        counted(total.zombies.traces, "trace")
    );
    list(
        out,
        &title,
        zombies.into_iter().map(|name| {
            let what = fit(&named(&name.service, &name.name), 60);
            format!("{:>9}  {what}  {DIM}{}{DIM:#}", span(name.zombie_ns).to_string(), counted(name.zombies, "span"))
        }),
    )?;
    if total.begun_after.count > 0 {
        let (spans, traces) = (counted(total.begun_after.count, "span"), counted(total.begun_after.traces, "trace"));
        let took = span(total.begun_after.ns);
        writeln!(out, "\n  {spans} of {traces} began when the parent had ended, and took {took} together")?;
    }
    if total.unproven.count > 0 {
        let (spans, traces) = (counted(total.unproven.count, "span"), counted(total.unproven.traces, "trace"));
        writeln!(
            out,
            "\n  {spans} of {traces} ended after the parent as recorded, by what clocks that are apart would explain: no claim"
        )?;
    }
    let retried: Vec<_> = total.names.iter().filter(|name| name.retries > 0).collect();
    list(
        out,
        "retries",
        retried.into_iter().map(|name| {
            let least =
                name.least_left_ns.map_or_else(String::new, |left| format!(", one with only {} left", span(left)));
            format!("{:>5}  {}{least}", name.retries, fit(&named(&name.service, &name.name), 60))
        }),
    )?;
    list(
        out,
        "look like timeouts",
        total.timeouts.iter().map(|timeout| {
            let what = fit(&named(&timeout.service, &timeout.name), 60);
            let (round, from, to) = (span(timeout.round_ns), span(timeout.from_ns), span(timeout.to_ns));
            format!(
                "{round}: {} of {} spans of {what} took {from} to {to}, in {}; {} failed",
                timeout.spans,
                timeout.of,
                counted(timeout.traces, "trace"),
                timeout.failed
            )
        }),
    )?;
    list(
        out,
        "the clock was reset",
        total.resets.iter().map(|hop| {
            let (what, caller) = (fit(&named(&hop.service, &hop.name), 60), fit(&hop.from, 40));
            let caller = if caller.is_empty() { "its caller" } else { &caller };
            let example = reset(&what, caller, hop.example);
            format!("{:>5}  {example} {DIM}(trace {}){DIM:#}", hop.count, fit(&hop.trace, 32))
        }),
    )?;
    if total.unrecorded.count > 0 {
        let (calls, traces) = (counted(total.unrecorded.count, "call"), counted(total.unrecorded.traces, "trace"));
        writeln!(
            out,
            "\n  {calls} of {traces} ended with the failing caller, and what was waited on was never recorded"
        )?;
    }
    let apart: Vec<_> = total.skews.iter().filter(|pair| pair.moved > 0).collect();
    list(
        out,
        "clocks apart",
        apart.into_iter().map(|pair| {
            let unsteady = if pair.unsteady { "; the offset changed, this is the last" } else { "" };
            format!("{}{unsteady}", skew(&pair.skew))
        }),
    )?;
    list(out, "odd", oddities(&total.oddities).into_iter())?;
    dropped(out, total)
}

fn dropped(out: &mut dyn Write, total: &Total) -> io::Result<()> {
    let dropped = &total.dropped;
    let told = [
        (dropped.spans_beyond_trace, "spans beyond the bound on one trace"),
        (dropped.late_spans, "spans that came after their trace was taken to be complete: see --open-traces"),
        (dropped.closed_early, "traces taken to be complete before the end, to stay within the bound on open ones"),
    ];
    let told: Vec<String> =
        told.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    list(out, "left out, to keep within the bounds", told.into_iter())
}
