//! Callers: one request over HTTP/1.1 or HTTP/2 with exactly the fields that a row asks for, and all that came back.
//!
//! They keep no deadline of their own, so that what ends a call is what a row asks about. They leave when told to.

use std::convert::Infallible;
use std::error::Error;
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

use crate::backend::{EMPTY_MESSAGE, WORK};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The path of every gRPC call.
const METHOD: &str = "/peers.Work/Do";
/// More of an answer than anybody looks at.
const LONGEST: usize = 4096;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    version: Version,
    method: &'static str,
    path: &'static str,
    fields: Vec<(&'static str, String)>,
    upload: Option<(u32, Duration)>,
}

/// What the caller saw.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// When it began.
    pub(crate) began: Tick,
    /// Until the end of the answer, or until the caller left.
    pub(crate) took: Duration,
    pub(crate) end: End,
    /// None if there was no head.
    pub(crate) status: Option<StatusCode>,
    pub(crate) head: HeaderMap,
    pub(crate) trailers: HeaderMap,
    /// Its beginning.
    pub(crate) body: String,
}

/// How the call ended for its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With a whole answer.
    Whole,
    /// With half of one, or none: how it was cut off.
    Cut(String),
    /// The caller left.
    Left,
}

/// The connection of a call over HTTP/2 that its caller has left, so that the stream's reset gets over. Ends with this.
pub(crate) type Connection = JoinSet<()>;

// === Ask ===

impl Ask {
    /// A GET over HTTP/1.1.
    pub(crate) fn get(path: &'static str) -> Self {
        Self { version: Version::HTTP_11, method: "GET", path, fields: Vec::new(), upload: None }
    }

    /// A POST over HTTP/1.1.
    pub(crate) fn post(path: &'static str) -> Self {
        Self { method: "POST", ..Self::get(path) }
    }

    /// A gRPC call with one empty message.
    pub(crate) fn grpc() -> Self {
        let ask = Self { version: Version::HTTP_2, ..Self::post(METHOD) };
        ask.field("content-type", "application/grpc").field("te", "trailers")
    }

    /// With this field.
    pub(crate) fn field(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// What the backend is to do.
    pub(crate) fn work(self, work: &str) -> Self {
        self.field(WORK, work)
    }

    /// With a body of so many pieces, one each `every`.
    pub(crate) fn upload(self, pieces: u32, every: Duration) -> Self {
        Self { upload: Some((pieces, every)), ..self }
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.version == Version::HTTP_2
    }

    /// Sends it to `to`, and leaves once `moment` has come: HTTP/1.1 closes its connection, HTTP/2 resets the stream with
    /// CANCEL.
    ///
    /// # Errors
    /// If no connection can be opened. How the call itself ends is no error.
    pub(crate) async fn send(
        &self,
        to: SocketAddr,
        moment: impl Future<Output = ()>,
    ) -> Result<(Seen, Connection), String> {
        let mut connection = Connection::new();
        let began = clock::now();
        let mut seen = Seen::nothing(began);
        let answered = tokio::select! {
            answered = self.exchange(to, &mut connection, &mut seen) => Some(answered?),
            () = moment => None,
        };
        seen.end = answered.unwrap_or(End::Left);
        seen.took = clock::now().since(began);
        if !self.is_http2() {
            connection.shutdown().await;
        }
        Ok((seen, connection))
    }

    async fn exchange(&self, to: SocketAddr, connection: &mut Connection, seen: &mut Seen) -> Result<End, String> {
        let io = TcpStream::connect(to).await.map_err(|error| format!("no connection to {to}: {error}"))?;
        io.set_nodelay(true).map_err(|error| error.to_string())?;
        let (io, request) = (TokioIo::new(io), self.request(to)?);
        let answer = if self.is_http2() {
            let made = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
            let (mut sender, driver) = made.map_err(|error| error.to_string())?;
            connection.spawn(async move { drop(driver.await) });
            sender.send_request(request).await
        } else {
            let made = hyper::client::conn::http1::handshake(io).await;
            let (mut sender, driver) = made.map_err(|error| error.to_string())?;
            connection.spawn(async move { drop(driver.await) });
            sender.send_request(request).await
        };
        Ok(match answer {
            Ok(answer) => seen.read(answer).await,
            Err(error) => End::Cut(how(&error)),
        })
    }

    fn request(&self, to: SocketAddr) -> Result<Request<Body>, String> {
        let uri = if self.is_http2() { format!("http://{to}{}", self.path) } else { self.path.to_owned() };
        let mut request = Request::builder().method(self.method).uri(uri).version(self.version);
        if !self.is_http2() {
            request = request.header("host", to.to_string());
        }
        for (name, value) in &self.fields {
            request = request.header(*name, value);
        }
        let body = match self.upload {
            None if self.is_http2() => Full::new(Bytes::from_static(EMPTY_MESSAGE)).boxed_unsync(),
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
    fn nothing(began: Tick) -> Self {
        Self {
            began,
            took: Duration::ZERO,
            end: End::Left,
            status: None,
            head: HeaderMap::new(),
            trailers: HeaderMap::new(),
            body: String::new(),
        }
    }

    async fn read(&mut self, answer: Response<Incoming>) -> End {
        let (head, mut body) = answer.into_parts();
        (self.status, self.head) = (Some(head.status), head.headers);
        while let Some(frame) = body.frame().await {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) if self.body.len() < LONGEST => self.body.push_str(&String::from_utf8_lossy(&data)),
                Ok(Ok(_)) => {}
                Ok(Err(frame)) => self.trailers = frame.into_trailers().unwrap_or_default(),
                Err(error) => return End::Cut(how(&error)),
            }
        }
        End::Whole
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

    /// A field of the head; empty if it is not there.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.head.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// How a connection or a stream ended: the code of a reset, else in hyper's words.
fn how(error: &hyper::Error) -> String {
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(error) = next {
        if let Some(reset) = error.downcast_ref::<h2::Error>().and_then(h2::Error::reason) {
            return format!("reset with {reset:?}");
        }
        next = error.source();
    }
    error.to_string()
}

/// Returns after so long: how much time passes is what the row is about.
pub(crate) async fn after(span: Duration) {
    sleep(span).await;
}

/// What has an end within this is awaited; what has none is an error.
pub(crate) async fn within<T>(span: Duration, what: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    timeout(span, what).await.map_err(|_| format!("no end within {span:?}"))?
}
