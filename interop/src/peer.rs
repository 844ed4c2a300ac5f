//! Programs of peers/: started, told what to call, asked how it came out. Decides when a peer is given up: when it does not
//! answer within the bound that the check gives.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::Error;
use crate::message::{Ask, Told};

/// From its start to its first line; a cold interpreter on a busy machine takes seconds.
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// For a peer's own answer to what takes no time.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// A program that nobody here wrote the gRPC of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    PythonSync,
    PythonAio,
    GrpcJs,
    Connect,
    /// node:http2 alone.
    Raw,
}

/// One that runs. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) which: Which,
    /// Its library and version.
    pub(crate) is: String,
    /// Where it serves the probe; empty if it does not.
    pub(crate) address: String,
    stdin: AsyncMutex<ChildStdin>,
    waiting: Waiting,
    next: AtomicU64,
    reader: AbortHandle,
    _child: Child,
}

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Outcome>>>>;

/// What a peer is to call, as peers/ read it.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) target: String,
    pub(crate) ask: Ask,
    pub(crate) timeout_ms: Option<u32>,
    pub(crate) metadata: Vec<(String, String)>,
    pub(crate) send: Send,
    /// For [`Which::Raw`], which has no patience of its own.
    pub(crate) give_up_ms: Option<u32>,
    pub(crate) over: Option<Over>,
    /// Over TLS, trusting this file of roots.
    pub(crate) tls: Option<String>,
}

/// What a stream up sends after its first message.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Send {
    pub(crate) items: u32,
    pub(crate) every_ms: u32,
    /// Does not end after them.
    pub(crate) open: bool,
}

/// How Connect is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Over {
    pub(crate) codec: &'static str,
    pub(crate) http: &'static str,
}

/// How a call came out, as its library says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Outcome {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) after_ms: u32,
    pub(crate) items: u32,
    pub(crate) told: Option<Told>,
    pub(crate) initial: Vec<(String, String)>,
    pub(crate) trailing: Vec<(String, String)>,
    pub(crate) info: Option<Info>,
    /// Bytes of a message that did not come as a whole.
    pub(crate) partial: u32,
}

/// The `ErrorInfo` that the library read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Info {
    pub(crate) reason: String,
    pub(crate) domain: String,
    pub(crate) metadata: Value,
}

/// A call under way.
#[derive(Debug)]
pub(crate) struct Running<'peer> {
    peer: &'peer Peer,
    number: u64,
    outcome: oneshot::Receiver<Outcome>,
}

#[derive(Deserialize)]
struct Hello {
    listening: String,
    is: String,
}

// === Which ===

impl Which {
    /// In tables, and in the ids of calls.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PythonSync => "grpcio sync",
            Self::PythonAio => "grpcio aio",
            Self::GrpcJs => "grpc-js",
            Self::Connect => "connect-node",
            Self::Raw => "node:http2",
        }
    }

    /// Its program, from what `cargo xtask interop` put into `installed`.
    fn command(self, installed: &Path) -> Command {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = |program: &str| {
            let mut command = Command::new(installed.join("venv/bin/python"));
            let path: PathBuf = installed.join("generated");
            command.arg("-B").arg(here.join("peers/python").join(program)).env("PYTHONPATH", path);
            // The library logs what it finds strange; what comes of it is checked here.
            command.env("GRPC_VERBOSITY", "NONE");
            command
        };
        let node = |name: &str| {
            let mut command = Command::new("node");
            command.arg(installed.join("node/peer.js")).arg(name);
            command.env("INTEROP_PROTO", here.join("proto/probe.proto"));
            command.env("INTEROP_DESCRIPTORS", installed.join("probe.binpb"));
            command
        };
        match self {
            Self::PythonSync => python("peer_sync.py"),
            Self::PythonAio => python("peer_aio.py"),
            Self::GrpcJs => node("grpc"),
            Self::Connect => node("connect"),
            Self::Raw => node("raw"),
        }
    }
}

// === Peer ===

impl Peer {
    /// Starts it and waits until it serves.
    pub(crate) async fn start(which: Which, installed: &Path) -> Result<Self, Error> {
        let failed = |what: String| Error::from(format!("{}: {what}", which.name()));
        let mut command = which.command(installed);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| failed(format!("it does not start: {error}")))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("it has no pipes".to_owned()));
        };
        let mut lines = BufReader::new(stdout).lines();
        let first = timeout(STARTS_WITHIN, lines.next_line()).await;
        let first = first.map_err(|_| failed(format!("not ready after {STARTS_WITHIN:?}")))??;
        let first = first.ok_or_else(|| failed("it ended at once; is everything installed?".to_owned()))?;
        let hello: Hello = serde_json::from_str(&first).map_err(|error| failed(format!("`{first}`: {error}")))?;
        let waiting = Waiting::default();
        let reader = tokio::spawn(read(lines, which, Arc::clone(&waiting))).abort_handle();
        let (is, address) = (hello.is, hello.listening);
        let next = AtomicU64::new(1);
        Ok(Self { which, is, address, stdin: AsyncMutex::new(stdin), waiting, next, reader, _child: child })
    }

    /// Has it call.
    pub(crate) async fn begin(&self, call: &Call) -> Result<Running<'_>, Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, outcome) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(number, sender);
        let mut line = serde_json::to_value(call)?;
        line["do"] = "call".into();
        line["n"] = number.into();
        self.say(&line).await?;
        Ok(Running { peer: self, number, outcome })
    }

    /// Has it call, and waits for the end.
    ///
    /// # Errors
    /// When there was none within the bound; the call is then cancelled.
    pub(crate) async fn call(&self, call: &Call, within: Duration) -> Result<Outcome, Error> {
        self.begin(call).await?.end(within).await
    }

    async fn say(&self, line: &Value) -> Result<(), Error> {
        let text = format!("{line}\n");
        self.stdin.lock().await.write_all(text.as_bytes()).await?;
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Running<'_> {
    /// Has the library cancel it.
    pub(crate) async fn cancel(&self) -> Result<(), Error> {
        self.peer.say(&json!({ "do": "cancel", "n": self.number })).await
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// As [`Peer::call`].
    pub(crate) async fn end(mut self, within: Duration) -> Result<Outcome, Error> {
        let Ok(outcome) = timeout(within, &mut self.outcome).await else {
            self.cancel().await?;
            return Err(format!("no end within {} ms", within.as_millis()).into());
        };
        outcome.map_err(|_| format!("{} is gone", self.peer.which.name()).into())
    }
}

/// Hands each outcome to whoever waits for it. A peer that is gone lets everybody know.
async fn read(mut lines: Lines<BufReader<ChildStdout>>, which: Which, waiting: Waiting) {
    while let Ok(Some(line)) = lines.next_line().await {
        #[derive(Deserialize)]
        struct Numbered {
            n: u64,
            #[serde(flatten)]
            outcome: Outcome,
        }
        match serde_json::from_str::<Numbered>(&line) {
            Ok(Numbered { n, outcome }) => {
                let waits = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&n);
                if let Some(waits) = waits {
                    let _ = waits.send(outcome);
                }
            }
            Err(error) => eprintln!("{}: `{line}`: {error}", which.name()),
        }
    }
    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
}
