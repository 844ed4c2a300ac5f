//! What is read, what is refused, and that the reference says the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::Config;

mod effective;
mod http_route;
mod once;
mod read;
mod reference;
mod refused;
mod secrets;

/// One route to `app` and lines of its own.
pub(super) fn with_route(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("  {line}\n")).collect();
    format!("upstreams:\n  app: {{ url: \"http://127.0.0.1:3000\" }}\nroutes:\n- upstream: app\n{lines}")
}

#[track_caller]
pub(super) fn read(text: &str) -> Config {
    Config::parse(text).unwrap_or_else(|refused| panic!("{refused}\n{text}"))
}

#[track_caller]
pub(super) fn refused(text: &str, says: &str) {
    let Err(refused) = Config::parse(text) else { panic!("should be refused:\n{text}") };
    assert_eq!(refused.to_string(), says, "{text}");
}

/// Every key that there is, but for those that exclude one another.
pub(super) const EVERYTHING: &str = include_str!("everything.yaml");
