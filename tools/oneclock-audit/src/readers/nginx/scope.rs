//! What holds in a block of nginx: what is written there, or around it.
//!
//! A value of a block replaces that around it; headers replace all those around it together.

use std::collections::BTreeMap;

use super::super::next_upstream::Conditions;
use super::syntax::Directive;
use crate::source::Place;

/// So many variables of a block are followed.
const MOST_VARIABLES: usize = 32;
/// So long are their names and values, and those of settings.
const LONGEST: usize = 256;

/// The modules that pass requests on.
pub(super) const PASSES: &[&str] = &["proxy", "fastcgi", "uwsgi", "scgi", "grpc"];
/// What holds for the client's side.
pub(super) const FRONT: &[&str] =
    &["client_header_timeout", "client_body_timeout", "send_timeout", "keepalive_timeout"];
/// What bounds one call, by its module.
pub(super) const CALL: &[&str] = &["connect_timeout", "read_timeout", "send_timeout"];

/// What is known of the rest of a configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    /// This is all of it.
    Whole,
    /// A part, and nothing else of nginx lies around: the stock configuration includes it, which sets no times of calls.
    Stock,
    /// A part of who knows what.
    Unknown,
}

/// What holds in a block: written there, or around it.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) values: BTreeMap<String, (String, Place)>,
    variables: Vec<(String, String)>,
    pub(super) streaming: bool,
    pub(super) around: Around,
}

// === Scope ===

impl Scope {
    /// Around everything.
    pub(super) fn nothing(around: Around) -> Self {
        Self { values: BTreeMap::new(), variables: Vec::new(), streaming: false, around }
    }

    /// The same where other files may say otherwise.
    pub(super) fn unsure(&self) -> Self {
        Self { around: Around::Unknown, ..self.clone() }
    }

    /// What holds in a block within this one.
    pub(super) fn within(&self, block: &[Directive], unread: &mut Option<(Place, usize)>) -> Self {
        let mut scope = self.clone();
        let mut headers = None;
        for directive in block {
            let name = directive.name.text.as_str();
            let args = &directive.args;
            if name == "include" {
                scope.around = Around::Unknown;
                let (_, number) = unread.get_or_insert((directive.name.place.clone(), 0));
                *number += 1;
            } else if name == "set" {
                if let (Some(variable), Some(value)) = (args.first(), args.get(1)) {
                    let value = scope.filled(&value.text);
                    if value.len() + variable.text.len() <= LONGEST {
                        scope.variables.truncate(MOST_VARIABLES);
                        scope.variables.insert(0, (variable.text.clone(), value));
                    }
                }
            } else if matches!(name, "proxy_set_header" | "grpc_set_header") {
                let upgrades = args.first().is_some_and(|word| word.text.eq_ignore_ascii_case("upgrade"));
                let sent = args.get(1).is_some_and(|word| !word.text.is_empty());
                headers = Some(headers.unwrap_or(false) | (upgrades && sent));
            } else if let Some(first) = args.first().filter(|_| is_timed(name)) {
                let all = name.ends_with("next_upstream");
                let words: Vec<&str> =
                    args.iter().take(if all { 16 } else { 1 }).map(|word| word.text.as_str()).collect();
                scope
                    .values
                    .insert(name.to_owned(), (words.join(" ").chars().take(LONGEST).collect(), first.place.clone()));
            }
        }
        // Headers are taken from around a block only where it sets none of its own.
        scope.streaming = headers.unwrap_or(scope.streaming);
        scope
    }

    /// After what a module asks the next server.
    pub(super) fn next_upstream(&self, module: &str) -> Conditions {
        Conditions::of(self.values.get(&format!("{module}_next_upstream")).map(|(text, _)| text.as_str()))
    }

    /// A text with the variables that have a fixed value.
    pub(super) fn filled(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (variable, value) in &self.variables {
            let Some(name) = variable.strip_prefix('$').filter(|name| !name.is_empty()) else { continue };
            let mut filled = String::new();
            let mut rest = text.as_str();
            while let Some((before, behind)) = rest.split_once('$') {
                let braced = behind.strip_prefix('{').and_then(|behind| behind.strip_prefix(name)?.strip_prefix('}'));
                let plain = behind
                    .strip_prefix(name)
                    .filter(|behind| !behind.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
                filled.push_str(before);
                if let Some(behind) = braced.or(plain).filter(|_| filled.len() + value.len() < 1024) {
                    filled.push_str(value);
                    rest = behind;
                } else {
                    filled.push('$');
                    rest = behind;
                }
            }
            filled.push_str(rest);
            text = filled;
        }
        text
    }
}

/// Whether a directive bears on time.
pub(super) fn is_timed(name: &str) -> bool {
    let of_a_call = || {
        let (module, key) = name.split_once('_')?;
        (PASSES.contains(&module) && (CALL.contains(&key) || key.starts_with("next_upstream"))).then_some(())
    };
    FRONT.contains(&name) || matches!(name, "proxy_timeout" | "worker_shutdown_timeout") || of_a_call().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::known;

    #[test]
    fn every_directive_that_is_put_together_has_a_row() {
        let of_calls = PASSES.iter().flat_map(|module| {
            let next = ["next_upstream_tries", "next_upstream_tries.connects", "next_upstream_timeout"];
            CALL.iter().copied().chain(next).map(move |key| format!("{module}_{key}"))
        });
        for key in FRONT.iter().map(|key| (*key).to_owned()).chain(of_calls) {
            assert!(known(&format!("nginx.{key}")).is_some(), "{key}");
        }
    }
}
