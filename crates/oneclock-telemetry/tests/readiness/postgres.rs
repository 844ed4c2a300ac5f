//! PostgreSQL's self-test joined in for real: there, not there at the start, and gone later. Real time, over sockets.

use std::sync::Arc;

use oneclock::Shutdown;
use oneclock_postgres::Pool;
use oneclock_postgres::tokio_postgres::Config;
use oneclock_postgres::tokio_postgres::config::Host;
use oneclock_telemetry::Readiness;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::{first, ms, of, secs, until};

fn server() -> Config {
    let url = std::env::var("ONECLOCK_POSTGRES_URL");
    url.as_deref().unwrap_or("postgres://postgres@127.0.0.1:5432/postgres").parse().unwrap()
}

/// A way to the server that can be cut, and opened again.
struct Way {
    port: u16,
    open: Arc<watch::Sender<bool>>,
}

impl Way {
    async fn new() -> Self {
        let server = server();
        let [Host::Tcp(host), ..] = server.get_hosts() else { panic!("the server of these tests is reached over TCP") };
        let to = (host.clone(), server.get_ports().first().copied().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let open = Arc::new(watch::Sender::new(false));
        let opened = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let (mut opened, to) = (opened.subscribe(), to.clone());
                tokio::spawn(async move {
                    if !*opened.borrow_and_update() {
                        return; // closed at once
                    }
                    let Ok(mut to) = TcpStream::connect((to.0.as_str(), to.1)).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        _ = opened.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Self { port, open }
    }

    fn pool(&self) -> Pool {
        let mut url = format!("host=127.0.0.1 port={} connect_timeout=2", self.port);
        let server = server();
        for (key, value) in [("user", server.get_user()), ("dbname", server.get_dbname())] {
            if let Some(value) = value {
                url.push_str(&format!(" {key}={value}"));
            }
        }
        if let Some(password) = server.get_password() {
            url.push_str(&format!(" password={}", String::from_utf8_lossy(password)));
        }
        Pool::builder(url).build().unwrap()
    }
}

#[tokio::test]
async fn a_server_that_comes_late_is_waited_for_and_one_that_goes_is_shown() {
    let way = Way::new().await;
    let pool = way.pool();
    let readiness = Readiness::builder()
        .without_stack()
        .interval(ms(400))
        .retry(ms(50))
        .bound(secs(20))
        .self_test("postgres", move || {
            let pool = pool.clone();
            async move { pool.self_test().await }
        })
        .start(&Shutdown::new())
        .unwrap();

    let test = first(&readiness, "self_tests", "postgres").await;
    assert_eq!(test["shown"], "unclear", "{test}");
    assert!(!readiness.now().ready);

    way.open.send_replace(true);
    let ready = tokio::time::timeout(secs(30), readiness.ready()).await;
    assert!(ready.unwrap_or(false), "these tests need a PostgreSQL server: {}", readiness.to_json());
    let said = of(&readiness, "self_tests", "postgres")["said"].as_str().unwrap().to_owned();
    assert!(said.contains("told_after"), "{said}");

    way.open.send_replace(false);
    until("seen to be gone", || of(&readiness, "self_tests", "postgres")["shown"] == "unclear").await;
    assert!(readiness.now().ready, "all instances see it go: {}", readiness.now());
    until("tried again", || of(&readiness, "self_tests", "postgres")["not_kept_in_a_row"].as_u64() >= Some(2)).await;
    assert!(readiness.now().ready);

    way.open.send_replace(true);
    until("back", || of(&readiness, "self_tests", "postgres")["shown"] == "kept").await;
}
