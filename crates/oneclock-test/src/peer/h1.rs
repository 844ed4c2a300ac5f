//! The fixtures over HTTP/1.1: one connection at a time, raw, so that nothing puts right what is meant to be wrong.

use std::future::pending;
use std::io;

use bytes::BytesMut;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::{Arrived, Leaving, ResetAt, Script, Seen, leaving_by};
use crate::wire::{self, Rest};

/// What is to become of the connection after the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    KeepAlive,
    Reset,
}

pub(super) async fn serve(mut socket: TcpStream, script: Script, seen: &Seen) -> io::Result<()> {
    socket.set_nodelay(true)?;
    if matches!(script, Script::Reset(ResetAt::Accepted)) {
        return socket.set_zero_linger();
    }
    let mut buffer = BytesMut::new();
    while let Some(head) = wire::request_head(&mut socket, &mut buffer).await? {
        let mut body = Rest::of_request(&head.headers)?;
        let arrived = Arrived::new(head.method, head.target, head.headers);
        seen.requests.add(arrived.clone());

        if matches!(script, Script::StopsReading) {
            tokio::select! {
                how = gone_unread(&socket) => {
                    seen.leaving(how);
                    return Ok(());
                }
                // With the small buffer the rest of the upload would take for ever.
                () = seen.reading() => SockRef::from(&socket).set_recv_buffer_size(1 << 20)?,
            }
        }
        let (mut reader, mut writer) = socket.split();
        if matches!(script, Script::Slow(_) | Script::Echo)
            && let Err(error) = read_body(&mut reader, &mut buffer, &mut body).await
        {
            seen.leaving(leaving_by(error.kind()));
            return Err(error);
        }
        // Only whoever reads notices that a caller leaves. What comes meanwhile is the rest of an upload: nobody wants it.
        let mut unread = 0;
        let answered = tokio::select! {
            biased;
            how = gone(&mut reader, &mut unread) => Err(how),
            done = answer(script, &arrived, &mut writer) => done.map_err(|error| leaving_by(error.kind())),
        };
        match answered {
            Err(how) => {
                seen.leaving(how);
                return Ok(());
            }
            Ok(Then::Reset) => return socket.set_zero_linger(),
            // A second request behind the first went with what nobody wanted, so there is no going on after it.
            Ok(Then::KeepAlive) if unread > 0 => return Ok(()),
            Ok(Then::KeepAlive) => {}
        }
    }
    Ok(())
}

async fn answer(script: Script, arrived: &Arrived, writer: &mut WriteHalf<'_>) -> io::Result<Then> {
    match script {
        Script::Stall | Script::StopsReading => pending().await,
        Script::StallAfterHead => {
            writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1024\r\n\r\n").await?;
            pending().await
        }
        Script::StallMidBody => {
            writer.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n").await?;
            pending().await
        }
        Script::Trickle(byte_every) => {
            writer.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
            loop {
                tokio::time::sleep(byte_every).await;
                writer.write_all(b"1\r\n.\r\n").await?;
            }
        }
        Script::Slow(delay) => {
            tokio::time::sleep(delay).await;
            writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate").await?;
            Ok(Then::KeepAlive)
        }
        Script::Echo => {
            let json = arrived.to_json();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", json.len());
            writer.write_all((head + &json).as_bytes()).await?;
            Ok(Then::KeepAlive)
        }
        Script::HalfClose => {
            writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst").await?;
            writer.shutdown().await?;
            pending().await
        }
        Script::Reset(ResetAt::MidBody) => {
            writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst").await?;
            Ok(Then::Reset)
        }
        Script::Reset(ResetAt::Accepted | ResetAt::RequestRead) | Script::ResetStream(..) => Ok(Then::Reset),
    }
}

async fn read_body(reader: &mut ReadHalf<'_>, buffer: &mut BytesMut, body: &mut Rest) -> io::Result<()> {
    loop {
        while body.take(buffer)?.is_some() {}
        if *body == Rest::Nothing {
            return Ok(());
        }
        if wire::more(reader, buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Reads and counts until the caller closes or resets.
async fn gone(reader: &mut ReadHalf<'_>, unread: &mut usize) -> Leaving {
    let mut waste = vec![0; 16 * 1024]; // not on the stack: it would be part of every connection's future
    loop {
        match reader.read(&mut waste).await {
            Ok(0) => return Leaving::Closed,
            Ok(length) => *unread += length,
            Err(error) => return leaving_by(error.kind()),
        }
    }
}

/// Waits until the caller closes or resets, without reading.
#[cfg(any(target_os = "linux", target_os = "android"))]
async fn gone_unread(socket: &TcpStream) -> Leaving {
    use tokio::io::Interest;

    // Urgent data never comes, but tokio reports a closed receiving side along with it, and without minding that
    // ordinary data waits to be read.
    match socket.ready(Interest::PRIORITY | Interest::ERROR).await {
        Ok(_) => match socket.take_error() {
            Ok(None) => Leaving::Closed,
            Ok(Some(error)) | Err(error) => leaving_by(error.kind()),
        },
        Err(error) => leaving_by(error.kind()),
    }
}

/// Here a caller that leaves cannot be noticed without reading.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
async fn gone_unread(_socket: &TcpStream) -> Leaving {
    pending().await
}
