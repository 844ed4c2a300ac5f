//! How the order service calls pricing and payment within its budget, whichever they speak.

use oneclock_core::Trust;
use oneclock_core::retry::RetryPolicy;
use oneclock_http::Client;
use oneclock_idempotency::{IdempotencyKey, names};
use oneclock_tonic::{ClientLayer, ClientService};
use tonic::transport::{Channel, Endpoint};
use tower::Layer as _;

use crate::purchase::{Service, TRY, Try};
use crate::rpc;
use crate::story::Story;
use crate::transport::Transport;
use crate::{Addresses, BoxError, ShopClosed};

/// A service that is called over either transport.
#[derive(Clone)]
pub(super) enum Callee {
    Http { client: Client, path: &'static str },
    Grpc { channel: ClientService<Channel>, method: &'static str },
}

impl Callee {
    pub(super) fn pricing(transport: Transport, addresses: &Addresses) -> Result<Self, ShopClosed> {
        Self::of(Service::Pricing, transport, addresses, None)
    }

    /// Payment: with keys it may be asked again, as often and as long as with independent timeouts.
    pub(super) fn payment(story: &Story, transport: Transport, addresses: &Addresses) -> Result<Self, ShopClosed> {
        let limits = story.limits;
        let again = RetryPolicy::new().attempts(limits.payment_tries).per_try(limits.payment).enforces_keys();
        let again = story.within.keys.then(|| again.build()).transpose().map_err(ShopClosed::not_started)?;
        Self::of(Service::Payment, transport, addresses, again)
    }

    fn of(
        service: Service,
        transport: Transport,
        addresses: &Addresses,
        again: Option<RetryPolicy>,
    ) -> Result<Self, ShopClosed> {
        let base = addresses.base(service);
        match transport.method_of(service) {
            None => {
                let mut client = Client::builder(service.name(), base).trust(Trust::Inside);
                if let Some(again) = again {
                    client = client.retry(again);
                }
                Ok(Self::Http { client: client.build().map_err(ShopClosed::not_started)?, path: service.path() })
            }
            Some(method) => {
                let mut destination = oneclock_tonic::destination(service.name()).trust(Trust::Inside);
                if let Some(again) = again {
                    destination = destination.retry(again);
                }
                let calls = ClientLayer::new(destination.build().map_err(ShopClosed::not_started)?);
                let endpoint = Endpoint::from_shared(base.to_owned()).map_err(ShopClosed::not_started)?;
                Ok(Self::Grpc { channel: calls.layer(endpoint.connect_lazy()), method })
            }
        }
    }

    /// Asks within the current operation's budget.
    pub(super) async fn ask(&self, of: Try, key: Option<IdempotencyKey>) -> Result<(), BoxError> {
        match self {
            Self::Http { client, path } => {
                let mut request = http::Request::post(*path).header(TRY, of.to_field());
                if let Some(key) = key {
                    request = request.header(names::KEY, key.as_str());
                }
                super::send(client, request).await
            }
            Self::Grpc { channel, method } => {
                let mut request = rpc::request(of);
                if let Some(key) = key {
                    key.write(request.metadata_mut().as_mut());
                    request.extensions_mut().insert(key.effect()); // that it is a charge with a key, no method says
                }
                let sent = rpc::send(channel.clone(), method, request).await;
                sent.map(drop).map_err(|status| oneclock_tonic::problem(&status).into())
            }
        }
    }
}
