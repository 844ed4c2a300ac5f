//! WebSockets of the soak: the handshake, and bytes that come back. What is in them is nobody's business but the two ends'.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Failed;
use crate::plan::{DOES, ID, Plan, said_to};

/// Agrees, and says everything again.
pub(super) fn accept(mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Failed> {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let (mut reads, mut writes) = tokio::io::split(TokioIo::new(upgraded));
        let _ = tokio::io::copy(&mut reads, &mut writes).await; // ends with its caller
    });
    let answer = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, "websocket");
    Ok(answer.body(Empty::new())?)
}

/// Opens one, says something a few times and hears it again. `Ok(None)`: all of it came back; else the answer's status.
pub(super) async fn talk(proxy: SocketAddr, id: u64, plan: &Plan) -> Result<Option<u16>, Failed> {
    let mut socket = TcpStream::connect(proxy).await?;
    let asks = format!(
        "GET /ws HTTP/1.1\r\nhost: soak\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{ID}: {id}\r\n{DOES}: {}\r\n\r\n",
        plan.does
    );
    socket.write_all(asks.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await?);
    }
    let status = head.get(9..12).and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
    let status: u16 = status.ok_or("no status")?;
    if status != 101 {
        return Ok(Some(status));
    }
    for round in 1..=4 {
        let said = said_to(id, 500 * round);
        socket.write_all(&said).await?;
        let mut heard = vec![0; said.len()];
        socket.read_exact(&mut heard).await?;
        if heard != said {
            return Err("a WebSocket said what is another's".into());
        }
    }
    Ok(None)
}
