//! The access log: what a line says, which requests leave one, and where it goes.

mod causes;
mod kept;
mod lines;
mod longer;
mod written;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use oneclock_proxy::Running;
use oneclock_proxy::config::{AccessLog, Config, LogTo, Retry, Share};
use oneclock_test::Protocol;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{config, start};

/// A proxy with an access log in a folder of its own.
struct Logged {
    proxy: Running,
    folder: TempDir,
}

const NAME: &str = "access.json";

impl Logged {
    /// Before this upstream, and every request leaves a line.
    async fn before(upstream: SocketAddr, protocol: Protocol) -> Self {
        Self::with(config(upstream, protocol), |_| {}).await
    }

    async fn with(mut config: Config, change: impl FnOnce(&mut AccessLog)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        config.access_log.to = LogTo::File(folder.path().join(NAME));
        change(&mut config.access_log);
        Self { proxy: start(config).await, folder }
    }

    fn addr(&self) -> SocketAddr {
        crate::common::address(&self.proxy)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    /// All lines, once everything has ended and is written.
    async fn lines(self) -> Vec<Value> {
        let (file, Self { proxy, folder: _folder }) = (self.file(), self);
        proxy.shutdown().await;
        lines_in(&file)
    }

    /// The line of the one request that was made.
    async fn line(self) -> Value {
        let mut lines = self.lines().await;
        assert_eq!(lines.len(), 1, "{lines:#?}");
        lines.remove(0)
    }
}

/// The configuration's own way to a second attempt.
fn one_retry() -> Retry {
    let file =
        "upstreams: { app: { url: 'http://127.0.0.1:1' } }\nroutes: [{ upstream: app, retry: { attempts: 1 } }]\n";
    Config::parse(file).expect("a configuration").routes[0].retry.clone().expect("a retry")
}

fn share(millionths: u32) -> Share {
    Share::of_millionths(millionths).expect("a share")
}

#[track_caller]
fn lines_in(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// What a line says of these fields, as one value that can be compared.
#[track_caller]
fn says<const N: usize>(line: &Value, fields: [(&str, Value); N]) {
    for (field, want) in fields {
        assert_eq!(line[field], want, "{field} in {line:#}");
    }
}

#[track_caller]
fn millis(line: &Value, field: &str) -> f64 {
    line[field].as_f64().unwrap_or_else(|| panic!("no {field} in {line:#}"))
}
