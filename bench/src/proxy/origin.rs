//! The service behind the proxies: it says the same 64 bytes to everybody, in HTTP/1.1 and in HTTP/2.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use oneclock_bench::Failed;
use tokio::net::TcpListener;

/// What it says.
pub(crate) const ANSWER: &[u8; 64] = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub(crate) async fn run() -> Result<(), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        tokio::spawn(async move {
            let service = service_fn(|_| async { Ok::<_, Infallible>(answer()) });
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

fn answer() -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from_static(ANSWER)));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    answer
}
