//! What the calls to pricing and payment travel over. Decides nothing else: the stories, their loads and the figures are
//! the same.

use serde::Serialize;

use crate::purchase::Service;

/// What the order service reaches pricing and payment over. The other services speak HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// HTTP/1.1.
    #[default]
    Http,
    /// gRPC, by `proto/shop.proto`.
    Grpc,
}

impl Transport {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Http, Self::Grpc];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|transport| transport.name() == name)
    }

    /// The method of this service, if it speaks gRPC.
    pub fn method_of(self, service: Service) -> Option<&'static str> {
        match (self, service) {
            (Self::Grpc, Service::Pricing) => Some("/oneclock.shop.v1.Pricing/Price"),
            (Self::Grpc, Service::Payment) => Some("/oneclock.shop.v1.Payment/Charge"),
            _ => None,
        }
    }
}
