//! grpcio's server, in Python: one tier, as that is what one of its processes can carry.

use std::path::Path;

use tokio::process::Command;

use crate::Failed;
use crate::origin::Origin;
use crate::scenario::Scenario;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/goodput/grpcio_server.py");

pub(crate) async fn start(tools: &Path, scenario: Scenario) -> Result<Origin, Failed> {
    let mut command = Command::new(tools.join("python"));
    command.arg("-B").arg(PROGRAM).arg(scenario.slots().to_string()).env("GRPC_VERBOSITY", "NONE");
    Origin::of(command).await
}
