//! A connection of its own: opened as the client's are, and not one of its pool.
//!
//! For what lives on behind its call, which a proxy has (an upgrade, a declared stream): the answer to a call ends at the
//! call's deadline, and with it the connection's part in it. Decides nothing: resolving, connecting and securing are the
//! client's, in the stages of the call that they are given. Not part of the promise of this crate.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use oneclock::events::Target;
use oneclock::{Call, Ended};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connect::Io;
use super::{Client, Fault};
use crate::body::BoxError;
use crate::destination::Destination;
use crate::error::CallError;

/// A connection to a client's destination that its pool does not know.
#[doc(hidden)]
pub struct Dialed {
    io: Io,
    http2: bool,
}

// === Client ===

impl Client {
    /// Begins a call, which is to be made with what is here. It takes no longer than the [`CallCap`](crate::CallCap) of its
    /// request, as every other.
    ///
    /// # Errors
    /// [`CallError`], if it is not to be made.
    #[doc(hidden)]
    pub fn begin<B>(&self, request: &Request<B>) -> Result<Call, CallError> {
        let extensions = request.extensions();
        let call = self.0.destination.begin_for(extensions, Destination::operation_of(extensions), None)?;
        let base = &self.0.base;
        call.addressed(&Target::new(request.method().as_str(), Some(&base.host), Some(base.port)));
        Ok(call)
    }

    /// Resolves, connects and secures as for a call of its own, in the stages of `call`. The inner error is of the connection:
    /// nothing was sent.
    ///
    /// # Errors
    /// [`Ended`], if the call was cut off.
    ///
    /// # Cancel safety
    /// Dropped, the connection is closed.
    #[doc(hidden)]
    pub async fn dial(&self, call: &mut Call) -> Result<Result<Dialed, BoxError>, Ended> {
        match self.0.open(call).await {
            Ok(io) => {
                let http2 = io.agreed_on_http2().unwrap_or_else(|| self.0.pool.shares());
                Ok(Ok(Dialed { io, http2 }))
            }
            Err(Fault::Failed(_, source)) => Ok(Err(source)),
            Err(Fault::Ended(ended)) => Err(ended),
            Err(Fault::NotBegun(not_begun)) => Ok(Err(not_begun.into())), // opening tells nobody anything
        }
    }

    /// Makes a head with a path as its target, and perhaps `host`, fit for the protocol that is spoken.
    #[doc(hidden)]
    pub fn address<B>(&self, request: &mut Request<B>, http2: bool) {
        self.0.base.address_again(request, http2);
    }
}

// === Dialed ===

impl Dialed {
    /// Whether HTTP/2 is spoken on it: agreed on, or all that this client speaks.
    #[doc(hidden)]
    pub fn is_http2(&self) -> bool {
        self.http2
    }
}

impl AsyncRead for Dialed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Dialed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl fmt::Debug for Dialed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialed").field("http2", &self.http2).finish_non_exhaustive()
    }
}
