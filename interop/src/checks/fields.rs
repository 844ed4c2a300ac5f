//! Checks of single fields: timeouts that say nothing is left or nothing at all, and metadata.
//!
//! Decides what a peer can be made to send: a value counts as sent when our plain server found it in its request.

use super::calls_us::Scene;
use super::{LONG_MS, PATIENCE, Spot};
use crate::Error;
use crate::finding::Finding;
use crate::message::Ask;
use crate::peer::{ANSWERS_WITHIN, Call, Outcome};

/// What the contract's grammar has no room for.
const MALFORMED_GRPC: &[&str] =
    &["000000000S", "123456789S", "+1S", "-1S", "1s", "1", "S", "1 S", "1.5S", "9a1S", "5x"];
const MALFORMED_CONNECT: &[&str] = &["5x", "+5", "-1", "1.5", "12345678901", "1 0", "0x10"];

/// Base64 without padding, as every library can be brought to show it.
const BYTES: &str = "AAEC/w";

impl Scene<'_> {
    fn field(&self) -> &'static str {
        if self.over.is_some() { "connect-timeout-ms" } else { "grpc-timeout" }
    }

    /// A unary call with this value in the timeout's field, past the API for timeouts.
    pub(super) async fn with_field(
        &self,
        at: &Spot<'_>,
        values: &[&str],
        ask: Ask,
    ) -> Result<(String, Outcome), Error> {
        let metadata = values.iter().map(|value| (self.field().to_owned(), (*value).to_owned())).collect();
        let call = Call { metadata, ..self.call("Unary", at, ask) };
        let outcome = self.peer.call(&call, PATIENCE).await?;
        Ok((call.ask.id, outcome))
    }

    /// Whether this value reaches a server as it is.
    pub(super) async fn can_send(&self, value: &str) -> Result<bool, Error> {
        let (id, _) = self.with_field(&self.plain, &[value], Ask::default()).await?;
        let entries = self.plain.log.entries(&id).await?;
        Ok(entries.iter().any(|entry| entry.grpc_timeout == value || entry.connect_timeout_ms == value))
    }
}

/// Nothing left, and yet a call: it is answered, and the handler never runs.
pub(super) async fn expired(scene: &Scene<'_>) -> Result<Finding, Error> {
    let (some, none) = if scene.over.is_some() { ("9000", "0") } else { ("9S", "0m") };
    if !scene.can_send(some).await? {
        let call = scene.call("Unary", &scene.roomy, Ask::default());
        let outcome = scene.peer.call(&Call { timeout_ms: Some(0), ..call.clone() }, ANSWERS_WITHIN).await?;
        let arrived = !scene.roomy.log.entries(&call.ask.id).await?.is_empty();
        if arrived || outcome.code != "DEADLINE_EXCEEDED" {
            return Ok(Finding::when(false, format!("timeout 0: {}, and the handler ran: {arrived}", outcome.code)));
        }
        return Ok(Finding::not_possible("it ends such a call itself, DEADLINE_EXCEEDED, and sends no field of ours"));
    }
    let (id, outcome) = scene.with_field(&scene.roomy, &[none], Ask { work_ms: LONG_MS, ..Ask::default() }).await?;
    let ran = !scene.roomy.log.entries(&id).await?.is_empty();
    let said = format!("`{none}`: {} after {} ms, handler {}", outcome.code, outcome.after_ms, ran_or_not(ran));
    Ok(Finding::when(outcome.code == "DEADLINE_EXCEEDED" && !ran, said))
}

/// No value that cannot be read means "unlimited".
pub(super) async fn malformed(scene: &Scene<'_>) -> Result<Finding, Error> {
    let (values, want) =
        if scene.over.is_some() { (MALFORMED_CONNECT, "INVALID_ARGUMENT") } else { (MALFORMED_GRPC, "INTERNAL") };
    let mut sent = Vec::new();
    let mut wrong = Vec::new();
    for value in values {
        if !scene.can_send(value).await? {
            continue;
        }
        sent.push(*value);
        let (id, outcome) = scene.with_field(&scene.roomy, &[value], Ask::default()).await?;
        let ran = !scene.roomy.log.entries(&id).await?.is_empty();
        if outcome.code != want || ran {
            wrong.push(format!("`{value}`: {}, handler {}", outcome.code, ran_or_not(ran)));
        }
    }
    if sent.is_empty() {
        return Ok(Finding::not_possible("it sends none of them"));
    }
    let all = format!("{} of {} values", sent.len(), values.len());
    let said = match wrong.first() {
        None => format!("{all}: {want}, handler never ran"),
        Some(first) => format!("{} of {} wrong: {first}", wrong.len(), sent.len()),
    };
    Ok(Finding::when(wrong.is_empty(), said))
}

/// Five seconds and a tenth of one: the smaller counts.
pub(super) async fn twice(scene: &Scene<'_>) -> Result<Finding, Error> {
    let ask = Ask { work_ms: LONG_MS, ..Ask::default() };
    let (_, outcome) = scene.with_field(&scene.roomy, &["5S", "300m"], ask).await?;
    let holds = outcome.code == "DEADLINE_EXCEEDED" && outcome.after_ms < 3_000;
    Ok(Finding::when(holds, format!("`5S` and `300m`: {} after {} ms", outcome.code, outcome.after_ms)))
}

const fn ran_or_not(ran: bool) -> &'static str {
    if ran { "ran" } else { "never ran" }
}

// === Metadata ===

/// What is sent, and comes back.
pub(super) fn metadata() -> Vec<(String, String)> {
    [
        ("x-probe-text", "a b; c=\"d\""),
        ("x-probe-twice", "1"),
        ("x-probe-twice", "2"),
        ("x-probe-bytes-bin", "AAEC/w=="),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// Whether all of it came back. Several values of one name may come as one, as HTTP allows.
pub(super) fn intact(pairs: &[(String, String)]) -> Result<(), String> {
    let of = |name: &str| {
        let values = pairs.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        values.collect::<Vec<_>>().join(", ")
    };
    for (name, want) in [("x-probe-text", "a b; c=\"d\""), ("x-probe-twice", "1, 2"), ("x-probe-bytes-bin", BYTES)] {
        let value = of(name);
        if value.trim_end_matches('=') != want {
            return Err(format!("{name} is `{value}`"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_changed_is_not_intact() {
        let sent = metadata();
        assert_eq!(intact(&sent), Ok(()));
        for lost in 0..sent.len() {
            let mut pairs = sent.clone();
            let (name, _) = pairs.remove(lost);
            assert!(intact(&pairs).is_err_and(|error| error.starts_with(&name)), "{name}");
        }
        assert_eq!(intact(&[("x-probe-text".into(), "a b".into())]), Err("x-probe-text is `a b`".into()));
    }
}
