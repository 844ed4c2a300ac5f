//! What stands behind every proxy: a service that does what a field of the request says, and knows nothing of deadlines.
//!
//! Over HTTP/1.1 it is hyper's server, which tells a service that its caller left by dropping it. Over HTTP/2 it is h2's,
//! which is what hyper is made of there, since hyper does not tell with which code a stream was reset.
//!
//! `x-work` says what to do once the whole upload was read: `sleep=500` before the head, `status=503` instead of 200,
//! `retry-after=5` beside it, `trickle=50` for a body of a piece each 50 ms.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::log::{AtWork, Ending, Log};

/// Says what to do.
pub(crate) const WORK: &str = "x-work";
/// A message of gRPC with nothing in it.
pub(crate) const EMPTY_MESSAGE: &[u8] = &[0; 5];
/// How many pieces come of a body that trickles: far more than any caller waits for.
const PIECES: usize = 100;
/// How long streams may take to notice that their connection is gone.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// The service, running until it is dropped.
#[derive(Debug)]
pub(crate) struct Backend {
    /// Where it speaks HTTP/1.1.
    pub(crate) http: SocketAddr,
    /// Where it speaks HTTP/2, by prior knowledge.
    pub(crate) rpc: SocketAddr,
    pub(crate) log: Log,
    _tasks: JoinSet<()>,
}

/// What one request asks for.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    sleep: Duration,
    status: StatusCode,
    retry_after: Option<u64>,
    trickle: Option<Duration>,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

// === Backend ===

impl Backend {
    pub(crate) async fn start() -> Result<Self, String> {
        let log = Log::new();
        let mut tasks = JoinSet::new();
        let http = listen(&mut tasks, log.clone(), http).await?;
        let rpc = listen(&mut tasks, log.clone(), rpc).await?;
        Ok(Self { http, rpc, log, _tasks: tasks })
    }
}

/// Serves each connection to a free port.
async fn listen<F>(tasks: &mut JoinSet<()>, log: Log, serve: fn(TcpStream, Log) -> F) -> Result<SocketAddr, String>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    tasks.spawn(async move {
        let mut connections = JoinSet::new(); // end with this task
        while let Ok((io, _)) = listener.accept().await {
            let _ = io.set_nodelay(true);
            connections.spawn(serve(io, log.clone()));
            while connections.try_join_next().is_some() {}
        }
    });
    Ok(address)
}

// === HTTP/1.1 ===

async fn http(io: TcpStream, log: Log) {
    let service = service_fn(move |request| answer(request, log.clone()));
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service).await;
}

async fn answer(request: Request<Incoming>, log: Log) -> Result<Response<Body>, hyper::Error> {
    let (head, mut upload) = request.into_parts();
    let work = Work::of(&head.headers);
    let at_work = log.arrive(head.headers);
    while let Some(piece) = upload.frame().await {
        piece?; // dropped, as a connection that was closed
    }
    sleep(work.sleep).await;
    let body = match work.trickle {
        Some(every) => {
            let pieces = stream::unfold((at_work, 0), move |(at_work, sent)| async move {
                if sent == PIECES {
                    at_work.ends(Ending::RanOn);
                    return None;
                }
                sleep(every).await;
                Some((Ok(Frame::data(Bytes::from_static(b"piece\n"))), (at_work, sent + 1)))
            });
            StreamBody::new(pieces).boxed_unsync()
        }
        None => {
            at_work.ends(Ending::RanOn);
            Full::new(Bytes::from_static(b"done\n")).boxed_unsync()
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = work.status;
    if let Some(seconds) = work.retry_after {
        response.headers_mut().insert("retry-after", HeaderValue::from(seconds));
    }
    Ok(response)
}

// === HTTP/2 ===

async fn rpc(io: TcpStream, log: Log) {
    let Ok(mut connection) = h2::server::handshake(io).await else { return };
    let mut streams = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        streams.spawn(call(request, respond, log.clone()));
    }
    // A reset may have come with the end of its connection: they see it themselves.
    let noticed = async { while streams.join_next().await.is_some() {} };
    let _ = timeout(NOTICED_WITHIN, noticed).await;
}

async fn call(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, log: Log) {
    let (head, mut upload) = request.into_parts();
    let work = Work::of(&head.headers);
    let at_work = log.arrive(head.headers);
    while let Some(piece) = upload.data().await {
        match piece {
            Ok(piece) => {
                let _ = upload.flow_control().release_capacity(piece.len());
            }
            Err(error) => return at_work.ends(error.reason().map_or(Ending::Closed, Ending::Reset)),
        }
    }
    tokio::select! {
        code = poll_fn(|cx| respond.poll_reset(cx)) => return by(at_work, code),
        () = sleep(work.sleep) => {}
    }
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let Ok(mut answer) = respond.send_response(response, false) else { return };
    if let Some(every) = work.trickle {
        for _ in 0..PIECES {
            tokio::select! {
                code = poll_fn(|cx| answer.poll_reset(cx)) => return by(at_work, code),
                () = sleep(every) => {}
            }
            if answer.send_data(Bytes::from_static(EMPTY_MESSAGE), false).is_err() {
                return;
            }
        }
    }
    let ok = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    if answer.send_data(Bytes::from_static(EMPTY_MESSAGE), false).and_then(|()| answer.send_trailers(ok)).is_ok() {
        at_work.ends(Ending::RanOn);
    }
}

fn by(at_work: AtWork, code: Result<Reason, h2::Error>) {
    at_work.ends(code.map_or(Ending::Closed, Ending::Reset));
}

// === Work ===

impl Work {
    fn of(fields: &HeaderMap) -> Self {
        let asked = fields.get(WORK).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let asked = |word: &str| {
            let mut parts = asked.split(';').filter_map(|part| part.split_once('='));
            parts.find(|(name, _)| *name == word).and_then(|(_, value)| value.parse::<u64>().ok())
        };
        let status = asked("status").and_then(|status| u16::try_from(status).ok());
        Self {
            sleep: Duration::from_millis(asked("sleep").unwrap_or(0)),
            status: status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or_default(),
            retry_after: asked("retry-after"),
            trickle: asked("trickle").map(Duration::from_millis),
        }
    }
}
