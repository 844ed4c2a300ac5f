//! A caller as many libraries are: it writes its whole upload, gives up at the first write that fails, and only then reads.
//! An answer that comes early and is followed by a close never gets to it.

use std::net::SocketAddr;
use std::time::Duration;

use oneclock::clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// How long it waits for an answer once all is written.
const PATIENCE: Duration = Duration::from_secs(5);

/// What it saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saw {
    /// The upload was written, then this status read.
    Answer(u16),
    /// A write failed, so long after the beginning.
    BrokenPipe(Duration),
    /// The upload was written, and the connection ended without an answer.
    Nothing,
}

/// Posts `pieces`, one each `every`, to `path`.
///
/// # Errors
/// If no connection can be opened, or there is no end.
pub(crate) async fn post(
    to: SocketAddr,
    path: &str,
    fields: &[(&str, &str)],
    pieces: u32,
    every: Duration,
) -> Result<Saw, String> {
    let mut io = TcpStream::connect(to).await.map_err(|error| format!("no connection to {to}: {error}"))?;
    io.set_nodelay(true).map_err(|error| error.to_string())?;
    let began = clock::now();
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: {to}\r\ntransfer-encoding: chunked\r\n");
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let upload = async {
        io.write_all(head.as_bytes()).await?;
        for _ in 0..pieces {
            sleep(every).await;
            io.write_all(b"5\r\npiece\r\n").await?;
        }
        io.write_all(b"0\r\n\r\n").await
    };
    if upload.await.is_err() {
        return Ok(Saw::BrokenPipe(clock::now().since(began)));
    }
    let mut answer = Vec::new();
    let read = async {
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            match io.read_buf(&mut answer).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
        }
    };
    timeout(PATIENCE, read).await.map_err(|_| format!("no answer within {PATIENCE:?} of the upload"))?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(status.map_or(Saw::Nothing, Saw::Answer))
}
