//! Deadline fields of a header map: read all, remove stale ones, write what the next hop understands.
//!
//! What the bytes mean is `oneclock_core::wire`'s decision; this is the loop around it. Contract P8, P9, C3, E7.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};
use oneclock::clock;
use oneclock_core::wire::{Convention, Conventions, NothingToSend, Reader, Reading, Wall, names};
use oneclock_core::{Importance, Trust};

use crate::marks;
use crate::protocol::{Protocol, Spoken};

/// Conventions, prepared for header maps.
///
/// A look-up in a map checks and hashes the name every time, for each convention. Going through the map once costs less:
/// nearly every field differs from all conventions in the length of its name or in its last letter already.
#[derive(Clone, Debug)]
pub(crate) struct FieldSet {
    conventions: Conventions,
    names: Arc<[HeaderName]>, // of the conventions; a declared name is checked to be one
    marks: u128,              // the marks of all names
    own: Marked,              // those that have no name in the contract
}

/// What a request's fields say of its deadline and of the protocol that it speaks.
pub(crate) struct Said<'c> {
    /// What the deadline fields say together.
    pub(crate) reading: Reading<'c>,
    /// What it speaks.
    pub(crate) protocol: Protocol,
    /// Which attempt of a trusted caller it is; one for the first.
    pub(crate) attempt: u32,
    /// How much its caller needs it. Nobody can make more of it than it is.
    pub(crate) importance: Importance,
}

/// What never travels on as it came: every deadline field that has a name in the contract, which attempt it is, and how
/// much it is needed.
static KNOWN: LazyLock<Marked> = LazyLock::new(|| Marked::new(names::ALL.iter().chain(&MARKS).copied()));

/// Which attempt a request is, and how much it is needed.
const MARKS: [&str; 3] = [names::X_ENVOY_ATTEMPT_COUNT, names::GRPC_PREVIOUS_RPC_ATTEMPTS, names::ONECLOCK_IMPORTANCE];

/// What outsiders have no say in beside that.
static RETRIES_AND_HEDGES: LazyLock<Marked> = LazyLock::new(|| Marked::new(names::RETRIES_AND_HEDGES.iter().copied()));

/// Names, prepared to be looked for in a header map in one pass.
#[derive(Clone, Debug)]
struct Marked {
    names: Arc<[HeaderName]>,
    marks: u128, // the marks of all names
}

impl FieldSet {
    pub(crate) fn new(conventions: Conventions) -> Self {
        let names =
            conventions.iter().filter_map(|convention| HeaderName::try_from(convention.name().as_str()).ok()).collect();
        let marks = conventions.iter().fold(0, |marks, convention| marks | mark(convention.name().as_str()));
        let own = conventions.iter().map(|convention| convention.name().as_str());
        let own = Marked::new(own.filter(|name| !names::ALL.contains(name)));
        Self { conventions, names, marks, own }
    }

    /// These, and of `more` those that are not among them.
    pub(crate) fn and(&self, more: &Conventions) -> Self {
        let missing = more.iter().filter(|one| self.conventions.find(one.name().as_str()).is_none());
        let all = missing.fold(self.conventions.clone(), |all, one| match all.clone().with(one.clone()) {
            Ok(more) => more,
            Err(_) => all, // cannot be: it is missing
        });
        Self::new(all)
    }

    /// Reads every deadline field that a peer of this trust may send.
    pub(crate) fn read(&self, method: &Method, uri: &Uri, headers: &HeaderMap, trust: Trust) -> Said<'_> {
        let mut reader = Reader::new(clock::wall);
        let (mut spoken, mut attempt, mut importance) = (Spoken::default(), 1, Importance::Required);
        for (name, value) in headers {
            if *name == header::CONTENT_TYPE {
                spoken.content_type(value);
                continue;
            }
            let name = name.as_str();
            spoken.field(name);
            if let Some(convention) = self.find(name)
                && may_send(trust, convention)
            {
                reader.field(convention, value.as_bytes());
            } else if !marks::may_be_one(name) {
                // nearly every field
            } else if let Some(said) = marks::importance_said_by(name, value) {
                importance = importance.at_most(said);
            } else if trust == Trust::Inside
                && let Some(said) = marks::attempt_said_by(name, value)
            {
                attempt = attempt.max(said);
            }
        }
        Said { reading: reader.finish(), protocol: spoken.protocol(method, uri), attempt, importance }
    }

    /// Removes what a peer of this trust sent and what must not travel on as it came: from outsiders every field that
    /// speaks of deadlines, retries and hedges, from everybody the fields that only this listener knows, which no way out
    /// would rewrite (contract C3, E7).
    pub(crate) fn strip(&self, headers: &mut HeaderMap, trust: Trust) {
        if trust == Trust::Outside {
            KNOWN.strip(headers);
            RETRIES_AND_HEDGES.strip(headers);
        }
        self.own.strip(headers);
    }

    /// Writes `remaining` in each of these, after removing stale copies of these and of every known field.
    ///
    /// # Errors
    /// [`NothingToSend`], if what remains is below one unit of a field: the call must not be made (contract E2).
    pub(crate) fn write(&self, headers: &mut HeaderMap, remaining: Duration) -> Result<(), NothingToSend> {
        KNOWN.strip_but(headers, &self.names); // those are written over
        self.own.strip_but(headers, &self.names);
        if let Some(connection) = headers.get(header::CONNECTION)
            && self.names.iter().any(|name| speaks_of(connection, name))
        {
            headers.remove(header::CONNECTION); // it would have the next hop drop what is written here
        }
        let wall = if self.conventions.need_wall() { clock::wall() } else { Wall::default() };
        let mut unnameable = None;
        self.conventions.write(remaining, wall, |field, value| {
            let name = self.names.iter().find(|name| name.as_str() == field.as_str());
            match (name, HeaderValue::from_bytes(value.as_bytes())) {
                (Some(name), Ok(value)) => {
                    headers.insert(name.clone(), value);
                }
                _ => unnameable = Some(field.clone()),
            }
        })?;
        match unnameable {
            // Should a name that is none slip through, not calling is the safe side.
            Some(field) => Err(NothingToSend { field, remaining }),
            None => Ok(()),
        }
    }

    /// Whether `remaining` can be told in each of these.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn check(&self, remaining: Duration) -> Result<(), NothingToSend> {
        let wall = if self.conventions.need_wall() { clock::wall() } else { Wall::default() };
        self.conventions.write(remaining, wall, |_, _| {})
    }

    fn find(&self, name: &str) -> Option<&Convention> {
        if self.marks & mark(name) == 0 { None } else { self.conventions.find(name) }
    }
}

impl Marked {
    fn new<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let names: Arc<[HeaderName]> = names.filter_map(|name| HeaderName::try_from(name).ok()).collect();
        let marks = names.iter().fold(0, |marks, name| marks | mark(name.as_str()));
        Self { names, marks }
    }

    fn strip(&self, headers: &mut HeaderMap) {
        self.strip_but(headers, &[]);
    }

    fn strip_but(&self, headers: &mut HeaderMap, kept: &[HeaderName]) {
        // A mark may be that of another name: removing hashes every name, so it is looked at more closely first.
        let is_one = |name: &HeaderName| {
            self.marks & mark(name.as_str()) != 0 && self.names.contains(name) && !kept.contains(name)
        };
        if self.marks == 0 {
            return;
        }
        // One of them at a time: a request has one or two, and these are many.
        while let Some(name) = headers.keys().find(|name| is_one(name)).cloned() {
            headers.remove(name);
        }
    }
}

/// Whether a `connection` field names this one.
fn speaks_of(connection: &HeaderValue, name: &HeaderName) -> bool {
    let tokens = connection.as_bytes().split(|byte| *byte == b',');
    tokens.into_iter().any(|token| token.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
}

/// One bit, from the length of a name and its last letter.
fn mark(name: &str) -> u128 {
    let last = name.as_bytes().last().map_or(0, |last| usize::from(*last));
    1 << ((name.len() * 7 + last) % 128)
}

fn may_send(trust: Trust, convention: &Convention) -> bool {
    match trust {
        Trust::Inside => true,
        Trust::Outside => !convention.only_from_trusted(),
    }
}
