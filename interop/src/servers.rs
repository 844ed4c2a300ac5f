//! Where our side of the checks listens. Decides which accept loop and which layers stand before the probe.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use http::StatusCode;
use oneclock_core::{Policy, Trust};
use oneclock_tonic::PolicyExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;
use tower_http::timeout::TimeoutLayer;

use crate::Error;
use crate::connect;
use crate::line::Kind;
use crate::probe::Probe;
use crate::probe::server::ProbeServer;

/// What serves the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Our layer, in a router under `oneclock_http::serve`. gRPC and Connect.
    Serve,
    /// Our layer, under tonic's own server.
    Tonic,
    /// tonic as it comes: its own server with its own limit.
    Plain,
    /// axum as it comes, with tower-http's limit: the same router without our layer. For Connect.
    PlainRouter,
}

/// A probe that listens. Gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    pub(crate) probe: Probe,
    _tasks: JoinSet<()>,
}

impl Place {
    /// Who keeps the time there.
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Serve | Self::Tonic => Kind::Ours,
            Self::Plain | Self::PlainRouter => Kind::Plain,
        }
    }

    /// As the tables name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Tonic => "tonic",
            Self::Plain => "plain tonic",
            Self::PlainRouter => "plain axum",
        }
    }
}

/// Serves the probe on a free port of the loopback device, with this ceiling for every call. Its peers belong to us.
pub(crate) async fn listen(place: Place, ceiling: Duration) -> Result<Listening, Error> {
    let probe = Probe::new(place.kind());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let service = ProbeServer::new(probe.clone());
    let policy = Policy::named("probe").when_absent(ceiling).ceiling(ceiling).build()?;
    let mut tasks = JoinSet::new();
    match place {
        Place::Plain => {
            let server = Server::builder().timeout(ceiling).add_service(service);
            tasks.spawn(async move {
                let _ = server.serve_with_incoming(TcpListenerStream::new(listener)).await;
            });
        }
        Place::Tonic => {
            let layer = policy.grpc_layer().trust(Trust::Inside);
            let server = Server::builder().layer(layer).add_service(service);
            tasks.spawn(async move {
                let _ = server.serve_with_incoming(TcpListenerStream::new(listener)).await;
            });
        }
        Place::Serve => {
            let router = router(probe.clone(), service).layer(policy.grpc_layer());
            tasks.spawn(async move {
                let _ = oneclock_http::serve(listener, router).trust(Trust::Inside).await;
            });
        }
        Place::PlainRouter => {
            let limit = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, ceiling);
            let router = router(probe.clone(), service).layer(limit);
            tasks.spawn(async move {
                let _ = axum::serve(listener, router).await;
            });
        }
    }
    Ok(Listening { address, probe, _tasks: tasks })
}

/// Serves the probe in every place and says where, until it is interrupted.
pub(crate) async fn by_hand() -> Result<(), Error> {
    let mut listening = Vec::new();
    for place in [Place::Serve, Place::Tonic, Place::Plain, Place::PlainRouter] {
        let here = listen(place, Duration::from_secs(100)).await?;
        println!("{:<12} {}", place.name(), here.address);
        listening.push(here);
    }
    tokio::signal::ctrl_c().await?;
    Ok(())
}

/// gRPC and Connect at the same paths.
fn router(probe: Probe, service: ProbeServer<Probe>) -> Router {
    let connect = from_fn(move |request: Request, next: Next| {
        let probe = probe.clone();
        async move {
            if connect::is_connect(request.headers()) {
                connect::answer(probe, request).await
            } else {
                next.run(request).await
            }
        }
    });
    Routes::new(service).prepare().into_axum_router().layer(connect)
}
