//! Clocks that are wrong by two seconds, on both sides and in opposite directions (contract Q4): nothing is discarded early and no
//! effect begins late, by the clock of somebody who is right.
//!
//! The skewed processes are real ones under `faketime`. PostgreSQL has a clock that can be asked, so that both sides know by themselves how
//! wrong they are, and so has NATS, from a version on that Debian does not have; elsewhere it has to be said.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::queues::{self, Database};

const PIECES: u64 = 40;

/// How long a line may take from one process to the other.
const ON_THE_WAY: f64 = 0.3;

/// What was seen of each piece of work, in seconds since 1970 by this process, which is right.
#[derive(Debug, Default)]
struct Seen {
    expires: f64,
    effect: Option<f64>,
    end: Option<(f64, String)>,
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

fn skewed(skew: i32, arguments: &[&str]) -> Child {
    let faketime = std::env::var("ONECLOCK_FAKETIME").unwrap_or_else(|_| "faketime".to_owned());
    let mut command = Command::new(faketime);
    command.args(["-f", &format!("{skew:+}s"), env!("CARGO_BIN_EXE_durable-worker")]).args(arguments);
    // The monotonic clock stays right, as it does on a machine whose wall clock is wrong.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap_or_else(|error| {
        panic!("`faketime` cannot be run ({error}): apt-get install faketime, or name it in ONECLOCK_FAKETIME")
    })
}

async fn run(
    kind: &str,
    queue: &str,
    database: &Database,
    skews: (i32, i32),
    uncertainty: Option<&str>,
) -> BTreeMap<String, Seen> {
    let mut arguments = vec!["--broker", kind, "--queue", queue, "--database", database.url()];
    arguments.extend(uncertainty.into_iter().flat_map(|millis| ["--uncertainty", millis]));
    let pieces = PIECES.to_string();
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();

    let mut producer = skewed(skews.0, &[&arguments[..], &["--produces", &pieces]].concat());
    let mut lines = BufReader::new(producer.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        let (id, life) = line.split_once(' ').unwrap();
        seen.entry(id.to_owned()).or_default().expires = now() + life.parse::<f64>().unwrap() / 1_000.0;
    }
    assert!(producer.wait().await.unwrap().success());
    assert_eq!(seen.len() as u64, PIECES);

    let mut consumer = skewed(skews.1, &[&arguments[..], &["--slow", "350"]].concat());
    let mut lines = BufReader::new(consumer.stdout.take().unwrap()).lines();
    let reading = async {
        while seen.values().any(|seen| seen.end.is_none()) {
            let line = lines.next_line().await.unwrap().expect("the consumer goes on");
            let (id, end) = line.split_once(' ').unwrap();
            if ["done", "discarded", "dead_lettered"].iter().any(|last| end.starts_with(last)) {
                seen.get_mut(id).unwrap().end = Some((now(), end.to_owned()));
            }
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(120), reading).await.is_ok(), "{seen:#?}");
    let sql = "SELECT key, EXTRACT(EPOCH FROM at)::float8 FROM effects";
    for row in database.pool().query("effects", sql, &[]).await.unwrap() {
        let (key, at): (String, f64) = (row.get(0), row.get(1));
        let of = seen.get_mut(&key).unwrap();
        assert!(of.effect.is_none(), "{key} took effect twice");
        of.effect = Some(at);
    }
    seen
}

/// What went wrong, by the clock of somebody who is right.
fn wrong(seen: &BTreeMap<String, Seen>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, Seen { expires, effect, end }) in seen {
        if effect.is_some_and(|effect| effect > *expires) {
            wrong.push(format!("{id} began {:.2} s after its end", effect.unwrap() - expires));
        }
        if let Some((at, _)) = end.as_ref().filter(|(_, end)| end.starts_with("discarded"))
            && at + ON_THE_WAY < *expires
        {
            wrong.push(format!("{id} was discarded {:.2} s early", expires - at));
        }
    }
    wrong
}

/// That it shows something: some work was done, and some was not.
fn shows_something(seen: &BTreeMap<String, Seen>) {
    let done = seen.values().filter(|seen| seen.effect.is_some()).count();
    let discarded =
        seen.values().filter(|seen| seen.end.as_ref().is_some_and(|(_, end)| end.starts_with("discarded"))).count();
    assert!(done > 0 && discarded > 0, "{done} done, {discarded} discarded: {seen:#?}");
}

const OPPOSITE: [(i32, i32); 2] = [(2, -2), (-2, 2)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_where_it_is_said_how_wrong_they_may_be() {
    for skews in OPPOSITE {
        let queue = queues::nats().await;
        let seen = run("nats", &queue.name, &queue.database, skews, Some("2100")).await;
        assert_eq!(wrong(&seen), [""; 0], "{skews:?}");
        shows_something(&seen);
        queue.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_both_sides_know_how_wrong_they_are() {
    for skews in OPPOSITE {
        let queue = queues::postgres().await;
        let seen = run("postgres", &queue.name, &queue.database, skews, None).await;
        assert_eq!(wrong(&seen), [""; 0], "{skews:?}");
        shows_something(&seen);
        queue.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_where_it_is_said_how_wrong_they_may_be() {
    for skews in OPPOSITE {
        let queue = queues::rabbitmq().await;
        let seen = run("rabbitmq", &queue.name, &queue.database, skews, Some("2100")).await;
        assert_eq!(wrong(&seen), [""; 0], "{skews:?}");
        shows_something(&seen);
        queue.remove().await;
    }
}

/// The naive way: clocks that are believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_are_believed_discard_early_and_begin_late() {
    for (skews, what) in [((-2, 2), "early"), ((2, -2), "after its end")] {
        let queue = queues::rabbitmq().await;
        let seen = run("rabbitmq", &queue.name, &queue.database, skews, Some("10")).await;
        let wrong = wrong(&seen);
        assert!(wrong.iter().any(|wrong| wrong.contains(what)), "{skews:?}: {wrong:?}");
        queue.remove().await;
    }
}
