//! What the gRPC way is made of: real tonic on both sides, around the handlers that the other ways have.
//!
//! ```text
//! bridge.rs    a tonic service whose methods are the routes of a router
//! answer.rs    what a raw caller was answered, in the words that the tests ask in
//! out.rs       calls through tonic's client
//! server.rs    tonic's own server, without anything of ours
//! ```

pub(crate) mod answer;
pub(crate) mod bridge;
pub(crate) mod out;
pub(crate) mod server;

use bytes::{Buf as _, BufMut as _, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// The service of nearly every route, and the method that stands for `/`.
const SHOP: &str = "test.Shop";
const ROOT: &str = "Root";
/// The service of the routes below `/reports/`.
const REPORTS: &str = "test.reports";

/// In the metadata: which of a route's handlers is meant, where that is not `POST`. gRPC itself has only that one.
pub(crate) const METHOD: &str = "x-http-method-override";

/// The gRPC method that stands for this target: `/` and `/orders` are methods of one service, `/reports/7` is one of another.
pub(crate) fn method_of(target: &str) -> String {
    let path = target.trim_start_matches('/');
    match path.split_once('/') {
        Some((service, method)) => format!("/test.{service}/{method}"),
        None if path.is_empty() => format!("/{SHOP}/{ROOT}"),
        None => format!("/{SHOP}/{path}"),
    }
}

/// Where the limits of this route are found over gRPC: by the path of the method, or by its service if that is all that is
/// fixed.
pub(crate) fn route_of(route: &str) -> String {
    match route.split_once("/{") {
        Some((service, _)) => format!("/test.{}", service.trim_start_matches('/')),
        None => method_of(route),
    }
}

/// The target that this method stands for.
fn target_of(method: &str) -> String {
    match method.trim_start_matches('/').split_once('/') {
        Some((SHOP, ROOT)) => "/".to_owned(),
        Some((SHOP, path)) => format!("/{path}"),
        Some((service, method)) => format!("/{}/{method}", service.trim_start_matches("test.")),
        None => panic!("no method of gRPC's: {method}"),
    }
}

/// Messages are bytes, as they are.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

#[test]
fn a_method_stands_for_one_target() {
    for target in ["/", "/orders", "/reports/7"] {
        assert_eq!(target_of(&method_of(target)), target);
    }
    assert!(method_of("/reports/7").starts_with(&route_of("/reports/{id}")));
}
