//! Checks through the sidecar: a peer calls it, and it calls another. Decides what is checked there beside what is checked where
//! a peer calls us, and what a proxy could spoil: statuses behind messages, large messages, the units of the field.

use std::time::Duration;

use futures_util::future::join_all;

use super::calls_us::{self, Scene};
use super::{End, LIMIT_MS, PATIENCE, Spot, at_limit, chain, rows};
use crate::Error;
use crate::finding::{Finding, Group};
use crate::message::Ask;
use crate::peer::{ANSWERS_WITHIN, Call, Outcome, Peer, Send, Which};

/// Where a peer can call beside the usual place.
#[derive(Clone, Debug)]
pub(crate) struct Doors {
    /// The same over TLS: `host:port`, and the file of its roots.
    pub(crate) tls: (String, String),
    /// A sidecar behind which nobody listens.
    pub(crate) nobody: String,
}

/// One service behind sidecars.
#[derive(Debug)]
pub(crate) struct Column<'a> {
    pub(crate) name: &'static str,
    /// Through one that gives more than all that peers ask for.
    pub(crate) roomy: Spot<'a>,
    /// Through one that gives [`LIMIT`](super::LIMIT).
    pub(crate) tight: Spot<'a>,
    /// What it calls itself, through sidecars again; nobody, if it does not speak for our layers.
    pub(crate) ends: Vec<End<'a>>,
    pub(crate) doors: Doors,
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Told,
    Units,
    Statuses,
    Streams,
    Large,
    Tls,
    Nobody,
}

/// In the numbers' order.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Many times what a window of HTTP/2 is by default, and less than libraries take.
const LARGE: usize = 3 << 20;
/// So large is each of several.
const SOME: usize = 256 << 10;
/// How many messages a stream sends behind its first.
const MORE: u32 = 20;

/// The peer calls every service through the sidecar. `plain` is one without it, called directly.
pub(crate) async fn through(peer: &Peer, columns: &[Column<'_>], plain: (&'static str, Spot<'_>)) -> Group {
    let direct = plain.1;
    let mut scenes: Vec<_> = columns
        .iter()
        .map(|column| Scene {
            peer,
            over: None,
            roomy: column.roomy.clone(),
            tight: column.tight.clone(),
            plain: direct.clone(),
            ends: &column.ends,
            doors: Some(&column.doors),
        })
        .collect();
    let (roomy, tight, plain_spot) = (direct.clone(), direct.clone(), direct);
    scenes.push(Scene { peer, over: None, roomy, tight, plain: plain_spot, ends: &[], doors: None });
    let checks = checks(peer.which);
    let found = join_all(scenes.iter().map(|scene| async {
        let mut findings = Vec::new();
        for check in &checks {
            findings.push(Finding::of(scene.run(*check).await));
        }
        findings
    }));
    let names = columns.iter().map(|column| column.name).chain([plain.0]);
    let rows = rows(checks.iter().map(|check| check.name()).collect(), names.collect(), found.await);
    Group { title: format!("{} through the sidecar", peer.which.name()), peer: peer.is.clone(), rows }
}

fn checks(which: Which) -> Vec<calls_us::Check> {
    let of_ours = |check: &calls_us::Check| !matches!(check, calls_us::Check::Told | calls_us::Check::CutUpload(_));
    let mut checks = vec![calls_us::Check::Through(Check::Told)];
    checks.extend(calls_us::checks(which).into_iter().filter(of_ours));
    let more = [Check::Units, Check::Statuses, Check::Streams, Check::Large, Check::Tls, Check::Nobody];
    checks.extend(more.map(calls_us::Check::Through));
    checks
}

impl Check {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Told => "the service is told what is left",
            Self::Units => "every unit, and never more",
            Self::Statuses => "statuses intact",
            Self::Streams => "every message of a stream",
            Self::Large => "large messages",
            Self::Tls => "over TLS",
            Self::Nobody => "nobody behind it",
        }
    }

    pub(super) async fn run(self, scene: &Scene<'_>) -> Result<Finding, Error> {
        match self {
            Self::Told => told(scene).await,
            Self::Units => units(scene).await,
            Self::Statuses => statuses(scene).await,
            Self::Streams => streams(scene).await,
            Self::Large => large(scene).await,
            Self::Tls => tls(scene).await,
            Self::Nobody => nobody(scene).await,
        }
    }
}

/// Less than was given: a call begins before its head arrives. grpcio counts in hundredths of a second, and says up to one more.
async fn told(scene: &Scene<'_>) -> Result<Finding, Error> {
    let ms = 5_000;
    let call = scene.within(ms, scene.call("Unary", &scene.roomy, Ask::default()));
    let told = answered(scene, &call).await?.told.ok_or("no answer")?;
    let Some(left) = chain::left(&told) else { return Ok(Finding::when(false, "nothing")) };
    let holds = !left.is_zero() && left <= Duration::from_millis(ms.into()) + Duration::from_millis(10);
    Ok(Finding::when(holds, format!("{} of {ms} ms", left.as_millis())))
}

async fn units(scene: &Scene<'_>) -> Result<Finding, Error> {
    // grpcio reads what it is given and writes that anew, rounded up.
    let rounds_up = matches!(scene.peer.which, Which::PythonSync | Which::PythonAio);
    let (mut sent, mut wrong) = (0, Vec::new());
    let secs = Duration::from_secs;
    let values = [
        ("1H", secs(3_600)),
        ("1M", secs(60)),
        ("5S", secs(5)),
        ("5000m", secs(5)),
        ("5000000u", secs(5)),
        ("99999999u", secs(100)),
        ("99999999n", secs(1) / 10),
    ];
    for (value, most) in values {
        if !scene.can_send(value).await? {
            continue;
        }
        sent += 1;
        let outcome = scene.with_field(&scene.roomy, &[value], Ask::default()).await?.1;
        match outcome.told.as_ref().and_then(chain::left) {
            // Little enough to be spent on the way.
            None if value.ends_with('n') && outcome.code == "DEADLINE_EXCEEDED" => {}
            Some(left) if left <= most && !left.is_zero() => {}
            Some(left) if rounds_up && left <= most + most / 100 => {}
            left => wrong.push(format!("`{value}`: {}, told {left:?}", outcome.code)),
        }
    }
    if sent == 0 {
        return Ok(Finding::not_possible("it sends no field of ours"));
    }
    let said = if wrong.is_empty() { format!("{sent} values") } else { wrong.join("; ") };
    Ok(Finding::when(wrong.is_empty(), said))
}

/// Alone, and behind messages, where they stand in the trailers.
async fn statuses(scene: &Scene<'_>) -> Result<Finding, Error> {
    let mut wrong = Vec::new();
    for (number, want) in (0..).zip(CODES).skip(1) {
        for (method, items) in [("Unary", 0), ("ServerStream", 3)] {
            let call = scene.call(method, &scene.roomy, Ask { fail: number, items, ..Ask::default() });
            let outcome = scene.peer.call(&call, ANSWERS_WITHIN).await?;
            if (outcome.code.as_str(), outcome.items) != (want, items) {
                wrong.push(format!("{method} {want}: {} behind {} items", outcome.code, outcome.items));
            }
        }
    }
    let said = if wrong.is_empty() { "1 to 16, alone and behind messages".to_owned() } else { wrong.join(", ") };
    Ok(Finding::when(wrong.is_empty(), said))
}

async fn streams(scene: &Scene<'_>) -> Result<Finding, Error> {
    let send = Send { items: MORE, every_ms: 1, open: false };
    let down = scene.call("ServerStream", &scene.roomy, Ask { items: MORE, every_ms: 1, ..Ask::default() });
    let up = Call { send, ..scene.call("ClientStream", &scene.roomy, Ask::default()) };
    let both = Call { send, ..scene.call("Bidi", &scene.roomy, Ask::default()) };
    let down = answered(scene, &down).await?.items;
    let up = answered(scene, &up).await?.told.map_or(0, |told| told.item);
    let both = answered(scene, &both).await?.items;
    let said = format!("{down} down, {up} up, {both} both ways");
    Ok(Finding::when((down, up, both) == (MORE, MORE + 1, MORE + 1), said))
}

async fn large(scene: &Scene<'_>) -> Result<Finding, Error> {
    let mut one = scene.call("Unary", &scene.roomy, Ask::default());
    one.ask.id.push_str(&"x".repeat(LARGE));
    let send = Send { items: MORE, every_ms: 0, open: false };
    let mut several = Call { send, ..scene.call("Bidi", &scene.roomy, Ask::default()) };
    several.ask.id.push_str(&"y".repeat(SOME));
    let came = answered(scene, &one).await?.told.is_some_and(|told| told.id == one.ask.id);
    let answers = answered(scene, &several).await?;
    let all = answers.items == MORE + 1 && answers.told.is_some_and(|told| told.id == several.ask.id);
    let said = format!("{} MiB: {came}; {} × {} KiB both ways: {all}", LARGE >> 20, MORE + 1, SOME >> 10);
    Ok(Finding::when(came && all, said))
}

async fn tls(scene: &Scene<'_>) -> Result<Finding, Error> {
    let Some(doors) = scene.doors else { return Ok(Finding::not_possible("no sidecar")) };
    let (target, roots) = doors.tls.clone();
    let over = |call: Call| Call { target: target.clone(), tls: Some(roots.clone()), ..call };
    let items = Ask { items: MORE, ..Ask::default() };
    let whole = answered(scene, &over(scene.call("ServerStream", &scene.roomy, items))).await?;
    let cut = over(scene.within(LIMIT_MS, scene.endless("ServerStream", &scene.roomy)));
    let outcome = scene.peer.call(&cut, PATIENCE).await;
    let entry = scene.roomy.log.ended(&cut.ask.id).await.map_err(|error| match &outcome {
        Ok(outcome) => format!("{error}; {} after {} ms: {}", outcome.code, outcome.after_ms, outcome.message).into(),
        Err(no_end) => Error::from(format!("{error}; {no_end}")),
    })?;
    let handler = format!("handler {} after {} ms and {} items", entry.ended, entry.after_ms, entry.items);
    let outcome = outcome.map_err(|error| format!("{error}; {handler}"))?;
    let said =
        format!("{} items; {} after {} of {LIMIT_MS} ms; {handler}", whole.items, outcome.code, outcome.after_ms);
    let holds = whole.items == MORE && outcome.code == "DEADLINE_EXCEEDED" && at_limit(outcome.after_ms);
    Ok(Finding::when(holds, said))
}

/// In gRPC's words, and soon.
async fn nobody(scene: &Scene<'_>) -> Result<Finding, Error> {
    let Some(doors) = scene.doors else { return Ok(Finding::not_possible("no sidecar")) };
    let call = scene.within(5_000, scene.call("Unary", &scene.roomy, Ask::default()));
    let outcome = scene.peer.call(&Call { target: doors.nobody.clone(), ..call }, PATIENCE).await?;
    Ok(Finding::when(outcome.code == "UNAVAILABLE", format!("{} after {} ms", outcome.code, outcome.after_ms)))
}

/// A call that has to succeed.
async fn answered(scene: &Scene<'_>, call: &Call) -> Result<Outcome, Error> {
    let outcome = scene.peer.call(call, ANSWERS_WITHIN).await?;
    if outcome.code == "OK" { Ok(outcome) } else { Err(format!("{}: {}", outcome.code, outcome.message).into()) }
}
