//! Checks of chains: a peer calls us, and our handler calls a peer. Decides that what arrives at the end is never more than
//! what was left in the middle.

use std::time::Duration;

use super::calls_us::Scene;
use super::{End, LIMIT_MS, LONG_MS, PATIENCE, fresh};
use crate::Error;
use crate::finding::Finding;
use crate::message::{Ask, Told};
use crate::peer::{ANSWERS_WITHIN, Which};

/// What the first peer gives, and what our handler spends of it first.
const BUDGET_MS: u32 = 5_000;
const SPENT_MS: u32 = 500;
const DEADLINE_EXCEEDED: u32 = 4;

/// The same budget, reduced by what we spent, at every end.
pub(super) async fn reduced(scene: &Scene<'_>) -> Result<Finding, Error> {
    if scene.ends.is_empty() {
        return Ok(Finding::not_possible("it calls nobody"));
    }
    let mut said = Vec::new();
    let mut holds = true;
    for end in scene.ends {
        let next = Ask { id: fresh(end.which, "end"), ..Ask::default() };
        let ask =
            Ask { work_ms: SPENT_MS, next: end.address.clone(), next_ask: Some(Box::new(next)), ..Ask::default() };
        let call = scene.within(BUDGET_MS, scene.call("Unary", &scene.roomy, ask));
        let outcome = scene.peer.call(&call, ANSWERS_WITHIN).await?;
        let told = outcome.told.ok_or_else(|| format!("{}: {}", outcome.code, outcome.message))?;
        let (holds_here, said_here) = at_end(end, &told);
        holds &= holds_here;
        said.push(said_here);
    }
    Ok(Finding::when(holds, said.join("; ")))
}

/// In milliseconds: what our handler was told, what was left when it called, what arrived at the end.
fn at_end(end: &End<'_>, told: &Told) -> (bool, String) {
    let Some(last) = &told.next else {
        return (false, format!("{}: the call ended with code {}", end.which.name(), told.next_code));
    };
    let name = end.which.name();
    let before = Duration::from_millis(told.left_before_next_ms.into());
    // Against what we were told: grpcio, which counts in hundredths of a second, tells us of up to one more than it has.
    let reduced = (1..=told.left_ms.saturating_sub(SPENT_MS)).contains(&told.left_before_next_ms);
    // node:http2 shows the field itself; the others show what they make of it.
    let (arrived, shown) = if end.which == Which::Raw {
        (timeout_of(&last.grpc_timeout), format!("`{}`", last.grpc_timeout))
    } else {
        let left = last.has_deadline.then(|| Duration::from_millis(last.left_ms.into()));
        (left, format!("{} ms", last.left_ms))
    };
    match arrived {
        None => (false, format!("{name} was told nothing")),
        Some(left) => {
            let holds = reduced && left <= before && !left.is_zero();
            (holds, format!("{} → {} → {shown} at {name}", told.left_ms, told.left_before_next_ms))
        }
    }
}

/// What a service was told that is left, by its library or by the field alone.
pub(super) fn left(told: &Told) -> Option<Duration> {
    let said_by_library = told.has_deadline.then(|| Duration::from_millis(told.left_ms.into()));
    said_by_library.or_else(|| timeout_of(&told.grpc_timeout))
}

/// What `grpc-timeout` says, in the units that we write.
fn timeout_of(field: &str) -> Option<Duration> {
    let (number, unit) = field.split_at_checked(field.len().checked_sub(1)?)?;
    let number = number.parse().ok()?;
    match unit {
        "n" => Some(Duration::from_nanos(number)),
        "u" => Some(Duration::from_micros(number)),
        "m" => Some(Duration::from_millis(number)),
        "S" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

/// When the first deadline is past, the last handler stops too.
pub(super) async fn stops(scene: &Scene<'_>) -> Result<Finding, Error> {
    let Some(end) = scene.ends.first() else { return Ok(Finding::not_possible("it calls nobody")) };
    let next = Ask { id: fresh(end.which, "end"), work_ms: LONG_MS, ..Ask::default() };
    let id = next.id.clone();
    let ask = Ask { next: end.address.clone(), next_ask: Some(Box::new(next)), ..Ask::default() };
    // With sidecars between there are four hops, and each may open a connection first.
    let limit = if scene.doors.is_some() { 3 * LIMIT_MS } else { LIMIT_MS };
    let call = scene.within(limit, scene.call("Unary", &scene.roomy, ask));
    let outcome = scene.peer.call(&call, PATIENCE).await?;
    let entry = end.log.cancelled(&id).await?;
    let said = format!(
        "{} after {} ms; {}'s handler ended after {} ms",
        outcome.code,
        outcome.after_ms,
        end.which.name(),
        entry.after_ms
    );
    // The end was told less than we have, so ours may hear of its deadline and still have the time to say so.
    let heard = outcome.told.is_some_and(|told| told.next_code == DEADLINE_EXCEEDED);
    Ok(Finding::when(heard || outcome.code == "DEADLINE_EXCEEDED", said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_read_in_its_units() {
        assert_eq!(timeout_of("4499123u"), Some(Duration::from_micros(4_499_123)));
        assert_eq!(timeout_of("12n"), Some(Duration::from_nanos(12)));
        for none in ["", "u", "12", "5x", "ü"] {
            assert_eq!(timeout_of(none), None, "{none}");
        }
    }
}
