//! How a service asks others plainly: over HTTP with hyper's client, over gRPC with tonic's channel.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};

use super::{PlainClient, ask, head, plain_client};
use crate::purchase::{Service, Try};
use crate::rpc;
use crate::transport::Transport;
use crate::{Addresses, ShopClosed};

/// The ways to all services that are open already.
#[derive(Clone)]
pub(crate) struct Lines {
    client: PlainClient,
    addresses: Addresses,
    channels: BTreeMap<Service, Line>,
}

/// To a method of a service that speaks gRPC.
#[derive(Clone)]
struct Line {
    channel: Channel,
    method: &'static str,
}

impl Lines {
    /// `limit` is what a channel allows each of its calls, where somebody has set that.
    pub(crate) fn to(addresses: &Addresses, transport: Transport, limit: Option<Duration>) -> Result<Self, ShopClosed> {
        let mut channels = BTreeMap::new();
        for service in Service::ALL {
            let Some(method) = transport.method_of(service) else { continue };
            let mut endpoint =
                Endpoint::from_shared(addresses.base(service).to_owned()).map_err(ShopClosed::not_started)?;
            if let Some(limit) = limit {
                endpoint = endpoint.timeout(limit);
            }
            channels.insert(service, Line { channel: endpoint.connect_lazy(), method });
        }
        Ok(Self { client: plain_client(), addresses: addresses.clone(), channels })
    }

    /// One call; over HTTP it has no limit, over gRPC its channel's.
    pub(crate) async fn ask(&self, service: Service, of: Try) -> Result<(), StatusCode> {
        let asked = match self.channels.get(&service) {
            Some(line) => rpc::send(line.channel.clone(), line.method, rpc::request(of)).await.ok().map(drop),
            None => ask(&self.client, &self.addresses.of(service), of).await.map(drop),
        };
        asked.ok_or(StatusCode::BAD_GATEWAY)
    }

    /// One call with a limit of its own. Over gRPC the far side is told of it.
    pub(super) async fn ask_within(&self, limit: Duration, service: Service, of: Try) -> Result<(), StatusCode> {
        match self.channels.get(&service) {
            Some(line) => {
                let mut request = rpc::request(of);
                request.set_timeout(limit);
                let asked = rpc::send(line.channel.clone(), line.method, request).await;
                asked.map(drop).map_err(|_| StatusCode::BAD_GATEWAY)
            }
            None => timeout(limit, self.ask(service, of)).await.unwrap_or(Err(StatusCode::BAD_GATEWAY)),
        }
    }

    /// The head of an HTTP answer.
    pub(super) async fn head(&self, service: Service, of: Try) -> Option<hyper::body::Incoming> {
        head(&self.client, &self.addresses.of(service), of).await
    }
}
