//! How our side calls: through our client layer, or plainly. Decides what stands between a caller and tonic's channel.

use std::time::Duration;

use http::{Request, Response};
use oneclock_tonic::{ClientLayer, destination};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Endpoint;
use tower::util::BoxCloneService;
use tower::{Layer as _, ServiceExt as _};

use crate::Error;
use crate::probe::client::ProbeClient;

/// Who keeps the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Our layers.
    Ours,
    /// tonic as it comes.
    Plain,
}

/// What a client of the probe calls through.
pub(crate) type Line = BoxCloneService<Request<Body>, Response<Body>, Status>;

/// More than any check takes.
const CAP: Duration = Duration::from_secs(60);

/// A client of the probe at `host:port`, over a connection of its own.
pub(crate) fn client(kind: Kind, address: &str) -> Result<ProbeClient<Line>, Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.connect_timeout(Duration::from_secs(5));
    let channel = endpoint.connect_lazy();
    let line = match kind {
        Kind::Ours => {
            let service = ClientLayer::new(destination("peer").cap(CAP).build()?).layer(channel);
            let service = service.map_response(|response| response.map(Body::new));
            BoxCloneService::new(service.map_err(|error| Status::from_error(error.into())))
        }
        Kind::Plain => {
            BoxCloneService::new(channel.map_err(|error: tonic::transport::Error| Status::from_error(error.into())))
        }
    };
    Ok(ProbeClient::new(line))
}
