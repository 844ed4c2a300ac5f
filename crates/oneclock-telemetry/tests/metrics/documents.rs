//! The guide lists every metric with its labels, and none that is not there.

use std::fmt::Write as _;
use std::path::Path;

use oneclock_telemetry::names::{Kind, METRICS, Metric};

fn line_of(metric: &Metric) -> String {
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    format!("| `{}` | {kind} | {} | {} |", metric.name, labels.join(", "), metric.help)
}

#[test]
fn the_guide_has_a_line_for_every_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/metrics.md");
    let guide = std::fs::read_to_string(&path).expect("docs/guide/metrics.md");
    let mut said = String::new();
    for metric in METRICS {
        let line = line_of(metric);
        if !guide.lines().any(|there| there == line) {
            let _ = writeln!(said, "add to docs/guide/metrics.md:\n{line}");
        }
    }
    for line in guide.lines().filter(|line| line.starts_with("| `oneclock_")) {
        if !METRICS.iter().any(|metric| line_of(metric) == line) {
            let _ = writeln!(said, "remove from docs/guide/metrics.md, or declare it in src/names.rs:\n{line}");
        }
    }
    for word in guide.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| w.starts_with("oneclock_")) {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| word.strip_suffix(suffix)).unwrap_or(word);
        let is_crate = ["oneclock_telemetry", "oneclock_core", "oneclock_axum", "oneclock_http"].contains(&word);
        if !is_crate && word != "oneclock_" && !METRICS.iter().any(|metric| metric.name == word || metric.name == base)
        {
            let _ = writeln!(said, "docs/guide/metrics.md names {word}, which src/names.rs does not declare");
        }
    }
    assert!(said.is_empty(), "{said}");
}
