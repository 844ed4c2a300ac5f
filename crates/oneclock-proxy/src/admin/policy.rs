//! What may be changed about a route while the proxy runs: `{"route": "orders", "retry": "off", "mode": "enforce"}`.
//!
//! Decides what is refused: what nobody knows is told with the nearest that is known, and nothing is ignored. A key that is
//! left out changes nothing; `null` takes back what was changed.

use oneclock_core::Name;
use oneclock_core::admission::Mode;
use serde_json::{Map, Value};

use crate::StartFailed;
use crate::config::{Config, Route, known, shown};
use crate::overrides::Change;

const KEYS: [&str; 3] = ["route", "retry", "mode"];
const MODES: [Mode; 3] = [Mode::Observe, Mode::Shadow, Mode::Enforce];

/// Why nothing is changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    /// It cannot be read.
    #[error("this is no JSON: {0}")]
    NoJson(#[from] serde_json::Error),
    /// It says nothing that could be done.
    #[error("{0}")]
    Refused(String),
    /// The routes as they would be cannot be run.
    #[error(transparent)]
    Failed(#[from] StartFailed),
}

/// What `body` asks to be changed, where `config` holds.
pub(super) fn read(body: &[u8], config: &Config) -> Result<(Name, Change), Unusable> {
    let Value::Object(asked) = serde_json::from_slice(body)? else {
        return Err(refused("this is no object: write {\"route\": \"NAME\", \"retry\": \"off\"}"));
    };
    if let Some(unknown) = asked.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(refused(format!("there is no key `{}` here{}", shown(unknown), known(unknown, &KEYS))));
    }
    let route = route(&asked, config)?;
    let change = Change { no_retries: retry(&asked, route)?, mode: mode(&asked)? };
    if change == Change::default() {
        return Err(refused("this changes nothing: write `retry` (on or off) or `mode`"));
    }
    Ok((route.name.clone(), change))
}

fn route<'c>(asked: &Map<String, Value>, config: &'c Config) -> Result<&'c Route, Unusable> {
    let names: Vec<&str> = config.routes.iter().map(|route| route.name.as_str()).collect();
    let Some(Value::String(name)) = asked.get("route") else {
        return Err(refused(format!("`route` is the name of one. Known: {}", names.join(", "))));
    };
    let found = config.routes.iter().find(|route| route.name.as_str() == name);
    found.ok_or_else(|| refused(format!("there is no route `{}`{}", shown(name), known(name, &names))))
}

/// Whether retries are switched off, or back to what the configuration says.
fn retry(asked: &Map<String, Value>, route: &Route) -> Result<Option<bool>, Unusable> {
    match asked.get("retry") {
        None => Ok(None),
        Some(Value::Null) => Ok(Some(false)),
        Some(Value::String(word)) if matches!(&**word, "on" | "off") && route.retry.is_none() => Err(refused(format!(
            "route {} has no `retry` in its configuration, so there is one attempt, and nothing to switch {word}",
            shown(route.name.as_str())
        ))),
        Some(Value::String(word)) if word == "off" => Ok(Some(true)),
        Some(Value::String(word)) if word == "on" => Ok(Some(false)),
        Some(other) => Err(word_of("retry", other, &["on", "off"])),
    }
}

fn mode(asked: &Map<String, Value>) -> Result<Option<Option<Mode>>, Unusable> {
    match asked.get("mode") {
        None => Ok(None),
        Some(Value::Null) => Ok(Some(None)),
        Some(value) => {
            let found = MODES.into_iter().find(|mode| value.as_str() == Some(mode.as_str()));
            found.map(|mode| Some(Some(mode))).ok_or_else(|| word_of("mode", value, &MODES.map(Mode::as_str)))
        }
    }
}

fn word_of(key: &str, value: &Value, words: &[&str]) -> Unusable {
    match value {
        Value::String(word) => {
            refused(format!("`{}` is nothing that `{key}` can be{}", shown(word), known(word, words)))
        }
        _ => refused(format!("`{key}` is one of {}, or null to take back what was changed", words.join(", "))),
    }
}

fn refused(why: impl Into<String>) -> Unusable {
    Unusable::Refused(why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let text = "upstreams: { app: { url: 'http://127.0.0.1:1' } }\nroutes:\n\
             - { name: orders, matches: [{ path: { value: /orders } }], upstream: app, retry: {} }\n\
             - { name: all, upstream: app }\n";
        Config::parse(text).expect("a configuration")
    }

    #[track_caller]
    fn reads(body: &str, route: &str, no_retries: Option<bool>, mode: Option<Option<Mode>>) {
        let read = read(body.as_bytes(), &config()).expect(body);
        assert_eq!(read, (Name::from(route.to_owned()), Change { no_retries, mode }), "{body}");
    }

    #[track_caller]
    fn says(body: &str, want: &str) {
        assert_eq!(read(body.as_bytes(), &config()).expect_err(body).to_string(), want);
    }

    #[test]
    fn what_is_left_out_stays_and_null_takes_it_back() {
        reads(r#"{"route": "orders", "retry": "off"}"#, "orders", Some(true), None);
        reads(
            r#"{"route": "orders", "retry": "on", "mode": "shadow"}"#,
            "orders",
            Some(false),
            Some(Some(Mode::Shadow)),
        );
        reads(r#"{"route": "all", "retry": null, "mode": null}"#, "all", Some(false), Some(None));
    }

    #[test]
    fn what_nobody_knows_is_refused_with_the_nearest() {
        says(
            r#"{"route": "order", "retry": "off"}"#,
            "there is no route `order`; did you mean `orders`? Known: orders, all",
        );
        says(
            r#"{"route": "all", "retries": "off"}"#,
            "there is no key `retries` here; did you mean `retry`? Known: route, retry, mode",
        );
        says(
            r#"{"route": "all", "mode": "enforced"}"#,
            "`enforced` is nothing that `mode` can be; did you mean `enforce`? Known: observe, shadow, enforce",
        );
        says(
            r#"{"route": "all", "mode": 1}"#,
            "`mode` is one of observe, shadow, enforce, or null to take back what was changed",
        );
        says(r#"{"route": "all", "retry": true}"#, "`retry` is one of on, off, or null to take back what was changed");
        for word in ["on", "off"] {
            says(
                &format!(r#"{{"route": "all", "retry": "{word}"}}"#),
                &format!(
                    "route all has no `retry` in its configuration, so there is one attempt, and nothing to switch {word}"
                ),
            );
        }
        says(r#"{"route": "all"}"#, "this changes nothing: write `retry` (on or off) or `mode`");
        says(r#"{"retry": "off"}"#, "`route` is the name of one. Known: orders, all");
        says("[]", "this is no object: write {\"route\": \"NAME\", \"retry\": \"off\"}");
        says("", "this is no JSON: EOF while parsing a value at line 1 column 0");
    }
}
