//! `oneclock proxy` as its users meet it: what it writes, how it hears signals, its exit codes.

#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of a test are a test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

fn oneclock(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oneclock")).args(arguments).output().expect("the binary runs")
}

/// A proxy as a process. Killed when the test is over, however it ends.
struct Proxy {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
    told: BufReader<ChildStderr>,
}

impl Proxy {
    /// With admin pages.
    fn run(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oneclock"));
        command.arg("proxy").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let told = BufReader::new(child.stderr.take().expect("its standard error"));
        let mut lines = BufReader::new(child.stdout.take().expect("its standard output")).lines();
        let mut says = |words: &str| loop {
            let line = lines.next().expect("it says where it listens").expect("text");
            if let Some((_, address)) = line.split_once(words) {
                break address.trim_end_matches('/').parse().expect("an address");
            }
        };
        let (address, admin) = (says(" listens on "), says("# admin pages are on http://"));
        Self { child, address, admin, told }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// The next line that it tells.
    fn tells(&mut self) -> String {
        let mut line = String::new();
        self.told.read_line(&mut line).expect("text");
        line
    }

    fn get(&self, path: &str) -> String {
        ask(self.address, &format!("GET {path}"))
    }
}

fn ask(address: SocketAddr, line: &str) -> String {
    let mut socket = TcpStream::connect(address).expect("a connection");
    write!(socket, "{line} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    answer
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers each connection with these words, for as long as the test runs.
fn upstream(words: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a connection");
            let mut head = [0; 4096];
            let _ = socket.read(&mut head);
            let length = words.len();
            let _ = write!(socket, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{words}");
        }
    });
    address
}

fn file_for(path: &Path, upstream: SocketAddr, more: &str) {
    let text = format!(
        "listeners: [{{ name: http, address: 127.0.0.1:0 }}]\nupstreams: {{ app: {{ url: 'http://{upstream}' }} }}\nroutes:\n\
         - matches: [{{ path: {{ type: PathPrefix, value: / }} }}]\n  upstream: app\nadmin: 127.0.0.1:0\n{more}"
    );
    std::fs::write(path, text).expect("written");
}

#[test]
fn one_upstream_needs_no_file() {
    let upstream = upstream("the app");
    let mut proxy =
        Proxy::run(&["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &format!("http://{upstream}")]);
    let answer = proxy.get("/");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("the app"), "{answer}");
    proxy.signal("-HUP");
    assert_eq!(proxy.tells(), "oneclock proxy: SIGHUP: there is no file to read again (--config)\n");
    proxy.signal("-TERM");
    assert_eq!(proxy.tells(), "oneclock proxy: stopping: nothing more is accepted\n");
    assert_eq!(proxy.child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn an_operator_can_stop_it_by_its_admin_pages() {
    let upstream = format!("http://{}", upstream("the app"));
    let mut proxy = Proxy::run(&["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &upstream]);
    assert!(ask(proxy.admin, "GET /live").starts_with("HTTP/1.1 200 "));
    let said = ask(proxy.admin, "POST /drain");
    assert!(said.starts_with("HTTP/1.1 202 ") && said.contains("\"live\": 0"), "{said}");
    assert_eq!(proxy.tells(), "oneclock proxy: stopping: nothing more is accepted\n");
    assert_eq!(proxy.child.wait().expect("it ends").code(), Some(0));

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let refused = oneclock(&["proxy", "--listen", "127.0.0.1:0", "--admin", &address, "--upstream", &upstream]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error.starts_with(&format!("oneclock: the admin pages cannot be served on {address}: ")), "{error}");
}

#[test]
fn a_hang_up_reads_the_file_again_and_a_bad_one_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy.yml");
    let name = file.to_str().expect("text").to_owned();
    file_for(&file, upstream("one"), "");
    let mut proxy = Proxy::run(&["--config", &name]);
    assert!(proxy.get("/").ends_with("one"));
    file_for(&file, upstream("two"), "");
    proxy.signal("-HUP");
    assert_eq!(proxy.tells(), format!("oneclock proxy: {name}: read again, and holds from the next request on\n"));
    assert!(proxy.get("/").ends_with("two"));
    file_for(&file, upstream("three"), "rutes: []\n");
    proxy.signal("-HUP");
    let told = proxy.tells();
    assert!(told.starts_with(&format!("oneclock proxy: {name}:7:1: ")), "{told}");
    assert!(told.ends_with("; what held before goes on\n"), "{told}");
    assert!(proxy.get("/").ends_with("two"));
}

#[test]
fn a_file_that_changes_is_read_again_without_a_word() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy.yml");
    let name = file.to_str().expect("text").to_owned();
    file_for(&file, upstream("one"), "");
    let mut proxy = Proxy::run(&["--config", &name]);
    assert!(proxy.get("/").ends_with("one"));
    file_for(&folder.path().join("new"), upstream("two"), "");
    std::fs::rename(folder.path().join("new"), &file).expect("renamed");
    assert_eq!(proxy.tells(), format!("oneclock proxy: {name}: read again, and holds from the next request on\n"));
    assert!(proxy.get("/").ends_with("two"));
    std::fs::remove_file(&file).expect("removed");
    let told = proxy.tells();
    assert!(told.starts_with(&format!("oneclock proxy: {name}: ")), "{told}");
    assert!(told.ends_with("; what held before goes on\n"), "{told}");
    assert!(proxy.get("/").ends_with("two"));
}

#[test]
fn a_file_is_checked_without_running_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy.yml");
    let name = file.to_str().expect("text");
    file_for(&file, "127.0.0.1:3000".parse().expect("an address"), "");
    let checked = oneclock(&["proxy", "check", name]);
    assert_eq!(String::from_utf8_lossy(&checked.stdout), format!("{name}: can be run (1 route to 1 upstream)\n"));
    assert_eq!(checked.status.code(), Some(0));
    let none = folder.path().join("none.pem").display().to_string();
    let text = format!(
        "listeners: [{{ name: http, address: 127.0.0.1:0, tls: {{ certificate: {none}, key: {none} }} }}]\n\
         upstreams: {{ app: {{ url: 'http://127.0.0.1:1' }} }}\nroutes: [{{ upstream: app }}]\n"
    );
    std::fs::write(&file, text).expect("written");
    let checked = oneclock(&["proxy", "check", name]);
    let error = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(error.starts_with(&format!("oneclock: {name}: listener http cannot use {none}")), "{error}");
    assert_eq!(checked.status.code(), Some(1));
}

/// What it prints is a file: it is checked to the same, and has the hash that a proxy shows that runs it.
#[test]
fn what_a_file_comes_to_is_printed_without_passwords() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, again) = (folder.path().join("proxy.yml"), folder.path().join("again.yml"));
    let keys = "  idempotency: { store: 'postgres://u:hunter2@127.0.0.1:1/keys', principal: x-account }\n";
    file_for(&file, "127.0.0.1:3000".parse().expect("an address"), "");
    let written = std::fs::read_to_string(&file).expect("text").replace("admin:", &format!("{keys}admin:"));
    std::fs::write(&file, written).expect("written");
    let printed = |file: &Path| {
        let checked = oneclock(&["proxy", "check", "--print", file.to_str().expect("text")]);
        assert_eq!(checked.status.code(), Some(0), "{checked:?}");
        String::from_utf8(checked.stdout).expect("text")
    };
    let first = printed(&file);
    assert!(first.starts_with(&format!("# {}: can be run (1 route to 1 upstream), hash ", file.display())), "{first}");
    assert!(first.contains("\n  whenAbsent: 2s\n") && first.contains("postgres://u:***@127.0.0.1:1/keys"), "{first}");
    assert!(!first.contains("hunter2"), "{first}");
    std::fs::write(&again, &first).expect("written");
    let behind = |text: &str| text.split_once(" (1 route").map(|(_, rest)| rest.to_owned());
    assert_eq!(behind(&printed(&again)), behind(&first));

    file_for(&file, upstream("the app"), "");
    let first = printed(&file);
    let proxy = Proxy::run(&["--config", file.to_str().expect("text")]);
    let held = ask(proxy.admin, "GET /config");
    let hash = first.split_once("hash ").and_then(|(_, rest)| rest.split_once('\n')).expect("a hash").0;
    assert!(held.contains(&format!("\"hash\": \"{hash}\"")), "{hash} in {held}");
}

/// Also where there is no access log, which is so unless something else is written.
#[test]
fn an_upstream_that_cannot_be_reached_is_told_on_standard_error() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let upstream = format!("http://{nobody}");
    let mut proxy = Proxy::run(&["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &upstream]);
    assert!(proxy.get("/").starts_with("HTTP/1.1 502 "));
    let told = proxy.tells();
    assert!(told.starts_with("oneclock proxy: all → app failed, outcome: "), "{told}");
    assert!(told.contains("efused (os error ") && told.ends_with(" (stage: connect)\n"), "{told}");
}

#[test]
fn probes_have_an_address_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy.yml");
    file_for(&file, upstream("the app"), "");
    let text = std::fs::read_to_string(&file).expect("text");
    let text = text.replace("admin: 127.0.0.1:0", "admin: { pages: 127.0.0.1:0, probes: 127.0.0.1:0 }");
    std::fs::write(&file, text).expect("written");
    let (file, upstream) = (file.to_str().expect("text"), format!("http://{}", upstream("the app")));
    let port = "127.0.0.1:0";
    let without_a_file = ["--upstream", &upstream, "--listen", port, "--admin", port, "--probes", port];
    for arguments in [&["--config", file][..], &without_a_file] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oneclock"));
        let mut child = command.arg("proxy").args(arguments).stdout(Stdio::piped()).spawn().expect("the binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("its standard output")).lines();
        let said = lines.find_map(|line| {
            let line = line.expect("text");
            line.strip_prefix("# probes are answered on http://").map(str::to_owned)
        });
        let address = said.and_then(|said| said.trim_end_matches('/').parse().ok()).expect("an address");
        let answers = [ask(address, "GET /live"), ask(address, "GET /config")];
        let _ = (child.kill(), child.wait());
        assert!(answers[0].starts_with("HTTP/1.1 200 ") && answers[1].starts_with("HTTP/1.1 404 "), "{answers:?}");
    }
}

#[test]
fn the_exit_code_tells_what_was_wrong() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let refused = oneclock(&["proxy", "--listen", &address, "--upstream", "http://127.0.0.1:3000"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(error.starts_with(&format!("oneclock: listener http cannot listen on {address}: ")), "{error}");
    for wrong in [&["proxy"][..], &["proxy", "--config", "a", "--upstream", "http://b"], &["proxy", "--listen", "x"]] {
        assert_eq!(oneclock(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let schema = oneclock(&["proxy", "schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).expect("JSON");
    assert!(schema["$defs"].is_object());
}

/// A reload that waits for a store is given up.
#[test]
fn it_can_be_stopped_while_it_reads_its_file_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("proxy.yaml");
    file_for(&path, upstream("the app"), "");
    let mut proxy = Proxy::run(&["--config", path.to_str().expect("text")]);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let store = silent.local_addr().expect("an address");
    let text = std::fs::read_to_string(&path).expect("text").replace(
        "upstream: app\n",
        &format!("upstream: app\n  idempotency: {{ store: 'postgres://nobody@{store}/keys?sslmode=disable', principal: everybody }}\n"),
    );
    std::fs::write(&path, text).expect("written");
    proxy.signal("-HUP");
    let _asked = silent.accept().expect("the store is asked"); // and says nothing
    proxy.signal("-TERM");
    assert_eq!(proxy.tells(), "oneclock proxy: stopping: nothing more is accepted\n");
    assert_eq!(proxy.child.wait().expect("it ends").code(), Some(0));
}

/// The lines of a log, once there are so many.
fn lines_of(log: &Path, count: usize) -> Vec<String> {
    let began = std::time::SystemTime::now();
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<String> = text.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect();
        if lines.len() >= count && text.ends_with('\n') {
            return lines;
        }
        assert!(began.elapsed().expect("a clock").as_secs() < 10, "{count} lines in {text:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_hang_up_opens_the_access_log_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, log, moved) = (folder.path().join("proxy.yaml"), folder.path().join("log"), folder.path().join("log.1"));
    file_for(&path, upstream("the app"), &format!("accessLog: {}\n", log.display()));
    let mut proxy = Proxy::run(&["--config", path.to_str().expect("text")]);
    proxy.get("/one");
    lines_of(&log, 1);
    std::fs::rename(&log, &moved).expect("moved");
    proxy.signal("-HUP");
    assert!(proxy.tells().contains("read again"), "it has read its file");
    proxy.get("/two");
    let lines = lines_of(&log, 1);
    assert!(lines.len() == 1 && lines[0].contains(r#""path":"/two""#), "{lines:?}");
    // Also where the file has a mistake.
    std::fs::rename(&log, folder.path().join("log.2")).expect("moved");
    file_for(&path, upstream("the app"), "accessLog: { to: }\n");
    proxy.signal("-HUP");
    assert!(proxy.tells().contains("what held before goes on"), "it is refused");
    proxy.get("/three");
    let lines = lines_of(&log, 1);
    assert!(lines.len() == 1 && lines[0].contains(r#""path":"/three""#), "{lines:?}");
    assert_eq!(lines_of(&moved, 1).len(), 1);
}

#[test]
fn an_access_log_on_standard_output_comes_behind_what_it_says_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, out) = (folder.path().join("proxy.yaml"), folder.path().join("out"));
    file_for(&path, upstream("the app"), "accessLog: stdout\n");
    let written = std::fs::File::create(&out).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_oneclock"));
    let mut child = command.args(["proxy", "--config"]).arg(&path).stdout(written).spawn().expect("the binary runs");
    let began = std::time::SystemTime::now();
    let address: SocketAddr = loop {
        let text = std::fs::read_to_string(&out).expect("what it wrote");
        let said = text.split_once("# http listens on ").and_then(|(_, rest)| rest.split_once('\n'));
        if let Some((address, _)) = said {
            break address.parse().expect("an address");
        }
        assert!(began.elapsed().expect("a clock").as_secs() < 10, "{text}");
        std::thread::yield_now();
    };
    ask(address, "GET /orders/7?token=hidden");
    let lines = lines_of(&out, 1);
    let _ = (child.kill(), child.wait());
    let line: serde_json::Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert_eq!((&line["path"], &line["outcome"]), (&"/orders/7".into(), &"ok".into()));
    assert!(!std::fs::read_to_string(&out).expect("what it wrote").contains("hidden"));
}
