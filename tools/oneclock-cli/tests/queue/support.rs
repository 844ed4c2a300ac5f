//! The program, and dead letters for it.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::expiry::{Expires, Policy, Stamp, Why};
use oneclock_queue::{Broker, Dead, Delivery, Lane, Message, Settle};
use serde_json::Value;

/// A name that no other test has.
pub(crate) fn name() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    format!("cli-{}-{}-{made}", std::process::id(), clock::wall().as_nanos())
}

pub(crate) fn oneclock(arguments: &[&str]) -> Output {
    oneclock_with(arguments, &[])
}

pub(crate) fn oneclock_with(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oneclock"));
    command.arg("queue").args(arguments).envs(variables.iter().copied()).output().unwrap()
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_str(&text(output)).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Puts a message there that is dead for this reason.
pub(crate) async fn bury<B: Broker>(broker: &B, id: &str, policy: Policy, life: Duration, why: Why) {
    let mut message = Message::new("charge", "shop", "order 7");
    message.id = id.into();
    message.stamp = Stamp { expires: Expires::At(clock::wall() + life), policy, ..Stamp::default() };
    broker.publish(&message).await.unwrap();
    let mut taken = broker.receive(Lane::Main, 1).await.unwrap();
    let dead = Dead { why, detail: Some("the bank said 503".into()), at: clock::wall(), attempts: 5 };
    taken.remove(0).settle(&Settle::Dead(dead)).await.unwrap();
}

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
