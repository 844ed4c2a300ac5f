//! The columns: who stands before the backend, as what, and which of the things that a row asks about it knows at all.
//!
//! Each configuration stands under `config/` as one could run it; here its ports are replaced.

mod envoy;
mod haproxy;
mod nginx;
mod ours;

use std::net::SocketAddr;
use std::path::Path;

use oneclock_core::wire::names;
use tokio::process::Command;

use crate::backend::Backend;
use crate::process::{self, Folder, Process};

/// One column of the table.
#[derive(Debug)]
pub(crate) struct Column {
    /// For `--proxy`.
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    /// Whether it has every setting of its own that helps.
    pub(crate) helped: bool,
    /// Its configuration, under `config/`.
    pub(crate) file: &'static str,
    config: &'static str,
    /// What is set, beside the timeouts and retries that the rows ask for.
    pub(crate) set: &'static str,
    pub(crate) knows: Knows,
}

/// What a proxy has a notion of. A row about something else says nothing of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knows {
    /// The field from which it takes how many milliseconds its caller has left, and in which it tells its upstream.
    pub(crate) budget: Option<&'static str>,
    /// A limit for all attempts at one request together.
    pub(crate) total: bool,
    /// Requests that wait until the upstream takes them.
    pub(crate) queue: bool,
}

/// Whose program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Oneclock,
    Envoy,
    Haproxy,
    Nginx,
}

/// A proxy that runs, until it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    /// Where it speaks HTTP/1.1.
    pub(crate) http: SocketAddr,
    /// Where it speaks HTTP/2, by prior knowledge.
    pub(crate) rpc: SocketAddr,
    _held: Held,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held for their ends only")]
enum Held {
    Process(Box<Process>),
    #[cfg(test)]
    Here(oneclock_proxy::Running),
}

/// Where everybody is.
#[derive(Clone, Copy, Debug)]
struct Places {
    http: SocketAddr,
    rpc: SocketAddr,
    backend_http: SocketAddr,
    backend_rpc: SocketAddr,
}

const OURS: Knows = Knows { budget: Some(names::X_REMAINING_MS), total: true, queue: true };
const ENVOY: Knows = Knows { budget: Some(names::X_ENVOY_EXPECTED_RQ_TIMEOUT_MS), total: true, queue: true };
const HAPROXY: Knows = Knows { budget: None, total: false, queue: true };
const NGINX: Knows = Knows { budget: None, total: true, queue: false };

/// In the order of the table. Ours is the first.
pub(crate) const COLUMNS: &[Column] = &[
    Column {
        name: "oneclock",
        program: Program::Oneclock,
        helped: false,
        file: "oneclock.yaml",
        config: include_str!("../../config/oneclock.yaml"),
        set: "`trust: inside`: its callers are ours, and are told more; `minUseful` for one row, which no other has",
        knows: OURS,
    },
    Column {
        name: "envoy",
        program: Program::Envoy,
        helped: false,
        file: "envoy.yaml",
        config: include_str!("../../config/envoy.yaml"),
        set: "nothing",
        knows: ENVOY,
    },
    Column {
        name: "envoy-settings",
        program: Program::Envoy,
        helped: true,
        file: "envoy-settings.yaml",
        config: include_str!("../../config/envoy-settings.yaml"),
        set: "`respect_expected_rq_timeout`, `use_remote_address` with its callers inside, `request_timeout`, `delayed_close_timeout`, retries for GET \
              only, `rate_limited_retry_back_off` by `retry-after`; for gRPC `timeout: 0s`, `max_stream_duration` and \
              `grpc_timeout_header_max`",
        knows: ENVOY,
    },
    Column {
        name: "haproxy",
        program: Program::Haproxy,
        helped: false,
        file: "haproxy.cfg",
        config: include_str!("../../config/haproxy.cfg"),
        set: "nothing",
        knows: HAPROXY,
    },
    Column {
        name: "haproxy-settings",
        program: Program::Haproxy,
        helped: true,
        file: "haproxy-settings.cfg",
        config: include_str!("../../config/haproxy-settings.cfg"),
        set: "`option abortonclose` in `defaults`, `option http-buffer-request` with `timeout http-request`, \
              `disable-l7-retry unless METH_GET`",
        knows: HAPROXY,
    },
    Column {
        name: "nginx",
        program: Program::Nginx,
        helped: false,
        file: "nginx.conf",
        config: include_str!("../../config/nginx.conf"),
        set: "nothing; its retries go to another server, so the service stands there under four names",
        knows: NGINX,
    },
];

// === Knows ===

impl Knows {
    /// A field for a row about time. One that it does not know, if it knows none: that is passed on as it came.
    pub(crate) fn field(self) -> &'static str {
        self.budget.unwrap_or(names::X_REMAINING_MS)
    }
}

// === Column ===

impl Column {
    /// What stands over it.
    pub(crate) fn title(&self, version: &str) -> String {
        format!("{} {version}{}", self.program.title(), if self.helped { " with its settings" } else { "" })
    }

    /// Whether `--proxy` means it: by its own name, or by the program's.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.program.name() == name
    }

    /// Starts it before `backend`.
    ///
    /// # Errors
    /// With what the program wrote, if it does not run.
    pub(crate) async fn start(&self, program: &Path, backend: &Backend) -> Result<Running, String> {
        let [first, second] = process::free()?;
        // Ours and Envoy find out what is spoken.
        let rpc = if matches!(self.program, Program::Oneclock | Program::Envoy) { first } else { second };
        let places = Places { http: first, rpc, backend_http: backend.http, backend_rpc: backend.rpc };
        let folder = Folder::new(self.name)?;
        let file = folder.write(self.file, &places.written_into(self.config, folder.path()))?;
        let command = match self.program {
            Program::Oneclock => ours::command(program, &file),
            Program::Envoy => envoy::command(program, &file),
            Program::Haproxy => haproxy::command(program, &file),
            Program::Nginx => nginx::command(program, &file),
        };
        let process = Process::start(command, folder, &[places.http, places.rpc]).await;
        let process = process.map_err(|error| format!("{}: {error}", self.name))?;
        Ok(Running { http: places.http, rpc, _held: Held::Process(Box::new(process)) })
    }

    /// Starts ours in this process, for the tests.
    #[cfg(test)]
    pub(crate) async fn start_here(&self, backend: &Backend) -> Running {
        let [http] = process::free().expect("a port");
        let places = Places { http, rpc: http, backend_http: backend.http, backend_rpc: backend.rpc };
        let running = ours::here(&places.written_into(self.config, Path::new("/"))).await;
        Running { http, rpc: http, _held: Held::Here(running) }
    }
}

// === Program ===

impl Program {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Oneclock => "oneclock",
            Self::Envoy => "envoy",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Oneclock => "oneclock",
            Self::Envoy => "Envoy",
            Self::Haproxy => "HAProxy",
            Self::Nginx => "nginx",
        }
    }

    /// Which one runs.
    pub(crate) async fn version(self, program: &Path) -> Result<String, String> {
        let argument = match self {
            Self::Oneclock | Self::Envoy => "--version",
            Self::Haproxy | Self::Nginx => "-v",
        };
        process::version(program, argument).await
    }
}

// === Places ===

impl Places {
    /// A configuration with its ports replaced by these, and its folder by `folder`.
    fn written_into(self, config: &str, folder: &Path) -> String {
        let ports =
            [("10000", self.http), ("10001", self.rpc), ("18080", self.backend_http), ("18081", self.backend_rpc)];
        let mut written = config.replace("/tmp/peers", &folder.to_string_lossy());
        // In two steps, since a free port may be one of those that stand there.
        for (port, _) in ports {
            written = written.replace(port, &format!("<{port}>"));
        }
        for (port, address) in ports {
            written = written.replace(&format!("<{port}>"), &address.port().to_string());
        }
        written
    }
}

/// `program` with these arguments.
fn command<const N: usize>(program: &Path, arguments: [&str; N], file: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).arg(file);
    command
}
