//! What the other process does. It is this test binary again, told by its environment. The place of its records is
//! `<database>/<schema>`.

use oneclock::clock;
use oneclock_core::idempotency::{Claim, Key, Refusal};
use oneclock_idempotency::Answer;
use oneclock_postgres::tokio_postgres::Config;
use oneclock_postgres::{IdempotencyStore, NotOnce, Once, PgError};

use crate::killed::{Step, Told, block_on, reap, recover, serve};
use crate::records::{ask, scope, store_in};
use crate::support::{connect, patient, server};

fn place(told: &Told) -> (Config, &str) {
    let (database, schema) = told.place.split_once('/').unwrap();
    let mut config = server();
    config.dbname(database);
    (config, schema)
}

pub(crate) fn store(told: &Told) -> IdempotencyStore {
    let (config, schema) = place(told);
    let (store, shift) = (store_in(&config, schema), told.shift);
    let store = if shift.is_zero() { store } else { store.clock(move || clock::wall() + shift) }; // else the server's own
    store.build().unwrap()
}

#[test]
#[ignore = "the other process of other tests"]
fn child() {
    let Some((role, told)) = Told::of_this_process() else { return };
    block_on(async {
        match role.as_str() {
            "lease" => serve(&told, store(&told)).await,
            "lease-recover" => recover(&told, store(&told)).await,
            "once" => once(&told, "first").await,
            "once-recover" => {
                once(&told, "second").await;
                once(&told, "last").await;
            }
            "two-transactions" => two_transactions(&told).await,
            "reap" => reap(&told, store(&told)).await,
            "stall" => crate::stopped::stall(&told).await,
            other => panic!("no such role: {other}"),
        }
    });
}

// In one transaction: the effect is a row of the same database.

/// One attempt of a client.
async fn once(told: &Told, attempt: &'static str) {
    let key = &told.key;
    let store = store(told);
    let made = Key::new(key).unwrap().made();
    let asked = Claim { made, ..ask(u128::from(std::process::id())) };
    told.note(&format!("invoke {key} {attempt}"));
    told.kills_at(Step::BeforeClaim);
    told.kills_during(Step::DuringClaim);
    let done = store
        .once_in(&patient(), "charge", &scope(key), &asked, async |tx| {
            told.kills_at(Step::AfterClaim);
            tx.query("SELECT * FROM effects WHERE key = $1", &[key]).await?;
            told.kills_at(Step::BeforeEffect);
            tx.execute("INSERT INTO effects VALUES ($1, $2)", &[key, &attempt]).await?;
            told.kills_at(Step::AfterEffect);
            told.kills_during(Step::DuringCompletion);
            Ok::<_, PgError>(Answer::new(http::StatusCode::CREATED, format!("receipt of {attempt}")))
        })
        .await;
    told.kills_at(Step::AfterCompletion);
    told.note(&match done {
        Ok(Once::Ran(answer) | Once::Replayed(answer)) => {
            format!("ok {key} {attempt} {}", String::from_utf8_lossy(answer.body().unwrap()))
        }
        Ok(Once::Refused(Refusal::KeyTooOld)) | Err(NotOnce::Work(_) | NotOnce::Store(_)) => {
            format!("fail {key} {attempt}")
        }
        _ => format!("info {key} {attempt}"),
    });
}

/// The same with a record that is committed after the work.
async fn two_transactions(told: &Told) {
    let (mut config, schema) = place(told);
    config.options(format!("-c search_path={schema}"));
    let (client, key) = (connect(&config).await, &told.key);
    let attempt = if told.folder().notes("history").is_empty() { "first" } else { "second" };
    told.note(&format!("invoke {key} {attempt}"));
    client.batch_execute("CREATE TABLE IF NOT EXISTS done (key text)").await.unwrap();
    if client.query("SELECT * FROM done WHERE key = $1", &[key]).await.unwrap().is_empty() {
        client.execute("INSERT INTO effects VALUES ($1, $2)", &[key, &attempt]).await.unwrap();
        told.kills_at(Step::AfterEffect);
        client.execute("INSERT INTO done VALUES ($1)", &[key]).await.unwrap();
    }
    told.note(&format!("ok {key} {attempt} receipt"));
}
