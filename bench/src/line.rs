//! Connections of callers that are nobody's product: hyper alone, a task for each.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::Failed;

/// One request at a time.
pub type Http1 = http1::SendRequest<Full<Bytes>>;
/// Many at a time, by clones.
pub type Http2 = http2::SendRequest<Full<Bytes>>;

/// A connection of HTTP/1.1.
///
/// # Errors
/// It cannot be had.
///
/// # Cancel safety
/// Dropped, there is none.
pub async fn http1(to: SocketAddr) -> Result<Http1, Failed> {
    let (sender, connection) = http1::handshake(TokioIo::new(socket(to).await?)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// A connection of HTTP/2, by prior knowledge.
///
/// # Errors
/// It cannot be had.
///
/// # Cancel safety
/// Dropped, there is none.
pub async fn http2(to: SocketAddr) -> Result<Http2, Failed> {
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket(to).await?)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn socket(to: SocketAddr) -> Result<TcpStream, Failed> {
    let socket = TcpStream::connect(to).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}
