//! By system call: a claim is acknowledged only after it was synced. `kill -9` cannot show that, since the kernel keeps what
//! was written.

use std::process::Command;
use std::time::Duration;

use oneclock_core::idempotency::{Claim, Claimed, Fingerprint, Key, Owner, Scope, Takeover};
use oneclock_idempotency::Store as _;
use oneclock_sqlite::rusqlite::Connection;

use crate::child::store;
use crate::killed::{ARGUMENTS, ROLE, Told};
use crate::support::*;

const CLAIMS: usize = 20;

/// The child: each claim, then a line that says so.
pub(crate) async fn claims(told: &Told) {
    let (store, folder) = (store(told), told.folder());
    folder.note("acks", "OPEN");
    for n in 0..CLAIMS {
        let key = Key::new(&format!("k{n}")).unwrap();
        let scope = Scope { principal: "p".into(), method: "POST".into(), route: "r".into(), key };
        let claim = Claim {
            fingerprint: Fingerprint([7; 32]),
            owner: Owner(1),
            made: None,
            lease: Duration::from_secs(30),
            retention: Duration::from_secs(3600),
            takeover: Takeover::Never,
        };
        assert!(matches!(store.claim(&scope, &claim).await.unwrap().claimed, Claimed::Run { .. }));
        folder.note("acks", &format!("ACK {n}"));
    }
}

/// The same as it is often done: a write-ahead log with what SQLite calls normal.
pub(crate) fn claims_unsynced(told: &Told) {
    let folder = told.folder();
    let connection = Connection::open(folder.path.join("store.sqlite")).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
    connection.pragma_update(None, "synchronous", "normal").unwrap();
    connection.execute_batch("CREATE TABLE claims (n INTEGER)").unwrap();
    folder.note("acks", "OPEN");
    for n in 0..CLAIMS {
        connection.execute("INSERT INTO claims VALUES (?1)", [n as i64]).unwrap();
        folder.note("acks", &format!("ACK {n}"));
    }
}

/// How many claims were acknowledged with no sync of the log completed since the acknowledgement before.
fn unsynced(role: &str) -> usize {
    let folder = Folder::new();
    let trace = folder.path.join("trace");
    let plain = Told::new(&folder, "", "-").command(role);
    let mut traced = Command::new("strace");
    traced
        .args(["-f", "-qq", "-y", "-e", "trace=fsync,fdatasync,write", "-s", "16", "-o"])
        .arg(&trace)
        .arg(plain.get_program());
    traced
        .args(ARGUMENTS)
        .envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdout(std::process::Stdio::null());
    assert!(traced.get_envs().any(|(name, _)| name == ROLE));
    let status = traced.status().expect("strace: `apt-get install strace`, and the right to trace one's own children");
    assert!(status.success(), "{status:?}");
    let mut synced = false;
    let (mut acks, mut without) = (0, 0);
    for line in std::fs::read_to_string(trace).unwrap().lines() {
        if line.contains("sync") && line.ends_with("= 0") {
            synced = true; // `fdatasync(5</…-wal>) = 0`, or `<... fdatasync resumed>) = 0`
        } else if line.contains("\"OPEN") {
            synced = false;
        } else if line.contains("\"ACK ") {
            acks += 1;
            without += usize::from(!synced);
            synced = false;
        }
    }
    assert_eq!(acks, CLAIMS, "every acknowledgement was traced");
    without
}

#[test]
#[ignore = "needs strace: cargo test -p oneclock-sqlite --features idempotency --test idempotency synced -- --ignored"]
fn m1_a_claim_is_acknowledged_only_after_it_was_synced() {
    assert_eq!(unsynced("claims"), 0);
}

#[test]
#[ignore = "needs strace: cargo test -p oneclock-sqlite --features idempotency --test idempotency synced -- --ignored"]
fn naive_synchronous_normal_acknowledges_what_is_not_on_the_disk() {
    assert_eq!(unsynced("claims-unsynced"), CLAIMS);
}
