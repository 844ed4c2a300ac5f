//! Ours: `oneclock proxy`, as it is shipped.

use std::path::Path;

use tokio::process::Command;

pub(super) fn command(program: &Path, file: &Path) -> Command {
    super::command(program, ["proxy", "--config"], file)
}

/// The same in this process.
#[cfg(test)]
pub(super) async fn here(config: &str) -> oneclock_proxy::Running {
    let config = oneclock_proxy::config::Config::parse(config).expect("the configuration of the table");
    oneclock_proxy::Proxy::start(config).await.expect("a proxy")
}
