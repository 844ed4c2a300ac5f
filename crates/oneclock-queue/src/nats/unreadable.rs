//! Messages that the client cannot read, and whose delivery costs it its connection.
//!
//! Decides which those are, and what is put in their place: a copy that says the same as far as it can be said, with the fields as
//! they were beside it. They are looked for among what was delivered and not acknowledged, through the server's API, whose answers
//! carry fields in base64.

use async_nats::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::fields;
use super::fit::{self, TooLarge};
use super::wires::{Line, Wires};

/// The fields as they were, in base64.
const RAW: &str = "deadline-raw-fields";
const VERSION: &[u8] = b"NATS/1.0";
/// How many messages are looked at.
const AT_MOST: u64 = 2_000;
/// How many at the same time.
const AT_ONCE: usize = 32;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Looks at what is under way, and replaces what cannot be read.
///
/// # Cancel safety
/// Dropped in between, a message may be there twice.
pub(super) async fn make_readable(wires: &Wires, line: &Line) {
    use futures_util::{StreamExt as _, stream};
    let Ok((first, last)) = under_way(wires, line).await else { return };
    let looks = stream::iter(first..=last).map(|sequence| look(wires, line, sequence)).buffer_unordered(AT_ONCE);
    let failed = looks.filter_map(|looked| async { looked.err() }).collect::<Vec<_>>().await;
    if let Some(error) = failed.first() {
        // It is looked at again when it has cost the next connection.
        tracing::warn!(queue = %wires.name, %error, "a message that cannot be read may still be there");
    }
}

/// Which messages of the stream were delivered and not acknowledged, and some in between.
async fn under_way(wires: &Wires, line: &Line) -> Result<(u64, u64), Failed> {
    let subject = format!("CONSUMER.INFO.{}.{}", wires.stream, line.consumer);
    let info: Value = wires.context.request(subject, &json!({})).await?;
    let number = |of: &str| info.pointer(of).and_then(Value::as_u64);
    let (floor, last) = (number("/ack_floor/stream_seq"), number("/delivered/stream_seq"));
    match (number("/num_ack_pending"), floor, last) {
        (Some(1..), Some(floor), Some(last)) => Ok((floor.saturating_add(1), last.min(floor.saturating_add(AT_MOST)))),
        _ => Err("nothing is under way".into()),
    }
}

async fn look(wires: &Wires, line: &Line, sequence: u64) -> Result<(), Failed> {
    let answer: Value =
        wires.context.request(format!("STREAM.MSG.GET.{}", wires.stream), &json!({ "seq": sequence })).await?;
    let Some(message) = answer.get("message") else { return Ok(()) }; // it is gone by now
    let text = |of: &str| message.get(of).and_then(Value::as_str).unwrap_or_default();
    if text("subject") != line.subject.as_str() {
        return Ok(());
    }
    let raw = STANDARD.decode(text("hdrs"))?;
    if is_readable(&raw) {
        return Ok(());
    }
    tracing::warn!(
        queue = %wires.name, sequence,
        "the fields of a message are no text, or no fields: it is replaced by a copy that can be read, with its fields in {RAW}"
    );
    let lossy = lossy(&raw);
    let mut readable =
        fields::copy(&lossy, &format!("{}:{sequence}", wires.stream), &format!("{}:{sequence}:readable", wires.stream));
    fields::set(&mut readable, RAW, text("hdrs"));
    let body = STANDARD.decode(text("data"))?;
    // One that is as large as the server takes is replaced all the same: it would cost each connection.
    let fitted = fit::fit_at_any_price(&mut readable, body.len(), wires.most(), fields::has_id(&lossy));
    let left_out = fitted.map_err(|TooLarge| "a copy that can be read is larger than the server takes")?;
    if !left_out.is_empty() {
        tracing::warn!(queue = %wires.name, sequence, ?left_out, "these fields are not on the copy, which would be too large");
    }
    wires.publish(&line.subject, readable, body.into(), "a copy that can be read could not be published").await?;
    let delete = format!("STREAM.MSG.DELETE.{}", wires.stream);
    let _: Value = wires.context.request(delete, &json!({ "seq": sequence, "no_erase": true })).await?;
    Ok(())
}

/// Whether the client reads it.
fn is_readable(raw: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(raw) else { return false };
    let mut lines = text.lines();
    let Some(version) = lines.next() else { return raw.is_empty() };
    version.as_bytes() == VERSION
        && lines.filter(|line| !line.is_empty()).all(|line| {
            let is_name = |name: &str| name.chars().all(|c| c.is_ascii_graphic());
            let is_more = line.starts_with(char::is_whitespace); // of the value before
            !line.contains('\r') && (is_more || line.split_once(':').is_some_and(|(name, _)| is_name(name)))
        })
}

/// What of it can be said.
pub(super) fn lossy(raw: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in raw.split(|byte| *byte == b'\n').skip(1) {
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
        let Some((name, value)) = line.split_once(':') else { continue };
        let name: String = name.trim().chars().map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect();
        let value: String =
            value.trim().chars().map(|c| if c.is_control() || c == '\u{fffd}' { '?' } else { c }).collect();
        if let (false, Ok(name), Ok(value)) =
            (name.is_empty(), name.parse::<async_nats::HeaderName>(), value.parse::<async_nats::HeaderValue>())
        {
            headers.append(name, value);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_reads_is_left_alone() {
        for readable in [
            &b""[..],
            b"NATS/1.0\r\n\r\n",
            b"NATS/1.0\r\na: b\r\n c\r\nStra\x24e: \xc3\xbc\r\n\r\n",
            b"NATS/1.0\r\na:\r\n\r\n",
        ] {
            assert!(is_readable(readable), "{}", String::from_utf8_lossy(readable));
        }
        for not in [
            &b"NATS/1.0\r\na: \xfc\r\n\r\n"[..],
            b"NATS/1.0\r\nno colon\r\n\r\n",
            b"NATS/1.0\r\na b: 1\r\n\r\n",
            b"NATS/1.0\r\na: b\rc\r\n\r\n",
            b"HTTP/1.1\r\n\r\n",
        ] {
            assert!(!is_readable(not), "{}", String::from_utf8_lossy(not));
        }
    }

    #[test]
    fn what_can_be_said_is_said() {
        let headers = lossy(b"NATS/1.0\r\na b: M\xfcller\r\nno colon\r\nce-id: 7\r\nx: a\rb\r\n\r\n");
        let said = |name: &str| headers.get(name).map(async_nats::HeaderValue::as_str);
        assert_eq!((said("a?b"), said("ce-id"), said("x"), headers.len()), (Some("M?ller"), Some("7"), Some("a?b"), 3));
    }
}
