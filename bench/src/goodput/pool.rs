//! Connections to one server: HTTP/1.1, one request at a time on each, as many as are wanted; or a few of HTTP/2 for gRPC.
//! Dropping an exchange closes its connection, or resets its stream: that is how callers leave here.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use oneclock_bench::line::{self, Http1, Http2};

use crate::Failed;

/// So that nobody waits for a stream of one connection.
const GRPC_CONNECTIONS: usize = 8;
/// A message of no bytes, in its frame.
const NO_MESSAGE: &[u8] = &[0, 0, 0, 0, 0];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Http,
    Grpc,
}

/// All connections to one server.
#[derive(Debug)]
pub(crate) struct Pool {
    to: SocketAddr,
    speaks: Speaks,
    idle: Mutex<Vec<Http1>>,
    shared: tokio::sync::Mutex<Vec<Http2>>,
    turn: AtomicUsize,
}

/// The head of an answer whose body was read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// gRPC's status.
    pub(crate) code: Option<u8>,
}

impl Pool {
    pub(crate) fn new(to: SocketAddr, speaks: Speaks) -> Arc<Self> {
        let (idle, shared, turn) = Default::default();
        Arc::new(Self { to, speaks, idle, shared, turn })
    }

    /// Asks once, and reads the answer to its end.
    pub(crate) async fn ask(&self, path: &str, fields: &HeaderMap) -> Result<Answer, Failed> {
        match self.speaks {
            Speaks::Http => self.http(path, fields).await,
            Speaks::Grpc => self.grpc(fields).await,
        }
    }

    async fn http(&self, path: &str, fields: &HeaderMap) -> Result<Answer, Failed> {
        let mut request = Request::builder().uri(path).header("host", "bench").body(Full::default())?;
        request.headers_mut().extend(fields.clone());
        loop {
            let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let fresh = kept.is_none();
            let mut connection = match kept {
                Some(kept) => kept,
                None => line::http1(self.to).await?,
            };
            if connection.ready().await.is_err() {
                if fresh {
                    return Err("the connection closed at once".into());
                }
                continue;
            }
            match connection.try_send_request(request).await {
                Ok(answer) => {
                    let (head, body) = answer.into_parts();
                    body.collect().await?;
                    self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
                    return Ok(Answer { status: head.status, headers: head.headers, code: None });
                }
                // A kept connection that closed meanwhile gives back what it did not send.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(error.into_error().into()),
                },
            }
        }
    }

    async fn grpc(&self, fields: &HeaderMap) -> Result<Answer, Failed> {
        let mut connection = self.line().await?;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{}/bench.Work/Do", self.to))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(Bytes::from_static(NO_MESSAGE)))?;
        request.headers_mut().extend(fields.clone());
        let (head, body) = connection.send_request(request).await?.into_parts();
        let whole = body.collect().await?;
        let code = |fields: &HeaderMap| fields.get("grpc-status")?.to_str().ok()?.parse().ok();
        let code = whole.trailers().and_then(code).or_else(|| code(&head.headers));
        Ok(Answer { status: head.status, headers: head.headers, code })
    }

    /// One of the shared connections, in turn.
    async fn line(&self) -> Result<Http2, Failed> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut shared = self.shared.lock().await;
        shared.retain(|line| !line.is_closed());
        if shared.len() < GRPC_CONNECTIONS {
            let fresh = line::http2(self.to).await?;
            shared.push(fresh.clone());
            return Ok(fresh);
        }
        shared.get(turn % GRPC_CONNECTIONS).cloned().ok_or_else(|| "no connection".into())
    }
}
