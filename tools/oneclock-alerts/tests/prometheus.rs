//! The dashboard, the playbook and the rules, before the eyes of a real Prometheus that scrapes every declared metric: it
//! understands each expression, and where there are data no panel is empty.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the helpers of a test are a test")]
#![allow(clippy::disallowed_methods, reason = "another process has no paused time")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use oneclock_alerts::{Dashboard, Entry, Policy, Rules};
use oneclock_telemetry::names::{Kind, METRICS, Metric, OVERFLOW, UNBOUNDED};
use serde_json::Value;

/// Longer than it takes on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// A Prometheus with its data, gone when dropped.
struct Prometheus {
    process: Child,
    address: String,
    scrapes: Receiver<()>,
    _data: tempfile::TempDir,
}

/// One value that the queries ask for, of each label.
fn value_of(label: &str, metric: &Metric) -> &'static str {
    match label {
        "operation" => "order",
        "route" => "/orders",
        "dependency" | "destination" => "stock",
        "bound" => "caller",
        "stage" if metric.name.contains("not_admitted") => "arrival",
        "stage" => "pool",
        "cause" => "deadline",
        "reason" => "deadline",
        "queue" => "orders",
        "policy" => "dead-letter",
        "end" => "dead_lettered",
        "fault" => "expiry_missing",
        "outcome" => "applied",
        "kind" => "retry",
        "why" if metric.name.contains("gave_up") => "switched_off",
        "why" => "doomed",
        "admission" => "orders-database",
        "class" => "/orders",
        "mode" => "enforce",
        "change" => "opened",
        "layer" if metric.name.contains("cancellations") => "handler",
        "layer" if metric.name.contains("call") => "database",
        "layer" => "statement",
        _ => panic!("{} has a new label {label}: say here what a value of it is", metric.name),
    }
}

/// What a service says at its n-th scrape.
fn exposition(n: u64) -> String {
    let mut out = String::new();
    for metric in METRICS {
        let labels = metric.labels.iter().map(|label| format!("{label}={:?}", value_of(label, metric)));
        let labels = labels.collect::<Vec<_>>().join(",");
        let name = metric.name;
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", metric.help);
        // More calls than retries, as there are.
        let value = if name.contains("calls_total") { 3 * n } else { n };
        if metric.kind == Kind::Histogram {
            let _ =
                writeln!(out, "{name}_bucket{{{labels},le=\"0.1\"}} {n}\n{name}_bucket{{{labels},le=\"+Inf\"}} {n}");
            let _ = writeln!(out, "{name}_sum{{{labels}}} {n}\n{name}_count{{{labels}}} {n}");
        } else {
            let _ = writeln!(out, "{name}{{{labels}}} {value}");
            if metric.kind == Kind::Counter && metric.labels.iter().any(|label| UNBOUNDED.contains(label)) {
                let value_of = |label| if UNBOUNDED.contains(&label) { OVERFLOW } else { value_of(label, metric) };
                let labels = metric.labels.iter().map(|label| format!("{label}={:?}", value_of(*label)));
                let _ = writeln!(out, "{name}{{{}}} {value}", labels.collect::<Vec<_>>().join(","));
            }
        }
    }
    out
}

/// A service to be scraped. Tells of each scrape.
fn service() -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for (n, stream) in (1..).zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            let head = BufReader::new(stream.try_clone().unwrap()).lines();
            head.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            let body = exposition(n);
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close\r\ncontent-length:";
            let _ = write!(stream, "{head} {}\r\n\r\n{body}", body.len());
            if tell.send(()).is_err() {
                return;
            }
        }
    });
    (address, told)
}

impl Prometheus {
    fn start(rules: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let (service, scrapes) = service();
        std::fs::write(data.path().join("rules.yml"), rules).unwrap();
        let config = format!(
            "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms }}\n\
             rule_files: [rules.yml]\n\
             scrape_configs: [{{ job_name: shop, static_configs: [{{ targets: [\"{service}\"] }}] }}]\n"
        );
        std::fs::write(data.path().join("prometheus.yml"), config).unwrap();
        // It says of no port which one it took, so it is told a free one.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let process = Self::run(data.path(), &address);
        Self { process, address, scrapes, _data: data }
    }

    fn run(data: &Path, address: &str) -> Child {
        Command::new("prometheus")
            .current_dir(data)
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=error"])
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("prometheus does not run ({error}): it is in Debian's package `prometheus`; install that")
            })
    }

    /// A scrape is stored before the next one begins.
    fn has_stored(&self, scrapes: usize) {
        for n in 0..=scrapes {
            self.scrapes.recv_timeout(BOUND).unwrap_or_else(|_| panic!("no scrape after {n}"));
        }
    }

    fn ask(&self, path: &str, query: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).expect("it scrapes, so it listens");
        stream.set_read_timeout(Some(BOUND)).unwrap();
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let query = if query.is_empty() { String::new() } else { format!("?query={encoded}") };
        write!(stream, "GET /api/v1/{path}{query} HTTP/1.0\r\nhost: {}\r\n\r\n", self.address).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// What a query finds; it must be understood.
    #[track_caller]
    fn finds(&self, query: &str) -> Vec<Value> {
        let answer = self.ask("query", query);
        assert_eq!(answer["status"], "success", "{query}\n{answer}");
        answer["data"]["result"].as_array().expect("a vector").clone()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn prometheus_understands_every_expression_and_no_panel_is_empty_where_there_are_data() {
    let prometheus = Prometheus::start(&Rules::of(&Policy::default()).to_yaml().unwrap());
    prometheus.has_stored(4);

    for metric in METRICS {
        let name =
            if metric.kind == Kind::Histogram { format!("{}_count", metric.name) } else { metric.name.to_owned() };
        assert!(!prometheus.finds(&name).is_empty(), "the test does not tell of {name}");
    }
    for expression in Dashboard::new().expressions() {
        let asked = expression.expr.replace("$__rate_interval", "1m").replace("$job", "shop|other");
        assert!(!asked.contains('$'), "a variable that the dashboard does not declare: {asked}");
        let found = prometheus.finds(&asked);
        assert!(!found.is_empty(), "{} is empty: {asked}", expression.panel);
        let other = expression.expr.replace("$__rate_interval", "1m").replace("$job", "other");
        assert!(prometheus.finds(&other).is_empty(), "{} shows services that were not chosen", expression.panel);
    }
    for entry in Entry::ALL {
        for query in entry.page().queries() {
            // One box may hold two, with a heading each.
            for query in query.split("\n\n") {
                let found = prometheus.finds(query);
                let needs_yesterday = query.contains("offset");
                assert!(needs_yesterday || !found.is_empty(), "{}: nothing is found by {query}", entry.name());
            }
        }
    }
    let groups = prometheus.ask("rules", "");
    let groups = groups["data"]["groups"].as_array().expect("groups");
    let rules: Vec<_> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    assert!(rules.len() > 10);
    for rule in rules {
        assert_ne!(rule["health"], "err", "{rule}");
    }
}

#[test]
fn every_metric_is_on_the_dashboard() {
    let dashboard = Dashboard::new();
    for metric in METRICS {
        let shown = dashboard.expressions().any(|expression| expression.expr.contains(metric.name));
        assert!(shown, "{} is on no panel: add it in src/dashboard/panels.rs", metric.name);
    }
}

/// An expression that asks for a label that its metric has not finds nothing, and says nothing.
#[test]
fn every_label_is_one_that_its_metric_has() {
    let rules = Rules::of(&Policy::default()).to_yaml().unwrap();
    let dashboard = Dashboard::new();
    let pages: Vec<_> = Entry::ALL.iter().map(|entry| entry.page()).collect();
    let texts = dashboard.expressions().map(|expression| expression.expr).chain([rules.as_str()]);
    let texts = texts.chain(pages.iter().flat_map(|page| page.queries()));
    let mut asked = 0;
    for (text, metric) in texts.flat_map(|text| METRICS.iter().map(move |metric| (text, metric))) {
        for (at, _) in text.match_indices(metric.name) {
            let rest = &text[at + metric.name.len()..];
            let rest = ["_bucket", "_count", "_sum"].iter().find_map(|part| rest.strip_prefix(part)).unwrap_or(rest);
            let Some(matchers) = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()) else { continue };
            for matcher in matchers.split(',') {
                let label = matcher.split(['=', '!']).next().unwrap();
                assert!(
                    label == "job" || metric.labels.contains(&label),
                    "{} has no label {label}: {text}",
                    metric.name
                );
                asked += 1;
            }
        }
    }
    assert!(asked > 20, "{asked}");
}

#[test]
fn the_dashboard_is_one_that_grafana_takes() {
    let json = Dashboard::new().to_json();
    assert_eq!(json["schemaVersion"], 39);
    let variables: Vec<_> =
        json["templating"]["list"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(variables, ["datasource", "job"]);
    let panels = json["panels"].as_array().unwrap();
    let mut ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    ids.dedup();
    assert_eq!(ids.len(), panels.len(), "every id once");
    let mut taken = std::collections::BTreeSet::new();
    for panel in panels {
        let number = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for x in number("x")..number("x") + number("w") {
            assert!(x < 24, "{panel}");
            for y in number("y")..number("y") + number("h") {
                assert!(taken.insert((x, y)), "two panels in one place: {panel}");
            }
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        }
    }
}
