//! `oneclock idempotency` as its users meet it: on real stores, its output, its exit codes.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the helpers of a test are a test")]

use std::process::{Command, Output};
use std::time::Duration;

use oneclock_core::idempotency::{Claim, Claimed, Doubt, Fence, Fingerprint, Key, Owner, Scope, Takeover};
use oneclock_idempotency::{Answer, Settle, Store};
use oneclock_postgres::Pool;
use oneclock_postgres::tokio_postgres::{self, NoTls};
use serde_json::Value;

fn oneclock(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oneclock")).arg("idempotency").args(arguments).output().expect("the binary runs")
}

fn json(arguments: &[&str]) -> Value {
    let output = oneclock(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Exit code 1, and what it says.
#[track_caller]
fn cannot(arguments: &[&str], says: &str) {
    let output = oneclock(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("oneclock: ") && error.contains(says), "{error}");
}

fn scope(principal: &str, key: &str) -> Scope {
    let key = Key::new(key).unwrap();
    Scope { principal: principal.into(), method: "POST".into(), route: "/charges".into(), key }
}

fn ask(owner: u128) -> Claim {
    Claim {
        fingerprint: Fingerprint([7; 32]),
        owner: Owner(owner),
        made: None,
        lease: Duration::from_secs(600),
        retention: Duration::from_secs(3600),
        takeover: Takeover::Never,
    }
}

/// One in each state, and one key that two principals have.
async fn fill<St: Store>(store: &St) {
    for (key, settle) in [
        ("done", Some(Settle::Complete(Answer::new(http::StatusCode::CREATED, "receipt")))),
        ("free", Some(Settle::Release)),
        ("lost", Some(Settle::Doubt(Doubt::CutOff))),
        ("gone", Some(Settle::Doubt(Doubt::LeaseLapsed))),
        ("busy", None),
        ("both", None),
    ] {
        assert!(matches!(store.claim(&scope("shop-7", key), &ask(1)).await.unwrap().claimed, Claimed::Run { .. }));
        if let Some(settle) = settle {
            store.settle(&scope("shop-7", key), Fence(1), settle).await.unwrap();
        }
    }
    store.claim(&scope("shop-8", "both"), &ask(1)).await.unwrap();
    let lapsed = Claim { lease: Duration::ZERO, ..ask(1) };
    store.claim(&scope("shop-8", "lapsed"), &lapsed).await.unwrap();
}

/// What holds whichever store it is: `of` names it.
async fn tells_and_resolves<St: Store>(store: &St, of: &[&str]) {
    let on = |arguments: &[&str]| [arguments, of].concat().iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let words = |words: &[String]| oneclock(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let told = |arguments: &[&str]| json(&[arguments, of, &["--json"]].concat());
    fill(store).await;

    let listed = told(&["list"]);
    let keys: Vec<_> = listed.as_array().unwrap().iter().map(|record| record["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["gone", "lost", "lapsed"], "in the order of their scopes");
    assert_eq!((&listed[1]["state"], &listed[1]["because"]), (&"unknown".into(), &"cut_off".into()));
    assert_eq!(told(&["list", "--all"]).as_array().unwrap().len(), 8);
    assert_eq!(told(&["list", "--all", "--limit", "3"]).as_array().unwrap().len(), 3);
    assert_eq!(told(&["list", "--all", "--principal", "shop-8"]).as_array().unwrap().len(), 2);
    let table = String::from_utf8(words(&on(&["list"])).stdout).unwrap();
    let mut lines = table.lines();
    assert!(lines.next().unwrap().starts_with("KEY"), "{table}");
    assert!(lines.next().unwrap().contains("unknown: lease_lapsed"), "{table}");

    let done = told(&["show", "done"]);
    assert_eq!((&done[0]["state"], &done[0]["answer"]["status"]), (&"completed".into(), &201.into()));
    assert_eq!(told(&["show", "both"]).as_array().unwrap().len(), 2);
    let card = String::from_utf8(words(&on(&["show", "done"])).stdout).unwrap();
    assert!(card.starts_with("POST /charges done of shop-7\n") && card.contains("201, 7 bytes"), "{card}");

    // What is settled or under way stays as it is, and a key of two is nobody's.
    let resolve = |key, more: &[&str]| [&["resolve", key, "--reason", "asked the bank"], more, of].concat().join("\n");
    let failed = |key, more: &[&str], says| {
        let line = resolve(key, more);
        cannot(&line.split('\n').collect::<Vec<_>>(), says);
    };
    failed("done", &["--as", "failed"], "it is completed already, and stays so");
    failed("busy", &["--as", "failed"], "a run is under way");
    failed("none", &["--as", "failed"], "there is no record of none");
    failed("both", &["--as", "failed"], "several records");
    failed("lost", &["--as", "failed", "--fence", "9"], "it is at run 1 by now, and not at run 9");

    let lost = told(&[
        "resolve",
        "lost",
        "--as",
        "completed",
        "--reason",
        "asked the bank",
        "--fence",
        "1",
        "--status",
        "201",
        "--body",
        "receipt 9",
    ]);
    assert_eq!((&lost["resolved_as"], &lost["reason"]), (&"completed".into(), &"asked the bank".into()));
    let found = store.claim(&scope("shop-7", "lost"), &ask(2)).await.unwrap();
    assert_eq!(found.answer, Some(Answer::new(http::StatusCode::CREATED, "receipt 9")));
    assert_eq!(told(&["resolve", "gone", "--as", "completed", "--reason", "seen"])["resolved_as"], "completed");
    let found = store.claim(&scope("shop-7", "gone"), &ask(2)).await.unwrap();
    assert_eq!(found.answer, Some(Answer::not_kept(http::StatusCode::OK)));
    let line = resolve("lapsed", &["--as", "failed"]);
    let output = oneclock(&line.split('\n').collect::<Vec<_>>());
    let text = String::from_utf8(output.stdout).unwrap();
    let want =
        "POST /charges lapsed of shop-8: unknown (its run went silent) → failed_retryable, run 1; asked the bank\n";
    assert_eq!(text, want);
    let again = store.claim(&scope("shop-8", "lapsed"), &ask(2)).await.unwrap().claimed;
    assert_eq!(again, Claimed::Run { fence: Fence(2), taken_over: false });
    assert_eq!(told(&["list"]), Value::Array(vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn m3_a_person_may_settle_what_is_unknown_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite");
    let store = oneclock_sqlite::IdempotencyStore::builder(&path).busy_for(Duration::from_secs(10)).build().unwrap();
    tells_and_resolves(&store, &["--sqlite", path.to_str().unwrap()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m3_a_person_may_settle_what_is_unknown_on_a_server() {
    let url = std::env::var("ONECLOCK_POSTGRES_URL");
    let url = url.as_deref().unwrap_or("postgres://postgres@127.0.0.1:5432/postgres");
    let (admin, connection) = tokio_postgres::connect(url, NoTls).await.unwrap_or_else(|error| {
        panic!(
            "this test needs a PostgreSQL server that lets the user postgres in: on 127.0.0.1:5432, or the one of \
             ONECLOCK_POSTGRES_URL. `cargo xtask test` starts one. ({error})"
        )
    });
    tokio::spawn(connection);
    let schema = format!("oneclock_cli_{}", std::process::id());
    admin.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")).await.unwrap();
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}options=-c%20search_path%3D{schema}");
    let store = oneclock_postgres::IdempotencyStore::builder(Pool::builder(url.as_str()).size(2).build().unwrap())
        .within(Duration::from_secs(20))
        .build()
        .unwrap();
    cannot(&["list", "--postgres", &url], "relation \"oneclock_idempotency\" does not exist");
    store.create().await.unwrap();
    tells_and_resolves(&store, &["--postgres", &url]).await;
    admin.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
}

#[test]
fn what_is_no_store_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("typo.sqlite");
    cannot(&["list", "--sqlite", path.to_str().unwrap()], "is no store of idempotency records");
    assert!(!path.exists());
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    for wrong in [
        &["list"][..],
        &["list", "--sqlite", "a", "--postgres", "b"],
        &["show", "--sqlite", "a"],
        &["show", "", "--sqlite", "a"],
        &["resolve", "k", "--sqlite", "a", "--as", "completed"],
        &["resolve", "k", "--sqlite", "a", "--as", "unknown", "--reason", "x"],
        &["resolve", "k", "--sqlite", "a", "--as", "completed", "--reason", "x", "--body", "y"],
        &["resolve", "k", "--sqlite", "a", "--as", "failed", "--reason", "x", "--status", "201"],
        &["resolve", "k", "--sqlite", "a", "--as", "completed", "--reason", "x", "--status", "abc"],
    ] {
        let output = oneclock(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
