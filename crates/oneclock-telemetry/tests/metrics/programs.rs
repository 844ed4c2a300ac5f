//! Programs of others that judge a scrape: Debian's package `prometheus` has both.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A Prometheus of this test's own, which ends with it.
pub(crate) struct Prometheus {
    child: Child,
    pub(crate) addr: SocketAddr,
    folder: tempfile::TempDir,
}

/// Where a program is.
///
/// # Panics
/// If it is not there; the message says how to get it.
pub(crate) fn program(name: &str, variable: &str) -> PathBuf {
    let named = std::env::var_os(variable).filter(|named| !named.is_empty()).map(PathBuf::from);
    let paths: OsString = std::env::var_os("PATH").unwrap_or_default();
    let in_path = || std::env::split_paths(&paths).map(|folder| folder.join(name)).find(|program| program.is_file());
    named.or_else(in_path).unwrap_or_else(|| {
        panic!(
            "this test needs the program {name}, which is in Debian's package prometheus: `apt-get install prometheus`, or \
             name one in {variable}; `cargo xtask test` installs it where it is missing"
        )
    })
}

// === Prometheus ===

impl Prometheus {
    /// Scrapes `target` every second.
    pub(crate) fn scraping(target: SocketAddr) -> Self {
        let program = program("prometheus", "ONECLOCK_PROMETHEUS");
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        let text = format!(
            "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: order\n    static_configs:\n      - targets: \
             ['{target}']\n"
        );
        std::fs::write(&config, text).unwrap();
        // Free when asked; nobody else on this machine takes it in that moment, or the test says that it cannot listen.
        let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(program)
            .arg(option("--config.file=", &config))
            .arg(option("--storage.tsdb.path=", &folder.path().join("data")))
            .arg(format!("--web.listen-address={addr}"))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus starts");
        Self { child, addr, folder }
    }

    /// What it has said, for a test that fails.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
