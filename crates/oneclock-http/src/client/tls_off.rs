//! Without the feature `tls` no connection is secured: these types have no values, and cost nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use oneclock_core::Name;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::builder::Offers;
use super::refused::NotAClient;
use crate::body::BoxError;

pub(super) type Given = Option<Secured>;

#[derive(Debug)]
pub(super) enum Tls {}

#[derive(Clone, Copy, Debug)]
pub(super) enum Secured {}

impl Tls {
    pub(super) fn new(client: &Name, _host: &str, _given: Given, _offers: Offers) -> Result<Self, NotAClient> {
        Err(NotAClient::NoTls { client: client.clone() })
    }

    #[allow(clippy::unused_async, reason = "as the other")]
    pub(super) async fn secure(&self, _io: TcpStream) -> Result<Secured, BoxError> {
        match *self {}
    }
}

impl Secured {
    pub(super) fn is_http2(&self) -> bool {
        match *self {}
    }
}

impl AsyncRead for Secured {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}

impl AsyncWrite for Secured {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match *self {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_is_refused_once_and_told_why() {
        let refused = Tls::new(&Name::from("inventory"), "inventory", None, Offers::Either).expect_err("refused");
        let why = "client inventory: its uri says https, which needs the feature `tls` (of oneclock-http, oneclock-axum or oneclock-tonic); it is off";
        assert_eq!(refused.to_string(), why);
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn so_is_a_client() {
        let refused = crate::Client::builder("inventory", "https://inventory").build().expect_err("refused");
        assert!(matches!(refused, NotAClient::NoTls { .. }), "{refused}");
    }
}
