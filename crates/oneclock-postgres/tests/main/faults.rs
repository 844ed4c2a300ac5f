//! The server dies, the network stalls, there is no room: each ends by the deadline with a known outcome, and the pool heals.

use std::sync::Arc;
use std::time::Duration;

use oneclock::{Operation, clock};
use oneclock_core::{Name, Outcome, Stage};
use oneclock_http::Problem;
use oneclock_postgres::tokio_postgres::error::SqlState;
use oneclock_postgres::{ConnectError, PgError, Pool};

use crate::relay::Relay;
use crate::support::{BOUND, Calls, Database, at_rest, ms, patient, running, sent, until};

/// Generous, and far below what anything would take that has no deadline.
const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_backend_that_is_killed_midway_is_an_error_and_the_pool_heals() {
    let database = Database::new().await;
    let outside = database.outside().await;
    let pool = database.pool(|pool| pool.size(2)).await;
    let op = patient();
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid() \
                AND application_name <> 'outside'";
    let mut client = pool.get_in(&op, "slow").await.unwrap();
    let query = client.execute("INSERT INTO t SELECT 1, 1 FROM pg_sleep(30)", &[]);
    let query = sent(query, async || running(&outside, &database, "pg_sleep").await == 1).await;
    outside.query(kill, &[&database.name]).await.unwrap();
    let error = query.await.unwrap_err();
    assert!(matches!(error.outcome(), Outcome::Unknown { .. }), "it may come after a commit: {error}");
    drop(client);
    op.run(pool.query("next", "SELECT 1", &[])).await.unwrap().unwrap();

    // Inside a transaction nothing is committed, which is known.
    let mut client = pool.get_in(&op, "transaction").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    tx.execute("INSERT INTO t VALUES (1, 1)", &[]).await.unwrap();
    outside.query(kill, &[&database.name]).await.unwrap();
    let error = tx.commit().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Rejected, "{error}");
    drop(client);

    // Idle ones that were killed are not lent.
    at_rest(&pool).await;
    op.run(pool.query("warm", "SELECT 1", &[])).await.unwrap().unwrap();
    outside.query(kill, &[&database.name]).await.unwrap();
    until("nobody else there", async || {
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name <> 'outside'";
        outside.query_one(others, &[&database.name]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    let mut healed = false;
    for _ in 0..3 {
        healed |= op.run(pool.query("next", "SELECT 1", &[])).await.unwrap().is_ok();
    }
    assert!(healed);
    assert_eq!(crate::support::rows(&outside, "t").await, 0);
}

#[tokio::test]
async fn a_network_that_stalls_ends_at_the_deadline_and_the_pool_heals() {
    let database = Database::new().await;
    let outside = database.outside().await;
    database.pool(|pool| pool).await; // its table
    let relay = Relay::to(&database.config()).await;
    let pool = Pool::configured(relay.through(&database.config())).size(1).grace(ms(200)).build().unwrap();
    pool.get("warm").await.unwrap().prepare("INSERT INTO t VALUES (1, 1)").await.unwrap(); // else it would not be sent at all

    // In the middle of a statement; and its cancel gets nowhere either.
    relay.set(|switches| &switches.stalls, true);
    relay.set(|switches| &switches.deaf, true);
    let began = clock::now();
    let op = Operation::begin("stalled", ms(400));
    let error = pool.get_in(&op, "write").await.unwrap().execute("INSERT INTO t VALUES (1, 1)", &[]).await.unwrap_err();
    assert!(matches!(error.outcome(), Outcome::Unknown { .. }), "it may have been sent: {error}");
    assert!(clock::now().since(began) < SOON, "{:?}", clock::now().since(began));
    at_rest(&pool).await;

    // While connecting: nothing was sent, and that is known.
    let op = Operation::begin("stalled", ms(400));
    let error = pool.get_in(&op, "write").await.map(|_| ()).unwrap_err();
    assert_eq!((error.outcome(), error.ending().map(|ending| ending.stage)), (Outcome::NotSent, Some(Stage::Connect)));

    relay.set(|switches| &switches.stalls, false);
    relay.set(|switches| &switches.deaf, false);
    let op = patient();
    op.run(pool.query("healed", "SELECT 1", &[])).await.unwrap().unwrap();
    until("nothing left on the server", async || running(&outside, &database, "INSERT").await == 0).await;
}

/// A copy whose socket takes nothing any more: the producer waits, and not for ever.
#[tokio::test]
async fn a_copy_into_a_stalled_socket_ends_at_the_deadline() {
    let database = Database::new().await;
    database.pool(|pool| pool).await; // its table
    let relay = Relay::to(&database.config()).await;
    let pool = Pool::configured(relay.through(&database.config())).size(1).grace(ms(200)).build().unwrap();
    let op = Operation::begin("stalled", ms(400));
    let mut client = pool.get_in(&op, "copy").await.unwrap();
    let mut copy = client.copy_in("COPY t FROM STDIN").await.unwrap();
    relay.set(|switches| &switches.stalls, true);
    let piece = bytes::Bytes::from(vec![b'\n'; 1 << 20]);
    let began = clock::now();
    let error = loop {
        if let Err(error) = copy.send(piece.clone()).await {
            break error;
        }
    };
    assert!(matches!(error, PgError::Stopped { .. }), "{error}");
    assert!(clock::now().since(began) < SOON);
    drop(copy);
    drop(client);
    at_rest(&pool).await;
}

/// The server has no room: the pool asks again until it has, or until the deadline, and then says what the server said.
#[tokio::test]
async fn a_server_without_room_ends_at_the_deadline_and_the_pool_heals() {
    let database = Database::new().await;
    let admin = database.admin().await;
    // Superusers are not limited, so somebody else connects.
    let role = format!("{}_guest", database.name);
    admin
        .batch_execute(&format!("DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN CONNECTION LIMIT 1"))
        .await
        .unwrap();
    let mut config = database.config();
    config.user(&role);
    let outside = crate::support::connect(&config).await;
    let pool = Pool::configured(config).size(2).build().unwrap();

    let began = clock::now();
    let op = Operation::begin("full", ms(800));
    let error = pool.get_in(&op, "lookup").await.map(|_| ()).unwrap_err();
    assert_eq!((error.outcome(), error.ending().map(|ending| ending.stage)), (Outcome::NotSent, Some(Stage::Connect)));
    assert!(error.to_string().contains("too many connections") && error.to_string().contains("53300"), "{error}");
    assert!(clock::now().since(began) < SOON);

    // One leaves while somebody waits.
    let op = Operation::begin("full", BOUND);
    let mut waiting = Box::pin(op.run(pool.query("lookup", "SELECT 1", &[])));
    assert!(tokio::time::timeout(ms(50), &mut waiting).await.is_err());
    drop(outside);
    waiting.await.unwrap().unwrap();
    pool.close().await;
    drop(pool);
    until("the role unused", async || admin.batch_execute(&format!("DROP ROLE IF EXISTS {role}")).await.is_ok()).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_that_says_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let pool = Pool::builder(format!("host=127.0.0.1 port={port} user=nobody")).build().unwrap();
    let calls = Arc::new(Calls::default());
    // It might be starting again. Not for the whole budget: whoever is told has time for something else.
    let op = calls.operation(BOUND);
    let began = clock::now();
    let error = pool.get_in(&op, "lookup").await.map(|_| ()).unwrap_err();
    assert!(clock::now().since(began) < SOON && op.ending().is_none(), "{error}");
    assert_eq!(error.outcome(), Outcome::NotSent);
    assert!(matches!(error.connect_error(), Some(ConnectError::Io(_))), "{error}");
    assert!(error.to_string().contains("no way to the server"), "{error}");
    let problem = Problem::of(error);
    assert_eq!((problem.status(), problem.outcome()), (503, Some(Outcome::NotSent)), "{problem}");
    // What has been found out once is told at once: one look, and no pause.
    pool.get_in(&op, "lookup").await.map(|_| ()).unwrap_err();
    let was = calls.seen();
    assert_eq!(was, vec![(Name::literal("lookup"), Outcome::NotSent); 2], "nothing called them off");
    assert_eq!(calls.causes(), [None, None]);
    let small = calls.operation(ms(400));
    pool.get_in(&small, "lookup").await.map(|_| ()).unwrap_err();
    let pool = Pool::builder("host=127.0.0.1 user=postgres dbname=no_such_database_at_all").build().unwrap();
    let error = pool.get_in(&patient(), "lookup").await.map(|_| ()).unwrap_err();
    assert!(matches!(error, PgError::Connect { .. }), "{error}");
    assert_eq!(error.database().map(|error| error.code().clone()), Some(SqlState::UNDEFINED_DATABASE));
}
