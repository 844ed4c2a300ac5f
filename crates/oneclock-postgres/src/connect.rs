//! Opening connections, for sessions and for cancels: to the same address, with the same TLS.
//!
//! Decides where to connect. How long that may take is decided by who waits for it. A cancel must reach the very server
//! that has the statement, so the address that was reached is kept with the connection.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use deadpool_postgres::ClientWrapper;
use futures_util::StreamExt;
use oneclock_core::Outcome;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, CancelToken, Config, SimpleQueryMessage};

use crate::error::{ConnectError, outcome_of};
use crate::notifications::Inbox;
use crate::socket::Socket;

/// The oldest server whose transactions can be asked about: `pg_xact_status` of one that can tell whether it has crashed
/// since, without waiting for a collector of statistics.
const KNOWS_TRANSACTIONS: u32 = 15;

/// What a server calls itself for as long as it has lost nothing; nothing while it recovers.
///
/// A recovery after a crash discards the statistics, so the moment since when they count is another one; a server that takes
/// the place of another has its own, and begins a timeline. The start of the postmaster would not do: it outlives a crash
/// of its backends. Resetting these statistics changes the name too, which is only too careful.
pub(crate) const SERVER: &str = "CASE WHEN NOT pg_is_in_recovery() THEN \
    extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())::text || ' ' || \
    left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END";

pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Opens connections to one database. Hides the type of the TLS connector.
pub(crate) trait Connector: Send + Sync {
    /// A new session.
    fn connect(&self) -> Boxed<'_, Result<Fresh, ConnectError>>;
    /// Sends a cancel, and waits until the server has closed its socket.
    fn cancel(&self, token: CancelToken, peer: Peer) -> Boxed<'static, Result<(), CancelFailed>>;
}

/// A session that was just opened.
pub(crate) struct Fresh {
    pub(crate) client: ClientWrapper,
    pub(crate) peer: Peer,
    pub(crate) inbox: Arc<Inbox>,
    /// Whether the server can tell what became of a transaction.
    pub(crate) knows_transactions: bool,
    /// What it calls itself: see [`SERVER`].
    pub(crate) server: Arc<OnceLock<String>>,
}

/// The address that was reached, and the name that TLS checks.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    address: Address,
    name: String,
}

#[derive(Clone, Debug)]
enum Address {
    Tcp(SocketAddr),
    #[cfg(unix)]
    Unix(PathBuf),
}

/// A cancel did not go through.
#[derive(Debug)]
pub(crate) enum CancelFailed {
    /// There was no connection for it: proof that it was not sent.
    NotSent(io::Error),
    /// It may have been sent.
    Lost(ConnectError),
}

/// A database, and how TLS is made for it.
pub(crate) struct Database<T> {
    pub(crate) config: Config,
    pub(crate) tls: T,
}

// === Database ===

impl<T> Connector for Database<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn connect(&self) -> Boxed<'_, Result<Fresh, ConnectError>> {
        Box::pin(async move {
            let mut last = ConnectError::NoAddress;
            for (host, name, port) in targets(&self.config) {
                let addresses = match resolve(&host, port).await {
                    Ok(addresses) => addresses,
                    Err(error) => {
                        last = ConnectError::Io(error);
                        continue;
                    }
                };
                for address in addresses {
                    let peer = Peer { address, name: name.clone() };
                    match self.session(peer).await {
                        Ok(fresh) => return Ok(fresh),
                        Err(error) => last = error,
                    }
                }
            }
            Err(last)
        })
    }

    fn cancel(&self, token: CancelToken, peer: Peer) -> Boxed<'static, Result<(), CancelFailed>> {
        let mut tls = self.tls.clone();
        Box::pin(async move {
            let socket = peer.open(None).await.map_err(CancelFailed::NotSent)?.for_cancel();
            let tls = tls
                .make_tls_connect(&peer.name)
                .map_err(|error| CancelFailed::Lost(ConnectError::Tls(error.into())))?;
            // Its last step is the shutdown, which for this socket waits until the server has closed.
            token.cancel_query_raw(socket, tls).await.map_err(|error| CancelFailed::Lost(error.into()))
        })
    }
}

impl<T> Database<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    async fn session(&self, peer: Peer) -> Result<Fresh, ConnectError> {
        let socket = peer.open(Some(&self.config)).await.map_err(ConnectError::Io)?;
        let tls = self.tls.clone().make_tls_connect(&peer.name).map_err(|error| ConnectError::Tls(error.into()))?;
        let (client, mut connection) = self.config.connect_raw(socket, tls).await?;
        let version = connection.parameter("server_version").and_then(major);
        let inbox = Arc::new(Inbox::default());
        let arriving = inbox.clone().closed_with_it();
        // Owned by the client below, which aborts it when it goes.
        let task = tokio::spawn(async move {
            loop {
                match poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(notification))) => arriving.put(notification),
                    Some(Ok(AsyncMessage::Notice(notice))) => tracing::debug!(%notice, "the server says"),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        tracing::debug!(%error, "a connection broke");
                        return;
                    }
                    None => return,
                }
            }
        });
        let client = ClientWrapper::new(client, task);
        self.check_role(&client).await?;
        let knows_transactions = version.is_some_and(|version| version >= KNOWS_TRANSACTIONS);
        let server = Arc::new(OnceLock::new());
        if knows_transactions {
            // Sent now, and not waited for: what is asked next goes out in the same breath. Not inside of a transaction, where
            // an error would end it.
            let mut answer = Box::pin(client.simple_query_raw(&format!("SELECT {SERVER}")).await?);
            let put = Arc::clone(&server);
            // Comes to its end with the connection.
            drop(tokio::spawn(async move {
                while let Some(Ok(message)) = answer.next().await {
                    if let SimpleQueryMessage::Row(row) = message
                        && let Some(name) = row.get(0)
                    {
                        let _ = put.set(name.to_owned()); // there is one row
                    }
                }
            }));
        }
        Ok(Fresh { client, peer, inbox, knows_transactions, server })
    }

    /// Whether it is the server that the configuration asks for: one that writes, or one that does not.
    async fn check_role(&self, client: &ClientWrapper) -> Result<(), ConnectError> {
        let wanted = match self.config.get_target_session_attrs() {
            TargetSessionAttrs::ReadWrite => "off",
            TargetSessionAttrs::ReadOnly => "on",
            _ => return Ok(()),
        };
        let answer = client.simple_query("SHOW transaction_read_only").await?;
        let is = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        if is == Some(wanted) { Ok(()) } else { Err(ConnectError::WrongRole { read_only: is == Some("on") }) }
    }
}

/// What to try, in order: what is connected to, the name that TLS checks, the port.
fn targets(config: &Config) -> Vec<(Host, String, u16)> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    (0..count)
        .filter_map(|i| {
            let port = ports.get(i).or_else(|| ports.first()).copied().unwrap_or(5432);
            let name = match hosts.get(i) {
                Some(Host::Tcp(name)) => name.clone(),
                _ => String::new(),
            };
            let host = match addresses.get(i) {
                Some(address) => Host::Tcp(address.to_string()),
                None => hosts.get(i)?.clone(),
            };
            Some((host, name, port))
        })
        .collect()
}

async fn resolve(host: &Host, port: u16) -> io::Result<Vec<Address>> {
    match host {
        Host::Tcp(name) => Ok(tokio::net::lookup_host((name.as_str(), port)).await?.map(Address::Tcp).collect()),
        #[cfg(unix)]
        Host::Unix(folder) => Ok(vec![Address::Unix(folder.join(format!(".s.PGSQL.{port}")))]),
    }
}

/// The first number of a version such as `15.20 (Debian 15.20-0+deb12u1)` or `18beta1`.
fn major(version: &str) -> Option<u32> {
    let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..end].parse().ok()
}

// === Peer ===

impl Peer {
    async fn open(&self, config: Option<&Config>) -> io::Result<Socket> {
        let opening = async {
            match &self.address {
                Address::Tcp(address) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    if let Some(config) = config {
                        watch_for_silence(&stream, config)?;
                    }
                    Ok(Socket::tcp(stream))
                }
                #[cfg(unix)]
                Address::Unix(path) => Ok(Socket::unix(UnixStream::connect(path).await?)),
            }
        };
        match config.and_then(Config::get_connect_timeout) {
            Some(limit) => tokio::time::timeout(*limit, opening).await.map_err(io::Error::from)?,
            None => opening.await, // whoever waits has a bound
        }
    }
}

/// The limits that the configuration gives for a peer that does not answer at all.
fn watch_for_silence(stream: &TcpStream, config: &Config) -> io::Result<()> {
    let socket = SockRef::from(stream);
    #[cfg(target_os = "linux")]
    if let Some(limit) = config.get_tcp_user_timeout() {
        socket.set_tcp_user_timeout(Some(*limit))?;
    }
    if config.get_keepalives() {
        let mut keepalive = TcpKeepalive::new().with_time(config.get_keepalives_idle());
        if let Some(interval) = config.get_keepalives_interval() {
            keepalive = keepalive.with_interval(interval);
        }
        #[cfg(unix)]
        if let Some(retries) = config.get_keepalives_retries() {
            keepalive = keepalive.with_retries(retries);
        }
        socket.set_tcp_keepalive(&keepalive)?;
    }
    Ok(())
}

// === ConnectError ===

impl ConnectError {
    /// Whether the server is there and has no room, or is about to be there: it may well take us a moment later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
            Self::Postgres(error) => outcome_of(error) == Outcome::Rejected,
            Self::Tls(_) | Self::WrongRole { .. } | Self::NoAddress => false,
        }
    }

    /// Whether nobody listens there: it is being started again, or it is down.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_first_number() {
        assert_eq!(major("15.20 (Debian 15.20-0+deb12u1)"), Some(15));
        assert_eq!(major("18beta1"), Some(18));
        assert_eq!(major(""), None);
    }

    #[test]
    #[allow(clippy::unwrap_used, reason = "a test")]
    fn addresses_are_used_for_the_way_and_names_for_tls() {
        let config: Config = "host=a,b hostaddr=10.0.0.1,10.0.0.2 port=1,2 user=x".parse().unwrap();
        let targets = targets(&config);
        assert_eq!(targets[1], (Host::Tcp("10.0.0.2".to_owned()), "b".to_owned(), 2));
    }
}
