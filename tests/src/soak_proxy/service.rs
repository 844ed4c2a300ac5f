//! The upstreams: hyper in this process, over HTTP/1.1 and HTTP/2, doing to each request what it asks for; and one that takes
//! no connection.
//!
//! Decides how a connection is reset: whoever wants it marks the socket, which then sends RST as it is dropped.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::plan::{DOES, Does, ID, said_to};
use crate::{Failed, websocket};

type Said = Response<UnsyncBoxBody<Bytes, Failed>>;

/// All of them.
#[derive(Debug)]
pub(super) struct Services {
    pub(super) app: SocketAddr,
    /// Held, and never listened on: whoever connects is refused.
    pub(super) nobody: SocketAddr,
    _held: TcpSocket,
    seen: Arc<Seen>,
    over: CancellationToken,
    tasks: TaskTracker,
}

/// How often requests came that must not be repeated, as long as that matters.
#[derive(Debug, Default)]
struct Seen {
    once: Mutex<HashMap<u64, u32>>,
    strange: Mutex<Vec<String>>,
}

impl Services {
    pub(super) async fn open() -> Result<Self, Failed> {
        let held = TcpSocket::new_v4()?;
        held.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let nobody = held.local_addr()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let app = listener.local_addr()?;
        let (seen, over, tasks) = (Arc::default(), CancellationToken::new(), TaskTracker::new());
        tasks.spawn(accept(listener, Arc::clone(&seen), over.clone(), tasks.clone()));
        Ok(Self { app, nobody, _held: held, seen, over, tasks })
    }

    /// Closes every connection.
    pub(super) async fn close(&self) {
        self.over.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub(super) fn findings(&self) -> Vec<String> {
        let once = self.seen.once.lock().unwrap_or_else(PoisonError::into_inner);
        let twice = once.values().filter(|count| **count > 1).count();
        let mut findings = self.seen.strange.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if twice > 0 {
            findings.push(format!("{twice} requests that must not be repeated came more than once"));
        }
        findings
    }
}

async fn accept(listener: TcpListener, seen: Arc<Seen>, over: CancellationToken, tasks: TaskTracker) {
    while let Some(Ok((socket, _))) = over.run_until_cancelled(listener.accept()).await {
        let _ = socket.set_nodelay(true);
        let (seen, over) = (Arc::clone(&seen), over.clone());
        tasks.spawn(async move {
            let resets = Arc::new(AtomicBool::new(false));
            let io = TokioIo::new(Socket { socket, resets: Arc::clone(&resets) });
            let service = service_fn(|request| serve(request, Arc::clone(&seen), Arc::clone(&resets)));
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http2().max_concurrent_streams(2_000);
            let _ = over.run_until_cancelled(builder.serve_connection_with_upgrades(io, service)).await;
        });
    }
}

async fn serve(request: Request<Incoming>, seen: Arc<Seen>, resets: Arc<AtomicBool>) -> Result<Said, Failed> {
    let field = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let id: u64 = field(ID).and_then(|id| id.parse().ok()).ok_or("no id")?;
    let does: Does = field(DOES).ok_or("nothing to do")?.parse()?;
    let kind = request.headers().get(header::CONTENT_TYPE).cloned();
    let grpc = kind.is_some_and(|kind| kind == "application/grpc");
    if request.headers().contains_key(header::UPGRADE) {
        return websocket::accept(request)
            .map(|answer| answer.map(|body| body.map_err(|never| match never {}).boxed_unsync()));
    }
    if request.headers().get("x-once").is_some() {
        *seen.once.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default() += 1;
    }
    let over_http2 = request.version() == http::Version::HTTP_2;
    // An upload that its caller broke off is one for which nobody waits.
    let upload = request.into_body().collect().await?.to_bytes();
    if !grpc && !upload.is_empty() && *upload != *said_to(id, upload.len()) {
        let strange = format!("request {id} came with an upload that is not its own");
        seen.strange.lock().unwrap_or_else(PoisonError::into_inner).push(strange);
    }
    let frames = match does {
        Does::Answers { after, bytes } => {
            if after > 0 {
                tokio::time::sleep(Duration::from_millis(after)).await;
            }
            vec![Ok(said(id, bytes, grpc))]
        }
        Does::ResetsMidway { bytes } => {
            resets.store(!over_http2, Ordering::Relaxed); // there it is the stream, not the connection
            let whole = said(id, bytes, grpc);
            vec![Ok(whole.slice(..whole.len() / 2)), Err(Failed::from("a reset was asked for"))]
        }
        Does::ResetsBefore => {
            resets.store(!over_http2, Ordering::Relaxed);
            return Err("a reset was asked for".into());
        }
        Does::ClosesBefore => return Err("a close was asked for".into()),
        Does::Stalls => std::future::pending().await, // until its caller leaves
    };
    answer(id, frames, grpc)
}

fn said(id: u64, bytes: usize, grpc: bool) -> Bytes {
    let said = said_to(id, bytes);
    if !grpc {
        return said.into();
    }
    let length = u32::try_from(said.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], &said].concat().into()
}

fn answer(id: u64, frames: Vec<Result<Bytes, Failed>>, grpc: bool) -> Result<Said, Failed> {
    let mut answer = Response::builder().status(StatusCode::OK).header(ID, id);
    if grpc {
        answer = answer.header(header::CONTENT_TYPE, "application/grpc");
        let trailers =
            HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
        let mut frames: Vec<_> = frames.into_iter().map(|frame| frame.map(Frame::data)).collect();
        if frames.iter().all(Result::is_ok) {
            frames.push(Ok(Frame::trailers(trailers)));
        }
        return Ok(answer.body(StreamBody::new(stream::iter(frames)).boxed_unsync())?);
    }
    match <[_; 1]>::try_from(frames) {
        Ok([Ok(whole)]) => Ok(answer.body(Full::new(whole).map_err(|never| match never {}).boxed_unsync())?),
        Ok([Err(error)]) => Err(error),
        Err(frames) => {
            let frames = frames.into_iter().map(|frame| frame.map(Frame::data));
            Ok(answer.body(StreamBody::new(stream::iter(frames)).boxed_unsync())?)
        }
    }
}

// === Socket ===

/// A socket that is reset when it is dropped, if somebody wants it.
#[derive(Debug)]
struct Socket {
    socket: TcpStream,
    resets: Arc<AtomicBool>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.resets.load(Ordering::Relaxed) {
            let _ = self.socket.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.resets.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(())); // no FIN before the RST
        }
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
