//! Tests that count what belongs to the whole process (descriptors, live operations, running closures) need it for
//! themselves. Under a runner with a process per test they have it; under `cargo test` they begin one.

use std::process::{Command, Stdio};

const ALONE: &str = "ONECLOCK_TEST_ALONE";

/// Whether this process runs only this test. If not, runs it in a process of its own, and answers for it.
#[track_caller]
pub(crate) fn or_elsewhere(test: &str) -> bool {
    if std::env::var_os("NEXTEST").is_some() || std::env::var_os(ALONE).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    false
}
