//! What is printed, for people and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use oneclock_core::expiry::{NotRedriven, Stamp, Why, Zone};
use oneclock_core::time::Legible;
use oneclock_queue::Message;
use oneclock_queue::oncall::{self, Ended, LaneStanding, NotDropped, Seen, Standing};
use serde_json::{Value, json};

/// What was asked, and what it came to.
pub(super) enum Told {
    Standing { standing: Standing, messages: bool },
    Redriven(Vec<(Message, Result<Stamp, NotRedriven>)>),
    Dropped { told: Vec<(Message, Result<(), NotDropped>)>, reason: String, dry_run: bool },
    Expired(Vec<(Message, Ended)>),
}

impl Told {
    /// Whether some of what was meant was not done.
    pub(super) fn some_stay(&self) -> bool {
        match self {
            Self::Redriven(told) => told.iter().any(|(_, result)| result.is_err()),
            Self::Dropped { told, .. } => told.iter().any(|(_, result)| result.is_err()),
            Self::Standing { .. } | Self::Expired(_) => false,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Standing { standing, messages } => {
                let lanes: Vec<String> = standing.lanes.iter().map(|lane| of_lane(lane, *messages)).collect();
                format!("{}\nclocks may be wrong by {}", lanes.join("\n"), Legible(standing.uncertainty))
            }
            Self::Redriven(told) => each(told, "put back", |message, result| match result {
                Ok(stamp) => format!("{}: put back, for the {} time", named(message), ordinal(stamp.redrives)),
                Err(why) => format!("{}: stays: {why}", named(message)),
            }),
            Self::Dropped { told, reason, dry_run } => {
                let ended = if *dry_run { "would be ended" } else { "ended" };
                each(told, ended, |message, result| match result {
                    Ok(()) => format!("{}: {ended}, {}: {}", named(message), was_dead(message), printable(reason)),
                    Err(why) => format!("{}: stays: {why}", named(message)),
                })
            }
            Self::Expired(ended) if ended.is_empty() => "nothing had certainly expired".to_owned(),
            Self::Expired(ended) => {
                let lines: Vec<String> =
                    ended.iter().map(|(message, end)| format!("{}: {}", named(message), of_end(*end))).collect();
                lines.join("\n")
            }
        }
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Self::Standing { standing, messages } => json!({
                "uncertainty_ms": standing.uncertainty.as_millis() as u64,
                "lanes": standing.lanes.iter().map(|lane| lane_document(lane, *messages)).collect::<Vec<_>>(),
            }),
            Self::Redriven(told) => told
                .iter()
                .map(|(message, result)| {
                    let stays = result.as_ref().err().map(|why| why.as_str());
                    json!({ "id": &*message.id, "kind": message.kind.as_str(), "put_back": result.is_ok(), "stays_because": stays })
                })
                .collect(),
            Self::Dropped { told, reason, dry_run } => json!({
                "reason": reason,
                "dry_run": dry_run,
                "dropped": told.iter().filter(|(_, result)| result.is_ok() && !dry_run).count(),
                "messages": told.iter().map(|(message, result)| json!({
                    "id": &*message.id,
                    "kind": message.kind.as_str(),
                    "owner": message.stamp.owner.as_deref(),
                    "because": oncall::because(message).map(Why::as_str),
                    "dropped": result.is_ok() && !dry_run,
                    "stays_because": result.as_ref().err().map(|why| why.as_str()),
                })).collect::<Vec<_>>(),
            }),
            Self::Expired(ended) => ended
                .iter()
                .map(|(message, end)| json!({ "id": &*message.id, "kind": message.kind.as_str(), "end": of_end(*end) }))
                .collect(),
        }
    }
}

const fn of_end(end: Ended) -> &'static str {
    match end {
        Ended::Discarded(_) => "discarded: it had expired",
        Ended::DeadLettered(_) => "moved to the dead lane: it had expired",
        Ended::MovedLate => "moved to the late lane: it had expired, and must be completed",
    }
}

fn ordinal(n: u32) -> String {
    let suffix = match (n % 10, n % 100) {
        (1, n) if n != 11 => "st",
        (2, n) if n != 12 => "nd",
        (3, n) if n != 13 => "rd",
        _ => "th",
    };
    format!("{n}{suffix}")
}

fn of_lane(lane: &LaneStanding, messages: bool) -> String {
    let count = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let mut text =
        format!("{}: {} waiting, {} in work", lane.lane, count(lane.depth.waiting), count(lane.depth.in_flight));
    if let Some(rates) = lane.rates {
        let _ = write!(text, ", {:.1} a second come, {:.1} go", rates.inflow, rates.drain);
        let empty = match lane.time_to_empty() {
            Some(Duration::ZERO) => "empty".to_owned(),
            Some(span) => format!("empty in {}", Legible(span)),
            None => "not empty at this rate, ever".to_owned(),
        };
        let _ = write!(text, ": {empty}");
    }
    for ((zone, policy, owner, because), count) in lane.grouped() {
        let _ = write!(text, "\n  {count:>6}  {zone:9}  {policy:13}  owner {}", printable(&owner));
        if because != "-" {
            let _ = write!(text, "  because {because}");
        }
    }
    if messages {
        for seen in &lane.looked_at {
            let _ = write!(text, "\n  {}", of_message(seen));
        }
    }
    text
}

fn of_message(seen: &Seen) -> String {
    let expires =
        seen.expires().unwrap_or_else(|| if seen.zone == Zone::Live { "never" } else { "cannot be read" }.to_owned());
    let age = seen.age().map_or_else(|| "unknown".to_owned(), |age| Legible(age).to_string());
    let mut text = format!("{}: {}, expires {expires}, age {age}", named(&seen.message), seen.zone);
    if let Some(why) = seen.because {
        let _ = write!(text, ", dead because {why}");
    }
    if let Some(at) = seen.died_at() {
        let _ = write!(text, " at {}", printable(at));
    }
    if let Some(attempts) = seen.attempts() {
        let _ = write!(text, " after {attempts} {}", if attempts == 1 { "attempt" } else { "attempts" });
    }
    if let Some(detail) = seen.detail() {
        let _ = write!(text, ": {}", printable(detail));
    }
    text
}

/// One line for each, and how many of them.
fn each<T, E>(
    told: &[(Message, Result<T, E>)],
    done: &str,
    line: impl Fn(&Message, &Result<T, E>) -> String,
) -> String {
    if told.is_empty() {
        return "no dead letter was meant".to_owned();
    }
    let lines = told.iter().map(|(message, result)| line(message, result));
    let count = told.iter().filter(|(_, result)| result.is_ok()).count();
    lines.chain([format!("{count} of {} {done}", told.len())]).collect::<Vec<_>>().join("\n")
}

fn was_dead(message: &Message) -> String {
    let because = oncall::because(message)
        .map_or_else(|| "dead without a reason".to_owned(), |why| format!("dead because {why}"));
    let owner =
        message.stamp.owner.as_deref().map_or_else(String::new, |owner| format!(", owner {}", printable(owner)));
    format!("{because}{owner}")
}

/// What a message is called. Strangers name it: on a terminal some characters are commands.
fn named(message: &Message) -> String {
    printable(&message.to_string())
}

fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

fn lane_document(lane: &LaneStanding, messages: bool) -> Value {
    let groups: Vec<Value> = lane
        .grouped()
        .into_iter()
        .map(|((zone, policy, owner, because), count)| {
            json!({ "zone": zone, "policy": policy.as_str(), "owner": owner, "because": because, "messages": count })
        })
        .collect();
    let mut document = json!({
        "lane": lane.lane.as_str(),
        "waiting": lane.depth.waiting,
        "in_flight": lane.depth.in_flight,
        "inflow_per_second": lane.rates.map(|rates| rates.inflow),
        "drain_per_second": lane.rates.map(|rates| rates.drain),
        "empty_in_seconds": lane.time_to_empty().map(|span| span.as_secs_f64()),
        "groups": groups,
    });
    if messages {
        let seen = lane.looked_at.iter().map(|seen| {
            json!({
                "id": &*seen.message.id,
                "kind": seen.message.kind.as_str(),
                "zone": seen.zone.as_str(),
                "policy": seen.message.stamp.policy.as_str(),
                "owner": seen.message.stamp.owner.as_deref(),
                "expires": seen.expires(),
                "age_seconds": seen.age().map(|age| age.as_secs_f64()),
                "redrives": seen.message.stamp.redrives,
                "because": seen.because.map(Why::as_str),
                "dead_at": seen.died_at(),
                "attempts": seen.attempts(),
                "detail": seen.detail(),
            })
        });
        document["messages"] = seen.collect();
    }
    document
}
