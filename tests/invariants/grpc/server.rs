//! tonic's own server: under our layer, and without anything of ours, which is what one has who writes a gRPC service and
//! sets its timeouts.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use oneclock_core::Trust;
use oneclock_core::ingress::PolicyBuilder;
use oneclock_tonic::PolicyExt as _;
use tokio::sync::oneshot;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::bridge::routes;
use crate::shop::{Shop, listen};

impl Shop {
    /// Opens a service for callers inside the trust boundary under tonic's server and our layer.
    pub(crate) async fn open_under_tonic(&self, clock: PolicyBuilder, app: Router) -> SocketAddr {
        let (listener, addr) = listen().await;
        let (stop, stopped) = oneshot::channel();
        let layer = clock.build().unwrap().grpc_layer().trust(Trust::Inside).observed_by(self.observer());
        let server = Server::builder().layer(layer).add_routes(routes(app));
        let task = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            let served = server.serve_with_incoming_shutdown(TcpIncoming::from(listener), stopped).await;
            served.map_err(io::Error::other)
        });
        self.keep(stop, task);
        addr
    }

    /// Opens a service under tonic's server alone. It keeps the `grpc-timeout` of its callers, as tonic does.
    pub(crate) async fn open_plain_tonic(&self, app: Router, change: impl FnOnce(Server) -> Server) -> SocketAddr {
        let (listener, addr) = listen().await;
        let (stop, stopped) = oneshot::channel();
        let server = change(Server::builder()).add_routes(routes(app));
        let task = tokio::spawn(async move {
            tokio::select! {
                served = server.serve_with_incoming(TcpIncoming::from(listener)) => served.map_err(io::Error::other),
                _ = stopped => Ok(()),
            }
        });
        self.keep_naive(stop, task);
        addr
    }
}
