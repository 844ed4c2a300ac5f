//! One time budget over HTTP: tower layers, a client, and the accept loop.
//!
//! - [`IngressLayer`] decides what an arriving request may spend, once, and enforces it on head and body.
//! - [`EgressLayer`] and [`Client`] give every call what its operation has left, and cut it off there.
//! - [`serve`] is the accept loop that stamps arrivals and ends what hyper cannot.
//!
//! Every rule is decided in `oneclock-core`; this crate drives it.

mod arrival;
mod body;
mod carry;
mod client;
mod destination;
mod egress;
mod end_upload;
mod error;
mod exchange;
mod fields;
pub mod grpc;
pub mod hop;
pub mod ingress;
mod marks;
pub mod names;
mod problem;
mod protocol;
mod retry;
mod serve;
mod timing;
mod upload;

pub use arrival::Arrival;
pub use body::{BodyCutOff, BoundedBody, BoxError};
pub use carry::{Carry, CarryLayer};
#[cfg(feature = "tls")]
pub use client::HandshakeFailed;
pub use client::{
    Answer, Asking, Client, ClientBuilder, ClientFuture, NotAClient, NotARequest, NotCollected, NotSuccessful,
    Received, collect, collect_json, successful,
};
#[doc(hidden)]
pub use client::{Arriving, Dialed, Socket, Tasks};
pub use destination::{Destination, DestinationBuilder};
pub use egress::{CallCap, Egress, EgressFuture, EgressLayer};
pub use end_upload::{EndUpload, EndUploadFuture, EndUploadLayer, TiedAnswer, TiedUpload};
pub use error::{CallError, CallFailed, CallGaveUp, is_refused_stream, outcome_in};
pub use exchange::{Exchange, Guarded};
pub use ingress::{Ingress, IngressFuture, IngressLayer, PassedOn, Route};
#[doc(hidden)]
pub use marks::reason;
pub use oneclock::{DEFAULT_CAP, WithoutOperation};
pub use problem::{NothingHappened, Problem, grpc_message, grpc_status_of_connect, ledger_json};
pub use protocol::{Codec, Protocol};
pub use retry::{AnswerGivenUp, Replay, Retry, RetryFuture, RetryLayer};
pub use serve::{Introduction, Listener, Serve, ServeLimits, Watched, serve};
#[cfg(feature = "tls")]
pub use serve::{Tls, TlsIo, TlsPeer, tls};
/// The TLS that configurations are made with.
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;
pub use upload::Upload;

#[doc = include_str!("../../../docs/guide/retries.md")]
#[cfg(doctest)]
struct Guide;

#[doc = include_str!("../../../docs/guide/envoy.md")]
#[cfg(doctest)]
struct EnvoyGuide;
