//! The upstream that records every byte it gets, and the caller that sends any bytes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::AMPLE;
use crate::oracle::{self, Seen};

/// When a recorder answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// Once a request is whole.
    Whole,
    /// At its head, without the body.
    Early,
    /// Once it is whole, unless it is for `/hang…`, which is never answered.
    NotAll,
}

/// An upstream of plain sockets. Each request that is beyond doubt is answered with its target; what is not ends its
/// connection. Dropped means stopped.
pub(crate) struct Recorder {
    pub(crate) addr: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>, // by connection
    closed: watch::Receiver<usize>,
    reads: watch::Receiver<usize>,
    _served: AbortOnDropHandle<()>,
}

/// What came on one connection.
#[derive(Default)]
struct Got {
    bytes: Vec<u8>,
    whole: Vec<Seen>,
    rest: usize, // where what is not whole begins
}

/// An answer as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

// === Recorder ===

impl Recorder {
    pub(crate) async fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let got = Arc::new(Mutex::new(Vec::new()));
        let (over, closed) = watch::channel(0);
        let (read, reads) = watch::channel(0);
        let all = Arc::clone(&got);
        let served = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                let (all, over, read) = (Arc::clone(&all), over.clone(), read.clone());
                connections.spawn(async move {
                    let _ = record(socket, &all, &read, answers).await; // how it ends is the other side's affair
                    over.send_modify(|over| *over += 1);
                });
            }
        });
        Self { addr, got, closed, reads, _served: AbortOnDropHandle::new(served) }
    }

    /// What was read on all connections.
    ///
    /// # Errors
    /// Why it could be read in more than one way.
    pub(crate) fn requests(&self) -> Result<Vec<Seen>, String> {
        let got = self.got.lock().expect("no panic");
        let mut all = Vec::new();
        for connection in got.iter() {
            all.extend(connection.whole.iter().cloned());
            all.extend(oracle::requests(&connection.bytes[connection.rest..])?);
        }
        Ok(all)
    }

    /// How much was read on each connection until now.
    pub(crate) fn mark(&self) -> Vec<usize> {
        self.got.lock().expect("no panic").iter().map(|got| got.bytes.len()).collect()
    }

    /// The bytes since then, for people.
    pub(crate) fn shown(&self, since: &[usize]) -> String {
        let got = self.got.lock().expect("no panic");
        let from = |nth: usize| since.get(nth).copied().unwrap_or(0);
        let new = got.iter().enumerate().map(|(nth, got)| &got.bytes[from(nth)..]).filter(|new| !new.is_empty());
        let shown: Vec<_> = new.map(|new| new.escape_ascii().to_string().replace("\\r\\n", "\n      ")).collect();
        shown.join("\n    on another connection:\n      ")
    }

    /// Waits until a request to `target` was read.
    pub(crate) async fn reads(&self, target: &str) {
        let is_there = || self.requests().is_ok_and(|seen| seen.iter().any(|seen| seen.target == target));
        let mut reads = self.reads.clone();
        let waited = timeout(AMPLE, reads.wait_for(|_| is_there())).await;
        waited.unwrap_or_else(|_| panic!("{target} is not read")).expect("it is served");
    }

    /// Waits until so many connections were closed.
    pub(crate) async fn closed(&self, connections: usize) {
        let mut closed = self.closed.clone();
        let waited = timeout(AMPLE, closed.wait_for(|closed| *closed >= connections)).await;
        waited.expect("they are closed").expect("it is served");
    }
}

async fn record(
    mut socket: TcpStream,
    all: &Mutex<Vec<Got>>,
    read: &watch::Sender<usize>,
    answers: Answers,
) -> std::io::Result<()> {
    let nth = {
        let mut all = all.lock().expect("no panic");
        all.push(Got::default());
        all.len() - 1
    };
    let mut piece = Vec::with_capacity(64 * 1024);
    let mut answered = 0;
    while socket.read_buf(&mut piece).await? > 0 {
        let due = all.lock().expect("no panic")[nth].more(&piece, answers, answered);
        piece.clear();
        read.send_modify(|reads| *reads += 1);
        let Ok(due) = due else { return Ok(()) };
        answered += due.len();
        for target in due {
            let length = target.len();
            socket.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{target}").as_bytes()).await?;
        }
    }
    Ok(())
}

impl Got {
    /// Whose requests are to be answered now that this came, where so many were already.
    fn more(&mut self, piece: &[u8], answers: Answers, answered: usize) -> Result<Vec<String>, String> {
        self.bytes.extend_from_slice(piece);
        let mut rest = oracle::requests(&self.bytes[self.rest..])?;
        let whole = rest.iter().take_while(|seen| seen.whole).count();
        self.rest += rest[..whole].iter().map(|seen| seen.length).sum::<usize>();
        self.whole.extend(rest.drain(..whole));
        let due = self.whole.iter().chain(&rest).filter(|seen| match answers {
            Answers::Whole => seen.whole,
            Answers::Early => !seen.method.is_empty(),
            Answers::NotAll => seen.whole && !seen.target.starts_with("/hang"),
        });
        Ok(due.skip(answered).map(|seen| seen.target.clone()).collect())
    }
}

// === Callers ===

/// Sends `bytes`, then `after` once there is an answer, and gives what comes until the other side closes.
pub(crate) async fn exchange(addr: SocketAddr, bytes: &[u8], after: &[u8]) -> Vec<Answer> {
    let exchanged = async {
        let mut socket = TcpStream::connect(addr).await.expect("a connection");
        let mut got = Vec::new();
        if socket.write_all(bytes).await.is_ok() {
            while answers(&got).is_empty() {
                match socket.read_buf(&mut got).await {
                    Ok(0) | Err(_) => return answers(&got),
                    Ok(_) => {}
                }
            }
            let _ = socket.write_all(after).await; // it may be closed by now
        }
        while !matches!(socket.read_buf(&mut got).await, Ok(0) | Err(_)) {}
        answers(&got)
    };
    timeout(AMPLE, exchanged).await.unwrap_or_else(|_| panic!("no end to {}", bytes.escape_ascii()))
}

/// The whole answers in `bytes`.
pub(crate) fn answers(bytes: &[u8]) -> Vec<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let mut rest = &*text;
    let mut all = Vec::new();
    while let Some((head, body)) = rest.split_once("\r\n\r\n") {
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line");
        if (100..200).contains(&status) {
            rest = body;
            continue;
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().expect("a length"))
        });
        let length = length.unwrap_or(0);
        let Some(whole) = body.get(..length) else { break };
        all.push(Answer { status, body: whole.to_owned() });
        rest = &body[length..];
    }
    all
}
