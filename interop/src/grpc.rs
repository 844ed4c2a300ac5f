//! The part `grpc`: which peers there are and in what groups they are checked. Decides the order, and how many groups run at
//! the same time.

use std::path::PathBuf;

use futures_util::future::try_join_all;

use crate::Error;
use crate::checks::{self, Stage};
use crate::peer::{Over, Peer, Which};
use crate::plan::{self, Plan, Shown};

const PEERS: [Which; 5] = [Which::PythonSync, Which::PythonAio, Which::GrpcJs, Which::Connect, Which::Raw];

/// Most of the time goes by waiting, so several groups share two cores.
const AT_A_TIME: usize = 4;

const CONNECT: [Over; 4] = [
    Over { codec: "proto", http: "1.1" },
    Over { codec: "json", http: "1.1" },
    Over { codec: "proto", http: "2" },
    Over { codec: "json", http: "2" },
];

/// What the run is to do.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Where `cargo xtask interop` installed the peers.
    #[arg(long, default_value = "target/interop")]
    installed: PathBuf,
    #[command(flatten)]
    shown: Shown,
}

/// Runs all groups, or those that were asked for.
///
/// # Errors
/// If a peer cannot be started, or a check fails.
pub(crate) async fn run(options: &Options) -> Result<(), Error> {
    let progress = plan::starting()?;
    let stage = Stage::open().await?;
    let peers = try_join_all(PEERS.map(|which| Peer::start(which, &options.installed))).await?;
    let [sync, aio, grpc_js, connect, raw] = &peers[..] else { return Err("a peer is missing".into()) };

    // A chain ends at the caller's own library, and where the field can be seen.
    let callers = [(sync, [sync, raw]), (aio, [aio, raw]), (grpc_js, [grpc_js, raw]), (raw, [raw, sync])];
    let ends_of_connect = [grpc_js, raw];

    let mut plan = Plan::new(&options.shown, progress);
    for (peer, ends) in &callers {
        let title = format!("{} calls us", peer.which.name());
        plan.add(&title, checks::calls_us(&stage, peer, None, ends));
    }
    for over in CONNECT {
        let title = format!("{} ({}, HTTP/{}) calls us", connect.which.name(), over.codec, over.http);
        plan.add(&title, checks::calls_us(&stage, connect, Some(over), &ends_of_connect));
    }
    for peer in [sync, aio, grpc_js] {
        plan.add(&format!("we call {}", peer.which.name()), async move { Ok(checks::we_call(peer).await) });
    }
    plan.run(AT_A_TIME).await
}
