//! Child processes end with their whole group. Real time, real processes.

use std::process::Stdio;
use std::time::Duration;

use oneclock::{Operation, ProcessFailed, Stopped};
use oneclock_core::{Cause, Outcome};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::support::{Recorder, Told, begun, ms};

/// A shell that starts a grandchild, says its id in `file`, and waits for it.
fn shell_with_grandchild(file: &std::path::Path) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 60 & echo $! > \"$0.part\"; mv \"$0.part\" \"$0\"; wait"]).arg(file);
    shell
}

struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("oneclock-{name}-{}", std::process::id())))
    }

    async fn pid(&self) -> u32 {
        eventually(|| std::fs::read_to_string(&self.0).ok()?.trim().parse().ok()).await
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            match ask() {
                Some(answer) => return answer,
                None => tokio::time::sleep(ms(2)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), asking).await.expect("within 5s")
}

/// Whether a process runs; one that ended and was not waited for yet does not.
fn runs(pid: u32) -> bool {
    let zombie = if std::path::Path::new("/proc/self/stat").exists() {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).ok().map(|stat| stat.contains(") Z "))
    } else {
        let state = std::process::Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output();
        state.expect("ps").stdout.first().map(|state| *state == b'Z')
    };
    zombie == Some(false)
}

#[tokio::test]
async fn i6_at_the_deadline_the_whole_process_group_dies() {
    let recorder = Recorder::new();
    let op = begun("convert", ms(300), &recorder);
    let scratch = Scratch::new("deadline");
    let (failed, pid) = tokio::join!(op.process("shell", shell_with_grandchild(&scratch.0)), scratch.pid());
    let Err(ProcessFailed::Stopped(Stopped::Ended(ended))) = failed else { panic!("{failed:?}") };
    assert_eq!(ended.ending.cause, Cause::Deadline);
    eventually(|| (!runs(pid)).then_some(())).await;
    let calls = recorder.count(|told| matches!(told, Told::Called { outcome: Outcome::Unknown { .. }, .. }));
    assert_eq!(calls, 1);
}

#[tokio::test]
async fn i6_dropped_the_whole_process_group_dies() {
    let op = Operation::begin("convert", Duration::from_secs(60));
    let scratch = Scratch::new("dropped");
    let pid = tokio::select! {
        ended = op.process("shell", shell_with_grandchild(&scratch.0)) => panic!("{ended:?}"),
        pid = async { let pid = scratch.pid().await; assert!(runs(pid)); pid } => pid,
    };
    eventually(|| (!runs(pid)).then_some(())).await;
}

/// The naive way: killing the process that was started leaves its child running.
#[tokio::test]
async fn i6_the_naive_kill_leaves_the_grandchild_running() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 60 > /dev/null & echo $!; wait"]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = shell.spawn().unwrap();
    let pid = BufReader::new(child.stdout.take().unwrap()).lines().next_line().await.unwrap().unwrap();
    child.kill().await.unwrap();
    assert!(runs(pid.parse().unwrap()), "for nobody");
    std::process::Command::new("kill").arg(&pid).status().unwrap();
}

#[tokio::test]
async fn a_process_that_ends_gives_its_status_and_output() {
    let recorder = Recorder::new();
    let op = begun("convert", Duration::from_secs(30), &recorder);
    let mut shell = Command::new("sh");
    shell.args(["-c", "exit 3"]);
    assert_eq!(op.process("shell", shell).await.unwrap().code(), Some(3));
    let mut echo = Command::new("echo");
    echo.arg("hello");
    assert_eq!(op.process_output("echo", echo).await.unwrap().stdout, b"hello\n");
    let answered = recorder.count(|told| matches!(told, Told::Called { ending: None, outcome: Outcome::Applied, .. }));
    assert_eq!(answered, 2);
}

#[tokio::test]
async fn i8_a_process_that_could_not_be_started_did_nothing() {
    let recorder = Recorder::new();
    let op = begun("convert", Duration::from_secs(30), &recorder);
    let failed = op.process("nothing", Command::new("/nonexistent/command")).await.unwrap_err();
    assert!(matches!(failed, ProcessFailed::Io { .. }));
    assert!(failed.to_string().starts_with("nothing: "), "{failed}");
    assert_eq!(recorder.told(), [Told::Called { call: "nothing".into(), ending: None, outcome: Outcome::NotSent }]);
}

#[tokio::test]
async fn x6_a_process_is_not_started_after_the_end() {
    let op = Operation::begin("convert", Duration::from_secs(30));
    op.call_off();
    let scratch = Scratch::new("never");
    let failed = op.process("shell", shell_with_grandchild(&scratch.0)).await;
    assert!(matches!(failed, Err(ProcessFailed::Stopped(Stopped::NotBegun(_)))));
    assert!(!scratch.0.exists());
}

/// What a process started writes on after it: until that is over the process itself is not reaped, so that its number
/// still means its group when the group is killed.
#[tokio::test]
async fn i6_a_leader_is_not_reaped_before_its_group_can_be_killed() {
    if !std::path::Path::new("/proc/self/stat").exists() {
        return;
    }
    let op = Operation::begin("convert", Duration::from_secs(60));
    let scratch = Scratch::new("leader");
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 60 & echo \"$$ $!\" > \"$0.part\"; mv \"$0.part\" \"$0\""]).arg(&scratch.0);
    let pids = async {
        let pids = eventually(|| std::fs::read_to_string(&scratch.0).ok()).await;
        let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        eventually(|| (!runs(pids[0])).then_some(())).await;
        // The sleep that it left behind holds its output. Long enough for whoever reaps on the news of its end.
        tokio::time::sleep(ms(50)).await;
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pids[0]));
        assert!(state.is_ok_and(|state| state.contains(") Z ")), "it was reaped, and its group lives");
        assert!(runs(pids[1]));
        pids
    };
    let pids = tokio::select! {
        ended = op.process_output("shell", shell) => panic!("{ended:?}"),
        pids = pids => pids,
    };
    eventually(|| pids.iter().all(|pid| !runs(*pid)).then_some(())).await;
}
