//! `oneclock-interop`: our gRPC and Connect layers against peers that nobody here wrote. `cargo xtask interop` installs the
//! peers and runs this. Parses and hands on.

mod checks;
mod connect;
mod envoy;
mod finding;
mod grpc;
mod line;
mod log;
mod message;
mod peer;
mod plan;
mod probe;
mod proxy;
mod servers;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Whatever went wrong.
type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
#[command(about = "Our gRPC and Connect layers against peers that nobody here wrote", version)]
struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// Python's grpcio, Node's grpc-js and connect-node.
    Grpc(grpc::Options),
    /// A real Envoy, in front of our services and behind them.
    Envoy(envoy::Options),
    /// The sidecar: those libraries through it, and two in a row.
    Proxy(proxy::Options),
    /// Serves the probe in every place until it is interrupted, to look at by hand.
    Serve,
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Arguments::parse().part {
        Part::Grpc(options) => grpc::run(&options).await,
        Part::Proxy(options) => proxy::run(&options).await,
        Part::Serve => servers::by_hand().await,
        Part::Envoy(options) => envoy::run(&options).await.map_err(Error::from),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}
