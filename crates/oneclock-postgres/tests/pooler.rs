//! D8: a transaction pooler in front of the server is found, and the pool refuses its calls from then on; a session pool
//! is none of its business.
//!
//! Needs the program `pgbouncer`: in `ONECLOCK_PGBOUNCER`, in the path, or in `/usr/sbin`. Debian has it as the package
//! `pgbouncer`; `cargo xtask test` installs it where it is missing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests: a panic is how they fail

#[path = "main/support.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod support;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use oneclock::Operation;
use oneclock_core::Outcome;
use oneclock_postgres::tokio_postgres::config::Host;
use oneclock_postgres::tokio_postgres::{Client, Config, NoTls};
use oneclock_postgres::{PgError, Pool, SelfTestFailed};
use support::{BOUND, Database, ms, patient};

/// A pooler that goes away with it.
struct Bouncer {
    child: Child,
    folder: PathBuf,
    config: Config,
}

impl Bouncer {
    async fn start(database: &Database, mode: &str, more: &str) -> Self {
        let server = database.config();
        let (host, port) = match &server.get_hosts()[0] {
            Host::Tcp(host) => (host.clone(), server.get_ports().first().copied().unwrap_or(5432)),
            other => panic!("a server on TCP, and not {other:?}"),
        };
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = std::env::temp_dir().join(format!("oneclock-pgbouncer-{}-{free}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let user = server.get_user().unwrap().to_owned();
        let ini = folder.join("pgbouncer.ini");
        let password = server.get_password().map(|word| format!(" password={}", String::from_utf8_lossy(word)));
        std::fs::write(
            &ini,
            format!(
                "[databases]\n* = host={host} port={port} user={user}{}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {free}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\nlogfile = {}\n{more}\n",
                password.unwrap_or_default(),
                folder.join("log").display()
            ),
        )
        .unwrap();
        let mut command = Command::new(program());
        if is_root() {
            // It refuses to run as root.
            let owned = Command::new("chown").arg("-R").arg("nobody").arg(&folder).status().unwrap();
            assert!(owned.success());
            command.arg("-u").arg("nobody");
        }
        let child = command.arg(&ini).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut config = Config::new();
        config.host("127.0.0.1").port(free).user(&user).dbname(&database.name);
        let bouncer = Self { child, folder, config };
        support::until("PgBouncer to answer", async || bouncer.config.connect(NoTls).await.is_ok()).await;
        bouncer
    }
}

impl Bouncer {
    /// A client without our pool, which lives as long as the runtime.
    async fn client(&self) -> Client {
        let (client, connection) = self.config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn program() -> PathBuf {
    let named = std::env::var_os("ONECLOCK_PGBOUNCER").filter(|named| !named.is_empty()).map(PathBuf::from);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places =
        std::env::split_paths(&paths).chain([PathBuf::from("/usr/sbin")]).map(|folder| folder.join("pgbouncer"));
    named.or_else(|| places.find(|place| place.is_file())).expect(
        "these tests need the program pgbouncer: `apt-get install pgbouncer`, or name one in ONECLOCK_PGBOUNCER; `cargo \
         xtask test` installs it",
    )
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    String::from_utf8_lossy(&id.stdout).trim() == "0"
}

#[tokio::test]
async fn d8_a_transaction_pooler_is_found_and_refused() {
    let database = Database::new().await;
    for more in ["", "server_round_robin = 1\nmin_pool_size = 4"] {
        let bouncer = Bouncer::start(&database, "transaction", more).await;
        let pool = Pool::configured(bouncer.config.clone()).size(2).build().unwrap();
        let failed = pool.self_test().await.unwrap_err();
        let SelfTestFailed::Postgres(PgError::Pooler { sign }) = failed else { panic!("{failed:?}") };
        println!("{more:?}: {sign}");
        // What would harm others is refused from here on.
        let error = pool.query("any", "SELECT 1", &[]).await.unwrap_err();
        assert!(matches!(error, PgError::Pooler { .. }), "{error}");
        assert_eq!(error.outcome(), Outcome::NotSent);
    }
}

/// Two backends stand ready and are given in turn, so that each of two sessions may see one backend only for a while: how a
/// pooler stayed unseen once.
#[tokio::test]
async fn d8_a_pooler_with_two_warm_backends_is_found() {
    let database = Database::new().await;
    for order in ["0", "1"] {
        let more = format!("server_round_robin = {order}\ndefault_pool_size = 2");
        let bouncer = Bouncer::start(&database, "transaction", &more).await;
        let (one, other) = (bouncer.client().await, bouncer.client().await);
        for client in [&one, &other] {
            client.batch_execute("BEGIN; SELECT 1").await.unwrap();
        }
        for client in [&one, &other] {
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        let pool = Pool::configured(bouncer.config.clone()).size(2).build().unwrap();
        let failed = pool.self_test().await.unwrap_err();
        let SelfTestFailed::Postgres(PgError::Pooler { sign }) = failed else { panic!("{more:?}: {failed:?}") };
        println!("{more:?}: {sign}");
    }
}

/// One client, one backend as long as it likes: bounds and cancels reach whom they should.
#[tokio::test]
async fn d8_a_session_pooler_is_fine() {
    let database = Database::new().await;
    let bouncer = Bouncer::start(&database, "session", "").await;
    let pool = Pool::configured(bouncer.config.clone()).size(2).build().unwrap();
    let found = pool.self_test().await.unwrap();
    println!("{found}");
    let brief = Operation::begin("brief", ms(400));
    let error = pool.get_in(&brief, "slow").await.unwrap().batch_execute("SELECT pg_sleep(30)").await.unwrap_err();
    assert!(matches!(error, PgError::Stopped { .. }), "{error}");
    support::at_rest(&pool).await;
    let outside = database.outside().await;
    support::until("idle", async || support::running(&outside, &database, "pg_sleep").await == 0).await;
    tokio::time::timeout(BOUND, patient().run(pool.query("next", "SELECT 1", &[]))).await.unwrap().unwrap().unwrap();
}
