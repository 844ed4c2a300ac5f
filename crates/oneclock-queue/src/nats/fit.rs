//! What a copy leaves out where it would be larger than the server takes.
//!
//! Decides in which order. A message may be as large as the server takes, and each copy says something more than the one before:
//! without an end of its own such a message would be delivered for ever. What comes again needs its count, so there is no shorter
//! copy of it; a dead letter can do without everything that was added to it, since its lane says what it is.

use async_nats::{HeaderMap, HeaderValue};
use oneclock_core::expiry::{Reader, names};
use oneclock_core::wire::Wall;

use super::fields::{CONTENT_TYPE, ID, MAY_HAVE_RUN, NUMBER};

/// What a copy can do without that goes on: the server would drop a second one by it.
pub(super) const NUMBERS: [&str; 1] = [NUMBER];
/// What one that was put back can do without.
pub(super) const OF_A_REDRIVE: [&str; 2] = [NUMBER, names::REDRIVES];
/// What a dead letter can do without, in this order.
pub(super) const OF_THE_DEAD: [&str; 6] =
    [names::DEAD_DETAIL, MAY_HAVE_RUN, NUMBER, names::DEAD_AT, names::DEAD_ATTEMPTS, names::DEAD_REASON];

/// A copy is larger than the server takes, also without what it can do without.
pub(super) struct TooLarge;

/// Leaves out what it can do without, until it fits beside a body of this size into what the server takes. Returns what was left out.
pub(super) fn fit(
    headers: &mut HeaderMap,
    body: usize,
    most: usize,
    spare: &[&'static str],
) -> Result<Vec<String>, TooLarge> {
    let mut left_out = Vec::new();
    for name in spare {
        if fits(headers, body, most) {
            return Ok(left_out);
        }
        if headers.get(*name).is_some() {
            *headers = without(headers, name);
            left_out.push((*name).to_owned());
        }
    }
    if fits(headers, body, most) { Ok(left_out) } else { Err(TooLarge) }
}

/// The same of a dead letter, or of another copy that has to be made. Where that is not enough the longest fields that no rule reads
/// go before, since fields may have been written with fewer spaces than ours are; and at last the id, of a message that `had_id` not.
pub(super) fn fit_at_any_price(
    headers: &mut HeaderMap,
    body: usize,
    most: usize,
    had_id: bool,
) -> Result<Vec<String>, TooLarge> {
    let spare: Vec<_> = OF_THE_DEAD.into_iter().chain((!had_id).then_some(ID)).collect();
    let (mut left_out, mut rest) = (Vec::new(), headers.clone());
    loop {
        let mut fitted = rest.clone();
        if let Ok(spared) = fit(&mut fitted, body, most, &spare) {
            left_out.extend(spared);
            *headers = fitted;
            return Ok(left_out);
        }
        let length = |name: &str, values: &[HeaderValue]| {
            name.len() + values.iter().map(|value| value.as_str().len()).sum::<usize>()
        };
        let strangers = rest.iter().filter(|(name, _)| is_read_by_nobody((*name).as_ref()));
        let longest = strangers.max_by_key(|(name, values)| length((*name).as_ref(), values));
        let longest = longest.map(|(name, _)| name.to_string()).ok_or(TooLarge)?;
        rest = without(&rest, &longest);
        left_out.push(longest);
    }
}

fn fits(headers: &HeaderMap, body: usize, most: usize) -> bool {
    size(headers) + body <= most
}

/// What the fields take on the wire, in bytes.
fn size(headers: &HeaderMap) -> usize {
    if headers.is_empty() {
        return 0;
    }
    let line = |name: &str, value: &str| name.len() + ": ".len() + value.len() + "\r\n".len();
    let lines =
        headers.iter().flat_map(|(name, values)| values.iter().map(move |value| line(name.as_ref(), value.as_str())));
    "NATS/1.0\r\n\r\n".len() + lines.sum::<usize>()
}

fn without(headers: &HeaderMap, gone: &str) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for (name, values) in headers.iter().filter(|(name, _)| AsRef::<str>::as_ref(*name) != gone) {
        values.iter().for_each(|value| kept.append(name.clone(), value.clone()));
    }
    kept
}

/// Whether it says nothing of the message itself, nor of its end.
fn is_read_by_nobody(name: &str) -> bool {
    let is_attribute = names::attribute(name).len() != name.len();
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    let is_ours = OF_THE_DEAD.iter().any(|ours| is(ours));
    !is_attribute && !is_ours && !is(CONTENT_TYPE) && !is(names::PRINCIPAL) && !Reader::new(Wall::default()).knows(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(mut headers: HeaderMap, fields: &[(&str, &str)]) -> HeaderMap {
        fields.iter().for_each(|(name, value)| headers.insert(*name, *value));
        headers
    }

    fn came() -> HeaderMap {
        let long = "a field that only its producer knows";
        with(HeaderMap::new(), &[("ce-id", "7"), (names::OWNER, "payments"), ("x-long", long), ("x", "1")])
    }

    fn dead() -> HeaderMap {
        let detail = (names::DEAD_DETAIL, "what its handler said");
        with(came(), &[detail, (names::DEAD_REASON, "rejected"), (NUMBER, "orders:7:dead")])
    }

    fn left(most: usize) -> Result<Vec<String>, TooLarge> {
        let mut headers = dead();
        fit_at_any_price(&mut headers, 10, most, true)?;
        assert!(size(&headers) + 10 <= most);
        let mut names: Vec<String> = headers.iter().map(|(name, _)| name.to_string()).collect();
        names.sort();
        Ok(names)
    }

    #[test]
    fn a_dead_letter_gives_up_what_was_added_before_what_it_came_with_and_never_what_a_rule_reads() {
        let whole = size(&dead()) + 10;
        let most = |less: usize| left(whole - less).ok().unwrap_or_default();
        let all =
            ["Nats-Msg-Id", "ce-id", "deadline-dead-detail", "deadline-dead-reason", "deadline-owner", "x", "x-long"];
        assert_eq!(most(0), all);
        assert_eq!(most(1), ["Nats-Msg-Id", "ce-id", "deadline-dead-reason", "deadline-owner", "x", "x-long"]);
        let added = size(&dead()) - size(&came());
        assert_eq!(most(added), ["ce-id", "deadline-owner", "x", "x-long"]);
        assert_eq!(most(added + 1), ["ce-id", "deadline-dead-reason", "deadline-owner", "x"], "there is room again");
        assert!(left(40).is_err(), "its owner is no ballast");
    }

    #[test]
    fn one_that_had_nothing_is_left_with_nothing() {
        let mut bare = with(HeaderMap::new(), &[(ID, "orders:7"), (names::DEAD_REASON, "rejected")]);
        assert!(fit_at_any_price(&mut bare, 4_096, 4_096, false).is_ok());
        assert!(bare.is_empty());
    }
}
