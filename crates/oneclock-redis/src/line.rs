//! One connection: opening it, and what can be seen of it from outside the commands on it.
//!
//! Decides nothing about time: whoever opens or uses a line is bounded by a call. The line counts what is written and read, since
//! that is what tells a stalled connection from a slow command, and what proves that a command was never sent.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use oneclock::clock;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, PushInfo, RedisFuture, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::health::Health;
use crate::request::Request;

/// Where connections go, and how they introduce themselves.
pub(crate) struct Target {
    pub(crate) info: ConnectionInfo,
    /// How many commands a connection takes in before it makes the next one wait.
    pub(crate) queue: usize,
}

/// A connection whose driver ends with it. Dropping the line closes the socket.
pub(crate) struct Line {
    connection: MultiplexedConnection,
    id: Option<i64>, // its number at the server, where somebody asked
    watch: Arc<Watch>,
    _driver: Owned,
}

/// What is seen of a connection.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    health: Mutex<Health>,
    written: AtomicU64, // bytes
    closed: AtomicBool,
}

/// A task that ends with its owner.
pub(crate) struct Owned(JoinHandle<()>);

/// A socket that is watched.
struct Watched {
    socket: Socket,
    watch: Arc<Watch>,
}

enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// Receives what the server sends unasked.
pub(crate) type Pushes = Arc<dyn Fn(PushInfo) + Send + Sync>;

// === Target ===

impl Target {
    /// Opens a connection that has answered a question: one that was only accepted proves nothing.
    pub(crate) async fn connect(&self) -> redis::RedisResult<Line> {
        let line = self.open(self.info.redis_settings().clone(), None).await?;
        match line.send(&Request::one(&redis::cmd("PING"))).await {
            Err(error) if error.code() != Some("NOPERM") => Err(error),
            Ok(_) | Err(_) => Ok(line),
        }
    }

    /// The same, for commands that the server holds back: with its number there, if this user may ask for it.
    pub(crate) async fn connect_to_block(&self) -> redis::RedisResult<Line> {
        let mut line = self.open(self.info.redis_settings().clone(), None).await?;
        match line.send(&Request::one(redis::cmd("CLIENT").arg("ID"))).await {
            Ok(id) => line.id = redis::from_redis_value(id).ok(),
            Err(error) if matches!(error.code(), Some("NOPERM" | "ERR")) => {}
            Err(error) => return Err(error),
        }
        Ok(line)
    }

    /// Opens a connection that hands on what the server sends unasked.
    pub(crate) async fn connect_for_pushes(&self, pushes: Pushes) -> redis::RedisResult<Line> {
        let settings = self.info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
        self.open(settings, Some(pushes)).await
    }

    async fn open(&self, settings: redis::RedisConnectionInfo, pushes: Option<Pushes>) -> redis::RedisResult<Line> {
        let watch = Arc::new(Watch::default());
        let stream = Watched { socket: self.socket().await?, watch: Arc::clone(&watch) };
        // None of its own limits: each call has its budget, which may be less or more than any default.
        let mut config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(self.queue);
        if let Some(pushes) = pushes {
            config = config.set_push_sender(move |push| {
                pushes(push);
                Ok::<(), ()>(())
            });
        }
        let (connection, driver) = MultiplexedConnection::new_with_config(&settings, stream, config).await?;
        let seen = Arc::clone(&watch);
        let driver = tokio::spawn(async move {
            driver.await;
            seen.close();
        });
        Ok(Line { connection, id: None, watch, _driver: Owned(driver) })
    }

    async fn socket(&self) -> io::Result<Socket> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?; // a small command must not wait for the next one
                Ok(Socket::Tcp(stream))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Ok(Socket::Unix(UnixStream::connect(path).await?)),
            other => Err(io::Error::new(io::ErrorKind::Unsupported, format!("no way to connect to {other}"))),
        }
    }
}

// === Line ===

impl Line {
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    pub(crate) fn id(&self) -> Option<i64> {
        self.id
    }

    /// Sends a request and waits for its answer, without a limit of its own. Dropping it leaves the answer to nobody: the
    /// connection reads it all the same and throws it away.
    pub(crate) async fn send(&self, request: &Request<'_>) -> redis::RedisResult<Value> {
        let mut connection = self.connection.clone();
        match request {
            Request::One(command) => command.query_async(&mut connection).await,
            Request::Many { asked, sent } => asked.query_async(&mut Instead { connection, sent }).await,
        }
    }

    pub(crate) async fn subscribe(&self, channels: &[&str], patterns: &[&str]) -> redis::RedisResult<()> {
        let mut connection = self.connection.clone();
        if !channels.is_empty() {
            connection.subscribe(channels).await?;
        }
        if !patterns.is_empty() {
            connection.psubscribe(patterns).await?;
        }
        Ok(())
    }
}

/// Sends another pipeline than the one that reads the answer: the same commands, with other timeouts.
struct Instead<'a> {
    connection: MultiplexedConnection,
    sent: &'a redis::Pipeline,
}

impl redis::aio::ConnectionLike for Instead<'_> {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.connection.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _asked: &'a redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(self.sent, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

// === Watch ===

impl Watch {
    pub(crate) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that the socket has taken.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Nothing comes any more, and nothing is sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

// === Owned ===

impl Owned {
    pub(crate) fn new(task: JoinHandle<()>) -> Self {
        Self(task)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("watch", &self.watch).finish_non_exhaustive()
    }
}

// === Watched ===

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = ready!(match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        });
        if result.is_ok() && buf.filled().len() > before {
            self.watch.health().read(clock::now());
        } else {
            self.watch.close(); // before whoever waits hears of it
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = ready!(match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        });
        match &result {
            Ok(bytes) => {
                self.watch.written.fetch_add(u64::try_from(*bytes).unwrap_or(u64::MAX), Ordering::AcqRel);
            }
            Err(_) => self.watch.close(),
        }
        Poll::Ready(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
