//! Getting in: TLS, users, and servers that say nothing.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use async_nats::ConnectOptions;
use oneclock_core::expiry::{Policy, Why};
use oneclock_queue::nats::Nats;

use super::support::{HOUR, bury, name, oneclock, oneclock_with, text};

/// A NATS server that asks who one is, over TLS.
struct Server {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(at("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let shown = |path: &Path| path.display().to_string();
        let config = format!(
            "tls {{ cert_file: \"{}\", key_file: \"{}\" }}\n\
             authorization {{ user: \"on call\", password: \"s3cret/:@\" }}\n\
             jetstream {{ store_dir: \"{}\" }}",
            shown(&at("cert.pem")),
            shown(&at("key.pem")),
            shown(&at("store")),
        );
        std::fs::write(at("server.conf"), config).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("nats-server");
        command.arg("-c").arg(at("server.conf")).args(["-a", "127.0.0.1", "-p", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("apt-get install nats-server, or let `cargo xtask test` do it");
        Self { process, port, folder }
    }

    fn ca(&self) -> String {
        self.folder.path().join("cert.pem").display().to_string()
    }

    async fn client(&self) -> async_nats::Client {
        let options = || ConnectOptions::with_user_and_password("on call".into(), "s3cret/:@".into());
        let connected = async {
            loop {
                let options = options().add_root_certificates(self.ca().into());
                if let Ok(client) = options.connect(format!("tls://localhost:{}", self.port)).await {
                    return client;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), connected).await.expect("a private server that answers")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Exit code 1, and no word of the password.
#[track_caller]
fn fails_without_a_word(output: &Output, secret: &str) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let all = [&output.stdout[..], &output.stderr].concat();
    let all = String::from_utf8_lossy(&all);
    assert!(!all.contains(secret) && all.contains("oneclock: "), "{all}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_over_tls_with_a_user_and_a_password() {
    let (server, queue) = (Server::start(), name());
    let broker = Nats::builder(server.client().await, &*queue).build().await.unwrap();
    bury(&broker, "dead", Policy::DeadLetter, HOUR, Why::Rejected).await;
    let url = |password: &str| format!("tls://on%20call:{password}@localhost:{}", server.port);
    let (right, wrong, ca) = (url("s3cret%2F%3A%40"), url("wr0ng"), server.ca());
    let inspect =
        |url: &str, more: &[&str]| oneclock(&[&["inspect", &queue, "--nats", url, "--over", "0"], more].concat());

    let seen = inspect(&right, &["--nats-ca", &ca]);
    assert!(seen.status.success() && text(&seen).contains("dead: 1 waiting"), "{seen:?}");
    let given = [("ONECLOCK_CLI_TEST", right.as_str())];
    let arguments = ["inspect", &queue, "--nats", "env:ONECLOCK_CLI_TEST", "--nats-ca", &ca, "--over", "0"];
    assert!(oneclock_with(&arguments, &given).status.success());
    fails_without_a_word(&oneclock(&arguments), "s3cret"); // nothing of that name
    fails_without_a_word(&inspect(&wrong, &["--nats-ca", &ca]), "wr0ng");
    fails_without_a_word(&inspect(&right, &[]), "s3cret"); // a certificate that nobody knows
    fails_without_a_word(&inspect(&right.replace("tls:", "nats:"), &["--nats-creds", "/there/is/none"]), "s3cret");
}

/// Servers that take a connection and say nothing, and one that is not there.
#[test]
fn a_broker_that_says_nothing_is_no_empty_queue() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let urls = [port, nobody].into_iter().flat_map(|port| {
        [
            ("--nats", format!("nats://me:s3cret@127.0.0.1:{port}")),
            ("--rabbitmq", format!("amqp://me:s3cret@127.0.0.1:{port}/%2f")),
            ("--rabbitmq", format!("amqps://me:s3cret@127.0.0.1:{port}/%2f")),
            ("--postgres", format!("postgres://me:s3cret@127.0.0.1:{port}/shop")),
        ]
    });
    // Each waits for its own bound.
    std::thread::scope(|threads| {
        for (broker, url) in urls {
            let redrives = url.clone();
            threads.spawn(move || {
                fails_without_a_word(&oneclock(&["redrive", "orders", broker, &redrives, "--all"]), "s3cret")
            });
            threads.spawn(move || {
                fails_without_a_word(&oneclock(&["inspect", "orders", broker, &url, "--over", "0"]), "s3cret")
            });
        }
    });
}

#[test]
fn an_address_that_is_none_is_not_repeated() {
    for (broker, url) in [
        ("--nats", "nats://me:s3cret@host:port"),
        ("--rabbitmq", "amqp:me:s3cret@host"),
        ("--postgres", "postgres://me:s3cret@host:port/shop"),
    ] {
        fails_without_a_word(&oneclock(&["inspect", "orders", broker, url]), "s3cret");
    }
}
