//! The address of the pool leads to another server: numbers of backends and transactions are others' there.

use std::net::SocketAddr;
use std::sync::Arc;

use oneclock_core::Outcome;
use oneclock_sqlx::Pool;
use oneclock_sqlx::sqlx::postgres::{PgConnectOptions, PgListener};
use oneclock_sqlx::sqlx::{self, Executor as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::{
    BOUND, Database, PLENTY, Recorder, error, eventually, ms, operation, run, running, server, until_idle, warm,
};

/// A name that can come to mean another server. That is the same one here, where what is asked is changed on its way to
/// what it would be there.
struct Address {
    address: SocketAddr,
    over: watch::Sender<Option<Arc<Over>>>,
}

struct Over {
    then: Then,
    says: Box<dyn Fn(&str) -> String + Send + Sync>,
}

/// What becomes of connections that were open before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Silent,
    Alive,
}

impl Address {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (over, watching) = watch::channel(None::<Arc<Over>>);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = server();
                let to = TcpStream::connect((server.get_host(), server.get_port())).await.unwrap();
                let over = watching.borrow().clone();
                match over {
                    None => drop(tokio::spawn(until_over(client, to, watching.clone()))),
                    Some(over) => drop(tokio::spawn(changed(client, to, over))),
                }
            }
        });
        Self { address, over }
    }

    fn options(&self, database: &Database) -> PgConnectOptions {
        database.options().host("127.0.0.1").port(self.address.port())
    }

    fn fail_over(&self, then: Then, says: impl Fn(&str) -> String + Send + Sync + 'static) {
        self.over.send_replace(Some(Arc::new(Over { then, says: Box::new(says) })));
    }
}

async fn until_over(mut client: TcpStream, mut to: TcpStream, mut over: watch::Receiver<Option<Arc<Over>>>) {
    let silent = async {
        let is_silent = |over: &Option<Arc<Over>>| over.as_ref().is_some_and(|over| over.then == Then::Silent);
        if over.wait_for(is_silent).await.map(drop).is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut to) => {}
        () = silent => std::future::pending().await, // open, and nothing moves
    }
}

/// Changes what is sent in one message, as `raw_sql` does.
async fn changed(client: TcpStream, to: TcpStream, over: Arc<Over>) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.into_split(), to.into_split());
    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = from_client.read(&mut buffer).await {
        let mut message = buffer[..n].to_vec();
        if message[0] == b'Q' {
            let sql = (over.says)(std::str::from_utf8(&message[5..n - 1]).unwrap());
            message = [b"Q", &u32::try_from(sql.len() + 5).unwrap().to_be_bytes()[..], sql.as_bytes(), b"\0"].concat();
        }
        if to_server.write_all(&message).await.is_err() {
            return;
        }
    }
}

/// Its backend's number is somebody else's on the new server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d3_after_a_failover_a_cancel_hits_nobody_else() {
    let database = Database::new().await;
    let address = Address::new().await;
    let pool = Pool::with_options(address.options(&database)).size(1).build().unwrap();
    warm(&pool, 1).await;
    let mut innocent = database.outside().await;
    let other: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut innocent).await.unwrap();
    let innocent = tokio::spawn(async move {
        innocent.execute("SELECT pg_sleep(60) /* innocent */").await.map(drop) //
    });
    let mut outside = database.outside().await;
    eventually("its neighbour", async || (running(&mut outside, "innocent").await == 1).then_some(())).await;
    let op = operation(ms(1_500));
    let mut guard = pool.get_in(&op, "cut").await.unwrap();
    let pid = crate::support::pid(&mut guard).await;
    let statement = async move { sqlx::query("SELECT pg_sleep(20)").execute(&mut guard).await };
    let fails_over = async {
        eventually("its statement", async || {
            (running(&mut outside, "pg_sleep(20)").await == 1 || op.is_ended()).then_some(())
        })
        .await;
        let (pid, other) = (pid.to_string(), other.to_string());
        address.fail_over(Then::Silent, move |sql| sql.replace(&pid, &other));
    };
    let (cut, ()) = tokio::join!(statement, fails_over);
    error(cut);
    until_idle(&pool).await; // all that is said of it was said
    assert_eq!(running(&mut outside, "innocent").await, 1);
    assert!(!innocent.is_finished(), "its neighbour was hit");
    assert_eq!(pool.status().discarded, 1);
    // D1: what could not be cancelled is ended by the bound that it has.
    eventually("its end", async || (running(&mut outside, "pg_sleep(20)").await == 0).then_some(())).await;
    innocent.abort();
}

/// The number of the transaction is that of another one, which was committed: on another server, and on the same one after
/// a crash that the transaction did not outlive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_another_transaction_of_the_same_number_tells_nothing() {
    fn another_server(sql: &str) -> String {
        sql.replace("pg_postmaster_start_time()", "now()")
    }
    fn after_a_crash(sql: &str) -> String {
        sql.replace("FROM pg_stat_activity", "FROM (SELECT now() AS backend_start) AS young")
    }
    fn a_standby(sql: &str) -> String {
        sql.replace("txid_status(", "pg_ls_dir('there is none') || txid_status(")
    }
    for there in [another_server, after_a_crash, a_standby] {
        let database = Database::new().await;
        let mut outside = database.outside().await;
        run(&mut outside, crate::commit::SLOW_COMMIT).await;
        let committed: i64 = sqlx::query_scalar("SELECT txid_current()").fetch_one(&mut outside).await.unwrap();
        let address = Address::new().await;
        let pool = Pool::with_options(address.options(&database)).size(1).build().unwrap();
        let recorder = Recorder::new();
        let op = operation(PLENTY).observed_by(recorder.clone());
        let mut tx = crate::commit::inserted(&pool, &op).await;
        let lost: i64 = sqlx::query_scalar("SELECT txid_current()").fetch_one(&mut tx).await.unwrap();
        address.fail_over(Then::Alive, move |sql| there(&sql.replace(&lost.to_string(), &committed.to_string())));
        let dies = async {
            eventually("its COMMIT", async || (running(&mut outside, "COMMIT").await == 1).then_some(())).await;
            let all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                       WHERE datname = current_database() AND pid <> pg_backend_pid()";
            run(&mut outside, all).await;
        };
        let (told, ()) = tokio::join!(tx.commit(), dies);
        let told = told.expect_err("it is lost");
        assert!(matches!(told.outcome(), Outcome::Unknown { .. }), "{told}");
        assert!(matches!(recorder.call("charge").await.outcome, Outcome::Unknown { .. }));
        assert_eq!(database.rows().await, 0);
    }
}

/// A transaction that wrote no row has no number, and may have done something: what it notified of is heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d5_a_lost_commit_without_a_number_is_unknown() {
    let database = Database::new().await;
    let mut listener = PgListener::connect_with(
        &sqlx::postgres::PgPoolOptions::new().max_connections(1).connect_with(database.options()).await.unwrap(),
    )
    .await
    .unwrap();
    listener.listen("charges").await.unwrap();
    let (address, cut) = cut_at_commit().await;
    let pool = Pool::with_options(database.options().host("127.0.0.1").port(address.port())).size(1).build().unwrap();
    let recorder = Recorder::new();
    let op = operation(PLENTY).observed_by(recorder.clone());
    let mut tx = pool.begin_in(&op, "notifies").await.unwrap();
    sqlx::query("SELECT pg_notify('charges', 'one')").execute(&mut tx).await.unwrap();
    let lost = tx.commit().await.unwrap_err();
    assert!(matches!(lost.outcome(), Outcome::Unknown { .. }), "{lost}");
    assert!(matches!(recorder.call("notifies").await.outcome, Outcome::Unknown { .. }));
    let heard = tokio::time::timeout(BOUND, listener.recv()).await.unwrap().unwrap();
    assert_eq!(heard.payload(), "one");
    cut.abort();
}

/// Relays, until a COMMIT: that still arrives, and its answer does not.
async fn cut_at_commit() -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let relay = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = server();
            let to = TcpStream::connect((server.get_host(), server.get_port())).await.unwrap();
            tokio::spawn(async move {
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), to.into_split());
                let mut back = tokio::spawn(async move {
                    let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
                    drop(to_client);
                });
                let mut buffer = vec![0; 16 * 1024];
                while let Ok(n @ 1..) = from_client.read(&mut buffer).await {
                    let is_commit = buffer[..n].windows(7).any(|part| part == b"COMMIT\0");
                    if is_commit {
                        back.abort();
                        let _ = (&mut back).await;
                    }
                    if to_server.write_all(&buffer[..n]).await.is_err() || is_commit {
                        return;
                    }
                }
            });
        }
    });
    (address, relay)
}
