//! `--scenario overload`: a spike, told as a course over time. Decides how it looks while it runs, on a terminal and in a file.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use oneclock_checkout::ShopClosed;
use oneclock_checkout::overload::{Course, Overload, Progress, Spike, Way};

use super::chart::chart;
use super::print::{Better, Figure, HEADING, columns, compared, in_words, paragraph};

/// The charts, above the bar of all that runs.
const LIVE: &str = "{msg}\n\nrunning the shop both ways: overload         {bar:40} {percent:>3} %";

/// Runs it. On a terminal the charts grow above the progress bar.
pub(super) async fn run(
    spike: &Spike,
    seed: u64,
    bar: &ProgressBar,
    told: impl Fn(f64) + Send + Sync,
) -> Result<Overload, ShopClosed> {
    // The bar's last story: it keeps this style.
    if let Ok(style) = ProgressStyle::with_template(LIVE) {
        bar.set_style(style);
    }
    let choice = anstream::AutoStream::choice(&io::stderr());
    let grows = |progress: Progress<'_>| {
        told(progress.done);
        if bar.is_hidden() {
            return;
        }
        let mut page = anstream::AutoStream::new(Vec::new(), choice);
        let drawn = chart(&mut page, spike, progress.independent, progress.propagated);
        if drawn.is_ok() {
            bar.set_message(String::from_utf8_lossy(&page.into_inner()).into_owned());
        }
    };
    spike.run(seed, grows).await
}

pub(super) fn told(out: &mut impl Write, spike: &Spike, overload: &Overload) -> io::Result<()> {
    writeln!(out, "{HEADING}{}{HEADING:#}", Spike::NAME)?;
    let [_, during, _] = spike.seconds;
    paragraph(
        out,
        &format!(
            "Three services of the shop, gateway → order → pricing. Each can do {} things at once, of {} on average, which makes \
             {:.0} taps a second. For {during} s, {} times as many come; before and after, {} of it.",
            spike.places,
            in_words(spike.work),
            overload.capacity_per_second,
            spike.spike,
            spike.usual,
        ),
    )?;
    paragraph(
        out,
        &format!(
            "The limits, each alone: app {} × {tries}, gateway {} × {tries} for order, order {} × {tries} for pricing; what a \
             service has in its queue is done when its turn comes, whoever has gone in the meantime.",
            in_words(spike.patience),
            in_words(spike.order_limit),
            in_words(spike.pricing_limit),
            tries = spike.tries,
        ),
    )?;
    paragraph(
        out,
        &format!(
            "The budget: {}, and as many tries as fit in. Each service has an admission that knows of its {} places.",
            in_words(spike.patience),
            spike.places
        ),
    )?;
    writeln!(out)?;
    let Overload { independent, propagated, .. } = overload;
    if io::stdout().is_terminal() {
        chart(out, spike, &independent.seconds, &propagated.seconds)?;
        writeln!(out)?;
    } else {
        lines(out, independent, propagated)?;
    }
    writeln!(out)?;
    figures(out, overload)?;
    writeln!(out)?;
    paragraph(out, &conclusion(overload))?;
    writeln!(out)
}

/// A line for each second.
fn lines(out: &mut impl Write, independent: &Course, propagated: &Course) -> io::Result<()> {
    writeln!(out, "  Answered in time\n")?;
    writeln!(out, "  second  load  taps  {:>20}  {:>12}", Way::Independent.to_string(), Way::Propagated.to_string())?;
    for (number, (one, other)) in (1..).zip(independent.seconds.iter().zip(&propagated.seconds)) {
        let (load, taps) = (format!("{}×", one.load), one.taps);
        let (one, other) = (one.answers_in_time, other.answers_in_time);
        writeln!(out, "  {number:>6}  {load:>4}  {taps:>4}  {one:>20}  {other:>12}")?;
    }
    Ok(())
}

fn figures(out: &mut impl Write, overload: &Overload) -> io::Result<()> {
    let Overload { independent, propagated, patience_ms, seconds: [_, _, watched], .. } = overload;
    columns(out)?;
    let mut row = |better, label: &str, value: &dyn Fn(&Course) -> Figure| {
        compared(out, better, label, &value(independent), &value(propagated))
    };
    row(Better::Neither, "taps", &|way| Figure::count(way.taps))?;
    row(Better::More, &format!("answered within {patience_ms} ms"), &|way| Figure::count(way.answers_in_time))?;
    row(Better::More, "  a second, before the spike", &|way| Figure::rounded(way.in_time_per_second.before))?;
    row(Better::More, "  during it", &|way| Figure::rounded(way.in_time_per_second.spike))?;
    row(Better::More, "  after it", &|way| Figure::rounded(way.in_time_per_second.after))?;
    row(Better::Neither, "answered later", &|way| Figure::count(way.answers_late))?;
    row(Better::Neither, "told no while the user still waited", &|way| Figure::count(way.refused))?;
    row(Better::Neither, "  after how long, median", &|way| match way.refused {
        0 => Figure::said("·", 0.0),
        _ => Figure::millis(way.refused_after_ms_p50),
    })?;
    row(Better::Less, "heard nothing in that time", &|way| Figure::count(way.unanswered))?;
    row(Better::Less, "of all work, for tries that got no answer in time", &|way| {
        Figure::percent(way.wasted_percent())
    })?;
    row(Better::Less, "calls to the gateway for one tap", &|way| Figure::decimal(way.calls_per_tap.gateway, ""))?;
    row(Better::Neither, "  to the order service", &|way| Figure::decimal(way.calls_per_tap.order, ""))?;
    row(Better::Neither, "  to pricing", &|way| Figure::decimal(way.calls_per_tap.pricing, ""))?;
    row(Better::Less, "answers as before, after the end of the spike", &|way| match way.recovered_after_seconds {
        Some(0) => Figure::said("at once", 0.0),
        Some(seconds) => Figure::said(format!("after {seconds} s"), f64::from(seconds)),
        None => Figure::said(format!("not in {watched} s"), f64::MAX),
    })
}

/// The figures in words.
fn conclusion(overload: &Overload) -> String {
    let Overload { independent, propagated, capacity_per_second, seconds: [_, _, watched], .. } = overload;
    let back = |way: &Course| match way.recovered_after_seconds {
        Some(0) => "as soon as the spike was over the shop answered as before".to_owned(),
        Some(seconds) => format!("{seconds} s after it the shop answered as before"),
        None => {
            format!(
                "in the {watched} s after it, with no more taps than before, the shop never came back to what it was"
            )
        }
    };
    let said = |way: &Course| {
        let refused = if way.refused > way.unanswered {
            format!(" Who could not be answered was told so after {} ms, median.", way.refused_after_ms_p50)
        } else {
            String::new()
        };
        format!(
            "{:.0} of {capacity_per_second:.0} possible answers a second came in time during the spike, and {}. \
             {:.1} % of all work was for tries without an answer in time.{refused}",
            way.in_time_per_second.spike,
            back(way),
            way.wasted_percent(),
        )
    };
    format!("With {}, {} With {}, {}", Way::Independent, said(independent), Way::Propagated, said(propagated))
}

#[cfg(test)]
mod tests {
    use oneclock_checkout::overload::{CallsPerTap, PerSecond};

    use super::*;

    #[test]
    fn the_figures_are_told_in_words_also_when_they_are_not_what_one_would_like() {
        let course = |spike, refused, wasted_work_seconds, recovered_after_seconds| Course {
            seconds: Vec::new(),
            taps: 1_000,
            answers_in_time: 500,
            answers_late: 0,
            refused,
            refused_after_ms_p50: 2,
            unanswered: 500 - refused,
            in_time_per_second: PerSecond { before: 93.0, spike, after: 93.0 },
            work_seconds: 100.0,
            wasted_work_seconds,
            calls_per_tap: CallsPerTap { gateway: 1.0, order: 1.0, pricing: 1.0 },
            recovered_after_seconds,
        };
        let said = |independent, propagated| {
            let Spike { seconds, .. } = Spike::default();
            conclusion(&Overload {
                name: Spike::NAME,
                capacity_per_second: 133.33,
                patience_ms: 300,
                seconds,
                independent,
                propagated,
            })
        };
        insta::assert_snapshot!(said(course(2.4, 0, 58.0, None), course(121.0, 500, 0.4, Some(0))), @"With independent timeouts, 2 of 133 possible answers a second came in time during the spike, and in the 7 s after it, with no more taps than before, the shop never came back to what it was. 58.0 % of all work was for tries without an answer in time. With one budget, 121 of 133 possible answers a second came in time during the spike, and as soon as the spike was over the shop answered as before. 0.4 % of all work was for tries without an answer in time. Who could not be answered was told so after 2 ms, median.");
        insta::assert_snapshot!(said(course(120.0, 0, 3.0, Some(2)), course(2.0, 500, 40.0, None)), @"With independent timeouts, 120 of 133 possible answers a second came in time during the spike, and 2 s after it the shop answered as before. 3.0 % of all work was for tries without an answer in time. With one budget, 2 of 133 possible answers a second came in time during the spike, and in the 7 s after it, with no more taps than before, the shop never came back to what it was. 40.0 % of all work was for tries without an answer in time. Who could not be answered was told so after 2 ms, median.");
    }
}
