//! The outbox: published with the work or not at all.

use oneclock_core::Outcome;
use oneclock_postgres::{PgError, PgQueue, Pool, Transaction};
use oneclock_queue::Lane;

use crate::relay::Relay as Wire;
use crate::shop::{in_lane, message, queue};
use crate::support::{Database, ms, patient, rows, until};

async fn orders(database: &Database) {
    database.outside().await.batch_execute("CREATE TABLE orders (n int PRIMARY KEY)").await.unwrap();
}

async fn order(jobs: &PgQueue, tx: &mut Transaction<'_>, n: i32) -> Result<(), PgError> {
    tx.execute("INSERT INTO orders VALUES ($1)", &[&n]).await?;
    jobs.publish_with(tx, &message(usize::try_from(n).unwrap())).await
}

#[tokio::test]
async fn it_is_published_with_the_work_or_not_at_all() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue).await;
    orders(&database).await;
    let pool = Pool::configured(database.config()).build().unwrap();
    let op = patient();
    let buys = |n| {
        pool.transaction_in(&op, "order", {
            let jobs = &jobs;
            async move |tx| order(jobs, tx, n).await
        })
    };
    buys(1).await.unwrap();
    buys(1).await.unwrap_err(); // rolled back
    let mut client = pool.get_in(&op, "order").await.unwrap();
    let mut left = client.begin().await.unwrap();
    order(&jobs, &mut left, 2).await.unwrap();
    assert_eq!(in_lane(&jobs, Lane::Main).await, 1, "nobody sees it before its commit");
    drop(left);
    drop(client);
    buys(3).await.unwrap();
    let published: Vec<_> = jobs.list(Lane::Main, 10).await.unwrap();
    let published: Vec<&str> = published.iter().map(|job| &*job.message.id).collect();
    assert_eq!(published, ["id-1", "id-3"]);
    assert_eq!(rows(&database.outside().await, "orders").await, 2);
}

/// The answer to COMMIT never comes: what is said of the order is true of its message as well, and there is one of it.
#[tokio::test]
async fn d5_after_a_lost_commit_there_is_one_message_or_none_and_that_is_what_is_said() {
    let database = Database::new().await;
    let jobs = queue(&database, |queue| queue).await;
    orders(&database).await;
    let outside = database.outside().await;
    let wire = Wire::to(&database.config()).await;
    let pool = Pool::configured(wire.through(&database.config())).size(1).commit_bound(ms(2_000)).build().unwrap();
    let op = patient();

    // Committed, and the server can be asked.
    let mut client = pool.get_in(&op, "order").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    order(&jobs, &mut tx, 1).await.unwrap();
    wire.set(|switches| &switches.swallows_answers, true);
    let cutting = async {
        until("the commit", async || rows(&outside, "orders").await == 1).await;
        wire.set(|switches| &switches.swallows_answers, false);
        wire.cut();
    };
    let (committed, ()) = tokio::join!(tx.commit(), cutting);
    committed.expect("the server knows that it was committed");
    drop(client);
    assert_eq!(rows(&outside, "oneclock_queue").await, 1);

    // COMMIT itself got lost: nothing is there, and it may be done again.
    let mut client = pool.get_in(&op, "order").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    order(&jobs, &mut tx, 2).await.unwrap();
    wire.set(|switches| &switches.swallows_requests, true);
    let cutting = async {
        tokio::time::sleep(ms(50)).await; // nothing can be seen of what is lost
        wire.set(|switches| &switches.swallows_requests, false);
        wire.cut();
    };
    let (committed, ()) = tokio::join!(tx.commit(), cutting);
    assert_eq!(committed.unwrap_err().outcome(), Outcome::Rejected);
    drop(client);
    assert_eq!(rows(&outside, "oneclock_queue").await, 1);

    // Nobody can be asked: unknown, and the message is there if the order is.
    let mut client = pool.get_in(&op, "order").await.unwrap();
    let mut tx = client.begin().await.unwrap();
    order(&jobs, &mut tx, 3).await.unwrap();
    wire.set(|switches| &switches.swallows_answers, true);
    wire.set(|switches| &switches.refuses, true);
    let cutting = async {
        until("the commit", async || rows(&outside, "orders").await == 2).await;
        wire.cut();
    };
    let (committed, ()) = tokio::join!(tx.commit(), cutting);
    assert!(matches!(committed.unwrap_err().outcome(), Outcome::Unknown { .. }));
    assert_eq!(rows(&outside, "oneclock_queue").await, 2);
}
