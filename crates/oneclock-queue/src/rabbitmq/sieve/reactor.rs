//! What the client connects through: tokio, with a [`Sieve`] around each connection.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::{AsFd as AsHandle, AsRawFd as AsRawHandle};
#[cfg(windows)]
use std::os::windows::io::{AsRawSocket as AsRawHandle, AsSocket as AsHandle};
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_util::Stream;
use futures_util::io::{AsyncRead, AsyncWrite};
use lapin::AsyncTcpStream;

use super::Sieve;

/// The stream of a connection as tokio makes it.
pub(in crate::rabbitmq) type Plain = <Tokio as Reactor>::TcpStream;

/// Tokio's reactor, with sifted connections.
#[derive(Clone, Debug)]
pub(in crate::rabbitmq) struct Sifted(Tokio);

/// The runtime of whoever calls, with sifted connections.
pub(in crate::rabbitmq) fn runtime() -> Runtime<RuntimeParts<Tokio, Sifted>> {
    let tokio = Tokio::current();
    Runtime::new(RuntimeParts::new(tokio.clone(), Sifted(tokio)))
}

impl Reactor for Sifted {
    type TcpStream = Sieve<Plain>;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + AsHandle + AsRawHandle + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, span: Duration) -> Self::Sleep {
        self.0.sleep(span)
    }

    fn interval(&self, span: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(span)
    }

    fn tcp_connect_addr(&self, to: SocketAddr) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let connected = self.0.tcp_connect_addr(to);
        async move { Ok(Sieve::new(AsyncTcpStream::Plain(connected.await?))) }
    }
}
