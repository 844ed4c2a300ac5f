//! Callers: one request over HTTP/1.1 or HTTP/2 with exactly the fields that a row asks for, and all that came back.
//!
//! They keep no deadline of their own, so that what ends a call is what a row asks about. They leave when told to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use oneclock::clock;
use oneclock_core::Tick;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// How long a call may take before the run gives up on it.
const PATIENCE: Duration = Duration::from_secs(20);
/// Enough for what was handed to a connection to be on its way.
const SETTLED: Duration = Duration::from_millis(100);

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    version: Version,
    method: &'static str,
    path: String,
    fields: Vec<(&'static str, String)>,
    upload: Option<(u32, Duration)>,
}

/// What the caller saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The status; none if there was no head.
    pub(crate) status: Option<StatusCode>,
    pub(crate) head: HeaderMap,
    pub(crate) trailers: HeaderMap,
    pub(crate) body: String,
    /// How the answer was cut off, if it was.
    pub(crate) cut: Option<String>,
    /// Until the end of the answer.
    pub(crate) took: Duration,
}

// === Ask ===

impl Ask {
    /// A GET over HTTP/1.1.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        let path = path.into();
        Self { version: Version::HTTP_11, method: "GET", path, fields: Vec::new(), upload: None }
    }

    /// A POST over HTTP/1.1.
    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self { method: "POST", ..Self::get(path) }
    }

    /// A gRPC call with one empty message.
    pub(crate) fn grpc(path: impl Into<String>) -> Self {
        let ask = Self { version: Version::HTTP_2, method: "POST", ..Self::get(path) };
        ask.field("content-type", "application/grpc").field("te", "trailers")
    }

    /// Over HTTP/2.
    pub(crate) fn http2(self) -> Self {
        Self { version: Version::HTTP_2, ..self }
    }

    /// With this field.
    pub(crate) fn field(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// With a body of so many pieces, one each `every`.
    pub(crate) fn upload(self, pieces: u32, every: Duration) -> Self {
        Self { upload: Some((pieces, every)), ..self }
    }

    fn is_grpc(&self) -> bool {
        self.fields.iter().any(|(name, _)| *name == "content-type")
    }

    /// Sends it to `to`.
    ///
    /// # Errors
    /// If no connection can be opened, or there is no end within [`PATIENCE`]. How the call itself ends is no error.
    pub(crate) async fn send(&self, to: SocketAddr) -> Result<Seen, String> {
        let mut connections = JoinSet::new(); // dropped with this future, and with it the connection
        let exchange = self.exchange(to, &mut connections);
        let seen = timeout(PATIENCE, exchange).await;
        seen.map_err(|_| format!("{} {} had no end within {PATIENCE:?}", self.method, self.path))?
    }

    /// Sends it, and leaves once `moment` has come: HTTP/1.1 closes its connection, HTTP/2 resets the stream with CANCEL. When
    /// that was.
    ///
    /// # Errors
    /// As [`send`](Self::send), and if there was an end before.
    pub(crate) async fn leave_at(&self, to: SocketAddr, moment: impl Future<Output = ()>) -> Result<Tick, String> {
        let mut connections = JoinSet::new();
        let answered = tokio::select! {
            seen = self.exchange(to, &mut connections) => Some(seen?),
            () = async { moment.await; sleep(SETTLED).await } => None,
        };
        if let Some(seen) = answered {
            return Err(format!("answered before the caller left: {}", seen.line()));
        }
        // The exchange was dropped: a stream was reset. Its connection needs a moment to say so before it goes too.
        let left = clock::now();
        if self.version == Version::HTTP_2 {
            sleep(SETTLED).await;
        }
        Ok(left)
    }

    async fn exchange(&self, to: SocketAddr, connections: &mut JoinSet<()>) -> Result<Seen, String> {
        let io = TcpStream::connect(to).await.map_err(|error| format!("no connection to {to}: {error}"))?;
        io.set_nodelay(true).map_err(|error| error.to_string())?;
        let request = self.request(to)?;
        let began = clock::now();
        let answer = if self.version == Version::HTTP_2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io))
                    .await
                    .map_err(|error| error.to_string())?;
            connections.spawn(async move {
                let _ = connection.await;
            });
            sender.send_request(request).await
        } else {
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(io)).await.map_err(|error| error.to_string())?;
            connections.spawn(async move {
                let _ = connection.await;
            });
            sender.send_request(request).await
        };
        let mut seen = match answer {
            Ok(answer) => Seen::read(answer).await,
            Err(error) => Seen { cut: Some(how(&error)), ..Seen::default() },
        };
        seen.took = clock::now().since(began);
        Ok(seen)
    }

    fn request(&self, to: SocketAddr) -> Result<Request<Body>, String> {
        let uri = if self.version == Version::HTTP_2 { format!("http://{to}{}", self.path) } else { self.path.clone() };
        let mut request = Request::builder().method(self.method).uri(uri).version(self.version);
        if self.version == Version::HTTP_11 {
            request = request.header("host", to.to_string());
        }
        for (name, value) in &self.fields {
            request = request.header(*name, value);
        }
        let body = match self.upload {
            None if self.is_grpc() => Full::new(Bytes::from_static(&[0; 5])).boxed_unsync(),
            None => Full::new(Bytes::new()).boxed_unsync(),
            Some((pieces, every)) => {
                let pieces = stream::unfold(pieces, move |left| async move {
                    let left = left.checked_sub(1)?;
                    sleep(every).await;
                    Some((Ok(Frame::data(Bytes::from_static(b"piece"))), left))
                });
                StreamBody::new(pieces).boxed_unsync()
            }
        };
        request.body(body).map_err(|error| error.to_string())
    }
}

// === Seen ===

impl Seen {
    async fn read(answer: Response<Incoming>) -> Self {
        let (head, mut body) = answer.into_parts();
        let mut seen = Self { status: Some(head.status), head: head.headers, ..Self::default() };
        while let Some(frame) = body.frame().await {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => seen.body.push_str(&String::from_utf8_lossy(&data)),
                Ok(Err(frame)) => seen.trailers = frame.into_trailers().unwrap_or_default(),
                Err(error) => {
                    seen.cut = Some(how(&error));
                    break;
                }
            }
        }
        seen
    }

    /// The gRPC status, wherever it stands.
    pub(crate) fn grpc(&self) -> Option<u8> {
        let status = self.trailers.get("grpc-status").or_else(|| self.head.get("grpc-status"))?;
        status.to_str().ok()?.parse().ok()
    }

    /// The HTTP status; zero if there was no head.
    pub(crate) fn code(&self) -> u16 {
        self.status.map_or(0, |status| status.as_u16())
    }

    /// The reason that one of ours gave.
    pub(crate) fn reason(&self) -> &str {
        self.header("oneclock-reason")
    }

    /// A field of the head; empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.head.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        let status = self.status.map_or_else(|| "no head".to_owned(), |status| status.as_u16().to_string());
        let grpc = self.grpc().map(|status| format!(", grpc-status {status}")).unwrap_or_default();
        let at = if self.trailers.contains_key("grpc-status") { " in trailers" } else { "" };
        let reason = if self.reason().is_empty() { String::new() } else { format!(", reason {}", self.reason()) };
        let cut = self.cut.as_ref().map(|cut| format!(", cut: {cut}")).unwrap_or_default();
        format!("{status}{grpc}{at}{reason}{cut} after {} ms", self.took.as_millis())
    }
}

/// How a connection or a stream ended: the code of a reset, else in hyper's words.
fn how(error: &hyper::Error) -> String {
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        if let Some(reset) = error.downcast_ref::<h2::Error>().and_then(h2::Error::reason) {
            return format!("{reset:?}");
        }
        next = error.source();
    }
    error.to_string()
}
