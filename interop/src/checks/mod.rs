//! What is checked with each peer. Decides which checks belong to which peer, and how long anything is waited for.

mod calls_us;
mod chain;
mod fields;
pub(crate) mod through;
mod we_call;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use crate::Error;
use crate::finding::{Finding, Group, Row};
use crate::line::{self, Kind};
use crate::log::Log;
use crate::message::{Entry, LogAsk};
use crate::peer::{Over, Peer, Which};
use crate::servers::{Listening, Place, listen};

/// The deadline of most checks: long enough that a busy machine does not end a call before it began.
const LIMIT_MS: u32 = 400;
const LIMIT: Duration = Duration::from_millis(LIMIT_MS as u64);
/// As long as no check should see: what ends at its limit ends well before.
const PATIENCE: Duration = Duration::from_millis(LIMIT_MS as u64 * 10);
/// Work that no call here has the time for.
const LONG_MS: u32 = 60_000;

/// Our side of one place: with all the time there is, and with little.
#[derive(Debug)]
struct Ours {
    place: Place,
    /// Its ceiling is above all that peers ask for.
    roomy: Listening,
    /// Its ceiling is [`LIMIT`].
    tight: Listening,
}

/// Where a peer calls, and who tells afterwards what was done to the call.
#[derive(Clone, Debug)]
pub(crate) struct Spot<'a> {
    pub(crate) address: String,
    log: Asked<'a>,
}

/// What a chain ends at: where it is called, and where it is asked afterwards.
#[derive(Clone, Debug)]
pub(crate) struct End<'a> {
    pub(crate) which: Which,
    pub(crate) address: String,
    log: Asked<'a>,
}

/// All places.
#[derive(Debug)]
pub(crate) struct Stage {
    places: Vec<Ours>,
}

impl Stage {
    pub(crate) async fn open() -> Result<Self, Error> {
        let mut places = Vec::new();
        for place in [Place::Serve, Place::Tonic, Place::Plain, Place::PlainRouter] {
            let roomy = listen(place, Duration::from_secs(100)).await?;
            let tight = listen(place, LIMIT).await?;
            places.push(Ours { place, roomy, tight });
        }
        Ok(Self { places })
    }

    fn at(&self, place: Place) -> Result<&Ours, Error> {
        self.places.iter().find(|ours| ours.place == place).ok_or_else(|| "no such place".into())
    }
}

impl<'a> Spot<'a> {
    /// A probe of ours.
    pub(crate) fn of(here: &'a Listening) -> Self {
        Self { address: here.address.to_string(), log: Asked::Here(&here.probe.log) }
    }

    /// A peer.
    pub(crate) fn of_peer(peer: &'a Peer) -> Self {
        Self { address: peer.address.clone(), log: Asked::There(&peer.address) }
    }

    /// The same behind something that is called in its place.
    pub(crate) fn behind(&self, address: impl ToString) -> Self {
        Self { address: address.to_string(), log: self.log }
    }
}

impl<'a> End<'a> {
    /// A peer, called at this address.
    pub(crate) fn of(peer: &'a Peer, address: impl ToString) -> Self {
        Self { which: peer.which, address: address.to_string(), log: Asked::There(&peer.address) }
    }
}

/// The peer calls us.
pub(crate) async fn calls_us(stage: &Stage, peer: &Peer, over: Option<Over>, ends: &[&Peer]) -> Result<Group, Error> {
    let (ours, plain): (&[Place], Place) = if over.is_some() {
        (&[Place::Serve], Place::PlainRouter)
    } else {
        (&[Place::Serve, Place::Tonic], Place::Plain)
    };
    let plain_ours = stage.at(plain)?;
    let plain_ours = Spot::of(&plain_ours.roomy);
    let ends: Vec<_> = ends.iter().map(|peer| End::of(peer, &peer.address)).collect();
    let scenes = ours.iter().chain([&plain]).map(|place| {
        let here = stage.at(*place)?;
        let (roomy, tight) = (Spot::of(&here.roomy), Spot::of(&here.tight));
        Ok::<_, Error>(calls_us::Scene {
            peer,
            over,
            roomy,
            tight,
            plain: plain_ours.clone(),
            ends: &ends,
            doors: None,
        })
    });
    let scenes = scenes.collect::<Result<Vec<_>, _>>()?;
    let checks = calls_us::checks(peer.which);
    let columns = join_all(scenes.iter().map(|scene| async {
        let mut findings = Vec::new();
        for check in &checks {
            findings.push(Finding::of(scene.run(*check).await));
        }
        findings
    }));
    let names = ours.iter().chain([&plain]).map(|place| place.name());
    let rows = rows(checks.iter().map(|check| check.name()).collect(), names.collect(), columns.await);
    let how = over.map(|over| format!(" ({}, HTTP/{})", over.codec, over.http)).unwrap_or_default();
    Ok(Group { title: format!("{}{how} calls us", peer.which.name()), peer: peer.is.clone(), rows })
}

/// We call the peer.
pub(crate) async fn we_call(peer: &Peer) -> Group {
    let scenes = [Kind::Ours, Kind::Plain].map(|kind| we_call::Scene { peer, kind });
    let columns = join_all(scenes.iter().map(|scene| async {
        let mut findings = Vec::new();
        for check in we_call::CHECKS {
            findings.push(Finding::of(scene.run(*check).await));
        }
        findings
    }));
    let names = we_call::CHECKS.iter().map(|check| check.name()).collect();
    let rows = rows(names, vec!["ours", "plain tonic"], columns.await);
    Group { title: format!("we call {}", peer.which.name()), peer: peer.is.clone(), rows }
}

/// Turns columns into rows; the last column is the plain one.
fn rows(checks: Vec<&'static str>, names: Vec<&'static str>, columns: Vec<Vec<Finding>>) -> Vec<Row> {
    let mut columns: Vec<_> = names.into_iter().zip(columns.into_iter().map(Vec::into_iter)).collect();
    let mut rows = Vec::new();
    for check in checks {
        let mut cells =
            columns.iter_mut().filter_map(|(name, column)| Some((*name, column.next()?))).collect::<Vec<_>>();
        if let Some(plain) = cells.pop() {
            rows.push(Row { check, ours: cells, plain });
        }
    }
    rows
}

// === What checks have in common ===

/// A name for a call that no other has.
fn fresh(which: Which, check: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    format!("{} {check} {}", which.name(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Whether something ended at the limit: not before it, and no more than ten times later.
fn at_limit(after_ms: u32) -> bool {
    (LIMIT_MS - LIMIT_MS / 10..=LIMIT_MS * 10).contains(&after_ms)
}

/// Where the log of a service is asked.
#[derive(Clone, Copy, Debug)]
enum Asked<'a> {
    /// One of ours.
    Here(&'a Log),
    /// A peer's, at this address.
    There(&'a str),
}

impl Asked<'_> {
    async fn entries(self, id: &str) -> Result<Vec<Entry>, Error> {
        match self {
            Self::Here(log) => Ok(log.of(id).entries),
            Self::There(address) => {
                let ask = LogAsk { id: id.to_owned() };
                let told = timeout(PATIENCE, line::client(Kind::Plain, address)?.log(ask)).await;
                Ok(told.map_err(|_| "the peer's log does not answer")??.into_inner().entries)
            }
        }
    }

    /// The call with this id once it is like that; an error says what it is like instead.
    async fn once(self, id: &str, what: &str, is: impl Fn(&Entry) -> bool) -> Result<Entry, Error> {
        let mut last = None;
        let found = timeout(PATIENCE, async {
            loop {
                last = self.entries(id).await?.pop();
                if let Some(entry) = last.as_ref().filter(|entry| is(entry)) {
                    return Ok(entry.clone());
                }
                // Another process: there is nothing to wait on.
                sleep(Duration::from_millis(10)).await;
            }
        });
        let Ok(found) = found.await else {
            return Err(match last {
                None => "the handler never started".into(),
                Some(entry) if entry.ended.is_empty() => {
                    format!("handler {what}: not within {} ms, it still runs", PATIENCE.as_millis()).into()
                }
                Some(entry) => format!("handler {what}: no, {} after {} ms", entry.ended, entry.after_ms).into(),
            });
        };
        found
    }

    async fn started(self, id: &str) -> Result<Entry, Error> {
        self.once(id, "started", |_| true).await
    }

    async fn ended(self, id: &str) -> Result<Entry, Error> {
        self.once(id, "ended", |entry| !entry.ended.is_empty()).await
    }

    async fn cancelled(self, id: &str) -> Result<Entry, Error> {
        self.once(id, "cancelled", |entry| entry.ended == "cancelled").await
    }
}
