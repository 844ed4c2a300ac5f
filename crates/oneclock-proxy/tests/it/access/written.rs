//! Where lines go, and what happens when they cannot.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use oneclock_proxy::config::LogTo;
use oneclock_proxy::{Proxy, StartFailed};
use oneclock_test::caller::Caller;
use oneclock_test::{Baseline, Protocol, peer};
use serde_json::Value;

use super::{Logged, lines_in};
use crate::common::{AMPLE, address, config, start, whole_h1, whole_h2};

/// Returns once there is a line in it.
async fn written(file: &Path) {
    let there = async {
        while fs::read_to_string(file).map_or(true, |text| !text.ends_with('\n')) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(AMPLE, there).await.expect("a line");
}

#[tokio::test]
async fn a_reload_writes_to_a_new_file_where_the_old_one_was_moved_away() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let mut logged = Logged::before(upstream.addr(), Protocol::Http1).await;
    let (file, moved) = (logged.file(), logged.folder.path().join("access.json.1"));
    let addr = logged.addr();
    let ask = async |path: &str| whole_h1(Caller::h1(addr).get(path).answer().await.expect("sent"));
    ask("/one").await;
    written(&file).await;
    fs::rename(&file, &moved).expect("moved");
    ask("/two").await;
    logged.proxy.reload(logged.proxy.config()).await.expect("it is taken");
    ask("/three").await;
    written(&file).await;
    fs::rename(&file, logged.folder.path().join("access.json.2")).expect("moved");
    let mut broken = logged.proxy.config();
    broken.routes[0].upstream = "nobody".into();
    logged.proxy.reload(broken).await.expect_err("it is refused, and its file is opened anew all the same");
    ask("/four").await;
    let folder = logged.folder.path().to_owned();
    let paths = |name: &str| -> Vec<String> {
        lines_in(&folder.join(name)).iter().map(|line| line["path"].as_str().expect("a path").to_owned()).collect()
    };
    written(&file).await;
    // What was on its way at a reload may be in either file, and in no other.
    assert_eq!([paths("access.json.1"), paths("access.json.2")].concat(), ["/one", "/two", "/three"]);
    assert_eq!(paths("access.json.1")[0], "/one");
    assert_eq!(paths("access.json"), ["/four"]);
    logged.proxy.shutdown().await;
}

#[tokio::test]
async fn a_reload_can_move_the_log_and_end_it() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let mut logged = Logged::before(upstream.addr(), Protocol::Http1).await;
    let (file, other) = (logged.file(), logged.folder.path().join("other.json"));
    let addr = logged.addr();
    let ask = async |path: &str| whole_h1(Caller::h1(addr).get(path).answer().await.expect("sent"));
    ask("/one").await;
    written(&file).await;
    for (to, path) in [(LogTo::File(other.clone()), "/two"), (LogTo::Nowhere, "/three")] {
        let mut changed = logged.proxy.config();
        changed.access_log.to = to;
        logged.proxy.reload(changed).await.expect("it is taken");
        ask(path).await;
    }
    written(&other).await;
    let mut nowhere = logged.proxy.config();
    nowhere.access_log.to = LogTo::File(logged.folder.path().join("none/access.json"));
    logged.proxy.reload(nowhere).await.expect_err("there is no such folder");
    logged.proxy.shutdown().await;
    assert_eq!((lines_in(&file).len(), lines_in(&other).len()), (1, 1));
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_no_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(([127, 0, 0, 1], 3000).into(), Protocol::Http1);
    let path = folder.path().join("none").join("access.json");
    config.access_log.to = LogTo::File(path.clone());
    for refused in [Proxy::check(&config), Proxy::start(config.clone()).await.map(drop)] {
        let refused = refused.expect_err("no such folder");
        assert!(matches!(refused, StartFailed::AccessLog { .. }), "{refused:?}");
        assert_eq!(refused.to_string(), format!("the access log cannot be written to {}", path.display()));
    }
    config.access_log.to = LogTo::File(folder.path().join("access.json"));
    Proxy::check(&config).expect("it can be run");
    assert!(!folder.path().join("access.json").exists(), "a check leaves nothing behind");
}

/// `/dev/full` opens, and takes nothing.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn requests_go_on_where_nothing_can_be_written() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let logged =
        Logged::with(config(upstream.addr(), Protocol::Http1), |log| log.to = LogTo::File("/dev/full".into())).await;
    for _ in 0..3 {
        let (status, ..) = whole_h1(Caller::h1(logged.addr()).get("/stock").answer().await.expect("sent"));
        assert_eq!(status, 200);
    }
    logged.proxy.shutdown().await;
}

#[cfg(unix)]
fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

/// Whether `done` was there before `pipe` had a reader, which it has in the end, so that whoever waits for one is let go.
#[cfg(unix)]
async fn waits_for_no_reader<T>(pipe: &Path, done: impl Future<Output = T>) -> T {
    let (is_done, waits) = std::sync::mpsc::channel();
    let pipe = pipe.to_owned();
    let dog = std::thread::spawn(move || match waits.recv_timeout(AMPLE) {
        Ok(()) => true,
        Err(_) => fs::File::open(pipe).is_err(),
    });
    let done = done.await;
    let _ = is_done.send(());
    assert!(dog.join().expect("no panic"), "it waited for the reader of a pipe");
    done
}

/// To open a pipe waits until somebody reads it. Here this thread is all the runtime has.
#[cfg(unix)]
#[tokio::test]
async fn a_pipe_that_nobody_reads_keeps_no_start_and_no_reload() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let (pipe, other) = (folder.path().join("pipe"), folder.path().join("other"));
    make_pipe(&pipe);
    make_pipe(&other);
    let mut file = config(upstream.addr(), Protocol::Http1);
    file.access_log.to = LogTo::File(pipe.clone());
    let mut proxy = waits_for_no_reader(&pipe, Box::pin(start(file))).await;
    let addr = address(&proxy);
    let mut broken = proxy.config();
    broken.routes[0].upstream = "nobody".into();
    waits_for_no_reader(&pipe, Box::pin(proxy.reload(broken))).await.expect_err("it is refused");
    let mut moved = proxy.config();
    moved.access_log.to = LogTo::File(other.clone());
    waits_for_no_reader(&other, Box::pin(proxy.reload(moved.clone()))).await.expect("it is taken");
    waits_for_no_reader(&other, Box::pin(proxy.reload(moved))).await.expect("it is taken");
    whole_h1(Caller::h1(addr).get("/stock").answer().await.expect("sent"));
    // Now somebody does, and nothing was lost.
    let read = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(fs::File::open(other)?).read_line(&mut line).map(|_| line)
    });
    let line = tokio::time::timeout(AMPLE, read).await.expect("it is written").expect("no panic").expect("a line");
    assert!(line.contains(r#""path":"/stock""#) && !line.contains("lost"), "{line}");
    proxy.shutdown().await;
}

/// A pipe that nobody reads: its writer waits, requests do not, and the first line that gets through says how many are missing.
#[cfg(unix)]
#[tokio::test]
async fn a_writer_that_stalls_stalls_no_request() {
    const REQUESTS: usize = 5_000; // more than the pipe, the writer and the queue hold
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    let mut reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).expect("a pipe");
    let mut file = config(([127, 0, 0, 1], 1).into(), Protocol::Http1);
    file.routes[0].matches[0].path = oneclock_proxy::config::PathMatch::Exact("/stock".into());
    let logged = Logged::with(file, |log| log.to = LogTo::File(pipe.clone())).await;
    let caller = Caller::h2(logged.addr()).connect().await.expect("a connection");
    let ask = async |count: usize| {
        let mut calls = Vec::new();
        for _ in 0..count {
            calls.push(caller.get("/elsewhere").send().await.expect("sent"));
        }
        for call in calls {
            assert_eq!(whole_h2(call.answer().await).0, 404);
        }
    };
    for _ in 0..REQUESTS / 50 {
        ask(50).await;
    }
    // All of them were answered, and nobody has read a line yet. Now somebody does, and one more request can tell the rest.
    let lines = std::thread::spawn(move || {
        let (mut text, mut piece) = (Vec::new(), [0; 64 * 1024]);
        loop {
            let count = reader.read(&mut piece).expect("read");
            text.extend_from_slice(&piece[..count]);
            let all: Vec<Value> = text
                .split_inclusive(|byte| *byte == b'\n')
                .filter(|line| line.ends_with(b"\n"))
                .map(|line| serde_json::from_slice(line).expect("a line"))
                .collect();
            let lost: u64 = all.iter().filter_map(|line| line["lost"].as_u64()).sum();
            if lost > 0 {
                return (all.len() as u64, lost);
            }
        }
    });
    while !lines.is_finished() {
        ask(1).await; // until one gets through
    }
    let (read, lost) = lines.join().expect("it was read");
    assert!(lost > 100 && read + lost >= REQUESTS as u64, "{read} lines, {lost} lost");
}

#[tokio::test]
async fn all_lines_are_written_at_a_shutdown_and_nothing_is_left_behind() {
    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let before = Baseline::take();
    let logged = Logged::before(upstream.addr(), Protocol::Http1).await;
    for _ in 0..200 {
        whole_h1(Caller::h1(logged.addr()).get("/stock").answer().await.expect("sent"));
    }
    assert_eq!(logged.lines().await.len(), 200);
    let nowhere = start(config(upstream.addr(), Protocol::Http1)).await;
    whole_h1(Caller::h1(address(&nowhere)).get("/stock").answer().await.expect("sent"));
    nowhere.shutdown().await;
    before.assert_back().await;
}
