//! A broker of one's own: killed and started again, with little patience, with users.

use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::future::join;
use oneclock_core::Outcome;
use oneclock_queue::rabbitmq::RabbitMq;
use oneclock_queue::rabbitmq::lapin::BasicProperties;
use oneclock_queue::{Broker as _, Delivery as _, Inspect as _, Lane, NotSettled, Settle};

use crate::support::{Own, dead, eventually, fields, ms, order, plain_channel, plain_publish, soon, text};

/// A broker takes seconds to start, many where others want the processor.
const STARTS: Duration = Duration::from_secs(90);

/// A broker that a test may kill and start again.
struct Server {
    port: u16,
    node: String,
    folder: PathBuf,
    process: Option<Child>,
}

impl Server {
    async fn start() -> Self {
        let folder = std::env::temp_dir().join(crate::support::unique("server"));
        std::fs::create_dir_all(&folder).unwrap();
        let patience = "[{rabbit, [{channel_tick_interval, 100}, {consumer_timeout, 1500}]}].";
        std::fs::write(folder.join("advanced.config"), patience).unwrap();
        let port = free_port();
        let mut server = Self { port, node: format!("oneclock{port}@localhost"), folder, process: None };
        server.launch().await;
        server
    }

    /// As distributions install it, without the wrapper that changes the user.
    fn tool(&self, name: &str) -> Command {
        let folder = std::env::var("ONECLOCK_RABBITMQ_BIN").unwrap_or_else(|_| "/usr/lib/rabbitmq/bin".to_owned());
        let mut command = Command::new(PathBuf::from(folder).join(name));
        let at = |name: &str| self.folder.join(name);
        command.env("HOME", &self.folder).env("RABBITMQ_NODENAME", &self.node);
        command.env("RABBITMQ_MNESIA_BASE", at("mnesia")).env("RABBITMQ_LOG_BASE", at("log"));
        command.env("RABBITMQ_ENABLED_PLUGINS_FILE", at("plugins")).env("RABBITMQ_CONFIG_FILE", at("none"));
        command.env("RABBITMQ_ADVANCED_CONFIG_FILE", at("advanced.config"));
        command.env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1").env("RABBITMQ_NODE_PORT", self.port.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    async fn launch(&mut self) {
        let mut command = self.tool("rabbitmq-server");
        command.env("RABBITMQ_DIST_PORT", free_port().to_string()).process_group(0);
        let started = command.spawn();
        self.process = Some(started.unwrap_or_else(|error| {
            panic!(
                "`rabbitmq-server` cannot be started ({error}): install it, or name its folder in ONECLOCK_RABBITMQ_BIN"
            )
        }));
        let answers = tokio::time::timeout(STARTS, async {
            let connects = || RabbitMq::builder(self.address(), "oneclock-test.there").build();
            while connects().await.is_err() {
                tokio::time::sleep(ms(100)).await;
            }
        });
        assert!(
            answers.await.is_ok(),
            "a private broker did not answer within {STARTS:?}: see {}",
            self.folder.display()
        );
    }

    fn address(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.port)
    }

    fn control(&self, words: &[&str]) {
        let status = self.tool("rabbitmqctl").args(["-n", &self.node]).args(words).status().unwrap();
        assert!(status.success(), "rabbitmqctl {words:?}");
    }

    /// At once, as when the power fails.
    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let group = format!("-{}", process.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = process.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// One broker for all of it: starting one takes seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_of_ones_own() {
    let mut server = Server::start().await;
    patience_ends(&server).await;
    another_users_message_moves(&server).await;
    what_the_broker_takes_no_more_ends(&server).await;
    nothing_is_lost_when_it_is_killed(&mut server).await;
}

/// A delivery that nobody settles for longer than the broker's `consumer_timeout` is somebody else's.
async fn patience_ends(server: &Server) {
    let own = Own::at(&server.address(), &server.address(), "patience", |builder| builder).await;
    soon(own.queue.publish(&order("slow"))).await.unwrap();
    let held = own.one(Lane::Main).await;
    eventually("the broker closes the channel", || async { matches!(held.renew().await, Err(NotSettled::Lost)) }).await;
    assert!(matches!(soon(held.settle(&Settle::Gone)).await, Err(NotSettled::Lost)));
    let again = own.one(Lane::Main).await;
    assert_eq!((again.attempt(), again.may_have_run()), (2, true));
    soon(again.settle(&Settle::Gone)).await.unwrap();
}

/// The broker takes a message that names its user from that user alone, and closes the channel of everybody else.
async fn another_users_message_moves(server: &Server) {
    server.control(&["add_user", "legacy", "legacy"]);
    server.control(&["set_permissions", "legacy", ".*", ".*", ".*"]);
    let own = Own::at(&server.address(), &server.address(), "user", |builder| builder).await;
    let legacy = plain_channel(&server.address().replace("guest:guest", "legacy:legacy")).await;
    plain_publish(&legacy, &own.name, BasicProperties::default().with_user_id("legacy".into()), b"x").await;
    let delivery = own.one(Lane::Main).await;
    assert_eq!(delivery.properties().user_id().as_ref().map(|user| user.as_str()), Some("legacy"));
    soon(delivery.settle(&Settle::Dead(dead()))).await.unwrap();
    let copy = own.raw(".dead").await.unwrap();
    assert_eq!(fields(&copy.properties).get("deadline-was-user-id"), Some(&text("legacy")));
}

/// Whoever runs the broker lowers what it takes: what is too large for it by now is never published, and what is there already ends.
async fn what_the_broker_takes_no_more_ends(server: &Server) {
    let own = Own::at(&server.address(), &server.address(), "lowered", |builder| builder).await;
    let large = order(&"x".repeat(200_000));
    soon(own.queue.publish(&large)).await.unwrap();
    server.control(&["eval", "application:set_env(rabbit, max_message_size, 100000)."]);
    let after = soon(RabbitMq::builder(server.address(), own.name.clone()).build()).await.unwrap(); // whose channels know
    let (error, small) = soon(join(after.publish(&large), after.publish(&order("small")))).await;
    let error = error.unwrap_err();
    assert_eq!(error.outcome, Outcome::Failed, "{error:?}");
    small.unwrap();

    let mut delivered = Vec::new();
    while delivered.len() < 2 {
        delivered.extend(soon(after.receive(Lane::Main, 2)).await.unwrap());
    }
    let again = soon(delivered[0].settle(&Settle::Again { after: ms(0), counted: true })).await;
    assert!(matches!(again, Err(NotSettled::TooLarge)), "{again:?}");
    soon(delivered[0].settle(&Settle::Dead(dead()))).await.unwrap();
    let moved = own.one(Lane::Dead).await;
    assert_eq!(moved.message().id, large.id);
    assert!(fields(moved.properties()).contains_key("x-death"), "the broker has moved it itself");
    assert_eq!(soon(own.queue.depth(Lane::Main)).await.unwrap().waiting, Some(0));
    server.control(&["eval", "application:set_env(rabbit, max_message_size, 134217728)."]);
}

/// What was confirmed is there after the broker was killed, in whichever queue it stood.
async fn nothing_is_lost_when_it_is_killed(server: &mut Server) {
    let own = Own::at(&server.address(), &server.address(), "killed", |builder| builder.prefetch(4)).await;
    for n in 0..40 {
        soon(own.queue.publish(&order(&n.to_string()))).await.unwrap();
    }
    let mut held = Vec::new();
    while held.len() < 4 {
        held.extend(soon(own.queue.receive(Lane::Main, 4)).await.unwrap());
    }
    soon(held.remove(0).settle(&Settle::Again { after: Duration::from_secs(1), counted: true })).await.unwrap();
    soon(held.remove(0).settle(&Settle::Late)).await.unwrap();
    soon(held.remove(0).settle(&Settle::Dead(dead()))).await.unwrap();
    let waits = tokio::spawn({
        let queue = own.queue.clone();
        async move {
            let mut seen = std::collections::BTreeSet::new();
            for (lane, many) in [(Lane::Main, 38), (Lane::Late, 1), (Lane::Dead, 1)] {
                let mut of_lane = std::collections::BTreeSet::new();
                while of_lane.len() < many {
                    for delivery in queue.receive(lane, 10).await.unwrap() {
                        of_lane.insert(String::from_utf8(delivery.message().body.to_vec()).unwrap());
                        let _ = delivery.settle(&Settle::Gone).await;
                    }
                }
                seen.extend(of_lane);
            }
            seen.len()
        }
    });
    server.kill();
    assert!(own.queue.publish(&order("too late")).await.is_err());
    server.launch().await;
    let seen = tokio::time::timeout(STARTS, waits).await.expect("everything is delivered again").unwrap();
    assert_eq!(seen, 40);
    assert!(matches!(held.remove(0).settle(&Settle::Gone).await, Err(NotSettled::Lost)));
    soon(own.queue.publish(&order("after"))).await.unwrap();
}
