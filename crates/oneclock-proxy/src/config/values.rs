//! Values, as people write them: what is one, and what to write instead.
//!
//! Decides that no value means "unlimited": zero is refused where a bound has to be finite, and so is `none`. What is
//! said of a value that is refused never shows a password.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderName, Uri};
use oneclock_core::Name;
use oneclock_postgres::tokio_postgres;

use super::node::{Node, Refuse, Value};
use super::redact::shown;
use super::refused::known;
use super::{IdempotencyStore, Principal, Refused};

/// Four numbers of five digits: what GEP-2257 can say with every unit once.
const LONGEST: Duration = Duration::from_millis(99_999 * 3_600_000 + 59 * 60_000 + 59_999);

/// The text of a single value.
pub(super) fn text(node: &Node) -> Result<&str, Refused> {
    match &node.value {
        Value::Scalar(text) => Ok(text),
        _ => Err(node.refused(format!("a single value is expected here; this is {}", node.what()))),
    }
}

/// The items of a list, of which there has to be one.
pub(super) fn items(node: &Node) -> Result<&[Node], Refused> {
    match &node.value {
        Value::List(items) if items.is_empty() => {
            Err(node.refused("this list is empty: write what belongs in it, or delete the line"))
        }
        Value::List(items) => Ok(items),
        _ => Err(node.refused(format!("a list is expected here; this is {}", node.what()))),
    }
}

/// A value that is read from its text, or what is said instead.
pub(super) fn parsed<T>(node: &Node, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, Refused> {
    parse(text(node)?).map_err(|why| node.refused(why))
}

/// One of some words.
pub(super) fn word<T: Copy>(node: &Node, words: &[(&'static str, T)]) -> Result<T, Refused> {
    let written = text(node)?;
    match words.iter().find(|(word, _)| *word == written) {
        Some((_, value)) => Ok(*value),
        None => {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            Err(node.refused(format!("`{}` is not known here{}", shown(written), known(written, &words))))
        }
    }
}

/// A whole number between two.
pub(super) fn count(node: &Node, least: u64, most: u64) -> Result<u64, Refused> {
    parsed(node, |text| {
        let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten();
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| format!("`{}` is not a whole number from {least} to {most}", shown(text)))
    })
}

/// Yes or no.
pub(super) fn flag(node: &Node) -> Result<bool, Refused> {
    word(node, &[("true", true), ("false", false)])
}

/// What something is called.
pub(super) fn name(node: &Node) -> Result<Name, Refused> {
    parsed(node, name_of)
}

/// See [`name`].
pub(super) fn name_of(text: &str) -> Result<Name, String> {
    let fits = (1..=128).contains(&text.len()) && !text.contains(|c: char| c.is_control());
    if fits { Ok(Name::from(text.to_owned())) } else { Err("a name has 1 to 128 bytes, and no line breaks".to_owned()) }
}

/// A duration, zero as well.
pub(super) fn span(node: &Node) -> Result<Duration, Refused> {
    parsed(node, |text| {
        if text == "none" {
            return Err("`none` is no duration: write 0s where nothing is meant".to_owned());
        }
        duration(text)
    })
}

/// A duration that has to be there and to be more than zero.
pub(super) fn bound(node: &Node) -> Result<Duration, Refused> {
    parsed(node, |text| {
        if text == "none" {
            return Err(
                "`none` means no limit, and a finite one is required here: write a duration such as 30s, or delete \
                        the line for the default"
                    .to_owned(),
            );
        }
        let bound = duration(text)?;
        if bound.is_zero() {
            return Err(format!(
                "`{text}` would refuse every request: zero means expired here, not unlimited (Gateway API: disabled), and a \
                 finite limit is required; write a duration such as 30s, or delete the line for the default"
            ));
        }
        Ok(bound)
    })
}

/// A duration where there may be none, because something else is a bound already.
pub(super) fn bound_or_none(node: &Node) -> Result<Option<Duration>, Refused> {
    parsed(node, |text| {
        if text == "none" {
            return Ok(None);
        }
        let bound = duration(text)?;
        if bound.is_zero() {
            return Err(format!(
                "`{text}` would refuse every call: zero means expired here, not unlimited (Gateway API: disabled); write \
                 `none`, or delete the line, for all that the request has left"
            ));
        }
        Ok(Some(bound))
    })
}

/// GEP-2257: `([0-9]{1,5}(h|m|s|ms)){1,4}`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    if (1..=5).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(format!("`{text}` has no unit, so it is not a duration; did you mean `{text}s`, or `{text}ms`?"));
    }
    let wrong = || {
        format!(
            "`{}` is not a duration: write one to four whole numbers, each with its unit h, m, s or ms, such as 1m30s or \
             250ms",
            shown(text)
        )
    };
    let mut rest = text;
    let mut total = Duration::ZERO;
    for _ in 0..4 {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at_checked(digits).ok_or_else(wrong)?;
        let (unit, of_a_unit) = UNITS.iter().find(|(unit, _)| after.starts_with(unit)).ok_or_else(wrong)?;
        if !(1..=5).contains(&digits) {
            return Err(wrong());
        }
        let number: u64 = number.parse().map_err(|_| wrong())?;
        total = total.saturating_add(Duration::from_millis(number.saturating_mul(*of_a_unit)));
        rest = after.strip_prefix(unit).ok_or_else(wrong)?;
        if rest.is_empty() {
            return if total > LONGEST { Err(wrong()) } else { Ok(total) };
        }
    }
    Err(wrong())
}

/// The units, in milliseconds; `ms` before `m`, which begins it.
const UNITS: &[(&str, u64)] = &[("ms", 1), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

/// A duration, written as [`duration`] reads it. What is below a millisecond is left out, so that it is never more.
pub(super) fn written(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.min(LONGEST).as_millis()).unwrap_or(u64::MAX);
    let mut out = String::new();
    for (unit, of_a_unit) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        let number = rest / of_a_unit;
        rest %= of_a_unit;
        if number > 0 {
            out.push_str(&format!("{number}{unit}"));
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}

/// An address to listen on.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!(
            "`{}` is not an address and a port: write 127.0.0.1:8080, [::1]:8080, or 0.0.0.0:8080 for every address",
            shown(text)
        )
    })
}

/// The URL of an upstream.
pub(super) fn upstream_url(text: &str) -> Result<Uri, String> {
    let no = |why: &str| {
        Err(format!(
            "`{}` {why}; write http:// or https://, a host and a port, such as http://127.0.0.1:3000",
            shown(text)
        ))
    };
    let Ok(uri) = text.parse::<Uri>() else { return no("is not the URL of an upstream") };
    let (Some(authority), Some(scheme)) = (uri.authority(), uri.scheme_str()) else {
        return no("has no scheme or no host");
    };
    if authority.as_str().contains('@') {
        return no("has a user or a password, which would not be sent");
    }
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    let port =
        port.is_empty() || port.strip_prefix(':').and_then(|port| port.parse().ok()).is_some_and(|port: u16| port > 0);
    if authority.host().is_empty() || !port {
        return no("has no host, or a port that is none");
    }
    if !matches!(scheme, "http" | "https") {
        return no("is neither http nor https");
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return no("has a path, and requests keep the path they come with");
    }
    Ok(uri)
}

/// Whom a certificate is for.
pub(super) fn server_name(text: &str) -> Result<String, String> {
    match oneclock_http::rustls::pki_types::ServerName::try_from(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!(
            "`{}` is neither a DNS name nor an address, so no certificate can be for it; write a name such as payment.internal",
            shown(text)
        )),
    }
}

/// Where idempotency keys are kept.
pub(super) fn store(text: &str) -> Result<IdempotencyStore, String> {
    let no = |why: &str| {
        Err(format!(
            "`{}` {why}; write sqlite: and the path of a file, such as sqlite:/var/lib/oneclock/keys.db, or \
             postgres://user:password@host/database",
            shown(text)
        ))
    };
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return no("holds white space");
    }
    if let Some(path) = text.strip_prefix("sqlite:") {
        return match path {
            "" => no("has no path"),
            ":memory:" => no("is gone after a restart, and with it what was done already"),
            path if path.starts_with("//") => no("has two slashes where its path begins"),
            path => Ok(IdempotencyStore::Sqlite(path.into())),
        };
    }
    let Some(rest) = ["postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme)) else {
        return no("is neither");
    };
    // A password may hold a slash; the last `@` ends it.
    let after = rest.rsplit_once('@').map_or(rest, |(_, after)| after);
    let hosts = after.split(['/', '?']).next().unwrap_or_default();
    let is_host = |host: &str| match host.rsplit_once(':') {
        Some((name, port)) if !host.ends_with(']') => !name.is_empty() && port.parse().is_ok_and(|port: u16| port > 0),
        _ => !host.is_empty(),
    };
    if !hosts.split(',').all(is_host) {
        return no("has no host, or a port that is none");
    }
    if text.parse::<tokio_postgres::Config>().is_err() {
        return no("cannot be read by its driver"); // whose words may hold some of the password
    }
    Ok(IdempotencyStore::Postgres { url: text.to_owned(), ca: None })
}

/// Whose idempotency keys are: a header field, or nobody's in particular.
pub(super) fn principal(text: &str) -> Result<Principal, String> {
    if text == "everybody" {
        return Ok(Principal::Everybody);
    }
    let also = "; write one that tells callers apart, such as x-account or authorization, or everybody where they are all \
                the same";
    field(text).map(Principal::Field).map_err(|why| why + also)
}

/// The name of a header field.
pub(super) fn field(text: &str) -> Result<HeaderName, String> {
    let field = HeaderName::from_bytes(text.as_bytes()).ok().filter(|field| field.as_str() == text);
    field.ok_or_else(|| format!("`{}` is not the name of a header field in lower case", shown(text)))
}

/// The path of a match, as Gateway API allows it.
pub(super) fn path(text: &str) -> Result<String, String> {
    let no = |why: &str| Err(format!("`{}` is no path that a request has: {why}", shown(text)));
    if !text.starts_with('/') {
        return no("write it with a slash before it");
    }
    if text.len() > 1_024 {
        return no("1024 bytes are the most");
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@%".contains(&byte);
    if !text.bytes().all(allowed) {
        return no("it holds a character that is written as % and two digits there, or that ends the path (? and #)");
    }
    if let Some((before, _)) = text.split_once('*') {
        // A slash at its end makes no difference there.
        let prefix = before.rsplit_once('/').map_or("/", |(whole, _)| if whole.is_empty() { "/" } else { whole });
        return Err(format!(
            "`{}` has a star, which stands for a star here and for nothing else, so that hardly any request would match: for a \
             path and all below it write `type: PathPrefix` and `value: {}`; for a star itself write %2A",
            shown(text),
            shown(prefix)
        ));
    }
    let escapes = text.split('%').skip(1);
    if !escapes.into_iter().all(|after| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2) {
        return no("after % there have to be two hexadecimal digits");
    }
    let upper = text.to_ascii_uppercase();
    let dots = text.split('/').any(|part| matches!(part, "." | ".."));
    if text.contains("//") || dots || upper.contains("%2F") {
        return no(
            "empty parts, dots and escaped slashes are made away with on the way, or are not, and so match by chance",
        );
    }
    Ok(text.to_owned())
}
