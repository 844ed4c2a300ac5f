//! The demo's words and tables.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use oneclock_checkout::OpenShop;
use oneclock_checkout::purchase::Service;
use oneclock_checkout::report::{Node, Scenario, Side, Typical};
use oneclock_checkout::story::Story;
use oneclock_checkout::transport::Transport;

pub(super) const HEADING: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default();

const LABEL: usize = 52;
const INDEPENDENT: usize = 20;
const PROPAGATED: usize = 12;

/// Which way a figure is better.
#[derive(Clone, Copy)]
pub(super) enum Better {
    More,
    Less,
    Neither,
}

pub(super) fn opening(out: &mut impl Write, on_postgres: bool, transport: Transport) -> io::Result<()> {
    let on_postgres = if on_postgres { " Inventory, order and payment are on PostgreSQL." } else { "" };
    let over = match transport {
        Transport::Http => "",
        Transport::Grpc => "\nPricing and payment speak gRPC.",
    };
    writeln!(
        out,
        "\
A shop of six services with their own databases, on loopback sockets: gateway, order, inventory, pricing,
recommendations, payment.{on_postgres}{over} Each story runs twice, with the same taps on \"buy\" and the same trouble:

  {HEADING}independent timeouts{HEADING:#}   every layer has a limit of its own that looks reasonable, and the app tries again
  {HEADING}one budget{HEADING:#}             a tap has as long as its user waits; every hop is told what is left and stops then
"
    )
}

/// Whether the trees of a story are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trees {
    Shown,
    LeftOut,
}

pub(super) fn scenario(
    out: &mut impl Write,
    story: &Story,
    transport: Transport,
    scenario: &Scenario,
    trees: Trees,
) -> io::Result<()> {
    let Scenario { independent, propagated, .. } = scenario;
    writeln!(out, "{HEADING}{}{HEADING:#}", story.name)?;
    paragraph(out, story.told)?;
    let span = |run: Duration| in_words(story.as_told(run));
    let limits = story.limits;
    paragraph(
        out,
        &format!(
            "The limits, each alone: app {} × {}, gateway {}, services {}, payment {}{}, recommendations {} (of the head), \
             pricing {}; {}.",
            span(story.patience),
            story.tries,
            span(limits.gateway),
            span(limits.services),
            span(limits.payment),
            if limits.payment_tries > 1 { format!(" × {}", limits.payment_tries) } else { String::new() },
            span(limits.recommendations),
            span(limits.pricing),
            match transport {
                Transport::Http => "the call to pricing and the wait for a database have none".to_owned(),
                Transport::Grpc => format!(
                    "a channel to pricing or payment {}, which the far side is not told; the wait for a database has none",
                    span(limits.services)
                ),
            },
        ),
    )?;
    let within = story.within;
    paragraph(
        out,
        &format!(
            "The budget: {}; within it {} are kept for payment, inventory's database gets at most {} with all its \
             waiting, recommendations {} (head and body), and pricing gives itself {} when it is told nothing.",
            span(story.patience),
            span(within.reserve),
            span(within.inventory_database),
            span(limits.recommendations),
            span(within.absent),
        ),
    )?;
    if story.scale > 1 {
        let scale = story.scale;
        paragraph(
            out,
            &format!(
                "Run {scale} times faster than told: {} are {} below.",
                span(story.patience),
                in_words(story.patience)
            ),
        )?;
    }
    writeln!(out)?;
    columns(out)?;
    figures(out, scenario)?;
    writeln!(out, "\n  {HEADING}One tap that met the trouble{HEADING:#}")?;
    let mut row = |better, label: &str, value: &dyn Fn(&Side) -> Figure| {
        compared(out, better, label, &value(independent), &value(propagated))
    };
    row(Better::More, "answered", &|side| Figure::answered(side.typical, scenario.patience_ms))?;
    row(Better::Less, "its user waited", &|side| Figure::millis(side.typical.waited_ms))?;
    row(Better::Less, &format!("how often {} worked for it", scenario.counted), &|side| {
        Figure::count(side.typical.executions)
    })?;
    row(Better::Less, "at work for it 50 ms after the user's time was up", &|side| {
        Figure::count(side.typical.running_50ms_after_deadline)
    })?;
    if trees == Trees::LeftOut {
        return writeln!(out, "  {DIM}where its time went: --scenario {}{DIM:#}\n", story.name);
    }
    tree(out, "independent timeouts, as seen from outside, since no service knows", independent.ledger.as_ref())?;
    tree(out, "one budget, as the services' own ledgers tell it", propagated.ledger.as_ref())?;
    writeln!(out)
}

/// The heading of all that is [`compared`].
pub(super) fn columns(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "  {:LABEL$} {DIM}{:>INDEPENDENT$} {:>PROPAGATED$}{DIM:#}", "", "independent timeouts", "one budget")
}

fn figures(out: &mut impl Write, scenario: &Scenario) -> io::Result<()> {
    let Scenario { independent, propagated, counted, patience_ms, hopeless, .. } = scenario;
    let mut row = |better, label: &str, value: &dyn Fn(&Side) -> Figure| {
        compared(out, better, label, &value(independent), &value(propagated))
    };
    row(Better::Neither, "purchases", &|side| Figure::count(side.taps))?;
    if *hopeless > 0 {
        let label = format!("  of these nobody can answer within {patience_ms} ms");
        row(Better::Neither, &label, &|_| Figure::count(*hopeless))?;
    }
    row(Better::More, &format!("answered within {patience_ms} ms"), &|side| Figure::count(side.answers_in_time))?;
    row(Better::Neither, "answered later", &|side| Figure::count(side.answers_late))?;
    row(Better::Less, "the user waited for an answer or a refusal, median", &|side| {
        Figure::millis(side.waited_ms_p50)
    })?;
    row(Better::Less, "  99th percentile", &|side| Figure::millis(side.waited_ms_p99))?;
    row(Better::Less, &format!("how often {counted} worked for one purchase"), &|side| {
        Figure::decimal(side.executions_per_tap, "")
    })?;
    row(Better::Less, "work finished after its caller had left", &|side| {
        Figure::count(side.finished_after_caller_left)
    })?;
    row(Better::Less, "  time spent on it", &|side| Figure::decimal(side.finished_after_caller_left_seconds, " s"))?;
    row(Better::Less, "at work 50 ms after the user's time was up", &|side| {
        Figure::count(side.running_50ms_after_deadline)
    })?;
    row(Better::Less, "charged although nobody waited any more", &|side| Figure::count(side.charged_for_nobody))?;
    row(Better::Less, "charged more than once", &|side| Figure::count(side.double_charges))?;
    if let (Some(_), Some(_)) = (independent.backends, propagated.backends) {
        let backends = |side: &Side| side.backends.unwrap_or_default();
        row(Better::Less, "backends at work 50 ms after the last user had left", &|side| {
            Figure::count(backends(side).at_work_50ms_after)
        })?;
        row(Better::Less, "  until all of them were idle", &|side| match backends(side).idle_after_ms {
            Some(after) => Figure::millis(after),
            None => Figure::said("over 10 s", f64::MAX),
        })?;
    }
    Ok(())
}

/// All scenarios at a glance.
pub(super) fn summary(out: &mut impl Write, scenarios: &[Scenario]) -> io::Result<()> {
    writeln!(out, "{HEADING}In short{HEADING:#}, independent timeouts → one budget\n")?;
    writeln!(
        out,
        "  {DIM}{:18} {:>18} {:>22} {:>20} {:>16}{DIM:#}",
        "", "answered in time", "wait, 99th percentile", "finished for nobody", "double charges"
    )?;
    for Scenario { name, independent, propagated, scale, .. } in scenarios {
        let name = if *scale > 1 { format!("{name} *") } else { (*name).to_owned() };
        let pair = |value: &dyn Fn(&Side) -> String| format!("{} → {}", value(independent), value(propagated));
        writeln!(
            out,
            "  {name:18} {:>18} {:>22} {:>20} {:>16}",
            pair(&|side| format!("{} %", side.answers_in_time * 100 / side.taps.max(1))),
            pair(&|side| format!("{} ms", side.waited_ms_p99)),
            pair(&|side| side.finished_after_caller_left.to_string()),
            pair(&|side| side.double_charges.to_string()),
        )?;
    }
    if let Some(faster) = scenarios.iter().find(|scenario| scenario.scale > 1) {
        writeln!(out, "\n  {DIM}* run {} times faster than told{DIM:#}", faster.scale)?;
    }
    Ok(())
}

/// Where the shop is, and what can be done with it.
pub(super) fn addresses(out: &mut impl Write, story: &Story, transport: Transport, shop: &OpenShop) -> io::Result<()> {
    writeln!(out, "{HEADING}The shop is open{HEADING:#}, with the limits of {}. ctrl-c closes it.\n", story.name)?;
    writeln!(out, "  {DIM}{:18} {:28} {:28}{DIM:#}", "", "independent timeouts", "one budget")?;
    for service in Service::ALL {
        let (independent, propagated) = (shop.independent.base(service), shop.propagated.base(service));
        writeln!(out, "  {:18} {independent:28} {propagated:28}", service.name())?;
    }
    writeln!(
        out,
        "
  Make pricing slow in both, tap \"buy\" with 300 ms to spend, and see how long each takes; then what the order service
  tells a caller of ours:

    for control in {independent_control} {propagated_control}; do
      curl -X PUT -H 'content-type: application/json' -d '{{\"slow_ms\": 3000}}' $control; echo; done
    curl -s -w '\\n%{{time_total}} s\\n' -X POST {independent}
    curl -s -w '\\n%{{time_total}} s\\n' -X POST -H 'x-remaining-ms: 300' {propagated}
    curl -s -X POST -H 'x-remaining-ms: 300' {order}

  Troubles, alone or together: slow_ms (a number), stall, trickle, fail, forward_nothing (true), one_in (a number).",
        independent_control = shop.independent.control(Service::Pricing),
        propagated_control = shop.propagated.control(Service::Pricing),
        independent = shop.independent.of(Service::Gateway),
        propagated = shop.propagated.of(Service::Gateway),
        order = shop.propagated.of(Service::Order),
    )?;
    let Some(method) = transport.method_of(Service::Pricing) else { return Ok(()) };
    writeln!(
        out,
        "
  Pricing and payment speak gRPC, by examples/checkout/proto/shop.proto (HTTP/1.1 at /control). Ask for the price of article
  0, an empty message, with 300 ms to spend:

    for pricing in {independent} {propagated}; do
      printf '\\0\\0\\0\\0\\0' | curl -si --http2-prior-knowledge -H 'content-type: application/grpc' \\
        -H 'te: trailers' -H 'grpc-timeout: 300m' --data-binary @- $pricing{method} | grep -a grpc-; done",
        independent = shop.independent.base(Service::Pricing),
        propagated = shop.propagated.base(Service::Pricing),
    )
}

fn tree(out: &mut impl Write, title: &str, tree: Option<&Node>) -> io::Result<()> {
    let Some(tree) = tree else { return Ok(()) };
    writeln!(out, "\n  {DIM}{title}:{DIM:#}")?;
    for line in tree.to_string().lines() {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

pub(super) fn paragraph(out: &mut impl Write, text: &str) -> io::Result<()> {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.chars().count() + word.chars().count() >= 100 {
            writeln!(out, "{line}")?;
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "{line}")
}

pub(super) fn compared(
    out: &mut impl Write,
    better: Better,
    label: &str,
    independent: &Figure,
    propagated: &Figure,
) -> io::Result<()> {
    let (left, right) = better.styles(independent.size, propagated.size);
    writeln!(
        out,
        "  {label:LABEL$} {left}{:>INDEPENDENT$}{left:#} {right}{:>PROPAGATED$}{right:#}",
        independent.text, propagated.text
    )
}

/// Whole seconds as seconds, all else as milliseconds.
pub(super) fn in_words(span: Duration) -> String {
    if span.subsec_millis() == 0 && !span.is_zero() {
        format!("{} s", span.as_secs())
    } else {
        format!("{} ms", span.as_millis())
    }
}

/// One figure, as it is printed and as it is compared.
pub(super) struct Figure {
    text: String,
    size: f64,
}

// === Figure ===

impl Figure {
    pub(super) fn count(count: usize) -> Self {
        Self { text: count.to_string(), size: count as f64 }
    }

    pub(super) fn millis(millis: u64) -> Self {
        Self { text: format!("{millis} ms"), size: millis as f64 }
    }

    pub(super) fn decimal(figure: f64, unit: impl Display) -> Self {
        Self { text: format!("{figure:.2}{unit}"), size: figure }
    }

    pub(super) fn rounded(figure: f64) -> Self {
        Self { text: format!("{figure:.0}"), size: figure }
    }

    pub(super) fn percent(figure: f64) -> Self {
        Self { text: format!("{figure:.1} %"), size: figure }
    }

    pub(super) fn said(text: impl Into<String>, size: f64) -> Self {
        Self { text: text.into(), size }
    }

    fn answered(tap: Typical, patience_ms: u64) -> Self {
        let (text, size) = match (tap.answered, tap.waited_ms <= patience_ms) {
            (true, true) => ("yes", 2.0),
            (true, false) => ("too late", 1.0),
            (false, _) => ("no", 1.0),
        };
        Self { text: text.to_owned(), size }
    }
}

// === Better ===

impl Better {
    /// Colours only where the difference is one: a tenth at least.
    fn styles(self, independent: f64, propagated: f64) -> (Style, Style) {
        let plain = Style::new();
        let apart = (independent - propagated).abs() > 0.1 * independent.max(propagated);
        match self {
            Self::Neither => (plain, plain),
            _ if !apart => (plain, plain),
            Self::More if propagated > independent => (BAD, GOOD),
            Self::Less if propagated < independent => (BAD, GOOD),
            Self::More | Self::Less => (GOOD, BAD),
        }
    }
}
