//! The part `proxy`: real `oneclock proxy` processes, before and behind what nobody here wrote. Decides who calls whom through
//! which of them.
//!
//! ```text
//! sidecar.rs         one process
//! chains.rs          two in a row: ours, ours before Envoy, Envoy before ours
//! in_a_row.rs        what is checked of them
//! checks/through.rs  gRPC libraries that call each other through one
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::try_join_all;

use self::sidecar::{Files, Settings, Sidecar, Trust};
use crate::Error;
use crate::checks::through::{Column, Doors, through};
use crate::checks::{End, Spot};
use crate::envoy::proxy::Program;
use crate::peer::{Peer, Which};
use crate::plan::{self, Plan, Shown};
use crate::servers::{Place, listen};

mod chains;
mod in_a_row;
mod sidecar;

const PEERS: [Which; 4] = [Which::PythonSync, Which::PythonAio, Which::GrpcJs, Which::Raw];

/// Most of the time goes by waiting, so several groups share two cores.
const AT_A_TIME: usize = 3;

/// Above all that peers ask for.
const ROOMY: Duration = Duration::from_secs(100);

/// What the run is to do.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Where `cargo xtask interop` installed the peers.
    #[arg(long, default_value = "target/interop")]
    installed: PathBuf,
    /// The program whose `proxy` is run.
    #[arg(long, default_value = "target/debug/oneclock")]
    oneclock: PathBuf,
    #[command(flatten)]
    shown: Shown,
}

/// Two sidecars before one service.
struct Pair {
    roomy: Sidecar,
    /// Gives 400 ms, as [`checks`](crate::checks) has it.
    tight: Sidecar,
}

/// Runs all groups, or those that were asked for.
///
/// # Errors
/// If a peer, an Envoy or a sidecar cannot be started, or a check fails.
pub(crate) async fn run(options: &Options) -> Result<(), Error> {
    let Options { installed, oneclock, shown } = options;
    let progress = plan::starting()?;
    let files = Files::make()?;
    let peers = try_join_all(PEERS.map(|which| Peer::start(which, installed))).await?;
    let [sync, aio, grpc_js, raw] = &peers[..] else { return Err("a peer is missing".into()) };
    let (layered, plain) = (listen(Place::Tonic, ROOMY).await?, listen(Place::Plain, ROOMY).await?);
    let services = [
        ("tonic, ours", Spot::of(&layered)),
        ("tonic", Spot::of(&plain)),
        ("grpcio sync", Spot::of_peer(sync)),
        ("grpcio aio", Spot::of_peer(aio)),
        ("grpc-js", Spot::of_peer(grpc_js)),
    ];
    let pairs = services.iter().map(|(name, spot)| Pair::before(oneclock, name, &spot.address, &files));
    let pairs = try_join_all(pairs).await?;
    let before_raw = Sidecar::start(oneclock, &roomy("node", &raw.address)).await?;
    let before_nobody = Sidecar::start(oneclock, &roomy("nobody", "127.0.0.1:1")).await?;

    let mut columns = Vec::new();
    for ((name, spot), pair) in services.iter().zip(&pairs) {
        let doors = Doors {
            tls: (format!("localhost:{}", pair.roomy.listener("tls")?.port()), files.roots()),
            nobody: before_nobody.at(Trust::Inside)?.to_string(),
        };
        // Of a chain only a service with our layers knows what is left. It ends behind sidecars again.
        let ends = match *name {
            "tonic, ours" => {
                vec![End::of(sync, pairs[2].roomy.at(Trust::Inside)?), End::of(raw, before_raw.at(Trust::Inside)?)]
            }
            _ => Vec::new(),
        };
        let (roomy, tight) = (pair.roomy.at(Trust::Inside)?, pair.tight.at(Trust::Inside)?);
        columns.push(Column { name, roomy: spot.behind(roomy), tight: spot.behind(tight), ends, doors });
    }

    let mut plan = Plan::new(shown, progress);
    for peer in [sync, aio, grpc_js, raw] {
        let group = through(peer, &columns, ("no sidecar", Spot::of(&plain)));
        plan.add(&format!("{} through the sidecar", peer.which.name()), async { Ok(group.await) });
    }
    plan.add("two in a row", async {
        let program = Program::install(&Path::new("target").join("interop").join("envoy")).await?;
        chains::group(oneclock, &program).await
    });
    plan.run(AT_A_TIME).await
}

impl Pair {
    async fn before(program: &Path, name: &str, upstream: &str, files: &Files) -> Result<Self, Error> {
        let name = name.replace([' ', ','], "-");
        let (gives, gives_little) = (roomy(&name, upstream), format!("{name}-tight"));
        let tight = Settings { when_absent: "400ms", ceiling: "400ms", ..roomy(&gives_little, upstream) };
        let gives = Settings { tls: Some(files), ..gives };
        Ok(Self { roomy: Sidecar::start(program, &gives).await?, tight: Sidecar::start(program, &tight).await? })
    }
}

const fn roomy<'a>(name: &'a str, upstream: &'a str) -> Settings<'a> {
    Settings { name, upstream, when_absent: "100s", ceiling: "100s", tls: None }
}
