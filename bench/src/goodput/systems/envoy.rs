//! Envoy in front of each tier: one process, one listener and one controller for a tier.
//!
//! Decides what of a template is replaced: `@A@` to `@C@` are the listeners' ports, `@a@` to `@c@` the tiers', `@admin@` and
//! `@timeout@` (the longest budget) the rest. The files stand in bench/goodput/envoy and are read when a cell begins.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use oneclock_bench::guarded::Guarded;
use tokio::process::Command;
use tokio::time::sleep;

use crate::pool::{Pool, Speaks};
use crate::scenario::Scenario;
use crate::{Failed, clock};

const STARTS_WITHIN: Duration = Duration::from_secs(30);
const COMMON: &str = include_str!("../../../goodput/envoy/common.yaml");

/// The addresses at which Envoy will listen, known before it runs, so that tiers can call each other through it.
#[derive(Debug)]
pub(crate) struct Doors(Vec<SocketAddr>);

/// One that runs. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Envoy {
    pub(crate) pid: u32,
    _program: Guarded,
}

impl Doors {
    /// Free ports, which nobody else takes in the next moment.
    pub(crate) fn find() -> Result<Self, Failed> {
        let held = (0..4).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
        Ok(Self(held.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?))
    }

    /// Of the tiers, the first one first.
    pub(crate) fn tiers(&self, number: usize) -> &[SocketAddr] {
        &self.0[..number]
    }
}

impl Envoy {
    pub(crate) async fn start(
        tools: &Path,
        variant: &str,
        scenario: Scenario,
        doors: &Doors,
        tiers: &[SocketAddr],
    ) -> Result<Self, Failed> {
        let filters = filters(variant)?;
        let admin = doors.0[3];
        let mut text = COMMON.replace("@filters@", &filters).replace("@admin@", &admin.port().to_string());
        for (number, (door, tier)) in [("@A@", "@a@"), ("@B@", "@b@"), ("@C@", "@c@")].into_iter().enumerate() {
            let behind = tiers.get(number).map_or(9, |tier| tier.port()); // 9: nobody
            text = text.replace(door, &doors.0[number].port().to_string()).replace(tier, &behind.to_string());
        }
        text = text.replace("@timeout@", &format!("{}s", scenario.longest().as_secs_f64()));
        let config = std::env::temp_dir().join(format!("goodput-{}-{}.yaml", std::process::id(), admin.port()));
        std::fs::write(&config, text)?;
        let mut command = Command::new(tools.join("envoy"));
        command.arg("--config-path").arg(&config).stdout(Stdio::null());
        command.args(["--concurrency", "1", "--log-level", "error", "--use-dynamic-base-id"]);
        let mut program = Guarded::start(command, &config)?;
        let began = clock::now();
        let asked = Pool::new(admin, Speaks::Http);
        loop {
            if let Some(status) = program.ended()? {
                return Err(format!("Envoy ended at once: {status}").into());
            }
            let answer = asked.ask("/ready", &http::HeaderMap::new()).await;
            if answer.is_ok_and(|answer| answer.status == http::StatusCode::OK) {
                return Ok(Self { pid: program.pid, _program: program });
            }
            if clock::now() - began > STARTS_WITHIN {
                return Err(format!("Envoy was not ready within {STARTS_WITHIN:?}").into());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn filters(variant: &str) -> Result<String, Failed> {
    let text = match variant {
        "plain" => "",
        "adaptive-docs" => include_str!("../../../goodput/envoy/adaptive-docs.yaml"),
        "adaptive-tuned" => include_str!("../../../goodput/envoy/adaptive-tuned.yaml"),
        "admission" => include_str!("../../../goodput/envoy/admission.yaml"),
        other => return Err(format!("no filters are called {other}").into()),
    };
    // Into the list of the template, two spaces below its marker.
    Ok(text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("          {line}\n")).collect())
}
