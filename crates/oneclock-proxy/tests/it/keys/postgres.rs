//! Keys of several proxies, in one database.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use oneclock_http::rustls;
use oneclock_postgres::tokio_postgres::{self, NoTls};
use oneclock_proxy::config::IdempotencyStore;
use oneclock_proxy::{ConfigFile, Proxy, StartFailed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::{Till, charge, is_replay, keyed, problem, told, unkeyed};
use crate::common::{AMPLE, address, loopback, start};

/// A database of its own, on the server of the tests.
struct Database {
    admin: tokio_postgres::Client,
    server: tokio_postgres::Config,
    name: String,
}

impl Database {
    async fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let url = std::env::var("ONECLOCK_POSTGRES_URL");
        let url = url.as_deref().unwrap_or("postgres://postgres@127.0.0.1:5432/postgres");
        let server: tokio_postgres::Config = url.parse().expect("a URL");
        let (admin, connection) = server.connect(NoTls).await.unwrap_or_else(|error| {
            panic!(
                "these tests need a PostgreSQL server that lets the user postgres in: on 127.0.0.1:5432, or the one of \
                 ONECLOCK_POSTGRES_URL. `cargo xtask test` starts one. ({error})"
            )
        });
        tokio::spawn(connection);
        let name = format!("oneclock_proxy_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let database = Self { admin, server, name };
        database.admin(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", database.name)).await;
        database.admin(&format!("CREATE DATABASE {} TEMPLATE template0", database.name)).await;
        database
    }

    async fn admin(&self, statement: &str) {
        self.admin.batch_execute(statement).await.expect("it can");
    }

    /// A connection of somebody else's.
    async fn client(&self) -> tokio_postgres::Client {
        let mut own = self.server.clone();
        let (client, connection) = own.dbname(&self.name).connect(NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client
    }

    fn place(&self) -> (String, u16) {
        let tokio_postgres::config::Host::Tcp(host) = &self.server.get_hosts()[0] else { panic!("a server on TCP") };
        (host.clone(), self.server.get_ports().first().copied().unwrap_or(5432))
    }

    /// As it is written in a file, for `user`, at `place`.
    fn store(&self, user: &str, (host, port): (String, u16)) -> IdempotencyStore {
        plain(format!("postgres://{user}@{host}:{port}/{}", self.name))
    }

    fn user(&self) -> String {
        self.server.get_user().unwrap_or("postgres").to_owned()
    }

    async fn gone(self) {
        self.admin(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
    }
}

fn plain(url: String) -> IdempotencyStore {
    IdempotencyStore::Postgres { url, ca: None }
}

/// An error with its sources.
fn whole(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[tokio::test]
async fn twenty_at_once_at_two_proxies_are_charged_once() {
    let (database, till) = (Database::new().await, Till::closed().await);
    let store = database.store(&database.user(), database.place());
    let proxies = [start(keyed(till.addr, &store)).await, start(keyed(till.addr, &store)).await];
    let mut calls = JoinSet::new();
    for nth in 0..20 {
        calls.spawn(told(charge(address(&proxies[nth % 2]), "tap-7", "499")));
    }
    till.await_asked(1).await;
    till.let_all();
    for (status, _, body) in calls.join_all().await {
        assert_eq!((status, &*body), (StatusCode::CREATED, "receipt 1 for 499"));
    }
    assert_eq!((till.asked(), till.charges()), (1, 1));
    for proxy in proxies {
        proxy.shutdown().await;
    }
    let proxy = start(keyed(till.addr, &store)).await;
    let (status, headers, _) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, is_replay(&headers), till.charges()), (StatusCode::CREATED, true, 1));
    proxy.shutdown().await;
    database.gone().await;
}

/// A server that is not there ends no start: what has no key has no need of it.
#[tokio::test]
async fn a_server_that_comes_later_is_used_from_then_on() {
    let (database, till) = (Database::new().await, Till::open().await);
    let port = TcpListener::bind(loopback()).await.expect("a port");
    let at = port.local_addr().expect("an address");
    drop(port);
    let store = database.store(&database.user(), (at.ip().to_string(), at.port()));
    let proxy = start(keyed(till.addr, &store)).await;
    let (status, _, body) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, &*problem(&body)), (StatusCode::SERVICE_UNAVAILABLE, "store_unreachable"));
    let (status, ..) = told(unkeyed(address(&proxy), "1")).await;
    assert_eq!((status, till.asked()), (StatusCode::CREATED, 1));
    let relay = TcpListener::bind(at).await.expect("the port is free");
    let server = database.place();
    let relaying = tokio::spawn(async move {
        let mut passing = JoinSet::new();
        while let Ok((mut client, _)) = relay.accept().await {
            let mut there = TcpStream::connect((&*server.0, server.1)).await.expect("a server");
            passing.spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut there).await });
        }
    });
    let (status, headers, body) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, is_replay(&headers), &*body), (StatusCode::CREATED, false, "receipt 2 for 499"));
    // And when it goes away in the middle.
    relaying.abort();
    let _ = relaying.await;
    let (status, _, body) = told(charge(address(&proxy), "tap-9", "499")).await;
    assert_eq!((status, &*problem(&body)), (StatusCode::SERVICE_UNAVAILABLE, "store_unreachable"));
    assert_eq!(till.asked(), 2);
    proxy.shutdown().await;
    database.gone().await;
}

/// A certificate that vouches for itself, and what a server needs to show it.
fn certificate() -> (String, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![made.cert.der().clone()], key).expect("they belong together");
    (made.cert.pem(), TlsAcceptor::from(Arc::new(config)))
}

/// A server before `server` that takes nobody without TLS. Dropped means stopped, with all its connections.
struct Secured {
    port: u16,
    relaying: AbortOnDropHandle<()>,
}

impl Secured {
    async fn before(server: (String, u16), acceptor: TlsAcceptor, port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let relaying = tokio::spawn(async move {
            let mut passing = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let (acceptor, server) = (acceptor.clone(), server.clone());
                passing.spawn(async move {
                    let mut asks = [0; 8];
                    client.read_exact(&mut asks).await?;
                    assert_eq!(asks, [0, 0, 0, 8, 4, 210, 22, 47], "an SSLRequest, and nothing in the clear");
                    client.write_all(b"S").await?;
                    let mut client = acceptor.accept(client).await?;
                    let mut there = TcpStream::connect((&*server.0, server.1)).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut there).await
                });
            }
        });
        Self { port, relaying: AbortOnDropHandle::new(relaying) }
    }

    async fn gone(self) {
        self.relaying.abort();
        let _ = self.relaying.await;
    }
}

/// The same authority, a year later: nothing is written but its file, and nobody restarts anything.
#[tokio::test]
async fn other_roots_of_a_server_are_used_from_the_next_request_on() {
    let (database, till) = (Database::new().await, Till::open().await);
    let folder = tempfile::tempdir().expect("a folder");
    let (ca, path) = (folder.path().join("ca.pem"), folder.path().join("proxy.yaml"));
    let ((old, shows_old), (new, shows_new)) = (certificate(), certificate());
    std::fs::write(&ca, old).expect("written");
    let server = Secured::before(database.place(), shows_old, 0).await;
    let port = server.port;
    let text = format!(
        "listeners: [{{ name: http, address: 127.0.0.1:0 }}]\nadmin: none\nupstreams: {{ app: {{ url: 'http://{}' }} }}\n\
         routes:\n- upstream: app\n  idempotency:\n    store: 'postgres://{}@127.0.0.1:{port}/{}?sslmode=require'\n\
         \x20   ca: {}\n    principal: everybody\n",
        till.addr,
        database.user(),
        database.name,
        ca.display()
    );
    std::fs::write(&path, text).expect("written");
    let (mut file, config) = ConfigFile::open(path).await.expect("it is read");
    let mut proxy = start(config).await;
    let (status, ..) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!(status, StatusCode::CREATED);

    server.gone().await;
    let server = Secured::before(database.place(), shows_new, port).await;
    let (status, _, body) = told(charge(address(&proxy), "tap-8", "499")).await;
    assert_eq!((status, &*problem(&body)), (StatusCode::SERVICE_UNAVAILABLE, "store_unreachable"), "of whom is that?");
    std::fs::write(&ca, new).expect("written");
    tokio::time::timeout(AMPLE, file.changed()).await.expect("it is looked at");
    proxy.reload_file(&mut file).await.expect("it is taken");
    let (status, headers, _) = told(charge(address(&proxy), "tap-8", "499")).await;
    assert_eq!((status, is_replay(&headers)), (StatusCode::CREATED, false));
    let (status, headers, _) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, is_replay(&headers), till.charges()), (StatusCode::CREATED, true, 2), "the same records");
    proxy.shutdown().await;
    server.gone().await;
    database.gone().await;
}

/// Certificates of one's own: a server that takes nobody without TLS, from the roots in a file.
#[tokio::test]
async fn a_server_is_reached_over_tls_if_its_url_says_so() {
    let (database, till) = (Database::new().await, Till::open().await);
    let (roots, acceptor) = certificate();
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, roots).expect("written");
    let server = Secured::before(database.place(), acceptor, 0).await;
    let port = server.port;
    let url = format!("postgres://{}@127.0.0.1:{port}/{}?sslmode=require", database.user(), database.name);
    let store = |ca| IdempotencyStore::Postgres { url: url.clone(), ca };
    let proxy = start(keyed(till.addr, &store(Some(ca)))).await;
    let (status, ..) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!(status, StatusCode::CREATED);
    proxy.shutdown().await;
    let proxy = start(keyed(till.addr, &store(None))).await;
    let (status, _, body) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!((status, &*problem(&body)), (StatusCode::SERVICE_UNAVAILABLE, "store_unreachable"), "not of the web");
    proxy.shutdown().await;
    database.gone().await;
}

/// One that refuses does: nobody mends that by waiting. And its password is in nothing that is said of it.
#[tokio::test]
async fn a_server_that_refuses_ends_the_start() {
    let database = Database::new().await;
    let (host, port) = database.place();
    let user = format!("{}:hunter2", database.user());
    let wrong = plain(format!("postgres://{user}@{host}:{port}/{}_not", database.name));
    let refused = Proxy::start(keyed(([127, 0, 0, 1], 3000).into(), &wrong)).await.expect_err("no such database");
    assert!(matches!(refused, StartFailed::Store { .. }), "{refused:?}");
    let said = format!("{} {refused:?}", whole(&refused));
    assert!(said.contains("does not exist") && said.contains(":***@") && !said.contains("hunter2"), "{said}");
    database.gone().await;
}

/// The tables may have been made by a migration, for a role that may make none.
#[tokio::test]
async fn a_role_that_may_only_use_the_tables_is_enough() {
    let (database, till) = (Database::new().await, Till::open().await);
    let role = format!("{}_role", database.name);
    database.admin(&format!("DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN")).await;
    let used = database.store(&role, database.place());
    let client = database.client().await;
    client.batch_execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC").await.expect("revoked");
    let refused = Proxy::start(keyed(till.addr, &used)).await.expect_err("it may not make them");
    assert!(whole(&refused).contains("permission denied for schema public"), "{}", whole(&refused));
    start(keyed(till.addr, &database.store(&database.user(), database.place()))).await.shutdown().await;
    let grant = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}");
    client.batch_execute(&grant).await.expect("granted");
    let proxy = start(keyed(till.addr, &used)).await;
    let (status, ..) = told(charge(address(&proxy), "tap-7", "499")).await;
    assert_eq!(status, StatusCode::CREATED);
    proxy.shutdown().await;
    drop(client);
    database.admin(&format!("DROP DATABASE {} WITH (FORCE)", database.name)).await;
    database.admin(&format!("DROP ROLE {role}")).await;
}
