//! The part `grpc`: which peers there are and in what groups they are checked. Decides the order, and how many groups run at
//! the same time.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::{BoxFuture, try_join_all};
use futures_util::{StreamExt as _, stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::Error;
use crate::checks::{self, Stage};
use crate::finding::{Group, Verdict};
use crate::peer::{Over, Peer, Which};
use crate::table;

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
    /// Only groups whose title has this in it (`calls us`, `grpc-js`); may be given several times.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Shows what was seen in every place, not only in the first.
    #[arg(long)]
    all: bool,
    /// Prints what was found as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs all groups, or those that were asked for.
///
/// # Errors
/// If a peer cannot be started, or a check fails.
pub(crate) async fn run(options: &Options) -> Result<(), Error> {
    let Options { installed, only, all, json } = options;
    let stage = Stage::open().await?;
    let progress = ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}")?);
    progress.enable_steady_tick(Duration::from_millis(200));
    progress.set_message("starting the peers");
    let peers = try_join_all(PEERS.map(|which| Peer::start(which, installed))).await?;
    let [sync, aio, grpc_js, connect, raw] = &peers[..] else { return Err("a peer is missing".into()) };

    // A chain ends at the caller's own library, and where the field can be seen.
    let callers = [(sync, [sync, raw]), (aio, [aio, raw]), (grpc_js, [grpc_js, raw]), (raw, [raw, sync])];
    let ends_of_connect = [grpc_js, raw];

    let mut plan: Vec<(String, BoxFuture<'_, Result<Group, Error>>)> = Vec::new();
    for (peer, ends) in &callers {
        let title = format!("{} calls us", peer.which.name());
        plan.push((title, Box::pin(checks::calls_us(&stage, peer, None, ends))));
    }
    for over in CONNECT {
        let title = format!("{} ({}, HTTP/{}) calls us", connect.which.name(), over.codec, over.http);
        plan.push((title, Box::pin(checks::calls_us(&stage, connect, Some(over), &ends_of_connect))));
    }
    for peer in [sync, aio, grpc_js] {
        let title = format!("we call {}", peer.which.name());
        plan.push((title, Box::pin(async move { Ok(checks::we_call(peer).await) })));
    }
    plan.retain(|(title, _)| only.is_empty() || only.iter().any(|only| title.contains(only.as_str())));
    if plan.is_empty() {
        return Err(format!("no group has {} in its title", only.join(" or ")).into());
    }

    let total = plan.len();
    let mut groups = Vec::new();
    let mut running = stream::iter(plan.into_iter().map(|(_, group)| group)).buffered(AT_A_TIME);
    progress.set_message(format!("0 of {total} groups"));
    while let Some(group) = running.next().await {
        let group = group?;
        if !*json {
            progress.suspend(|| anstream::print!("{}", table::group(&group, *all)));
        }
        groups.push(group);
        progress.set_message(format!("{} of {total} groups", groups.len()));
    }
    progress.finish_and_clear();
    if *json {
        let groups: Vec<_> = groups.iter().map(Group::json).collect();
        println!("{:#}", json!({ "groups": groups }));
    } else {
        anstream::print!("{}", table::summary(&groups));
    }
    match groups.iter().map(|group| group.count(Verdict::Fails)).sum::<usize>() {
        0 => Ok(()),
        failed => Err(format!("{failed} checks do not hold").into()),
    }
}
