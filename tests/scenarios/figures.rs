//! The figures of the demo's table beside the numbers that Prometheus has.
//!
//! Decides which number is which figure, and what "the same" is: equal, wherever both can know it; where only one of them
//! can, the bound that the other must keep, with its reason. `docs/guide/scenarios.md` has the same table for people.

use std::fmt;
use std::time::Duration;

use oneclock_checkout::purchase::Service;
use oneclock_checkout::report::Side;
use oneclock_checkout::story::Story;
use oneclock_checkout::watched::Truth;
use oneclock_telemetry::names::{
    CALLS, KEYED, LATE, MISSING, Metric, OPERATION_SECONDS, OPERATIONS, RAN_ON, RAN_ON_SECONDS, ZOMBIES,
};

use crate::prometheus::Prometheus;
use crate::scraped::APP;

/// A figure, and what the metrics say of it.
pub(crate) struct Row {
    figure: String,
    shown: f64,
    metrics: f64,
    must: Must,
}

enum Must {
    /// Both count the same.
    Equal,
    /// The metrics count what the figure does, and more.
    BeAtMost,
    /// The metrics have it in a bucket: from above this on.
    BeInBucketAbove(f64),
}

/// What the app spends of a visit beside its operation, on two busy cores. In seconds.
const BESIDE: f64 = 0.05;

/// The figures of the load.
pub(crate) async fn of_load(prometheus: &Prometheus, story: &Story, side: &Side, truth: &Truth) -> Vec<Row> {
    let ask = Ask(prometheus);
    let taps = ask.of(&OPERATIONS, APP, r#"operation="tap""#).await;
    let left = ask.of(&OPERATIONS, APP, r#"operation="tap",cause="caller_gone""#).await;
    let answered = ask.of(&CALLS, APP, r#"dependency="gateway",outcome="applied""#).await;
    let late = ask.of(&LATE, APP, r#"operation="tap""#).await;
    let mut rows = vec![
        // Whoever left came back once, so that purchase was two taps.
        Row::new("purchases", side.taps, taps - left, Must::Equal),
        Row::new("of the taps, left by their users", truth.left, left, Must::Equal),
        Row::new("answered within patience, or later", side.answers_in_time + side.answers_late, answered, Must::Equal),
        // A refusal may be late as well.
        Row::new("answered later", side.answers_late, late, Must::BeAtMost),
    ];
    if truth.left == 0 {
        // The figures leave out those who left, whose time the histogram has among the others.
        for (quantile, figure) in [(0.50, side.waited_ms_p50), (0.99, side.waited_ms_p99)] {
            rows.push(ask.waited(quantile, figure, truth.visits).await);
        }
    }

    rows.extend(ask.at_work(truth).await);
    let counted = story.counted.name();
    let executions = ask.of(&CALLS, counted, BEGUN).await;
    let per_tap = (executions / taps_of(taps, left) * 100.0).round() / 100.0;
    let figure = format!("how often {counted} worked for one purchase");
    rows.push(Row { figure, shown: side.executions_per_tap, metrics: per_tap, must: Must::Equal });

    // A charge for somebody who was answered was one for somebody who was there, and the first of its purchase.
    let beyond = ask.of(&CALLS, Service::Payment.name(), APPLIED).await - answered;
    rows.push(Row::new("charged although nobody waited any more", side.charged_for_nobody, beyond, Must::BeAtMost));
    rows.push(Row::new("charged more than once", side.double_charges, beyond, Must::BeAtMost));
    if story.within.keys {
        let ran = ask.of(&KEYED, Service::Payment.name(), r#"outcome=~"ran|took_over""#).await;
        rows.push(Row::new(
            "executions at payment, by their keys",
            truth.executions[&Service::Payment],
            ran,
            Must::Equal,
        ));
    }

    // How many those were nobody but the witness knows: most were done before the news came that their user had left. What
    // went on after that is told, in whole seconds of the sum.
    let ran_on = ask.everywhere(&RAN_ON_SECONDS, "").await;
    let figure = "seconds spent on work finished after its caller had left".to_owned();
    let shown = side.finished_after_caller_left_seconds;
    rows.push(Row { figure, shown, metrics: ran_on + 1.0, must: Must::BeAtMost });
    rows.push(ask.running_on("at work 50 ms after the user's time was up", side.running_50ms_after_deadline).await);
    let told_nothing =
        |service: &Service| if story.silent_hop == Some(Service::Order) { truth.executions[service] } else { 0 };
    for service in BELOW_ORDER {
        let missing = ask.of(&MISSING, service.name(), "").await;
        rows.push(Row::new(
            format!("executions at {} that were told nothing", service.name()),
            told_nothing(&service),
            missing,
            Must::Equal,
        ));
    }
    let backends = side.backends.map_or(0, |backends| backends.at_work_50ms_after);
    rows.push(Row::new(
        "backends at work after the last user had left, and other zombies",
        backends,
        ask.everywhere(&ZOMBIES, "").await,
        Must::Equal,
    ));
    rows
}

/// The figures of the one tap that comes after the load. `before` is how often the counted service had worked until then.
pub(crate) async fn of_typical(
    prometheus: &Prometheus,
    story: &Story,
    side: &Side,
    truth: &Truth,
    before: usize,
) -> Vec<Row> {
    let ask = Ask(prometheus);
    let mut rows = ask.at_work(truth).await;
    rows.push(ask.running_on("of the one tap, at work 50 ms after", side.typical.running_50ms_after_deadline).await);
    if story.crowd == 0 {
        let answered = ask.of(&CALLS, APP, r#"dependency="gateway",outcome="applied""#).await;
        let of_the_load = side.answers_in_time + side.answers_late;
        let shown = usize::from(side.typical.answered);
        rows.push(Row::new("the one tap was answered", shown, answered - of_the_load as f64, Must::Equal));
        let counted = story.counted.name();
        let executions = ask.of(&CALLS, counted, BEGUN).await - before as f64;
        let figure = format!("how often {counted} worked for the one tap");
        rows.push(Row::new(figure, side.typical.executions, executions, Must::Equal));
    }
    rows
}

const BEGUN: &str = r#"dependency="database",outcome!="not_sent""#;
const APPLIED: &str = r#"dependency="database",outcome="applied""#;

/// Those that the order service calls.
const BELOW_ORDER: [Service; 4] = [Service::Inventory, Service::Pricing, Service::Recommendations, Service::Payment];

fn taps_of(taps: f64, left: f64) -> f64 {
    (taps - left).max(1.0)
}

struct Ask<'a>(&'a Prometheus);

// === Ask ===

impl Ask<'_> {
    async fn of(&self, metric: &Metric, job: &str, matchers: &str) -> f64 {
        self.everywhere(metric, &format!("job=\"{job}\",{matchers}")).await
    }

    async fn everywhere(&self, metric: &Metric, matchers: &str) -> f64 {
        self.0.sum(&format!("{}{{{matchers}}}", metric.name)).await
    }

    /// What each service did at its database: begun, and written down.
    async fn at_work(&self, truth: &Truth) -> Vec<Row> {
        let mut rows = Vec::new();
        for service in Service::ALL {
            let name = service.name();
            let begun = self.of(&CALLS, name, BEGUN).await;
            rows.push(Row::new(format!("executions at {name}"), truth.executions[&service], begun, Must::Equal));
            let applied = self.of(&CALLS, name, APPLIED).await;
            rows.push(Row::new(format!("records of {name}"), truth.finished[&service], applied, Must::Equal));
        }
        rows
    }

    /// What ran on is work that its own operation did not end; what was told nothing may go on as well, and is counted.
    async fn running_on(&self, figure: &str, shown: usize) -> Row {
        let known = self.everywhere(&RAN_ON, "").await + self.everywhere(&MISSING, "").await;
        Row::new(figure, shown, known, Must::BeAtMost)
    }

    /// The bucket that this percentile of the taps is in.
    async fn waited(&self, quantile: f64, figure: u64, visits: usize) -> Row {
        let name = OPERATION_SECONDS.name;
        let rank = (visits as f64 * quantile).ceil();
        let buckets = format!("sum by (le) ({name}_bucket{{job=\"{APP}\",operation=\"tap\"}})");
        let edges = self.0.by_label(&buckets, "le").await;
        let mut edges: Vec<(f64, f64)> = edges.into_iter().map(|(le, count)| (le.parse().unwrap(), count)).collect();
        edges.sort_by(|a, b| a.0.total_cmp(&b.0));
        let at = edges.iter().position(|(_, count)| *count >= rank);
        let upper = at.map_or(0.0, |at| edges[at].0);
        let lower = at.and_then(|at| at.checked_sub(1)).map_or(0.0, |below| edges[below].0);
        let shown = Duration::from_millis(figure).as_secs_f64();
        let figure = format!("waited, {}th percentile, in seconds", quantile * 100.0);
        Row { figure, shown, metrics: upper, must: Must::BeInBucketAbove(lower) }
    }
}

// === Row ===

impl Row {
    fn new(figure: impl Into<String>, shown: usize, metrics: f64, must: Must) -> Self {
        Self { figure: figure.into(), shown: shown as f64, metrics, must }
    }

    pub(crate) fn figure(&self) -> &str {
        &self.figure
    }

    pub(crate) fn holds(&self) -> bool {
        match self.must {
            Must::Equal => self.shown == self.metrics,
            Must::BeAtMost => self.shown <= self.metrics,
            // The figure is cut to whole milliseconds.
            Must::BeInBucketAbove(lower) => self.shown + 0.001 >= lower && self.shown <= self.metrics + BESIDE,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figure, shown, metrics, must } = self;
        let how = match must {
            Must::Equal => "=".to_owned(),
            Must::BeAtMost => "<=".to_owned(),
            Must::BeInBucketAbove(lower) => format!("in ({lower}, ..]"),
        };
        let wrong = if self.holds() { "" } else { "   WRONG" };
        write!(f, "{figure:64} {shown:>8} {how:>12} {metrics:>8}{wrong}")
    }
}
