//! Over PostgreSQL.

use oneclock_core::expiry::{Policy, Why};
use oneclock_postgres::tokio_postgres::{self, NoTls};
use oneclock_postgres::{PgQueue, Pool};

use super::support::{HOUR, bury, json, name, oneclock, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_seen_put_back_and_dropped() {
    let url = std::env::var("ONECLOCK_POSTGRES_URL");
    let url = url.as_deref().unwrap_or("postgres://postgres@127.0.0.1:5432/postgres");
    let (admin, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let (schema, queue) = (format!("oneclock_cli_queue_{}", std::process::id()), name());
    admin.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")).await.unwrap();
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}options=-c%20search_path%3D{schema}");
    let secured = format!("{url}&sslmode=require");
    let stranger = oneclock(&["inspect", &queue, "--postgres", &secured, "--over", "0"]);
    let said = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert_eq!(stranger.status.code(), Some(1), "{said}");
    assert!(said.contains("certificate"), "that server's certificate is from nobody whom the web knows: {said}");
    let missing = oneclock(&["inspect", &queue, "--postgres", &url, "--over", "0"]);
    assert_eq!(missing.status.code(), Some(1), "its tables are not made: {missing:?}");

    let pool = Pool::builder(url.as_str()).size(2).build().unwrap();
    let broker = PgQueue::builder(queue.clone(), pool).build().unwrap();
    broker.create().await.unwrap();
    bury(&broker, "back", Policy::DeadLetter, HOUR, Why::AttemptsExhausted).await;
    bury(&broker, "junk", Policy::DeadLetter, HOUR, Why::Rejected).await;
    let seen = oneclock(&["inspect", &queue, "--postgres", &url, "--over", "0", "--messages"]);
    assert!(text(&seen).contains("after 5 attempts: the bank said 503"), "{seen:?}");
    let back = oneclock(&["redrive", &queue, "--postgres", &url, "--all", "--because", "attempts_exhausted"]);
    assert!(back.status.success() && text(&back).contains("charge back of shop: put back"), "{back:?}");
    let dropped = oneclock(&["drop", &queue, "--postgres", &url, "--all", "--reason", "a test", "--json"]);
    assert_eq!((dropped.status.code(), &json(&dropped)["dropped"]), (Some(0), &1.into()), "{dropped:?}");
    let expired = oneclock(&["expire", &queue, "--postgres", &url]);
    assert!(expired.status.success() && text(&expired).contains("nothing had certainly expired"), "{expired:?}");
    admin.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
}
