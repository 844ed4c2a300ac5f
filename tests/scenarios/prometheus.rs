//! A Prometheus of a test's own: Debian's package `prometheus` has it. It scrapes as fast as it can be told to, is asked over
//! its HTTP API, and ends with the test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// Between two scrapes.
pub(crate) const EVERY: Duration = Duration::from_millis(100);

/// It has a log to open and a first interval to wait for, on a machine that does ten things at once.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Prometheus {
    child: Child,
    addr: SocketAddr,
    folder: tempfile::TempDir,
}

/// A series: its labels, `__name__` among them.
pub(crate) type Labels = BTreeMap<String, String>;

/// One series with all that was scraped of it: when, in seconds, and what.
pub(crate) struct Scraped {
    pub(crate) labels: Labels,
    pub(crate) samples: Vec<(f64, f64)>,
}

/// Where one of its programs is.
///
/// # Panics
/// If it is not there; the message says how to get it.
pub(crate) fn program(name: &str, variable: &str) -> PathBuf {
    let named = std::env::var_os(variable).filter(|named| !named.is_empty()).map(PathBuf::from);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let in_path = || std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|program| program.is_file());
    named.or_else(in_path).unwrap_or_else(|| {
        panic!(
            "this test needs the program {name}, which is in Debian's package prometheus: `apt-get install prometheus`, or \
             name one in {variable}"
        )
    })
}

// === Prometheus ===

impl Prometheus {
    /// Scrapes these, each under its name as the job.
    pub(crate) fn scraping(targets: &[(&'static str, SocketAddr)]) -> Self {
        let program = program("prometheus", "ONECLOCK_PROMETHEUS");
        let folder = tempfile::tempdir().unwrap();
        let mut config =
            format!("global:\n  scrape_interval: {0}ms\n  scrape_timeout: {0}ms\nscrape_configs:\n", EVERY.as_millis());
        for (job, target) in targets {
            writeln!(config, "- job_name: {job}\n  static_configs:\n  - targets: ['{target}']").unwrap();
        }
        std::fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        // Free when asked; nobody else on this machine takes it in that moment, or the test says that it cannot listen.
        let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(program)
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={addr}"))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus starts");
        Self { child, addr, folder }
    }

    /// The sum of what an expression gives now; zero if that is nothing, as it is of a counter before its first event.
    pub(crate) async fn sum(&self, query: &str) -> f64 {
        let result = self.ask(&format!("sum({query})")).await;
        result.first().map_or(0.0, |sum| number(&sum["value"]))
    }

    /// What an expression gives now, by the values of one of its labels.
    pub(crate) async fn by_label(&self, query: &str, label: &str) -> BTreeMap<String, f64> {
        let result = self.ask(query).await;
        result.iter().map(|series| (labels(series)[label].clone(), number(&series["value"]))).collect()
    }

    /// All that was scraped of what a selector chooses.
    pub(crate) async fn scraped(&self, selector: &str) -> Vec<Scraped> {
        let result = self.ask(&format!("{selector}[1h]")).await;
        let samples = |series: &Value| {
            let samples = series["values"].as_array().unwrap().iter();
            samples.map(|sample| (sample[0].as_f64().unwrap(), number(sample))).collect()
        };
        result.iter().map(|series| Scraped { labels: labels(series), samples: samples(series) }).collect()
    }

    async fn ask(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let url = format!("http://{}/api/v1/query?query={encoded}", self.addr);
        let answer = async {
            loop {
                if let Ok(answer) = reqwest::get(&url).await
                    && answer.status() != 503
                {
                    return answer.bytes().await.expect("its answer");
                }
                tokio::time::sleep(Duration::from_millis(20)).await; // it is starting
            }
        };
        let answer = tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("{}", self.log()));
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().expect("a vector or a matrix").clone()
    }

    /// What it has said, for a test that fails.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

fn labels(series: &Value) -> Labels {
    let labels = series["metric"].as_object().unwrap().iter();
    labels.map(|(label, value)| (label.clone(), value.as_str().unwrap().to_owned())).collect()
}

fn number(sample: &Value) -> f64 {
    sample[1].as_str().unwrap().parse().unwrap()
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
