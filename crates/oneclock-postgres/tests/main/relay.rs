//! A relay in front of the server that stalls, swallows and cuts when it is told to.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use oneclock_postgres::tokio_postgres::Config;
use oneclock_postgres::tokio_postgres::config::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Each connection obeys the switches as they stood when it was opened, and as they are set later.
#[derive(Default)]
pub(crate) struct Switches {
    /// Nothing passes to the server any more; it is not even read.
    pub(crate) stalls: AtomicBool,
    /// Nothing passes to the client any more: it is read and thrown away.
    pub(crate) swallows_answers: AtomicBool,
    /// Nothing passes to the client until it is switched off again.
    pub(crate) holds_answers: AtomicBool,
    /// What the client sends is thrown away.
    pub(crate) swallows_requests: AtomicBool,
    /// New connections are taken, and nothing is done with them.
    pub(crate) deaf: AtomicBool,
    /// New connections are closed at once.
    pub(crate) refuses: AtomicBool,
    /// New connections are to another server, which answers each question with the next of these.
    pub(crate) impostor: Mutex<Option<VecDeque<Answer>>>,
    /// How many questions it was asked.
    pub(crate) asked: AtomicUsize,
    pub(crate) opened: AtomicUsize,
    pub(crate) cut: tokio::sync::Notify,
}

/// What the other server says.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// One row.
    Row(Vec<&'static str>),
    /// An error of this code.
    Error(&'static str),
}

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    pub(crate) switches: Arc<Switches>,
}

impl Relay {
    /// A relay to the server of `config`.
    pub(crate) async fn to(config: &Config) -> Self {
        let host = match &config.get_hosts()[0] {
            Host::Tcp(host) => host.clone(),
            other => panic!("the relay needs a server on TCP, and not {other:?}"),
        };
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let switches = Arc::new(Switches::default());
        let all = Arc::clone(&switches);
        tokio::spawn(async move {
            let mut kept = Vec::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                all.opened.fetch_add(1, Ordering::SeqCst);
                if all.refuses.load(Ordering::SeqCst) {
                    continue;
                }
                if all.deaf.load(Ordering::SeqCst) {
                    kept.push(client);
                    continue;
                }
                if all.impostor.lock().unwrap().is_some() {
                    tokio::spawn(impostor(client, Arc::clone(&all)));
                    continue;
                }
                let server = TcpStream::connect((host.as_str(), port)).await.unwrap();
                tokio::spawn(relay(client, server, Arc::clone(&all)));
            }
        });
        Self { address, switches }
    }

    /// The configuration of a client that goes through it.
    pub(crate) fn through(&self, config: &Config) -> Config {
        let mut through = Config::new();
        through.host(self.address.ip().to_string()).port(self.address.port());
        through.user(config.get_user().unwrap()).dbname(config.get_dbname().unwrap());
        if let Some(password) = config.get_password() {
            through.password(password);
        }
        through
    }

    pub(crate) fn set(&self, switch: impl FnOnce(&Switches) -> &AtomicBool, on: bool) {
        switch(&self.switches).store(on, Ordering::SeqCst);
    }

    /// Closes all that goes through it.
    pub(crate) fn cut(&self) {
        self.switches.cut.notify_waiters();
    }
}

async fn relay(client: TcpStream, server: TcpStream, switches: Arc<Switches>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let cut = switches.cut.notified();
    tokio::select! {
        () = pass(from_client, to_server, &switches.swallows_requests, &switches.stalls) => {}
        () = pass(from_server, to_client, &switches.swallows_answers, &switches.holds_answers) => {}
        () = cut => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, swallows: &AtomicBool, stalls: &AtomicBool) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        while stalls.load(Ordering::SeqCst) {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) if swallows.load(Ordering::SeqCst) => {}
            Ok(n) => {
                // What was read just before the switch was set is held back as well.
                while stalls.load(Ordering::SeqCst) {
                    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                }
                if to.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// As much of a server as a question needs.
async fn impostor(mut client: TcpStream, switches: Arc<Switches>) -> std::io::Result<()> {
    let len = client.read_u32().await?;
    client.read_exact(&mut vec![0; len as usize - 4]).await?;
    let mut hello = message(b'R', &0_u32.to_be_bytes());
    hello.extend(message(b'S', b"server_version\x0018.0\0"));
    hello.extend(message(b'Z', b"I"));
    client.write_all(&hello).await?;
    loop {
        let kind = client.read_u8().await?;
        let len = client.read_u32().await?;
        client.read_exact(&mut vec![0; len as usize - 4]).await?;
        if kind != b'Q' {
            continue;
        }
        switches.asked.fetch_add(1, Ordering::SeqCst);
        let answer = switches.impostor.lock().unwrap().as_mut().and_then(VecDeque::pop_front);
        let mut said = match answer {
            Some(Answer::Row(values)) => {
                let count = u16::try_from(values.len()).unwrap().to_be_bytes();
                let (mut columns, mut row) = (count.to_vec(), count.to_vec());
                for value in values {
                    columns.extend(b"c\0\0\0\0\0\0\0"); // its name, and of no table
                    columns.extend([25_u32.to_be_bytes().as_slice(), &[255; 6], &[0; 2]].concat());
                    row.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
                    row.extend(value.as_bytes());
                }
                [message(b'T', &columns), message(b'D', &row), message(b'C', b"SELECT 1\0")].concat()
            }
            Some(Answer::Error(code)) => message(b'E', format!("SERROR\0VERROR\0C{code}\0Mno\0\0").as_bytes()),
            None => return Ok(()),
        };
        said.extend(message(b'Z', b"I"));
        client.write_all(&said).await?;
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len() + 4).unwrap();
    [[kind].as_slice(), &len.to_be_bytes(), body].concat()
}
