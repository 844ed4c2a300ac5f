//! Which alerts fire on what was scraped: the rules that `oneclock alerts` writes, with the windows and waits that it has by
//! default, and `promtool` to decide.
//!
//! Rules speak of minutes and scenarios take seconds. So the clock of a recording is stretched: between two scrapes lie 100 ms
//! in the run and a minute before the rules. Values are as they were scraped, one for each minute, and nothing is made up but
//! the time: at the end the shop stays as it was for long enough for the slowest alert. A scenario brings hundreds of requests
//! and not thousands, so the policy's least numbers are those of a small shop.

use std::collections::BTreeSet;
use std::process::Command;

use oneclock_alerts::{Alert, Policy, Rules};
use serde_json::{Value, json};

use crate::prometheus::{EVERY, Prometheus, Scraped, program};

/// The default policy but for the least numbers, and the sizes of the shop's pools.
const POLICY: &str = "
minimum: 5
zombies: { pools: { blocking: 8, statement: 8 } }
propagation: { minimum: 5 }
calibration: { minimum: 50 }
";

/// Longer than the longest wait, which is the hour of calibration.
const STAYS: usize = 90;

/// An alert, and the job for which it fires.
pub(crate) type Fired = (Alert, &'static str);

/// What was scraped, a minute for each scrape.
pub(crate) struct Recording {
    series: Vec<Value>,
    minutes: usize,
}

// === Recording ===

impl Recording {
    pub(crate) async fn of(prometheus: &Prometheus) -> Self {
        let scraped = prometheus.scraped("{__name__=~\"oneclock_.*\"}").await;
        let times = || scraped.iter().flat_map(|series| series.samples.iter().map(|(at, _)| *at));
        let (first, last) = (times().fold(f64::MAX, f64::min), times().fold(0.0, f64::max));
        let slot = |at: f64| ((at - first) / EVERY.as_secs_f64()).round() as usize;
        let slots = slot(last) + 1;
        let series = scraped.iter().map(|series| stretched(series, slots, slot)).collect();
        Self { series, minutes: slots + STAYS }
    }

    /// Nothing was scraped.
    pub(crate) fn empty() -> Self {
        Self { series: Vec::new(), minutes: STAYS }
    }

    /// One series, its values as `promtool` writes them.
    pub(crate) fn of_one_series(series: &str, values: &str) -> Self {
        Self { series: vec![json!({ "series": series, "values": values })], minutes: STAYS }
    }

    /// Compares what fires, at any time, with what should.
    pub(crate) fn check(&self, should: &BTreeSet<Fired>) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let rules = Rules::of(&Policy::parse(POLICY).unwrap()).to_yaml().unwrap();
        std::fs::write(folder.path().join("rules.yml"), rules).unwrap();
        let fired = |(alert, job): &Fired| json!({ "labels": format!("{{alertname=\"{}\", job=\"{job}\"}}", alert.name()), "value": 1 });
        let end = format!("{}m", self.minutes);
        let test = json!({
            "interval": "1m",
            "input_series": self.series,
            "promql_expr_test": [{
                "expr": format!("max by (alertname, job) (max_over_time(ALERTS{{alertstate=\"firing\"}}[{end}]))"),
                "eval_time": end,
                "exp_samples": should.iter().map(fired).collect::<Vec<_>>(),
            }],
        });
        // JSON is YAML.
        let tests = json!({ "rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test] });
        std::fs::write(folder.path().join("tests.yml"), tests.to_string()).unwrap();
        let mut promtool = Command::new(program("promtool", "ONECLOCK_PROMTOOL"));
        let output = promtool.current_dir(folder.path()).args(["test", "rules", "tests.yml"]).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said).into_owned()) }
    }
}

/// A series as `promtool` reads it: one value for each minute, `_` where nothing was scraped.
fn stretched(scraped: &Scraped, slots: usize, slot: impl Fn(f64) -> usize) -> Value {
    let mut values = vec!["_".to_owned(); slots];
    for (at, value) in &scraped.samples {
        values[slot(*at)] = value.to_string();
    }
    let (_, last) = scraped.samples.last().expect("a series has a sample");
    values.push(format!("{last}x{STAYS}"));
    let labels = scraped.labels.iter().filter(|(label, _)| *label != "__name__");
    let labels: Vec<String> = labels.map(|(label, value)| format!("{label}={value:?}")).collect();
    json!({ "series": format!("{}{{{}}}", scraped.labels["__name__"], labels.join(",")), "values": values.join(" ") })
}
